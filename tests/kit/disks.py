"""A small simulation for storage: disks in memory, no threads, a schedule drawn from a seed, and a judge.

The judge knows everything that was ever appended and everything that was ever reported persisted. After each opening:
whatever was reported persisted is there, unchanged; whatever is there was appended, unchanged.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.environment import Environment
from syncpoint.base.runtime.files import DiskUnreachable
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.base.runtime.step_workers import ManualWorkers
from syncpoint.log.storage.quorum import AckRule
from syncpoint.log.storage.record import EntryKind
from syncpoint.log.storage.settings import KnownStore, StorageSettings
from syncpoint.log.storage.store import Store
from syncpoint.testing.rigs.memory_files import FailOn, MemoryFiles


class Harness:
    """`disks` disks, one store at a time. `rule`: how they are grouped, and who acknowledges."""

    def __init__(self, seed: int, disks: int = 1, rule: AckRule | None = None, **settings: object) -> None:
        self.local = rule is None
        self.rule = rule or AckRule.single(disks)
        self.away: dict[int, Callable[[str, str], None]] = {}  # slots out of reach
        disks = len(self.rule)
        self.random = SeededRandom(seed)
        self.clock = ManualClock()
        self.files = MemoryFiles()
        self.roots = [f"/d{number}" for number in range(disks)]
        self.settings = StorageSettings(
            **{
                "segment_bytes": 128 * 1024,
                "cache_bytes": 4_000,
                "index_cache_bytes": 32_768,
                "read_ahead_bytes": 8_192,
                "pool_segments": 1,
                "pool_segments_max": 2,
                "commit_bytes_max": 30_000,
                "segment_entries_max": 60,
                **settings,
            }  # type: ignore[arg-type]
        )
        self.inbox: list[Callable[[], None]] = []
        self.workers = ManualWorkers()
        self.store: Store | None = None
        self.universe: int | None = None
        self.known: list[str] = []
        # the judge's books
        self.appended: dict[tuple[int, int], tuple[int, bytes]] = {}  # (source, first offset) -> count, payload
        self.facts: set[bytes] = set()
        self.waiting: list[tuple[int, object]] = []  # position, what
        self.places: dict[object, tuple[int, int]] = {}  # what -> log, position
        self.acked: dict[tuple[int, int], tuple[int, bytes]] = {}
        self.acked_facts: set[bytes] = set()
        self.dead: set[tuple[int, int]] = set()  # judged not live: may be gone
        self.ends: dict[int, int] = {}
        self.serial = 0
        self.failures: list[Exception] = []
        self.checkpoint: object = None

    # ------------------------------------------------------------------------------------------------- the store

    def open(self, counter: int | None = None) -> Store:
        self.inbox.clear()
        self.waiting.clear()
        self.workers = ManualWorkers()
        self.checkpoint = None
        store = Store.open(
            self.roots,
            self.settings,
            Environment(self.clock, self.random, self.files, lambda: self.workers, self.inbox.append),
            KnownStore(
                universe=self.universe,
                disks=self.known,
                counter=counter,
                rule=None if self.local and self.rule.plain else self.rule,
            ),
        )
        self.store = store
        self.universe = store.universe
        self.known = [disk for disk in store.recovered.disks if disk]
        store.on_persisted = self._persisted
        store.on_failed = self.failures.append
        self.failures.clear()
        return store

    @classmethod
    def opened(cls, seed: int, disks: int = 1, rule: AckRule | None = None, **settings: object) -> Harness:
        """With its first store."""
        harness = cls(seed, disks, rule, **settings)
        harness.open()
        return harness

    def _persisted(self, position: int) -> None:
        while self.waiting and self.waiting[0][0] <= position:
            what = self.waiting.pop(0)[1]
            if isinstance(what, bytes):
                self.acked_facts.add(what)
            else:
                self.acked[what] = self.appended[what]

    def publish(self, topic: int = 0, count: int = 3, size: int = 500) -> tuple[int, int]:
        store = self.store
        source = store.log_counter << 24 | topic
        first = self.ends.get(source, 0)
        self.serial += 1
        payload = b"%d|" % self.serial + self.random.token(size)
        key = (source, first)
        self.appended[key] = (count, payload)
        self.ends[source] = first + count
        position = store.append(
            EntryKind.MESSAGES, payload, source=source, first_offset=first, count=count, time_ns=self.clock.time_ns()
        )
        self.waiting.append((position, key))
        self.places[key] = store.log_counter, position
        return key

    def fill(self, batches: int, *which: int, **more: int) -> None:
        """Publish so many batches."""
        for _ in range(batches):
            self.publish(*which, **more)

    def persist(self, *which: int, **more: int) -> tuple[int, int]:
        """Publish a batch, and have it persisted."""
        key = self.publish(*which, **more)
        self.commit()
        return key

    def note(self, size: int = 20) -> bytes:
        self.serial += 1
        fact = b"fact %d " % self.serial + self.random.token(size).hex().encode()
        self.facts.add(fact)
        position = self.store.append(EntryKind.LEDGER, fact)
        self.waiting.append((position, fact))
        self.places[fact] = self.store.log_counter, position
        return fact

    # ------------------------------------------------------------------------------------------------ time passes

    def deliver(self) -> None:
        while self.inbox:
            self.inbox.pop(0)()

    def run(self, name: str) -> None:
        if name in self.workers.steps:
            slot = int(name.rpartition("-")[2]) if name.startswith("syncpoint-write-") else -1
            if slot in self.away:
                self._wait(slot)
            else:
                self.workers.run(name)

    def _wait(self, slot: int) -> None:
        """The call of a writer whose disk is out of reach does not return."""
        writer = self.store._disks.maintainers[slot].writer
        if writer is not None and writer.ok and writer._queue and writer.busy_since is None:
            writer.busy_since = self.clock.monotonic()

    def lose_sight(self, *slots: int) -> None:
        """These disks are out of reach: writers wait, everybody else is notified."""
        for slot in slots:
            if slot not in self.away:
                root = self.roots[slot]

                def fault(operation: str, path: str, root: str = root) -> None:
                    if path == root or path.startswith(root + "/"):
                        raise DiskUnreachable(errno.ETIMEDOUT, "out of reach", path)

                self.away[slot] = fault
                self.files.faults.append(fault)

    def regain(self, *slots: int) -> None:
        """They are back, as they were."""
        for slot in slots:
            fault = self.away.pop(slot, None)
            if fault in self.files.faults:
                self.files.faults.remove(fault)

    def quiesce(self, rounds: int = 400, seconds: float = 0.0) -> None:
        """Let everything happen that can, `rounds` times."""
        for _ in range(rounds):
            for name in list(self.workers.steps):
                for _ in range(3):
                    self.run(name)
            busy = bool(self.inbox)
            self.deliver()
            if seconds:
                self.clock.advance(seconds)
            elif not busy:
                break

    @property
    def states(self) -> list[str]:
        """Of the disks, as the store says."""
        return [disk.state for disk in self.store.status().disks]

    def commit(self) -> None:
        self.store.flush()
        self.quiesce()

    def heal(self, rounds: int = 60) -> None:
        """Give maintainers the time to re-admit and complete disks."""
        for _ in range(rounds):
            self.clock.advance(1.1)
            self.quiesce()
            status = self.store.status()
            if all(disk.state == "ok" for disk in status.disks) and not status.under_replicated:
                return

    def stop(self) -> None:
        """Close the store, and end the process."""
        self.store.close()
        self.kill()

    def kill(self) -> None:
        """kill -9: what was written stays."""
        self.store = None
        self.files.kill()
        self.files.faults += self.away.values()

    def power_cut(self) -> None:
        self.store = None
        self.files.power_cut(self.random)
        self.files.faults += self.away.values()

    def fail(self, slot: int, number: int = errno.EIO, operations: tuple[str, ...] = (), after: int = 0) -> FailOn:
        fault = FailOn(self.roots[slot], number, operations, after)
        self.files.faults.append(fault)
        return fault

    # -------------------------------------------------------------------------------------------------- the judge

    def read_all(self, source: int, begin: int = 0, max_bytes: int = 3_000) -> list[tuple[int, int, bytes]]:
        found = []
        for _ in range(100_000):
            answers: list[object] = []
            self.store.read(source, begin, max_bytes, answers.append)
            for _ in range(50):
                if answers:
                    break
                self.run("syncpoint-read")
                self.deliver()
            assert answers, "a read was never answered"
            if isinstance(answers[0], Exception):
                raise answers[0]
            if not answers[0]:
                return found
            for batch in answers[0]:
                assert batch.first_offset + batch.count > begin, "a batch that lies before what was asked for"
                found.append((batch.first_offset, batch.count, batch.payload))
                begin = batch.first_offset + batch.count
        raise AssertionError("a read without an end")

    def forgive(self, log: int, position: int) -> int:
        """What was reported persisted of a log above a position may be lost; returns how much of it there is."""
        late = {what for what, place in self.places.items() if place[0] == log and place[1] > position}
        count = len(late & (self.acked_facts | self.acked.keys()))
        self.acked = {key: value for key, value in self.acked.items() if key not in late}
        self.acked_facts -= late
        return count

    def judge(self) -> None:
        """Raises AssertionError when a promise was broken."""
        store = self.store
        stored: dict[tuple[int, int], tuple[int, bytes]] = {}
        for source in store.sources():
            for first, count, payload in self.read_all(source):
                key = (source, first)
                assert key not in stored, f"offset {first} of source {source:x} came twice"
                stored[key] = (count, payload)
        for key, value in stored.items():
            assert self.appended.get(key) == value, f"{key} was invented or changed"
        for key, value in self.acked.items():
            if key not in self.dead:
                assert stored.get(key) == value, f"{key} was reported persisted and is lost"
        seen = set()
        for entry in store.replay():
            if entry.kind == EntryKind.CHECKPOINT_PART:
                seen.update(part for part in entry.payload.split(b"\n") if part)
            elif entry.kind == EntryKind.LEDGER:
                seen.add(entry.payload)
        assert seen <= self.facts, f"facts were invented: {list(seen - self.facts)[:3]}"
        missing = self.acked_facts - seen
        assert not missing, f"facts reported persisted are lost: {sorted(missing)[:3]}"
        self.recovered_facts = seen
        self.stored = stored

    def live(self, source: int, first: int, count: int, time_ns: int) -> bool:
        return (source, first) not in self.dead

    def accept_recovered(self) -> None:
        """After opening: what was recovered is durable, whatever had been known of it before."""
        self.acked_facts = set(self.recovered_facts)
        self.acked.update(self.stored)

    def take_checkpoint(self) -> None:
        held = sorted(self.acked_facts | {what for _, what in self.waiting if isinstance(what, bytes)})
        parts = [b"\n".join(held[at : at + 10]) for at in range(0, len(held), 10)]
        self.checkpoint = self.store.checkpoint(iter(parts))
        while not self.checkpoint.step(200):
            pass
