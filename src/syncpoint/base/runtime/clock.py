"""Clocks, passed as arguments: the system's, and one that tests move.

Place: handed to everything that measures or stamps. `monotonic` is for deadlines and leases, `time_ns` for what users
see (publish time, expiry); no correctness decision rests on the latter.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two views of time."""

    def monotonic(self) -> float:
        """Seconds since some fixed point, never going back."""
        ...

    def time_ns(self) -> int:
        """Nanoseconds since 1970-01-01 UTC; may jump either way."""
        ...


class SystemClock:
    """The clocks of the operating system."""

    __slots__ = ()

    def monotonic(self) -> float:
        return time.monotonic()

    def time_ns(self) -> int:
        return time.time_ns()


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
