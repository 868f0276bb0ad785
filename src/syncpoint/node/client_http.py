"""What the port for clients answers over HTTP/1.1: the methods as REST, and other pages of the server.

Place: one for every process with such a port: a node, a worker, a proxy.
"""

from __future__ import annotations

from collections.abc import Sequence

from starlette.routing import BaseRoute

from syncpoint.access.access import Access
from syncpoint.rest.http1 import HttpFallback, http_fallback
from syncpoint.transport.calls import Methods
from syncpoint.transport.limits import TransportLimits


def client_http(
    methods: Methods, limits: TransportLimits, access: Access | None, pages: Sequence[BaseRoute] = ()
) -> HttpFallback:
    """`methods`: behind their gate. `pages`: they need no credentials, and are looked for before the methods."""
    return http_fallback(methods, limits, admit=None if access is None else access.gate.admit, pages=pages)
