"""The publish forwarder of one log: takes requests in, opens sources, and changes ledgers as the catalog says.

Place: `api/publisher` and `ingress` call it with requests, `follow` with what changes in the catalog. `commit` writes
what it decides; `server` serves its sources to subscribe forwarders. Everything runs on the event loop's thread;
nothing here waits.
"""

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import Protocol

from syncpoint.kernel import lifetimes, schedules, stamps
from syncpoint.kernel import publish as kernel
from syncpoint.kernel.acks import AckSet
from syncpoint.kernel.errors import Invalid, Malformed
from syncpoint.metadata.entity_options import NO_TOPIC_OPTIONS
from syncpoint.metadata.records import CatalogChange, ChangeOp, Setting, Subscription, Topic
from syncpoint.model.delivery import Done
from syncpoint.model.errors import (
    InvalidArgument,
    NotFound,
    not_a,
    suspended,
)
from syncpoint.model.flow import FlowLimits
from syncpoint.model.limits import SCHEDULE_AHEAD_SECONDS_MAX
from syncpoint.model.names import parse_topic
from syncpoint.publish import records
from syncpoint.publish.admission import Admission
from syncpoint.publish.append import Completion, PublishCaller
from syncpoint.publish.attempts import DeliveryAttempts
from syncpoint.publish.commit import GroupCommit, Later, Soon
from syncpoint.publish.judged_batches import JudgedBatches
from syncpoint.publish.judged_publishes import JudgedPublishes, SentBatch
from syncpoint.publish.ledger import Ledger, SnapshotState
from syncpoint.publish.message_ids import MessageIds, MessagePlace
from syncpoint.publish.needs import Needs
from syncpoint.publish.origin import PublishOrigin
from syncpoint.publish.parts_caller import PartsCaller
from syncpoint.publish.recovery import RecoveredState
from syncpoint.publish.scheduled import Scheduled, ScheduledMessages, ScheduledPart
from syncpoint.publish.source import WAITING_TOPIC, Source
from syncpoint.publish.source_server import SourceServer
from syncpoint.publish.time_to_live import ExpiryIndex
from syncpoint.publish.traced_commit import TracedCommit
from syncpoint.recording.record_kinds import PLACED
from syncpoint.runtime.clock import Clock
from syncpoint.runtime.trusted import TrustedClock
from syncpoint.schemas.publishing import ATTRIBUTES_ADDED, OWN_ATTRIBUTES_ADDED, ROOM_BYTES
from syncpoint.storage.record import EntryKind
from syncpoint.storage.store import Store
from syncpoint.tracing.tracer import Tracer


class Extension(Protocol):
    """A room above that keeps facts of its own in the log, and may need messages that nobody else does."""

    number: records.ExtensionNumber  # what its facts are marked with, see `records.encode_extension`

    def facts(self) -> Iterator[bytes]:
        """All it has to remember, for a checkpoint; each may be applied twice, and over later ones."""

    def holds(self, source: Source, first_offset: int, end: int, time_ns: int) -> bool:
        """Whether messages of a source in [first_offset, end), published at `time_ns`, must be kept for it."""

    def forgotten(self, source: Source) -> None:
        """Nothing of a sealed source is stored any more, and it leaves the table."""


class PublishForwarder:
    """Sources, ledgers and the log behind them. `soon(fn)` runs fn at the end of the loop's turn, `later(seconds,
    fn)` after a while. `admission`: shared with the other chains of the process; None: one of its own. `tracer`: None
    where nothing is traced.
    """

    def __init__(
        self,
        store: Store,
        memory: RecoveredState,
        clock: Clock,
        limits: FlowLimits,
        soon: Soon,
        later: Later,
        admission: Admission | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self.store, self.memory, self.catalog = store, memory, memory.catalog
        self.clock = clock if isinstance(clock, TrustedClock) else TrustedClock(clock)
        self.admission = admission or Admission(limits)
        self.sources, self.ledgers, self.snapshots = memory.sources, memory.ledgers, memory.ledgers.snapshots
        committed = (store, self.clock, self.admission, soon, later)
        self.commit = TracedCommit(*committed, tracer, self._topic_name) if tracer else GroupCommit(*committed)
        self.attempts = DeliveryAttempts(
            self.ledgers,
            self.sources.by_number,
            clock,
            self._write_attempts,
            later,
            memory.extensions.pop(DeliveryAttempts.number, []),
        )
        self.expiry = ExpiryIndex(self.commit.ahead, store.bounds, memory.extensions.pop(ExpiryIndex.number, []))
        self.server = SourceServer(
            self.commit, self.catalog, self.sources, self.ledgers, self.attempts, self.expiry, self.letter
        )
        self.scheduled = ScheduledMessages(self.commit.ahead, memory.extensions.pop(ScheduledMessages.number, []))
        self.ids = MessageIds(
            self.commit.ahead,
            self.sources,
            self._window_s,
            self.clock.sure_ns,
            memory.extensions.pop(MessageIds.number, []),
        )
        self.batches = JudgedBatches(
            self.commit.ahead,
            self.sources,
            lambda topic: self.catalog.topic_by_incarnation(topic) is not None,
            lambda: self.clock.sure_ns() / 1e9,
            memory.extensions.pop(JudgedBatches.number, []),
        )
        self.judged = JudgedPublishes(self.ids, self.batches, self.commit, self.sources, self._add)
        self.extensions: list[Extension] = [self.attempts, self.expiry, self.scheduled, self.ids, self.batches]
        self.needs = Needs()

    # -- publishing --------------------------------------------------------------------------------------------------

    def client_request(
        self,
        caller: PublishCaller,
        topic: Topic,
        request: bytes | memoryview,
        origin: PublishOrigin = PublishOrigin.CLIENT,
    ) -> None:
        """As `publish_request`, into a topic that is known, for whose schema and transforms it was prepared."""
        self.commit.check_writable()
        self.publish(caller, topic, None, request, origin)

    def publish_request(self, caller: PublishCaller, request: bytes | memoryview) -> None:
        """Take a serialised PublishRequest, see `publish`, into the source of its topic, which is opened when there is
        none.
        """
        self.commit.check_writable()
        self.publish(caller, self.topic_of(request), None, request)

    def letter(self, caller: PublishCaller, request: bytes | memoryview) -> None:
        """As `publish_request`, for a message that was accepted before and goes to another topic now."""
        self.commit.check_writable()
        self.publish(caller, self.topic_of(request), None, request, PublishOrigin.SERVICE)

    def topic_of(self, request: bytes | memoryview) -> Topic:
        """The topic of a serialised PublishRequest. Raises `NotFound`, and `InvalidArgument` for what is none."""
        try:
            name = kernel.topic_of(request).decode()
        except (Malformed, UnicodeDecodeError):
            raise not_a("PublishRequest") from None
        topic = self.catalog.topic(name)
        if topic is None:
            raise NotFound(parse_topic(name))
        return topic

    def publish(
        self,
        caller: PublishCaller,
        topic: Topic,
        source: Source | None,
        request: bytes | memoryview,
        origin: PublishOrigin = PublishOrigin.CLIENT,
        *,
        room: int = 0,
        batch: SentBatch | None = None,
    ) -> ScheduledPart | None:
        """Take a serialised PublishRequest into an open source of its topic, or the one that is opened for it; `caller`
        is answered once it is persisted. Raises `SyncpointError` if it is refused. `room`: bytes it may have beyond the
        limit of a request. The log was writable just now. Returns where those of its messages are that wait for their
        time. `batch`: of a request that is judged, and may be sent again.
        """
        if topic.options is not NO_TOPIC_OPTIONS and topic.options.send_suspended and not origin.accepted:
            raise suspended(topic.name)
        self.admission.check(topic, len(request))
        self.store.admit(len(request))
        added = 0
        if origin is not PublishOrigin.CLIENT:
            room, added = room + ROOM_BYTES, ATTRIBUTES_ADDED + OWN_ATTRIBUTES_ADDED
        elif topic.schema is not None:  # its messages were marked with the revision that they fit
            room, added = room + ROOM_BYTES, ATTRIBUTES_ADDED
        if source is None:
            source = self.open_source(topic.incarnation)
        try:
            plain = origin is PublishOrigin.CLIENT and topic.options is NO_TOPIC_OPTIONS
            kinds = () if plain else self.ids.kinds(topic, request, origin)
            if kinds or batch is not None:
                return self.judged.add(caller, topic, source, bytes(request), room, added, origin, kinds, batch)
            return self._add(caller, topic, source, request, room, added, origin)
        finally:
            self.commit.leave_turn()  # perhaps it was refused

    def _add(
        self,
        caller: PublishCaller,
        topic: Topic,
        source: Source,
        request: bytes | memoryview,
        room: int,
        added: int,
        origin: PublishOrigin,
    ) -> ScheduledPart | None:
        """Give the messages of a request to the turn."""
        time = self.commit.turn_time()
        count, payload, response, _, _, marks = self._scan(request, source, time, room, added)
        if marks & kernel.MARK_SCHEDULED and not origin.accepted:
            return self._add_parts(caller, topic, source, request, time, room, added)
        self.commit.add(source, count, payload, caller, response)
        if marks & kernel.MARK_TTL:
            self._note_lives(source, source.end - count, time, payload)
        return None

    def take_ids(self, ids: bytes, batches: bytes = b"") -> None:
        """Ids and judged batches of a topic's messages that another chain has; they are known here from now on."""
        for fact in (self.ids.take(ids), self.batches.take(batches)):
            if fact:
                self.commit.append_fact(EntryKind.LEDGER, fact)

    def remembers(self, topic: int) -> bool:
        """Whether another chain of a topic may ask for what was published before, of which nothing need be left."""
        ids, batches = self.ids.knows(topic), self.batches.knows(topic)
        return ids or batches

    def _topic_name(self, topic: int) -> str:
        record = self.catalog.topic_by_incarnation(topic)
        return "" if record is None else record.name

    def _window_s(self, topic: int) -> int | None:
        """For how long a topic drops duplicates; None: there is no such topic."""
        record = self.catalog.topic_by_incarnation(topic)
        return None if record is None else record.options.duplicate_window_s

    def _scan(
        self, request: bytes | memoryview, source: Source, time: tuple[int, int], room: int, added: int
    ) -> tuple[int, bytes, bytes, int, bytes, int]:
        try:
            return kernel.scan(request, source.prefix, source.end, *time, room, added)
        except Invalid as bad:
            raise InvalidArgument(bad.field, bad.problem) from None
        except (Malformed, UnicodeDecodeError):
            raise not_a("PublishRequest") from None

    def _add_parts(
        self,
        caller: PublishCaller,
        topic: Topic,
        source: Source,
        request: bytes | memoryview,
        time: tuple[int, int],
        room: int,
        added: int,
    ) -> ScheduledPart:
        """A request some messages of which wait for their time: those go to the waiting source. Its ids are answered in
        the order of its messages, once both parts are persisted.
        """
        plain, later, says = schedules.divided(request)
        waiting = self.open_source(WAITING_TOPIC)
        count, payload, response, *_ = self._scan(later, waiting, time, room, added)
        dues = schedules.due_times(payload)
        if max(dues) > self.clock.time_ns() + SCHEDULE_AHEAD_SECONDS_MAX * 1_000_000_000:
            raise InvalidArgument(
                f"messages[{_of_part(says, dues.index(max(dues)))}].attributes",
                f"sys.ScheduledEnqueueTimeUtc is more than {SCHEDULE_AHEAD_SECONDS_MAX // 86_400} days ahead",
            )
        self.scheduled.check_room(topic.name, count, self._topic_name)
        part = ScheduledPart(waiting.number, waiting.end, count)
        offsets = range(waiting.end, waiting.end + count)
        rows = [
            Scheduled(due, waiting.number, offset, topic.incarnation) for due, offset in zip(dues, offsets, strict=True)
        ]
        if count == len(says):
            self.commit.add(waiting, count, payload, caller, response)
            self._note_scheduled(rows)
            return part
        both = PartsCaller(caller, says)
        plain_count, plain_payload, plain_response, _, _, marks = self._scan(plain, source, time, room, added)
        self.commit.add(source, plain_count, plain_payload, both.part(0), plain_response)
        if marks & kernel.MARK_TTL:
            self._note_lives(source, source.end - plain_count, time, plain_payload)
        if self.commit.failed is None:
            self.commit.add(waiting, count, payload, both.part(1), response)
            self._note_scheduled(rows)
        return part

    def _note_scheduled(self, rows: list[Scheduled]) -> None:
        try:
            self.scheduled.note(rows)
        except Exception as error:  # they are taken, and nobody would publish them
            self.commit.on_inconsistency(error)

    def publish_due(self, source: Source, messages: Sequence[Scheduled], framed: Sequence[bytes], done: Done) -> None:
        """Publish messages of one topic that waited, in order, into its open source; `framed`: each without id and
        time. Persisted before `done`. They were accepted before: nothing refuses them now, and those that are
        duplicates by now wait no more.
        """
        self.commit.check_writable()
        time, topic = self.commit.turn_time(), self.catalog.topic_by_incarnation(source.topic)
        judged = None if topic is None else self.ids.judge_due(topic, framed, time[0])
        if judged is None:
            self._fire(source, messages, framed, time, done)
            return
        first, fresh = source.end, judged.fresh
        if fresh:
            persisted = done if not judged.same else _nobody
            self._fire(source, [messages[n] for n in fresh], [framed[n] for n in fresh], time, persisted)
        places = [MessagePlace(source.number, offset) for offset in range(first, first + len(fresh))]
        if self.commit.failed is not None:
            return
        try:
            self.ids.note(judged, places)
        except Exception as error:  # they are taken, and would be again
            self.commit.on_inconsistency(error)
            return
        if judged.same:
            self.commit.admission.counts.duplicates += len(judged.same)
            gone = self.scheduled.cancel(messages[number] for number in judged.same)
            fact = records.encode_extension(ScheduledMessages.number, gone)
            self.commit.append_fact(EntryKind.LEDGER, fact, done)  # behind what they are duplicates of

    def _fire(
        self,
        source: Source,
        messages: Sequence[Scheduled],
        framed: Sequence[bytes],
        time: tuple[int, int],
        done: Done,
    ) -> None:
        first = source.end
        count, stamped = stamps.stamp(b"".join(framed), source.prefix, first, *time)
        self.commit.add(source, count, stamped, Completion(done), b"")
        try:
            self.scheduled.fire(messages, source.number, first)
        except Exception as error:  # they are taken, and would be again
            self.commit.on_inconsistency(error)
            return
        if lifetimes.spans(stamped)[0]:
            self._note_lives(source, first, time, stamped)

    def _note_lives(self, source: Source, begin: int, time: tuple[int, int], payload: bytes) -> None:
        """Some of the messages just added have a time to live."""
        try:
            self.expiry.note(source, begin, time[0] * 1_000_000_000 + time[1], payload)
        except Exception as error:  # they are taken, and their facts are not
            self.commit.on_inconsistency(error)

    # -- sources -----------------------------------------------------------------------------------------------------

    def open_source(self, topic: int, epoch: int = 0, revision: int = 0) -> Source:
        """The topic's source in this log, opened when there is none. A chain opens it before it takes a publish."""
        source, opened = self.sources.open_for(topic, epoch, revision)
        if opened:
            try:
                self.store.append(EntryKind.LEDGER, records.encode_source(source))
                self.commit.flush_soon()
            except Exception as error:  # what is published to it would be of a source that nobody knows
                self.commit.on_inconsistency(error)
                raise
            self.server.name_source(source)
        return source

    def seal_source(self, source: Source) -> None:
        """Nothing is added to an open source any more; what came first stays first."""
        self.commit.append_pending()
        self.sources.seal(source)
        self.rewrite_source(source)  # if that fails, recovery seals it
        self.server.name_source(source)

    def rewrite_source(self, source: Source) -> None:
        """What is known of a source has changed."""
        self.commit.append_fact(EntryKind.LEDGER, records.encode_source(source))

    def _write_attempts(self, fact: bytes) -> None:
        if self.commit.failed is None:
            self.commit.append_fact(EntryKind.LEDGER, records.encode_extension(DeliveryAttempts.number, fact))

    # -- what is needed ----------------------------------------------------------------------------------------------

    def note_needs(self, change: CatalogChange) -> None:
        """To be called with a change before anything follows from it here."""
        record = change.record
        if isinstance(record, Setting):
            self.needs.more()  # what a restore has lost is kept by such a one
            return
        topic = record.incarnation if isinstance(record, Topic) else record.topic_incarnation
        if isinstance(record, Topic) and change.op is ChangeOp.DELETE:
            self.admission.counts.forget(topic)
        if change.op is ChangeOp.DELETE or self.sources.of_topic(topic):
            new = isinstance(record, Subscription) and record.incarnation not in self.ledgers
            self.needs.changed(change, new=new)

    def needed_since(self, version: int) -> Collection[int] | None:
        """The sources of which something may be needed that was not at this version of `needs`; None: of any."""
        topics = self.needs.since(version)
        if topics is None:
            return None
        return [source.number for topic in topics for source in self.sources.of_topic(topic)]

    # -- ledgers -----------------------------------------------------------------------------------------------------

    def subscription_removed(self, subscription: int) -> None:
        """The subscription was deleted or detached: nobody needs its backlog."""
        self.ledgers.drop(subscription)
        self.server.on_removed(subscription)

    def replace_acks(
        self,
        subscription: int,
        acks: dict[int, AckSet],
        done: Done | None,
        generation: int | None = None,
        renewed_ns: int | None = None,
    ) -> None:
        """A seek: a new generation (the next one unless given) with these sets, persisted before `done`. From now on
        nothing counts in the old one, and nothing is delivered from it; the listener is notified of the new one, and is
        served from it, once it is persisted. Its sets stand on acknowledgements that may not be: were this log lost
        now, its next owner would come to other sets, and a reader that went on by these would not look back.
        `renewed_ns`: see `Ledger`; as it was unless given.
        """
        ledger = self.ledgers[subscription]
        number = ledger.generation + 1 if generation is None else generation
        renewed = ledger.renewed_ns if renewed_ns is None else renewed_ns
        state = Ledger(subscription, number, acks, dict(ledger.start), renewed)

        def persisted(error: Exception | None) -> None:
            if error is None:
                self.server.on_reset_persisted(state)
            if done is not None:
                done(error)

        record = self.catalog.subscription_by_incarnation(subscription)
        self.needs.more(None if record is None else record.topic_incarnation)
        self.begin_ledger(state, persisted)
        self.server.begin_reset(state)

    def change_lanes(self, state: Ledger) -> None:
        """A subscription has the lanes of a state from now on; it is served in them once that is persisted."""
        ledger, server = self.ledgers[state.subscription], self.server
        self.commit.check_writable()
        for lane in [one for one in ledger.lane_numbers if one not in state.lanes]:
            ledger.drop_lane(lane)
        server.begin_lanes(state.subscription)

        def persisted(error: Exception | None) -> None:
            if error is None:
                server.on_lanes_persisted(state.subscription)

        self.begin_ledger(state, persisted)

    def begin_ledger(self, state: Ledger, done: Done | None = None) -> None:
        """A ledger is in this state from now on; persisted before `done`."""
        self.commit.check_writable()
        try:
            taken = self.ledgers.take(state)
            self.commit.append_fact(EntryKind.LEDGER, records.encode_ledger(taken, self.catalog.revision), done)
        except Exception as error:
            self.commit.on_inconsistency(error)
            raise
        if self.commit.recorder.topics:
            self.record_ledger(taken)

    def record_ledger(self, ledger: Ledger) -> None:
        """Note what counts as acknowledged for a subscription, whether a subscriber has said so or not."""
        for source, acks in ledger.acks.items():
            self.commit.recorder.note_of(
                ledger.subscription, PLACED, source, partial(list, acks.runs()), generation=ledger.generation
            )

    def keep_snapshot(self, state: SnapshotState) -> None:
        """A chain's part of a snapshot."""
        self.commit.check_writable()
        try:
            self.ledgers.keep(state)
            self.commit.append_fact(EntryKind.LEDGER, records.encode_snapshot(state, self.catalog.revision))
        except Exception as error:
            self.commit.on_inconsistency(error)
            raise

    def facts(self) -> Iterator[bytes]:
        """Ledgers and sources as they are when drawn. Sources come last: one that is forgotten in between was empty,
        and is not named; one that is named still had everything when the rest was drawn.
        """
        for subscription in list(self.ledgers):
            ledger = self.ledgers.get(subscription)
            if ledger is not None:
                yield records.encode_ledger(ledger, self.catalog.revision)
        for extension in self.extensions:
            for payload in extension.facts():
                yield records.encode_extension(extension.number, payload)
        sources = self.sources
        stored = frozenset(self.store.sources()) if sources.unknown else frozenset()
        unknown = tuple(sorted(sources.unknown & stored))
        yield records.encode_sources_below(records.SourcesBelow(sources.next_number, unknown))
        for number in list(sources.by_number):
            source = sources.by_number.get(number)
            if source is not None:
                yield records.encode_source(source)


def _nobody(error: Exception | None) -> None:
    """Nobody waits for this."""


def _of_part(says: bytes, index: int) -> int:
    """The number in its request of a message that says when it is due, by its number among those."""
    return [number for number, one in enumerate(says) if one][index]
