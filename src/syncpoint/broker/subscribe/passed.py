"""Passed over: messages that could not be read when it was their turn, and when to try them again.

Beside `delivery`. A damaged entry does not hold up what follows it; it may be repaired later, and is delivered
then. Nothing here is acknowledged, so nothing is lost when this is forgotten: a new cursor begins with the first gap.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from syncpoint.broker.subscribe.retry import OffsetRun

FIRST_S = 1.0
MOST_S = 60.0


@dataclass(slots=True)
class _Passed:
    run: OffsetRun
    at: float  # infinite while it is being tried
    delay: float


class PassedOver:
    """Runs of offsets, each with its time. Few: one for each entry that cannot be read."""

    def __init__(self) -> None:
        self._waiting: list[_Passed] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def answered(self, run: OffsetRun, passed: Iterable[tuple[int, int]], now: float) -> None:
        """A run was asked for, and these ranges of it could not be read: they are tried later, and more rarely every
        time. The rest of the run is no matter of this any more.
        """
        kept, delay = [], FIRST_S
        for one in self._waiting:
            known = one.run
            if known.source != run.source or known.end <= run.begin or run.end <= known.begin:
                kept.append(one)
                continue
            delay = max(delay, min(MOST_S, 2 * one.delay))
            if known.begin < run.begin:
                kept.append(_Passed(known._replace(end=run.begin), one.at, one.delay))
            if run.end < known.end:
                kept.append(_Passed(known._replace(begin=run.end), one.at, one.delay))
        for begin, end in passed:
            left = run._replace(begin=max(begin, run.begin), end=min(end, run.end))
            if left.begin < left.end:
                kept.append(_Passed(left, now + delay, delay))
        self._waiting = kept

    def take_due(self, now: float) -> list[OffsetRun]:
        """Runs whose time has come; each has to be `answered`."""
        due = [one for one in self._waiting if one.at <= now]
        for one in due:
            one.at = math.inf
        return [one.run for one in due]

    def forget_source(self, source: int) -> None:
        """Forget a source that will be read again, possibly by another forwarder."""
        self._waiting = [one for one in self._waiting if one.run.source != source]

    def clear(self) -> None:
        self._waiting.clear()
