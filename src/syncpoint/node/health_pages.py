"""Pages for probes and for people who try the address: `/`, `/livez`, `/healthz` and `/readyz`.

Place: on every port for clients, beside the methods. They need no credentials, and tell nothing but whether the server
takes work, as grpc.health.v1 does.
Promise: `/livez` and `/healthz` answer for as long as the process does; `/readyz` answers 503 once the server takes no
work: it is stopping, or its log cannot be written. `/` answers `Ok`, as the emulator does, and leads browsers to the
console.
"""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from syncpoint.base.model.errors import SyncpointError
from syncpoint.watch.console.bundle import is_built
from syncpoint.watch.console.console_pages import PATH
from syncpoint.watch.console.inner_calls import called
from syncpoint.wire.protobuf import methods as names
from syncpoint.wire.protobuf.messages import health
from syncpoint.wire.transport.calls import Methods
from syncpoint.wire.transport.network import join_address, split_address

ANSWER_S: Final = 5.0
_HEADERS: Final = {"cache-control": "no-store"}
_ANYWHERE: Final = {"0.0.0.0": "localhost", "::": "localhost"}


def health_pages(methods: Methods) -> list[BaseRoute]:
    """All of them. `methods`: those of the process, without a gate."""

    async def root(request: Request) -> Response:
        if "text/html" in request.headers.get("accept", ""):
            return RedirectResponse(f"{PATH}/", 307)
        return _text("Ok\n")

    async def live(request: Request) -> Response:
        return _text("ok\n")

    async def ready(request: Request) -> Response:
        try:
            found = await called(methods, names.HEALTH.Check, health.HealthCheckRequest(), request, ANSWER_S)
        except SyncpointError as error:
            return _text(f"{error.message}\n", 503)
        if found.status == health.HealthCheckResponse.SERVING:
            return _text("ok\n")
        return _text("The server takes no work: it is stopping, or its log cannot be written.\n", 503)

    return [Route("/", root), Route("/livez", live), Route("/healthz", live), Route("/readyz", ready)]


def _text(text: str, status: int = 200) -> Response:
    return PlainTextResponse(text, status, headers=_HEADERS)


def console_address(endpoint: str, *, tls: bool) -> str:
    """Where a browser on this machine finds the console; "" for an installation without its files."""
    if not is_built():
        return ""
    host, port = split_address(endpoint)
    return f"http{'s' if tls else ''}://{join_address(_ANYWHERE.get(host, host), port)}{PATH}/"
