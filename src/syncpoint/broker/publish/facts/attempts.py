"""DeliveryAttempts: how often messages came back undone, and how long they have to rest. Kept beside the ledgers.

Only subscriptions with a dead letter or a retry policy have any: a subscribe forwarder notes what came back to it, in
batches; the next reader of such messages is informed. So counts and rests outlive restarts, adoption, moves of a
source. Notes are written within WRITE_S, those of a source that were made in the meantime in one entry, and
nobody waits for them; a crash loses at most those. A count only grows within a seek generation, so notes may be applied
in any order and more than once. What was acknowledged is left out of the next checkpoint.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from syncpoint.base.kernel.acks import AckSet
from syncpoint.base.model.delivery import AttemptRun
from syncpoint.base.model.errors import Unavailable
from syncpoint.base.model.limits import RETRY_BACKOFF_SECONDS_MAX
from syncpoint.base.runtime.clock import Clock
from syncpoint.broker.publish.facts.ledger import Ledger
from syncpoint.broker.publish.facts.message_facts import FactLog, MessageFacts
from syncpoint.broker.publish.facts.records import ExtensionNumber
from syncpoint.broker.publish.facts.source import Source

WRITE_S = 0.5
RUNS_MAX = 100_000  # of one source of one subscription; what comes back beyond that is counted anew after a restart
REST_MS_MAX = int(1_000 * RETRY_BACKOFF_SECONDS_MAX)
_HEAD = struct.Struct("<QIQ")  # subscription, generation, source
_RUN = struct.Struct("<QQIQ")  # begin, end, count, not before (ms of the wall clock)
_Key = tuple[int, int]
_Attempts = tuple[_Key, int, list[AttemptRun]]  # of a generation; rests end at a time of the wall clock


def _left(rest_ms: int) -> int:
    """What is left of a rest; one that no policy allows was dated by a clock that was wrong, and is over."""
    return rest_ms if 0 < rest_ms <= REST_MS_MAX + 1000 else 0


class DeliveryAttempts(MessageFacts[_Attempts]):
    """Count delivery attempts of messages, persistently. `later(seconds, act)` calls `act` after a delay."""

    number = ExtensionNumber.ATTEMPTS
    counts = False
    part = 1

    def __init__(
        self,
        log: FactLog,
        ledgers: Mapping[int, Ledger],
        sources: Container[int],
        clock: Clock,
        later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        super().__init__(log)
        self._ledgers, self._sources, self._clock, self._later = ledgers, sources, clock, later
        self.known: dict[_Key, tuple[int, list[AttemptRun]]] = {}  # by subscription, source: generation, runs
        self._new: dict[tuple[_Key, int], list[AttemptRun]] = {}  # by generation, too

    def came_back(self, subscription: int, generation: int, source: int, runs: Iterable[AttemptRun]) -> None:
        """Messages came back: `rest_ms` of each run counts from now."""
        ledger = self._ledgers.get(subscription)
        if ledger is None or source not in self._sources:
            return
        now = self._clock.time_ns() // 1_000_000
        dated = sorted(one._replace(rest_ms=now + one.rest_ms if one.rest_ms else 0) for one in runs)
        key = subscription, source
        self.apply((key, generation, dated))
        if not self._new:
            self._later(WRITE_S, self._write)
        self._new.setdefault((key, generation), []).extend(dated)

    def of(self, subscription: int, source: int, begin: int, end: int) -> list[AttemptRun]:
        """What is known of messages in `[begin, end)`; their rests count from now."""
        generation, runs = self.known.get((subscription, source), (0, ()))
        ledger = self._ledgers.get(subscription)
        if not runs or ledger is None or ledger.generation != generation:
            return []
        now = self._clock.time_ns() // 1_000_000
        return [
            AttemptRun(max(begin, one.begin), min(end, one.end), one.times, _left(one.rest_ms - now))
            for one in runs[slice(*_window(runs, begin, end))]
            if one.begin < end and begin < one.end
        ]

    def apply(self, fact: _Attempts) -> None:
        key, generation, runs = fact
        known, before = self.known.get(key, (generation, []))
        if generation < known:
            return
        if generation == known and before:
            _add(before, runs)
            del before[:-RUNS_MAX]
        else:
            self.known[key] = generation, _merged([], runs)[-RUNS_MAX:]

    def _write(self) -> None:
        new, self._new = self._new, {}
        for (key, generation), runs in new.items():
            if key in self.known:
                with suppress(Unavailable):  # the log has ended
                    self.write(self.encode([(key, generation, _merged([], runs))]))

    # -- facts -------------------------------------------------------------------------------------------------------

    @classmethod
    def encode(cls, facts: Sequence[_Attempts]) -> bytes:
        """One at a time."""
        (((subscription, source), generation, runs),) = facts
        return _HEAD.pack(subscription, generation, source) + b"".join(_RUN.pack(*one) for one in runs)

    @classmethod
    def decode(cls, rows: bytes) -> Iterable[_Attempts]:
        subscription, generation, source = _HEAD.unpack_from(rows)
        runs = [AttemptRun(*one) for one in _RUN.iter_unpack(rows[_HEAD.size :])]
        return (((subscription, source), generation, runs),)

    def kept(self) -> Iterator[_Attempts]:
        for key in list(self.known):
            found, ledger = self.known.get(key), self._ledgers.get(key[0])
            if found is None:
                continue
            generation, runs = found
            left: list[AttemptRun] = []
            if ledger is not None and ledger.generation == generation and key[1] in self._sources:
                left = _unacknowledged(runs, ledger.acks.get(key[1]))
            if left:
                self.known[key] = generation, left
                yield key, generation, left
            else:
                del self.known[key]

    def forgotten(self, source: Source) -> None:
        for key in [key for key in self.known if key[1] == source.number]:
            del self.known[key]


def _unacknowledged(runs: list[AttemptRun], acks: AckSet | None) -> list[AttemptRun]:
    """The runs of which something is left, each from its first such offset on."""
    if acks is None:
        return runs
    begun = (one._replace(begin=acks.first_gap(one.begin)) for one in runs)
    return [one for one in begun if one.begin < one.end]


def _window(runs: Sequence[AttemptRun], begin: int, end: int) -> tuple[int, int]:
    """Where runs that `[begin, end)` overlaps or touches begin and end, among runs in order."""
    low = bisect_left(runs, (begin,))
    if low and runs[low - 1].end >= begin:
        low -= 1
    return low, bisect_left(runs, (end + 1,), low)


def _add(runs: list[AttemptRun], more: Iterable[AttemptRun]) -> None:
    """Merge some into runs in order, at the cost of those they meet: each thing that comes back adds a few to many."""
    for one in more:
        low, high = _window(runs, one.begin, one.end)
        runs[low:high] = _merged(runs[low:high], [one])


def _merged(one: list[AttemptRun], other: list[AttemptRun]) -> list[AttemptRun]:
    """Both, without overlaps: of two counts of an offset the higher one, with its rest."""
    edges = sorted({edge for run in (*one, *other) for edge in run[:2]})
    best: dict[int, tuple[int, int]] = {}
    at = {edge: place for place, edge in enumerate(edges)}
    for run in (*one, *other):
        for place in range(at[run.begin], at[run.end]):
            best[place] = max(best.get(place, (0, 0)), run[2:])
    merged: list[AttemptRun] = []
    for place in sorted(best):
        run = AttemptRun(edges[place], edges[place + 1], *best[place])
        if merged and merged[-1].end == run.begin and merged[-1][2:] == run[2:]:
            merged[-1] = merged[-1]._replace(end=run.end)
        else:
            merged.append(run)
    return merged
