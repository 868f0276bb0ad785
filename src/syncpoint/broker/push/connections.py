"""Connections to endpoints, kept for their next push.

Place: under `http_sender`, over single connections of `httpcore`. Its own pool looks at every connection and every
waiting request whenever one begins or ends, which with hundreds of pushes under way costs more than all the rest.
Promise: a connection is used for one scheme, name and port; for one push at a time, unless both sides speak HTTP/2;
for no new push once it is `KEPT_S` old; and taking one costs the same however many there are.
"""

from __future__ import annotations

import ssl
from collections import deque
from dataclasses import dataclass

import httpcore

from syncpoint.broker.push.push_config import Endpoint

IDLE_MAX, IDLE_S = 100, 30.0  # of all endpoints
KEPT_S = 60.0

Key = tuple[str, str, int]


@dataclass(slots=True, eq=False)
class KeptConnection:
    """One of them. `users`: pushes that it carries now."""

    http: httpcore.AsyncHTTPConnection
    key: Key
    until: float
    shared: bool = False  # it carries many pushes at once
    users: int = 0


class KeptConnections:
    """Keep connections to push endpoints for reuse."""

    def __init__(self, backend: httpcore.AsyncNetworkBackend) -> None:
        self._backend = backend
        self._free: dict[Key, deque[KeptConnection]] = {}  # may take another push; those used last at the end
        self._all: dict[KeptConnection, None] = {}
        self._idle: dict[KeptConnection, None] = {}  # longest idle first

    def __len__(self) -> int:
        return len(self._all)

    async def take(self, endpoint: Endpoint, tls: ssl.SSLContext, now: float) -> KeptConnection:
        """A connection that may take a push; it is made when the push goes out."""
        key = (endpoint.scheme, endpoint.host, endpoint.port)
        free = self._free.get(key)
        while free:
            found = free[-1]
            usable = now < found.until and not found.http.is_closed() and not found.http.has_expired()
            if usable and (not found.shared or found.http.is_available()):
                if not found.shared:
                    free.pop()
                self._idle.pop(found, None)
                found.users += 1
                return found
            free.pop()
            if not found.users:
                await self._end(found)
        if not free:
            self._free.pop(key, None)
        made = KeptConnection(
            httpcore.AsyncHTTPConnection(
                httpcore.Origin(endpoint.scheme.encode(), endpoint.host.encode(), endpoint.port),
                ssl_context=tls, keepalive_expiry=IDLE_S, http1=True, http2=True, retries=0,
                network_backend=self._backend,
            ),
            key, now + KEPT_S, users=1,
        )  # fmt: skip
        self._all[made] = None
        return made

    async def give_back(self, one: KeptConnection, now: float, *, good: bool, shared: bool) -> None:
        """A push has ended. `good`: the connection can take another; `shared`: it is HTTP/2."""
        one.users -= 1
        one.shared = one.shared or shared
        if one not in self._all:
            return  # all were ended in the meantime
        if not good or now >= one.until or one.http.is_closed():
            self._forget(one)
            if not one.users:
                await self._end(one)
            return
        free = self._free.setdefault(one.key, deque())
        if not one.shared or one not in free:
            free.append(one)
        if not one.users:
            self._idle[one] = None
            while len(self._idle) > IDLE_MAX:
                oldest = next(iter(self._idle))
                self._forget(oldest)
                await self._end(oldest)

    async def end_idle(self, now: float) -> None:
        """End what nobody may use any more."""
        for one in [one for one in self._idle if now >= one.until or one.http.has_expired()]:
            self._forget(one)
            await self._end(one)

    async def close(self) -> None:
        """End all. Pushes under way fail."""
        ending, self._all, self._idle, self._free = list(self._all), {}, {}, {}
        for one in ending:
            await one.http.aclose()

    def _forget(self, one: KeptConnection) -> None:
        """No new push gets it."""
        self._idle.pop(one, None)
        free = self._free.get(one.key)
        if free is not None:
            if one in free:
                free.remove(one)
            if not free:
                del self._free[one.key]

    async def _end(self, one: KeptConnection) -> None:
        self._idle.pop(one, None)
        self._all.pop(one, None)
        await one.http.aclose()
