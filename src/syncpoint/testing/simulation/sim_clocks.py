"""Wall clocks of simulated processes: each machine has its own, which drifts, and jumps when somebody sets it wrong.

Place: what `runtime.clock.SystemClock` is to a process in production. Monotonic time is the simulation's: it is the
same for everybody and never jumps.
"""

from __future__ import annotations

from syncpoint.base.runtime.clock import Clock

DRIFT_MAX = 2e-4  # seconds a second, both ways: worse than any quartz


class MachineClock:
    """The clock of one machine, over all lives of the process on it."""

    __slots__ = ("_base", "_begun", "_drift", "off_ns")

    def __init__(self, base: Clock, drift: float = 0.0) -> None:
        self._base, self._drift, self._begun = base, drift, base.monotonic()
        self.off_ns = 0

    def monotonic(self) -> float:
        return self._base.monotonic()

    def time_ns(self) -> int:
        drifted = round((self._base.monotonic() - self._begun) * self._drift * 1e9)
        return self._base.time_ns() + drifted + self.off_ns
