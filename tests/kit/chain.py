"""Publish forwarder processes over disks in memory: chains of 3 x 3 disks, opened here and there under rising epochs.

Everything between the methods of internal.v1.Chains and the files is the code of production. The disks know epochs as
disk servers do; the catalog, registrations and assignments are plain values that every process copies at once, or late
where a test holds a copy back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from syncpoint.base.model.cluster import ChainRecord, DiskPlace
from syncpoint.base.model.errors import FailedPrecondition, MetadataSilent, Unavailable
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.environment import Environment
from syncpoint.base.runtime.files import DiskFenced
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.base.runtime.step_workers import ManualWorkers, Step, Worker
from syncpoint.broker.publish.chain.chain import ChainContext
from syncpoint.broker.publish.chain.host import ChainHost
from syncpoint.broker.publish.chain.known_disks import KnownDisks
from syncpoint.broker.publish.chain.service import ChainsService
from syncpoint.broker.publish.facts.origin import PublishOrigin
from syncpoint.broker.publish.intake.envelope import PublishBatch, write_publish
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.local import LocalShared
from syncpoint.catalog.metadata.memory import MemoryStore as MemoryMetadata
from syncpoint.catalog.metadata.records import CREATING, CatalogChange, ChangeOp, Subscription, Topic
from syncpoint.cluster.control.barrier import ids_of_chain
from syncpoint.log.storage.quorum import AckRule
from syncpoint.log.storage.settings import StorageSettings
from syncpoint.testing.rigs.memory_files import MemoryFiles
from syncpoint.testing.rigs.plain_tests import plain_test
from syncpoint.testing.rigs.simulated_loop import run_simulated
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal, pubsub
from syncpoint.wire.transport.memory import MemoryChannel

TOPIC, SUB = "projects/p/topics/orders", "projects/p/subscriptions/billing"
TOPIC_NUMBER, SUB_NUMBER = 1, 2
UNIVERSE = 10**12 + 7
SETTINGS = StorageSettings(
    segment_bytes=128 * 1024, pool_segments=1, pool_segments_max=2, segment_entries_max=200, reserve_bytes=0,
    scrub_bytes_s=0, cache_bytes=100_000,
)  # fmt: skip


class Assignment(NamedTuple):
    epoch: int
    chains: tuple[int, ...]


class Disks:
    """The disks of one chain. They outlive their owners, and shut out all but the newest."""

    def __init__(self) -> None:
        self.files, self.epoch = MemoryFiles(), 0
        self.stalled: set[str] = set()

    def open(self, epoch: int) -> Any:
        if epoch < self.epoch:
            raise DiskFenced(f"epoch {self.epoch} has begun")
        self.epoch = epoch
        return FencedFiles(self, epoch)


class LoopWorkers(ManualWorkers):
    """The threads of one store as timers of the loop: a worker takes a step soon after it was woken, or as it said."""

    STEP_S, KEEP_S = 0.004, 0.08  # how long a writer or reader, and a maintainer of a disk, is late

    def __init__(self, process: Process) -> None:
        super().__init__()
        self.process = process

    def start(self, name: str, step: Step, *, waits: bool = False) -> Worker:
        self.steps[name] = step
        return LoopWorker(self, name, step)


class LoopWorker:
    """See `LoopWorkers`."""

    def __init__(self, workers: LoopWorkers, name: str, step: Step) -> None:
        self._workers, self._name, self._step = workers, name, step
        self._late_s = workers.KEEP_S if "-keep-" in name else workers.STEP_S
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.wake()

    def wake(self) -> None:
        self._set(self._late_s)

    def stop(self, timeout_s: float) -> bool:
        if self._timer is not None:
            self._timer.cancel()
        if self._workers.steps.get(self._name) == self._step:
            del self._workers.steps[self._name]
        return True

    def _set(self, seconds: float) -> None:
        when = self._loop.time() + seconds
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._run)

    def _run(self) -> None:
        self._timer = None
        process = self._workers.process
        if process.crashed or self._workers.steps.get(self._name) != self._step:
            return
        if process.paused or (process.maintainers_rest and "-keep-" in self._name):
            self._set(0.02)
            return
        delay = self._step()
        if delay is not None:
            self._set(max(delay, self._late_s))


class FencedFiles:
    def __init__(self, disks: Disks, epoch: int) -> None:
        self._disks, self._epoch = disks, epoch

    def lock(self, handle: int) -> None:
        """An epoch is what locks these disks."""

    def abandon(self, root: str) -> None:
        """Nothing hangs here; the newer owner's handles are not ours to end."""

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._disks.files, name)
        if name in ("close", "let_go"):  # what an owner gives back needs no epoch
            return method

        def call(*arguments: Any, **named: Any) -> Any:
            if self._disks.epoch != self._epoch:
                raise DiskFenced(f"epoch {self._disks.epoch} has begun")
            return method(*arguments, **named)

        return call


class Copy:
    """One process's copy of the catalog. While it is `held` it receives nothing."""

    def __init__(self, harness: ChainHarness) -> None:
        self.catalog = Catalog()
        self.on_change: list[Callable[[CatalogChange], None]] = []
        self.held = False
        self._harness, self._moved = harness, asyncio.Event()
        self.catch_up()

    def catch_up(self) -> None:
        if not self.held:
            for change in self._harness.changes[self.catalog.revision :]:
                self.catalog.apply(change)
                for listener in list(self.on_change):
                    listener(change)
            self._moved.set()
            self._moved = asyncio.Event()

    async def at(self, revision: int) -> None:
        while self.catalog.revision < revision:
            await self._moved.wait()


class ChainHarness:
    """See the module."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock, self.random = clock, SeededRandom(1)
        self.master = Catalog()
        self.changes: list[CatalogChange] = []
        self.disks: dict[int, Disks] = {}
        self.registered: set[tuple[int, int]] = set()
        self.registrations = 0
        self.metadata_down = False
        store = MemoryMetadata(clock=clock, random=SeededRandom(2))
        self.known_disks = KnownDisks(LocalShared(store, clock))
        self.assignments: dict[int, Assignment] = {}
        self.epochs: dict[int, int] = {}
        self.logs = self.streams = 0
        self.processes: list[Process] = []
        self.commit(CatalogChange.put(Topic(TOPIC_NUMBER, TOPIC)))

    # -- metadata ----------------------------------------------------------------------------------------------------

    def commit(self, *changes: CatalogChange) -> int:
        for change in self.master.assign(changes):
            record = change.record
            if isinstance(record, Subscription) and change.op is ChangeOp.PUT and not record.created_revision:
                record = replace(record, created_revision=change.revision)
                change = CatalogChange(change.revision, change.op, record)
            self.master.apply(change)
            self.changes.append(change)
        for process in self.processes:
            process.shared.catch_up()
        return self.master.revision

    async def subscribe(self, number: int = SUB_NUMBER, name: str = SUB, **options: Any) -> Subscription:
        """As the control plane does it: creating, confirmed by every registered chain, active."""
        record = Subscription(number, name, TOPIC_NUMBER, TOPIC, state=CREATING, **options)
        revision = self.commit(CatalogChange.put(record))
        await self.confirm(revision)
        made = self.master.subscription_by_incarnation(number)
        assert made is not None
        self.commit(CatalogChange.put(replace(made, state="active")))
        found = self.master.subscription_by_incarnation(number)
        assert found is not None
        return found

    def update(self, number: int = SUB_NUMBER, **options: Any) -> int:
        known = self.master.subscription_by_incarnation(number)
        assert known is not None
        return self.commit(CatalogChange.put(replace(known, **options)))

    async def confirm(self, revision: int, assignment: int = 0, but: int = 0) -> None:
        for topic, chain in sorted(self.registered):
            if topic == TOPIC_NUMBER and chain != but:
                async with asyncio.timeout(3):
                    await self.owner(chain).host.confirm(chain, topic, revision, assignment)

    def owner(self, chain: int) -> Process:
        for process in self.processes:
            if chain in process.host.chains:
                return process
        raise Unavailable(f"Nobody has chain {chain} now.")

    def assign(self, *chains: int) -> None:
        known = self.assignments.get(TOPIC_NUMBER, Assignment(0, ()))
        self.assignments[TOPIC_NUMBER] = Assignment(known.epoch + 1, chains)
        for process in self.processes:
            process.on_assignments()

    # -- processes ---------------------------------------------------------------------------------------------------

    def process(self, name: str = "f1") -> Process:
        process = Process(self, name)
        self.processes.append(process)
        return process

    async def opened(self, name: str = "f1", *number: int, **disks: int) -> Process:
        """A new process that has opened a chain."""
        process = self.process(name)
        await process.open(*number, **disks)
        return process

    async def subscribed(self, *which: Any, **options: Any) -> Process:
        """A new process that has opened a chain, and a subscription to the topic."""
        process = await self.opened()
        await self.subscribe(*which, **options)
        return process

    async def succeeded(self, process: Process, name: str = "f2") -> Process:
        """The process dies, and another one opens its chain."""
        await process.crash()
        return await self.opened(name)

    async def close(self) -> None:
        for process in self.processes:
            await process.crash()


class Process:
    """One publish forwarder process."""

    def __init__(self, harness: ChainHarness, name: str) -> None:
        self.harness, self.name = harness, name
        self.shared = Copy(harness)
        self.assignments = dict(harness.assignments)
        self.deaf = False  # to assignments
        self.paused = False  # its disks' threads stand still
        self.maintainers_rest = False  # of its threads those stand still that look after disks and delete files
        self.crashed = False
        self.workers: list[LoopWorkers] = []
        self.ended: list[tuple[int, Exception]] = []
        self.host = ChainHost(
            ChainContext(
                shared=self.shared,
                registrar=self,
                assignments=lambda topic: self.assignments.get(topic),
                sealed=self._sealed,
                ids_of_others=self._ids_of_others,
                open_files=self._open_files,
                next_log=self._next_log,
                universe=UNIVERSE,
                environment=Environment(
                    harness.clock,
                    harness.random,
                    make_workers=self._workers,
                    notify=asyncio.get_running_loop().call_soon,
                    blocking=_at_once,
                ),
                settings=SETTINGS,
                known_disks=harness.known_disks,
                publish_by_key=self._publish_by_key,
                registered=lambda topic, chain: (topic, chain) in harness.registered,
                registrations=lambda chain: [topic for topic, one in harness.registered if one == chain],
            )
        )
        self.host.on_ended = lambda number, error: self.ended.append((number, error))
        self.host.start()
        self.channel = MemoryChannel(ChainsService(self.host).methods())
        self.batches = 0
        self.losing_answers = False  # of messages that another chain publishes for one here

    async def _publish_by_key(self, topic: int, key: bytes, request: bytes) -> bytes:
        """As `control.due_publishes` does; the sum of a key's bytes says which chain takes it."""
        known = self.assignments[topic]
        self.batches += 1
        chain = known.chains[sum(key) % len(known.chains)]
        batch = PublishBatch(
            chain, known.epoch, True, 1_000, self.batches, False, request, topic, origin=PublishOrigin.FIRING
        )
        owner = self.harness.owner(chain)
        answer = await owner.channel.unary(methods.CHAINS.Publish, write_publish(batch), timeout=5.0)
        if self.losing_answers:
            raise Unavailable("The answer is lost.")
        return answer

    def _workers(self) -> LoopWorkers:
        self.workers.append(LoopWorkers(self))
        return self.workers[-1]

    def _open_files(self, record: ChainRecord, epoch: int) -> tuple[Any, list[str]]:
        disks = self.harness.disks.setdefault(record.number, Disks())
        return disks.open(epoch), [f"/{place.cluster}-{place.disk}" for place in record.places]

    async def _next_log(self) -> int:
        self.harness.logs += 1
        return self.harness.logs

    async def register(self, topic: int, chain: int) -> int:
        if self.harness.metadata_down:
            raise MetadataSilent("The metadata store does not answer.")
        self.harness.registrations += 1
        await asyncio.sleep(0.01)
        self.harness.registered.add((topic, chain))
        revision = self.harness.master.revision
        await asyncio.sleep(0.01)
        await self.shared.at(revision)
        return revision

    async def registered(self, chain: int) -> set[int]:
        if self.harness.metadata_down:
            raise MetadataSilent("The metadata store does not answer.")
        await asyncio.sleep(0.01)
        found = {topic for topic, one in self.harness.registered if one == chain}
        await self.shared.at(self.harness.master.revision)
        return found

    async def unregister(self, topic: int, chain: int, epoch: int, still: Callable[[], bool]) -> bool:
        if self.harness.metadata_down:
            raise MetadataSilent("The metadata store does not answer.")
        if not still():
            return False
        self.harness.registered.discard((topic, chain))
        return True

    async def _sealed(self, topic: int, epoch: int, chain: int) -> None:
        if self.harness.assignments[topic].epoch != epoch:
            raise FailedPrecondition("epoch: it is another one now")
        await self.harness.confirm(0, epoch, but=chain)

    async def _ids_of_others(self, topic: int, chain: int) -> AsyncIterator[tuple[bytes, bytes]]:
        async def ask(other: int, path: str, request: bytes) -> bytes:
            return await self.harness.owner(other).channel.unary(path, request, timeout=5.0)

        for other in [one for of, one in sorted(self.harness.registered) if of == topic and one != chain]:
            async for found in ids_of_chain(ask, other, topic):
                yield found

    def on_assignments(self) -> None:
        if not self.deaf:
            self.assignments = dict(self.harness.assignments)
            self.host.assigned(TOPIC_NUMBER)

    # -- chains ------------------------------------------------------------------------------------------------------

    async def open(self, number: int = 1, clusters: int = 3, disks: int = 3) -> Any:
        """Claim a chain and open it."""
        epoch = self.harness.epochs[number] = self.harness.epochs.get(number, 0) + 1
        await self.host.open(chain_record(number, clusters, disks), epoch)
        return self.host.chains[number]

    async def crash(self) -> None:
        """The process is gone, with all it had in memory."""
        if self.crashed:
            return
        self.crashed = True
        if self in self.harness.processes:
            self.harness.processes.remove(self)
        self.shared.held = True
        for task in self.host.rounds.tasks:
            task.cancel()
        await asyncio.gather(*self.host.rounds.tasks, return_exceptions=True)
        for chain in self.host.entered:
            await chain.ingress.close()
            chain.store.on_persisted = lambda position: None

    async def publish(
        self, *data: str, chain: int = 1, key: str = "", epoch: int = 0, sender: int = 7, batch: int = 0,
        resent: bool = False, timeout: float | None = 20.0, topic: str = TOPIC,
    ) -> list[str]:  # fmt: skip
        self.harness.processes[0].batches += 1
        number = batch or self.harness.processes[0].batches
        messages = [pubsub.PubsubMessage(data=one.encode(), ordering_key=key) for one in data]
        request = pubsub.PublishRequest(topic=topic, messages=messages).SerializeToString()
        envelope = write_publish(PublishBatch(chain, epoch, bool(key), sender, number, resent, request))
        answer = await self.channel.unary(methods.CHAINS.Publish, envelope, timeout=timeout)
        return list(pubsub.PublishResponse.FromString(answer).message_ids)

    async def outgrow(self) -> None:
        """Publish to another topic until the segment is full, so that what came before can be deleted."""
        other = "projects/p/topics/other"
        self.harness.commit(CatalogChange.put(Topic(9, other)))
        for _ in range(60):
            await self.publish("x" * 20_000, topic=other)
            await asyncio.sleep(1)

    async def void(self, *batches: int, chain: int = 1, sender: int = 7, timeout: float | None = 5.0) -> Any:
        request = internal.VoidRequest(chain=chain, sender=sender, batches=batches).SerializeToString()
        return internal.VoidResponse.FromString(await self.channel.unary(methods.CHAINS.Void, request, timeout=timeout))


def chain_record(number: int, clusters: int = 3, disks: int = 3) -> ChainRecord:
    places = tuple(DiskPlace(f"c{at // disks}", f"d{at % disks}", f"p{at // disks}") for at in range(clusters * disks))
    rule = AckRule.grid(clusters, disks).to_values()
    return ChainRecord(number, f"chain-{number}", "default", "r1", "f1", places, rule)


def run(work: Callable[[ChainHarness], Awaitable[None]]) -> None:
    clock = ManualClock()

    async def main() -> None:
        harness = ChainHarness(clock)
        try:
            await work(harness)
        finally:
            await harness.close()
            mine = asyncio.current_task()
            rest = [task for task in asyncio.all_tasks() if task is not mine]
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)

    run_simulated(clock, main())


simulated = plain_test(run)
"""A decorator: a coroutine function over a `ChainHarness`, in the time of a manual clock, as a plain test."""


async def _at_once(act: Callable[[], Any]) -> Any:
    return act()


Ids = Sequence[str]
