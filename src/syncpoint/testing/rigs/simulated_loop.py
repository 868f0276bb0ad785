"""An event loop whose time passes only when nothing else is left to do.

Place: under simulations and tests of what waits: a pull of 25 seconds takes microseconds, and always ends the same.
Promise: `time` is the monotonic view of the clock it was given, which the rest of the simulation shares; timers run in
their order. Leaves out: threads and real sockets, which have a time of their own.
"""

import asyncio
import contextvars
import heapq
from collections.abc import Coroutine
from typing import Any, TypeVar, cast

from syncpoint.base.runtime.clock import ManualClock

_T = TypeVar("_T")
CLOCK_STEP_S = 1e-9  # of `ManualClock`: whoever waits for less waits so long, or time would stand still


class NothingToWaitFor(RuntimeError):
    """Everything waits and no timer is set: it would wait for ever."""


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop whose time advances only when no other work is left."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        super().__init__()

    def time(self) -> float:
        return self.clock.monotonic()

    def _run_once(self) -> None:
        """As asyncio does, but it asks the system only where there are sockets: nothing else comes from outside."""
        self._become_due()
        ready = cast(Any, self)._ready
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _become_due(self) -> None:
        """Make ready what is due, after waiting for the next timer where nothing is ready."""
        inner: Any = self
        scheduled, ready = inner._scheduled, inner._ready
        while scheduled and scheduled[0][1]._cancelled:
            heapq.heappop(scheduled)[1]._scheduled = False
        if len(inner._selector.get_map()) > 1:  # more than what wakes a loop: pairs of sockets within this process
            inner._process_events(inner._selector.select(0))
        now = self.clock.monotonic()
        if not ready and not inner._stopping:
            if not scheduled:
                raise NothingToWaitFor("everything waits, and no timer is set")
            wait_s = scheduled[0][0] - now
            if wait_s > 0:
                self.clock.advance(max(wait_s, CLOCK_STEP_S))
                now = self.clock.monotonic()
        end = now + inner._clock_resolution
        while scheduled and scheduled[0][0] < end:
            handle = heapq.heappop(scheduled)[1]
            handle._scheduled = False
            ready.append(handle)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Timers lie in the heap beside their times: numbers are compared faster than handles."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(cast(Any, self)._scheduled, (when, timer))
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer


def run_simulated(clock: ManualClock, work: Coroutine[Any, Any, _T]) -> _T:
    """Run `work` on a loop of its own in the time of `clock`."""
    with asyncio.Runner(loop_factory=lambda: SimulatedLoop(clock)) as runner:
        return runner.run(work)
