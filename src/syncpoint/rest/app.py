"""The ASGI application: a request becomes a call of the same methods that gRPC calls, behind the same gate.

Place: run by `http1` on the connections that are not HTTP/2. Other pages of the server are mounted beside it.
Promise: one answer for each request, in Google's shape; a caller who goes away cancels the call. Unary methods only.
Leaves to the gate around the methods: who may call.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import Receive, Scope, Send

from syncpoint.model.errors import Code, DeadlineExceeded, PermissionDenied, SyncpointError
from syncpoint.rest.discovery import discovery_document
from syncpoint.rest.errors import bad_request, error_json, headers_of, status_of
from syncpoint.rest.openapi import openapi_document
from syncpoint.rest.table import Table
from syncpoint.rest.transcode import request_of, response_json, selected, selection
from syncpoint.runtime.tasks import complete
from syncpoint.transport.calls import Methods, Unary
from syncpoint.transport.encoding import inflate
from syncpoint.transport.stream_state import Message

CERTIFICATE: Final = "syncpoint.certificate"
"""Of a scope's extensions: what the caller's certificate says."""
TIMEOUT_S_MAX: Final = 3600.0
QUERY_PARAMETERS_MAX: Final = 1000
APART_BYTES: Final = 64 * 1024

_SYSTEM: Final = frozenset(
    (
        "access_token", "alt", "callback", "fields", "key", "oauth_token", "prettyPrint", "quotaUser",
        "upload_protocol", "uploadType",
    )
)  # fmt: skip
"""Parameters of every method; they may have a `$` before them. What is not understood of them changes nothing."""
_OURS: Final = frozenset(
    (
        b"accept", b"accept-encoding", b"connection", b"content-encoding", b"content-length", b"content-type",
        b"expect", b"host", b"keep-alive", b"te", b"transfer-encoding", b"upgrade", b"x-http-method-override",
        b"x-server-timeout",
    )
)  # fmt: skip
_FORM: Final = b"application/x-www-form-urlencoded"

Result = TypeVar("Result")

log = logging.getLogger(__name__)


class RestCall:
    """A call as its method sees it (`calls.Call`). `answer` is done once."""

    def __init__(
        self,
        path: bytes,
        metadata: dict[bytes, bytes],
        deadline: float | None,
        peer: str,
        certificate: Mapping[str, Any] | None,
    ) -> None:
        self.path, self.metadata, self.deadline = path, metadata, deadline
        self.peer, self.certificate = peer, certificate
        self.cancelled = False
        self.on_cancel: Any = None
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def reply(self, message: Message) -> None:
        """See Call."""
        if isinstance(message, (bytes, bytearray, memoryview)):
            complete(self.answer, bytes(message))
        else:
            complete(self.answer, b"".join(bytes(part) for part in message))

    def fail(self, error: SyncpointError) -> None:
        """See Call."""
        complete(self.answer, error)

    def run(self, method: Unary, request: bytes) -> None:
        """Call the method; what it raises fails the call."""
        try:
            method.handler(self, request)
        except SyncpointError as error:
            self.fail(error)
        except Exception:
            log.exception("handler of %s failed", self.path.decode("ascii", "replace"))
            self.fail(SyncpointError(Code.INTERNAL, "Internal error."))

    def cancel(self) -> None:
        """The caller is gone, or its time is over."""
        if not (self.cancelled or (self.answer.done() and not self.answer.cancelled())):
            self.cancelled = True
            if self.on_cancel is not None:
                self.on_cancel()

    def expire(self) -> None:
        """The caller's deadline passed."""
        self.cancel()
        self.fail(DeadlineExceeded("Deadline exceeded."))


class _Parameters:
    """How a caller wants its answer: from the system parameters of its query."""

    def __init__(self, query: list[tuple[str, str]], headers: Mapping[bytes, bytes]) -> None:
        self.fields = headers.get(b"x-goog-fieldmask", b"").decode("latin-1")
        self.pretty, self.numbers, self.legacy = True, False, False
        self.query: list[tuple[str, str]] = []
        self.problem: SyncpointError | None = None
        for name, value in query:
            plain = name.removeprefix("$")
            if plain in (".xgafv", "xgafv"):
                self.legacy = value == "1"
            elif plain not in _SYSTEM:
                self.query.append((name, value))
            elif plain == "fields":
                self.fields = value
            elif plain == "prettyPrint":
                self.pretty = value.lower() != "false"
            elif plain == "alt":
                kind, *options = value.lower().split(";")
                self.numbers = "enum-encoding=int" in options
                if kind not in ("", "json"):
                    self.problem = bad_request("alt", f"Invalid value \"{value[:64]}\" for query parameter 'alt': only"
                                               " json is served.")  # fmt: skip
            elif plain == "callback":
                self.problem = bad_request("callback", "The query parameter 'callback' is not served.")


class RestApp:
    """See the module."""

    def __init__(self, methods: Methods, table: Table, message_bytes: int) -> None:
        self.methods, self.table, self._message_bytes = methods, table, message_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            raise RuntimeError(f"{scope['type']} is not spoken here")
        headers = _headers(scope)
        pairs = _pairs(scope["query_string"])
        wanted = _Parameters(pairs or [], headers)
        status, more, content = 200, {}, None
        try:
            if pairs is None:
                raise bad_request("", "The query has too many parameters.")
            content = await self._answered(scope, headers, wanted, await _body(receive))
        except SyncpointError as error:
            status, more = status_of(error), headers_of(error)
            content = error_json(error, legacy=wanted.legacy)
        await _respond(send, status, content, more, pretty=wanted.pretty)

    async def _answered(self, scope: Scope, headers: Mapping[bytes, bytes], wanted: _Parameters, body: bytes) -> Any:
        if _of_another_site(headers):
            raise PermissionDenied("Pages of other sites may not call this server.")
        if wanted.problem is not None:
            raise wanted.problem
        verb = (
            headers.get(b"x-http-method-override", b"").decode("latin-1").upper() if scope["method"] == "POST" else ""
        )
        query = wanted.query
        if encoding := headers.get(b"content-encoding", b"").lower():
            body = inflate(1, encoding, body, self._message_bytes) if encoding != b"identity" else body
        if verb == "GET" and headers.get(b"content-type", b"").startswith(_FORM):
            query, body = query + [pair for pair in _pairs(body) or [] if pair[0].removeprefix("$") not in _SYSTEM], b""
        found = self.table.find(verb or scope["method"], scope["raw_path"].decode("ascii", "replace"))
        method = self.methods.get(found[0].method.encode()) if found is not None else None
        if found is None or not isinstance(method, Unary):
            raise SyncpointError(Code.NOT_FOUND, "Method not found.")
        route, variables = found
        chosen = selection(wanted.fields, route.method.descriptor.output_type) if wanted.fields else {}
        request = await _apart(len(body), request_of, route, variables, query, body)
        if len(request) > self._message_bytes:
            text = f"Received message larger than max ({len(request)} vs. {self._message_bytes})"
            raise SyncpointError(Code.RESOURCE_EXHAUSTED, text)
        answer = await self._called(scope, headers, route.method.encode(), method, request)
        return selected(await _apart(len(answer), response_json, route, answer, wanted.numbers), chosen)

    async def _called(
        self, scope: Scope, headers: Mapping[bytes, bytes], path: bytes, method: Unary, request: bytes
    ) -> bytes:
        loop, timeout_s = asyncio.get_running_loop(), _timeout(headers.get(b"x-server-timeout"))
        client = scope.get("client")
        call = RestCall(
            path,
            {name: value for name, value in headers.items() if name not in _OURS},
            None if timeout_s is None else loop.time() + timeout_s,
            f"{client[0]}:{client[1]}" if client else "",
            (scope.get("extensions") or {}).get(CERTIFICATE),
        )
        timer = None if call.deadline is None else loop.call_at(call.deadline, call.expire)
        try:
            call.run(method, request)
            return await call.answer
        finally:
            call.cancel()  # changes nothing when it was answered
            if timer is not None:
                timer.cancel()


def application(methods: Methods, *, message_bytes: int, mounts: Sequence[BaseRoute] = ()) -> Starlette:
    """Everything that a door answers over HTTP/1.1. `methods`: behind their gate; `mounts`: other pages, looked at
    before the methods."""
    table = Table(methods)
    pages = {"/openapi.json": openapi_document(table)}
    described = discovery_document(table)

    async def page(request: Request) -> JSONResponse:
        return JSONResponse(pages[request.url.path])

    async def discovery(request: Request) -> JSONResponse:
        if request.query_params.get("version", "v1") != "v1":
            error = SyncpointError(Code.NOT_FOUND, "Only version v1 is described.")
            return JSONResponse(error_json(error), status_of(error))
        base = f"{request.url.scheme}://{request.headers.get('host', 'localhost')}/"
        return JSONResponse({**described, "rootUrl": base, "baseUrl": base, "mtlsRootUrl": base})

    own = [*(Route(path, page) for path in pages), Route("/$discovery/rest", discovery)]
    rest = RestApp(methods, table, message_bytes)
    return Starlette(routes=[*mounts, *own, Mount("/", app=rest)])


def _of_another_site(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a browser sends this for a page from elsewhere: with a certificate of its own, or at a door without
    credentials, it could do what its user may."""
    origin = headers.get(b"origin")
    if origin is not None:
        return origin.partition(b"://")[2].lower() != headers.get(b"host", b"").lower()
    return headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin")


async def _apart(size: int, function: Callable[..., Result], *arguments: Any) -> Result:
    """What takes long happens in a thread, so that other callers do not wait."""
    return await asyncio.to_thread(function, *arguments) if size > APART_BYTES else function(*arguments)


async def _respond(send: Send, status: int, content: Any, more: Mapping[str, str], *, pretty: bool) -> None:
    text = json.dumps(content, indent=2, ensure_ascii=False) if pretty else json.dumps(content, ensure_ascii=False)
    body = text.encode("utf-8", "replace") + b"\n"
    headers = [
        (b"content-type", b"application/json; charset=UTF-8"),
        (b"content-length", b"%d" % len(body)),
        (b"x-content-type-options", b"nosniff"),
        (b"cache-control", b"private"),
        *((name.encode(), value.encode("latin-1", "replace")) for name, value in more.items()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _body(receive: Receive) -> bytes:
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise asyncio.CancelledError
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


def _headers(scope: Scope) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        found[name] = found[name] + b"," + value if name in found else value
    return found


def _pairs(query: bytes) -> list[tuple[str, str]] | None:
    """The parameters of a query; None: too many."""
    try:
        return parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=QUERY_PARAMETERS_MAX)
    except ValueError:
        return None


def _timeout(header: bytes | None) -> float | None:
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        return None
    return min(seconds, TIMEOUT_S_MAX) if math.isfinite(seconds) and seconds > 0 else None
