"""An event loop whose time passes only when nothing else is left to do.

Place: under simulations and tests of what waits: a pull of 25 seconds takes microseconds, and always ends the same.
Promise: `time` is the monotonic view of the clock it was given, which the rest of the simulation shares; timers run in
their order. Leaves out: threads and real sockets, which have a time of their own.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

from syncpoint.base.runtime.clock import ManualClock

_T = TypeVar("_T")
CLOCK_STEP_S = 1e-9  # of `ManualClock`: whoever waits for less waits so long, or time would stand still


class NothingToWaitFor(RuntimeError):
    """Everything waits and no timer is set: it would wait for ever."""


class _Selector(selectors.SelectSelector):
    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise NothingToWaitFor("everything waits, and no timer is set")
            self._clock.advance(0.0 if timeout <= 0 else max(timeout, CLOCK_STEP_S))
        return ready


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop whose time advances only when no other work is left."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        super().__init__(_Selector(clock))

    def time(self) -> float:
        return self.clock.monotonic()


def run_simulated(clock: ManualClock, work: Coroutine[Any, Any, _T]) -> _T:
    """Run `work` on a loop of its own in the time of `clock`."""
    with asyncio.Runner(loop_factory=lambda: SimulatedLoop(clock)) as runner:
        return runner.run(work)
