"""Retry: when a message that was nacked, or whose lease ran out, is offered again.

Without a retry policy at once; with one after min(maximum, minimum * 2**(attempt-1)) seconds, per message. Deliveries
are counted only for subscriptions with a retry or a dead-letter policy, and only for messages that came back:
everything else is in its first delivery.
"""

import heapq
from collections.abc import Iterator
from typing import NamedTuple

from syncpoint.base.kernel.acks import decode_runs
from syncpoint.base.model.delivery import AttemptRun
from syncpoint.catalog.metadata.records import Retry

RUN_MAX = 256


class OffsetRun(NamedTuple):
    """Consecutive offsets of one source to be delivered again, all in the same attempt."""

    source: int
    begin: int
    end: int
    attempt: int


def rest_s(policy: Retry | None, attempts: int) -> float:
    """How long a message rests after this many deliveries."""
    return min(policy.max_s, policy.min_s * 2.0 ** min(attempts - 1, 60)) if policy and attempts else 0.0


def note_run(runs: list[AttemptRun], offset: int, count: int, rest_ms: int) -> None:
    """Add an offset, which rises, to runs of the same count and rest."""
    if runs and runs[-1].end == offset and runs[-1][2:] == (count, rest_ms):
        runs[-1] = runs[-1]._replace(end=offset + 1)
    else:
        runs.append(AttemptRun(offset, offset + 1, count, rest_ms))


class Redelivery:
    """Messages waiting for their next delivery, due ones in publish order."""

    def __init__(self) -> None:
        self.due: list[tuple[int, int]] = []  # heap of (source, offset); empty: nothing is due
        self._later: list[tuple[float, int, int]] = []  # heap of (time, source, offset)
        self.waiting: set[tuple[int, int]] = set()
        self.attempts: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self.waiting)

    def add(self, source: int, offset: int, *, at: float | None = None) -> None:
        """Offer it again now, or at a time (seconds of the monotonic clock)."""
        if (source, offset) in self.waiting:
            return
        self.waiting.add((source, offset))
        if at is None:
            heapq.heappush(self.due, (source, offset))
        else:
            heapq.heappush(self._later, (at, source, offset))

    def discard(self, source: int, offset: int) -> None:
        """Drop a message that was acknowledged, or moved to an ordering queue."""
        self.waiting.discard((source, offset))
        self.attempts.pop((source, offset), None)

    def forget_acked(self, source: int, runs: bytes) -> None:
        """Acknowledged offsets need no count and no redelivery."""
        for begin, length in decode_runs(runs):
            if length > len(self.attempts) + len(self.waiting):
                for key in [
                    k for k in (*self.attempts, *self.waiting) if k[0] == source and begin <= k[1] < begin + length
                ]:
                    self.discard(*key)
            else:
                for offset in range(begin, begin + length):
                    self.discard(source, offset)

    def forget_source(self, source: int) -> None:
        """Somebody else delivers from it."""
        for key in [k for k in {*self.attempts, *self.waiting} if k[0] == source]:
            self.discard(*key)

    def wake(self, now: float) -> None:
        """What waited for a time up to `now` is due."""
        while self._later and self._later[0][0] <= now:
            _, source, offset = heapq.heappop(self._later)
            if (source, offset) in self.waiting:
                heapq.heappush(self.due, (source, offset))

    def next_time(self) -> float | None:
        return self._later[0][0] if self._later else None

    def count(self, source: int, offset: int) -> int:
        """How many deliveries it has had, when it comes back from one."""
        n = self.attempts.get((source, offset), 0) + 1
        self.attempts[source, offset] = n
        return n

    def take_due(self, limit: int) -> Iterator[OffsetRun]:
        """Runs of due messages, at most `limit` messages in all. They leave the queue."""
        while self.due and limit > 0:
            source, begin = heapq.heappop(self.due)
            if (source, begin) not in self.waiting:
                continue
            self.waiting.discard((source, begin))
            attempt, end = self.attempts.get((source, begin), 0), begin + 1
            while (
                self.due
                and self.due[0] == (source, end)
                and end - begin < min(limit, RUN_MAX)
                and self.attempts.get((source, end), 0) == attempt
            ):
                heapq.heappop(self.due)
                if (source, end) not in self.waiting:
                    break
                self.waiting.discard((source, end))
                end += 1
            limit -= end - begin
            yield OffsetRun(source, begin, end, attempt + 1)
