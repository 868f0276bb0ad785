"""The way to one site: its channels, what is under way there, and giving that up when the site is left.

Place: under the relays. Promise: what waits for a site that is left fails at once with UNAVAILABLE, "the outcome is
unknown"; streams are spread over connections, so that many of them hold up no call.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Final, Protocol

from syncpoint.base.model.errors import InvalidArgument, Unavailable
from syncpoint.wire.transport.client import Channel, MetadataItems
from syncpoint.wire.transport.limits import TransportLimits
from syncpoint.wire.transport.network import (
    CONNECTION_WINDOW_BYTES,
    FRAME_BYTES,
    WINDOW_BYTES,
    AnyChannel,
    AnyStream,
    split_address,
)
from syncpoint.wire.transport.stream_state import Message

STREAMS_EACH: Final = 200  # of one connection


class SiteStream(Protocol):
    """What has a stream at a site open."""

    def lost(self) -> None:
        """The site is left: what was under way is unknown."""
        ...

    def move(self) -> None:
        """Another site is the home: go there once what was lent is done with."""
        ...


class SiteLink:
    """One site. `open_channel`: makes a channel to it; `tag`: what its ack ids begin with; `own`: the metadata of the
    gateway's own calls.
    """

    def __init__(
        self,
        name: str,
        tag: bytes,
        open_channel: Callable[[], AnyChannel],
        own: Callable[[], MetadataItems] = lambda: (),
    ) -> None:
        self.name, self.tag, self._own = name, tag, own
        self._open_channel = open_channel
        self._calls_channel = open_channel()
        self._stream_channels: list[tuple[AnyChannel, list[int]]] = []
        self._underway: dict[asyncio.Task[object], None] = {}
        self._given_up: set[asyncio.Task[object]] = set()
        self.streams: dict[SiteStream, list[int]] = {}  # each with the count of its connection
        self.calls = self.failed = 0
        self.outstanding: dict[str, int] = {}  # by subscription with streams here: lent and not given back, about

    def own(self) -> MetadataItems:
        """The metadata of the gateway's own calls. Raises `Unavailable` where the file cannot be used."""
        try:
            return self._own()
        except (OSError, InvalidArgument) as error:
            raise Unavailable(f"The credentials of the site {self.name} cannot be used: {error}") from error

    async def unary(self, path: str, request: Message, metadata: MetadataItems, timeout_s: float | None) -> bytes:
        """A call, by the task that runs now. Raises `SyncpointError`."""
        task = asyncio.current_task()
        assert task is not None
        self._underway[task] = None
        self.calls += 1
        try:
            return await self._calls_channel.unary(path, request, metadata=metadata, timeout=timeout_s)
        except asyncio.CancelledError:
            if task not in self._given_up or task.uncancel():
                raise
            raise Unavailable(f"The site {self.name} stopped answering; the outcome is unknown. Try again.") from None
        finally:
            self._given_up.discard(task)
            self._underway.pop(task, None)

    def stream(self, user: SiteStream, path: str, metadata: MetadataItems) -> AnyStream:
        """A stream, which `user` closes by `end_stream`."""
        at = next((one for one in self._stream_channels if one[1][0] < STREAMS_EACH), None)
        if at is None:
            at = self._open_channel(), [0]
            self._stream_channels.append(at)
        stream = at[0].stream(path, metadata)
        at[1][0] += 1
        self.streams[user] = at[1]
        return stream

    def end_stream(self, user: SiteStream) -> None:
        """A stream is over."""
        count = self.streams.pop(user, None)
        if count is not None:
            count[0] -= 1

    def lent(self, subscription: str, count: int) -> None:
        """Messages went out; fewer by what is negative: they are acknowledged or given back."""
        held = self.outstanding.get(subscription, 0) + count
        if held > 0:
            self.outstanding[subscription] = held
        else:
            self.outstanding.pop(subscription, None)

    def leave(self) -> None:
        """The site does not answer: nothing waits for it any more."""
        for task in list(self._underway):
            if task not in self._given_up:
                self._given_up.add(task)
                task.cancel()
        for one in list(self.streams):
            one.lost()

    async def close(self) -> None:
        """Close all connections."""
        channels = [self._calls_channel, *(channel for channel, _ in self._stream_channels)]
        await asyncio.gather(*(channel.close() for channel in channels))


def channels_to(endpoint: str, tls: ssl.SSLContext | None) -> Callable[[], AnyChannel]:
    """Makes channels to HOST:PORT with windows as wide as those between processes of a cluster."""
    host, port = split_address(endpoint)
    limits = TransportLimits(
        stream_window_bytes=WINDOW_BYTES, frame_bytes=FRAME_BYTES, connection_window_bytes=CONNECTION_WINDOW_BYTES
    )
    return lambda: Channel(host, port, tls, limits=limits)
