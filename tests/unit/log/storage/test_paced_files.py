"""Readers of one disk take turns, with threads and real files."""

from __future__ import annotations

import errno
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from syncpoint.base.runtime.call_queues import ThreadedCalls
from syncpoint.base.runtime.clock import SystemClock
from syncpoint.base.runtime.files import Files
from syncpoint.base.runtime.os_files import OsFiles
from syncpoint.log.diskserver.disk_service import OPENING_S, DiskService
from syncpoint.log.diskserver.protocol import CREATE, WRITE, ChangeKind, DiskOp, FileChange, Hello, Request
from syncpoint.log.storage import copy_reader
from syncpoint.log.storage.copy_reader import CopyReader
from syncpoint.log.storage.disk import paced_files
from syncpoint.log.storage.disk.paced_files import HELD_UP_S, SMALL, DiskTurns, paced
from syncpoint.log.storage.disk.segment_catalog import Segment, SegmentCopy
from syncpoint.log.storage.segment import PAGE
from tests.kit.disks import Harness

pytestmark = pytest.mark.shows("laggards")
CONTENT = bytes(range(256)) * 4096  # 1 MiB
SIZE = SMALL + 1


class Watched(OsFiles):
    """Notes what is read."""

    def __init__(self) -> None:
        self.sizes: list[tuple[int, int]] = []  # handle, bytes asked for
        self.broken = False
        self.hangs: threading.Event | None = None

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        self.sizes.append((handle, size))
        if self.hangs is not None:
            self.hangs.wait(60)
        if self.broken:
            raise OSError(errno.EIO, "broken")
        return super().pread(handle, size, offset)


class Disk:
    def __init__(self, root: Path) -> None:
        self.path = str(root / "disk" / "file")
        (root / "disk").mkdir()
        Path(self.path).write_bytes(CONTENT)
        self.plain = Watched()
        self.turns = DiskTurns(SystemClock())
        self.files: Files = paced(self.plain, {str(root / "disk"): self.turns})


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers wait for their turns for as long as a test may take."""
    monkeypatch.setattr(paced_files, "HELD_UP_S", 60.0)


def in_line(turns: DiskTurns, count: int) -> None:
    """Wait until so many readers wait for their turns."""
    end = time.monotonic() + 30
    while True:
        with turns._changed:
            if len(turns._line) == count:
                return
        assert time.monotonic() < end
        time.sleep(0.001)


def test_what_is_read_in_pieces_is_what_is_there(disk: Disk) -> None:
    found: list[bytes] = []
    disk.files.pread_path(disk.path, (10, 700_000, 500_000), 5, found.append)
    assert found == [CONTENT[5:15], CONTENT[15:700_015], CONTENT[700_015:]]
    assert len(disk.plain.sizes) > 4, "it was read in pieces"
    handle = disk.files.open(disk.path, write=False)
    assert disk.files.pread(handle, 300_000, 1) == CONTENT[1:300_001]
    assert disk.files.pread_pieces(handle, (3, 4), len(CONTENT) - 5) == [CONTENT[-5:-2], CONTENT[-2:]]
    disk.files.close(handle)
    assert disk.turns.figures()["cold_read_bytes_total"] == len(CONTENT) - 5 + 300_000, "small ones need no turn"


def test_files_of_other_folders_and_those_that_are_written_wait_for_nobody(disk: Disk, tmp_path: Path) -> None:
    disk.turns.under_way = 1
    (tmp_path / "disk2").mkdir()
    other = tmp_path / "disk2" / "file"
    other.write_bytes(CONTENT)
    for path, write in ((str(other), False), (disk.path, True)):
        handle = disk.files.open(path, write=write)
        assert disk.files.pread(handle, len(CONTENT), 0) == CONTENT
        assert disk.files.pread_pieces(handle, [SIZE], 0) == [CONTENT[:SIZE]]
        disk.files.close(handle)
    assert disk.turns.figures()["cold_read_bytes_total"] == 0


@pytest.mark.usefixtures("patient")
def test_a_read_waits_for_a_commit_and_goes_on_when_it_ends(disk: Disk) -> None:
    turns = disk.turns
    turns.reads.begin(time.monotonic() - 60, commits=False)
    turns.reads.end(time.monotonic(), 1)  # a long piece: the next one is not owed for a while
    turns.under_way, turns.watched = 1, True
    ended: list[float] = []
    reader = threading.Thread(
        target=lambda: disk.files.pread_path(disk.path, [SIZE], 0, lambda data: ended.append(time.monotonic()))
    )
    reader.start()
    in_line(turns, 1)
    time.sleep(0.06)
    assert not ended
    assert disk.plain.sizes == []
    turns.under_way = 0
    turns.committed(0.06)
    reader.join(30)
    assert len(ended) == 1
    assert turns.waited_s > 0.04


@pytest.mark.usefixtures("patient")
def test_pages_of_indexes_wait_for_no_turn_and_pass_frames_that_are_read(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.turns.under_way = 1
    disk.turns.reads.begin(time.monotonic(), commits=False)
    disk.turns.reads.end(time.monotonic() + 60, 1)
    reads, pages = ([ThreadedCalls(f"{kind}-{slot}", SystemClock()) for slot in range(2)] for kind in ("read", "page"))
    access = CopyReader(
        disk.files, lambda segment: [0, 1], lambda *_: None, queues=reads, patience_s=60, page_queues=pages
    )
    copy = SegmentCopy(b"", 0, disk.path, sealed=True)
    segment = cast(Segment, SimpleNamespace(copies={0: copy, 1: copy}, removed=False))
    monkeypatch.setattr(copy_reader, "check_page", lambda page, seed: page)
    held = threading.Event()
    reader = threading.Thread(target=reads[0].run, args=(held.wait, 60))
    reader.start()
    try:
        began = time.monotonic()
        assert access.page(segment, 0, 0) == CONTENT[:PAGE]
        assert time.monotonic() - began < 30
    finally:
        held.set()
        reader.join(5)
        for queue in (*reads, *pages):
            queue.stop()


def test_a_commit_that_hangs_holds_no_read_up_for_long(disk: Disk) -> None:
    disk.turns.under_way = 1
    disk.turns.reads.begin(time.monotonic(), commits=False)
    disk.turns.reads.end(time.monotonic() + 60, 1)
    began, found = time.monotonic(), []
    disk.files.pread_path(disk.path, [SIZE], 0, found.append)
    assert found == [CONTENT[:SIZE]]
    assert HELD_UP_S * 0.9 < time.monotonic() - began < HELD_UP_S + 30


@pytest.mark.usefixtures("patient")
def test_readers_take_turns(disk: Disk) -> None:
    held = disk.turns
    held.under_way = 1
    held.reads.begin(time.monotonic() - 60, commits=False)
    held.reads.end(time.monotonic(), 1)
    handles = [disk.files.open(disk.path, write=False) for _ in range(3)]
    readers = [threading.Thread(target=disk.files.pread, args=(handle, len(CONTENT), 0)) for handle in handles]
    for reader in readers:
        reader.start()
    in_line(held, 3)
    held.under_way = 0
    held.committed(0.01)
    for reader in readers:
        reader.join(10)
    order = [handle for handle, _ in disk.plain.sizes]
    assert sorted(order[:3]) == sorted(handles), "nobody reads a second piece before everybody has had one"
    assert max(order.count(handle) for handle in handles) - min(order.count(handle) for handle in handles) <= 2


def test_nobody_waits_for_long_for_a_read_that_hangs(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paced_files, "HANGS_S", 0.2)
    monkeypatch.setattr(paced_files, "HELD_UP_S", 0.1)
    handle = disk.files.open(disk.path, write=False)
    hangs = disk.plain.hangs = threading.Event()
    stuck = threading.Thread(target=disk.files.pread, args=(handle, SIZE, 0))
    stuck.start()
    while not disk.plain.sizes:
        time.sleep(0.001)
    disk.plain.hangs = None
    began = time.monotonic()
    for _ in range(4):
        assert disk.files.pread(handle, SIZE, 0) == CONTENT[:SIZE]
    assert time.monotonic() - began < 30
    assert disk.turns.reads.bytes > 0, "the others have turns again"
    hangs.set()
    stuck.join(5)
    assert disk.files.pread(handle, SIZE, 8) == CONTENT[8 : 8 + SIZE]


def test_a_read_that_fails_gives_its_turn_back(disk: Disk) -> None:
    disk.plain.broken = True
    with pytest.raises(OSError, match="broken"):
        disk.files.pread_path(disk.path, [SIZE], 0, lambda data: None)
    disk.plain.broken = False
    found: list[bytes] = []
    disk.files.pread_path(disk.path, [SIZE], 0, found.append)
    assert found == [CONTENT[:SIZE]]


def test_a_storage_process_reads_in_turns_what_no_opening_waits_for(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    turns = DiskTurns(SystemClock())
    service = DiskService({"d": str(tmp_path / "d")}, OsFiles(), "boot", 1, turns={"d": turns})
    service.start()
    channel = service.hello(Hello("d", 7, 1, 100, "sync", 1, 1))

    def run(seq: int, op: DiskOp, **more: object) -> bytes:
        request = Request(op, epoch=channel.token.epoch, seq=seq)._replace(**more)  # type: ignore[arg-type]
        return bytes(service.run(channel, 1, request).payload)

    run(1, DiskOp.OPEN, handle=1, path="a", flags=CREATE | WRITE)
    turns.watched = True
    run(2, DiskOp.FDATASYNC, handle=1, changes=[FileChange(ChangeKind.WRITE, 0, SIZE, CONTENT[:SIZE])])
    assert turns.reads.quiet_s is not None, "what a sync takes is known"
    assert run(3, DiskOp.PREAD, path="a", a=SIZE, b=0) == CONTENT[:SIZE]
    assert turns.reads.bytes == 0, f"a new owner reads at once, for {OPENING_S} s"
    (chain,) = service._chains.values()
    chain.opening_until = 0.0
    assert run(4, DiskOp.PREAD, path="a", a=SIZE, b=0) == CONTENT[:SIZE]
    assert turns.reads.bytes == SIZE
    assert service.status()["disks"]["d"]["cold_read_bytes_total"] == SIZE
    service.stop()


def test_readers_at_the_tail_touch_no_disk() -> None:
    harness = Harness.opened(1, 3)
    source = harness.store.log_counter << 24
    calls: list[str] = []
    for number in range(50):
        harness.publish(0, 2)
        harness.commit()
        harness.files.faults[:] = [lambda operation, path: calls.append(operation)]
        assert [first for first, _, _ in harness.read_all(source, 2 * number)] == [2 * number]
        harness.files.faults.clear()
    assert calls == []
    assert (harness.store.counts.cache_misses, harness.store.counts.cache_hits) == (0, 100)
