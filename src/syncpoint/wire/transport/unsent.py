"""What a process holds for peers that do not take it, over all its connections.

Place: one for each process, handed to the servers it opens; connections report what waits in them.
Promise: when more waits than `limit_bytes`, connections are closed in the next turn of the event loop, the largest and
slowest first, until three quarters of it are left. A connection that takes what it asked for holds little, and is not
among them.
Leaves to the connection: closing itself. To whoever makes answers: making few of them in one turn (see `fair`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

log = logging.getLogger("syncpoint.wire.transport")


class UnsentHolder(Protocol):
    """A connection. `held`: bytes it last reported; `stuck_since`: when bytes that wait last moved."""

    loop: asyncio.AbstractEventLoop
    held: int
    stuck_since: float

    def report_held(self) -> None:
        """Report how much waits now."""
        ...

    def shed(self) -> None:
        """Close, and forget what waits."""
        ...


class Unsent:
    """A budget of bytes that wait. `used`: how many there are; `shed`: connections closed for it."""

    __slots__ = ("_booked", "_holders", "limit_bytes", "shed", "used")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used = 0
        self.shed = 0
        self._holders: set[UnsentHolder] = set()
        self._booked = False

    def changed(self, holder: UnsentHolder, held: int) -> None:
        """`held` bytes wait in a connection now. It is closed later, never within this call."""
        self.used += held - holder.held
        holder.held = held
        if held:
            self._holders.add(holder)
        else:
            self._holders.discard(holder)
        if self.used > self.limit_bytes and not self._booked:
            self._booked = True
            holder.loop.call_soon(self._relieve, holder.loop)

    def _relieve(self, loop: asyncio.AbstractEventLoop) -> None:
        self._booked = False
        for holder in list(self._holders):
            holder.report_held()
        if self.used <= self.limit_bytes:
            return
        now = loop.time()
        before, closed = self.used, 0
        # Twice as long without any progress weighs as much as twice the bytes.
        worst = sorted(self._holders, key=lambda one: one.held * (1.0 + now - one.stuck_since), reverse=True)
        for holder in worst:
            if self.used <= self.limit_bytes * 3 // 4:
                break
            holder.shed()
            closed += 1
        self.shed += closed
        log.warning(
            "transport: %d connections were closed: %d bytes waited for readers, %d may (%d are left)",
            closed, before, self.limit_bytes, self.used,
        )  # fmt: skip
