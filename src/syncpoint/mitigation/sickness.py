"""Sickness: whether a process is to be taken out of service, by what it reports of itself every other second.

Place: one `ProcessHealth` for each member, held by `mitigator`. Plain values in, a verdict out.
Promise: a single late report is no sickness, and a single good one no recovery: so many of the newest looks must be
bad, or all looks of the probation good.
"""

from __future__ import annotations

from collections import deque
from enum import StrEnum
from typing import NamedTuple


class SicknessLimits(NamedTuple):
    """A look is bad when the event loop was late by `loop_lag_s`. `bad_looks` within `window_s` make a process sick; it
    is well again after `probation_s` without a bad one.
    """

    loop_lag_s: float = 0.5
    bad_looks: int = 3
    window_s: float = 30.0
    probation_s: float = 60.0


class HealthVerdict(StrEnum):
    """What a process is."""

    WELL = "well"
    SUSPECT = "suspect"  # some bad looks, too few to act
    SICK = "sick"
    RECOVERING = "recovering"  # was sick, and has not been well for long enough


class ProcessHealth:
    """The newest looks at one process. All times are monotonic seconds."""

    def __init__(self, limits: SicknessLimits) -> None:
        self._limits = limits
        self._bad: deque[tuple[float, float]] = deque(maxlen=100)  # when, and how late the loop was
        self._sick_until: float | None = None

    def note(self, now: float, loop_lag_s: float) -> None:
        """Take in a report."""
        if loop_lag_s < self._limits.loop_lag_s:
            return
        self._bad.append((now, loop_lag_s))
        if self._sick_until is not None or self._count(now) >= self._limits.bad_looks:
            self._sick_until = now + self._limits.probation_s

    def begin_sick(self, now: float) -> None:
        """It was drained for sickness: its probation begins now, unless it has begun."""
        if self._sick_until is None:
            self._sick_until = now + self._limits.probation_s

    def verdict(self, now: float) -> HealthVerdict:
        """What it is now."""
        if self._sick_until is not None and now >= self._sick_until:
            self._sick_until = None
            self._bad.clear()
        if self._sick_until is not None:
            enough = self._count(now) >= self._limits.bad_looks
            return HealthVerdict.SICK if enough else HealthVerdict.RECOVERING
        return HealthVerdict.SUSPECT if self._count(now) else HealthVerdict.WELL

    def reason(self, now: float) -> str:
        """What is wrong, in words."""
        worst = max((lag_s for _, lag_s in self._bad), default=0.0)
        return (
            f"its event loop was late {self._count(now)} times in {self._limits.window_s:g} s, by up to {worst:.1f} s"
        )

    def _count(self, now: float) -> int:
        return sum(at > now - self._limits.window_s for at, _ in self._bad)
