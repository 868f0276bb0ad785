"""Sickness: whether a process is to be taken out of service, by what it and owners of chains on its disks report.

Place: one `ProcessHealth` for each member, held by `mitigator`. Plain values in, every other second; a verdict out.
Promise: a single late report is no sickness, and a single good one no recovery: so many of the newest looks must be
bad, or all looks of the probation good.
"""

from __future__ import annotations

from collections import deque
from enum import StrEnum
from typing import Final, NamedTuple


class SicknessLimits(NamedTuple):
    """A look is bad when the event loop was late by `loop_lag_s`, when `errors_share` of at least `calls_min` calls
    ended by a fault of the process and not of most of its peers, or when 1 in 100 syncs of its disks took `disk_p99_s`
    or longer, and much longer than those of others. `bad_looks` within `window_s` make a process sick; it is well again
    after `probation_s` without a bad one, which doubles with each relapse.
    """

    loop_lag_s: float = 0.5
    bad_looks: int = 3
    window_s: float = 30.0
    probation_s: float = 60.0
    errors_share: float = 0.2
    calls_min: int = 20
    disk_p99_s: float = 0.25


class HealthVerdict(StrEnum):
    """What a process is."""

    WELL = "well"
    SUSPECT = "suspect"  # some bad looks, too few to act
    SICK = "sick"
    RECOVERING = "recovering"  # was sick, and has not been well for long enough


class BadLook(NamedTuple):
    """What was wrong at a look. `cause`: in a word, as `trouble.TroubleCause`."""

    at: float
    cause: str
    size: float


_WORDS: Final = {
    "late event loop": "its event loop was late {times} times in {window:g} s, by up to {size:.1f} s",
    "errors": "its calls failed, and not those of its peers, {times} times in {window:g} s, up to {size:.0%} of them",
    "slow disk": "its disks were slower than others {times} times in {window:g} s, 1 sync in 100 took up to {size:g} s",
    "failing disk": "a disk of it was given up or did not answer {times} times in {window:g} s",
}
RELAPSE_S: Final = 600.0  # sick again so soon after it was well: a relapse
TIMES_MAX: Final = 8


class ProcessHealth:
    """The newest looks at one process. All times are monotonic seconds."""

    def __init__(self, limits: SicknessLimits) -> None:
        self._limits = limits
        self._bad: deque[BadLook] = deque(maxlen=100)
        self._sick_until: float | None = None
        self._well_since: float | None = None  # since its last sickness
        self._times = 1  # how many probations long the next one is

    def note(self, now: float, cause: str, size: float) -> None:
        """A look at which something was wrong."""
        self._bad.append(BadLook(now, cause, size))
        if self._sick_until is not None or self._count(now) >= self._limits.bad_looks:
            self._begin(now)

    def begin_sick(self, now: float) -> None:
        """Start probation of a process that was drained for sickness, unless probation has begun."""
        if self._sick_until is None:
            self._begin(now)

    def _begin(self, now: float) -> None:
        if self._sick_until is None:
            relapsed = self._well_since is not None and now - self._well_since < RELAPSE_S
            self._times = min(2 * self._times, TIMES_MAX) if relapsed else 1
        self._sick_until = now + self.probation_s

    @property
    def probation_s(self) -> float:
        """For how long nothing must be wrong."""
        return self._times * self._limits.probation_s

    def verdict(self, now: float) -> HealthVerdict:
        """What it is now."""
        if self._sick_until is not None and now >= self._sick_until:
            self._well_since, self._sick_until = self._sick_until, None
            self._bad.clear()
        if self._sick_until is not None:
            enough = self._count(now) >= self._limits.bad_looks
            return HealthVerdict.SICK if enough else HealthVerdict.RECOVERING
        return HealthVerdict.SUSPECT if self._count(now) else HealthVerdict.WELL

    def cause(self, now: float) -> str:
        """What was wrong most often; the newest of several."""
        causes = [one.cause for one in self._newest(now)]
        return max(reversed(causes), key=causes.count, default="")

    def reason(self, now: float) -> str:
        """What is wrong, in words."""
        cause = self.cause(now)
        sizes = [one.size for one in self._newest(now) if one.cause == cause]
        words = _WORDS.get(cause, "")
        return words.format(times=len(sizes), window=self._limits.window_s, size=max(sizes, default=0.0))

    def _newest(self, now: float) -> list[BadLook]:
        return [one for one in self._bad if one.at > now - self._limits.window_s]

    def _count(self, now: float) -> int:
        return len(self._newest(now))
