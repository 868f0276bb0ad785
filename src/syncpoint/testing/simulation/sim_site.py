"""One site of a simulated world of two: the log, the writing side of links, and the exchange of acknowledgements.

Place: under `site_runs`. Shipped modules over disks in memory; loop and disks go on only while something is awaited, so
a life is a sequence of steps, any of which may be the last one before a power cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from syncpoint.base.kernel import frames
from syncpoint.base.kernel.acks import encode_runs
from syncpoint.base.model.errors import Aborted
from syncpoint.base.model.flow import FlowLimits
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.environment import Environment
from syncpoint.base.runtime.random import Random
from syncpoint.base.runtime.step_workers import ManualWorkers
from syncpoint.broker.pipeline.ack_exchange import AckExchange
from syncpoint.broker.pipeline.writing import EpochWriter
from syncpoint.broker.publish.commit.append import FunctionCaller
from syncpoint.broker.publish.facts.recovery import replay
from syncpoint.broker.publish.facts.source import Source
from syncpoint.broker.publish.intake.follow import Follower
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.broker.publish.keep.upkeep import LogUpkeep
from syncpoint.catalog.metadata.records import CatalogChange, SeekTarget, Subscription, Topic, encode_changes
from syncpoint.catalog.metadata.seek_stamps import SeekStamp, StampedGeneration, put_stamp
from syncpoint.log.storage.record import EntryKind
from syncpoint.log.storage.settings import KnownStore, StorageSettings
from syncpoint.log.storage.store import Store
from syncpoint.testing.rigs.memory_files import MemoryFiles
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pipeline, pubsub
from syncpoint.wire.transport.calls import Methods
from syncpoint.wire.transport.memory import MemoryChannel

TOPIC, SUBSCRIPTION = "projects/p/topics/orders", "projects/p/subscriptions/billing"
TURNS_MAX = 20_000
_T = TypeVar("_T")


class StoredMessage(NamedTuple):
    """A message as a site has it. `data`: who it is, at every site."""

    source: int
    offset: int
    data: bytes
    time_ns: int


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


class SimSite:
    """A site with one topic and one subscription. `retention_s`: of the topic; 0: what is acknowledged is deleted.
    `further`: methods that it serves, too; `lent`: what a consumer has.
    """

    def __init__(
        self,
        name: str,
        random: Random,
        clock: ManualClock,
        retention_s: int = 0,
        further: Callable[[SimSite], Methods] = lambda site: {},
    ) -> None:
        self.name, self.random, self.clock, self.further = name, random, clock, further
        self.lent: list[StoredMessage] = []
        self.files = MemoryFiles()
        self.universe: int | None = None
        self.loop = asyncio.new_event_loop()
        self.published = 0
        self.lives = 0
        self.open()
        self.change(CatalogChange.put(Topic(1, TOPIC, retention_s=retention_s)))
        self.change(CatalogChange.put(Subscription(11, SUBSCRIPTION, 1, TOPIC, created_revision=2)))

    def open(self) -> None:
        """Begin a life."""
        self.lives += 1
        self.inbox: list[Callable[[], None]] = []
        self.workers = ManualWorkers()
        settings = StorageSettings(segment_bytes=64 * 1024, cache_bytes=1 << 16, pool_segments=1, reserve_bytes=0)
        environment = Environment(self.clock, self.random, self.files, lambda: self.workers, self.inbox.append)
        self.store = Store.open(["/d0"], settings, environment, KnownStore(self.universe))
        self.universe = self.store.universe
        self.publish = PublishForwarder(
            self.store, replay(self.store), self.clock, FlowLimits(), self.loop.call_soon, lambda seconds, act: None
        )
        self.follower = Follower(self.publish, whole=True)
        self.follower.reconcile()
        self.upkeep = LogUpkeep(self.store, self.publish, self.follower.checkpoint_parts, 0.0)
        self.writer = EpochWriter(self.publish, self.loop.call_soon, self.publish.commit._later, LoneHome(self.publish))
        self.acks = AckExchange(self.publish, self.writer.state)
        self.channel = MemoryChannel({**self.writer.methods(), **self.acks.methods(), **self.further(self)})
        self.run(self.writer.finish_decided())
        self.acks.recover()

    def crash(self) -> None:
        """The power is cut: what was not synced may be gone."""
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()
        self.loop = asyncio.new_event_loop()
        self.files.faults.clear()
        self.files.power_cut(self.random)
        self.lent.clear()

    def close(self) -> None:
        """End it."""
        self.crash()
        self.loop.close()

    # -- time passes -------------------------------------------------------------------------------------------------

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine to its end, disks included."""

        async def pumped() -> _T:
            task = self.loop.create_task(work)
            for _ in range(TURNS_MAX):
                await asyncio.sleep(0)
                if task.done():
                    return task.result()
                self._turn()
            task.cancel()
            raise AssertionError(f"{self.name} does not come to rest")

        return self.loop.run_until_complete(pumped())

    def _turn(self) -> None:
        for name in list(self.workers.steps):
            self.workers.run(name)
        while self.inbox:
            self.inbox.pop(0)()

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

    # -- the catalog -------------------------------------------------------------------------------------------------

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

    @property
    def record(self) -> Subscription:
        found = self.publish.catalog.subscription(SUBSCRIPTION)
        assert found is not None
        return found

    def seek(self, time_ns: int, stamp: SeekStamp | None = None) -> int:
        """Move the subscription; `stamp`: of the seek at another site that is followed."""
        record = self.record
        moved = replace(record, generation=record.generation + 1, target=SeekTarget(time_ns=time_ns))
        stamps = []
        if stamp is not None:
            made = StampedGeneration(moved.generation, stamp)
            stamps = put_stamp(self.publish.catalog, record.incarnation, made)
        self.change(*stamps, CatalogChange.put(moved))
        return moved.generation

    # -- clients -----------------------------------------------------------------------------------------------------

    def put(self, count: int) -> list[bytes]:
        """Publish messages; returns those that are confirmed."""
        data = [f"{self.name}{self.published + number}".encode() for number in range(count)]
        self.published += count
        request = pubsub.PublishRequest(topic=TOPIC, messages=[pubsub.PubsubMessage(data=one) for one in data])
        outcomes: list[Any] = []
        self.publish.intake.publish_request(
            FunctionCaller(outcomes.append, outcomes.append), request.SerializeToString()
        )
        self.rest()
        return data if outcomes and not isinstance(outcomes[0], Exception) else []

    def stored(self) -> list[StoredMessage]:
        """The visible messages, in the order of sources and offsets."""
        found = []
        for source in self.publish.sources.of_topic(1):
            begin = 0
            while begin < source.visible:
                answers: list[Any] = []
                self.store.read(source.number, begin, 1 << 20, answers.append)
                while not answers:
                    self._turn()
                if isinstance(answers[0], Exception):
                    raise answers[0]
                if not answers[0]:
                    break
                for batch in answers[0]:
                    begin = batch.first_offset + batch.count
                    for at in range(batch.count):
                        message = pubsub.PubsubMessage.FromString(frames.message_at(batch.payload, at))
                        time_ns = message.publish_time.ToNanoseconds()
                        found.append(StoredMessage(source.number, batch.first_offset + at, message.data, time_ns))
        return found

    def waiting(self) -> list[StoredMessage]:
        """What the subscription would be delivered."""
        ledger = self.publish.ledgers[11]
        return [one for one in self.stored() if not ledger.covers(one.source, one.offset, one.offset + 1)]

    def acknowledge(self, messages: Sequence[StoredMessage]) -> bool:
        """As a consumer does; whether it is confirmed."""
        ledger, outcomes = self.publish.ledgers[11], list[Exception | None]()
        for one in messages:
            runs = encode_runs([(one.offset, 1)])
            self.publish.server.acknowledge(11, ledger.generation, one.source, runs, outcomes.append, urgent=True)
        self.rest()
        return len(outcomes) == len(messages) and not any(outcomes)

    # -- the ends of links -------------------------------------------------------------------------------------------

    def call(self, method: methods.Method, request: Any) -> Any:
        """A unary call. Raises `SyncpointError`."""
        if method == methods.ACK_EXCHANGE.FollowSeek:
            return self._follow(request)
        return method.response.FromString(self.run(self.channel.unary(method, request.SerializeToString())))

    def _follow(self, asked: pipeline.FollowSeekRequest) -> pipeline.FollowSeekResponse:
        """What the control plane does, on this catalog."""
        if self.record.generation != asked.generation:
            raise Aborted("It is in another generation.")
        stamp = SeekStamp(asked.stamp.number, asked.stamp.site)
        return pipeline.FollowSeekResponse(generation=self.seek(asked.time.ToNanoseconds(), stamp))

    def extents(self) -> list[tuple[int, int, int]]:
        """(source, begin, end) of all that is visible and stored."""
        found = []
        for source in self.publish.sources.of_topic(1):
            bounds = self.store.bounds(source.number)
            found.append((source.number, source.visible if bounds is None else bounds[0], source.visible))
        return found

    @property
    def topic_name(self) -> str:
        """As links name it."""
        return f"{self.universe:x}/1"

    def take_copies(self, link: str, run: str, epoch: int, source_topic: str, copies: Sequence[StoredMessage],
                    planned: Sequence[tuple[int, int, int]]) -> None:  # fmt: skip
        """Stage and commit an epoch of a link. Raises `SyncpointError`."""
        about = pipeline.Run(query=link, run=run)
        staged = []
        for number, source in enumerate(sorted({one.source for one in copies})):
            rows = [one for one in copies if one.source == source]
            self.run(self._stage(about, epoch, number, link, source, rows))
            staged.append(pipeline.StageName(partition=number, attempt="x"))
        request = pipeline.CommitEpochRequest(
            run=about,
            epoch=epoch,
            stages=staged,
            link=link,
            source_topic=source_topic,
            planned=[pipeline.SourceRange(source=one, begin=two, end=three) for one, two, three in planned],
            accept_gaps=True,
        )
        self.call(methods.EPOCH_WRITER.CommitEpoch, request)

    async def _stage(
        self, run: Any, epoch: int, partition: int, link: str, source: int, rows: Sequence[StoredMessage]
    ) -> None:
        arrays = [
            pa.array([one.data for one in rows], pa.binary()),
            pa.array([one.offset for one in rows], pa.int64()),
            pa.array([one.time_ns // 1000 for one in rows], pa.timestamp("us", "UTC")),
        ]
        batch = pa.RecordBatch.from_arrays(arrays, names=["data", "offset", "publish_time"])
        header = pipeline.StageHeader(
            run=run, epoch=epoch, partition=partition, attempt="x", link=link, keep_identity=True
        )
        frame = pipeline.StageFrame(topic=TOPIC, columns=[4, 2, 3], batch=batch.serialize().to_pybytes(), source=source)
        stream = self.channel.stream(methods.EPOCH_WRITER.Stage)
        await stream.send(pipeline.StageRequest(header=header).SerializeToString())
        await stream.send(pipeline.StageRequest(frame=frame).SerializeToString())
        await stream.end()
        await stream.receive()
