"""The publish forwarder: the driver of this room.

Path: `api/publisher` calls `publish`; storage calls `_persisted`; subscribe forwarders call the methods of
`PublishSide`. Everything runs on the event loop's thread; nothing here waits. Promises: a publisher hears its ids
only after its messages are persisted; a listener hears of messages only then, too (unless its subscription asked for
early delivery); acknowledgements are confirmed only when persisted.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

from syncpoint.kernel import publish as kernel
from syncpoint.kernel.acks import AckSet
from syncpoint.kernel.errors import Invalid, Malformed
from syncpoint.metadata.records import CatalogChange, ChangeOp, Setting, Subscription, Topic
from syncpoint.model.delivery import AttemptRun, Batch, Done, Fetched, Listener, Reply, SourceView
from syncpoint.model.errors import FailedPrecondition, InvalidArgument, NotFound, SyncpointError, Unavailable
from syncpoint.model.flow import FlowLimits
from syncpoint.model.names import parse_topic
from syncpoint.publish import records
from syncpoint.publish.admission import Admission
from syncpoint.publish.append import CommitWaiters, PendingEntry, PublishCaller, outcome_unknown
from syncpoint.publish.attempts import DeliveryAttempts
from syncpoint.publish.ledger import Ledger, SnapshotState
from syncpoint.publish.ledgers import AckVerdict
from syncpoint.publish.needs import Needs
from syncpoint.publish.recovery import RecoveredState
from syncpoint.publish.source import Source
from syncpoint.runtime.clock import Clock
from syncpoint.runtime.trusted import TrustedClock
from syncpoint.storage.errors import StorageDamaged
from syncpoint.storage.record import EntryKind
from syncpoint.storage.store import Store
from syncpoint.storage.store import StoredBatch as Stored

log = logging.getLogger(__name__)
Soon = Callable[[Callable[[], None]], object]
ACK_LINGER_S = 0.01  # acknowledgements nobody waits for ride with the next commit, or go alone after this long


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
    fn)` after a while. `admission`: shared with the other chains of the process; None: one of its own.
    """

    def __init__(
        self,
        store: Store,
        memory: RecoveredState,
        clock: Clock,
        limits: FlowLimits,
        soon: Soon,
        later: Callable[[float, Callable[[], None]], object],
        admission: Admission | None = None,
    ) -> None:
        self.store, self.memory, self.catalog = store, memory, memory.catalog
        self.clock = clock if isinstance(clock, TrustedClock) else TrustedClock(clock)
        self.admission = admission or Admission(limits)
        self.sources, self.ledgers, self.snapshots = memory.sources, memory.ledgers, memory.ledgers.snapshots
        self.failed: Exception | None = None
        self.on_failed: Callable[[], None] = lambda: None  # the log cannot be written any more
        self.published = 0
        self.early: set[int] = set()  # attached subscriptions that take messages before they are persisted
        self.attempts = DeliveryAttempts(
            self.ledgers,
            self.sources.by_number,
            clock,
            self._write_attempts,
            later,
            memory.extensions.pop(DeliveryAttempts.number, []),
        )
        self.extensions: list[Extension] = [self.attempts]
        self.needs = Needs()
        self.batches: list[records.BatchFact] = []  # numbered ones of this turn; their fact goes before their messages
        self._soon, self._later = soon, later
        self._waiting = CommitWaiters()
        self._pending: dict[int, PendingEntry] = {}  # by source
        self._acks: list[records.Acks] = []
        self._ack_done: list[Done] = []
        self.unpersisted: dict[
            tuple[int, int], deque[bytes]
        ] = {}  # (subscription, source): runs that are not persisted yet
        self._flushing = self._lingering = False
        self._time_ns = 0
        self._turn_time: tuple[int, int] | None = None
        self._listeners: dict[int, Listener] = {}  # by subscription
        self._audience: dict[int, list[int]] = {}  # topic -> subscriptions with a listener
        self._resets: dict[int, Ledger] = {}  # sought to this state, which is not persisted: nobody is served yet
        store.on_persisted = self._persisted
        store.on_failed = self.give_up

    # -- publishing --------------------------------------------------------------------------------------------------

    def publish_request(self, caller: PublishCaller, request: bytes | memoryview, room: int = 0) -> None:
        """Take a serialised PublishRequest; `caller` is answered once it is persisted. Raises `SyncpointError` if it
        is refused. `room`: bytes it may have beyond the limit of a request.
        """
        self.check_writable()
        try:
            name = kernel.topic_of(request).decode()
            topic = self.catalog.topic(name)
            if topic is None:
                raise NotFound(parse_topic(name))
            self.admission.check(topic, len(request))
            self.store.admit(len(request))
            source = self.open_source(topic.incarnation)
            seconds, nanos = self.turn_time()
            count, payload, response, _, _ = kernel.scan(request, source.prefix, source.end, seconds, nanos, room)
        except Invalid as bad:
            raise InvalidArgument(bad.field, bad.problem) from None
        except (Malformed, UnicodeDecodeError) as bad:
            raise InvalidArgument("", f"the request is not a PublishRequest: {bad}") from None
        entry = self._pending.get(source.number)
        if entry is None or entry.full:
            if entry is not None:
                self.append_pending()
            entry = PendingEntry(source, source.end, self._time_ns)
        self.admission.enter(source.topic, count, len(payload))
        before = entry.count
        try:
            entry.add(count, payload, caller, response)
            source.end += count
            self._pending[source.number] = entry
            self.flush_soon()
        except Exception as error:  # half of it may be taken
            waits = self._pending.get(source.number) is entry
            if not waits or entry.count == before:
                self.admission.leave(source.topic, count, len(payload))
            if not waits or not entry.callers or entry.callers[-1][0] is not caller:
                caller.fail(outcome_unknown(error))
            self.on_inconsistency(error)

    def check_writable(self) -> None:
        if self.failed is not None:
            raise Unavailable(f"the log cannot be written: {self.failed}")

    def publish(self, topic: str, request: bytes, done: Callable[[bytes | Exception], None]) -> None:
        """`PublishSide.publish`: a message the service itself sends, a dead letter for instance."""
        try:
            self.publish_request(_Internal(done), request)
        except SyncpointError as refused:
            done(refused)

    def _begin_turn(self) -> tuple[int, int]:
        """One publish time for everything of this turn; never earlier than the last one, nor than what is sure,
        whatever the wall clock does.
        """
        self._time_ns = max(self._time_ns, self.clock.time_ns())
        self._turn_time = divmod(self._time_ns, 1_000_000_000)
        return self._turn_time

    def turn_time(self) -> tuple[int, int]:
        """Seconds and nanoseconds of everything that is published in this turn."""
        return self._turn_time or self._begin_turn()

    @property
    def newest_ns(self) -> int:
        """The newest publish time this process gave, 0 before the first."""
        return self._time_ns

    def open_source(self, topic: int, epoch: int = 0, revision: int = 0) -> Source:
        """The topic's source in this log, opened when there is none. A chain opens it before it takes a publish."""
        source, opened = self.sources.open_for(topic, epoch, revision)
        if opened:
            try:
                self.store.append(EntryKind.LEDGER, records.encode_source(source))
                self.flush_soon()
            except Exception as error:  # what is published to it would be of a source that nobody knows
                self.on_inconsistency(error)
                raise
            for subscription in tuple(self._audience.get(topic, ())):
                self._announce_sources(subscription, (source,))
        return source

    def seal_source(self, source: Source) -> None:
        """Nothing is added to an open source any more; what came first stays first."""
        self.append_pending()
        self.sources.seal(source)
        self.rewrite_source(source)  # if that fails, recovery seals it
        for subscription in tuple(self._audience.get(source.topic, ())):
            self._announce_sources(subscription, (source,))

    def rewrite_source(self, source: Source) -> None:
        """What is known of a source has changed."""
        self.append_fact(EntryKind.LEDGER, records.encode_source(source))

    # -- the log -----------------------------------------------------------------------------------------------------

    def flush_soon(self) -> None:
        """Everything appended in this turn goes to the disks at its end, as one group commit."""
        if not self._flushing:
            self._flushing = True
            try:
                self._soon(self.flush)
            except BaseException:
                self._flushing = False  # or nothing would be flushed any more
                raise

    def flush(self) -> None:
        self._flushing = False
        self._turn_time = None
        if self.failed is not None:
            return
        try:
            self.append_pending()
            if self._acks:
                position = self.store.append(EntryKind.ACKS, records.encode_acks(self._acks))
                self._waiting.add(position, partial(self._acks_persisted, self._acks, self._ack_done))
                self._acks, self._ack_done = [], []
            self.store.flush()
        except Exception as error:
            self.give_up(error)
            raise

    def append_pending(self) -> None:
        """Give what arrived in this turn its place in the log now, so that a fact appended next comes after it.

        If that fails in the middle, the log is given up: offsets and acknowledgements are taken in memory of which the
        log may know nothing, and what came later would make them look stored.
        """
        if not self._pending:
            return
        pending, self._pending = self._pending, {}
        try:
            if self.batches:
                # In front of the messages they became, and nothing in between: recovery knows by the place alone
                # whether these were persisted, also when they were deleted since.
                batches, self.batches = self.batches, []
                self.store.append(EntryKind.LEDGER, records.encode_batches(batches, len(pending)))
            while pending:
                number, entry = next(iter(pending.items()))
                self._append_entry(entry)
                del pending[number]
                if self.early:
                    self._notify(entry.source, early=True)
        except Exception as error:
            for entry in pending.values():
                self._waiting.add(1 << 62, entry)
            self.give_up(error)
            raise

    def _append_entry(self, entry: PendingEntry) -> None:
        position = self.store.append(
            EntryKind.MESSAGES,
            entry.payloads,
            source=entry.source.number,
            first_offset=entry.first_offset,
            count=entry.count,
            time_ns=entry.time_ns,
        )
        self._waiting.add(position, entry)

    def append_batch(self, source: Source, payload: bytes, count: int, done: Done) -> int:
        """Write `count` framed messages behind everything of this turn; returns the offset of the first. They were
        accepted before: no limit refuses them now. Raises `Unavailable` when the log cannot be written.
        """
        self.check_writable()
        self.append_pending()
        if self._turn_time is None:
            self._begin_turn()
        entry = PendingEntry(source, source.end, self._time_ns)
        entry.add(count, payload, _Completion(done), b"")
        try:
            source.end += count
            self.admission.enter(source.topic, count, len(payload))
            self._append_entry(entry)
        except Exception as error:
            self.on_inconsistency(error)
            raise
        if self.early:
            self._notify(source, early=True)
        self.flush_soon()
        return entry.first_offset

    def append_fact(self, kind: EntryKind, payload: bytes, done: Done | None = None) -> None:
        """Write a fact of the catalog or the ledger; messages of this turn that came before it stay before it."""
        self.check_writable()
        self.append_pending()
        try:
            position = self.store.append(kind, payload)
            if done is not None:
                self._waiting.add(position, done)
            self.flush_soon()
        except Exception as error:
            self.on_inconsistency(error)
            raise

    def on_inconsistency(self, error: Exception) -> None:
        """Memory was told something, and the log perhaps not, or the other way round: the log ends, so that nothing
        comes of the difference. A log that is not written any more, which is what others say, has ended already.
        """
        if self.failed is None and not isinstance(error, SyncpointError):
            log.error("what is taken is not what is written", exc_info=error)
            self.give_up(error)

    def _persisted(self, position: int) -> None:
        touched: dict[int, Source] = {}
        for waiter in self._waiting.on_persisted(position):
            if isinstance(waiter, PendingEntry):
                source = waiter.source
                source.visible = waiter.first_offset + waiter.count
                touched[source.number] = source
                self.published += waiter.count
                self.admission.leave(source.topic, waiter.count, waiter.bytes)
                for caller, response in waiter.callers:
                    try:
                        caller.reply(response)
                    except Exception:
                        log.exception("one of those who wait for the disks fails to hear; the others do hear")
            else:
                _notify_all((waiter,), None)
        for source in touched.values():
            try:
                self._notify(source)
            except Exception:
                log.exception("one of those who wait for messages fails to hear of some; the others do hear")

    def give_up(self, cause: Exception) -> None:
        """The quorum is gone, or the log not what is known of it. What waits has an unknown outcome; nothing new is
        taken. Idempotent.
        """
        first = self.failed is None
        self.failed = self.failed or cause
        self.batches.clear()
        if first:
            log.error("the log cannot be written, nothing new is taken: %s", cause)
        for entry in self._pending.values():
            self._waiting.add(1 << 62, entry)
        self._pending.clear()
        error = outcome_unknown(cause)
        for waiter in self._waiting.on_failed():
            if isinstance(waiter, PendingEntry):
                self.admission.leave(waiter.source.topic, waiter.count, waiter.bytes)
                _notify_all([caller.fail for caller, _ in waiter.callers], error)
            else:
                _notify_all((waiter,), error)
        _notify_all(self._ack_done, error)
        self._ack_done.clear()
        if first:
            self.on_failed()

    # -- serving subscribe forwarders (PublishSide) ------------------------------------------------------------------

    def attach(self, subscription: int, listener: Listener) -> None:
        record = self.catalog.subscription_by_incarnation(subscription)
        ledger = self.ledgers.get(subscription)
        if record is None or ledger is None:
            raise NotFound(str(subscription))
        self._listeners[subscription] = listener
        audience = self._audience.setdefault(record.topic_incarnation, [])
        if subscription not in audience:
            audience.append(subscription)
        self.set_early_delivery(record)
        self._announce_sources(subscription, self.sources.of_topic(record.topic_incarnation))

    def _announce_sources(self, subscription: int, sources: Sequence[Source]) -> None:
        """Tell a listener of sources. All there are, are here: nobody else grants any."""
        if subscription in self._resets:
            return  # they are named when the listener hears of the seek
        ledger = self.ledgers[subscription]
        views = [SourceView(one.number, ledger.first_gap(one.number, 0), one.sealed, one.epoch) for one in sources]
        self._listeners[subscription].on_sources(views, complete=True)

    def wants(self, subscription: int, wanted: bool) -> None:
        """There is nobody else here who could have them instead."""

    def check_grants(self, subscription: int) -> None:
        """There is nobody else here who could own the log."""

    def set_early_delivery(self, record: Subscription) -> None:
        """Let an attached subscription have messages before they are persisted, or no longer. What it may have had by
        now can be asked for again, so it goes on having them until that is persisted.
        """
        subscription = record.incarnation
        if record.early_delivery and subscription in self._listeners:
            self.early.add(subscription)
        elif subscription in self.early and self.failed is None:
            self._waiting.add(self.store.appended, partial(self._early_is_over, subscription))

    def _early_is_over(self, subscription: int, error: Exception | None) -> None:
        record = self.catalog.subscription_by_incarnation(subscription)
        if error is None and (record is None or not record.early_delivery):
            self.early.discard(subscription)

    def detach(self, subscription: int) -> None:
        if self._listeners.pop(subscription, None) is None:
            return
        self.early.discard(subscription)
        for topic, audience in list(self._audience.items()):
            if subscription in audience:
                audience.remove(subscription)
                if not audience:
                    del self._audience[topic]

    def _notify(self, source: Source, *, early: bool = False) -> None:
        for subscription in self._audience.get(source.topic, ()):
            if not early or subscription in self.early:
                self._listeners[subscription].on_data(source.number)

    def fetch(self, subscription: int, source: int, begin: int, max_bytes: int, reply: Reply) -> None:
        ledger, found = self.ledgers.get(subscription), self.sources.by_number.get(source)
        if ledger is None or found is None or subscription in self._resets:
            reply([])  # the listener hears of a seek once it is persisted, and asks again
            return
        early = subscription in self.early
        visible = found.visible
        end = self._appended_end(found) if early else visible
        begin = ledger.first_gap(source, begin)
        if begin >= end:
            reply([])
            return
        generation = ledger.generation
        passed: list[tuple[int, int]] = []

        def answer(stored: Sequence[Stored] | Exception) -> None:
            nonlocal begin
            if isinstance(stored, StorageDamaged) and stored.resume_offset is not None:
                # Told loudly, never acknowledged, so never deleted: what lies behind it is delivered all the same. The
                # subscribe side is told, too: it may be readable again some day.
                log.error("messages %d to %d of source %d: %s", begin, stored.resume_offset - 1, source, stored)
                passed.append((begin, max(begin + 1, stored.resume_offset)))
                begin = passed[-1][1]
                self.store.read(source, begin, max_bytes, answer, early=early)
            elif isinstance(stored, Exception):
                reply(stored)
            elif ledger.generation != generation:
                reply([])  # a seek came between: the listener was told and asks again
            elif not stored and not passed and begin >= visible:
                reply(Unavailable("It is not persisted yet, and not in memory any more."))  # it may have been had early
            else:
                granted = self._granted(ledger, begin, end, stored)
                known = self.attempts.of(subscription, source, granted[0].begin, granted[-1].end) if granted else ()
                reply(Fetched(granted, passed, known) if passed or known else granted)

        self.store.read(source, begin, max_bytes, answer, early=early)

    def _appended_end(self, source: Source) -> int:
        """Behind what the log has been given of a source."""
        pending = self._pending.get(source.number)
        return source.end if pending is None else pending.first_offset

    def _granted(self, ledger: Ledger, begin: int, end: int, stored: Sequence[Stored]) -> list[Batch]:
        record = self.catalog.subscription_by_incarnation(ledger.subscription)
        topic = self.catalog.topic_of(record) if record else None
        kept_s = max(record.retention_s if record else 0, topic.retention_s if topic else 0)
        oldest = self.clock.sure_ns() - kept_s * 1_000_000_000
        if ledger.renewed_ns >= oldest:
            oldest = 0  # a snapshot was sought that kept them
        out = []
        for batch in stored:
            last = min(end, batch.first_offset + batch.count)
            if batch.first_offset > begin:
                self.ledgers.pass_over(ledger, batch.source, begin, min(batch.first_offset, end))  # deleted
            if batch.first_offset >= end:
                break
            if batch.time_ns < oldest:
                self.ledgers.pass_over(ledger, batch.source, batch.first_offset, last)
            acks = ledger.acks.get(batch.source)
            skip = acks.mask(batch.first_offset, batch.first_offset + batch.count) if acks is not None else None
            out.append(
                Batch(
                    batch.source,
                    batch.first_offset,
                    max(begin, batch.first_offset),
                    last,
                    skip,
                    batch.time_ns,
                    batch.payload,
                )
            )
            begin = last
        return out

    def acknowledge(
        self, subscription: int, generation: int, source: int, runs: bytes, done: Done, *, urgent: bool
    ) -> None:
        if self.failed is not None:
            done(outcome_unknown(self.failed))
            return
        if source not in self.sources.by_number:
            done(None)  # nothing of it is left
            return
        verdict = self.ledgers.acknowledge(subscription, generation, source, runs)
        if verdict is not AckVerdict.COUNTS:
            done(self._not_counted(subscription, verdict))
            return
        try:
            self._ack_done.append(done)
            key = (subscription, source)
            fresh = self.unpersisted.get(key)
            if fresh is None:
                fresh = self.unpersisted[key] = deque()
            fresh.append(runs)
            self._acks.append(records.Acks(subscription, generation, source, runs))
            if urgent:
                self.flush_soon()
            elif not self._lingering:
                self._later(ACK_LINGER_S, self._linger_over)
                self._lingering = True
        except Exception as error:
            if not self._ack_done or self._ack_done[-1] is not done:
                done(outcome_unknown(error))
            self.on_inconsistency(error)

    def _acks_persisted(self, acks: list[records.Acks], waiting: list[Done], error: Exception | None) -> None:
        for one in acks if error is None else ():  # those of a log that failed stay what others must not rely on
            key = (one.subscription, one.source)
            fresh = self.unpersisted[key]
            fresh.popleft()
            if not fresh:
                del self.unpersisted[key]
        _notify_all(waiting, error)

    def unpersisted_acks(self, subscription: int, source: int) -> AckSet | None:
        """What was acknowledged and is not persisted: if this log is lost, it may be to be delivered again."""
        fresh = self.unpersisted.get((subscription, source))
        if fresh is None:
            return None
        acks = AckSet()
        for runs in fresh:
            acks.add_runs(runs)
        return acks

    def once_persisted(self, done: Done) -> None:
        """`done` when all that was acknowledged up to now is persisted, or nobody knows."""
        if self.failed is not None:
            done(outcome_unknown(self.failed))
        elif self._acks:
            self._ack_done.append(done)
            self.flush_soon()
        else:
            self._waiting.add(self.store.appended, done)

    def _not_counted(self, subscription: int, verdict: AckVerdict) -> SyncpointError:
        """Why an acknowledgement is not recorded. What the end of a generation or of a subscription decides may be lost
        with this log, and others may not know of it yet: until then they deliver what is not recorded. So whoever must
        not take it for acknowledged hears that it has failed.
        """
        if verdict is AckVerdict.OLD:
            return FailedPrecondition("The subscription was sought meanwhile.")
        record = self.catalog.subscription_by_incarnation(subscription)
        if verdict is AckVerdict.NO_LEDGER and (record is None or record.detached):
            return FailedPrecondition("The subscription was deleted or detached meanwhile.")
        return Unavailable("What the subscription was sought to is not known here yet.")

    def _linger_over(self) -> None:
        self._lingering = False
        if self._acks:
            self.flush_soon()

    def note_attempts(self, subscription: int, generation: int, source: int, runs: Sequence[AttemptRun]) -> None:
        self.attempts.note(subscription, generation, source, runs)

    def _write_attempts(self, fact: bytes) -> None:
        if self.failed is None:
            self.append_fact(EntryKind.LEDGER, records.encode_extension(DeliveryAttempts.number, fact))

    def generation(self, subscription: int) -> int:
        """The seek generation ack ids of the subscription must carry."""
        ledger = self.ledgers.get(subscription)
        return ledger.generation if ledger else 0

    # -- ledgers -----------------------------------------------------------------------------------------------------

    def note_needs(self, change: CatalogChange) -> None:
        """To be called with a change before anything follows from it here."""
        record = change.record
        if isinstance(record, Setting):
            self.needs.more()  # what a restore has lost is kept by such a one
            return
        topic = record.incarnation if isinstance(record, Topic) else record.topic_incarnation
        if change.op is ChangeOp.DELETE or self.sources.of_topic(topic):
            new = isinstance(record, Subscription) and record.incarnation not in self.ledgers
            self.needs.changed(change, new=new)

    def needed_since(self, version: int) -> Collection[int] | None:
        """The sources of which something may be needed that was not at this version of `needs`; None: of any."""
        topics = self.needs.since(version)
        if topics is None:
            return None
        return [source.number for topic in topics for source in self.sources.of_topic(topic)]

    def subscription_removed(self, subscription: int) -> None:
        """The subscription was deleted or detached: nobody needs its backlog."""
        self.ledgers.drop(subscription)
        listener = self._listeners.get(subscription)
        self.detach(subscription)
        if listener is not None:
            try:
                listener.on_removed()
            except Exception:
                log.exception("whoever serves a subscription fails to hear that it is gone")

    def replace_acks(
        self,
        subscription: int,
        acks: dict[int, AckSet],
        done: Done | None,
        generation: int | None = None,
        renewed_ns: int | None = None,
    ) -> None:
        """A seek: a new generation (the next one unless given) with these sets, persisted before `done`. From now on
        nothing counts in the old one, and nobody is served from it; the listener hears of the new one, and is served
        from it, once it is persisted. Its sets stand on acknowledgements that may not be: were this log lost now, its
        next owner would come to other sets, and whoever had read on by these would not look back. `renewed_ns`: see
        `Ledger`; as it was unless given.
        """
        ledger = self.ledgers[subscription]
        number = ledger.generation + 1 if generation is None else generation
        renewed = ledger.renewed_ns if renewed_ns is None else renewed_ns
        state = Ledger(subscription, number, acks, dict(ledger.start), renewed)

        def persisted(error: Exception | None) -> None:
            if error is None and self._resets.get(subscription) is state:
                del self._resets[subscription]
                listener = self._listeners.get(subscription)
                if listener is not None:
                    listener.on_reset()
            if done is not None:
                done(error)

        record = self.catalog.subscription_by_incarnation(subscription)
        self.needs.more(None if record is None else record.topic_incarnation)
        self.begin_ledger(state, persisted)
        self._resets[subscription] = state

    def is_reset_persisted(self, subscription: int) -> bool:
        """Whether what the subscription was sought to last is persisted."""
        return subscription not in self._resets

    def begin_ledger(self, state: Ledger, done: Done | None = None) -> None:
        """A ledger is in this state from now on; persisted before `done`."""
        self.check_writable()
        try:
            taken = self.ledgers.take(state)
            self.append_fact(EntryKind.LEDGER, records.encode_ledger(taken, self.catalog.revision), done)
        except Exception as error:
            self.on_inconsistency(error)
            raise

    def keep_snapshot(self, state: SnapshotState) -> None:
        """A chain's part of a snapshot."""
        self.check_writable()
        try:
            self.ledgers.keep(state)
            self.append_fact(EntryKind.LEDGER, records.encode_snapshot(state, self.catalog.revision))
        except Exception as error:
            self.on_inconsistency(error)
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


class _Internal:
    """The service itself as the caller of a publish."""

    def __init__(self, done: Callable[[bytes | Exception], None]) -> None:
        self.reply = done
        self.fail = done


class _Completion:
    """Somebody who wants to know when, not what, as the caller of a publish."""

    def __init__(self, done: Done) -> None:
        self._done = done

    def reply(self, message: bytes) -> None:
        self._done(None)

    def fail(self, error: SyncpointError) -> None:
        self._done(error)


def _notify_all(waiting: Iterable[Callable[[Any], object]], error: Any) -> None:
    """Tell everybody: one who fails to hear keeps nothing from the others."""
    for done in waiting:
        try:
            done(error)
        except Exception:
            log.exception("one of those who wait for the disks fails to hear; the others do hear")
