"""Calling gRPC methods of another process.

Place: what `proxy`, `client` and the forwarders use to reach each other; twin without sockets: `memory`.
Promise: a call ends with its answer or a SyncpointError; unary calls that the server certainly did not see are made
again on a new connection; other failures of a connection are UNAVAILABLE, which means that the outcome is unknown.
Leaves to the caller: every other retry.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Iterable
from typing import Any

from syncpoint.base.model.errors import Code, ConnectionRefused, SyncpointError, Unprocessed
from syncpoint.base.runtime.clock import until_beat
from syncpoint.wire.transport.client_connection import ClientConnection, ClientStreamState
from syncpoint.wire.transport.encoding import write_timeout
from syncpoint.wire.transport.fields import Field
from syncpoint.wire.transport.headers import request_block
from syncpoint.wire.transport.limits import TransportLimits
from syncpoint.wire.transport.receive_budget import Counters
from syncpoint.wire.transport.stream_state import PREFIX_BYTES, Message

_ATTEMPTS = 3
_BLOCKS_MAX = 256

MetadataItems = Iterable[tuple[bytes, bytes]]
"""Names in lower case; values of `-bin` names are raw bytes."""


class Channel:
    """Calls to one server over one connection at a time, opened when it is first needed and again when it was lost.

    `tls`: client context; ALPN is set here. `authority`: what the server is called, "host:port" by default.
    """

    def __init__(
        self,
        host: str,
        port: int,
        tls: ssl.SSLContext | None = None,
        *,
        limits: TransportLimits | None = None,
        authority: str | None = None,
        always: MetadataItems = (),
    ) -> None:
        self.host = host
        self.port = port
        self.limits = limits or TransportLimits()
        self.counters = Counters()
        self._always = tuple(always)  # metadata of every call
        self._tls = tls
        if tls is not None:
            tls.set_alpn_protocols(["h2"])
        self._scheme = b"http" if tls is None else b"https"
        self._authority = (authority or f"{host}:{port}").encode()
        self._current: ClientConnection | None = None
        self._connections: set[ClientConnection] = set()
        self._connecting: asyncio.Task[ClientConnection] | None = None
        self._blocks: dict[tuple[str, bytes, tuple[Field, ...]], bytes] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    async def unary(
        self, path: str, message: Message, *, metadata: MetadataItems = (), timeout: float | None = None
    ) -> bytes:
        """Call a unary method. `timeout` in seconds, over all attempts. Raises SyncpointError."""
        loop = asyncio.get_running_loop()
        block = self.block(path, tuple(metadata), timeout)
        deadline = None if timeout is None else loop.time() + timeout
        for attempt in range(_ATTEMPTS):
            connection = self._current or await self._connected(deadline)
            done: asyncio.Future[bytes] = loop.create_future()
            call = _UnaryCall(done)
            stream_state = ClientStreamState(connection, block, message, call.message, call.finished)
            timer = None if deadline is None else loop.call_at(deadline, call.expire, stream_state)
            connection.start(stream_state)
            try:
                return await done
            except Unprocessed:
                if attempt == _ATTEMPTS - 1:
                    raise
            except asyncio.CancelledError:
                connection.abandon(stream_state)
                raise
            finally:
                if timer is not None:
                    timer.cancel()
        raise AssertionError("not reached")

    def stream(self, path: str, metadata: MetadataItems = (), timeout: float | None = None) -> ClientStream:
        """Begin a streaming call; see `ClientStream`."""
        return ClientStream(self, self.block(path, tuple(metadata), timeout), timeout)

    def renew(self, within_s: float) -> None:
        """Connect anew for the next call, so that certificates are checked again. What is under way may take as long as
        this, then it fails with UNAVAILABLE."""
        loop = asyncio.get_running_loop()
        self._current = None
        for connection in self._connections:
            loop.call_later(within_s, connection.shut)

    async def close(self) -> None:
        """Close all connections; open calls fail with UNAVAILABLE."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        open_now = list(self._connections)
        for connection in open_now:
            connection.shut()
        for connection in open_now:
            await asyncio.wait((connection.gone,), timeout=self.limits.close_s + 0.5)

    def block(self, path: str, metadata: tuple[Field, ...], timeout: float | None) -> bytes:
        """The header block of a call. The same call has the same block, so that the server knows it already."""
        key = (path, b"" if timeout is None else write_timeout(timeout), metadata)
        block = self._blocks.get(key)
        if block is None:
            extra = [*self._always, *metadata]
            if timeout is not None:
                extra.insert(0, (b"grpc-timeout", key[1]))
            block = request_block(path.encode(), self._scheme, self._authority, extra)
            if len(self._blocks) >= _BLOCKS_MAX:
                del self._blocks[next(iter(self._blocks))]
            self._blocks[key] = block
        return block

    async def _connected(self, deadline: float | None) -> ClientConnection:
        if self._current is not None:
            return self._current
        if self._closed:
            raise SyncpointError(Code.UNAVAILABLE, "The channel is closed.")
        loop = asyncio.get_running_loop()
        if self._connecting is None:
            self._connecting = loop.create_task(self._connect())
            self._connecting.add_done_callback(_seen)
        task = self._connecting
        # Callers share the attempt; one that gives up must not end it for the others.
        wait_s = None if deadline is None else max(0.0, deadline - loop.time())
        done, _ = await asyncio.wait((task,), timeout=wait_s)
        if not done:
            raise SyncpointError(Code.DEADLINE_EXCEEDED, f"No connection to {self.host}:{self.port} in time.")
        if task.cancelled():
            raise SyncpointError(Code.UNAVAILABLE, "The channel is closed.")
        error = task.exception()
        if error is not None:
            kind = ConnectionRefused if isinstance(error, ConnectionRefusedError) else Unprocessed
            raise kind(f"No connection to {self.host}:{self.port}: {error}.") from error
        return task.result()

    async def _connect(self) -> ClientConnection:
        loop = asyncio.get_running_loop()
        options: dict[str, Any] = {}
        if self._tls is not None:
            options = {"ssl": self._tls, "server_hostname": self._authority.decode().rpartition(":")[0] or self.host}
        made: list[ClientConnection] = []

        def make() -> ClientConnection:
            made.append(ClientConnection(loop, self.limits, self.counters, self._retired))
            return made[-1]

        try:
            async with asyncio.timeout(self.limits.handshake_s):
                _, connection = await loop.create_connection(make, self.host, self.port, **options)
            self._connections.add(connection)
            connection.gone.add_done_callback(lambda _: self._connections.discard(connection))
            self._current = connection if connection.usable else None
            if self._timer is None:
                self._sweep_later()
            return connection
        except BaseException:
            for given_up in made:
                given_up.connection_lost(None)  # closed before it was handed out, its transport reports nothing
            raise
        finally:
            self._connecting = None

    def _retired(self, connection: ClientConnection) -> None:
        if self._current is connection:
            self._current = None

    def _sweep(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        for connection in list(self._connections):
            connection.sweep(loop.time())
        if self._connections:
            self._sweep_later()

    def _sweep_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(until_beat(loop.time(), self.limits.sweep_s), self._sweep)


def _seen(connecting: asyncio.Task[ClientConnection]) -> None:
    """A failure is for those who wait for the connection; where all have given up, nobody misses it."""
    if not connecting.cancelled():
        connecting.exception()


def _size(message: bytes | list[bytes]) -> int:
    return sum(map(len, message)) if isinstance(message, list) else len(message)


def _expired() -> SyncpointError:
    return SyncpointError(Code.DEADLINE_EXCEEDED, "Deadline exceeded.")


class _UnaryCall:
    """Turns a stream's events into one result."""

    __slots__ = ("_answer", "_done")

    def __init__(self, done: asyncio.Future[bytes]) -> None:
        self._done = done
        self._answer: bytes | None = None

    def message(self, payload: bytes) -> None:
        if self._answer is not None:
            raise SyncpointError(Code.INTERNAL, "More than one message in a unary answer.")
        self._answer = payload

    def finished(self, error: SyncpointError | None) -> None:
        if self._done.done():
            return
        if error is not None:
            self._done.set_exception(error)
        elif self._answer is None:
            self._done.set_exception(SyncpointError(Code.INTERNAL, "The answer has no message."))
        else:
            self._done.set_result(self._answer)

    def expire(self, stream_state: ClientStreamState) -> None:
        stream_state.conn.abandon(stream_state)
        self.finished(_expired())


class ClientStream:
    """A streaming call. Made by `Channel.stream`; opens by itself. One task may send while another receives."""

    def __init__(self, channel: Channel, block: bytes, timeout: float | None) -> None:
        loop = asyncio.get_running_loop()
        self._channel = channel
        self._block = block
        self._state: ClientStreamState | None = None
        self._inbox: deque[bytes | list[bytes]] = deque()
        self._over = False
        self._error: SyncpointError | None = None
        self._waiting: list[asyncio.Future[None]] = []
        self._loop = loop
        self._timer = None if timeout is None else loop.call_later(timeout, self._expire)
        self._deadline = None if timeout is None else loop.time() + timeout
        self._opening = loop.create_task(self._open())

    async def send(self, message: Message) -> None:
        """Send one message; waits while the transport holds bytes back. Raises the stream's error when it is over."""
        stream_state = await self._ready()
        while stream_state is not None and not self._over and not stream_state.writable:
            await self._change()
        if self._over or stream_state is None:
            raise self._error or SyncpointError(Code.UNAVAILABLE, "The stream is over.")
        stream_state.send_message(message)

    async def receive(self) -> bytes | None:
        """The next message; None after the last one of a stream that ended with OK. Raises SyncpointError otherwise."""
        message = await self.receive_parts()
        return b"".join(message) if isinstance(message, list) else message

    async def receive_parts(self) -> bytes | list[bytes] | None:
        """As `receive`, but a large message may be the pieces in which it came: for those who only pass it on."""
        while not self._inbox:
            if self._over:
                if self._error is not None:
                    raise self._error
                return None
            await self._change()
        payload = self._inbox.popleft()
        stream_state = self._state
        if stream_state is not None and not stream_state.done:
            stream_state.unread -= _size(payload) + PREFIX_BYTES
            stream_state.refill()
        return payload

    async def end(self) -> None:
        """Close our side; the server may still send."""
        stream_state = await self._ready()
        if stream_state is not None and not self._over:
            stream_state.finish()

    def cancel(self) -> None:
        """Give the call up."""
        self._stop(SyncpointError(Code.CANCELLED, "The call was cancelled."))

    async def _open(self) -> None:
        try:
            connection = await self._channel._connected(self._deadline)
        except SyncpointError as error:
            self._finished(error)
            return
        if self._over:
            return
        stream_state = ClientStreamState(connection, self._block, None, self._message, self._finished)
        stream_state.on_writable = stream_state.on_opened = self._wake
        stream_state.in_parts = True
        self._state = stream_state
        connection.start(stream_state)
        self._wake()

    async def _ready(self) -> ClientStreamState | None:
        """The stream_state, once it is open; None when the stream is over."""
        while not self._over and (self._state is None or self._state.sid == 0):
            await self._change()
        return self._state

    async def _change(self) -> None:
        waiting = self._loop.create_future()
        self._waiting.append(waiting)
        try:
            await waiting
        finally:
            if waiting in self._waiting:
                self._waiting.remove(waiting)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)

    def _message(self, payload: bytes | list[bytes]) -> None:
        stream_state = self._state
        if stream_state is not None:
            stream_state.unread += _size(payload) + PREFIX_BYTES
        self._inbox.append(payload)
        self._wake()

    def _finished(self, error: SyncpointError | None) -> None:
        if self._over:
            return
        self._over = True
        self._error = error
        if self._timer is not None:
            self._timer.cancel()
        self._wake()

    def _expire(self) -> None:
        self._stop(_expired())

    def _stop(self, error: SyncpointError) -> None:
        if self._over:
            return
        self._finished(error)
        stream_state = self._state
        if stream_state is not None and not stream_state.done:
            stream_state.conn.abandon(stream_state)
