"""Intake: the way of a publish into the log, from its request until it stands in the turn.

Place: `api/publisher` and `ingress` hand requests in; `commit` writes what is taken and answers. Everything runs on the
event loop's thread; nothing here waits.
A plain publish is a client's to a topic without options, schema and transforms. Its way is `publish`: scan the request,
append it to the turn; the commit answers. Everything else goes through `publish_staged`, where its topic and its origin
choose what comes in between: suspension, duplicate detection (`judged_publishes`). What a single message asks for, the
kernel marks while it scans: schedules (`_divide`) and times to live (`_lives`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from syncpoint.base.kernel import lifetimes, schedules, stamps
from syncpoint.base.kernel import publish as kernel
from syncpoint.base.kernel.errors import Invalid, Malformed
from syncpoint.base.model.delivery import Done
from syncpoint.base.model.errors import InvalidArgument, NotFound, SyncpointError, not_a, suspended
from syncpoint.base.model.limits import SCHEDULE_AHEAD_SECONDS_MAX
from syncpoint.base.model.names import parse_topic
from syncpoint.broker.publish.commit.append import FunctionCaller, PublishCaller, completion
from syncpoint.broker.publish.commit.commit import GroupCommit
from syncpoint.broker.publish.facts.judged_batches import JudgedBatches
from syncpoint.broker.publish.facts.message_ids import MessageIds
from syncpoint.broker.publish.facts.origin import Allowance, Publication, PublishOrigin
from syncpoint.broker.publish.facts.scheduled import Scheduled, ScheduledMessages, ScheduledPart
from syncpoint.broker.publish.facts.source import WAITING_TOPIC, MessagePlace, Source, SourceTable
from syncpoint.broker.publish.facts.time_to_live import ExpiryIndex, lives_of
from syncpoint.broker.publish.intake.judged_publishes import JudgedPublishes, NoteTaken
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import Topic
from syncpoint.catalog.schemas.publishing import ATTRIBUTES_ADDED, OWN_ATTRIBUTES_ADDED, ROOM_BYTES
from syncpoint.wire.protobuf.messages import pubsub


class LogFacts(NamedTuple):
    """What a log remembers of messages besides themselves, as far as publishing asks or adds to it."""

    expiry: ExpiryIndex
    scheduled: ScheduledMessages
    ids: MessageIds
    batches: JudgedBatches


class Intake:
    """Take publish requests into the log.

    `open_source(topic)` opens the topic's source; `sealed_room`: bytes by which a sealed request may exceed a client's
    limit.
    """

    def __init__(
        self,
        commit: GroupCommit,
        catalog: Catalog,
        sources: SourceTable,
        facts: LogFacts,
        open_source: Callable[[int], Source],
        sealed_room: int = 0,
    ) -> None:
        self.commit, self.store, self.admission = commit, commit.store, commit.admission
        self._catalog, self._sources, self._open_source = catalog, sources, open_source
        self._expiry, self._scheduled, self._ids, self._batches = facts
        self.judged = JudgedPublishes(self._ids, self._batches, commit, sources, self._add)
        self._client = Allowance(sealed_room)
        self._marked = Allowance(sealed_room + ROOM_BYTES, ATTRIBUTES_ADDED)
        self._own = Allowance(sealed_room + ROOM_BYTES, ATTRIBUTES_ADDED + OWN_ATTRIBUTES_ADDED)

    # -- requests ----------------------------------------------------------------------------------------------------

    def topic_of(self, request: bytes | memoryview) -> Topic:
        """The topic of a serialised PublishRequest. Raises `NotFound`, and `InvalidArgument` for what is none."""
        try:
            name = kernel.topic_of(request).decode()
        except (Malformed, UnicodeDecodeError):
            raise not_a("PublishRequest") from None
        topic = self._catalog.topic(name)
        if topic is None:
            raise NotFound(parse_topic(name))
        return topic

    def publish(
        self,
        caller: PublishCaller,
        topic: Topic,
        request: bytes | memoryview,
        origin: PublishOrigin = PublishOrigin.CLIENT,
        note: NoteTaken | None = None,
    ) -> None:
        """Take a serialised PublishRequest into the open source of its topic, which is opened when there is none;
        `caller` is answered once it is persisted. For a topic with a schema or transforms it was prepared. Raises
        `SyncpointError` if it is refused.
        """
        if not topic.plain or origin is not PublishOrigin.CLIENT:
            self.publish_staged(caller, Publication(topic, request, origin), note)
            return
        source = self._admit(topic, len(request))
        try:
            self._add(caller, source, request, self._client, note)
        except SyncpointError:
            self.commit.leave_turn()
            raise

    def publish_plain(
        self,
        topic: Topic,
        requests: list[bytes],
        first: int,
        answering: Callable[[list[bytes]], PublishCaller],
    ) -> int:
        """Take the plain requests to a plain topic at the start of `requests[first:]`, and return how many they are.

        `answering` makes the caller who waits for them from their answers. Raises `SyncpointError`, with nothing taken,
        where perhaps not all of them may come in.
        """
        source = self._admit(topic, sum(map(len, requests)))
        seconds, nanos = self.commit.turn or self.commit.begin_turn()
        name, room = topic.name.encode(), self._client.room
        scanned = kernel.scan_plain(requests, first, name, source.prefix, source.end, seconds, nanos, room)
        taken, count, payload, answers = scanned
        if taken:
            self.commit.add(source, count, payload, answering(answers), b"", requests=taken)
        else:
            self.commit.leave_turn()
        return taken

    def publish_request(
        self, caller: PublishCaller, request: bytes | memoryview, origin: PublishOrigin = PublishOrigin.CLIENT
    ) -> None:
        """As `publish`, into the topic that the request names."""
        self.publish(caller, self.topic_of(request), request, origin)

    def letter(self, caller: PublishCaller, request: bytes | memoryview) -> None:
        """As `publish_request`, for a message that was accepted before and goes to another topic now."""
        self.publish_request(caller, request, PublishOrigin.SERVICE)

    def publish_staged(self, caller: PublishCaller, published: Publication, note: NoteTaken | None = None) -> None:
        """As `publish`, through the stages that the topic and the origin ask for. What is judged is noted by itself."""
        topic, request, origin, batch = published
        if topic.options.send_suspended and not origin.accepted:
            raise suspended(topic.name, elsewhere=topic.options.written_elsewhere)
        allowance = self._client
        if origin is not PublishOrigin.CLIENT:
            allowance = self._own._replace(accepted=origin.accepted)
        elif topic.schema is not None:  # its messages were marked with the revision that they fit
            allowance = self._marked
        source = self._admit(topic, len(request))
        try:
            kinds = self._ids.kinds(topic, request, origin)
            if kinds or batch is not None:
                self.judged.add(caller, published, source, kinds, allowance)
            else:
                self._add(caller, source, request, allowance, note)
        finally:
            self.commit.leave_turn()  # perhaps it was refused, or all of it was stored before

    def _admit(self, topic: Topic, nbytes: int) -> Source:
        """The topic's source, if this many bytes may come in now."""
        if self.commit.failed is not None:
            self.commit.check_writable()
        self.admission.check(topic, nbytes)
        self.store.admit(nbytes)
        return self._sources.open.get(topic.incarnation) or self._open_source(topic.incarnation)

    # -- into the turn -----------------------------------------------------------------------------------------------

    def _add(
        self,
        caller: PublishCaller,
        source: Source,
        request: bytes | memoryview,
        allowance: Allowance,
        note: NoteTaken | None = None,
    ) -> None:
        """Give the messages of a request to the turn, with what is known of them."""
        count, payload, response, _, _, marks = self._scan(source, request, allowance)
        if marks & kernel.MARK_SCHEDULED and not allowance.accepted:
            self._divide(caller, source, request, allowance, note)
            return
        notes = self._lives(source, count, payload) if marks & kernel.MARK_TTL else []
        if note is not None:
            notes.append(partial(note, None))
        self.commit.add(source, count, payload, caller, response, notes)

    def _scan(
        self, source: Source, request: bytes | memoryview, allowance: Allowance
    ) -> tuple[int, bytes, bytes, int, bytes, int]:
        """Check a request and number its messages; see `kernel.publish.scan`."""
        seconds, nanos = self.commit.turn or self.commit.begin_turn()
        try:
            return kernel.scan(request, source.prefix, source.end, seconds, nanos, allowance.room, allowance.added)
        except Invalid as bad:
            raise InvalidArgument(bad.field, bad.problem) from None
        except (Malformed, UnicodeDecodeError):
            raise not_a("PublishRequest") from None

    def _divide(
        self,
        caller: PublishCaller,
        source: Source,
        request: bytes | memoryview,
        allowance: Allowance,
        note: NoteTaken | None,
    ) -> None:
        """A request some messages of which wait for their time: those go to the waiting source. Its ids are answered in
        the order of its messages, once both parts are persisted.
        """
        plain, later, says = schedules.divided(request)
        waiting = self._open_source(WAITING_TOPIC)
        count, payload, response, *_ = self._scan(waiting, later, allowance)
        dues = schedules.due_times(payload)
        if max(dues) > self.commit.clock.time_ns() + SCHEDULE_AHEAD_SECONDS_MAX * 1_000_000_000:
            raise InvalidArgument(
                f"messages[{_of_part(says, dues.index(max(dues)))}].attributes",
                f"sys.ScheduledEnqueueTimeUtc must not be more than {SCHEDULE_AHEAD_SECONDS_MAX // 86_400} days ahead",
            )
        self._scheduled.check_room(self._name_of(source.topic), count, self._name_of)
        part = ScheduledPart(waiting.number, waiting.end, count)
        offsets = range(waiting.end, waiting.end + count)
        rows = [Scheduled(due, waiting.number, offset, source.topic) for due, offset in zip(dues, offsets, strict=True)]
        notes: list[Callable[[], object]] = [partial(self._scheduled.note, *rows)]
        if note is not None:
            notes.append(partial(note, part))
        if count == len(says):
            self.commit.add(waiting, count, payload, caller, response, notes)
            return
        both = PartsCaller(caller, says)
        plain_count, plain_payload, plain_response, _, _, marks = self._scan(source, plain, allowance)
        lives = self._lives(source, plain_count, plain_payload) if marks & kernel.MARK_TTL else ()
        self.commit.add(source, plain_count, plain_payload, both.part(0), plain_response, lives)
        if self.commit.failed is None:
            self.commit.add(waiting, count, payload, both.part(1), response, notes)

    def _lives(self, source: Source, count: int, payload: bytes) -> list[Callable[[], object]]:
        """What is noted of messages about to be added to a source, some of which have a time to live."""
        lives = lives_of(source.number, source.end, count, self.commit.newest_ns, payload)
        return [partial(self._expiry.note, lives)]

    def _name_of(self, topic: int) -> str:
        record = self._catalog.topic_by_incarnation(topic)
        return "" if record is None else record.name

    # -- messages that are due ---------------------------------------------------------------------------------------

    def publish_due(self, source: Source, messages: Sequence[Scheduled], framed: Sequence[bytes], done: Done) -> None:
        """Publish messages of one topic that waited, in order, into its open source; `framed`: each without id and
        time. Persisted before `done`. They were accepted before: nothing refuses them now, and those that are
        duplicates by now wait no more.
        """
        self.commit.check_writable()
        topic = self._catalog.topic_by_incarnation(source.topic)
        judged = None if topic is None else self._ids.judge_due(topic, framed, self.commit.turn_time()[0])
        if judged is None:
            self._fire(source, messages, framed, done)
            return
        fresh = judged.fresh
        if fresh:
            persisted = done if not judged.same else _nobody
            places = [MessagePlace(source.number, offset) for offset in range(source.end, source.end + len(fresh))]
            note = partial(self._ids.note_judged, judged, places)
            self._fire(source, [messages[n] for n in fresh], [framed[n] for n in fresh], persisted, note)
        if judged.same and self.commit.failed is None:
            self.admission.counts.duplicates += len(judged.same)
            # Behind what they are duplicates of:
            self._scheduled.cancel((messages[number] for number in judged.same), done)

    def _fire(
        self,
        source: Source,
        messages: Sequence[Scheduled],
        framed: Sequence[bytes],
        done: Done,
        *notes: Callable[[], object],
    ) -> None:
        first = source.end
        count, stamped = stamps.stamp(b"".join(framed), source.prefix, first, *self.commit.turn_time())
        lives = self._lives(source, count, stamped) if lifetimes.spans(stamped)[0] else ()
        fire = partial(self._scheduled.fire, messages, source.number, first)
        self.commit.add(source, count, stamped, completion(done), b"", (fire, *lives, *notes))


class PartsCaller:
    """One answer to a divided request, once both parts have theirs; `says`: one byte for each message of the request,
    0 of the first part, 1 of the second. A failure of either part is answered at once, and once: what the other part
    comes to is not known to the caller then.
    """

    def __init__(self, caller: PublishCaller, says: bytes) -> None:
        self._caller, self._says = caller, says
        self._ids: dict[int, list[str]] = {}
        self._over = False

    def part(self, number: int) -> PublishCaller:
        """The caller of one part."""
        return FunctionCaller(partial(self._replied, number), self._failed)

    def _replied(self, number: int, response: bytes) -> None:
        """A part is persisted."""
        self._ids[number] = list(pubsub.PublishResponse.FromString(response).message_ids)
        if len(self._ids) == 2 and not self._over:
            self._over = True
            ids = {part: iter(found) for part, found in self._ids.items()}
            merged = pubsub.PublishResponse(message_ids=[next(ids[part]) for part in self._says])
            self._caller.reply(merged.SerializeToString())

    def _failed(self, error: SyncpointError) -> None:
        """A part is not, or nobody knows."""
        if not self._over:
            self._over = True
            self._caller.fail(error)


def _nobody(error: Exception | None) -> None:
    """Nobody waits for this."""


def _of_part(says: bytes, index: int) -> int:
    """The number in its request of a message that says when it is due, by its number among those."""
    return [number for number, one in enumerate(says) if one][index]
