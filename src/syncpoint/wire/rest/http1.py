"""HTTP/1.1 on a connection that the transport handed over: h11 reads and writes it, an ASGI application answers it.

Place: between `transport.server`, whose connection it stays, and `app`. One request at a time; the whole of it is read
before the application sees it, so a slow caller costs a buffer and nothing else. An answer may come in pieces, for as
long as the caller stays: a piece is taken only when the socket has room, so such an answer costs a buffer, too.
Promise: bounds as on HTTP/2 (`TransportLimits`): of heads, bodies, times, and of what all connections hold together. A
caller who goes away cancels its request. A server that stops answers what it has begun; an answer without an end waits
for `LEAVING` and ends then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, cast

import h11
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Scope

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.base.runtime.child_processes import Apart, at_once
from syncpoint.wire.rest.app import CERTIFICATE, CONNECTION, Admit, Payer, RestApp, application, caller_of
from syncpoint.wire.rest.errors import error_json, headers_for
from syncpoint.wire.rest.http_answer import HttpAnswer, dated, response
from syncpoint.wire.rest.known_hosts import KnownHosts
from syncpoint.wire.rest.rendering import JSON, Answer, json_text
from syncpoint.wire.transport.caller_shares import CallerShares, Holding
from syncpoint.wire.transport.calls import CallContext, Methods
from syncpoint.wire.transport.limits import TransportLimits
from syncpoint.wire.transport.server import FallbackProtocol

IDLE_S: Final = 120.0
"""Seconds that a connection is kept between requests: longer than clients keep theirs, mostly."""
BODY_EXTRA_BYTES: Final = 1024 * 1024
AHEAD_BYTES_MAX: Final = 64 * 1024
"""Of the next request, read while one is answered."""
PIECES_MAX: Final = 20_000
PIECE_BYTES_MIN: Final = 64
"""Chunks of a body may be smaller on average only while they are few."""
RATE_BYTES_PER_S: Final = 16 * 1024
"""A body may take `frame_s`, and longer only at this rate."""

LEAVING: Final = "syncpoint.leaving"
"""Of a scope's extensions: an event of asyncio, set once the server stops."""

_FULL: Final = "The server is handling as many requests as it can. Retry with backoff."

log = logging.getLogger(__name__)


class HttpFallback:
    """What the connections of a port share. Called by the transport for each of them."""

    def __init__(
        self,
        app: ASGIApp,
        limits: TransportLimits,
        refuses: Callable[[Scope], Answer | None] | None = None,
        who: Callable[[CallContext], str] | None = None,
    ) -> None:
        """`refuses`: asked with the head of a request that has a body; None: nobody is refused by the head. `who`: who
        makes a request, "" for nobody that is known; None: callers are not identified."""
        self.app, self.limits, self.refuses, self.who = app, limits, refuses, who
        self.body_bytes = limits.message_bytes * 4 // 3 + BODY_EXTRA_BYTES  # data is base64
        self.shares = CallerShares(limits.held_bytes)
        """Bytes of requests that are being read or answered."""

    def __call__(self) -> HttpConnection:
        return HttpConnection(self)


def http_fallback(
    methods: Methods,
    limits: TransportLimits,
    *,
    admit: Admit | None = None,
    who: Callable[[CallContext], str] | None = None,
    payer: Payer | None = None,
    apart: Apart = at_once,
    pages: Sequence[BaseRoute] = (),
    hosts: Collection[str] | None = None,
) -> HttpFallback:
    """What a server gives connections to that are not HTTP/2. See `RestApp` and `application`. `hosts`: what it may be
    called besides the names of this machine; None: whatever callers like.
    """
    rest = RestApp(methods, limits.message_bytes, admit, payer, apart)
    app = application(rest, pages)
    return HttpFallback(
        app if hosts is None else KnownHosts(app, hosts), limits, None if admit is None else rest.refuses, who
    )


class HttpConnection(FallbackProtocol):
    """One connection."""

    def __init__(self, fallback: HttpFallback) -> None:
        self._shared, self._limits = fallback, fallback.limits
        self._loop = asyncio.get_running_loop()
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=fallback.limits.header_list_bytes)
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._request: h11.Request | None = None
        self._asked: dict[str, Any] | None = None
        self._body = bytearray()
        self._pieces = 0
        self._task: asyncio.Task[None] | None = None
        self._ahead = 0
        self._reading_paused = False
        self._drained: asyncio.Event | None = None
        """Set when the socket takes more; None: it does."""
        self._closing_at: float | None = None
        self._leaving = asyncio.Event()
        self._since = self._loop.time()
        """When the state began that the connection is in: idle, a head, a body, a full socket."""
        self._started = False
        """Some of the next head came."""
        self._served = False
        self._written = 0

    # -- the transport -----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        address = str(peer[0]) if isinstance(peer, tuple) and peer else ""
        self._holding = Holding(self._shared.shares, address, self._who)

    def connection_lost(self, error: Exception | None) -> None:
        """The caller is gone: what it asked for is cancelled."""
        self._closing_at = self._loop.time()
        if self._drained is not None:
            self._drained.set()
        if self._task is not None:
            self._task.cancel()
        else:
            self._let_go()

    def data_received(self, data: bytes) -> None:
        if self._closing_at is not None:
            return
        if self._task is not None:
            self._ahead += len(data)
            if self._ahead > AHEAD_BYTES_MAX and not self._reading_paused:
                self._reading_paused = True
                self._transport.pause_reading()
        elif self._request is None and not self._started:
            self._started, self._since = True, self._loop.time()
        self._http.receive_data(data)
        self._advance()

    def eof_received(self) -> bool | None:
        """The caller closed its side, which nearly always means that it is gone; asyncio closes the transport."""
        return None

    def pause_writing(self) -> None:
        """The socket is full."""
        if self._drained is None:
            self._drained = asyncio.Event()
            self._since, self._written = self._loop.time(), self._transport.get_write_buffer_size()

    def resume_writing(self) -> None:
        """The socket takes more."""
        if self._drained is not None:
            self._drained.set()
            self._drained = None

    def sweep(self, now: float) -> None:
        limits, took = self._limits, now - self._since
        if self._closing_at is not None or self._drained is not None:
            left = self._transport.get_write_buffer_size()
            if left < self._written:
                self._since, self._written = now, left
            elif took > (limits.stall_s if self._closing_at is None else limits.close_s):
                self._transport.abort()
        elif self._task is not None:
            return
        elif self._request is not None:
            if took > limits.frame_s + len(self._body) / RATE_BYTES_PER_S:
                self._refuse(408, SyncpointError(Code.DEADLINE_EXCEEDED, "The request took too long to arrive."))
        elif self._started:
            if took > limits.first_request_s:
                self._refuse(408, SyncpointError(Code.DEADLINE_EXCEEDED, "The request took too long to arrive."))
        elif took > (IDLE_S if self._served else limits.first_request_s):
            self._close()

    def drain(self) -> None:
        """Finish the request under way, then close the connection."""
        self._leaving.set()
        if self._task is None and self._closing_at is None:
            self._close()

    # -- requests ----------------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        while self._task is None and self._closing_at is None:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as error:
                code = Code.INVALID_ARGUMENT if error.error_status_hint != 431 else Code.RESOURCE_EXHAUSTED
                self._refuse(error.error_status_hint, SyncpointError(code, f"Malformed HTTP request: {error}."))
                return
            if event is h11.NEED_DATA or event is h11.PAUSED:
                if self._http.they_are_waiting_for_100_continue:
                    go_on = h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")
                    self._transport.write(self._http.send(go_on) or b"")
                return
            if isinstance(event, h11.Request):
                self._begin(event)
            elif isinstance(event, h11.Data):
                self._add(event.data)
            elif isinstance(event, h11.EndOfMessage):
                self._run()
            else:  # the caller closed
                self._close()

    def _begin(self, request: h11.Request) -> None:
        self._request, self._since = request, self._loop.time()
        headers = dict(request.headers)
        length = headers.get(b"content-length", b"0")
        size = len(request.target) + sum(len(name) + len(value) + 32 for name, value in request.headers)
        if size > self._limits.header_list_bytes:
            text = f"The header fields have {size} bytes; the maximum is {self._limits.header_list_bytes}."
            self._refuse(431, SyncpointError(Code.RESOURCE_EXHAUSTED, text))
        elif b"content-length" in headers and b"transfer-encoding" in headers:
            # A proxy before us may have believed the other one.
            text = "Malformed HTTP request: it has both content-length and transfer-encoding."
            self._refuse(400, SyncpointError(Code.INVALID_ARGUMENT, text))
        elif int(length) > self._shared.body_bytes:
            self._too_large()
        elif self._shared.shares.held > self._limits.held_bytes:
            self._refuse(429, SyncpointError(Code.RESOURCE_EXHAUSTED, _FULL))
        elif (
            self._shared.refuses is not None
            and (int(length) or b"transfer-encoding" in headers)
            and (refused := self._shared.refuses(self._scope())) is not None
        ):
            self._finish(refused)

    def _add(self, data: bytes | bytearray) -> None:
        self._body += data
        self._pieces += 1
        too_much: SyncpointError | None = None
        try:
            self._holding.hold(len(data))
        except SyncpointError as error:
            too_much = error
        if len(self._body) > self._shared.body_bytes:
            self._too_large()
        elif too_much is not None:
            self._refuse(429, too_much)
        elif self._pieces > PIECES_MAX + len(self._body) // PIECE_BYTES_MIN:
            self._refuse(400, SyncpointError(Code.INVALID_ARGUMENT, "The request body has too many small chunks."))

    def _who(self) -> str:
        """Who makes the request that is coming in."""
        who = self._shared.who
        return "" if who is None else who(caller_of(self._scope(), ""))

    def _too_large(self) -> None:
        text = f"Request payload size exceeds the limit: {self._shared.body_bytes} bytes."
        self._refuse(400, SyncpointError(Code.INVALID_ARGUMENT, text))

    def _let_go(self) -> None:
        self._holding.hold(-len(self._body))
        self._body, self._pieces, self._request, self._asked = bytearray(), 0, None, None

    def _run(self) -> None:
        self._ahead = len(self._http.trailing_data[0])
        self._task = self._loop.create_task(self._serve(self._scope()))

    def _scope(self) -> dict[str, Any]:
        """The request as ASGI has it, made once."""
        if self._asked is None:
            assert self._request is not None
            self._asked = self._scope_of(self._request)
        return self._asked

    def _scope_of(self, request: h11.Request) -> dict[str, Any]:
        path, _, query = request.target.partition(b"?")
        if not path.startswith(b"/"):  # of a proxy: http://host/path
            path = b"/" + path.partition(b"://")[2].partition(b"/")[2]
        info = self._transport.get_extra_info
        certificate: Mapping[str, Any] | None = info("peercert")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": request.http_version.decode(),
            "method": request.method.decode("ascii"),
            "scheme": "http" if info("sslcontext") is None else "https",
            "path": path.decode("latin-1"),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": [(name.lower(), value) for name, value in request.headers],
            "client": _address(info("peername")),
            "server": _address(info("sockname")),
            "extensions": {CERTIFICATE: certificate, CONNECTION: self._transport, LEAVING: self._leaving},
        }

    async def _serve(self, scope: dict[str, Any]) -> None:
        answer = HttpAnswer(self.write, self._leaving.is_set, bare=scope["method"] == "HEAD")
        given = False

        async def receive() -> dict[str, Any]:
            nonlocal given
            if given:  # a caller who goes away cancels this task
                await self._loop.create_future()
            given = True
            return {"type": "http.request", "body": self._body, "more_body": False}

        try:
            await self._shared.app(scope, receive, answer.send)
        except Exception:
            log.exception("the answer to %s %s failed", scope["method"], scope["path"])
        finally:
            self._task = None
            self._let_go()
            if self._closing_at is None:
                self._after(answer)

    def _after(self, answer: HttpAnswer) -> None:
        if not answer.begun:
            self._refuse(500, SyncpointError(Code.INTERNAL, "Internal error."))
        elif self._http.our_state is h11.DONE and self._http.their_state is h11.DONE and not self._leaving.is_set():
            self._http.start_next_cycle()
            self._served, self._started, self._since = True, self._ahead > 0, self._loop.time()
            self._ahead = 0
            if self._reading_paused:
                self._reading_paused = False
                self._transport.resume_reading()
            self._loop.call_soon(self._advance)
        elif self._http.our_state in (h11.DONE, h11.MUST_CLOSE):
            self._close()
        else:  # cut in half
            self._transport.abort()

    # -- answers -----------------------------------------------------------------------------------------------------

    async def write(self, *events: h11.Event) -> None:
        """Send, as soon as the socket takes it."""
        if self._closing_at is not None:
            return
        self._transport.write(b"".join(self._http.send(event) or b"" for event in events))
        if self._drained is not None:
            await self._drained.wait()

    def _refuse(self, status: int, error: SyncpointError) -> None:
        """Answer a request that no application sees, and close."""
        self._finish(Answer(status, json_text(error_json(error, status=status)), JSON, headers_for(error)))

    def _finish(self, answer: Answer) -> None:
        """Answer before the request is read, and close."""
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            headers = [*dated(), *answer.fields(), (b"connection", b"close")]
            events = response(answer.status, headers), h11.Data(data=answer.body), h11.EndOfMessage()
            self._transport.write(b"".join(self._http.send(event) or b"" for event in events))
        if self._http.their_state is h11.SEND_BODY:
            self._linger()
        else:
            self._close()

    def _linger(self) -> None:
        """Drop what still comes: closing a socket with unread bytes would take the answer back from a caller who is
        still sending. He closes, or `sweep` does."""
        self._closing_at = self._since = self._loop.time()
        self._written = 0
        self._let_go()
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def _close(self) -> None:
        if self._closing_at is None:
            self._closing_at = self._since = self._loop.time()
            self._written = self._transport.get_write_buffer_size()
            self._let_go()
            self._transport.close()


def _address(name: Any) -> tuple[str, int] | None:
    return (str(name[0]), int(name[1])) if isinstance(name, tuple) and len(name) >= 2 else None
