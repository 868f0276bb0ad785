"""Bytes of a large message, received where they stay.

Place: takes the place of a connection towards its socket while the rest of a large DATA frame comes in; begun and ended
by `frame_loop`.
Promise: exactly the bytes asked for are taken, then the connection is given them and takes its place again; whatever
else the socket reports goes to the connection at once. One buffer exists at a time, no larger than a frame.
Only on plain sockets: bytes of TLS are copied out anyway.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from syncpoint.base.kernel.memory import uncleared_buffer

FROM_BYTES = 512 * 1024
"""Below this the few reads are not worth two changes of places."""
_WAKE_BYTES = 1024 * 1024
"""Number of bytes that have come before the process is woken."""


class BulkReceiver(asyncio.BufferedProtocol):
    """`done(buffer)` is called with what was received; `came()` whenever some of it has come."""

    def __init__(
        self,
        connection: asyncio.Protocol,
        transport: asyncio.Transport,
        came: Callable[[], None],
        done: Callable[[bytearray], None],
    ) -> None:
        self._connection, self._transport = connection, transport
        self._came, self._done = came, done
        self._buffer = bytearray()
        self._view = memoryview(self._buffer)
        self._wakes_at = 1

    def begin(self, size: int) -> None:
        """Receive this many bytes from now on."""
        self._buffer = uncleared_buffer(size)
        self._view = memoryview(self._buffer)
        self._wake_at(min(size, _WAKE_BYTES))
        self._change_places(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """What is still to be filled (asyncio)."""
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        """More has come (asyncio)."""
        self._view = self._view[nbytes:]
        left = len(self._view)
        if left:
            if left < self._wakes_at:
                self._wake_at(left)
            self._came()
            return
        buffer, self._buffer, self._view = self._buffer, bytearray(), memoryview(b"")
        self._wake_at(1)
        self._change_places(self._connection)
        self._done(buffer)

    def _change_places(self, protocol: asyncio.BaseProtocol) -> None:
        # A loop may look at its protocol only when reading begins.
        self._transport.pause_reading()
        self._transport.set_protocol(protocol)
        self._transport.resume_reading()

    def _wake_at(self, size: int) -> None:
        """Let the system wait until this much has come. It never waits for more than is sure to come."""
        self._wakes_at = size
        sock = self._transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)

    # -- for the connection ----------------------------------------------------------------------------------------

    def eof_received(self) -> bool | None:
        return self._connection.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._buffer, self._view = bytearray(), memoryview(b"")
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()
