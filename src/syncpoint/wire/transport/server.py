"""Serving gRPC on a port.

Place: the outermost layer; `node`, `proxy` and the tests open it.
Promise: `serve` returns when the port accepts; `drain` loses no call that was accepted, as far as the grace allows;
`close` leaves nothing.
Leaves to `server_connection`: everything a single connection does.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Callable
from typing import Any

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.base.runtime.child_processes import Apart
from syncpoint.base.runtime.clock import until_beat
from syncpoint.base.runtime.tasks import Tasks
from syncpoint.wire.transport.caller_shares import CallerShares
from syncpoint.wire.transport.calls import CallContext, Methods
from syncpoint.wire.transport.limits import TransportLimits
from syncpoint.wire.transport.receive_budget import Counters
from syncpoint.wire.transport.server_connection import ServerConnection
from syncpoint.wire.transport.unsent import Unsent

_STOPPED = SyncpointError(Code.UNAVAILABLE, "The server is stopping.")
_RENEWED = SyncpointError(Code.UNAVAILABLE, "The connection was closed: certificates are checked again.")


class FallbackProtocol(asyncio.Protocol):
    """Another protocol on a connection of a server. It gets `connection_made` with the transport, then the first bytes
    by `data_received`, and everything asyncio calls from then on. It must not put another protocol in its place on the
    transport.
    """

    def sweep(self, now: float) -> None:
        """Look at the times of the connection: called every `sweep_s`."""

    def drain(self) -> None:
        """Begin nothing new, finish what was begun, then close the transport. It is closed when the grace is over."""


Fallback = Callable[[], FallbackProtocol]
"""Makes a protocol for a connection that does not speak HTTP/2."""


class Server:
    """A port that answers methods. Made by `serve`.

    `stats`: open `connections`, those `accepted` so far, open `streams`, `calls` begun, streams `refused`, protocol
    `faults` of peers, bytes `held` of unfinished messages, bytes `unsent` (of all servers that share the budget),
    connections `shed` because of them, and bytes `read` and `written`, without TLS.
    """

    def __init__(
        self,
        methods: Methods,
        limits: TransportLimits,
        on_fallback: Fallback | None,
        loop: asyncio.AbstractEventLoop,
        unsent: Unsent | None = None,
    ) -> None:
        self.methods = methods
        self.limits = limits
        self.on_fallback = on_fallback
        self.counters = Counters()
        self.unsent = unsent or Unsent(limits.unsent_total_bytes)
        self.secret = b""
        self.shares: CallerShares | None = None
        """What callers hold of unfinished messages; None: it is not bounded by caller."""
        self.who: Callable[[CallContext], str] | None = None
        """Who makes a call, "" for nobody that is known; None: callers are not identified."""
        self.apart: Apart | None = None
        """Unfolds large compressed messages; None: that is done on the loop."""
        self.payer: Callable[[CallContext], str] | None = None
        """Who is charged for that, and waits for a turn; raises for callers to whom nothing is granted."""
        self.tasks = Tasks()
        self.port = 0
        self.host = ""
        self._loop = loop
        self._connections: set[ServerConnection] = set()
        self._listeners: list[asyncio.Server] = []
        self._timer: asyncio.TimerHandle | None = None
        self._empty: asyncio.Event | None = None
        self._stopping = False

    @property
    def stats(self) -> dict[str, int]:
        """Counters; see the class."""
        counters, known = self.counters, self._connections
        return {
            "connections": len(known),
            "accepted": counters.accepted,
            "streams": sum(len(one.streams) + one.batched_calls for one in known),
            "read": counters.read_bytes + sum(one.read_bytes for one in known),
            "written": counters.written_bytes + sum(one.written_bytes for one in known),
            "calls": counters.calls,
            "refused": counters.refused,
            "faults": counters.faults,
            "held": counters.held,
            "unsent": self.unsent.used,
            "shed": self.unsent.shed,
        }

    def bound_callers(self, who: Callable[[CallContext], str] | None) -> None:
        """Bound what each caller may hold of `limits.held_bytes`, of connections from now on. `who`: see there."""
        self.shares, self.who = CallerShares(self.limits.held_bytes), who

    def unfold_apart(self, apart: Apart, payer: Callable[[CallContext], str] | None) -> None:
        """Keep compressed messages that are large off the loop. `payer`: see there."""
        self.apart, self.payer = apart, payer

    def make_connection(self) -> ServerConnection:
        """A protocol for one socket (asyncio's protocol factory)."""
        return ServerConnection(self._loop, self)

    def admit(self, connection: ServerConnection) -> bool:
        """Whether there is room for one more connection. Counted until `gone`."""
        if self._stopping or len(self._connections) >= self.limits.connections:
            self.counters.refused += 1
            return False
        self._connections.add(connection)
        self.counters.accepted += 1
        if self._timer is None:
            self._sweep_later()
        return True

    def gone(self, connection: ServerConnection) -> None:
        """A connection ended."""
        if connection in self._connections:
            self._connections.remove(connection)
            self.counters.read_bytes += connection.read_bytes
            self.counters.written_bytes += connection.written_bytes
        if not self._connections and self._empty is not None:
            self._empty.set()

    def _sweep(self) -> None:
        self._timer = None
        now = self._loop.time()
        for connection in list(self._connections):
            connection.sweep(now)
        if self._connections:
            self._sweep_later()

    def _sweep_later(self) -> None:
        self._timer = self._loop.call_later(until_beat(self._loop.time(), self.limits.sweep_s), self._sweep)

    async def drain(self, grace_s: float) -> None:
        """Accept nothing new, let open calls finish for at most `grace_s` seconds, then fail the rest and close.

        Unary calls are left alone; streams get `on_drain`, so that the application can end them.
        """
        self._stop_listening()
        self._empty = asyncio.Event()
        for connection in list(self._connections):
            connection.drain()
        if self._connections:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), grace_s)
        await self.close()

    async def close(self) -> None:
        """Stop at once: open calls fail with UNAVAILABLE, sockets are closed."""
        self._stop_listening()
        self._empty = asyncio.Event()
        for connection in list(self._connections):
            connection.finish_all(_STOPPED)
        self.tasks.cancel()
        if self._connections:
            try:
                await asyncio.wait_for(self._empty.wait(), self.limits.close_s + 0.5)
            except TimeoutError:
                for connection in list(self._connections):
                    if connection.transport is not None:
                        connection.transport.abort()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def renew(self, tls: ssl.SSLContext, within_s: float | None = None) -> None:
        """Shake hands by another context from now on: in place of the one it was opened with. Clients that showed a
        certificate connect again, so that it is checked again; nobody is refused for it. `within_s`: what is under way
        on their connections then fails with UNAVAILABLE; None: it takes as long as it takes."""
        before = self._listeners
        sockets = [socket.socket(fileno=os.dup(one.fileno())) for listener in before for one in listener.sockets]
        self._listeners = []
        for one in sockets:  # what waits to be accepted is shared by both
            await self.listen(tls, sock=one)
        for listener in before:
            listener.close()
        for connection in list(self._connections):
            if connection.certificate:
                connection.drain("certificates are checked again")
                if within_s is not None:
                    self._loop.call_later(within_s, connection.finish_all, _RENEWED)

    async def listen(self, tls: ssl.SSLContext | None, **where: Any) -> None:
        """Accept connections at one more place. Raises OSError."""
        if tls is not None:
            tls.set_alpn_protocols(["h2", "http/1.1"] if self.on_fallback is not None else ["h2"])
            where |= {"ssl": tls, "ssl_handshake_timeout": self.limits.handshake_s}
        listener = await self._loop.create_server(self.make_connection, backlog=1024, **where)
        if self._stopping:
            listener.close()
            return
        self._listeners.append(listener)
        self.host, self.port = listener.sockets[0].getsockname()[:2]

    def _stop_listening(self) -> None:
        self._stopping = True
        for listener in self._listeners:
            listener.close()
        self._listeners = []


async def serve(
    methods: Methods,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    tls: ssl.SSLContext | None = None,
    limits: TransportLimits | None = None,
    on_fallback: Fallback | None = None,
    shared: bool = False,
    unsent: Unsent | None = None,
    secret: bytes = b"",
) -> Server:
    """Serve `methods` on host:port (0 takes a free one; see `Server.port`), in the running event loop.

    `tls`: server context; its ALPN list is set here. `on_fallback`: takes connections that do not begin with the
    HTTP/2 preface, for HTTP/1.1. `shared`: other processes may listen on the same port, too. `unsent`: the budget of
    this process, where it opens several servers. `secret`: what every call must carry, see `headers.SECRET`. Raises
    OSError when the port cannot be had.
    """
    if secret and on_fallback is not None:
        raise ValueError("another protocol would not ask for the secret")
    loop = asyncio.get_running_loop()
    server = Server(methods, limits or TransportLimits(), on_fallback, loop, unsent)
    server.secret = secret
    await server.listen(tls, host=host, port=port, **({"reuse_port": True} if shared else {}))
    return server
