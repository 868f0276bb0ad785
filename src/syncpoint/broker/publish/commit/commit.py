"""The group commit: everything of one event-loop turn goes to the disks as one write, and is answered when it is there.

Place: between the forwarder, which decides what is written, and the store. Everything runs on the event loop's thread;
nothing here waits.
Promise: entries have the order in which they were given. A publisher receives its ids only after its messages are
persisted, acknowledgements are confirmed only then, and early listeners alone learn of messages before. A log that
memory may disagree with is given up: nothing more is written, and the answer to all that waits is that its outcome is
unknown.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from syncpoint.base.kernel.acks import decode_runs
from syncpoint.base.model.delivery import Done
from syncpoint.base.model.errors import SyncpointError, Unavailable
from syncpoint.base.runtime.trusted import TrustedClock
from syncpoint.broker.publish.commit.admission import Admission
from syncpoint.broker.publish.commit.append import (
    AckBatch,
    CommitWaiters,
    PendingEntry,
    PublishCaller,
    completion,
    notify_all,
    outcome_unknown,
)
from syncpoint.broker.publish.facts import records
from syncpoint.broker.publish.facts.message_facts import FactLog
from syncpoint.broker.publish.facts.source import Source
from syncpoint.broker.recording.record_kinds import ACKNOWLEDGED, PUBLISHED
from syncpoint.broker.recording.recorder import NOTHING_RECORDED, Recorder
from syncpoint.log.storage.record import EntryKind
from syncpoint.log.storage.store import Store

log = logging.getLogger(__name__)
Soon = Callable[[Callable[[], None]], object]
Later = Callable[[float, Callable[[], None]], object]
ENTRY_BYTES_MAX = 64 << 10  # requests of this size stay entries of their own: nothing is joined, nothing is copied
ENTRY_MESSAGES_MAX = 4096
ACK_LINGER_S = 0.01  # acknowledgements nobody waits for ride with the next commit, or go alone after this long


class GroupCommit:
    """What this turn writes to one log, and what waits for the disks. `soon(fn)` runs fn at the end of the loop's turn,
    `later(seconds, fn)` after a while. `failed`: why the log cannot be written any more.
    """

    def __init__(self, store: Store, clock: TrustedClock, admission: Admission, soon: Soon, later: Later) -> None:
        self.store, self.clock, self.admission = store, clock, admission
        self.failed: Exception | None = None
        self.on_failed: Callable[[], None] = lambda: None  # the log cannot be written any more
        self.on_visible: Callable[[Source], None] = lambda source: None  # messages were persisted
        self.on_appended: Callable[[Source], None] | None = None  # and before; None: nobody takes messages early
        self.recorder: Recorder = NOTHING_RECORDED
        self.published = 0
        self.facts = FactLog(self.append_fact)
        self.acks = AckBatch()
        self._soon, self._later = soon, later
        self._waiting = CommitWaiters()
        self._pending: list[PendingEntry] = []  # of this turn, in order
        self._last: dict[int, PendingEntry] = {}  # of each source the one that grows
        self._flushing = self._lingering = False
        self._time_ns = 0
        self.turn: tuple[int, int] | None = None  # its time, see `turn_time`, once it has begun
        store.on_persisted = self._on_persisted
        store.on_failed = self.give_up

    def check_writable(self) -> None:
        """Raise `Unavailable` where the log cannot be written any more."""
        if self.failed is not None:
            raise Unavailable(f"the log cannot be written: {self.failed}")

    # -- the time of a turn ------------------------------------------------------------------------------------------

    def begin_turn(self) -> tuple[int, int]:
        """One publish time for everything of this turn; never earlier than the last one, nor than what is sure,
        whatever the wall clock does.
        """
        self._time_ns = max(self._time_ns, self.clock.time_ns())
        self.turn = divmod(self._time_ns, 1_000_000_000)
        return self.turn

    def turn_time(self) -> tuple[int, int]:
        """Seconds and nanoseconds of everything that is published in this turn."""
        return self.turn or self.begin_turn()

    def leave_turn(self) -> None:
        """If nothing was given in this turn, whatever comes next begins another one, with a time of its own."""
        if not self._flushing:
            self.turn = None

    @property
    def newest_ns(self) -> int:
        """The newest publish time of this process, 0 before the first."""
        return self._time_ns

    # -- what is given in a turn -------------------------------------------------------------------------------------

    def add(
        self,
        source: Source,
        count: int,
        payload: bytes,
        caller: PublishCaller,
        response: bytes,
        notes: Iterable[Callable[[], object]] = (),
        requests: int = 1,
    ) -> None:
        """Take `count` framed messages of `requests` requests, and what is noted of them, which stands in front of them
        (`message_facts`); `caller` gets `response` once they are persisted. Nothing is written yet. What fails with
        nothing taken is raised; a failure halfway is answered, and ends the log.
        """
        entry = self._last.get(source.number)
        new = entry is None or entry.bytes >= ENTRY_BYTES_MAX or entry.count >= ENTRY_MESSAGES_MAX
        if entry is None or new:
            entry = PendingEntry(source, source.end, self._time_ns)
        self.admission.enter(source.topic, count, len(payload))
        before = entry.count
        try:
            entry.add(count, payload, caller, response, requests)
            source.end += count
            if new:
                self._pending.append(entry)
                self._last[source.number] = entry
            if not self._flushing:
                self.flush_soon()
            for note in notes:
                note()
        except Exception as error:  # half of it may be taken
            waits = entry in self._pending
            if not waits or entry.count == before:
                self.admission.release(source.topic, count, len(payload))
            if not waits or not entry.callers or entry.callers[-1][0] is not caller:
                caller.fail(outcome_unknown(error))
            self.on_inconsistency(error)

    def acknowledge(
        self, subscription: int, generation: int, source: int, runs: bytes, done: Done, *, urgent: bool
    ) -> None:
        """Write an acknowledgement that counts in memory already: at the end of this turn where it is urgent."""
        try:
            self.acks.add(records.Acks(subscription, generation, source, runs), done)
            if urgent:
                self.flush_soon()
            elif not self._lingering:
                self._later(ACK_LINGER_S, self._linger_over)
                self._lingering = True
        except Exception as error:
            if not self.acks.is_last(done):
                done(outcome_unknown(error))
            self.on_inconsistency(error)

    def _linger_over(self) -> None:
        self._lingering = False
        if self.acks.waiting:
            self.flush_soon()

    def when_acks_persisted(self, done: Done) -> None:
        """Call `done` when all that was acknowledged up to now is persisted, or unknown."""
        if self.failed is not None:
            done(outcome_unknown(self.failed))
        elif self.acks.waiting:
            self.acks.wait(done)
            self.flush_soon()
        else:
            self._waiting.add(self.store.appended, done)

    def when_appended_persisted(self, done: Done) -> None:
        """Call `done` once everything appended so far is persisted."""
        self._waiting.add(self.store.appended, done)

    def appended_end(self, source: Source) -> int:
        """The offset after the last message of a source that the log was given."""
        pending = (one.first_offset for one in self._pending if one.source is source)
        return next(pending, source.end)

    # -- writing -----------------------------------------------------------------------------------------------------

    def flush_soon(self) -> None:
        """Hand everything appended in this turn to the disks at its end, as one group commit."""
        if not self._flushing:
            self._flushing = True
            try:
                self._soon(self.flush)
            except BaseException:
                self._flushing = False  # or nothing would be flushed any more
                raise

    def flush(self) -> None:
        """End the turn."""
        self._flushing = False
        self.turn = None
        if self.failed is not None:
            return
        try:
            self.append_pending()
            if self.acks.waiting:
                position = self.store.append(EntryKind.ACKS, records.encode_acks(self.acks.waiting))
                acks, done = self.acks.take()
                self._waiting.add(position, partial(self._on_acks_persisted, acks, done))
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
        pending, self._pending = deque(self._pending), []
        self._last.clear()
        try:
            if self.facts.writers:
                self.facts.write_in_front(self.store, len(pending))
            while pending:
                entry = pending[0]
                self._append_entry(entry)
                pending.popleft()
                if self.on_appended is not None:
                    self.on_appended(entry.source)
        except Exception as error:
            for entry in pending:
                self._waiting.add_unwritten(entry)
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
        """Write `count` framed messages after everything of this turn; returns the offset of the first. They were
        accepted before: no limit refuses them now. Raises `Unavailable` when the log cannot be written.
        """
        self.check_writable()
        self.append_pending()
        if self.turn is None:
            self.begin_turn()
        entry = PendingEntry(source, source.end, self._time_ns)
        entry.add(count, payload, completion(done), b"")
        try:
            source.end += count
            self.admission.enter(source.topic, count, len(payload))
            self._append_entry(entry)
        except Exception as error:
            self.on_inconsistency(error)
            raise
        if self.on_appended is not None:
            self.on_appended(source)
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

    # -- what became of it -------------------------------------------------------------------------------------------

    def _on_persisted(self, position: int) -> None:
        touched: dict[int, Source] = {}
        counts, now_ns = self.admission.counts, 0
        counts.commits += 1
        for waiter in self._waiting.on_persisted(position):
            if isinstance(waiter, PendingEntry):
                source = waiter.source
                assert source.visible == waiter.first_offset, (source.number, source.visible, waiter.first_offset)
                source.visible = waiter.first_offset + waiter.count
                touched[source.number] = source
                self.published += waiter.count
                now_ns = now_ns or self.clock.time_ns()
                counts.persisted(waiter, now_ns)
                if self.recorder.topics:
                    self._record(waiter)
                self.admission.release(source.topic, waiter.count, waiter.bytes)
                for caller, response in waiter.callers:
                    try:
                        caller.reply(response)
                    except Exception:
                        log.exception("a caller fails on its answer; the others are answered")
            else:
                notify_all((waiter,), None)
        for source in touched.values():
            try:
                self.on_visible(source)
            except Exception:
                log.exception("a listener fails on new messages; the others are notified")

    def _on_acks_persisted(self, acks: list[records.Acks], done: list[Done], error: Exception | None) -> None:
        if error is None:  # those of a log that failed stay what others must not rely on
            self.acks.on_persisted(acks)
            for one in acks if self.recorder.topics else ():
                runs = partial(decode_runs, one.runs)
                self.recorder.note_of(one.subscription, ACKNOWLEDGED, one.source, runs, generation=one.generation)
        notify_all(done, error)

    def _record(self, entry: PendingEntry) -> None:
        runs = [(entry.first_offset, entry.count)]
        self.recorder.note(
            entry.source.topic,
            PUBLISHED,
            entry.source.number,
            runs,
            published=entry.time_ns // 1000,
            bytes=entry.bytes,
            log=self.store.log_counter,
        )

    def on_inconsistency(self, error: Exception) -> None:
        """Give the log up where memory was changed and the log perhaps was not, or the other way round, so that nothing
        comes of the difference. A log that is not written any more, which is what other errors say, has ended already.
        """
        if self.failed is None and not isinstance(error, SyncpointError):
            log.error("memory and the log may disagree", exc_info=error)
            self.give_up(error)

    def give_up(self, cause: Exception) -> None:
        """End the log: the quorum is gone, or the log is not what memory holds. What waits has an unknown outcome;
        nothing new is taken. Idempotent.
        """
        first = self.failed is None
        self.failed = self.failed or cause
        self.facts.writers.clear()
        if first:
            log.error("the log cannot be written, nothing new is taken: %s", cause)
        for entry in self._pending:
            self._waiting.add_unwritten(entry)
        self._pending.clear()
        self._last.clear()
        error = outcome_unknown(cause)
        for waiter in self._waiting.on_failed():
            if isinstance(waiter, PendingEntry):
                self.admission.release(waiter.source.topic, waiter.count, waiter.bytes)
                self.admission.counts.unknown += waiter.count
                notify_all([caller.fail for caller, _ in waiter.callers], error)
            else:
                notify_all((waiter,), error)
        notify_all(self.acks.on_failed(), error)
        if first:
            self.on_failed()
