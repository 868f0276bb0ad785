"""Pages for probes: what they answer while the server takes work, and when it does not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.applications import Starlette

from syncpoint.front.api.health import HealthService
from syncpoint.node.health_pages import console_address, health_pages


def asked(health: HealthService, path: str, verb: str = "GET", accept: str = "*/*") -> tuple[int, str, dict[str, str]]:
    """The status, text and headers of an answer."""
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http", "method": verb, "path": path, "raw_path": path.encode(), "query_string": b"", "scheme": "http",
        "headers": [(b"accept", accept.encode())], "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2),
        "root_path": "", "http_version": "1.1", "extensions": {},
    }  # fmt: skip
    asyncio.run(Starlette(routes=health_pages(health.methods()))(scope, receive, send))
    headers = {key.decode(): value.decode() for key, value in sent[0]["headers"]}
    return sent[0]["status"], b"".join(one["body"] for one in sent[1:]).decode(), headers


def test_a_server_that_takes_work() -> None:
    health = HealthService()
    assert asked(health, "/")[:2] == (200, "Ok\n")
    for path in ("/livez", "/healthz", "/readyz"):
        status, text, headers = asked(health, path)
        assert (status, text, headers["cache-control"]) == (200, "ok\n", "no-store")
    assert asked(health, "/readyz", "HEAD")[0] == 200


def test_one_that_stops_lives_and_is_not_ready() -> None:
    health = HealthService()
    health.stop()
    assert asked(health, "/livez")[0] == asked(health, "/healthz")[0] == 200
    status, text, _ = asked(health, "/readyz")
    assert (status, text) == (503, "The server takes no work: it is stopping, or its log cannot be written.\n")


def test_a_browser_is_led_to_the_console() -> None:
    status, _, headers = asked(HealthService(), "/", accept="text/html,application/xhtml+xml")
    assert (status, headers["location"]) == (307, "/console/")


@pytest.mark.parametrize(
    ("endpoint", "tls", "address"),
    [
        ("127.0.0.1:8085", False, "http://127.0.0.1:8085/console/"),
        ("0.0.0.0:8085", True, "https://localhost:8085/console/"),
        ("[::]:8085", False, "http://localhost:8085/console/"),
        ("[::1]:8085", False, "http://[::1]:8085/console/"),
    ],
)
def test_the_consoles_address(monkeypatch: pytest.MonkeyPatch, endpoint: str, tls: bool, address: str) -> None:
    monkeypatch.setattr("syncpoint.node.health_pages.is_built", lambda: True)
    assert console_address(endpoint, tls=tls) == address
    monkeypatch.setattr("syncpoint.node.health_pages.is_built", lambda: False)
    assert console_address(endpoint, tls=tls) == ""
