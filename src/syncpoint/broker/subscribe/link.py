"""Link: the Serve stream to one publish forwarder, opened again whenever it is lost; the driver under a peer.

Leaves to `peers`: all messages on it. A new stream takes a new connection, so one that is silent without
being closed does not stand in the way.
"""

import asyncio
import logging
from collections import deque

from syncpoint.base.model.errors import SyncpointError
from syncpoint.base.runtime.backoff import Backoff
from syncpoint.base.runtime.tasks import Tasks
from syncpoint.broker.subscribe.peers import Peer
from syncpoint.wire.protobuf import methods
from syncpoint.wire.transport.network import AnyChannel, AnyStream, Network

log = logging.getLogger(__name__)

FLUSH_S = 0.05  # for what is left at the end


class ServeLink:
    """A `peers.PeerTransport`. Made on the running loop; `connect(network)` is what a `Gatherer` wants."""

    def __init__(self, network: Network, address: str, peer: Peer) -> None:
        self._network, self._address, self._peer = network, address, peer
        self._outbox: deque[bytes] = deque()
        self._more = asyncio.Event()
        self._stream: AnyStream | None = None
        self._tasks = Tasks()
        self._serving = self._tasks.start(self._run())

    def send(self, message: bytes) -> None:
        if self._stream is not None:
            self._outbox.append(message)
            self._more.set()

    def reset(self) -> None:
        if self._stream is not None:
            self._stream.cancel()

    def close(self) -> None:
        """Close the link. Messages already sent still leave if they can leave immediately."""
        self._serving.cancel()

    async def closed(self) -> None:
        """Wait until nothing of it runs any more."""
        await self._tasks.ended()

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        backoff = Backoff(0.05, 1.0)
        while True:
            channel = self._network.channel(self._address)
            try:
                if await self._serve(channel):
                    backoff.succeeded()
            finally:
                self._tasks.start(channel.close())
            self._peer.lost()
            await asyncio.sleep(backoff.failed())

    async def _serve(self, channel: AnyChannel) -> bool:
        """One stream, until it is over. True if it was of use: something was received on it, and it was the newest."""
        any_received = False
        try:
            self._stream = stream = channel.stream(methods.CHAINS.Serve)
        except SyncpointError as error:
            log.debug("publish forwarder at %s: %s", self._address, error)
            return False
        self._outbox.clear()
        writer = asyncio.get_running_loop().create_task(self._write(stream))
        try:
            self._peer.began()
            while (data := await stream.receive()) is not None:
                self._peer.received(data)
                any_received = any_received or self._peer.up
        except SyncpointError as error:
            log.log(
                logging.INFO if any_received else logging.DEBUG, "publish forwarder at %s: %s", self._address, error
            )
        except asyncio.CancelledError:
            await self._flush(stream)
            raise
        except Exception:
            log.exception("cannot process a message of the publish forwarder at %s; reconnecting", self._address)
        finally:
            self._stream = None
            writer.cancel()
            stream.cancel()
        return any_received

    async def _write(self, stream: AnyStream) -> None:
        try:
            while True:
                while self._outbox:
                    await stream.send(self._outbox.popleft())
                self._more.clear()
                await self._more.wait()
        except SyncpointError:
            return  # the reader learns it, too

    async def _flush(self, stream: AnyStream) -> None:
        """Send what is left, so that the other side learns of a farewell; it may be in no state to."""
        try:
            async with asyncio.timeout(FLUSH_S):
                while self._outbox:
                    await stream.send(self._outbox.popleft())
                await stream.end()
        except (SyncpointError, TimeoutError):
            return
