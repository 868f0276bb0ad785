"""Which connection a push gets, and which are ended."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import pytest

from syncpoint.broker.push import connections
from syncpoint.broker.push.connections import IDLE_MAX, KEPT_S, KeptConnection, KeptConnections
from syncpoint.broker.push.push_config import Endpoint

ONE, OTHER = Endpoint("https", "e.example", 443, "/a"), Endpoint("https", "f.example", 443, "/a")
TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # without the certificates of the system, which are many files
SAME_HOST = Endpoint("https", "e.example", 443, "/b")


class Http:
    """A connection that is not one."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.closed = self.expired = False
        self.available = True

    def is_closed(self) -> bool:
        return self.closed

    def has_expired(self) -> bool:
        return self.expired

    def is_available(self) -> bool:
        return self.available

    async def aclose(self) -> None:
        self.closed = True


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> KeptConnections:
    monkeypatch.setattr(connections.httpcore, "AsyncHTTPConnection", Http)
    return KeptConnections(None)  # type: ignore[arg-type]


def take(pool: KeptConnections, endpoint: Endpoint = ONE, now: float = 0.0) -> KeptConnection:
    return asyncio.run(pool.take(endpoint, TLS, now))


def give(
    pool: KeptConnections, one: KeptConnection, now: float = 0.0, *, good: bool = True, shared: bool = False
) -> None:
    asyncio.run(pool.give_back(one, now, good=good, shared=shared))


def test_one_that_was_used_is_used_again_for_its_name_only(pool: KeptConnections) -> None:
    first = take(pool)
    assert take(pool) is not first  # it carries a push
    give(pool, first)
    assert take(pool, OTHER) is not first
    assert take(pool, SAME_HOST) is first


def test_one_of_http2_carries_many_while_it_can(pool: KeptConnections) -> None:
    first = take(pool)
    give(pool, first, shared=True)
    assert take(pool) is take(pool) is first
    first.http.available = False
    second = take(pool)
    assert second is not first
    first.http.available = True
    give(pool, first)
    assert take(pool) is first


@pytest.mark.parametrize("why", ["old", "closed", "expired", "broken"])
def test_one_that_can_take_no_more_is_ended(pool: KeptConnections, why: str) -> None:
    first = take(pool)
    give(pool, first, good=why != "broken")
    if why in ("closed", "expired"):
        setattr(first.http, why, True)
    assert take(pool, now=KEPT_S if why == "old" else 0) is not first
    assert first.http.is_closed()
    assert len(pool) == 1


def test_idle_ones_are_few_and_end_in_time(pool: KeptConnections) -> None:
    taken = [take(pool) for _ in range(IDLE_MAX + 20)]
    for one in taken:
        give(pool, one)
    assert len(pool) == IDLE_MAX
    assert [one.http.is_closed() for one in taken] == [True] * 20 + [False] * IDLE_MAX
    asyncio.run(pool.end_idle(KEPT_S))
    assert len(pool) == 0


def test_one_that_is_old_ends_behind_its_last_push(pool: KeptConnections) -> None:
    first = take(pool)
    give(pool, first, shared=True)
    take(pool)
    take(pool)
    give(pool, first, now=KEPT_S)
    assert not first.http.is_closed()
    give(pool, first, now=KEPT_S)
    assert first.http.is_closed()
    assert len(pool) == 0
