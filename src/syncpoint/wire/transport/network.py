"""The network: which addresses can be called, and who answers there.

Place: processes of a cluster reach each other through this and nothing else, so a simulation can put its own network in
its place (`transport/memory` is the other half of it).
"""

from __future__ import annotations

import ipaddress
import ssl
import weakref
from typing import Protocol

from syncpoint.wire.transport.calls import Methods
from syncpoint.wire.transport.client import Channel, MetadataItems
from syncpoint.wire.transport.headers import SECRET
from syncpoint.wire.transport.limits import MIB, TransportLimits
from syncpoint.wire.transport.server import Fallback, serve
from syncpoint.wire.transport.stream_state import Message
from syncpoint.wire.transport.unsent import Unsent

WINDOW_BYTES = 6 * MIB  # between processes of a cluster: what is asked for at once arrives without asking for window
CONNECTION_WINDOW_BYTES = 64 * MIB  # streams bound what is held; this one is seldom renewed
FRAME_BYTES = 6 * MIB  # there, too: a large message is one frame, so its reader is woken once for much of it


class AnyStream(Protocol):
    """A streaming call as its caller sees it; see `client.ClientStream`."""

    async def send(self, message: Message) -> None: ...
    async def receive(self) -> bytes | None: ...
    async def receive_parts(self) -> bytes | list[bytes] | None: ...
    async def end(self) -> None: ...
    def cancel(self) -> None: ...


class AnyChannel(Protocol):
    """Calls to one address; see `client.Channel`."""

    async def unary(
        self, path: str, message: Message, *, metadata: MetadataItems = (), timeout: float | None = None
    ) -> bytes: ...
    def stream(self, path: str, metadata: MetadataItems = (), timeout: float | None = None) -> AnyStream: ...
    async def close(self) -> None: ...


class Listening(Protocol):
    """A server that listens, at `host` and `port`."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    async def renew(self, tls: ssl.SSLContext, within_s: float | None = None) -> None: ...
    async def drain(self, grace_s: float) -> None: ...
    async def close(self) -> None: ...


class Network(Protocol):
    """Channels to others, and servers for them."""

    def channel(self, address: str) -> AnyChannel:
        """A channel to HOST:PORT; it connects when it is first used. The caller closes it."""
        ...

    async def serve(self, methods: Methods, host: str, port: int, on_fallback: Fallback | None = None) -> Listening:
        """Answer calls. Port 0: any free one. `on_fallback`: see `server.serve`."""
        ...


class TcpNetwork:
    """The network of the operating system. `client_tls`, `server_tls`: contexts each way; None: plain TCP. `unsent`:
    what may wait in its servers' connections, shared with other networks of the process; None: a budget of its own.
    `secret`: what processes that use such a network know, and nobody else; b"": whoever reaches them may call."""

    def __init__(
        self,
        client_tls: ssl.SSLContext | None = None,
        server_tls: ssl.SSLContext | None = None,
        unsent: Unsent | None = None,
        secret: bytes = b"",
    ) -> None:
        self._secret = secret
        self._client_tls, self._server_tls = client_tls, server_tls
        self._channels: weakref.WeakSet[Channel] = weakref.WeakSet()
        self._unsent = unsent or Unsent(TransportLimits().unsent_total_bytes)

    def channel(self, address: str) -> AnyChannel:
        host, port = split_address(address)
        always = ((SECRET, self._secret),) if self._secret else ()
        channel = Channel(
            host,
            port,
            self._client_tls,
            limits=TransportLimits(
                stream_window_bytes=WINDOW_BYTES,
                frame_bytes=FRAME_BYTES,
                connection_window_bytes=CONNECTION_WINDOW_BYTES,
            ),
            always=always,
        )
        self._channels.add(channel)
        return channel

    def renew(self, within_s: float) -> None:
        """Have all its channels connect anew; see `client.Channel`."""
        for channel in list(self._channels):
            channel.renew(within_s)

    async def serve(self, methods: Methods, host: str, port: int, on_fallback: Fallback | None = None) -> Listening:
        return await serve(
            methods,
            host,
            port,
            tls=self._server_tls,
            on_fallback=on_fallback,
            unsent=self._unsent,
            secret=self._secret,
        )


def split_address(address: str) -> tuple[str, int]:
    """HOST:PORT as two values; an IPv6 host stands in brackets. Raises `ValueError`."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or not host:
        raise ValueError(f"an address is HOST:PORT, not {address!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def join_address(host: str, port: int) -> str:
    """The two as HOST:PORT."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def address_called(asked: str, host: str, port: int) -> str:
    """The address to name to others of a listener that was asked for at `asked` and is bound to `host` and `port`: with
    the name that was given, which certificates may name and which may lead to another address after a restart.
    """
    name, fixed = split_address(asked)
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return join_address(name if fixed else host, port)  # a free port was taken at one of the name's addresses
    return join_address(host, port)
