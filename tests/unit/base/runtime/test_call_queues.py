"""A disk that hangs while it is read holds up nobody for longer than a patience, and that once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from syncpoint.base.runtime.call_queues import ThreadedCalls
from syncpoint.base.runtime.clock import ManualClock, SystemClock
from syncpoint.base.runtime.files import DiskUnreachable
from syncpoint.base.runtime.os_files import OsFiles
from syncpoint.log.storage.errors import CopiesUnreachable
from syncpoint.log.storage.record import EntryKind
from tests.unit.log.storage.test_real_files import Loop


class HangingFiles(OsFiles):
    """Reads of some disks do not return before they are let go; `hang_next`: the disk that is read next is one."""

    def __init__(self) -> None:
        self.hanging: set[str] = set()
        self.hang_next = False
        self.go_on = threading.Event()
        self.asked: list[str] = []
        self.let_go_of = 0
        self._paths: dict[int, str] = {}

    def open(self, path: str, *, create: bool = False, write: bool = True) -> int:
        handle = super().open(path, create=create, write=write)
        self._paths[handle] = path
        return handle

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        path = self._paths[handle]
        if self.hang_next:
            self.hang_next = False
            self.hanging.add(disk_of(path))
        if any(path.startswith(f"{root}/") for root in self.hanging):
            self.asked.append(path)
            self.go_on.wait(60)
            self.let_go_of += 1
        return super().pread(handle, size, offset)


def disk_of(path: str) -> str:
    """The folder `d0` to `d2` that holds a file."""
    return next(str(folder) for folder in Path(path).parents if folder.name in ("d0", "d1", "d2"))


@pytest.fixture
def files() -> Iterator[HangingFiles]:
    made = HangingFiles()
    yield made
    made.go_on.set()


PATIENCE_S = 0.5  # longer than a machine under load holds up a read of a disk that does not hang


def filled(disks: list[Path], files: HangingFiles) -> Loop:
    """A log whose entries are on all disks: one that is late with them is not asked."""
    loop = Loop(disks, files, read_patience_s=PATIENCE_S, cache_bytes=1, read_ahead_bytes=1, scrub_bytes_s=0)
    for number in range(20):
        loop.store.append(EntryKind.MESSAGES, b"%02d" % number * 20_000, source=7, first_offset=number, count=1)
    loop.commit()
    log = loop.store._disks.log
    loop.until(lambda: [writer.written >= loop.store.status().appended for writer in log.live] == [True] * len(disks))
    return loop


def read(loop: Loop, offset: int) -> object:
    answers: list[object] = []
    loop.store.read(7, offset, 1, answers.append)
    loop.until(lambda: bool(answers))
    return answers[0]


def test_a_hanging_disk_is_asked_once_and_the_others_are_read(tmp_path: Path, files: HangingFiles) -> None:
    """Which one is read first is not promised: the one that is hangs."""
    loop = filled([tmp_path / f"d{number}" for number in range(3)], files)
    files.hang_next = True
    for offset in range(20):
        found = read(loop, offset)
        assert isinstance(found, list), found
        assert found[0].payload == b"%02d" % offset * 20_000
    assert len(files.asked) == 1, "the others that want it are not queued behind the one that hangs"
    assert [disk.damaged for disk in loop.store.status().disks] == [(), (), ()]
    (hung,) = files.hanging
    files.hanging = set()
    files.go_on.set()
    loop.until(lambda: files.let_go_of == 1)
    queue = loop.store._disks._queues[int(hung[-1])]
    loop.until(lambda: not queue.hangs(PATIENCE_S))
    assert isinstance(read(loop, 3), list)
    loop.store.close()


def test_all_copies_that_hang_are_not_lost(tmp_path: Path, files: HangingFiles) -> None:
    loop = filled([tmp_path / f"d{number}" for number in range(3)], files)
    files.hanging = {str(tmp_path / f"d{number}") for number in range(3)}
    assert isinstance(read(loop, 0), CopiesUnreachable)
    files.hanging = set()
    files.go_on.set()
    loop.until(lambda: files.let_go_of == 3)
    loop.until(lambda: isinstance(read(loop, 0), list))
    loop.store.close()


def test_a_large_message_may_take_its_time(
    tmp_path: Path, files: HangingFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = filled([tmp_path / f"d{number}" for number in range(3)], files)
    loop.store.append(EntryKind.MESSAGES, bytes(3 << 20), source=7, first_offset=20, count=1)
    loop.commit()
    waited: list[float] = []
    inner = ThreadedCalls.run

    def run(queue: ThreadedCalls, call: object, patience_s: float) -> object:
        waited.append(patience_s)
        return inner(queue, call, patience_s)  # type: ignore[arg-type]

    monkeypatch.setattr(ThreadedCalls, "run", run)
    assert isinstance(read(loop, 3), list)
    assert max(waited) < PATIENCE_S + 0.5
    assert isinstance(read(loop, 20), list)
    assert max(waited) >= 3, "over a line of a megabyte a second it would never arrive from any disk"
    loop.store.close()


def test_a_queue_hands_over_what_its_calls_do() -> None:
    queue = ThreadedCalls("queue", SystemClock())
    assert queue.run(lambda: 5, 10.0) == 5
    with pytest.raises(FileNotFoundError):
        queue.run(lambda: open("/nowhere/at/all"), 10.0)  # noqa: SIM115
    queue.stop()
    with pytest.raises(DiskUnreachable):
        queue.run(lambda: 5, 10.0)


def test_a_slow_line_is_waited_for_and_a_call_that_hangs_is_not() -> None:
    clock = ManualClock()
    queue = ThreadedCalls("queue", clock)
    go_on, begun = threading.Event(), threading.Event()

    def slow() -> int:
        begun.set()
        go_on.wait(60)
        return 1

    answers: list[object] = []

    def ask(call: object) -> None:
        try:
            answers.append(queue.run(call, 5.0))  # type: ignore[arg-type]
        except DiskUnreachable as error:
            answers.append(error)

    first = threading.Thread(target=ask, args=(slow,))
    first.start()
    begun.wait(60)
    second = threading.Thread(target=ask, args=(lambda: 2,))
    second.start()
    clock.advance(4.0)
    assert not queue.hangs(5.0)
    assert not answers
    clock.advance(2.0)
    first.join(60)
    second.join(60)
    assert [type(answer) for answer in answers] == [DiskUnreachable, DiskUnreachable]
    with pytest.raises(DiskUnreachable):
        queue.run(lambda: 3, 5.0)
    go_on.set()
    while queue.hangs(5.0):
        pass
    assert queue.run(lambda: 4, 5.0) == 4
    queue.stop()
