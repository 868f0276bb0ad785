"""One node's writing side over disks in memory: no threads, crashes where a test wants them, and a client for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa

from syncpoint.base.kernel import frames
from syncpoint.base.model.flow import FlowLimits
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.environment import Environment
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.base.runtime.step_workers import ManualWorkers
from syncpoint.broker.pipeline.columns import COLUMNS
from syncpoint.broker.pipeline.staging import STAGED_BYTES_MAX, STAGING_TOPIC
from syncpoint.broker.pipeline.writing import EpochWriter
from syncpoint.broker.publish.facts.recovery import replay
from syncpoint.broker.publish.intake.follow import Follower
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.broker.publish.keep.upkeep import LogUpkeep
from syncpoint.catalog.metadata.records import CatalogChange, Subscription, Topic, encode_changes
from syncpoint.log.storage.record import EntryKind
from syncpoint.log.storage.settings import KnownStore, StorageSettings
from syncpoint.log.storage.store import Store
from syncpoint.testing.rigs.memory_files import MemoryFiles
from syncpoint.testing.simulation.sim_site import LoneHome
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pipeline, pubsub
from syncpoint.wire.transport.memory import MemoryChannel

ONE, TWO = "projects/p/topics/one", "projects/p/topics/two"
NUMBERS = {column.name: column.number for column in COLUMNS.values()}
TYPES = {
    "message_id": pa.utf8(), "offset": pa.int64(), "publish_time": pa.timestamp("us", "UTC"), "data": pa.binary(),
    "attributes": pa.map_(pa.utf8(), pa.utf8()), "ordering_key": pa.utf8(), "origin": pa.utf8(),
    "visited": pa.list_(pa.utf8()),
}  # fmt: skip


class Died(BaseException):
    """The process ended in the middle of a call."""


class DieAt:
    """A fault: the nth writing call from now on is the last one."""

    def __init__(self, calls: int) -> None:
        self.calls = calls

    def __call__(self, operation: str, path: str) -> None:
        if operation in ("pwritev", "fdatasync", "sync_dir", "rename", "allocate"):
            self.calls -= 1
            if self.calls < 0:
                raise Died


def frame(topic: str, source: int = 0, **columns: Sequence[Any]) -> Any:
    """A StageFrame of these columns."""
    arrays = [pa.array(values, TYPES[name]) for name, values in columns.items()]
    batch = pa.RecordBatch.from_arrays(arrays, names=list(columns)).serialize().to_pybytes()
    return pipeline.StageFrame(topic=topic, columns=[NUMBERS[name] for name in columns], batch=batch, source=source)


class Harness:
    """Two topics. `run(coroutine)` lets disks and loop work until it is done."""

    def __init__(self, seed: int = 1, staged_bytes_max: int = STAGED_BYTES_MAX, **settings: Any) -> None:
        self.random, self.clock, self.files = SeededRandom(seed), ManualClock(), MemoryFiles()
        plain = {"segment_bytes": 128 * 1024, "cache_bytes": 1 << 20, "pool_segments": 1, "reserve_bytes": 0}
        self.settings = StorageSettings(**{**plain, **settings})
        self.loop = asyncio.new_event_loop()
        self.universe: int | None = None
        self.staged_bytes_max = staged_bytes_max
        self.open()
        self.commit(CatalogChange.put(Topic(1, ONE)), CatalogChange.put(Topic(2, TWO)))

    def open(self) -> None:
        self.inbox: list[Callable[[], None]] = []
        self.workers = ManualWorkers()
        self.timers: list[Callable[[], None]] = []
        self.store = Store.open(
            ["/d0"],
            self.settings,
            Environment(self.clock, self.random, self.files, lambda: self.workers, self.inbox.append),
            KnownStore(self.universe),
        )
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
        self.channel = MemoryChannel(self.writer.methods())
        self.run(self.writer.finish_decided())

    def crash(self, power: bool = True) -> None:
        """The process is gone; nothing is open until `open`."""
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
        self.crash(power)
        self.open()

    def close(self) -> None:
        self.crash(power=False)
        self.loop.close()

    # -- time passes -------------------------------------------------------------------------------------------------

    def turn(self) -> bool:
        for name in list(self.workers.steps):
            self.workers.run(name)
        busy = bool(self.inbox)
        while self.inbox:
            self.inbox.pop(0)()
        return busy

    def run(self, work: Any) -> Any:
        """Run a coroutine to its end, disks included."""

        async def pumped() -> Any:
            task = self.loop.create_task(work)
            for _ in range(20_000):
                await asyncio.sleep(0)
                if task.done():
                    return task.result()
                self.turn()
            task.cancel()
            raise AssertionError("the harness does not come to rest")

        return self.loop.run_until_complete(pumped())

    def quiesce(self, turns: int = 50) -> None:
        async def nothing() -> None:
            for _ in range(turns):
                await asyncio.sleep(0)

        self.run(nothing())

    def checkpoint(self) -> None:
        self.upkeep.last_checkpoint()
        self.quiesce()

    def collect(self, rounds: int = 40) -> None:
        for _ in range(rounds):
            self.upkeep.collect()
            self.quiesce(5)

    def commit(self, *changes: CatalogChange) -> None:
        catalog = self.publish.catalog
        assigned = catalog.assign(changes)
        self.publish.commit.append_fact(EntryKind.CATALOG, encode_changes(assigned))
        for change in assigned:
            catalog.apply(change)
            self.follower.changed(change)
        self.quiesce()

    def subscribe(self, topic: int, name: str, incarnation: int) -> None:
        """So that messages of a topic are kept."""
        self.commit(
            CatalogChange.put(
                Subscription(
                    incarnation,
                    f"projects/p/subscriptions/{name}",
                    topic,
                    ONE if topic == 1 else TWO,
                    created_revision=self.publish.catalog.revision + 1,
                )
            )
        )

    # -- the client --------------------------------------------------------------------------------------------------

    async def staging(self, header: Any, frames: Iterable[Any]) -> Any:
        stream = self.channel.stream(methods.EPOCH_WRITER.Stage)
        await stream.send(pipeline.StageRequest(header=header).SerializeToString())
        for one in frames:
            await stream.send(pipeline.StageRequest(frame=one).SerializeToString())
        await stream.end()
        return pipeline.StageResponse.FromString(await stream.receive())

    def stage(self, run: str, epoch: int, partition: int, attempt: str, *given: Any, **more: Any) -> Any:
        header = pipeline.StageHeader(
            run=pipeline.Run(query="q", run=run), epoch=epoch, partition=partition, attempt=attempt, **more
        )
        return self.run(self.staging(header, given))

    def call(self, name: str, request: Any) -> Any:
        path = methods.EPOCH_WRITER[name]
        return path.response.FromString(self.run(self.channel.unary(path, request.SerializeToString())))

    def commit_epoch(self, run: str, epoch: int, *stages: tuple[int, str], **more: Any) -> Any:
        request = pipeline.CommitEpochRequest(
            run=pipeline.Run(query="q", run=run),
            epoch=epoch,
            stages=[pipeline.StageName(partition=one, attempt=two) for one, two in stages],
            **more,
        )
        return self.call("CommitEpoch", request)

    # -- the judge ---------------------------------------------------------------------------------------------------

    def stored(self, topic: int) -> list[Any]:
        """The visible messages of a topic in the order of sources and offsets."""
        found = []
        for source in self.publish.sources.of_topic(topic):
            begin = 0
            while begin < source.visible:
                answers: list[Any] = []
                self.store.read(source.number, begin, 1 << 20, answers.append)
                while not answers:
                    self.turn()
                assert not isinstance(answers[0], Exception), answers[0]
                if not answers[0]:
                    break
                for batch in answers[0]:
                    begin = batch.first_offset + batch.count
                    found += [
                        pubsub.PubsubMessage.FromString(frames.message_at(batch.payload, at))
                        for at in range(batch.count)
                    ]
        return found

    def data(self, topic: int) -> list[bytes]:
        return [message.data for message in self.stored(topic)]

    @property
    def staged_sources(self) -> list[int]:
        return [source.number for source in self.publish.sources.of_topic(STAGING_TOPIC)]
