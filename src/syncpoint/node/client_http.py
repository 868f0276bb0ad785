"""What the port for clients answers over HTTP/1.1: the methods as REST, and other pages of the server.

Place: one for every process with such a port: a node, a worker, a proxy.
"""

from __future__ import annotations

from starlette.routing import BaseRoute

from syncpoint.access.door import Access
from syncpoint.rest.http1 import HttpFallback, http_fallback
from syncpoint.transport.calls import Methods
from syncpoint.transport.limits import TransportLimits


def client_http(methods: Methods, limits: TransportLimits, access: Access | None) -> HttpFallback:
    """`methods`: behind their gate."""
    # Pages that need no credentials, looked for before the methods: Route("/.well-known/...", page) and the like.
    pages: list[BaseRoute] = []
    return http_fallback(methods, limits, admit=None if access is None else access.gate.admit, pages=pages)
