"""Source reader: messages of one subscription's sources, as far as they may be delivered from here.

Place: between the publish side and who lends. An answer that comes after its question became void, by a seek, another
grant, or doubt about it, is not used. What could not be read is tried again later; what came back before, to another
forwarder perhaps, goes on with its count and its rest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from syncpoint.base.model.delivery import Batch, Fetched, attempts_of, freshness_of, passed_over
from syncpoint.base.model.errors import ResourceExhausted, Unavailable
from syncpoint.broker.subscribe.aging import Aging
from syncpoint.broker.subscribe.fetch import CREDIT_BYTES, FetchCursor
from syncpoint.broker.subscribe.key_holding import KeyHolding
from syncpoint.broker.subscribe.lease import LeaseManager
from syncpoint.broker.subscribe.ordering import Identity
from syncpoint.broker.subscribe.passed import PassedOver
from syncpoint.broker.subscribe.retry import OffsetRun, rest_s
from syncpoint.broker.subscribe.rule_batches import JUDGED_S, RuleBatches
from syncpoint.broker.subscribe.rule_work import Judged
from syncpoint.broker.subscribe.shared_state import SharedState
from syncpoint.broker.subscribe.subscription_sources import SubscriptionSources
from syncpoint.catalog.metadata.entity_options import lanes_before

Reply = Callable[[Sequence[Batch] | Exception], None]


class _Question(NamedTuple):
    """Messages of a source up to `end` that were asked for; `void` is how often its leases were void then."""

    source: int
    end: int
    reply: Reply
    some: bool
    void: int


class SourceReader:
    """Read a subscription's sources in turn. `sources` chooses the next source."""

    def __init__(self, state: SharedState, leases: LeaseManager) -> None:
        lanes = None if state.rules is None else tuple(state.rules)
        before = lanes_before(state.record.options)
        self.sources = SubscriptionSources(self.read_on, ordered=state.record.ordered, lanes=lanes, before=before)
        self.rules = RuleBatches(state, leases)
        self.passed = PassedOver()
        self.aging = Aging(state, leases.letters)
        self.keys: KeyHolding | None = None  # where other sites deliver some of them
        self.resuming: dict[Identity, float | None] = {}  # came back before, in order: until when they rest
        self._state, self._leases = state, leases
        self._closed = False
        self.take_keys()

    def fetch(self, source: int, begin: int, end: int, reply: Reply, *, some: bool = False) -> None:
        """Ask for unacknowledged messages of `[begin, end)`; about a credit's worth comes at most. `some`: the first
        of them will do.
        """
        state = self._state
        question = _Question(source, end, reply, some, self._leases.voids.get(source, 0))
        taken = partial(self._answered, question)
        state.publish.fetch(state.record.incarnation, source, begin, min(CREDIT_BYTES, (end - begin) << 10), taken)

    def _answered(
        self, question: _Question, batches: Sequence[Batch] | Exception, judged: Judged | None = None
    ) -> None:
        state, (source, end, reply, some, void) = self._state, question
        if state.strict:
            state.publish.check_grants(state.record.incarnation)
        if self._closed:
            return
        if self.keys is not None and not isinstance(batches, Exception):
            batches = self.keys.ours(batches)
        if void != self._leases.voids.get(source, 0):
            reply(())
        elif state.strict and (state.doubted() or not self.sources.holds(source)):
            reply(Unavailable("whether the source is still granted here is in doubt"))
        elif isinstance(batches, Exception):
            reply(batches)
        elif state.rules is None and not isinstance(batches, Fetched):
            reply(batches)  # nothing to change: the common case, at once
        elif self._leases.letters.is_full(batches):
            reply(Unavailable("Messages whose time to live is over are being moved first."))
        elif not self.rules.elsewhere(batches, end, partial(self._judged, question, batches), some=some, judged=judged):
            try:
                out = self._leases.letters.taken_out(batches)
                left = self.rules.applied(out, end, some=some, judged=judged)
            except ResourceExhausted as error:
                reply(error)
                return
            reply(self.aging.judged(left))

    def _judged(self, question: _Question, batches: Sequence[Batch], found: Judged | Exception) -> None:
        if isinstance(found, Exception):
            self._answered(question, found)
        else:
            self._answered(question, batches, found)

    def read_on(self, cursor: FetchCursor) -> None:
        """Ask for more of a source, if that is wanted now."""
        if not cursor.wants_more:
            return
        if self._state.now() < cursor.not_before:
            self._state.stalled = True
        else:
            cursor.asking = True
            end = cursor.begin + CREDIT_BYTES
            self.fetch(cursor.source, cursor.begin, end, partial(self._read, cursor), some=True)

    def _read(self, cursor: FetchCursor, batches: Sequence[Batch] | Exception) -> None:
        if isinstance(batches, Exception):
            cursor.failed(self._state.now())
            cursor.void = False
            self._state.stalled = True  # unknown: a later tick asks again
            return
        if cursor.void:
            cursor.void = cursor.asking = False
            self._state.wake()
            return
        if self.keys is not None and cursor.begin < cursor.again_to:
            batches = self.keys.not_read_before(batches, cursor.again_to, cursor.again_slots, self._in_hand)
        for begin, end in passed_over(batches):
            self.pass_over(OffsetRun(cursor.source, begin, end, 1), batches)
        if attempts_of(batches):
            batches = self._resume(cursor.source, batches)
        cursor.received(batches)
        if self.rules.late:
            cursor.not_before = self._state.now() + JUDGED_S
            self._state.stalled = True
        if isinstance(batches, Fetched):
            self.aging.note(batches)
        # What comes after a source that is drained may begin; and one of which something came while this answer was on
        # its way is asked again.
        if batches or cursor.drained or cursor.wants_more:
            self._state.wake()

    # -- keys that other sites deliver -------------------------------------------------------------------------------

    def take_keys(self) -> None:
        """Follow the record: which keys other sites deliver. Of those that came back what was passed by is read."""
        held = self._state.record.options.keys_elsewhere
        if held and self.keys is None:
            self.keys = KeyHolding(self._leases)
        if self.keys is not None and (back := self.keys.take(held)):
            self.sources.from_the_beginning(back)

    def _in_hand(self, identity: Identity) -> bool:
        """Whether a message is lent here, or waits to be."""
        leases = self._leases
        known = leases.order is not None and leases.order.knows(identity)
        return known or identity in leases.redelivery.waiting or self._state.table.is_outstanding(*identity)

    def read_again(self) -> None:
        """Let go of what was read and not lent: another site may have had it acknowledged since."""
        self.sources.read_again()
        self.resuming.clear()

    def grow_old(self) -> None:
        """Something that was read ahead may have run out."""
        for cursor in self.sources.cursors():
            if cursor.batches:
                cursor.batches = deque(self.aging.aged(cursor.batches))

    def pass_over(self, run: OffsetRun, batches: Sequence[Batch]) -> None:
        """What of a run could not be read is tried again later. Whatever its keys were, they go on without it."""
        passed = passed_over(batches)
        if passed or self.passed:
            self.passed.answered(run, passed, self._state.now())

    def _resume(self, source: int, batches: Sequence[Batch]) -> list[Batch]:
        """Resume messages that were returned earlier, perhaps to another forwarder, with their attempts and pauses.

        They take the path of returned messages here; with ordering, once their turn comes. Pauses are stored as
        wall-clock times, which may have been wrong, so none is longer than the policy allows for its attempt.
        """
        now, redelivery, ordered = self._state.now(), self._leases.redelivery, self._leases.order is not None
        skips = [bytearray(one.skip or bytes((one.end - one.first_offset + 7) // 8)) for one in batches]
        for run in attempts_of(batches):
            rest = min(run.rest_ms / 1000, rest_s(self._state.record.retry, run.times))
            for batch, skip in zip(batches, skips, strict=True):
                for offset in range(max(run.begin, batch.begin), min(run.end, batch.end)):
                    index = offset - batch.first_offset
                    if batch.source != source or skip[index >> 3] >> (index & 7) & 1:
                        continue
                    at = now + rest if rest else None
                    redelivery.attempts[source, offset] = max(run.times, redelivery.attempts.get((source, offset), 0))
                    if ordered:
                        self.resuming[source, offset] = at
                    else:
                        skip[index >> 3] |= 1 << (index & 7)
                        redelivery.add(source, offset, at=at)
        out = (one._replace(skip=bytes(skip)) for one, skip in zip(batches, skips, strict=True))
        return Fetched(out, freshness=freshness_of(batches))

    def forget(self, source: int) -> None:
        """The source's grant is over: what was to be tried again, or to rest, is nobody's business here any more."""
        self.passed.forget_source(source)
        for identity in [one for one in self.resuming if one[0] == source]:
            del self.resuming[identity]

    def close(self) -> None:
        """Answers that are under way are void, and what was read."""
        self._closed = True
        self.sources.clear()
