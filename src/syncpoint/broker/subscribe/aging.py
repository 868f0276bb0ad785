"""Aging: what was read ahead and waits for room runs out while it does.

Place: beside `source_reader` and `redelivery`, whose batches are looked through again when something of them is due.
Promise: what runs out here is not lent any more: it is dropped, or moved to the dead-letter topic. Time is that of the
publish side plus what has passed here since, so a wrong clock here does nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from syncpoint.base.kernel import lifetimes
from syncpoint.base.model.delivery import Batch, Fetched, Freshness, attempts_of, freshness_of, passed_over
from syncpoint.base.model.lanes import lane_of
from syncpoint.broker.subscribe.expired_letters import ExpiredLetters
from syncpoint.broker.subscribe.shared_state import SharedState

_NEVER_NS = 1 << 63


class Aging:
    """Track expiry of waiting messages. `due`: when the next message expires, in monotonic seconds."""

    def __init__(self, state: SharedState, letters: ExpiredLetters) -> None:
        self.due = math.inf
        self._state, self._letters = state, letters
        self._freshness: Freshness | None = None
        self._as_of = 0.0  # seconds of the monotonic clock, to its time

    def note(self, batches: Sequence[Batch]) -> None:
        """An answer came, of which something may wait."""
        freshness = freshness_of(batches)
        if freshness is None:
            return
        now = self._state.now()
        self.due = min(self.due, now + max(0, freshness.soonest_ns - freshness.now_ns) / 1e9)
        known = self._freshness
        if known is None or freshness.now_ns - now * 1e9 <= known.now_ns - self._as_of * 1e9:
            self._freshness, self._as_of = freshness, now
        elif freshness.live_ns != known.live_ns:
            self._freshness = known._replace(live_ns=freshness.live_ns)

    def begin(self) -> None:
        """What waits is looked through from here on."""
        self.due = math.inf

    def aged(self, batches: Iterable[Batch]) -> list[Batch]:
        """Batches that wait, without what has run out by now."""
        freshness = self._freshness
        if freshness is None:
            return list(batches)
        now = self._state.now()
        now_ns = freshness.now_ns + int((now - self._as_of) * 1e9)
        out = []
        for batch in batches:
            ends_ns = batch.time_ns + freshness.live_ns if freshness.live_ns else _NEVER_NS
            if ends_ns <= now_ns:
                runs = [(batch.begin, batch.end)]
            else:
                runs, own_ns = _run_out(batch, now_ns)
                self.due = min(self.due, now + (min(ends_ns, own_ns) - now_ns) / 1e9)
            out.append(self._letters.without(batch, runs, moved=self._letters.moved) if runs else batch)
        self._letters.go_on()
        return out

    def judged(self, batches: Sequence[Batch]) -> Sequence[Batch]:
        """Batches that rules have changed: an action may have made a message's time to live shorter."""
        rules, freshness = self._state.rules, freshness_of(batches)
        if rules is None or freshness is None or all(one.judge is None for one in rules.values()):
            return batches
        out, soonest_ns = [], freshness.soonest_ns
        for batch in batches:
            lane = rules.get(lane_of(batch.begin))
            if lane is not None and lane.judge is not None:
                runs, own_ns = _run_out(batch, freshness.now_ns)
                soonest_ns = min(soonest_ns, own_ns)
                batch = self._letters.without(batch, runs, moved=self._letters.moved) if runs else batch
            out.append(batch)
        self._letters.go_on()
        freshness = freshness._replace(soonest_ns=soonest_ns)
        return Fetched(out, passed_over(batches), attempts_of(batches), freshness=freshness)


def _run_out(batch: Batch, now_ns: int) -> tuple[list[tuple[int, int]], int]:
    """The runs of a batch whose own times to live are over; and when the next one is."""
    found, shortest_ms = lifetimes.expired(batch.payload, max(0, now_ns - batch.time_ns) // 1_000_000)
    runs = [(batch.first_offset + begin, batch.first_offset + end) for begin, end in found]
    return runs, batch.time_ns + shortest_ms * 1_000_000 if shortest_ms else _NEVER_NS
