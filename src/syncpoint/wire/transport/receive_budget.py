"""Bounds the memory of unfinished messages: on one connection, and over all that share counters.

Place: asked by a connection's streams while a message larger than their window comes in.
Promise: beyond its streams' windows a connection lets in `limits.receive_extra_bytes`, first come, first served; one
message is always let in, so nothing waits for ever. Above `limits.held_bytes` over all connections the growing call
fails.
Leaves to the streams: reporting the peer of window they were given.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.wire.transport.caller_shares import Holding
from syncpoint.wire.transport.limits import TransportLimits


class Counters:
    """What the connections of one server or channel share: counters, and the bytes held in unfinished messages."""

    __slots__ = ("accepted", "calls", "faults", "held", "read_bytes", "refused", "written_bytes")

    def __init__(self) -> None:
        self.accepted = 0
        self.read_bytes = self.written_bytes = 0  # of connections that are closed
        self.calls = 0
        self.faults = 0
        self.refused = 0
        self.held = 0


class ReceivingStream(Protocol):
    """What the budget asks of a stream. `extra`: the window it was given beyond its own."""

    extra: int

    @property
    def done(self) -> bool:
        """Nothing more comes in."""

    @property
    def partial(self) -> bool:
        """A message is in the middle of coming in."""

    def refill(self) -> None:
        """Report the peer of the window it has now."""


class ReceiveBudget:
    """What unfinished messages of one connection may take. `lent`: window given beyond that of the streams."""

    __slots__ = ("_counters", "_limits", "_queue", "holding", "lent")

    def __init__(self, limits: TransportLimits, counters: Counters) -> None:
        self._limits = limits
        self._counters = counters
        self.lent = 0
        self.holding: Holding | None = None
        """What it holds of its caller's share; None: callers have none."""
        self._queue: deque[tuple[ReceivingStream, int]] = deque()

    def hold(self, more: int) -> None:
        """Count bytes of unfinished messages. Raises SyncpointError above `limits.held_bytes`, and above what its
        caller may hold."""
        self._counters.held += more
        if self.holding is not None:
            self.holding.hold(more)
        if more > 0 and self._counters.held > self._limits.held_bytes:
            raise SyncpointError(
                Code.RESOURCE_EXHAUSTED, "Too much unfinished data is being received. Retry with backoff."
            )

    def ask(self, stream: ReceivingStream, extra: int) -> None:
        """Give a stream window for a large message, now or when others are done."""
        if not self._queue and self._fits(extra - stream.extra):
            self._lend(stream, extra)
        elif all(waiting is not stream for waiting, _ in self._queue):
            self._queue.append((stream, extra))

    def give_back(self, stream: ReceivingStream) -> None:
        """Take back the window of a stream whose large message is complete, or which is closed."""
        self.lent -= stream.extra
        stream.extra = 0
        queue = self._queue
        while queue:
            waiting, extra = queue[0]
            if waiting.done or not waiting.partial:
                queue.popleft()
            elif self._fits(extra - waiting.extra):
                queue.popleft()
                self._lend(waiting, extra)
            else:
                return

    def close(self) -> None:
        """Nobody is given anything any more."""
        self._queue.clear()

    def _fits(self, more: int) -> bool:
        return not self.lent or self.lent + more <= self._limits.receive_extra_bytes

    def _lend(self, stream: ReceivingStream, extra: int) -> None:
        self.lent += extra - stream.extra
        stream.extra = extra
        stream.refill()
