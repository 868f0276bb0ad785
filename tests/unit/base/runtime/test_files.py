"""The interface to the file system, real and in memory: both do the same, and the helpers survive short writes."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from syncpoint.base.runtime import os_files
from syncpoint.base.runtime.file_content import (
    overwrite_file,
    read_exactly,
    read_file,
    read_pieces,
    replace_file,
    write_all,
)
from syncpoint.base.runtime.files import Files, FileStat, FolderExchanged
from syncpoint.base.runtime.os_files import OsFiles
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.testing.rigs.memory_files import FailOn, MemoryFiles


@pytest.fixture(params=["real", "memory"])
def system(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, str]:
    if request.param == "real":
        return OsFiles(), str(tmp_path)
    files = MemoryFiles()
    files.mkdir("/tmp")
    return files, "/tmp"


def test_calls_do_what_their_names_say(system: tuple[Files, str]) -> None:
    files, root = system
    path = root + "/a/b"
    files.mkdir(path)
    files.mkdir(path)
    with pytest.raises(FileNotFoundError):
        files.open(path + "/file")
    handle = files.open(path + "/file", create=True)
    files.lock(handle)
    assert files.pwritev(handle, [b"ab", bytearray(b"cd")], 3) == 4
    files.fdatasync(handle)
    assert files.pread(handle, 100, 0) == b"\0\0\0abcd"
    files.allocate(handle, 10_000)
    assert files.fstat(handle).size == 10_000
    files.truncate(handle, 5)
    assert files.stat(path + "/file") == files.fstat(handle)
    other = files.open(path + "/file", write=False)
    with pytest.raises(BlockingIOError):
        files.lock(other)
    files.close(other)
    files.close(handle)
    files.rename(path + "/file", path + "/new")
    files.sync_dir(path)
    assert files.listdir(path) == ["new"]
    with pytest.raises(OSError, match="not empty"):
        files.rmdir(path)
    files.unlink(path + "/new")
    files.rmdir(path)
    assert files.listdir(root + "/a") == []
    assert files.free_bytes(root) > 0
    with pytest.raises(FileNotFoundError):
        files.stat(path)


def _somebody_puts(system: tuple[Files, str], folder: str, *names: str) -> None:
    """Another folder, with these files, lies where `folder` was."""
    files, _ = system
    if isinstance(files, MemoryFiles):
        files.restore(folder, {f"{folder}/{name}": b"theirs" for name in names})
        return
    os.rename(folder, folder + ".away")
    os.mkdir(folder)
    for name in names:
        Path(folder, name).write_bytes(b"theirs")


def test_a_held_folder_is_that_folder_and_no_other(system: tuple[Files, str]) -> None:
    files, root = system
    folder = root + "/held"
    files.mkdir(folder)
    files.hold(folder)
    files.mkdir(folder + "/a/b")
    handle = files.open(folder + "/a/b/file", create=True)
    files.rename(folder + "/a/b/file", folder + "/file")
    files.sync_dir(folder)
    assert sorted(files.listdir(folder)) == ["a", "file"]
    assert files.free_bytes(folder) > 0
    _somebody_puts(system, folder, "file", "other")
    for act in (
        lambda: files.open(folder + "/new", create=True),
        lambda: files.open(folder + "/file"),
        lambda: files.unlink(folder + "/file"),
        lambda: files.rename(folder + "/other", folder + "/file"),
        lambda: files.mkdir(folder + "/more"),
        lambda: files.rmdir(folder + "/a"),
        lambda: files.listdir(folder),
        lambda: files.stat(folder + "/file"),
        lambda: files.sync_dir(folder),
        lambda: files.hold_new(folder, ["file"]),
    ):
        with pytest.raises(FolderExchanged):
            act()
    files.pwritev(handle, [b"ours"], 0)  # goes where the file is
    files.let_go(folder)
    assert sorted(files.listdir(folder)) == ["file", "other"]
    assert read_file(files, folder + "/file") == b"theirs"
    files.hold(folder)
    files.unlink(folder + "/file")


def test_a_held_folder_is_known_by_a_file_in_it(system: tuple[Files, str]) -> None:
    files, root = system
    folder = root + "/held"
    files.mkdir(folder)
    files.hold(folder)
    replace_file(files, folder + "/name", b"1")
    files.anchor(folder, "name")
    replace_file(files, folder + "/name", b"2")  # by ourselves
    assert read_file(files, folder + "/name") == b"2"
    if isinstance(files, MemoryFiles):
        files.wipe(folder)
    else:
        os.unlink(folder + "/name")
        Path(folder, "name").write_bytes(b"theirs")
    with pytest.raises(FolderExchanged):
        files.open(folder + "/more", create=True)
    files.hold_new(folder, ["nothing of this name"])
    files.close(files.open(folder + "/more", create=True))


def test_zeros_are_written_all_and_nothing_else(system: tuple[Files, str]) -> None:
    files, root = system
    handle = files.open(root + "/file", create=True)
    files.pwritev(handle, [b"x" * 3_000_000], 0)
    files.zero(handle, 100, 2_500_000)
    assert files.pread(handle, 3_000_000, 0) == b"x" * 100 + bytes(2_500_000) + b"x" * 499_900
    files.zero(handle, 2_999_999, 10)
    assert files.fstat(handle).size == 3_000_009
    files.zero(handle, 5, 0)
    assert files.pread(handle, 10, 0) == b"x" * 10
    files.close(handle)


def test_zeros_are_skipped_as_far_as_they_reach(system: tuple[Files, str]) -> None:
    files, root = system
    handle = files.open(root + "/file", create=True)
    files.allocate(handle, 3_000_000)
    assert files.skip_zeros(handle, 7) == 3_000_000
    assert files.skip_zeros(handle, 4_000_000) == 4_000_000
    files.pwritev(handle, [b"x"], 1_000_000)
    reached = 7
    while (further := files.skip_zeros(handle, reached)) > reached:
        reached = further
    assert 1_000_000 - (1 << 17) <= reached <= 1_000_000
    assert files.skip_zeros(handle, 1_000_001) == 3_000_000
    files.close(handle)


def test_a_disk_given_up_may_be_opened_anew(system: tuple[Files, str]) -> None:
    files, root = system
    handle = files.open(root + "/file", create=True)
    files.lock(handle)
    files.abandon(root)
    if isinstance(files, MemoryFiles):
        with pytest.raises(OSError, match="no such handle"):
            files.pwritev(handle, [b"x"], 0)
    files.close(handle)
    again = files.open(root + "/file")
    files.lock(again)
    files.close(again)


def test_one_machine_without_power_leaves_the_others_alone() -> None:
    files = MemoryFiles()
    for root in ("/a", "/b"):
        files.mkdir(root)
        write(files, f"{root}/kept", b"synced", sync=True)
        files.sync_dir(root)
    open_b = files.open("/b/new", create=True)
    files.pwritev(open_b, [b"unsynced"], 0)
    open_a = files.open("/a/new", create=True)
    for seed in range(8):
        files.power_cut(SeededRandom(seed), ["/a"])
        assert files.content("/b/new") == b"unsynced"
        assert files.content("/a/kept") == b"synced"
        assert files.pread(open_b, 100, 0) == b"unsynced"
        with pytest.raises(OSError, match="no such handle"):
            files.pread(open_a, 1, 0)
    files.power_cut(SeededRandom(9))
    with pytest.raises(OSError, match="no such handle"):
        files.pread(open_b, 1, 0)


def test_small_files_are_replaced_whole(system: tuple[Files, str]) -> None:
    files, root = system
    assert read_file(files, root + "/one") is None
    replace_file(files, root + "/one", b"long old content")
    replace_file(files, root + "/one", b"new")
    assert read_file(files, root + "/one") == b"new"
    assert files.listdir(root) == ["one"]


class Short(MemoryFiles):
    """Writes and reads at most three bytes at a time."""

    def pwritev(self, handle, buffers, offset):  # type: ignore[no-untyped-def]
        return super().pwritev(handle, [b"".join(buffers)[:3]], offset)

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        return super().pread(handle, min(size, 3), offset)


def test_short_writes_and_reads_are_gone_on_with() -> None:
    files = Short()
    files.mkdir("/d")
    handle = files.open("/d/f", create=True)
    assert write_all(files, handle, [b"abcd", b"efghij"], 2) == 12
    assert read_exactly(files, handle, 10, 2) == b"abcdefghij"
    assert read_exactly(files, handle, 100, 8) == b"ghij"
    assert read_pieces(files, handle, (4, 0, 5, 9), 2) == [b"abcd", b"", b"efghi", b"j"]


def test_adjacent_pieces_are_read_at_once_and_end_with_the_file(system: tuple[Files, str]) -> None:
    files, root = system
    handle = files.open(root + "/f", create=True)
    write_all(files, handle, [b"0123456789"], 0)
    assert read_pieces(files, handle, (2, 0, 5), 1) == [b"12", b"", b"34567"]
    assert read_pieces(files, handle, (3, 4, 1), 6) == [b"678", b"9", b""]
    files.close(handle)
    pieces: list[bytes] = []
    files.pread_path(root + "/f", (2, 0, 9, 1), 4, pieces.append)
    assert pieces == [b"45", b"", b"6789", b""]


def test_many_buffers_are_written_in_several_calls(system: tuple[Files, str]) -> None:
    files, root = system
    handle = files.open(root + "/f", create=True)
    assert write_all(files, handle, [b"%04d" % n for n in range(2_500)], 0) == 10_000
    assert files.pread(handle, 8, 9_992) == b"24982499"
    files.close(handle)


def write(files: MemoryFiles, path: str, data: bytes, sync: bool) -> None:
    handle = files.open(path, create=True)
    files.pwritev(handle, [data], 0)
    if sync:
        files.fdatasync(handle)
        files.sync_dir("/d")
    files.close(handle)


def test_a_power_cut_keeps_what_was_synced_and_mixes_the_rest() -> None:
    outcomes = set()
    for seed in range(60):
        files = MemoryFiles()
        files.mkdir("/d")
        write(files, "/d/safe", b"a" * 2048, sync=True)
        write(files, "/d/safe", b"b" * 2048, sync=False)
        write(files, "/d/new", b"c", sync=False)
        files.power_cut(SeededRandom(seed))
        content = files.content("/d/safe")
        assert len(content) == 2048
        outcomes.add((content[::512], "/d/new" in files.paths("/d")))
    texts = {text for text, _ in outcomes}
    assert {b"aaaa", b"bbbb"} < texts
    assert any(text not in (b"aaaa", b"bbbb") for text in texts)
    assert {new for _, new in outcomes} == {False, True}


def test_a_folder_is_renamed_with_all_in_it(system: tuple[Files, str]) -> None:
    files, root = system
    files.mkdir(f"{root}/old/inner")
    replace_file(files, f"{root}/old/inner/file", b"data")
    files.mkdir(f"{root}/new")
    files.rename(f"{root}/old", f"{root}/new/old")
    assert read_file(files, f"{root}/new/old/inner/file") == b"data"
    assert sorted(files.listdir(root)) == ["new"]
    files.mkdir(f"{root}/old")
    with pytest.raises(OSError, match="not empty"):
        files.rename(f"{root}/old", f"{root}/new")


def test_a_power_cut_leaves_a_renamed_folder_here_or_there() -> None:
    seen = set()
    for seed in range(20):
        files = MemoryFiles()
        files.mkdir("/d/old")
        files.mkdir("/d/new")
        replace_file(files, "/d/old/file", b"data")
        files.rename("/d/old", "/d/new/old")
        files.power_cut(SeededRandom(seed))
        there = "old" not in files.listdir("/d")
        assert read_file(files, "/d/new/old/file" if there else "/d/old/file") == b"data"
        assert files.listdir("/d/new") == (["old"] if there else [])
        seen.add(there)
    assert seen == {True, False}


def test_a_lying_disk_loses_what_it_said_was_synced() -> None:
    lost = 0
    for seed in range(20):
        files = MemoryFiles()
        files.mkdir("/d")
        write(files, "/d/f", b"a", sync=True)
        files.lying.add("/d")
        write(files, "/d/f", b"b", sync=True)
        files.power_cut(SeededRandom(seed))
        lost += files.content("/d/f") == b"a"
    assert lost


def test_faults_come_at_the_nth_call_and_as_often_as_asked() -> None:
    files = MemoryFiles()
    files.mkdir("/d")
    handle = files.open("/d/f", create=True)
    files.faults.append(FailOn("/d", errno.EIO, ("fdatasync",), after=1, times=1))
    files.fdatasync(handle)
    with pytest.raises(OSError, match="injected"):
        files.fdatasync(handle)
    files.fdatasync(handle)


def test_room_is_limited() -> None:
    files = MemoryFiles()
    files.mkdir("/d")
    files.capacity["/d"] = 100
    handle = files.open("/d/f", create=True)
    files.pwritev(handle, [bytes(90)], 0)
    assert files.free_bytes("/d") == 10
    with pytest.raises(OSError) as full:
        files.pwritev(handle, [bytes(20)], 90)
    assert full.value.errno == errno.ENOSPC
    files.pwritev(handle, [bytes(90)], 0)


def test_wiped_files_go_on_without_a_name_and_rot_shows() -> None:
    files = MemoryFiles()
    files.mkdir("/d")
    write(files, "/d/f", b"abc", sync=True)
    backup = files.snapshot("/d")
    handle = files.open("/d/f")
    files.wipe("/d")
    assert files.pwritev(handle, [b"x"], 0) == 1
    with pytest.raises(FileNotFoundError):
        files.stat("/d/f")
    files.restore("/d", backup)
    files.flip("/d/f", 1, 0x20)
    assert files.content("/d/f") == b"aBc"
    assert isinstance(files.stat("/d/f"), FileStat)


def test_folders_that_are_held_at_the_same_time_are_all_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = OsFiles()
    first, second, third = (str(tmp_path / name) for name in ("first", "second", "third"))
    for folder in (first, second, third):
        files.mkdir(folder)
    files.hold(third)
    inner = os_files.HeldFolder

    def meanwhile(root: str) -> object:
        if root == first:  # another disk's thread comes in between
            files.hold(second)
            files.let_go(third)
        return inner(root)

    monkeypatch.setattr(os_files, "HeldFolder", meanwhile)
    files.hold(first)
    for folder in (first, second, third):
        os.rename(folder, folder + ".away")
        os.mkdir(folder)
    for folder in (first, second):
        with pytest.raises(FolderExchanged):
            files.listdir(folder)
    assert files.listdir(third) == [], "it was let go of"


@pytest.mark.parametrize("cut_at", range(1, 5))
def test_an_exchange_of_names_that_was_cut_short_needs_no_new_file_the_next_time(tmp_path: Path, cut_at: int) -> None:
    class Cut(OsFiles):
        changes, full = 0, False

        def changed(self) -> None:
            self.changes += 1
            if self.changes == cut_at and not self.full:
                raise KeyboardInterrupt

        def unlink(self, path: str) -> None:
            self.changed()
            super().unlink(path)

        def link(self, old: str, new: str) -> None:
            self.changed()
            super().link(old, new)

        def rename(self, old: str, new: str) -> None:
            self.changed()
            super().rename(old, new)

        def open(self, path: str, *, create: bool = False, write: bool = True) -> int:
            if self.full and create and not os.path.exists(path):
                raise OSError(errno.ENOSPC, "not one free byte")
            return super().open(path, create=create, write=write)

    path = str(tmp_path / "marks")
    for content in (b"one", b"two"):
        overwrite_file(OsFiles(), path, content, 64)
    files = Cut()
    with pytest.raises(KeyboardInterrupt):
        overwrite_file(files, path, b"three", 64)
    assert (read_file(files, path) or b"").strip() in (b"two", b"three")
    files.full = True
    for content in (b"four", b"five"):
        overwrite_file(files, path, content, 64)
        assert (read_file(files, path) or b"").strip() == content
