"""A tenant asks for the most that the limits let it ask for, in each way that costs in proportion to what was asked:
another tenant's GetTopic goes on as on an idle server. `make test` runs on busy machines, so what is compared is the
99th percentile with that of an idle time before, and generously; a held event loop was 14 to 98 s.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric import ec

from syncpoint.testing.server_process import ServerProcess

ISSUER, AUDIENCE = "https://login.example.com", "https://pubsub.example.com"
WAIT_S, TIMES = 1.0, 20
"""The 99th percentile is less than the one, or less than so many times that of the idle server."""
RULE = " AND ".join(["a+1>0"] * 99)
BOOLEANS = json.dumps(
    {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": "boolean"}}]}
)


class Tenants:
    """A server, on which ann owns project a and bob project b."""

    def __init__(self, folder: Path) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        public = {**json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self._key.public_key())), "kid": "k1"}
        (folder / "keys.json").write_text(json.dumps({"keys": [public]}))
        issuer = {"issuer": ISSUER, "jwks_file": "keys.json", "domains": ["example.com"]}
        settings = {"audiences": [AUDIENCE], "owners": ["user:root@example.com"], "issuers": [issuer]}
        (folder / "auth.yaml").write_text(yaml.safe_dump(settings))
        self.server = ServerProcess(folder / "data", durability="memory", args=["--auth", str(folder / "auth.yaml")])

    def start(self) -> None:
        self.server.start()
        self._port = int(self.server.endpoint.rpartition(":")[2])
        for project, who in (("a", "ann"), ("b", "bob")):
            binding = {"role": "roles/owner", "members": [f"user:{who}@example.com"]}
            self.ok("POST", f"/v1/projects/{project}:setIamPolicy", {"policy": {"bindings": [binding]}}, "root")
            self.ok("PUT", f"/v1/projects/{project}/topics/ttt", {}, who)

    def ask(self, verb: str, path: str, body: Any = None, who: str = "") -> tuple[int, Any]:
        """Status and content of an answer; `who` "": nobody in particular."""
        headers = {"content-type": "application/json"}
        if who:
            now = int(time.time())
            claims = {"iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + 3000, "email_verified": True}
            claims["email"] = claims["sub"] = f"{who}@example.com"
            headers["authorization"] = "Bearer " + jwt.encode(claims, self._key, "ES256", {"kid": "k1"})
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=300)
        try:
            data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
            connection.request(verb, path, data, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null")
        finally:
            connection.close()

    def ok(self, verb: str, path: str, body: Any, who: str = "ann") -> Any:
        status, content = self.ask(verb, path, body, who)
        assert status == 200, content
        return content

    def waits(self, meanwhile: Callable[[], object]) -> float:
        """The 99th percentile of how long bob waits for his topic while something is done."""
        found: list[float] = []
        done = threading.Event()

        def look() -> None:
            while not done.is_set():
                began = time.monotonic()
                assert self.ask("GET", "/v1/projects/b/topics/ttt", who="bob")[0] == 200
                found.append(time.monotonic() - began)
                done.wait(0.01)

        looking = threading.Thread(target=look)
        looking.start()
        try:
            meanwhile()
        finally:
            done.set()
            looking.join()
        return sorted(found)[int(len(found) * 0.99)]


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenants]:
    made = Tenants(tmp_path_factory.mktemp("fair"))
    try:
        made.start()
        yield made
    finally:
        made.server.close()


def conditions(tenants: Tenants) -> None:
    text = " || ".join(['resource.name == "aaaaaaaa"'] * 12)
    bindings = [
        {
            "role": "roles/pubsub.publisher",
            "members": ["allAuthenticatedUsers"],
            "condition": {"title": str(number), "expression": f'{text} || resource.name == "{number}"'},
        }
        for number in range(100)
    ]
    tenants.ok("POST", "/v1/projects/a/topics/ttt:setIamPolicy", {"policy": {"version": 3, "bindings": bindings}})
    for _ in range(20):
        status, _ = tenants.ask("POST", "/v1/projects/a/topics/ttt:publish", {"messages": [{"data": "AAAA"}]}, "carl")
        assert status in (200, 403)


def rules(tenants: Tenants) -> None:
    path = "/admin/v1/projects/a/subscriptions/ruled/rules"
    tenants.ok("PUT", "/v1/projects/a/subscriptions/ruled", {"topic": "projects/a/topics/ttt"})
    for number in range(20):
        tenants.ok("POST", path, {"name": f"r{number}", "sql": f"{RULE} AND a<{number}"})
    tenants.ok("DELETE", f"{path}/$Default", None)
    message = {"data": "AAAA", "attributes": {"a": "1000"}}
    tenants.ok("POST", "/v1/projects/a/topics/ttt:publish", {"messages": [message] * 400})
    tenants.ok("POST", "/v1/projects/a/subscriptions/ruled:pull", {"maxMessages": 1000})


def trials(tenants: Tenants) -> None:
    tenants.ok("PUT", "/v1/projects/a/subscriptions/tried", {"topic": "projects/a/topics/ttt"})
    data = json.dumps({"a": [{"b": number} for number in range(500_000)]}).encode()
    asked = {
        "subscription": "projects/a/subscriptions/tried",
        "rule": {"name": "x", "sql": " AND ".join(["body.a.b.c > 1"] * 50)},
        "message": {"data": base64.b64encode(data).decode()},
        "explain": True,
    }
    assert tenants.ask("POST", "/admin/v1/rules:test", asked, "ann")[0] in (200, 400)


def decoding(tenants: Tenants) -> None:
    made = tenants.ok("POST", "/v1/projects/a/schemas?schemaId=sss", {"type": "AVRO", "definition": BOOLEANS})
    payload = base64.b64encode(b"\x80\xb5\x18" + b"\1" * 200_000 + b"\0").decode()
    asked = {"schema": "projects/a/schemas/sss", "revision": made["revisionId"], "payloads": [payload] * 60}
    found = tenants.ok("POST", "/console/api/decode", asked)["payloads"]
    assert len(found) == 60
    assert "json" in found[0]
    assert "error" in found[-1], "an answer has room for so much"


def schemas(tenants: Tenants) -> None:
    text = json.dumps({"type": "enum", "name": "E", "symbols": [f"S{number}" for number in range(25_000)]})
    for _ in range(5):
        tenants.ok("POST", "/v1/projects/a/schemas:validate", {"schema": {"type": "AVRO", "definition": text}})


def functions(tenants: Tenants) -> None:
    for number, code in enumerate(
        (
            "function f(m){let a={};for(let i=0;i<300000;i++)a['k'+i]='v';return {data:'',attributes:a}}",
            "function f(m){return {data:'\\u0001'.repeat(1500000)}}",
        )
    ):
        transform = {"javascriptUdf": {"functionName": "f", "code": code}}
        tenants.ok("PUT", f"/v1/projects/a/topics/fff{number}", {"messageTransforms": [transform]})
        tenants.ask("POST", f"/v1/projects/a/topics/fff{number}:publish", {"messages": [{"data": "AAAA"}] * 30}, "ann")


def bodies_of_nobody(tenants: Tenants) -> None:
    body = b'{"a":[' + b",".join([b'{"a":1}'] * 1_000_000) + b"]}"
    for _ in range(4):
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # answered by the head, and closed
            assert tenants.ask("POST", "/console/api/decode", body)[0] == 401


@pytest.mark.parametrize(
    "attack", [conditions, rules, trials, decoding, schemas, functions, bodies_of_nobody], ids=lambda one: one.__name__
)
def test_others_go_on_while_a_tenant_asks_for_the_most(attack: Callable[[Tenants], None], tenants: Tenants) -> None:
    idle = tenants.waits(lambda: time.sleep(1.0))
    under = tenants.waits(lambda: attack(tenants))
    print(f"{attack.__name__}: p99 {under * 1000:.1f} ms, idle {idle * 1000:.1f} ms")
    assert under < max(WAIT_S, TIMES * idle)
