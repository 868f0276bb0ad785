"""Remote files against a real server: they are files, and stay so when the server is killed, stopped or exchanged."""

from __future__ import annotations

import errno
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from syncpoint.base.runtime.file_content import cut
from syncpoint.base.runtime.files import DiskFenced, DiskUnreachable
from syncpoint.log.diskserver.command_channel import CommandChannel
from syncpoint.log.diskserver.protocol import ChangeKind, DiskOp, Reply, Request
from syncpoint.log.diskserver.remote_files import RemoteFiles
from syncpoint.log.diskserver.sockets import FrameReader
from tests.kit.disk_process import DiskProcess, hang_up, remote

ROOT = "/c0/d0"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[DiskProcess]:
    process = DiskProcess(tmp_path, 2)
    yield process
    hang_up()
    process.end()


def always() -> bool:
    return True


def put(files: RemoteFiles, path: str, data: bytes) -> int:
    handle = files.open(path, create=True)
    assert files.pwritev(handle, [data], 0) == len(data)
    files.fdatasync(handle)
    return handle


def content(process: DiskProcess, path: str, chain: int = 7) -> bytes:
    return (process.folders["d0"] / f"chains/{chain:010d}" / path).read_bytes()


class Later:
    """A call in another thread."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self.result: Any = None
        self.error: BaseException | None = None
        self._act = act
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.result = self._act()
        except BaseException as error:
            self.error = error

    @property
    def waits(self) -> bool:
        return self._thread.is_alive()

    def end(self) -> Any:
        self._thread.join(30)
        assert not self.waits
        if self.error is not None:
            raise self.error
        return self.result


def test_they_are_files(served: DiskProcess) -> None:
    files = remote([served])
    files.mkdir(f"{ROOT}/logs/1")
    handle = put(files, f"{ROOT}/logs/1/a", b"hello")
    assert files.fstat(handle).size == 5
    assert files.stat(f"{ROOT}/logs/1/a") == files.fstat(handle)
    assert files.pread(handle, 100, 1) == b"ello"
    files.truncate(handle, 3)
    files.allocate(handle, 10)
    files.pwritev(handle, [b"x", bytearray(b"y"), memoryview(b"z")], 8)
    files.zero(handle, 9, 1)
    assert files.pread(handle, 100, 0) == b"hel\0\0\0\0\0x\0z"
    assert files.fstat(handle).size == 11
    files.fdatasync(handle)
    assert content(served, "logs/1/a") == b"hel\0\0\0\0\0x\0z"
    files.rename(f"{ROOT}/logs/1/a", f"{ROOT}/logs/b")
    files.sync_dir(f"{ROOT}/logs")
    assert sorted(files.listdir(f"{ROOT}/logs")) == ["1", "b"]
    assert files.listdir(f"{ROOT}/logs/1") == []
    files.rmdir(f"{ROOT}/logs/1")
    files.close(handle)
    files.unlink(f"{ROOT}/logs/b")
    assert files.listdir(f"{ROOT}/logs") == []
    assert files.free_bytes(ROOT) > 0
    files.close_all()


def test_errors_are_those_of_files(served: DiskProcess) -> None:
    files = remote([served])
    files.mkdir(ROOT)
    with pytest.raises(FileNotFoundError):
        files.open(f"{ROOT}/none")
    with pytest.raises(FileNotFoundError):
        files.stat(f"{ROOT}/none")
    with pytest.raises(FileNotFoundError):
        files.stat("/elsewhere")
    files.mkdir(f"{ROOT}/x/y")
    with pytest.raises(OSError, match="not empty"):
        files.rmdir(f"{ROOT}/x")
    with pytest.raises(OSError, match="another"):
        files.rename(f"{ROOT}/x", "/c0/d1/x")
    handle = put(files, f"{ROOT}/a", b"1")
    files.close(handle)
    files.close(handle)
    with pytest.raises(OSError, match="no such handle"):
        files.fdatasync(handle)
    reading = files.open(f"{ROOT}/a", write=False)
    with pytest.raises(OSError, match="writing"):
        files.pwritev(reading, [b"x"], 0)
    with pytest.raises(FileNotFoundError):
        remote([served], chain=8).open(f"{ROOT}/a")
    locked = files.open(f"{ROOT}/lock", create=True)
    files.lock(locked)
    with pytest.raises(BlockingIOError):
        files.lock(files.open(f"{ROOT}/lock"))


def test_a_read_finds_what_is_not_synced(served: DiskProcess) -> None:
    files = remote([served])
    files.mkdir(ROOT)
    handle = put(files, f"{ROOT}/a", b"0123456789")
    reading = files.open(f"{ROOT}/a", write=False)
    files.pwritev(handle, [b"xy"], 4)
    files.pwritev(handle, [b"end"], 12)
    assert files.pread(reading, 100, 0) == b"0123xy6789\0\0end"
    assert files.pread(reading, 3, 3) == b"3xy"
    assert files.fstat(handle).size == 15
    assert content(served, "a") == b"0123456789"


def test_no_zeros_are_skipped_over_what_is_not_synced(served: DiskProcess) -> None:
    files = remote([served])
    files.mkdir(ROOT)
    handle = put(files, f"{ROOT}/a", b"x" + bytes(1_000_000))
    reading = files.open(f"{ROOT}/a", write=False)
    assert files.skip_zeros(reading, 0) == 0
    assert files.skip_zeros(reading, 1) == 1_000_001
    files.pwritev(handle, [b"y"], 500_000)
    assert files.skip_zeros(reading, 1) <= 500_000
    files.fdatasync(handle)
    assert files.skip_zeros(reading, 1) <= 500_000
    assert files.skip_zeros(reading, 500_001) == 1_000_001


def test_closing_hands_over_what_was_written(served: DiskProcess) -> None:
    files = remote([served])
    files.mkdir(ROOT)
    handle = files.open(f"{ROOT}/a", create=True)
    files.pwritev(handle, [b"data"], 0)
    files.close(handle)
    assert content(served, "a") == b"data"


def test_under_async_a_write_is_sent_at_once(served: DiskProcess) -> None:
    files = remote([served], durability="async")
    files.mkdir(ROOT)
    handle = files.open(f"{ROOT}/a", create=True)
    files.pwritev(handle, [b"data"], 0)
    assert content(served, "a") == b"data"


def test_much_that_is_written_is_not_kept(served: DiskProcess) -> None:
    files = remote([served])
    files.mkdir(ROOT)
    handle = files.open(f"{ROOT}/a", create=True)
    for number in range(10):
        files.pwritev(handle, [bytes([number]) * (1 << 20)], number << 20)
    assert len(content(served, "a")) >= 8 << 20
    files.fdatasync(handle)
    assert content(served, "a") == b"".join(bytes([number]) * (1 << 20) for number in range(10))


def test_a_writer_waits_for_a_killed_server_and_loses_nothing(served: DiskProcess) -> None:
    files = remote([served], waits=always)
    files.mkdir(ROOT)
    handle = put(files, f"{ROOT}/a", b"begin")
    for life in range(3):
        files.pwritev(handle, [b"%d" % life], 5 + life)
        served.end()
        waiting = Later(lambda: files.fdatasync(handle))
        time.sleep(0.3)
        assert waiting.waits
        served.start()
        waiting.end()
    assert content(served, "a") == b"begin012"


def test_a_stopped_server_is_waited_for_and_nothing_is_done_twice(served: DiskProcess) -> None:
    files = remote([served], waits=always)
    files.mkdir(ROOT)
    put(files, f"{ROOT}/a", b"1")
    served.send(signal.SIGSTOP)
    waiting = Later(lambda: files.rename(f"{ROOT}/a", f"{ROOT}/b"))
    time.sleep(2.5)  # longer than silence is borne, so that the connection is made anew
    assert waiting.waits
    served.send(signal.SIGCONT)
    waiting.end()
    assert files.listdir(ROOT) == ["b"]


def test_others_give_up_and_what_they_gave_up_is_not_done_later(served: DiskProcess) -> None:
    files = remote([served])
    files.mkdir(ROOT)
    put(files, f"{ROOT}/a", b"1")
    served.send(signal.SIGSTOP)
    with pytest.raises(DiskUnreachable):
        files.unlink(f"{ROOT}/a")
    begun = time.monotonic()
    with pytest.raises(DiskUnreachable):
        files.stat(f"{ROOT}/a")
    assert time.monotonic() - begun < 2  # known to be silent, which takes longer to find out
    served.send(signal.SIGCONT)
    time.sleep(0.2)
    try:
        files.rename(f"{ROOT}/a", f"{ROOT}/kept")
    except FileNotFoundError:  # the server had read the command before it was stopped
        assert files.listdir(ROOT) == []
    else:
        time.sleep(0.5)
        assert files.listdir(ROOT) == ["kept"]


def test_abandon_ends_the_waiting_and_a_new_beginning_is_possible(served: DiskProcess) -> None:
    files = remote([served], waits=always)
    files.mkdir(ROOT)
    handle = put(files, f"{ROOT}/a", b"1")
    files.mkdir("/c0/d1")
    other = put(files, "/c0/d1/b", b"2")
    files.pwritev(handle, [b"never"], 0)
    served.send(signal.SIGSTOP)
    waiting = [Later(lambda: files.fdatasync(handle)), Later(lambda: files.listdir(ROOT))]
    time.sleep(0.3)
    files.abandon(ROOT)
    for one in waiting:
        with pytest.raises(DiskUnreachable):
            one.end()
    with pytest.raises(DiskUnreachable):
        files.listdir(ROOT)  # a first connection does not wait
    served.send(signal.SIGCONT)
    time.sleep(0.3)
    assert files.listdir(ROOT) == ["a"]
    with pytest.raises(OSError, match="handle"):
        files.fdatasync(handle)
    files.close(handle)
    again = files.open(f"{ROOT}/a")
    files.pwritev(again, [b"2"], 0)
    files.fdatasync(again)
    assert content(served, "a")[:1] == b"2"
    files.fdatasync(other)


def test_the_first_connection_does_not_wait(served: DiskProcess) -> None:
    served.end()
    files = remote([served], waits=always)
    with pytest.raises(DiskUnreachable) as caught:
        files.mkdir(ROOT)
    assert caught.value.errno == errno.ETIMEDOUT
    served.start()
    files.mkdir(ROOT)


def test_a_lower_epoch_is_refused_also_after_restarts(served: DiskProcess) -> None:
    old = remote([served], epoch=4, waits=always)
    old.mkdir(ROOT)
    handle = put(old, f"{ROOT}/a", b"old")
    new = remote([served], epoch=5)
    new.mkdir(ROOT)
    old.pwritev(handle, [b"bad"], 0)
    with pytest.raises(DiskFenced):
        old.fdatasync(handle)
    with pytest.raises(DiskFenced):
        old.listdir(ROOT)
    served.end()
    served.start()
    with pytest.raises(DiskFenced):
        remote([served], epoch=4).mkdir(ROOT)
    reading = new.open(f"{ROOT}/a", write=False)
    assert new.pread(reading, 10, 0) == b"old"


def test_a_writer_that_waits_is_notified_that_it_was_replaced(served: DiskProcess) -> None:
    old = remote([served], waits=always)
    old.mkdir(ROOT)
    handle = put(old, f"{ROOT}/a", b"old")
    served.end()
    old.pwritev(handle, [b"bad"], 0)
    served.start()
    remote([served], epoch=2).mkdir(ROOT)
    with pytest.raises(DiskFenced):
        old.fdatasync(handle)
    assert content(served, "a") == b"old"


def test_a_wiped_folder_is_not_taken_for_the_old_one(served: DiskProcess) -> None:
    files = remote([served], waits=always)
    files.mkdir(ROOT)
    handle = put(files, f"{ROOT}/a", b"1")
    served.end()
    shutil.rmtree(served.folders["d0"])
    served.start()
    files.pwritev(handle, [b"2"], 0)
    with pytest.raises(OSError, match="was deleted while open"):
        files.fdatasync(handle)
    with pytest.raises(OSError, match="earlier"):
        files.fdatasync(handle)


def test_names_that_a_restarted_machine_may_have_lost_are_not_called_durable(served: DiskProcess) -> None:
    files = remote([served], waits=always)
    files.mkdir(ROOT)
    put(files, f"{ROOT}/a", b"1")
    files.rename(f"{ROOT}/a", f"{ROOT}/b")
    served.end()
    served.boot = "second"
    served.start()
    with pytest.raises(OSError, match="restarted"):
        files.sync_dir(ROOT)
    files.rename(f"{ROOT}/b", f"{ROOT}/c")
    files.sync_dir(ROOT)


def test_a_folder_that_cannot_be_written_is_an_error_and_no_silence(served: DiskProcess, tmp_path: Path) -> None:
    files = remote([served])
    shutil.rmtree(served.folders["d0"])
    served.folders["d0"].write_text("no folder")
    with pytest.raises(NotADirectoryError):
        files.mkdir(ROOT)


def test_reading_threads_at_once(served: DiskProcess) -> None:
    files = remote([served])
    files.mkdir(ROOT)
    data = bytes(range(256)) * 1000
    files.close(put(files, f"{ROOT}/a", data))

    def read() -> bool:
        for number in range(100):
            handle = files.open(f"{ROOT}/a", write=False)
            found = files.pread(handle, 1000, number * 100)
            files.close(handle)
            if found != data[number * 100 : number * 100 + 1000]:
                return False
        return True

    threads = [Later(read) for _ in range(4)]
    assert all(thread.end() for thread in threads)


def test_the_same_bytes_travel_once_to_the_disks_of_a_process(
    served: DiskProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[int, int]] = []
    exchange = CommandChannel.exchange

    def listen(channel: CommandChannel, request: Request) -> Reply:
        sent.extend((change.kind, change.size) for change in request.changes)
        return exchange(channel, request)

    monkeypatch.setattr(CommandChannel, "exchange", listen)
    files = remote([served])
    data = bytes(range(256)) * 400
    handles = [files.open(f"/c0/{disk}/{name}", create=True) for name in ("first", "second") for disk in ("d0", "d1")]
    for handle in handles[:2]:
        files.pwritev(handle, [b"header", data], 0)
        files.fdatasync(handle)
    size = len(data)
    assert sent == [(ChangeKind.WRITE, 6), (ChangeKind.WRITE, size), (ChangeKind.WRITE, 6), (ChangeKind.COPY, size)]
    for disk in ("d0", "d1"):
        assert (served.folders[disk] / "chains/0000000007/first").read_bytes() == b"header" + data


def test_bytes_that_the_server_has_not_any_more_travel_again(served: DiskProcess) -> None:
    """The first disk brought them to an earlier life of the process."""
    files = remote([served], waits=always)
    first = files.open("/c0/d0/a", create=True)
    second = files.open("/c0/d1/a", create=True)
    data = bytes(range(256)) * 400
    files.pwritev(first, [data], 0)
    files.fdatasync(first)
    served.end()
    served.start()
    files.pwritev(second, [data], 0)
    files.fdatasync(second)
    for disk in ("d0", "d1"):
        assert (served.folders[disk] / "chains/0000000007/a").read_bytes() == data


def test_pieces_are_what_one_read_is(served: DiskProcess) -> None:
    files = remote([served])
    handle = files.open("/c0/d0/a", create=True)
    content = bytes(range(1, 251)) * 40
    files.pwritev(handle, [content], 0)
    sizes = (0, 300, 9_000, 500, 700)
    expected = cut(content[100:], sizes)
    assert files.pread_pieces(handle, sizes, 100) == expected  # of what is not synced yet
    files.fdatasync(handle)
    assert files.pread_pieces(handle, sizes, 100) == expected
    files.truncate(handle, 12_000)
    assert files.pread_pieces(handle, (500, 600), 10_000) == [bytes(500), bytes(600)]
    assert files.pread_pieces(handle, (500, 600), 11_990) == [bytes(10), b""]
    assert files.pread_pieces(handle, (500, 600), 12_000) == [b"", b""]


def at_path(files: RemoteFiles, path: str, sizes: Sequence[int], offset: int) -> list[bytes]:
    pieces: list[bytes] = []
    files.pread_path(path, sizes, offset, pieces.append)
    return pieces


def test_a_closed_file_is_read_by_one_call(served: DiskProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    files = remote([served])
    handle = files.open("/c0/d0/a", create=True)
    content = bytes(range(1, 251)) * 40
    files.pwritev(handle, [content], 0)
    sizes = (0, 300, 9_000, 500, 700)
    asked: list[int] = []
    exchange = CommandChannel.exchange

    def noted(channel: CommandChannel, request: Request) -> Reply:
        asked.append(request.op)
        return exchange(channel, request)

    monkeypatch.setattr(CommandChannel, "exchange", noted)
    assert at_path(files, "/c0/d0/a", sizes, 100) == cut(content[100:], sizes)  # of what is not synced yet
    assert DiskOp.OPEN in asked
    files.truncate(handle, 12_000)
    files.fdatasync(handle)
    files.close(handle)
    asked.clear()
    assert at_path(files, "/c0/d0/a", sizes, 100) == cut((content + bytes(2_000))[100:], sizes)
    assert at_path(files, "/c0/d0/a", (500, 600), 10_000) == [bytes(500), bytes(600)]
    assert at_path(files, "/c0/d0/a", (500, 600), 11_990) == [bytes(10), b""]
    with pytest.raises(FileNotFoundError):
        at_path(files, "/c0/d0/b", sizes, 0)
    assert asked == [DiskOp.PREAD] * 4
    with pytest.raises(PermissionError):
        at_path(files, "/c0/d0/../a", sizes, 0)


def test_a_read_whose_connection_breaks_gives_every_piece_once(
    served: DiskProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = remote([served])
    handle = files.open("/c0/d0/a", create=True)
    content = bytes(range(1, 251)) * 40
    files.pwritev(handle, [content], 0)
    files.fdatasync(handle)
    files.close(handle)
    sizes = (300, 2_000, 500, 700)
    read_cut = FrameReader.read_cut

    def broken(self: FrameReader, payload: int, cut_to: Sequence[int], take: Callable[[bytes], None]) -> None:
        pieces: list[bytes] = []
        read_cut(self, payload, cut_to, pieces.append)
        if pieces and not broke:
            broke.append(len(pieces))
            for piece in pieces[:2]:
                take(piece)
            raise ConnectionResetError("gone")
        for piece in pieces:
            take(piece)

    files.stat("/c0/d0/a")
    broke: list[int] = []
    monkeypatch.setattr(FrameReader, "read_cut", broken)
    assert at_path(files, "/c0/d0/a", sizes, 100) == cut(content[100:3_600], sizes)
    assert broke == [4]
