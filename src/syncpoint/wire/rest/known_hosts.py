"""Names by which a server of this machine alone may be called over HTTP/1.1.

Place: around everything that a port answers over HTTP/1.1 where callers are not identified, on loopback.
Promise: a page of a name that its owner has let stand for this machine (DNS rebinding) reaches nothing, though for a
browser it is of the same site as the server. Clients of gRPC are asked nothing: no browser speaks HTTP/2 in the clear.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from syncpoint.base.model.errors import PermissionDenied
from syncpoint.wire.rest.rendering import refusal
from syncpoint.wire.rest.system_parameters import SystemParameters, headers_of

_HOST: Final = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(:[0-9]*)?")
LOOPBACK_HOSTS: Final = ("localhost", "127.0.0.1", "[::1]")


class KnownHosts:
    """An application that answers only who calls it by one of these names. `names`: without ports."""

    def __init__(self, app: ASGIApp, names: Iterable[str]) -> None:
        self._app, self._names = app, frozenset(one.lower() for one in (*LOOPBACK_HOSTS, *names))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        headers = headers_of(scope)
        host = headers.get(b"host")
        if host is not None and host_name(host) not in self._names:
            shown = ascii(host_name(host)[:100])
            error = PermissionDenied(f"Unknown host name {shown}. Use localhost, or start the server with --host-name.")
            await refusal(error, SystemParameters(b"", headers)).send(send)
            return
        await self._app(scope, receive, send)


def host_name(host: bytes) -> str:
    """The name in a header `host`, without its port, in lower case; all of it where it is none."""
    text = host.decode("latin-1").strip().lower()
    found = _HOST.fullmatch(text)
    return text if found is None else found[1]
