"""Where metrics are read: `/metrics` on a port that clients use, and a port for nothing else.

Place: `node` puts the page beside REST, and opens the port of its own where an operator names one.
Promise: with access control the page is for callers who may see the server (`syncpoint.server.get`), as `disks list`
is. A port of its own asks nobody who he is, so it should be one that only those reach who may know; it answers no
method.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from syncpoint.base.model.errors import FailedPrecondition, SyncpointError
from syncpoint.catalog.access.gate import Gate
from syncpoint.catalog.access.permission_needs import SERVER
from syncpoint.watch.metrics.exposition import CONTENT_TYPE
from syncpoint.watch.metrics.kept_text import MetricsText
from syncpoint.wire.rest.app import caller_of
from syncpoint.wire.rest.errors import error_json, headers_for, status_of
from syncpoint.wire.rest.http1 import http_fallback
from syncpoint.wire.rest.rendering import json_text
from syncpoint.wire.transport.calls import Methods
from syncpoint.wire.transport.limits import TransportLimits
from syncpoint.wire.transport.network import join_address, split_address
from syncpoint.wire.transport.server import Server, serve

PATH: Final = "/metrics"
CLUSTER_PATH: Final = "/metrics/cluster"
"""Of a cluster: all processes as one text, with a label `process`."""
PERMISSION: Final = "syncpoint.server.get"
_NO_METHODS: Final[Methods] = {}

log = logging.getLogger(__name__)


def metrics_page(shown: MetricsText, gate: Gate | None = None, path: str = PATH) -> BaseRoute:
    """The page. `gate`: None answers everybody."""

    async def answer(request: Request) -> Response:
        if gate is not None:
            try:
                gate.check_page(caller_of(request.scope, path), PERMISSION, SERVER)
            except SyncpointError as error:
                return refused(error)
        return Response(await shown.text(), media_type=CONTENT_TYPE)

    return Route(path, answer, methods=["GET"])


async def serve_metrics(shown: MetricsText, address: str, *, shared: bool = False) -> Server:
    """Open HOST:PORT for the page alone, and log where; `shared`: with other processes, of which one has logged it
    for all. Raises `FailedPrecondition`.
    """
    host, port = split_address(address)
    limits = TransportLimits(connections=100, message_bytes=64 * 1024)
    pages = [metrics_page(shown)]
    http = http_fallback(_NO_METHODS, limits, pages=pages)
    with metrics_port(address):
        server = await serve(_NO_METHODS, host, port, limits=limits, on_fallback=http, shared=shared)
    if not shared:
        say_where(server.host, server.port)
    return server


def say_where(host: str, port: int) -> None:
    """Log where the page is."""
    log.info("metrics on http://%s%s", join_address(host, port), PATH)


@contextlib.contextmanager
def metrics_port(address: str) -> Iterator[None]:
    """Within it, `OSError` becomes `FailedPrecondition`, which names the port for metrics."""
    try:
        yield
    except OSError as error:
        raise FailedPrecondition(f"no metrics can be served at {address}: {os.strerror(error.errno or 0)}") from error


def refused(error: SyncpointError) -> Response:
    """The answer of a page to a caller that may not see it, or asks for what is not there."""
    return Response(json_text(error_json(error)), status_of(error), headers_for(error), media_type="application/json")
