"""One node's log over disks in memory, with the writing side of pipelines: no threads, and crashes where one is wanted.

Place: under `sim_site`, and under tests of pipelines. Shipped modules; loop and disks go on only while something is
awaited, so a life is a sequence of steps, any of which may be the last one before a power cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator
from typing import Any, TypeVar

from syncpoint.base.kernel import frames
from syncpoint.base.model.flow import FlowLimits
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.environment import Environment
from syncpoint.base.runtime.random import Random
from syncpoint.base.runtime.step_workers import ManualWorkers
from syncpoint.broker.pipeline.staging import STAGED_BYTES_MAX
from syncpoint.broker.pipeline.writing import EpochWriter
from syncpoint.broker.publish.facts.recovery import replay
from syncpoint.broker.publish.facts.source import Source
from syncpoint.broker.publish.intake.follow import Follower
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.broker.publish.keep.upkeep import LogUpkeep
from syncpoint.catalog.metadata.records import CatalogChange, encode_changes
from syncpoint.log.storage.record import EntryKind
from syncpoint.log.storage.settings import KnownStore, StorageSettings
from syncpoint.log.storage.store import Store
from syncpoint.testing.rigs.memory_files import MemoryFiles
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pipeline, pubsub
from syncpoint.wire.transport.calls import Methods
from syncpoint.wire.transport.memory import MemoryChannel

TURNS_MAX = 20_000
_T = TypeVar("_T")


class LoneHome:
    """`home.Home` of a log with nothing around it."""

    def __init__(self, publish: PublishForwarder) -> None:
        self._publish = publish

    def knows(self, query: str, link: str) -> bool:
        return True

    async def admit(self, query: str, link: str) -> None: ...

    async def pin(self, topics: Collection[int]) -> None: ...

    def unpin(self, topics: Collection[int]) -> None: ...

    def open_source(self, topic: int) -> Source:
        return self._publish.open_source(topic)

    def note_load(self, topic: int, messages: int, nbytes: int) -> None: ...


class SimLog:
    """A log that is open. `timers`: what it wants to do after a while; a test does it."""

    def __init__(
        self,
        random: Random,
        clock: ManualClock,
        settings: StorageSettings,
        staged_bytes_max: int = STAGED_BYTES_MAX,
    ) -> None:
        self.random, self.clock, self.files = random, clock, MemoryFiles()
        self.settings, self.staged_bytes_max = settings, staged_bytes_max
        self.universe: int | None = None
        self.loop = asyncio.new_event_loop()
        self.open()

    def open(self) -> None:
        """Begin a life."""
        self.inbox: list[Callable[[], None]] = []
        self.timers: list[Callable[[], None]] = []
        self.workers = ManualWorkers()
        environment = Environment(self.clock, self.random, self.files, lambda: self.workers, self.inbox.append)
        self.store = Store.open(["/d0"], self.settings, environment, KnownStore(self.universe))
        self.universe = self.store.universe
        self.publish = PublishForwarder(
            self.store, replay(self.store), self.clock, FlowLimits(), self.loop.call_soon,
            lambda seconds, act: self.timers.append(act),
        )  # fmt: skip
        self.follower = Follower(self.publish, whole=True)
        self.follower.reconcile()
        self.upkeep = LogUpkeep(self.store, self.publish, self.follower.checkpoint_parts, 0.0)
        self.writer = EpochWriter(
            self.publish, self.loop.call_soon, self.publish.commit._later, LoneHome(self.publish),
            staged_bytes_max=self.staged_bytes_max,
        )  # fmt: skip
        self.channel = MemoryChannel(self.serves())
        self.run(self.writer.finish_decided())

    def serves(self) -> Methods:
        """What `channel` serves."""
        return self.writer.methods()

    def crash(self, power: bool = True) -> None:
        """The process is gone until `open`; where the power is cut, what was not synced may be gone as well."""
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()
        self.loop = asyncio.new_event_loop()
        self.files.faults.clear()
        if power:
            self.files.power_cut(self.random)
        else:
            self.files.kill()

    def restart(self, power: bool = True) -> None:
        """Crash, and begin another life."""
        self.crash(power)
        self.open()

    def close(self) -> None:
        """End it."""
        self.crash(power=False)
        self.loop.close()

    # -- time passes -------------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """Let each disk take a step, and deliver what that came to."""
        for name in list(self.workers.steps):
            self.workers.run(name)
        while self.inbox:
            self.inbox.pop(0)()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine to its end, disks included."""

        async def pumped() -> _T:
            task = self.loop.create_task(work)
            for _ in range(TURNS_MAX):
                await asyncio.sleep(0)
                if task.done():
                    return task.result()
                self.turn()
            task.cancel()
            raise AssertionError("the log does not come to rest")

        return self.loop.run_until_complete(pumped())

    def rest(self, turns: int = 10) -> None:
        """Let everything that is on its way arrive."""

        async def nothing() -> None:
            for _ in range(turns):
                await asyncio.sleep(0)

        self.run(nothing())

    def collect(self, rounds: int = 12) -> None:
        """Delete what nobody needs."""
        for _ in range(rounds):
            self.upkeep.collect()
            self.rest(3)

    def checkpoint(self) -> None:
        """Write a checkpoint, as a server that stops does."""
        self.upkeep.last_checkpoint()
        self.rest()

    # -- what is in it -----------------------------------------------------------------------------------------------

    def change(self, *changes: CatalogChange) -> None:
        """Change the catalog, and persist it."""
        self.apply(*changes)
        self.rest()

    def apply(self, *changes: CatalogChange) -> None:
        """Change the catalog, to be persisted as time passes."""
        catalog = self.publish.catalog
        assigned = catalog.assign(changes)
        self.publish.commit.append_fact(EntryKind.CATALOG, encode_changes(assigned))
        for change in assigned:
            catalog.apply(change)
            self.follower.changed(change)

    async def staging(self, header: Any, given: Iterable[Any]) -> Any:
        """Stage frames as a client does."""
        stream = self.channel.stream(methods.EPOCH_WRITER.Stage)
        await stream.send(pipeline.StageRequest(header=header).SerializeToString())
        for one in given:
            await stream.send(pipeline.StageRequest(frame=one).SerializeToString())
        await stream.end()
        return pipeline.StageResponse.FromString(await stream.receive() or b"")

    def messages(self, topic: int) -> Iterator[tuple[int, int, Any]]:
        """The visible messages of a topic in the order of sources and offsets, with both."""
        for source in self.publish.sources.of_topic(topic):
            begin = 0
            while begin < source.visible:
                answers: list[Any] = []
                self.store.read(source.number, begin, 1 << 20, answers.append)
                while not answers:
                    self.turn()
                if isinstance(answers[0], Exception):
                    raise answers[0]
                if not answers[0]:
                    break
                for batch in answers[0]:
                    begin = batch.first_offset + batch.count
                    for at in range(batch.count):
                        message = pubsub.PubsubMessage.FromString(frames.message_at(batch.payload, at))
                        yield source.number, batch.first_offset + at, message
