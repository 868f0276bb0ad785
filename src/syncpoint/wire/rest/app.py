"""The ASGI application: a request becomes a call of the same methods that gRPC calls, behind the same gate.

Place: run by `http1` on the connections that are not HTTP/2. Other pages of the server stand beside it.
Promise: one answer for each request, in Google's shape; a caller who goes away cancels the call. Unary methods only.
Of a caller to whom nothing is granted no body is waited for, of whatever size. What takes more than a moment to read
or to write as JSON is done apart, and charged to who called.
Leaves to the gate around the methods: who may call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import Receive, Scope, Send

from syncpoint.base.model.errors import Code, PermissionDenied, SyncpointError
from syncpoint.base.runtime.child_processes import Apart, at_once, worked
from syncpoint.wire.rest.discovery import discovery_document
from syncpoint.wire.rest.errors import bad_request, error_json
from syncpoint.wire.rest.openapi import openapi_document
from syncpoint.wire.rest.rendering import JSON, Answer, json_text, refusal, success
from syncpoint.wire.rest.rest_call import RestCall
from syncpoint.wire.rest.system_parameters import (
    Headers,
    SystemParameters,
    headers_of,
    is_form,
    is_of_another_site,
    is_protobuf,
    metadata_of,
    timeout_of,
    verb_of,
)
from syncpoint.wire.rest.table import Table
from syncpoint.wire.rest.transcode import request_of, selection, values_in
from syncpoint.wire.transport.calls import AnyConnection, CallContext, Methods, Unary
from syncpoint.wire.transport.encoding import inflate

CERTIFICATE: Final = "syncpoint.certificate"
CONNECTION: Final = "syncpoint.connection"
"""The caller's certificate, from a scope's extensions."""
APART_BYTES: Final = 64 * 1024
APART_VALUES: Final = 1000
"""A body is read apart where it has more of either: objects and lists cost 6 us each, bytes 0.4."""
APART_ANSWER_BYTES: Final = 16 * 1024
"""A larger response is written as JSON apart: 1 us a byte at worst."""
_NO_VARIABLES: Final[Mapping[str, str]] = {}

Admit = Callable[[CallContext, str], None]
"""Raises for callers to whom nothing is granted, whatever they ask for. The text: the resource that the path names."""
Payer = Callable[[CallContext], str]
"""Whose processor time it is that a call takes, before the call is judged."""


@dataclass(slots=True)
class HeadOnly:
    """A request whose body is not there yet; see `transport.calls.CallContext`."""

    path: bytes
    metadata: dict[bytes, bytes]
    peer: str
    certificate: Mapping[str, Any] | None
    connection: AnyConnection | None
    deadline: float | None = None
    cancelled: bool = False
    on_cancel: Callable[[], object] | None = None


class RestApp:
    """The ASGI application of the REST API.

    `methods`: guarded by their gate; `admit`: None lets every caller reach the methods; `payer`: None charges nobody.
    """

    def __init__(
        self,
        methods: Methods,
        message_bytes: int,
        admit: Admit | None = None,
        payer: Payer | None = None,
        apart: Apart = at_once,
    ) -> None:
        self.methods, self.table, self._message_bytes, self._admit = methods, Table(methods), message_bytes, admit
        self._payer, self._apart = payer, apart

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            raise RuntimeError(f"{scope['type']} is not spoken here")
        headers = headers_of(scope)
        wanted = SystemParameters(scope["query_string"], headers)
        try:
            answer = await self._answered(scope, headers, wanted, receive)
        except SyncpointError as error:
            answer = refusal(error, wanted)
        await answer.send(send)

    async def _answered(self, scope: Scope, headers: Headers, wanted: SystemParameters, receive: Receive) -> Answer:
        if is_of_another_site(headers):
            raise PermissionDenied("Cross-site requests are not allowed.")
        verb, path = verb_of(scope, headers), scope["raw_path"].decode("ascii", "replace")
        found = self.table.find(verb, path)
        if found is None:
            return self._nowhere(verb, path, wanted)
        route, variables = found
        method = self.methods[route.method.encode()]
        assert isinstance(method, Unary)
        head = _head(scope, headers, route.method)
        call = RestCall(head.path, head.metadata, timeout_of(headers), head.peer, head.certificate, head.connection)
        try:
            if self._admit is not None:
                self._admit(call, _resource(variables))
            payer = "" if self._payer is None else self._payer(call)
            body = await self._unfolded(headers, await _body(receive), payer)
            if verb == "GET" and is_form(headers):
                wanted.add(body)
                body = b""
            if wanted.problem is not None:
                raise wanted.problem
            if wanted.binary and wanted.fields:
                raise bad_request("fields", "The query parameter 'fields' may only be used with alt=json.")
            chosen = selection(wanted.fields, route.method.descriptor.output_type) if wanted.fields else {}
            binary = is_protobuf(headers)
            large = len(body) > APART_BYTES or (not binary and values_in(body) > APART_VALUES)
            read = partial(request_of, route, variables, wanted.query, body, binary)
            request = await worked(self._apart, payer, read, large=large)
            if len(request) > self._message_bytes:
                text = f"Request payload size exceeds the limit: {self._message_bytes} bytes."
                raise SyncpointError(Code.RESOURCE_EXHAUSTED, text)
            response = await call.answered(method, request)
            write = partial(success, route, response, wanted, chosen)
            return await worked(self._apart, payer, write, large=len(response) > APART_ANSWER_BYTES)
        finally:
            call.end()

    def refuses(self, scope: Scope) -> Answer | None:
        """The answer to a request whose body need not be read at all, judged by the head."""
        headers = headers_of(scope)
        try:
            found = self.table.find(verb_of(scope, headers), scope["raw_path"].decode("ascii", "replace"))
            if self._admit is not None:
                # No method: a page, or nothing; what takes a body asks who calls, too.
                method, variables = (found[0].method, found[1]) if found else (scope["path"], _NO_VARIABLES)
                self._admit(_head(scope, headers, method), _resource(variables))
        except SyncpointError as error:
            return refusal(error, SystemParameters(scope["query_string"], headers))
        return None

    def _nowhere(self, verb: str, path: str, wanted: SystemParameters) -> Answer:
        verbs = self.table.verbs(path)
        if not verbs:
            raise SyncpointError(Code.NOT_FOUND, f"Method not found: {verb[:32]} {path[:256]}.")
        allow = ", ".join([*verbs, *(["HEAD"] if "GET" in verbs else []), "OPTIONS"])
        if verb == "OPTIONS":
            return Answer(200, b"", JSON, {"allow": allow})
        error = SyncpointError(Code.UNIMPLEMENTED, f"{verb[:32]} is not allowed for this path. Use {allow}.")
        return refusal(error, wanted, 405, allow=allow)

    async def _unfolded(self, headers: Headers, body: bytes, payer: str) -> bytes:
        encoding = headers.get(b"content-encoding", b"identity").lower()
        if encoding in (b"", b"identity"):
            return body
        return await self._apart.in_thread(partial(inflate, 1, encoding, body, self._message_bytes), payer)


def application(rest: RestApp, pages: Sequence[BaseRoute] = ()) -> Starlette:
    """Everything that a port answers over HTTP/1.1. `pages`: checked before the methods."""
    table = rest.table
    text = json_text(openapi_document(table))
    described = discovery_document(table)

    async def openapi(request: Request) -> Response:
        return Response(text, media_type="application/json")

    async def discovery(request: Request) -> Response:
        if request.query_params.get("version", "v1") != "v1":
            raise HTTPException(404, "Only version v1 is available.")
        base = f"{request.url.scheme}://{request.headers.get('host', 'localhost')}/"
        content = {**described, "rootUrl": base, "baseUrl": base, "mtlsRootUrl": base}
        return Response(json_text(content), media_type="application/json")

    own = [Route("/openapi.json", openapi), Route("/$discovery/rest", discovery)]
    return Starlette(
        routes=[*pages, *own, Mount("/", app=rest)], exception_handlers={HTTPException: _refused, Exception: _failed}
    )


def _resource(variables: Mapping[str, str]) -> str:
    """What a path is about: the first of its variables that begins like the name of a resource."""
    return next((value for value in variables.values() if value.startswith("projects/")), "")


def caller_of(scope: Scope, path: str) -> CallContext:
    """Who asks for a page that is no method, as `Admit` and its like take callers."""
    return _head(scope, headers_of(scope), path)


def _head(scope: Scope, headers: Headers, method: str) -> HeadOnly:
    client, beside = scope.get("client"), scope.get("extensions") or {}
    return HeadOnly(
        method.encode(),
        metadata_of(headers),
        f"{client[0]}:{client[1]}" if client else "",
        beside.get(CERTIFICATE),
        beside.get(CONNECTION),
    )


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = {404: Code.NOT_FOUND, 405: Code.UNIMPLEMENTED}.get(error.status_code, Code.INVALID_ARGUMENT)
    content = error_json(SyncpointError(code, error.detail), status=error.status_code)
    return Response(json_text(content), error.status_code, error.headers, media_type="application/json")


async def _failed(request: Request, error: Exception) -> Response:
    content = error_json(SyncpointError(Code.INTERNAL, "Internal error."))
    return Response(json_text(content), 500, media_type="application/json")


async def _body(receive: Receive) -> bytes:
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise asyncio.CancelledError
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)
