"""A folder that is exchanged under a running store: that disk is dead at once, and the other folder stays as it is."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from syncpoint.base.model.errors import Unavailable
from syncpoint.base.runtime.files import FolderExchanged
from syncpoint.log.storage import segment
from syncpoint.log.storage.damage import Damage, SegmentPart, SegmentPlace
from syncpoint.log.storage.disk import disk_identity
from syncpoint.log.storage.errors import ForeignDisk
from syncpoint.log.storage.record import EntryKind
from tests.kit.disks import Harness
from tests.unit.log.storage.test_real_files import Loop


def tree(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.md5(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def fill(loop: Loop, entries: int = 40) -> None:
    source = loop.store.log_counter << 24
    for number in range(entries):
        loop.store.append(EntryKind.MESSAGES, os.urandom(60_000), source=source, first_offset=number, count=1)
    loop.commit()


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """The folders of another server, with segments of the same numbers."""
    folder = tmp_path / "foreign"
    loop = Loop([folder / f"d{number}" for number in range(3)])
    fill(loop, 60)
    loop.store.close()
    return folder


@pytest.mark.parametrize("what", ["disk.json", "00000001.seg"])
def test_a_folder_in_another_format_is_refused_and_left_as_it_is(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = tmp_path / "d0"
    with monkeypatch.context() as later:
        later.setattr({"disk.json": disk_identity, "00000001.seg": segment}[what], "FORMAT", 2)
        loop = Loop([disk])
        fill(loop)
        loop.store.close()
    before = tree(disk)
    with pytest.raises(ForeignDisk, match=rf"{disk}.*{what} has format 2; this version reads 1\. .*Start the version"):
        Loop([disk])
    assert tree(disk) == before


def move(mine: Path, foreign: Path) -> None:
    """A restore, or another volume: the folder itself is another one."""
    mine.rename(mine.with_suffix(".away"))
    shutil.copytree(foreign, mine)


def replace_content(mine: Path, foreign: Path) -> None:
    """The same folder with other content."""
    for path in mine.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.copytree(foreign, mine, dirs_exist_ok=True)


@pytest.mark.parametrize("how", [move, replace_content])
def test_another_servers_folder_is_left_alone(tmp_path: Path, foreign: Path, how: Callable[[Path, Path], None]) -> None:
    disks = [tmp_path / f"d{number}" for number in range(3)]
    loop = Loop(disks, scrub_bytes_s=1 << 30, probe_interval_s=0.01)
    fill(loop)
    how(disks[1], foreign / "d1")
    before = tree(disks[1])
    loop.until(lambda: loop.store.status().disks[1].state == "failed")
    fill(loop, 5)
    loop.until(lambda: "another server" in loop.store.status().disks[1].reason)
    loop.let_pass(0.2)
    assert tree(disks[1]) == before
    loop.store.close()
    assert tree(disks[1]) == before


def test_all_folders_at_once(tmp_path: Path, foreign: Path) -> None:
    disks = [tmp_path / f"d{number}" for number in range(3)]
    loop = Loop(disks, scrub_bytes_s=1 << 30, probe_interval_s=0.01)
    fill(loop)
    for number, disk in enumerate(disks):
        move(disk, foreign / f"d{number}")
    before = tree(tmp_path / "d0"), tree(tmp_path / "d1"), tree(tmp_path / "d2")
    loop.until(lambda: loop.store.failure is not None)
    with pytest.raises(Unavailable):
        fill(loop, 1)
    loop.let_pass(0.2)
    loop.store.close()
    assert (tree(tmp_path / "d0"), tree(tmp_path / "d1"), tree(tmp_path / "d2")) == before


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    disks = [tmp_path / f"d{number}" for number in range(3)]
    loop = Loop(disks, probe_interval_s=0.01)
    fill(loop)
    disks[1].rename(tmp_path / "away")
    disks[1].mkdir()
    loop.until(lambda: loop.store.status().disks[1].state == "failed")
    loop.until(lambda: loop.store.status().disks[1].state == "ok", 30)
    loop.store.close()


def empty_folder(disks: list[Path]) -> None:
    disks[1].mkdir()


def no_folder(disks: list[Path]) -> None:
    assert not disks[1].exists()


def another_disk(disks: list[Path]) -> None:
    shutil.copytree(disks[2], disks[1], ignore=shutil.ignore_patterns("pool"))  # its files come and go


@pytest.mark.parametrize("what", [empty_folder, no_folder, another_disk])
def test_a_required_disk_comes_back_only_as_itself(tmp_path: Path, what: Callable[[list[Path]], None]) -> None:
    """As where a disk is unmounted under a running server: the mount point is not filled."""
    disks = [tmp_path / f"d{number}" for number in range(3)]
    loop = Loop(disks, probe_interval_s=0.01, require_disks=True)
    fill(loop)
    disks[1].rename(tmp_path / "away")
    what(disks)
    before = tree(disks[1]), disks[1].exists()
    loop.until(lambda: "require_disks" in loop.store.status().disks[1].reason)
    assert loop.store.status().disks[1].state == "failed"
    fill(loop, 5)
    assert (tree(disks[1]), disks[1].exists()) == before
    shutil.rmtree(disks[1], ignore_errors=True)
    (tmp_path / "away").rename(disks[1])  # mounted again
    loop.until(lambda: loop.store.status().disks[1].state == "ok", 30)
    loop.store.close()


def foreign_segment(harness: Harness) -> bytes:
    """A segment of another universe under a number of ours."""
    other = Harness.opened(2)
    other.fill(100)
    other.commit()
    return other.files.content(next(iter(other.store.catalog)).copies[0].path)


@pytest.mark.parametrize("what", ["trim", "heal", "scrub"])
def test_a_foreign_segment_is_neither_deleted_nor_rewritten(what: str) -> None:
    harness = Harness.opened(1, disks=3, pool_segments=0, scrub_bytes_s=0 if what != "scrub" else 1 << 30)
    harness.fill(100)
    harness.commit()
    segment = next(iter(harness.store.catalog))
    path = segment.copies[1].path
    theirs = foreign_segment(harness)
    # The file alone was exchanged, in place: neither the folder nor the name of the disk reports.
    file = harness.files._files[harness.files._names[path]]
    file.data, file.durable = bytearray(theirs), bytearray(theirs)
    if what == "trim":
        harness.dead.update(harness.appended)
        for _ in range(20):
            harness.store.collect(harness.live)
            harness.quiesce(5)
        assert harness.store.catalog.at(segment.log, segment.seq) is None
    elif what == "heal":
        harness.store._disks.damaged(segment, 1, Damage(SegmentPlace(SegmentPart.FRAME, 64), "a bad one"))
        harness.quiesce(20, 0.1)
    else:
        harness.quiesce(20, 0.1)
    assert harness.files.content(path) == theirs
    error = harness.store._disks.maintainers[1].writer.error
    assert isinstance(error, FolderExchanged), error
