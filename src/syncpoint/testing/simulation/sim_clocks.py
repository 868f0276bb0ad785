"""Wall clocks of simulated processes: each machine has its own, which drifts, and jumps when somebody sets it wrong.

Place: what `runtime.clock.SystemClock` is to a process in production. Monotonic time is the simulation's: it is the
same for everybody and never jumps.
"""

from __future__ import annotations

from collections.abc import Iterable

from syncpoint.base.runtime.clock import Clock

DRIFT_MAX = 2e-4  # seconds a second, both ways: worse than any quartz


class MachineClock:
    """The clock of one machine, over all lives of the process on it."""

    __slots__ = ("_base", "_begun", "_drift", "_off_ns", "_set")

    def __init__(self, base: Clock, drift: float = 0.0) -> None:
        self._base, self._drift, self._begun = base, drift, base.monotonic()
        self._off_ns = 0
        self._set: list[tuple[int, int]] = []  # when, and by how much wrong

    @property
    def off_ns(self) -> int:
        """By how much somebody has set it wrong."""
        return self._off_ns

    @off_ns.setter
    def off_ns(self, wrong_ns: int) -> None:
        self._off_ns = wrong_ns
        self._set.append((self._base.time_ns(), wrong_ns))

    def led_ns(self, until_ns: int) -> int:
        """By how much it was ahead at most until a time."""
        return max((wrong_ns for at_ns, wrong_ns in self._set if at_ns <= until_ns), default=0)

    def monotonic(self) -> float:
        return self._base.monotonic()

    def pause_s(self, seconds: float) -> float:
        return seconds

    def time_ns(self) -> int:
        drifted = round((self._base.monotonic() - self._begun) * self._drift * 1e9)
        return self._base.time_ns() + drifted + self._off_ns


def most_led_ns(clocks: Iterable[MachineClock], until_ns: int) -> int:
    """By how much most of the machines were ahead, each at some time until then. A majority is believed, so
    nothing that is due by less than that can be expected to wait.
    """
    led = sorted((max(0, one.led_ns(until_ns)) for one in clocks), reverse=True)
    return led[len(led) // 2] if led else 0
