"""On real files, with real threads: a process that is killed while it appends, and faults of real folders."""

from __future__ import annotations

import os
import queue
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from syncpoint.base.runtime.environment import Environment
from syncpoint.base.runtime.os_files import OsFiles
from syncpoint.log.storage.disk.inspect_disks import verify
from syncpoint.log.storage.quorum import AckRule
from syncpoint.log.storage.record import EntryKind
from syncpoint.log.storage.settings import KnownStore, StorageSettings
from syncpoint.log.storage.store import Store


class Loop:
    """The owner's thread, by hand."""

    def __init__(
        self, disks: list[Path], files: OsFiles | None = None, rule: AckRule | None = None, **settings: object
    ) -> None:
        self.queue: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.persisted = 0
        self.store = Store.open(
            disks,
            StorageSettings(**{"segment_bytes": 1 << 20, "probe_interval_s": 0.05, **settings}),  # type: ignore[arg-type]
            Environment(files=files or OsFiles(), notify=self.queue.put),
            KnownStore(rule=rule),
        )
        self.store.on_persisted = self.note

    def note(self, position: int) -> None:
        self.persisted = position

    def until(self, what: Callable[[], bool], seconds: float = 20) -> None:
        deadline = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < deadline, "it did not happen in time"
            try:
                self.queue.get(timeout=0.05)()
            except queue.Empty:
                continue

    def let_pass(self, seconds: float) -> None:
        """Do what comes in in the meantime."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            try:
                self.queue.get(timeout=left)()
            except queue.Empty:
                return

    def commit(self) -> None:
        self.store.flush()
        self.until(lambda: self.persisted >= self.store.status().appended)

    def read_all(self, source: int) -> list[bytes]:
        found: list[bytes] = []
        begin = 0
        while True:
            answers: list[object] = []
            self.store.read(source, begin, 100_000, answers.append)
            self.until(lambda: bool(answers))  # noqa: B023
            assert isinstance(answers[0], list), answers[0]
            if not answers[0]:
                return found
            for batch in answers[0]:
                assert batch.first_offset == begin
                begin += batch.count
                found.append(batch.payload)


def payload(number: int) -> bytes:
    return b"%08d" % number * (1 + number * 37 % 900)


CHILD = """
import sys
from pathlib import Path
from tests.unit.log.storage.test_real_files import Loop, payload
from syncpoint.log.storage.record import EntryKind
loop = Loop([Path(text) for text in sys.argv[1:]])
source, number = loop.store.log_counter << 24, 0
print("source", source, flush=True)
def note(position):
    loop.persisted = position
    print(position, flush=True)
loop.store.on_persisted = note
while True:
    for _ in range(number % 7 + 1):
        loop.store.append(
            EntryKind.MESSAGES, payload(number), source=source, first_offset=number, count=1, time_ns=number
        )
        number += 1
    loop.commit()
"""


@pytest.mark.parametrize("disks", [1, 3])
def test_kill_9_loses_nothing_that_was_reported(tmp_path: Path, disks: int) -> None:
    folders = [tmp_path / f"disk{number}" for number in range(disks)]
    promised: dict[int, int] = {}
    for turn in range(4):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, *map(str, folders)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert child.stdout is not None
        lines = iter(child.stdout.readline, b"")
        source = int(next(lines).split()[1])
        for line in lines:
            if int(line) > 60 + 90 * turn:
                child.send_signal(signal.SIGKILL)
                break
        rest = [int(one) for one in lines if one.endswith(b"\n")]
        promised[source] = max([int(line), *rest])
        child.wait()
        child.stdout.close()
        loop = Loop(folders)
        for known, count in promised.items():
            found = loop.read_all(known)
            assert len(found) >= count
            assert found == [payload(number) for number in range(len(found))]
        loop.store.close()
    assert verify(folders)["ok"]


def test_a_deleted_folder_is_noticed_and_filled_again(tmp_path: Path) -> None:
    folders = [tmp_path / f"disk{number}" for number in range(3)]
    loop = Loop(folders)
    source = loop.store.log_counter << 24
    for number in range(300):
        loop.store.append(EntryKind.MESSAGES, payload(number), source=source, first_offset=number, count=1)
        if number % 10 == 0:
            loop.commit()
    loop.commit()
    old = loop.store.status().disks[1].incarnation
    shutil.rmtree(folders[1])

    def healed() -> bool:
        status = loop.store.status()
        return status.disks[1].incarnation != old and all(disk.state == "ok" for disk in status.disks)

    loop.until(healed)
    loop.store.append(EntryKind.MESSAGES, payload(300), source=source, first_offset=300, count=1)
    loop.commit()
    loop.until(lambda: loop.store.status().under_replicated == 0)
    loop.store.close()
    shutil.rmtree(folders[0])
    again = Loop(folders)
    assert again.read_all(source) == [payload(number) for number in range(301)]
    again.store.close()


def test_opening_after_a_kill_scans_only_what_was_being_written(tmp_path: Path) -> None:
    loop = Loop([tmp_path / "disk"])
    source = loop.store.log_counter << 24
    for number in range(3_000):
        loop.store.append(EntryKind.MESSAGES, bytes(5_000), source=source, first_offset=number, count=1)
    loop.commit()
    frozen = tmp_path / "frozen"
    shutil.copytree(tmp_path / "disk", frozen, ignore=shutil.ignore_patterns("pool"))  # its files come and go
    again = Loop([frozen])
    assert len(again.store.recovered.scanned) <= 2
    assert len(list(again.store.catalog)) > 10
    assert again.store.bounds(source) == (0, 3_000)
    again.store.close()
    loop.store.close()
