"""A whole store on the disks of three server processes, which are killed, stopped and wiped under load."""

from __future__ import annotations

import queue
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from syncpoint.base.runtime.environment import Environment
from syncpoint.log.storage.errors import DisksMissing
from syncpoint.log.storage.quorum import AckRule
from syncpoint.log.storage.record import EntryKind
from syncpoint.log.storage.settings import KnownStore, StorageSettings
from syncpoint.log.storage.store import Store
from tests.kit.disk_process import DiskProcess, hang_up, remote


def payload(number: int) -> bytes:
    """Now and then so large that it travels once for all disks of a process."""
    return b"%08d" % number * (1 + number * 37 % 300) * (8 if number % 16 == 0 else 1)


class Chain:
    """The owner's thread, by hand, over all disks of some processes; may be opened again and again."""

    def __init__(self, processes: list[DiskProcess], **settings: object) -> None:
        self.processes = processes
        self.settings = StorageSettings(
            **{"segment_bytes": 1 << 20, "probe_interval_s": 0.1, "hung_s": 4.0, **settings}  # type: ignore[arg-type]
        )
        self.roots = [f"/c{number}/{name}" for number, process in enumerate(processes) for name in process.folders]
        clusters = [number for number, process in enumerate(processes) for _ in process.folders]
        self.rule = AckRule(tuple(clusters))
        self.epoch = 0
        self.appended = 0  # messages handed to the store, in all lives
        self.persisted = 0  # of them, known to be safe
        self.failed: set[str] = set()  # disks that were out of use at any time
        self.open()

    def open(self) -> None:
        self.epoch += 1
        self.queue: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.files = remote(self.processes, self.epoch, durability=str(self.settings.durability))
        self.places: dict[int, int] = {}  # position -> messages up to it
        self.failure: Exception | None = None
        self.store = Store.open(
            self.roots,
            self.settings,
            Environment(files=self.files, notify=self.queue.put),
            KnownStore(rule=self.rule),
        )
        self.store.on_persisted = self._note
        self.store.on_failed = self._fail

    def _note(self, position: int) -> None:
        for place in [place for place in self.places if place <= position]:
            self.persisted = max(self.persisted, self.places.pop(place))

    def _fail(self, error: Exception) -> None:
        self.failure = error

    def append(self, count: int = 1) -> None:
        for _ in range(count):
            place = self.store.append(
                EntryKind.MESSAGES, payload(self.appended), source=1, first_offset=self.appended, count=1
            )
            self.appended += 1
            self.places[place] = self.appended
        self.store.flush()

    def until(self, what: Callable[[], bool], seconds: float = 40) -> None:
        deadline = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < deadline, f"it did not happen in time; the disks are {self.states()}"
            self.turn()

    def turn(self, wait_s: float = 0.05) -> None:
        try:
            self.queue.get(timeout=wait_s)()
        except queue.Empty:
            return
        self.failed |= self.given_up()

    def commit(self, count: int = 1) -> None:
        self.append(count)
        self.until(lambda: self.persisted >= self.appended)

    def reopen(self) -> None:
        self.store.close(5.0)
        self.files.close_all()
        self.open()
        self.resume()

    def resume(self) -> None:
        """Go on behind what is stored: what was appended and not persisted may be there or not."""
        found = self.read_all()
        assert found >= self.persisted
        self.appended = self.persisted = found

    def read_all(self) -> int:
        begin = 0
        while True:
            answers: list[object] = []
            self.store.read(1, begin, 500_000, answers.append)
            self.until(lambda: bool(answers))  # noqa: B023
            assert isinstance(answers[0], list), answers[0]
            if not answers[0]:
                return begin
            for batch in answers[0]:
                assert batch.first_offset == begin
                assert batch.payload == payload(begin)
                begin += batch.count

    @property
    def live(self) -> int:
        return self.states().count("ok")

    def given_up(self) -> set[str]:
        """Disks that are not written any more, for whatever reason."""
        return {one.path for one in self.store.status().disks if one.state in ("failed", "away") and one.reason}

    def states(self) -> list[str]:
        return [disk.state for disk in self.store.status().disks]


@pytest.fixture
def three(tmp_path: Path) -> Iterator[list[DiskProcess]]:
    processes = [DiskProcess(tmp_path / f"s{number}", 3) for number in range(3)]
    yield processes
    hang_up()
    for process in processes:
        process.end()


def test_what_was_acknowledged_is_there_again(three: list[DiskProcess]) -> None:
    chain = Chain(three)
    chain.commit(500)
    chain.reopen()
    assert chain.persisted == 500
    chain.commit(500)
    chain.reopen()
    assert chain.persisted == 1000
    chain.store.close()


@pytest.mark.parametrize("kills", [12, pytest.param(30, marks=pytest.mark.long)])
def test_random_kills_lose_nothing(three: list[DiskProcess], kills: int) -> None:
    chance = random.Random(30)
    chain = Chain(three)
    for kill in range(kills):
        process = chance.choice(three)
        for _ in range(chance.randrange(1, 30)):
            chain.append(chance.randrange(1, 20))
            chain.turn(0.002)
        process.end()
        chain.commit(chance.randrange(1, 100))
        process.start()
        chain.commit(chance.randrange(1, 100))
        assert chain.failure is None
        if kill % 5 == 4:
            chain.until(lambda: chain.live == 9)
            chain.reopen()
    chain.until(lambda: chain.live == 9)
    assert chain.read_all() == chain.persisted
    chain.store.close()


def test_all_servers_killed_at_once(three: list[DiskProcess]) -> None:
    chain = Chain(three)
    chain.commit(300)
    chain.append(50)
    for process in three:
        process.end()
    chain.append(50)
    chain.turn(0.5)
    for process in three:
        process.start()
    chain.store.close(3.0)
    chain.files.close_all()
    chain.open()
    chain.resume()
    chain.commit(10)
    chain.store.close()


def test_a_stopped_server_does_not_stop_the_others(three: list[DiskProcess]) -> None:
    chain = Chain(three)
    chain.commit(100)
    three[1].send(signal.SIGSTOP)
    chain.commit(300)
    three[1].send(signal.SIGCONT)
    chain.commit(300)
    chain.until(lambda: chain.live == 9)
    chain.reopen()
    assert chain.persisted == 700
    chain.store.close()


def test_a_server_that_is_stopped_for_long_is_given_up_and_comes_back(three: list[DiskProcess]) -> None:
    chain = Chain(three, hung_s=1.5)
    chain.commit(100)
    three[1].send(signal.SIGSTOP)
    chain.commit(100)
    chain.until(lambda: len(chain.given_up()) == 3)
    assert chain.states().count("away") == 3, "they did not err: nobody is there"
    chain.commit(100)
    three[1].send(signal.SIGCONT)
    chain.until(lambda: chain.live == 9)
    chain.commit(100)
    chain.reopen()
    assert chain.persisted == 400
    chain.store.close()


@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL])
def test_without_a_quorum_acknowledgements_wait_and_are_given_when_it_is_back(
    three: list[DiskProcess], how: signal.Signals
) -> None:
    chain = Chain(three, hung_s=1.0)
    chain.commit(100)
    for process in three[:2]:
        process.send(how) if how is signal.SIGSTOP else process.end()
    chain.append(10)
    deadline = time.monotonic() + 4
    while time.monotonic() < deadline:
        chain.turn()
    assert chain.persisted == 100
    assert chain.failure is None
    for process in three[:2]:
        process.send(signal.SIGCONT) if how is signal.SIGSTOP else process.start()
    chain.until(lambda: chain.persisted == 110)
    chain.until(lambda: chain.live == 9)
    chain.reopen()
    assert chain.persisted == 110
    chain.store.close()


def test_a_store_opens_while_a_server_is_away(three: list[DiskProcess]) -> None:
    chain = Chain(three)
    chain.commit(100)
    chain.store.close()
    chain.files.close_all()
    three[0].end()
    three[2].send(signal.SIGSTOP)
    with pytest.raises(DisksMissing):
        chain.open()
    three[2].send(signal.SIGCONT)
    chain.open()
    chain.resume()
    chain.commit(100)
    three[0].start()
    chain.until(lambda: chain.live == 9)
    chain.reopen()
    assert chain.persisted == 200
    chain.store.close()


@pytest.mark.parametrize("durability", ["async", "memory"])
def test_other_durabilities_outlive_killed_servers(three: list[DiskProcess], durability: str) -> None:
    chain = Chain(three, durability=durability)
    for process in three:
        chain.commit(100)
        process.end()
        chain.commit(100)
        process.start()
    chain.until(lambda: chain.live == 9)
    chain.reopen()
    assert chain.persisted == 600
    chain.store.close()


def test_a_wiped_disk_is_filled_again(three: list[DiskProcess]) -> None:
    chain = Chain(three)
    chain.commit(300)
    three[0].end()
    shutil.rmtree(three[0].folders["d1"])
    three[0].start()
    chain.commit(300)
    chain.until(lambda: chain.live == 9)
    chain.reopen()
    assert chain.persisted == 600
    chain.store.close()


def test_a_successor_ends_the_owner_of_before(three: list[DiskProcess]) -> None:
    old = Chain(three)
    old.commit(100)
    new = Chain.__new__(Chain)
    new.__dict__.update(old.__dict__)
    new.open()
    new.resume()
    assert new.persisted == 100
    old.append(5)
    old.until(lambda: old.failure is not None)
    assert old.persisted == 100
    new.commit(100)
    new.reopen()
    assert new.persisted == 200
    old.store.close(1.0)
    new.store.close()
