"""Ways to the other processes of a cluster: one channel per address, and whether somebody is there.

Place: under every call from one process to another. Promise: a channel nobody has used for a while is closed.
"""

from __future__ import annotations

import asyncio
import enum
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

from syncpoint.base.model.errors import Code, ConnectionRefused, SyncpointError
from syncpoint.base.runtime.tasks import Tasks
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal
from syncpoint.wire.transport.calls import Call, Methods, Streaming, StreamingCall, Unary
from syncpoint.wire.transport.client import MetadataItems
from syncpoint.wire.transport.network import AnyChannel, AnyStream, Network
from syncpoint.wire.transport.stream_state import Message

IDLE_S = 60.0

log = logging.getLogger(__name__)


class Reach(enum.Enum):
    """What a ping came to. REFUSED: the host lives and nobody listens, so the process is dead."""

    ANSWERED = "answered"
    SILENT = "silent"
    REFUSED = "refused"


class PeerChannels:
    """Channels by address, HOST:PORT."""

    def __init__(self, network: Network, *, idle_s: float = IDLE_S) -> None:
        self._network, self._idle_s = network, idle_s
        self._channels: dict[str, AnyChannel] = {}
        self._used: dict[str, float] = {}
        self._streams: dict[str, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._closing = Tasks()

    def channel(self, address: str) -> AnyChannel:
        """The channel to an address, to be used at once and not to be kept."""
        loop = asyncio.get_running_loop()
        found = self._channels.get(address)
        if found is None:
            found = self._channels[address] = self._network.channel(address)
            if self._timer is None:
                self._timer = loop.call_later(self._idle_s, self._sweep)
        self._used[address] = loop.time()
        return found

    async def call(self, address: str, path: str, request: Message, *, timeout_s: float) -> bytes:
        """A unary call. Raises `SyncpointError`."""
        return await self.channel(address).unary(path, request, timeout=timeout_s)

    def stream(self, address: str, path: str, metadata: MetadataItems = ()) -> AnyStream:
        """A streaming call; its channel is kept until `unpin`. Raises `SyncpointError`, and keeps nothing then."""
        stream = self.channel(address).stream(path, metadata)
        self._streams[address] = self._streams.get(address, 0) + 1
        return stream

    def unpin(self, address: str) -> None:
        """A streaming call to this address is over."""
        self._streams[address] -= 1
        if not self._streams[address]:
            del self._streams[address]

    async def ping(self, address: str, *, timeout_s: float = 1.0) -> Reach:
        """Whether somebody is there. Never raises `SyncpointError`."""
        try:
            await self.call(address, methods.PROCESS.Ping, b"", timeout_s=timeout_s)
        except ConnectionRefused:
            return Reach.REFUSED
        except SyncpointError as error:
            # Whatever has a word for it is alive, an older version without this method for example.
            return Reach.SILENT if error.code in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED) else Reach.ANSWERED
        return Reach.ANSWERED

    async def until_lost(self, address: str) -> None:
        """Return when the process at an address has ended, or cannot be reached, or is about to stop: what it was is
        over as soon as its connections break. Of one that hangs this reports nothing. Never raises `SyncpointError`.
        """
        try:
            stream = self.stream(address, methods.PROCESS.Stay)
            try:
                while await stream.receive() is not None:
                    pass
            except asyncio.CancelledError:
                stream.cancel()
                raise
            finally:
                self.unpin(address)
        except SyncpointError as error:
            log.debug("the connection to %s is over: %s", address, error)

    async def close(self) -> None:
        """Close all channels; open calls fail."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        channels, self._channels = list(self._channels.values()), {}
        await asyncio.gather(*(channel.close() for channel in channels), *self._closing)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        for address in [one for one in self._channels if one not in self._streams]:
            if self._used[address] + self._idle_s <= loop.time():
                self._closing.start(self._channels.pop(address).close())
        if self._channels:
            self._timer = loop.call_later(self._idle_s, self._sweep)


def process_methods(status: Callable[[], Mapping[str, Any]]) -> Methods:
    """What every process answers: Ping, its condition as JSON, and Stay, which ends with the process."""

    def ping(call: Call, request: bytes) -> None:
        call.reply(request)

    def get_status(call: Call, request: bytes) -> None:
        call.reply(internal.StatusResponse(json=json.dumps(status())).SerializeToString())

    def stay(stream: StreamingCall) -> None:
        stream.on_drain = stream.on_end = stream.finish

    ours = methods.PROCESS
    return {
        ours.Ping.encode(): Unary(ping),
        ours.GetStatus.encode(): Unary(get_status),
        ours.Stay.encode(): Streaming(stay),
    }
