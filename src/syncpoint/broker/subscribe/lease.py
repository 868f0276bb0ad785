"""Lease: what is lent to subscribers, and how it comes back.

Place: between `delivery` and consumers, and where acknowledgements come back. The kernel's table knows every
outstanding message; this machine turns acknowledgements, nacks, extensions and expiries into records for the publish
side, into redeliveries, and into dead letters. An exactly-once subscription accepts only the newest, unexpired ack id
of a message, under the grant it was lent under, and confirms only what is persisted; an id that another process lent
may have counted there, so it has failed only once the publish side reports that its message is not acknowledged. Any
other subscription accepts late acknowledgements, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from syncpoint.base.kernel.acks import decode_runs, encode_runs
from syncpoint.base.model.delivery import AttemptRun, Batch
from syncpoint.base.model.errors import FailedPrecondition, GivenUp, Unavailable
from syncpoint.broker.recording.record_kinds import EXPIRED, FILTERED, RETURNED, REVOKED
from syncpoint.broker.recording.recorder import EVERY_OFFSET, runs_of
from syncpoint.broker.subscribe.confirm import REMEMBER_S, Confirmation, Confirmed, Joined, Unsure, place_of
from syncpoint.broker.subscribe.expired_letters import ExpiredLetters
from syncpoint.broker.subscribe.ordering import Identity, KeyOrder
from syncpoint.broker.subscribe.retry import Redelivery, note_run, rest_s
from syncpoint.broker.subscribe.shared_state import Reason, SharedState, WhenOver

TICKS_PER_S = 100
EXAMINED_MAX = 100  # questions to the publish side at once
NEVER_HERE = -1  # instead of how often the leases of a source were void: it was lent by another process
Fetch = Callable[[int, int, int, Callable[[Sequence[Batch] | Exception], None]], None]


class _Record(NamedTuple):
    """Acknowledged offsets of one source, not known to be persisted; `void` is how often its leases were void then.
    `maybe`: it was tried before, and nobody knows what became of that.
    """

    source: int
    runs: bytes
    waiting: Confirmation | None
    void: int
    maybe: bool = False


class LeaseManager:
    """Leases, redeliveries and ordering of one subscription."""

    def __init__(self, state: SharedState, generation: int, unsure: Unsure | None = None) -> None:
        """`unsure`: what is remembered from before a seek."""
        self.state, self.table, self.publish = state, state.table, state.publish
        self.redelivery = Redelivery()
        self.order = KeyOrder() if state.record.ordered else None
        self.letters = ExpiredLetters(state, self.redelivery.attempts, self.drop_expired)
        self.generation = generation
        self.voids: dict[int, int] = {}  # source -> how often everything lent of it became void
        self._unknown: list[_Record] = []
        self._doubtful: list[_Record] = []  # exactly-once, of a grant that is over: may have counted before its end
        self._examining: list[_Record] = []  # of these, those that the publish side is being asked about
        self.unsure = Unsure() if unsure is None else unsure
        self._under_way: dict[int, _Record] = {}
        self._closed = False
        self._heir: LeaseManager | None = None

    # -- acknowledgements --------------------------------------------------------------------------------------------

    def acknowledge(self, request: bytes, field: int, now: float, confirmed: Confirmed | None) -> None:
        """Ack ids in `field` of a raw request. `confirmed(failed ids, unknown ids)` is called once all others are
        persisted; unknown are those of which nobody knows after a while, for their sender to try again.

        Raises, before anything is changed, `BadAckId` when an id is not one of this subscription's, and `Unavailable`
        when nothing can be recorded now.
        """
        record = self.state.record
        self.publish.check_writable()
        void = None if self.order is None else self.order.void
        count, acked, failed = self.table.acknowledge(request, field, int(now * TICKS_PER_S), record.exactly_once, void)
        counts = self.state.counts
        counts.ack_requests += 1
        counts.acknowledged += count - len(failed)
        if count:
            self.state.made_room()
        if confirmed is None:
            waiting = None
        else:
            unsure: list[bytes] = []
            if failed and self.unsure:
                failed, unsure = self.unsure.judge(failed)
            elsewhere = self._lent_elsewhere(failed) if record.exactly_once else {}
            if elsewhere:
                failed = [one for one in failed if one not in elsewhere]
                confirmed = Joined(confirmed, 1 + len(elsewhere))
            sources = (source for source, _ in acked)
            waiting = Confirmation(request, field, confirmed, sources, failed, unsure, now, apart=elsewhere)
            counts.refused_acks += len(failed)
            for ack_id, place in elsewhere.items():
                self._ask_about(ack_id, *place, field, confirmed, now)
        for source, runs in acked:
            self.discharge(source, runs)
            self._record(_Record(source, runs, waiting, self.voids.get(source, 0)), urgent=confirmed is not None)

    def _lent_elsewhere(self, failed: Iterable[bytes]) -> dict[bytes, tuple[int, int]]:
        """Return the source and offset of ids leased by another process, possibly ended; whether these messages were
        acknowledged is unknown here. Messages leased here now were not.
        """
        found = {}
        for one in failed:
            source, offset, epoch = place_of(one)
            if not self.state.ours(epoch) and not self.table.is_outstanding(source, offset):
                found[one] = source, offset
        return found

    def _ask_about(self, ack_id: bytes, source: int, offset: int, field: int, confirmed: Confirmed, now: float) -> None:
        """What became of one of those the publish side is asked: see `examine`."""
        request = bytes((field << 3 | 2, len(ack_id))) + ack_id
        waiting = Confirmation(request, field, confirmed, (source,), [], [], now)
        self._doubtful.append(_Record(source, encode_runs([(offset, 1)]), waiting, NEVER_HERE, maybe=True))

    def _record(self, record: _Record, *, urgent: bool) -> None:
        """Notify the publish side until it is known to be persisted; sending it again changes nothing."""

        def done(error: Exception | None) -> None:
            del self._under_way[id(record)]
            try:
                self._recorded(record, error)
            except Exception:
                self._unknown.append(record._replace(maybe=True))  # waiting callers are answered when delivery restarts
                raise

        subscription = self.state.record.incarnation
        self._under_way[id(record)] = record
        self.publish.acknowledge(subscription, self.generation, record.source, record.runs, done, urgent=urgent)

    def _recorded(self, record: _Record, error: Exception | None) -> None:
        """The publish side reports the outcome."""
        source, _, waiting, void, maybe = record
        refused, once = isinstance(error, FailedPrecondition), self.state.record.exactly_once
        if error is None or (refused and not once and self._heir is None):
            if waiting is not None:  # what a seek or a deletion has decided needs no record
                waiting.persisted(source)
        elif refused and once and not maybe:
            if waiting is not None:
                waiting.lost(source)
        elif self._closed:
            self._leave(record)
        elif once and (refused or self.voids.get(source, 0) != void):
            self._doubt(record)
        else:
            self._unknown.append(record._replace(maybe=True))
            self.state.stalled = True
            if isinstance(error, GivenUp):
                self._give_up(record, math.inf)  # callers need not wait longer

    def cannot_record(self) -> Unavailable | None:
        """Why acknowledgements cannot be recorded here now, where that is known."""
        try:
            self.publish.check_writable()
        except Unavailable as error:
            return error
        return None

    def _give_up(self, record: _Record, now: float) -> None:
        """Notify who waits that the outcome is unknown, if that is due."""
        unsure = record.waiting.give_up(now) if record.waiting is not None else ()
        if unsure and record.waiting is not None and self.state.record.exactly_once:
            self.unsure.remember(unsure, record.waiting)

    def resend(self) -> None:
        """Acknowledgements whose outcome is unknown are sent again; under another grant they would be another's."""
        unknown, self._unknown = self._unknown, []
        for record in unknown:
            if self.state.record.exactly_once and self.voids.get(record.source, 0) != record.void:
                self._doubt(record)
            else:
                self._record(record, urgent=True)

    def _doubt(self, record: _Record) -> None:
        """Its source was granted anew, to us or to others, while its outcome was unknown. It may have counted before;
        that it has failed only the publish side can say.
        """
        if record.waiting is not None:
            self._doubtful.append(record)

    def examine(self, holds: Callable[[int], bool], fetch: Fetch, now: float) -> None:
        """What is still unacknowledged under the new grant was not recorded under the old one, and is delivered again.
        What is acknowledged by now stays unknown: it may have been by somebody who had it in between.
        """
        self._doubtful = [one for one in self._doubtful if one.waiting and one.waiting.at + REMEMBER_S >= now]
        for record in self._doubtful[:]:
            void = self.voids.get(record.source, 0)
            if len(self._examining) >= EXAMINED_MAX:
                break
            if record.void != void and holds(record.source):
                self._doubtful.remove(record)
                self._examining.append(record)
                runs = decode_runs(record.runs)
                begin, end = runs[0][0], sum(runs[-1])
                fetch(record.source, begin, end, partial(self._examined, record, runs, void))

    def _examined(
        self, record: _Record, runs: Sequence[tuple[int, int]], void: int, batches: Sequence[Batch] | Exception
    ) -> None:
        self._examining.remove(record)
        if isinstance(batches, Exception):
            self._doubt(record)  # to be checked again
        elif any(_has(batches, begin, begin + length) for begin, length in runs) and record.waiting is not None:
            record.waiting.lost(record.source)
        else:
            self._doubt(record._replace(void=void))

    def void(self, source: int, *, behind: bool = False) -> None:
        """Somebody else delivers from a source: its leases and what waits for another delivery are forgotten. `behind`:
        it is delivered here again, after a source before it.
        """
        self.voids[source] = self.voids.get(source, 0) + 1
        self.note_revoked(source)
        taken_back = self._forget(source)
        if behind and self.order is not None:
            self.order.void.update(dict.fromkeys(taken_back, self.table.last_serial))
        if self._unknown:
            self.resend()

    def finish(self, source: int) -> None:
        """Everything of a source is acknowledged. Whether by what we sent, an exactly-once sender still
        has to learn.
        """
        self._forget(source)
        if self.state.record.exactly_once:
            return
        done = [record for record in self._unknown if record.source == source]
        self._unknown = [record for record in self._unknown if record.source != source]
        for record in done:
            if record.waiting is not None:
                record.waiting.persisted(source)

    def _forget(self, source: int) -> list[Identity]:
        self.table.drop_source(source)
        self.redelivery.forget_source(source)
        self.letters.forget_source(source)
        return [] if self.order is None else self.order.forget(source)

    def close(self, heir: LeaseManager | None = None) -> None:
        """A seek, or the end of the delivery: what is not recorded now is not sent again. Waiting callers are answered.
        `heir`: where neither is the reason, the one that goes on sending it.
        """
        self._closed, self._heir = True, heir
        self.letters.close()
        unknown = [*self._unknown, *self._doubtful, *self._examining]
        self._unknown, self._doubtful = [], []
        for record in unknown:
            self._leave(record)

    def _leave(self, record: _Record) -> None:
        """Give up a lease.

        Other forwarders may learn of a seek or deletion later and deliver until then; for an exactly-once subscription
        the acknowledgement must fail.
        """
        once = self.state.record.exactly_once
        if self._heir is not None and not once and self._heir.generation == self.generation:
            self._heir.take_over(record)
        elif record.waiting is None:
            return
        elif once:
            self.unsure.remember(record.waiting.uncertain(record.source), record.waiting)
        else:
            record.waiting.persisted(record.source)

    def take_over(self, record: _Record) -> None:
        """What another one has sent, and nobody has answered, is sent until it is known to be recorded."""
        if self._closed:
            self._leave(record)
        else:
            self._unknown.append(record._replace(void=self.voids.get(record.source, 0), maybe=True))
            self.state.stalled = True

    def discharge(self, source: int, runs: bytes) -> None:
        """These offsets need no delivery any more: forget their counts, let their keys go on."""
        if self.redelivery.attempts or self.redelivery.waiting:
            self.redelivery.forget_acked(source, runs)
        if self.order is not None:
            self.order.on_discharged(source, runs)

    def drop(self, source: int, runs: bytes) -> None:
        """Acknowledge on the subscriber's behalf: filtered out, or dead-lettered."""
        self.discharge(source, runs)
        self._record(_Record(source, runs, None, self.voids.get(source, 0)), urgent=False)

    def drop_filtered(self, source: int, runs: bytes) -> None:
        """Acknowledge what the subscription does not want."""
        dropped = decode_runs(runs)
        self.state.counts.filtered += sum(length for _, length in dropped)
        self.state.note(FILTERED, self.generation, source, dropped)
        self.drop(source, runs)

    def drop_expired(self, source: int, runs: bytes) -> None:
        """Acknowledge what has outlived its time to live."""
        self.state.note(EXPIRED, self.generation, source, decode_runs(runs))
        self.drop(source, runs)

    # -- what comes back undone --------------------------------------------------------------------------------------

    def modify(
        self, request: bytes, field: int, seconds: int | list[int], now: float, *, delivered: bool = True
    ) -> list[bytes]:
        """Extend leases, or end them (0 seconds = nack; not `delivered`: nobody saw these messages, and no attempt is
        counted). Returns the ids that failed (exactly-once only). Raises `BadAckId`.
        """
        nacked, failed = self.table.modify(
            request, field, seconds, int(now * TICKS_PER_S), self.state.record.exactly_once
        )
        self.state.counts.modify_requests += 1
        self.state.counts.nacked += len(nacked)
        if nacked:
            self.came_back(nacked, now, "nacked", delivered=delivered)
        return failed

    def give_up(
        self, request: bytes, field: int, reason: Reason, now: float, when_over: Callable[[Identity], WhenOver]
    ) -> tuple[list[Identity], list[bytes]]:
        """Its subscriber has messages become dead letters. Returns these, and the ids under which nothing is lent (any
        more). The outcome of each is passed to `when_over(message)`. Raises `BadAckId`.
        """
        taken, invalid = self.table.modify(request, field, 0, int(now * TICKS_PER_S), True)
        for source, offset in sorted(taken):
            attempts, order = self.redelivery.count(source, offset), self.order
            if order is not None and order.knows((source, offset)):
                self._revoke(order.take_back((source, offset), block=True, last_serial=self.table.last_serial))
            self.state.dead_letter(source, offset, attempts, reason, when_over((source, offset)))
        self.state.wake()
        return taken, invalid

    def expire(self, now: float) -> None:
        """Take back what is past its deadline, and wake what waited for its retry time."""
        expired = self.table.expire(int(now * TICKS_PER_S))
        if expired:
            self.state.counts.expired_leases += len(expired)
            self.came_back(expired, now, "deadline")
        if self.redelivery.next_time() is not None:
            self.redelivery.wake(now)
            self.state.wake()
        for record in (*self._unknown, *self._doubtful, *self._examining):
            self._give_up(record, now)
        if self.unsure:
            self.unsure.forget_old(now)

    def release(self, serials: list[int], now: float) -> None:
        """Responses that never left: their messages were not delivered at all."""
        for serial in serials:
            self.came_back(self.table.release_serial(serial), now, "unsent", delivered=False)

    def release_unconfirmed(self, consumer: int, now: float) -> None:
        """Messages that a subscriber that is gone never confirmed to have received."""
        identities = self.table.release_consumer(consumer, unconfirmed=True)
        if identities:
            self.came_back(identities, now, "gone")

    def came_back(self, identities: list[tuple[int, int]], now: float, why: str, *, delivered: bool = True) -> None:
        """Messages whose lease ended undone are offered again: now, after a backoff, or as dead letters."""
        self._note_returned(identities, why)
        record, order = self.state.record, self.order
        retry, dead = record.retry, record.dead_letter
        counted: dict[int, list[AttemptRun]] = {}
        for source, offset in sorted(identities):
            attempts = self.redelivery.count(source, offset) if delivered and (retry or dead) else 0
            is_dead = dead is not None and attempts >= dead[1]
            delay = rest_s(retry, attempts)
            if attempts:
                note_run(counted.setdefault(source, []), offset, attempts, round(1000 * delay))
            if order is not None and order.knows((source, offset)):
                rests, serial = is_dead or delay > 0, self.table.last_serial
                self._revoke(order.take_back((source, offset), block=rests, last_serial=serial))
                if is_dead:
                    self.state.dead_letter(source, offset, attempts, None)
                elif delay:
                    self.redelivery.add(source, offset, at=now + delay)
            elif is_dead:
                self.state.dead_letter(source, offset, attempts, None)
            else:
                self.redelivery.add(source, offset, at=now + delay if delay else None)
        for source, runs in counted.items():
            self.publish.note_attempts(record.incarnation, self.generation, source, runs)
        self.state.wake()

    def _revoke(self, back: Collection[Identity]) -> None:
        """Messages of a key that follow one that came back are lent no more: they come after it."""
        for one in back:
            self.table.revoke(*one)
        self._note_returned(back, REVOKED)

    def note_revoked(self, source: int) -> None:
        """All that is lent of a source counts no more."""
        self.state.note(RETURNED, self.generation, source, EVERY_OFFSET, why=REVOKED)

    def _note_returned(self, identities: Collection[Identity], why: str) -> None:
        if self.state.record.topic_incarnation in self.state.recorder.topics:
            for source in {one for one, _ in identities}:
                runs = runs_of(sorted(offset for one, offset in identities if one == source))
                self.state.note(RETURNED, self.generation, source, runs, why=why)

    def unrecorded(self) -> set[Identity]:
        """Messages with an acknowledgement that is not known to be recorded."""
        records = (*self._under_way.values(), *self._unknown)
        runs = ((one.source, run) for one in records for run in decode_runs(one.runs))
        return {(source, offset) for source, (begin, length) in runs for offset in range(begin, begin + length)}

    @property
    def is_out(self) -> bool:
        """Whether something is lent, or waits for a confirmation."""
        return bool(self.table.total()[0] or self._under_way or self._unknown)

    @property
    def at_rest(self) -> bool:
        """Nothing is lent, waits for another delivery, or for a confirmation; nobody will ask again."""
        return not self.is_out and not len(self.redelivery) and not (self.unsure or self._doubtful or self._examining)


def _has(batches: Sequence[Batch], begin: int, end: int) -> bool:
    """Whether any offset in `[begin, end)` is among what was handed out."""
    for batch in batches:
        for offset in range(max(begin, batch.begin), min(end, batch.end)):
            if not batch.skips(offset):
                return True
    return False
