"""The pauses of a loop that ticks: short ones while there is something to do, long ones at rest.

Place: under loops that look at everything ten times a second, which nobody needs of a process at rest.
Promise: a loop at rest ticks at once when it is stirred.
"""

from __future__ import annotations

import asyncio

from syncpoint.base.runtime.clock import Clock


class Ticks:
    """Every `busy_s`, and at rest every `rest_s`."""

    def __init__(self, clock: Clock, busy_s: float, rest_s: float) -> None:
        self._clock, self._busy_s, self._rest_s = clock, busy_s, rest_s
        self._resting: asyncio.Future[None] | None = None
        self._stirred = False

    async def pause(self, *, busy: bool) -> None:
        """Wait for the next tick. `busy`: something is to be done that cannot wait longer than usual."""
        if busy or self._stirred:
            self._stirred = False
            await asyncio.sleep(self._clock.pause_s(self._busy_s))
            return
        loop = asyncio.get_running_loop()
        self._resting = loop.create_future()
        timer = loop.call_later(self._clock.pause_s(self._rest_s), self._wake)
        try:
            await self._resting
        finally:
            timer.cancel()
            self._resting = None

    def stir(self) -> None:
        """Something has come that cannot wait."""
        self._stirred = True
        self._wake()

    def _wake(self) -> None:
        if self._resting is not None and not self._resting.done():
            self._resting.set_result(None)
