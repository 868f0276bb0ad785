"""A gateway as a process: its port for clients, its port for operators, and its end.

Place: under `cli.gateway`. Operators read `/healthz`, `/readyz`, `/metrics` and `/gateway.json` and change sites by
POST; on an address that others reach that takes the token of the file. Clients have the first two beside REST.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import signal
import socket
import ssl
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

import syncpoint
from syncpoint.base.model.errors import Code, FailedPrecondition, SyncpointError
from syncpoint.base.runtime.clock import SystemClock
from syncpoint.front.client.client import client_tls
from syncpoint.front.client.credentials import Credentials
from syncpoint.front.gateway.gateway_driver import Gateway, SiteAccess
from syncpoint.front.gateway.gateway_file import GatewayFile, SiteSpec
from syncpoint.front.gateway.gateway_peers import BODY_MAX, OPERATOR
from syncpoint.front.gateway.gateway_peers import PATH as PEER_PATH
from syncpoint.front.gateway.site_link import channels_to
from syncpoint.watch.metrics.exposition import CONTENT_TYPE, written
from syncpoint.watch.metrics.family import Samples
from syncpoint.watch.metrics.gateway_families import FAMILIES, PREFIX
from syncpoint.watch.metrics.otlp_export import MetricsExportSettings, OtlpMetrics
from syncpoint.wire.rest.http1 import http_fallback
from syncpoint.wire.transport.limits import TransportLimits
from syncpoint.wire.transport.network import join_address, split_address
from syncpoint.wire.transport.server import serve

GRACE_S: Final = 10.0
_STATUS: Final = {Code.NOT_FOUND: 404, Code.FAILED_PRECONDITION: 409}

log = logging.getLogger(__name__)


def samples_of(status: dict[str, Any]) -> Samples:
    """The metrics of a gateway's status."""
    found = Samples(FAMILIES)
    for site in status["sites"]:
        name = site["site"]
        found.put(f"{PREFIX}site_open", int(not site["state"].startswith("masked")), name)
        found.put(f"{PREFIX}site_home", int(site["state"] == "home"), name)
        found.put(f"{PREFIX}site_answers", int(site["answers"]), name)
        found.put(f"{PREFIX}site_changes_total", site["changes"], name)
        found.put(f"{PREFIX}calls_total", site["calls"], name)
        found.put(f"{PREFIX}calls_failed_total", site["failed"], name)
        found.put(f"{PREFIX}streams", site["streams"], name)
    dual = status["dual"]
    for name, lacks in dual["lacks"].items():
        found.put(f"{PREFIX}lacking_messages", lacks, name)
    found.put(f"{PREFIX}dual_published_total", dual["published"])
    found.put(f"{PREFIX}dual_one_site_total", dual["atOneSite"])
    found.put(f"{PREFIX}dual_copied_messages_total", dual["copied"])
    found.put(f"{PREFIX}dual_dropped_messages_total", dual["dropped"])
    found.put(f"{PREFIX}dual_held_messages", dual["held"])
    for peer in status["peers"]:
        found.put(f"{PREFIX}peer_waiting", peer["waiting"], peer["peer"])
        found.put(f"{PREFIX}peer_dropped_total", peer["dropped"], peer["peer"])
    found.put(f"{PREFIX}streams_moved_total", status["movedStreams"])
    found.put(f"{PREFIX}responses_total", status["responses"])
    found.put(f"{PREFIX}refused_total", status["refused"])
    return found


def probe_pages(gateway: Gateway) -> list[BaseRoute]:
    """`/healthz` for as long as the process answers; `/readyz` while a site answers and the gateway is not stopping."""

    async def live(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def ready(request: Request) -> Response:
        if gateway.ready and any(one.answers and not one.masked for one in gateway.board.sites.values()):
            return PlainTextResponse("ok\n")
        return PlainTextResponse("No site answers, or the gateway is stopping.\n", 503)

    return [Route("/healthz", live), Route("/livez", live), Route("/readyz", ready)]


def operator_pages(gateway: Gateway, token: str) -> list[BaseRoute]:
    """What operators read and change. `token`: "" where only programs of this machine reach the address."""

    def refused(request: Request) -> Response | None:
        shown = request.headers.get("authorization", "")
        if token and not hmac.compare_digest(shown.encode(), f"Bearer {token}".encode()):
            return JSONResponse({"error": "Show the token of admin.token_file (--token-file)."}, 401)
        return None

    async def status(request: Request) -> Response:
        return refused(request) or JSONResponse(gateway.status())

    async def metrics(request: Request) -> Response:
        return refused(request) or Response(written(samples_of(gateway.status())), media_type=CONTENT_TYPE)

    async def mask(request: Request) -> Response:
        return changed(request, gateway.mask)

    async def unmask(request: Request) -> Response:
        return changed(request, gateway.unmask)

    async def peer(request: Request) -> Response:
        no = refused_change(request)
        if no is not None:
            return no
        if gateway.peers is None:
            return JSONResponse({"error": "This gateway has no peers: name them in its file."}, 409)
        body = await request.body()
        try:
            if len(body) > BODY_MAX:
                raise ValueError(f"more than {BODY_MAX} bytes")
            return JSONResponse(gateway.peers.received(body))
        except (ValueError, TypeError, KeyError) as error:
            return JSONResponse({"error": f"not what a gateway sends: {error}"}, 400)

    def refused_change(request: Request) -> Response | None:
        no = refused(request)
        if no is None and OPERATOR not in request.headers:
            no = JSONResponse({"error": f"Send the header {OPERATOR}, as `syncpoint gateway` does."}, 403)
        return no

    def changed(request: Request, work: Callable[..., None]) -> Response:
        no = refused_change(request)
        if no is not None:
            return no
        try:
            work(request.path_params["site"], force="force" in request.query_params)
        except SyncpointError as error:
            return JSONResponse({"error": error.message}, _STATUS.get(error.code, 500))
        return JSONResponse(gateway.status())

    return [
        *probe_pages(gateway),
        Route("/gateway.json", status),
        Route("/metrics", metrics),
        Route(PEER_PATH, peer, methods=["POST"]),
        Route("/sites/{site}/mask", mask, methods=["POST"]),
        Route("/sites/{site}/unmask", unmask, methods=["POST"]),
    ]


def token_of(file: GatewayFile) -> str:
    """What operators show; "" where the file asks for nothing. Raises `OSError` and `FailedPrecondition`."""
    if file.admin_token is None:
        return ""
    found = file.admin_token.read_text().strip()
    if not found:  # as one that is still to be written: anybody could mask sites
        raise FailedPrecondition(f"admin.token_file: {file.admin_token} is empty. Write a token to it.")
    return found


def access_to(site: SiteSpec) -> SiteAccess:
    """How a site is reached. Raises `OSError` and `InvalidArgument` for files that cannot be used."""
    tls: ssl.SSLContext | None = None
    if site.tls:
        tls = client_tls(*(str(one) if one else None for one in (site.ca, site.cert, site.key)))
    if site.credentials is None:
        return SiteAccess(channels_to(site.endpoint, tls))
    return SiteAccess(channels_to(site.endpoint, tls), Credentials(site.credentials).metadata)


def server_tls(cert: Path, key: Path) -> ssl.SSLContext:
    """The context of the port for clients."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(cert, key)
    return context


@dataclass(frozen=True, slots=True)
class GatewayLook:
    """A gateway's metrics, read as a whole."""

    gateway: Gateway

    async def look(self) -> Samples:
        return samples_of(self.gateway.status())


async def run_gateway(file: GatewayFile, on_ready: Callable[[str, str], None], export: MetricsExportSettings) -> None:
    """Run until SIGTERM or Ctrl-C. `on_ready(clients, operators)`: addresses; `export`: where metrics go. Raises
    `OSError` for a port that is taken, and `SyncpointError`.
    """
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    token = token_of(file)
    async with AsyncExitStack() as stack:
        gateway = Gateway(file, {one.name: access_to(one) for one in file.sites}, token)
        stack.push_async_callback(gateway.stop)
        limits, table = TransportLimits(), gateway.methods()
        host, port = split_address(file.admin)
        pages = http_fallback({}, limits, pages=operator_pages(gateway, token), hosts=() if not token else None)
        operators = await serve({}, host, port, on_fallback=pages)
        stack.push_async_callback(operators.close)
        host, port = split_address(file.listen)
        tls = server_tls(file.cert, file.key) if file.cert and file.key else None
        rest = http_fallback(table, limits, pages=probe_pages(gateway))
        await gateway.start()
        clients = await serve(table, host, port, tls=tls, on_fallback=rest)
        clients.bound_callers(None)
        stack.push_async_callback(clients.drain, GRACE_S)
        if export.otlp:
            name = f"{socket.gethostname()}/gateway"
            metrics = OtlpMetrics(export, GatewayLook(gateway), name, syncpoint.__version__, SystemClock())
            metrics.start()
            stack.push_async_callback(metrics.stop)
        on_ready(join_address(clients.host, clients.port), join_address(operators.host, operators.port))
        await stop.wait()
        gateway.drain()
