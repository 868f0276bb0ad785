"""Clocks, passed as arguments: the system's, and one that tests move.

Place: handed to everything that measures or stamps. `monotonic` is for deadlines and leases, `time_ns` for what users
see (publish time, expiry); no correctness decision rests on the latter.
"""

from __future__ import annotations

import os
import time
from typing import Protocol

_PHASE_S = os.getpid() * 0.6180339887 % 1.0  # processes that were started together have their beats apart
_LEAST = 0.25  # of a period: a timer that fires a little early must not fire twice


def until_beat(now: float, seconds: float) -> float:
    """How long to pause at `now`, of the system's monotonic clock, where something is done about every `seconds`: until
    a moment at which this process does other things of that kind, too, so that it wakes up once for all of them.
    """
    rest = seconds - (now - _PHASE_S) % seconds
    return rest if rest > _LEAST * seconds else rest + seconds


class Clock(Protocol):
    """Two views of time."""

    def monotonic(self) -> float:
        """Seconds since some fixed point, never going back."""
        ...

    def time_ns(self) -> int:
        """Nanoseconds since 1970-01-01 UTC; may jump either way."""
        ...

    def pause_s(self, seconds: float) -> float:
        """How long to pause now where something is done about every `seconds`."""
        ...


class SystemClock:
    """The clocks of the operating system."""

    __slots__ = ()
    monotonic = staticmethod(time.monotonic)
    time_ns = staticmethod(time.time_ns)

    def pause_s(self, seconds: float) -> float:
        """Until the next beat of this process."""
        return until_beat(time.monotonic(), seconds)


class ManualClock:
    """A clock that moves only on request."""

    __slots__ = ("_monotonic_ns", "_time_ns")

    def __init__(self, time_ns: int = 1_700_000_000_000_000_000, monotonic: float = 1_000.0) -> None:
        self._time_ns = time_ns
        self._monotonic_ns = round(monotonic * 1e9)

    def monotonic(self) -> float:
        return self._monotonic_ns / 1e9

    def time_ns(self) -> int:
        return self._time_ns

    def pause_s(self, seconds: float) -> float:
        return seconds

    def advance(self, seconds: float) -> None:
        """Move both views forward. Raises `ValueError` for a negative step."""
        if seconds < 0:
            raise ValueError("time does not go back; use set_time_ns for a jump of the wall clock")
        step = round(seconds * 1e9)
        self._monotonic_ns += step
        self._time_ns += step

    def set_time_ns(self, time_ns: int) -> None:
        """Let the wall clock jump, as after a correction; the monotonic view stays."""
        self._time_ns = time_ns
