"""Decides by the clock whether a connection is still worth keeping: greeting, progress, keep-alive.

Place: asked by the connection at every sweep, once a second; frames themselves cost no look at the clock.
Promise: each bound of time in `limits` that concerns a whole connection is enforced within one sweep of it.
Leaves to the connection: sending the PING, and closing. To `server_connection`: deadlines of calls, and draining.
"""

from __future__ import annotations

from typing import NamedTuple

from syncpoint.wire.transport.frames import ErrorCode
from syncpoint.wire.transport.limits import TransportLimits


class Overdue(NamedTuple):
    """Why a connection is closed. `abort`: its socket takes nothing any more, not even the reason."""

    code: ErrorCode
    reason: str
    abort: bool = False


class Liveness:
    """Times of one connection. `greeted`: the peer's first SETTINGS came; `started_at`: since when they may come."""

    __slots__ = ("_greeting_s", "_limits", "_partial_since", "_pinged", "_silent_since", "greeted", "started_at")

    def __init__(self, limits: TransportLimits, greeting_s: float, now: float) -> None:
        self._limits = limits
        self._greeting_s = greeting_s
        self.greeted = False
        self.started_at = now
        self._partial_since: float | None = None
        self._silent_since = now
        self._pinged = False

    def overdue(self, now: float, *, partial: bool, progressed: bool, full_since: float | None) -> Overdue | None:
        """Whether the peer took too long to greet us, to end a frame or header block, or to read.

        `partial`: a frame or block began and is not whole; `progressed`: another one was, since the last sweep.
        """
        if not self.greeted and now - self.started_at > self._greeting_s:
            return Overdue(ErrorCode.SETTINGS_TIMEOUT, "handshake took too long")
        if not partial:
            self._partial_since = None
        elif progressed or self._partial_since is None:
            self._partial_since = now
        elif now - self._partial_since > self._limits.frame_s:
            return Overdue(ErrorCode.ENHANCE_YOUR_CALM, "frame took too long")
        if full_since is not None and now - full_since > self._limits.stall_s:
            return Overdue(ErrorCode.ENHANCE_YOUR_CALM, "does not read", abort=True)
        return None

    def keep_alive(self, now: float, *, received: bool) -> bool | Overdue:
        """Whether a PING is due, or why the connection counts as dead. `received`: bytes came since the last sweep."""
        limits = self._limits
        if received:
            self._pinged = False
            self._silent_since = now
        elif limits.keepalive_s and not self._pinged and now - self._silent_since >= limits.keepalive_s:
            self._pinged = True
            self._silent_since = now
            return True
        elif self._pinged and now - self._silent_since >= limits.keepalive_answer_s:
            return Overdue(ErrorCode.NO_ERROR, "keep-alive ping not answered", abort=True)
        return False
