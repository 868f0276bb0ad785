"""Every route goes through the gate: no token, or one of another project, reaches no method."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest
from google.protobuf import json_format

from syncpoint.catalog.access.rules import rule_of
from syncpoint.wire.protobuf.messages import POOL
from syncpoint.wire.rest.app import RestApp, application
from syncpoint.wire.rest.table import Route, Table
from tests.unit.catalog.access.conftest import Harness
from tests.unit.catalog.access.test_gate import of_project_a

NAMES = {"projects": "a", "topics": "one", "subscriptions": "two", "snapshots": "three", "schemas": "four"}
ROUTES = Table().routes


def path_of(route: Route) -> str:
    """The path of a request about something of project a."""
    path = re.sub(r"\{[\w.]+=([^}]*)\}", r"\1", route.template)
    path = re.sub(r"(\w+)/\*\*?", lambda match: f"{match[1]}/{NAMES.get(match[1], 'x')}", path)
    return re.sub(r"\{[\w.]+\}", "one", path)


def body_of(route: Route) -> bytes:
    if not route.body:
        return b""
    request = of_project_a(route.method.request)
    message = request if route.body == "*" else getattr(request, route.body)
    return json.dumps(json_format.MessageToDict(message, descriptor_pool=POOL)).encode()


async def asked(
    app: Any, verb: str, path: str, body: bytes, authorization: bytes | None, *more: tuple[bytes, bytes]
) -> tuple[int, Any]:
    """Status and content of an answer."""
    sent: list[Any] = []
    headers = [(b"host", b"here"), *([] if authorization is None else [(b"authorization", authorization)]), *more]
    scope = {
        "type": "http", "method": verb, "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "",
        "headers": headers,
    }  # fmt: skip

    async def receive() -> Any:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


@pytest.fixture(scope="module")
def gated() -> tuple[Harness, Any]:
    """A gate, and the application before it."""
    made = Harness()
    made.grant("projects/b", "roles/owner", "user:bob@example.com")
    return made, application(RestApp(made.table, 1_000_000, made.gate.admit))


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.verb} {route.template}")
def test_who_has_no_rights_reaches_no_method(gated: tuple[Harness, Any], route: Route) -> None:
    harness, app = gated
    harness.reached.clear()

    async def main() -> None:
        request = route.verb, path_of(route), body_of(route)
        status, content = await asked(app, *request, None)
        assert (status, content["error"]["status"]) == (401, "UNAUTHENTICATED")
        status, content = await asked(app, *request[:2], b"{no json", b"Bearer nonsense")
        assert status == 401
        status, content = await asked(app, *request, harness.token(email="bob@example.com"))
        if rule_of(route.method).known:
            assert status == 200
            harness.reached.clear()
        else:
            assert (status, content["error"]["status"]) == (403, "PERMISSION_DENIED"), content
        assert harness.reached == []
        status, content = await asked(app, *request, harness.token(email="root@example.com"))
        assert (status, len(harness.reached)) == (200, 1), content

    asyncio.run(main())
