"""Calls to other processes that can be cancelled in favour of another place while they are underway.

Place: under `publisher` and `unary_relay`. A call hangs when the process at the other end does; whatever learns that
this process is suspected, or that another one is responsible now, moves what waits there.
"""

from __future__ import annotations

import asyncio

from syncpoint.base.model.errors import Code, Unavailable
from syncpoint.cluster.control.peer_channels import PeerChannels
from syncpoint.front.proxy.failure_detector import FailureDetector
from syncpoint.wire.transport.client import MetadataItems
from syncpoint.wire.transport.stream_state import Message

MOVABLE = frozenset(
    {Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED, Code.CANCELLED, Code.UNKNOWN, Code.INTERNAL, Code.ABORTED}
)
"""Failures of the way or of the other end; what became of the call is unknown."""


class CancellableCall:
    """What is tried. `address`: where it is right now, None between two attempts."""

    __slots__ = ("address", "moved", "task")

    def __init__(self) -> None:
        self.address: str | None = None
        self.moved = False
        self.task: asyncio.Task[object] | None = None

    def move(self) -> None:
        """Give up the attempt that is underway; its caller receives `Unavailable` and tries elsewhere."""
        if self.address is not None and self.task is not None and not self.moved:
            self.moved = True
            self.task.cancel()


class CancellableCalls:
    """Everything underway. `moved` counts."""

    def __init__(self, peers: PeerChannels, detector: FailureDetector) -> None:
        self.peers, self.detector = peers, detector
        self.underway: dict[CancellableCall, None] = {}
        self.moved = 0

    async def call(
        self,
        attempt: CancellableCall,
        address: str,
        path: str,
        message: Message,
        timeout_s: float,
        metadata: MetadataItems = (),
    ) -> bytes:
        """One unary call, by the task that runs now. Raises `SyncpointError`."""
        attempt.task = asyncio.current_task()
        attempt.address = address
        self.underway[attempt] = None
        self.detector.wait(address, attempt)
        try:
            return await self.peers.channel(address).unary(path, message, metadata=metadata, timeout=timeout_s)
        except asyncio.CancelledError:
            if not attempt.moved or attempt.task is None:
                raise
            attempt.task.uncancel()
            self.moved += 1
            raise Unavailable("it is tried elsewhere") from None
        finally:
            attempt.address = None
            attempt.moved = False
            del self.underway[attempt]
            self.detector.done(address, attempt)

    def at(self, address: str) -> list[CancellableCall]:
        """What waits for an address."""
        return [one for one in self.underway if one.address == address]
