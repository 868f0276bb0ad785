"""Expired letters: messages that outlived their time to live, or that rules fail at, on their way to the dead-letter
topic.

Place: between `source_reader`, through which everything comes that is read of a subscription, and `dead_letter`. The
publish side names what has run out, `rule_batches` what rules fail at; it is not lent, but moved, some at a time.
Promise: what is lent is left alone: its subscriber may acknowledge it, and if it comes back, it is read, and named,
again. What waits here is not acknowledged before its letter is persisted; where it is forgotten it is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from syncpoint.base.kernel.acks import encode_runs
from syncpoint.base.model.delivery import Batch, Fetched, attempts_of, expired_of, freshness_of, passed_over
from syncpoint.broker.subscribe.ordering import Identity
from syncpoint.broker.subscribe.shared_state import Reason, SharedState

MOVED_AT_ONCE = 64
WAITING_MAX = 10_000
EXPIRED = Reason("TTLExpiredException", "The message's time to live expired.")


class ExpiredLetters:
    """Move expired messages to the dead-letter topic.

    `attempts`: delivery attempts by message; `drop(source, runs)` acknowledges for the subscriber.
    """

    def __init__(
        self, state: SharedState, attempts: Mapping[Identity, int], drop: Callable[[int, bytes], None]
    ) -> None:
        self._state, self._attempts, self._drop = state, attempts, drop
        self._waiting: dict[Identity, Reason] = {}
        self._moving: set[Identity] = set()
        self._going_on = False

    def __len__(self) -> int:
        return len(self._waiting) + len(self._moving)

    def is_full(self, batches: Sequence[Batch]) -> bool:
        """Whether batches have to be read later, because too many wait already."""
        return len(self._waiting) >= WAITING_MAX and (self.takes_failures or bool(expired_of(batches)))

    def taken_out(self, batches: Sequence[Batch]) -> Sequence[Batch]:
        """The batches without what has run out, which is moved."""
        runs = expired_of(batches)
        if not runs:
            return batches
        out = [self.without(batch, runs, moved=True) for batch in batches]
        self.go_on()
        return Fetched(out, passed_over(batches), attempts_of(batches), freshness=freshness_of(batches))

    def without(self, batch: Batch, runs: Iterable[tuple[int, int]], *, moved: bool) -> Batch:
        """A batch without these runs of offsets, which are `moved`, or dropped. What is lent waits until it is back."""
        skip = bytearray(batch.skip or bytes((batch.end - batch.first_offset + 7) // 8))
        dropped = []
        for begin, end in runs:
            for offset in range(max(begin, batch.begin), min(end, batch.end)):
                at, bit = divmod(offset - batch.first_offset, 8)
                if not skip[at] >> bit & 1:
                    skip[at] |= 1 << bit
                    if moved:
                        self.take((batch.source, offset), EXPIRED)
                    elif not self._state.table.is_outstanding(batch.source, offset):
                        dropped.append((offset, 1))
        if dropped:
            self._state.counts.run_out += len(dropped)
            self._drop(batch.source, encode_runs(dropped))
        return batch._replace(skip=bytes(skip))

    @property
    def moved(self) -> bool:
        """Whether what runs out here is moved."""
        record = self._state.record
        return record.options.dead_letter_expired and record.dead_letter is not None

    @property
    def takes_failures(self) -> bool:
        """Whether what rules fail at is moved."""
        record = self._state.record
        return record.options.dead_letter_rule_errors and record.dead_letter is not None

    def take(self, identity: Identity, reason: Reason) -> None:
        """Schedule a message to be moved by `go_on`, unless it is outstanding."""
        if identity not in self._moving and not self._state.table.is_outstanding(*identity):
            self._waiting[identity] = reason

    def go_on(self) -> None:
        """Move as many as may be at once."""
        if self._going_on:
            return  # one has ended in the same turn
        self._going_on = True
        try:
            while self._waiting and len(self._moving) < MOVED_AT_ONCE:
                identity = next(iter(self._waiting))
                reason = self._waiting.pop(identity)
                self._moving.add(identity)
                self._state.dead_letter(*identity, self._attempts.get(identity, 0), reason)
        finally:
            self._going_on = False

    def ended(self, identity: Identity) -> None:
        """Its letter is persisted, or it will be read again."""
        if identity in self._moving:
            self._moving.remove(identity)
            self.go_on()

    def forget_source(self, source: int) -> None:
        """Its grant is over: the next holder reads again what waits here."""
        self._waiting = {one: reason for one, reason in self._waiting.items() if one[0] != source}

    def close(self) -> None:
        """Nothing more is moved."""
        self._waiting.clear()
