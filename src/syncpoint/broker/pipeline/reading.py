"""The service LogReader: topics as logs, for programs that read by ranges of offsets.

Place: beside the servicers of `api`; it reads the tables and the store of one publish forwarder and moves cursors and
exclusive readers. Everything runs on the event loop; a range is a `reading_ranges.RangeStream`.
Promise: only what is persisted is named and read. A cursor exists, and a deleted one is gone, for good when the answer
is sent; its other movements are written within a second.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from google.protobuf.message import Message

from syncpoint.base.model.errors import InvalidArgument, OutOfRange, SyncpointError, Unimplemented
from syncpoint.base.model.names import parse_project
from syncpoint.base.model.spans import OffsetRange
from syncpoint.base.rules import pubsub_filter
from syncpoint.base.runtime.tasks import outcome_of
from syncpoint.broker.pipeline import columns, reading_positions
from syncpoint.broker.pipeline.cursors import CursorLimits, Cursors, ReaderCursor, passed
from syncpoint.broker.pipeline.ended_sources import EndedSources
from syncpoint.broker.pipeline.exclusive_readers import ExclusiveReaders, acknowledge, check_generation
from syncpoint.broker.pipeline.mean_sizes import MeanSizes
from syncpoint.broker.pipeline.reading_positions import Extent, extents, topic_named
from syncpoint.broker.pipeline.reading_ranges import RangeStream, Selection, Soon
from syncpoint.broker.publish.facts import records
from syncpoint.broker.publish.facts.recovery import of_this_format
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.catalog.metadata.records import Topic
from syncpoint.log.storage.record import EntryKind
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pipeline
from syncpoint.wire.protobuf.methods import Method
from syncpoint.wire.protobuf.serving import parsed, served
from syncpoint.wire.transport.calls import Methods, Streaming, StreamingCall

log = logging.getLogger(__name__)

FRAME_BYTES = 4 << 20
FRAME_BYTES_MAX = 64 << 20
EXPIRE_S = 60.0
_AND = b"\x06"  # of filter programs, see kernel.filters


class LogReader:
    """The service, and the driver of cursors. It registers itself with the forwarders, before anything is served.
    `exclusive`: who may have a subscription alone; None where nobody asks.
    """

    def __init__(self, publish: PublishForwarder, exclusive: ExclusiveReaders | None, soon: Soon) -> None:
        self.publish, self.catalog, self.clock = publish, publish.catalog, publish.clock
        self.means = MeanSizes(publish.store)
        found = publish.memory.extensions.pop(Cursors.number, [])
        with of_this_format(lambda: "a fact of cursors in the log"):
            self.cursors = Cursors(publish.sources, publish.catalog, publish.clock, self.means.of, found)
        self.cursors.on_more = publish.needs.more
        publish.extensions.append(self.cursors)
        publish.holding_extensions.append(self.cursors)
        with of_this_format(lambda: "a fact of ended sources in the log"):
            self.ended = EndedSources(publish.memory.extensions.pop(EndedSources.number, []))
        publish.extensions.append(self.ended)
        self.exclusive = exclusive
        self._ranges: list[RangeStream] = []
        self.rows = self.bytes = 0  # sent to readers
        self._soon = soon
        self._expire_at = self.clock.monotonic() + EXPIRE_S

    def methods(self) -> Methods:
        """The method table of this service."""
        return {**served(self.unary()), methods.LOG_READER.ReadRange.encode(): Streaming(self.read_range)}

    def unary(self) -> dict[Method, Callable[[Any], Awaitable[Message]]]:
        """What answers the unary methods."""
        return {
            methods.LOG_READER.GetPositions: self.get_positions,
            methods.LOG_READER.ListCursors: self.list_cursors,
            methods.LOG_READER.DeleteCursor: self.delete_cursor,
            methods.LOG_READER.ReleaseSubscription: self.release_subscription,
        }

    @property
    def _alone(self) -> ExclusiveReaders:
        if self.exclusive is None:
            raise Unimplemented("A reader that has a subscription to itself (exclusive_reader)")
        return self.exclusive

    def close(self, error: SyncpointError) -> None:
        """End the streams that are open."""
        for one in self._ranges:
            one.end(error)
        self._ranges = []

    # -- positions ---------------------------------------------------------------------------------------------------

    async def get_positions(self, asked: pipeline.GetPositionsRequest) -> pipeline.Positions:
        """GetPositions."""
        if bool(asked.topic) == bool(asked.subscription):
            raise InvalidArgument("topic", "exactly one of topic and subscription must be set")
        ends = {one.source: one.end for one in asked.processed}
        if asked.subscription:
            topic = await self._of_subscription(asked, ends)
        else:
            topic = topic_named(self.catalog, asked.topic, asked.topic_incarnation)
        found = extents(self.publish, topic.incarnation)
        begins = reading_positions.starts(self.publish, asked, topic.incarnation, found)
        generation = 0
        if asked.subscription:  # in the turn in which `begins` is taken
            record = reading_positions.subscription_named(self.catalog, asked.subscription)
            generation = self.publish.server.generation(record.incarnation)
        cursor = None
        if asked.HasField("cursor"):
            cursor = await self._moved(asked, topic, found, begins, ends)
        await self.means.learn(topic.incarnation, _filled(found))
        answer = self._positions(topic, found, begins, cursor)
        answer.generation = generation
        for number in asked.known:
            if (end := self.ended.end_of(topic.incarnation, number)) is not None:
                answer.ended.add(source=number, end=end)
        return answer

    async def _of_subscription(self, asked: pipeline.GetPositionsRequest, ends: dict[int, int]) -> Topic:
        """The topic of the request's subscription, whose reader takes it and acknowledges what it has processed."""
        if asked.HasField("cursor"):
            raise InvalidArgument(
                "cursor", "must not be set for a subscription, which keeps its unacknowledged messages"
            )
        record = reading_positions.subscription_named(self.catalog, asked.subscription)
        topic = topic_named(self.catalog, record.topic_name, asked.topic_incarnation)
        if asked.exclusive_reader:
            # What is refused takes nothing.
            reading_positions.starts(self.publish, asked, topic.incarnation, [])
            if ends:
                check_generation(self.publish, record, asked.generation)
            await self._alone.take(record, asked.exclusive_reader, asked.exclusive_seconds)
            if ends:
                check_generation(self.publish, record, asked.generation)
                acknowledge(self.publish, record, passed(self.publish.sources.of_topic(topic.incarnation), ends))
        elif ends:
            raise InvalidArgument("processed", "may only be set together with exclusive_reader")
        return topic

    async def _moved(
        self,
        asked: pipeline.GetPositionsRequest,
        topic: Topic,
        found: list[Extent],
        begins: list[int],
        ends: dict[int, int],
    ) -> ReaderCursor:
        """The cursor of the request, moved; it is persisted before anybody learns of a new one."""
        wanted = asked.cursor
        limits = CursorLimits(wanted.retention_seconds, wanted.retention_bytes, wanted.expiration_seconds)
        cursor = self.cursors.find(topic.incarnation, wanted.name)
        if cursor is not None and not asked.first:
            self.cursors.advance(cursor, limits, ends)
            return cursor
        known = [one.source for one in found]
        starts = dict(zip([one.number for one in known], begins, strict=True)) if asked.first else passed(known, ends)
        if not asked.first and not ends:
            starts = {one.source.number: one.begin for one in found}
        cursor = self.cursors.begin(topic.incarnation, wanted.name, limits, starts)
        if not asked.first:
            # The reader had a cursor that was deleted or has expired: what it had not read of sources that are gone now
            # was kept by nobody. How much that was is not known; one message stands for it.
            there = {one.number for one in known}
            cursor.lost = [
                OffsetRange(number, end, end + 1) for number, end in sorted(ends.items()) if number not in there
            ]
        await self._persist(self.cursors.write(cursor))
        return cursor

    def ensure(self, topic: int, name: str, limits: CursorLimits) -> None:
        """Create a cursor if it does not exist, and mark it as used. A new cursor starts at the beginning."""
        cursor = self.cursors.find(topic, name)
        if cursor is None:
            self._append(self.cursors.write(self.cursors.begin(topic, name, limits, {})))
        else:
            self.cursors.advance(cursor, limits, {})

    def _positions(
        self, topic: Topic, found: list[Extent], begins: list[int], cursor: ReaderCursor | None
    ) -> pipeline.Positions:
        answer = pipeline.Positions(
            topic=topic.name, topic_incarnation=topic.incarnation, universe=f"{self.publish.store.universe:x}"
        )
        answer.time.FromNanoseconds(self.clock.time_ns())
        mean = round(self.means.of(topic.incarnation))
        for (source, begin, end), start in zip(found, begins, strict=True):
            answer.sources.add(
                source=source.number,
                epoch=source.epoch,
                begin=begin,
                end=end,
                sealed=source.sealed,
                start=start,
                mean_bytes=mean,
            )
        for one in self.cursors.lost(cursor, found) if cursor is not None else ():
            answer.lost.add(source=one.source, begin=one.begin, end=one.end)
        return answer

    # -- ranges ------------------------------------------------------------------------------------------------------

    def read_range(self, stream: StreamingCall) -> None:
        """ReadRange."""

        def begin(request: bytes) -> None:
            stream.on_message = None
            try:
                wanted = self._selection(parsed(pipeline.ReadRangeRequest, request))
            except SyncpointError as error:
                stream.finish(error)
                return

            def count(rows: int, nbytes: int) -> None:
                self.rows += rows
                self.bytes += nbytes
                self.means.note(topic, rows, nbytes)

            topic = self.publish.sources.by_number[wanted.source].topic if wanted.begin < wanted.end else 0
            self._ranges = [one for one in self._ranges if not one.over]
            self._ranges.append(RangeStream(stream, self.publish.store, wanted, self._soon, count))
            self._ranges[-1].start()

        def end() -> None:
            if stream.on_message is not None:
                stream.finish(InvalidArgument("", "The call ended without a request."))

        stream.on_message = begin
        stream.on_end = end

    def _selection(self, asked: pipeline.ReadRangeRequest) -> Selection:
        topic = topic_named(self.catalog, asked.topic, asked.topic_incarnation)
        if not 0 <= asked.begin <= asked.end:
            raise InvalidArgument(
                "begin", f"must be 0 or more and not greater than end, not [{asked.begin}, {asked.end})"
            )
        if not 0 <= asked.frame_bytes <= FRAME_BYTES_MAX:
            raise InvalidArgument("frame_bytes", f"must be between 0 (the default) and {FRAME_BYTES_MAX}")
        chosen = columns.named(asked.columns)
        self._check_stored(topic, asked)
        program, acked = pubsub_filter.compile(asked.filter), []
        if asked.skip_subscription:
            record = reading_positions.subscription_named(self.catalog, asked.skip_subscription, "skip_subscription")
            if record.topic_incarnation != topic.incarnation:
                raise InvalidArgument("skip_subscription", f"{record.name} must be a subscription of {topic.name}")
            ledger = self.publish.ledgers.get(record.incarnation)
            acked.append(None if ledger is None else ledger.acks.get(asked.source))
            if record.filter_text:
                own = pubsub_filter.compile(record.filter_text)
                program = program + own + _AND if program else own
        if asked.skip_snapshot:
            snapshot = reading_positions.snapshot_named(
                self.catalog, asked.skip_snapshot, topic.incarnation, "skip_snapshot"
            )
            state = self.publish.snapshots.get(snapshot.incarnation)
            acked.append(None if state is None else state.acks.get(asked.source))
        return Selection(
            topic.name,
            asked.source,
            asked.begin,
            asked.end,
            tuple(one.number for one in chosen),
            program,
            tuple(one.encode() for one in asked.origins) or None,
            asked.not_visited.encode(),
            tuple(one for one in acked if one is not None),
            asked.frame_bytes or FRAME_BYTES,
        )

    def _check_stored(self, topic: Topic, asked: pipeline.ReadRangeRequest) -> None:
        """Raises `OutOfRange`, `InvalidArgument`. What is missing inside of the range turns up on the way."""
        source = self.publish.sources.by_number.get(asked.source)
        if source is not None and source.topic != topic.incarnation:
            raise InvalidArgument(
                "source", f"{asked.source} is not a source of {topic.name}; call GetPositions for its sources"
            )
        if asked.begin == asked.end:
            return
        if source is None:
            raise OutOfRange(
                f"Messages {asked.begin} to {asked.end - 1} of source {asked.source} of {topic.name} are not stored any"
                " more; the whole source was deleted. Call GetPositions for what is stored."
            )
        if asked.end > source.visible:
            raise OutOfRange(
                f"Messages up to {asked.end} of source {asked.source} of {topic.name} do not exist yet: the source ends"
                f" at {source.visible} now. Read up to the `end` that GetPositions returns."
            )

    # -- cursors -----------------------------------------------------------------------------------------------------

    async def list_cursors(self, asked: pipeline.ListCursorsRequest) -> pipeline.ListCursorsResponse:
        """ListCursors."""
        if bool(asked.topic) == bool(asked.project):
            raise InvalidArgument("topic", "exactly one of topic and project must be set")
        if asked.topic:
            topics = [topic_named(self.catalog, asked.topic, 0)]
        else:
            prefix = parse_project(asked.project) + "/"
            known = {cursor.topic for cursor in self.cursors.all()}
            named = [self.catalog.topic_by_incarnation(one) for one in known]
            topics = sorted((one for one in named if one and one.name.startswith(prefix)), key=lambda one: one.name)
        answer = pipeline.ListCursorsResponse()
        for topic in topics:
            found = extents(self.publish, topic.incarnation)
            for cursor in self.cursors.of_topic(topic.incarnation):
                answer.cursors.append(self._shown(cursor, topic, found))
        return answer

    def _shown(self, cursor: ReaderCursor, topic: Topic, found: list[Extent]) -> pipeline.Cursor:
        shown = pipeline.Cursor(
            topic=topic.name,
            name=cursor.name,
            retention_seconds=cursor.retention_s,
            retention_bytes=cursor.limits.retention_bytes,
            expiration_seconds=cursor.expiration_s,
        )
        shown.used.FromNanoseconds(cursor.used_ns)
        for source, begin, end in found:
            position = max(begin, cursor.position(source))
            if position < end or not source.sealed:
                shown.ranges.add(source=source.number, begin=position, end=end)
                shown.lag_messages += end - position
        shown.lag_bytes = round(shown.lag_messages * self.means.of(topic.incarnation))
        for one in self.cursors.lost(cursor, found):
            shown.lost.add(source=one.source, begin=one.begin, end=one.end)
        return shown

    async def delete_cursor(self, asked: pipeline.DeleteCursorRequest) -> pipeline.DeleteCursorResponse:
        """DeleteCursor."""
        topic = topic_named(self.catalog, asked.topic, 0)
        self.publish.commit.check_writable()
        await self._persist(self.cursors.delete(topic.incarnation, asked.name))
        return pipeline.DeleteCursorResponse()

    async def release_subscription(
        self, asked: pipeline.ReleaseSubscriptionRequest
    ) -> pipeline.ReleaseSubscriptionResponse:
        """ReleaseSubscription."""
        record = reading_positions.subscription_named(self.catalog, asked.subscription)
        if not asked.exclusive_reader:
            raise InvalidArgument("exclusive_reader", "must be set: the reader that releases the subscription")
        await self._alone.release(record, asked.exclusive_reader)
        return pipeline.ReleaseSubscriptionResponse()

    # -- by the clock ------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """About twice a second: write what has moved, forget what nobody uses, learn sizes that limits need."""
        if self.publish.commit.failed is not None:
            return
        facts, now = self.cursors.unwritten(), self.clock.monotonic()
        if now >= self._expire_at:
            self._expire_at = now + EXPIRE_S
            gone = self.cursors.expire()
            if gone:
                log.info("deleting %d cursors that nobody has used for as long as they say", len(gone))
            facts += gone
        for fact in facts:
            self._append(fact)
        for fact in self.ended.unwritten():
            self.publish.commit.append_fact(EntryKind.LEDGER, records.encode_extension(EndedSources.number, fact))
        for cursor in self.cursors.all():
            if cursor.limits.retention_bytes and not self.means.of(cursor.topic):
                found = extents(self.publish, cursor.topic)
                self.means.begin(cursor.topic, _filled(found))

    def _append(self, fact: bytes, done: Callable[[Exception | None], None] | None = None) -> None:
        self.publish.commit.append_fact(EntryKind.LEDGER, records.encode_extension(Cursors.number, fact), done)

    async def _persist(self, fact: bytes) -> None:
        """Write a fact; returns when it is persisted. Raises `Unavailable` when that is unknown."""
        persisted, on_outcome = outcome_of("cursor")
        self._append(fact, on_outcome)
        await persisted


def _filled(found: list[Extent]) -> list[tuple[int, int]]:
    """Sources of which something is stored, with their ends."""
    return [(one.source.number, one.end) for one in found if one.begin < one.end]
