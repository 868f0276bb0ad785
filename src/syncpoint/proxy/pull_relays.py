"""Relayed StreamingPull: behind each client's stream is one to the subscribe forwarder that serves it.

Place: between clients and `api/streaming_pull` of a subscribe forwarder; requests and responses pass as bytes.
Promise: when the forwarder dies, hangs, drains, or another one is to serve the subscription, the client's stream stays
as it is: another one is opened behind it with the same first request, and goes on. A client that is slow slows its
forwarder, and no other. What was not given to a client that left is free again at once. The server never ends a stream
with OK, unless the client closed its side.
"""

from __future__ import annotations

import asyncio

from syncpoint.control.peer_channels import PeerChannels
from syncpoint.proxy.failure_detector import FailureDetector
from syncpoint.proxy.pull_relay import END_S, REVIEW_S, PullRelay, SharedByPulls
from syncpoint.proxy.sealing import Sealer
from syncpoint.proxy.subscription_routing import SubscriptionRouting
from syncpoint.proxy.unary_relay import UnaryRelay
from syncpoint.runtime.tasks import stop
from syncpoint.transport.calls import Methods, Streaming, StreamingCall
from syncpoint.wire import methods

MOVES_MAX = 50  # streams moved of our own will at once


class PullRelays(SharedByPulls):
    """All streaming pulls of one proxy: begun, reviewed once a second, and ended."""

    def __init__(
        self,
        serving: SubscriptionRouting,
        relay: UnaryRelay,
        peers: PeerChannels,
        detector: FailureDetector,
        *,
        sealer: Sealer | None = None,
    ) -> None:
        super().__init__(serving, relay, peers, detector, sealer)
        self._opened = 0
        self._timer: asyncio.TimerHandle | None = None

    def methods(self) -> Methods:
        """The streaming data-plane method of google.pubsub.v1.Subscriber."""
        return {methods.SUBSCRIBER.StreamingPull.encode(): Streaming(self.open)}

    def open(self, stream: StreamingCall) -> None:
        """A client's stream begins."""
        self._opened += 1
        self.open_streams[PullRelay(stream, self, self._opened)] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(REVIEW_S, self._review)

    def suspected(self, address: str) -> None:
        """An address is silent: its streams go elsewhere at once, if there is another place."""
        for one in list(self.open_streams):
            if one.member is not None and one.member.address == address:
                one.leave_silent()

    def _review(self) -> None:
        """Once a second: does everybody still have the forwarder that is the best one."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(REVIEW_S, self._review) if self.open_streams else None
        moves = 0
        for one in list(self.open_streams):
            if moves < MOVES_MAX:
                moves += one.review(loop.time())

    async def close(self) -> None:
        """End every stream, so that the clients open it elsewhere."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for one in list(self.open_streams):
            one.drain()
        tasks = [task for task in self.tasks if not task.done()]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=END_S)
            await stop(late)
