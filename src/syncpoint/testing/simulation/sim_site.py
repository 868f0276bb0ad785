"""One site of a simulated world of two: the log, the writing side of links, and the exchange of acknowledgements.

Place: under `site_runs`; a `sim_log` with one topic, one subscription and its consumers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa

from syncpoint.base.kernel.acks import encode_runs
from syncpoint.base.model.errors import Aborted
from syncpoint.base.model.identity import format_message_id
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import Random
from syncpoint.broker.pipeline.ack_exchange import AckExchange
from syncpoint.broker.publish.commit.append import FunctionCaller
from syncpoint.catalog.metadata.records import CatalogChange, SeekTarget, Subscription, Topic
from syncpoint.catalog.metadata.seek_stamps import SeekStamp, StampedGeneration, put_stamp
from syncpoint.log.storage.settings import StorageSettings
from syncpoint.testing.simulation.sim_log import SimLog
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pipeline, pubsub
from syncpoint.wire.transport.calls import Methods

TOPIC, SUBSCRIPTION = "projects/p/topics/orders", "projects/p/subscriptions/billing"


class StoredMessage(NamedTuple):
    """A message as a site has it. `data`: who it is, at every site."""

    source: int
    offset: int
    data: bytes
    time_ns: int
    key: str = ""


class SimSite(SimLog):
    """A site with one topic and one subscription. `retention_s`: of the topic; 0: what is acknowledged is deleted.
    `further`: methods that it serves, too; `lent`: what a consumer has; `changed`: is called after a change of the
    catalog, before that is answered.
    """

    def __init__(
        self,
        name: str,
        random: Random,
        clock: ManualClock,
        retention_s: int = 0,
        further: Callable[[SimSite], Methods] = lambda site: {},
        *,
        ordered: bool = False,
    ) -> None:
        self.name, self.further = name, further
        self.lent: list[StoredMessage] = []
        self.changed: Callable[[], object] = lambda: None
        self.published = self.lives = 0
        settings = StorageSettings(segment_bytes=64 * 1024, cache_bytes=1 << 16, pool_segments=1, reserve_bytes=0)
        super().__init__(random, clock, settings)
        self.change(CatalogChange.put(Topic(1, TOPIC, retention_s=retention_s)))
        self.change(CatalogChange.put(Subscription(11, SUBSCRIPTION, 1, TOPIC, ordered=ordered, created_revision=2)))

    def open(self) -> None:
        self.lives += 1
        super().open()
        self.acks.recover()

    def serves(self) -> Methods:
        self.acks = AckExchange(self.publish, self.writer.state)
        return {**super().serves(), **self.acks.methods(), **self.further(self)}

    def crash(self, power: bool = True) -> None:
        super().crash(power)
        self.lent.clear()

    # -- the catalog -------------------------------------------------------------------------------------------------

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

    def put(self, count: int, key: str = "") -> list[bytes]:
        """Publish messages; returns those that are confirmed."""
        data = [f"{self.name}{self.published + number}".encode() for number in range(count)]
        self.published += count
        request = pubsub.PublishRequest(topic=TOPIC, messages=[{"data": one, "ordering_key": key} for one in data])
        outcomes: list[Any] = []
        self.publish.intake.publish_request(
            FunctionCaller(outcomes.append, outcomes.append), request.SerializeToString()
        )
        self.rest()
        return data if outcomes and not isinstance(outcomes[0], Exception) else []

    def stored(self) -> list[StoredMessage]:
        """The visible messages, in the order of sources and offsets."""
        return [
            StoredMessage(source, offset, message.data, message.publish_time.ToNanoseconds(), message.ordering_key)
            for source, offset, message in self.messages(1)
        ]

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

    def id_of(self, message: StoredMessage) -> str:
        """The id of a message that was published here."""
        return format_message_id(self.universe or 0, message.source, message.offset)

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
            header = pipeline.StageHeader(
                run=about, epoch=epoch, partition=number, attempt="x", link=link, keep_identity=True
            )
            self.run(self.staging(header, [_frame(source, rows)]))
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


def _frame(source: int, rows: Sequence[StoredMessage]) -> Any:
    arrays = [
        pa.array([one.data for one in rows], pa.binary()),
        pa.array([one.offset for one in rows], pa.int64()),
        pa.array([one.time_ns // 1000 for one in rows], pa.timestamp("us", "UTC")),
        pa.array([one.key for one in rows], pa.utf8()),
    ]
    batch = pa.RecordBatch.from_arrays(arrays, names=["data", "offset", "publish_time", "ordering_key"])
    return pipeline.StageFrame(topic=TOPIC, columns=[4, 2, 3, 6], batch=batch.serialize().to_pybytes(), source=source)
