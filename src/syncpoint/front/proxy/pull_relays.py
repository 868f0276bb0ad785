"""Relayed StreamingPull: each client's stream has one to the subscribe forwarder that serves it.

Place: between clients and `api/streaming_pull` of a subscribe forwarder; requests and responses pass as bytes.
Promise: when the forwarder dies, hangs, drains, or another one is to serve the subscription, the client's stream stays
as it is: another one is opened for it with the same first request, and goes on. A client that is slow slows its
forwarder, and no other. What was not given to a client that left is free again at once. The server never ends a stream
with OK, unless the client closed its side.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from google.protobuf.message import DecodeError

from syncpoint.base.runtime.tasks import stop
from syncpoint.front.api.connected_clients import OpenPull
from syncpoint.front.proxy.forwarder_stream import END_S, ForwarderStreams
from syncpoint.front.proxy.pull_relay import PullRelay
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pubsub
from syncpoint.wire.transport.calls import Methods, Streaming, StreamingCall


class PullRelays(ForwarderStreams):
    """All streaming pulls of one proxy: begun, and ended."""

    _opened = 0

    def methods(self) -> Methods:
        """The streaming data-plane method of google.pubsub.v1.Subscriber."""
        return {methods.SUBSCRIBER.StreamingPull.encode(): Streaming(self.open, methods.PUBLISHER.Publish.encode())}

    def open(self, stream: StreamingCall) -> None:
        """A client's stream begins."""
        self._opened += 1
        self.add(PullRelay(stream, self, self._opened))

    def open_pulls(self, subscription: str) -> Iterator[OpenPull]:
        """Streams of clients, for who shows them."""
        for one in self.open_streams:
            if isinstance(one, PullRelay) and one.record is not None and one.record.name == subscription:
                try:
                    first = pubsub.StreamingPullRequest.FromString(one.first)
                except DecodeError:
                    continue  # its forwarder is about to end it
                yield OpenPull(one.stream, first, one.name)

    async def close(self) -> None:
        """End every stream, so that the clients open it elsewhere."""
        self.stop_reviewing()
        for one in list(self.open_streams):
            one.drain()
        tasks = [task for task in self.tasks if not task.done()]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=END_S)
            await stop(late)
