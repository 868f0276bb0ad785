"""What the port for clients answers over HTTP/1.1: the methods as REST, and other pages of the server.

Place: under `client_port`.
"""

from __future__ import annotations

from collections.abc import Sequence

from starlette.routing import BaseRoute

from syncpoint.base.model.hosts import loopback
from syncpoint.base.runtime.child_processes import Apart, at_once
from syncpoint.catalog.access.access import Access
from syncpoint.wire.rest.http1 import HttpFallback, http_fallback
from syncpoint.wire.transport.calls import CallContext, Methods
from syncpoint.wire.transport.limits import TransportLimits
from syncpoint.wire.transport.network import Listening
from syncpoint.wire.transport.server import Server


def client_http(
    methods: Methods,
    limits: TransportLimits,
    access: Access | None,
    pages: Sequence[BaseRoute] = (),
    *,
    apart: Apart = at_once,
    host: str,
    host_names: Sequence[str] = (),
) -> HttpFallback:
    """`methods`: behind their gate. `pages`: they need no credentials, and are looked for before the methods. `apart`:
    does what takes long. `host`: where the port listens; where that is this machine alone and callers are not
    identified, it is called by the names of this machine and by `host_names` alone.
    """
    if access is not None:
        gate = access.gate
        return http_fallback(
            methods, limits, admit=gate.admit, who=gate.tenant_of, payer=gate.payer_of, apart=apart, pages=pages
        )
    hosts = (host, *host_names) if loopback(host) else None
    return http_fallback(methods, limits, apart=apart, pages=pages, hosts=hosts)


def bound_callers(listening: Listening, access: Access | None, apart: Apart) -> None:
    """Bound what each caller of the port may hold of unfinished calls, and keep large compressed messages off the loop;
    one of a simulation holds nothing."""
    if not isinstance(listening, Server):
        return
    if access is None:
        listening.bound_callers(None)
        listening.unfold_apart(apart, None)
        return
    gate = access.gate

    def payer(call: CallContext) -> str:
        gate.admit(call)
        return gate.payer_of(call)

    listening.bound_callers(gate.tenant_of)
    listening.unfold_apart(apart, payer)
