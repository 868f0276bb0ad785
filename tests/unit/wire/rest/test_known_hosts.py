"""Names by which a server of this machine alone is called."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from syncpoint.node.client_port import client_http
from syncpoint.wire.transport.limits import TransportLimits
from syncpoint.wire.transport.server import serve

NO_METHODS: dict[bytes, Any] = {}


async def status(host: str | None, *, listens: str = "127.0.0.1", names: tuple[str, ...] = (), path: str = "/") -> int:
    """What a caller gets who calls the server so; None: does not say how."""
    http = client_http(NO_METHODS, TransportLimits(), None, host=listens, host_names=names)
    server = await serve(NO_METHODS, on_fallback=http)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        version, line = ("1.0", "") if host is None else ("1.1", f"host: {host}\r\n")
        writer.write(f"GET {path} HTTP/{version}\r\n{line}connection: close\r\n\r\n".encode("latin-1"))
        answer = await reader.read()
        writer.close()
        return int(answer.split()[1])
    finally:
        await server.drain(0)


GOOD = ["localhost", "localhost:8085", "LocalHost:1", "127.0.0.1", "127.0.0.1:8085", "[::1]", "[::1]:8085", None]
BAD = [
    "evil.example", "evil.example:8085", "localhost.evil.example", "127.0.0.1.evil.example", "evil.localhost.example",
    "[::1].evil.example", "[::1", "host.docker.internal", "xn--lcalhost-v3a", "0.0.0.0:8085", "", ":8085",
]  # fmt: skip


@pytest.mark.parametrize("path", ["/openapi.json", "/$discovery/rest"])
@pytest.mark.parametrize("host", GOOD)
def test_who_calls_it_by_a_name_of_this_machine_is_answered(host: str | None, path: str) -> None:
    assert asyncio.run(status(host, path=path)) == 200


@pytest.mark.parametrize("path", ["/openapi.json", "/v1/projects/p/topics", "/nothing"])
@pytest.mark.parametrize("host", BAD)
def test_who_calls_it_otherwise_is_not(host: str, path: str) -> None:
    """Whatever is asked for: before a page or a method is looked for."""
    assert asyncio.run(status(host, path=path)) == 403


def test_other_names_are_configured_and_where_others_reach_it_any_is_good() -> None:
    async def scenario() -> list[int]:
        names = ("Host.docker.internal",)
        return [
            await status("host.docker.internal:1", names=names, path="/openapi.json"),
            await status("evil.example", names=names, path="/openapi.json"),
            await status("pubsub:8085", listens="0.0.0.0", path="/openapi.json"),
            await status("127.0.0.7", listens="127.0.0.7", path="/openapi.json"),
        ]

    assert asyncio.run(scenario()) == [200, 403, 200, 200]
