"""Tenants of one server, of whom ann asks for the most that the limits let her ask for, in each way that costs in
proportion to what is asked, while bob asks for his topic again and again.

Place: for a test, which holds that bob is served, and for `bench.fairness`, which measures how soon. Who looks is a
process of its own, so that what ann does here does not hold it.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import grpc

from syncpoint.base.model.limits import MESSAGE_ATTRIBUTES_MAX, PUBLISH_MESSAGES_MAX, RPC_REQUEST_BYTES_MAX
from syncpoint.base.model.names import SERVICE_IDENTITY
from syncpoint.testing.server_process import ServerProcess
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pubsub
from tests.kit.issuer import TokenIssuer

TOPIC: Final = "projects/a/topics/ttt"
RULE: Final = " AND ".join(["a+1>0"] * 99)
BOOLEANS: Final = json.dumps(
    {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": "boolean"}}]}
)
FULL: Final = [{"data": "AAAA", "attributes": {f"k{one:02}": "v" * 60 for one in range(MESSAGE_ATTRIBUTES_MAX)}}]
PAUSE_S: Final = 0.005


class Tenants:
    """A server, on which ann owns project a and bob project b."""

    def __init__(self, folder: Path, durability: str | None = "memory") -> None:
        self._issuer = TokenIssuer(folder)
        self.server = ServerProcess(folder / "data", durability=durability, args=["--auth", str(self._issuer.auth)])
        self._port = 0
        self._channel: grpc.Channel | None = None
        self._made = 0

    def start(self) -> None:
        """With a topic of each; dead letters are made by the service's own identity."""
        self.server.start()
        self._port = int(self.server.endpoint.rpartition(":")[2])
        self._channel = grpc.insecure_channel(self.server.endpoint, [("grpc.max_send_message_length", -1)])
        for project, who in (("a", "ann"), ("b", "bob")):
            binding = {"role": "roles/owner", "members": [f"user:{who}@example.com", SERVICE_IDENTITY]}
            self.ok("POST", f"/v1/projects/{project}:setIamPolicy", {"policy": {"bindings": [binding]}}, "root")
            self.ok("PUT", f"/v1/projects/{project}/topics/ttt", {}, who)

    def close(self) -> None:
        """End the server."""
        if self._channel is not None:
            self._channel.close()
        self.server.close()

    def authorization(self, who: str) -> str:
        """Of somebody of example.com."""
        return "Bearer " + self._issuer.token(who, 3000)

    def ask(self, verb: str, path: str, body: Any = None, who: str = "") -> tuple[int, Any]:
        """Status and content of an answer; `who` "": nobody in particular."""
        headers = {"content-type": "application/json"}
        if who:
            headers["authorization"] = self.authorization(who)
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=300)
        try:
            data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
            connection.request(verb, path, data, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null")
        finally:
            connection.close()

    def ok(self, verb: str, path: str, body: Any = None, who: str = "ann") -> Any:
        """The content of a good answer."""
        status, content = self.ask(verb, path, body, who)
        assert status == 200, content
        return content

    def call(self, method: methods.Method, request: bytes, *, gzip: bool = False) -> Any:
        """The response that ann gets over gRPC."""
        assert self._channel is not None
        ask = self._channel.unary_unary(method, response_deserializer=method.response.FromString)
        how = grpc.Compression.Gzip if gzip else grpc.Compression.NoCompression
        return ask(request, timeout=300, metadata=[("authorization", self.authorization("ann"))], compression=how)

    def calls(self, method: methods.Method, requests: Iterable[bytes]) -> None:
        """Calls that ann makes together, compressed, and that are refused for what they ask."""
        assert self._channel is not None
        ask = self._channel.unary_unary(method)
        metadata, how = [("authorization", self.authorization("ann"))], grpc.Compression.Gzip
        for one in [ask.future(request, timeout=300, metadata=metadata, compression=how) for request in requests]:
            assert one.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED), one.details()

    def name(self) -> str:
        """An id that nothing has yet."""
        self._made += 1
        return f"name-{self._made}"

    def waits(self, meanwhile: Callable[[], object]) -> list[float]:
        """How long bob waited for his topic, each time, while something was done."""
        command = [sys.executable, "-m", "tests.kit.greedy_tenants", str(self._port), self.authorization("bob")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as looking:
            assert looking.stdin is not None
            assert looking.stdout is not None
            looking.stdout.readline()  # it has begun
            try:
                meanwhile()
            finally:
                looking.stdin.close()
                found = looking.stdout.read()
        return sorted(json.loads(found))


def percentile(waits: Sequence[float], share: float) -> float:
    """Of sorted times."""
    return waits[min(len(waits) - 1, int(len(waits) * share))]


# -- what ann asks for -------------------------------------------------------------------------------------------------


def conditions(tenants: Tenants) -> None:
    """A policy with as many conditions as it may have, judged for somebody else."""
    text = " || ".join(['resource.name == "' + "a" * 45 + '"'] * 12)
    _policy(tenants, [f'{text} || resource.name == "{number}"' for number in range(100)])
    for _ in range(20):
        status, _ = tenants.ask("POST", f"/v1/{TOPIC}:publish", {"messages": [{"data": "AAAA"}]}, "carl")
        assert status in (200, 403)


def dense_conditions(tenants: Tenants) -> None:
    """As many terms as the conditions of a policy may have, read again at each change."""
    for number in range(20):
        _policy(tenants, ["+".join(["1"] * 480) + f" == {number}{one}" for one in range(8)])
        tenants.ask("POST", f"/v1/{TOPIC}:publish", {"messages": [{"data": "AAAA"}]}, "carl")


def policies(tenants: Tenants) -> None:
    """A policy with as many members as it may have."""
    members = [f"user:u{number}@{'x' * 180}.example" for number in range(1500)]
    binding = {"role": "roles/viewer", "members": members}
    for _ in range(5):
        tenants.ok("POST", f"/v1/{TOPIC}:setIamPolicy", {"policy": {"bindings": [binding]}})
        for _ in range(5):
            tenants.ok("GET", f"/v1/{TOPIC}:getIamPolicy")


def rule_texts(tenants: Tenants) -> None:
    """Rules that are as long as they may be, read when they are made."""
    path = _subscription(tenants)
    for number in range(20):
        action = "; ".join(f"SET x{one} = a + {number}" for one in range(32))
        tenants.ok("POST", f"/admin/v1/{path}/rules", {"name": f"r{number}", "sql": RULE, "action": action})


def rules(tenants: Tenants) -> None:
    """Messages judged by dear rules, when they are pulled and when they are looked at."""
    path = _ruled(tenants, RULE)
    message = {"data": "AAAA", "attributes": {"a": "1000"}}
    tenants.ok("POST", f"/v1/{TOPIC}:publish", {"messages": [message] * 400})
    tenants.ok("POST", f"/v1/{path}:pull", {"maxMessages": 1000})
    tenants.ask("GET", f"/admin/v1/{path}:peek?pageSize=100", None, "ann")


def letters(tenants: Tenants) -> None:
    """Messages at which dear rules fail, and that nobody receives."""
    dead, kept = f"projects/a/topics/{tenants.name()}", f"projects/a/subscriptions/{tenants.name()}"
    tenants.ok("PUT", f"/v1/{dead}", {})
    tenants.ok("PUT", f"/v1/{kept}", {"topic": dead})
    path = _ruled(tenants, RULE.replace("a+1>0", "1/a>0"), {"deadLetterPolicy": {"deadLetterTopic": dead}})
    tenants.ok("PATCH", f"/admin/v1/{path}:options?updateMask=deadLetterRuleErrors", {"deadLetterRuleErrors": True})
    message = {"data": "AAAA", "attributes": {"a": "0"}}
    tenants.ok("POST", f"/v1/{TOPIC}:publish", {"messages": [message] * 200})
    until = time.monotonic() + 60.0
    while time.monotonic() < until:
        if tenants.ok("POST", f"/v1/{kept}:pull", {"maxMessages": 1, "returnImmediately": True}):
            return
        time.sleep(0.2)
    raise AssertionError("there is no letter")


def trials(tenants: Tenants) -> None:
    """A rule tried on a large message."""
    path = _subscription(tenants)
    data = json.dumps({"a": [{"b": number} for number in range(500_000)]}).encode()
    asked = {
        "subscription": path,
        "rule": {"name": "x", "sql": " AND ".join(["body.a.b.c > 1"] * 50)},
        "message": {"data": base64.b64encode(data).decode()},
        "explain": True,
    }
    assert tenants.ask("POST", "/admin/v1/rules:test", asked, "ann")[0] in (200, 400)


def decoding(tenants: Tenants) -> None:
    """Payloads that a page of the console decodes."""
    name = tenants.name()
    made = tenants.ok("POST", f"/v1/projects/a/schemas?schemaId={name}", {"type": "AVRO", "definition": BOOLEANS})
    payload = base64.b64encode(b"\x80\xb5\x18" + b"\1" * 200_000 + b"\0").decode()
    asked = {"schema": f"projects/a/schemas/{name}", "revision": made["revisionId"], "payloads": [payload] * 60}
    found = tenants.ok("POST", "/console/api/decode", asked)["payloads"]
    assert len(found) == 60
    assert "json" in found[0]
    assert "error" in found[-1], "an answer has room for so much"


def schemas(tenants: Tenants) -> None:
    """Definitions that are as long as they may be."""
    text = json.dumps({"type": "enum", "name": "E", "symbols": [f"S{number}" for number in range(25_000)]})
    for _ in range(5):
        tenants.ok("POST", "/v1/projects/a/schemas:validate", {"schema": {"type": "AVRO", "definition": text}})
    for _ in range(10):
        body = {"type": "AVRO", "definition": text}
        tenants.ok("POST", f"/v1/projects/a/schemas?schemaId={tenants.name()}", body)
    for _ in range(5):
        assert tenants.ok("GET", "/v1/projects/a/schemas?view=FULL&pageSize=1000")["schemas"]


def functions(tenants: Tenants) -> None:
    """Functions that return much."""
    for code in (
        "function f(m){let a={};for(let i=0;i<300000;i++)a['k'+i]='v';return {data:'',attributes:a}}",
        "function f(m){return {data:'\\u0001'.repeat(1500000)}}",
    ):
        topic = f"projects/a/topics/{tenants.name()}"
        tenants.ok(
            "PUT", f"/v1/{topic}", {"messageTransforms": [{"javascriptUdf": {"functionName": "f", "code": code}}]}
        )
        tenants.ask("POST", f"/v1/{topic}:publish", {"messages": [{"data": "AAAA"}] * 30}, "ann")


def large_json(tenants: Tenants) -> None:
    """Publishes as large as they may be, by REST, and their messages pulled by it."""
    path = _subscription(tenants)
    asked = json.dumps({"messages": FULL * PUBLISH_MESSAGES_MAX}).encode()
    for _ in range(3):
        tenants.ok("POST", f"/v1/{TOPIC}:publish", asked)
    for _ in range(6):
        tenants.ok("POST", f"/v1/{path}:pull", {"maxMessages": 1000, "returnImmediately": True})
    tenants.ok("POST", f"/v1/{TOPIC}:publish", {"messages": [{"data": "A" * 13_000_000}]})


def little_json(tenants: Tenants) -> None:
    """Bodies of 64 KiB that have as many objects as go into them."""
    for _ in range(20):
        tenants.ask("POST", f"/v1/{TOPIC}:publish", b'{"messages":[' + b",".join([b"{}"] * 21_000) + b"]}", "ann")


def publishes(tenants: Tenants) -> None:
    """Publishes as large as they may be, over gRPC, compressed and not."""
    attributes = {f"k{one:02}": "v" * 90 for one in range(MESSAGE_ATTRIBUTES_MAX)}
    message = pubsub.PubsubMessage(data=b"x", attributes=attributes)
    asked = pubsub.PublishRequest(topic=TOPIC, messages=[message] * PUBLISH_MESSAGES_MAX).SerializeToString()
    for number in range(10):
        assert tenants.call(methods.PUBLISHER.Publish, asked, gzip=number % 2 == 1).message_ids


def compressed(tenants: Tenants) -> None:
    """Messages that are small on the way and as large as they may be here; nothing else is done with them."""
    for _ in range(5):
        tenants.calls(methods.PUBLISHER.Publish, [bytes(RPC_REQUEST_BYTES_MAX)] * 8)


def lists(tenants: Tenants) -> None:
    """Everything that is listed, with many resources of the project."""
    for path in ("topics?pageSize=1000", "subscriptions?pageSize=1000", "snapshots", "topics/ttt/subscriptions"):
        for _ in range(5):
            tenants.ok("GET", f"/v1/projects/a/{path}")
    for page in ("projects", "flows", "about"):
        for _ in range(5):
            tenants.ok("GET", f"/console/api/{page}")
    for _ in range(5):
        tenants.ok("GET", "/iam/v1/projects/a/serviceAccounts")
        asked = {"permissions": ["pubsub.topics.get"] * 100}
        tenants.ok("POST", f"/v1/{TOPIC}:testIamPermissions", asked)


def bodies_of_nobody(tenants: Tenants) -> None:
    """Large bodies without credentials, as they are and compressed."""
    body = b'{"a":[' + b",".join([b'{"a":1}'] * 1_000_000) + b"]}"
    for data in (body, zlib.compress(body)) * 2:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # answered by the head, and closed
            assert tenants.ask("POST", "/console/api/decode", data)[0] == 401


ATTACKS: Final[tuple[Callable[[Tenants], None], ...]] = (
    conditions, dense_conditions, policies, rule_texts, rules, letters, trials, decoding, schemas, functions,
    large_json, little_json, publishes, compressed, lists, bodies_of_nobody,
)  # fmt: skip


def fill(tenants: Tenants, count: int) -> None:
    """Make so many topics with a subscription each."""
    wanted: list[tuple[methods.Method, bytes]] = []
    for number in range(count):
        topic = f"projects/a/topics/many-{number}"
        wanted.append((methods.PUBLISHER.CreateTopic, pubsub.Topic(name=topic).SerializeToString()))
    for number in range(count):
        made = pubsub.Subscription(name=f"projects/a/subscriptions/many-{number}", topic=TOPIC)
        if number >= 1000:  # of one topic there are not too many
            made.topic = f"projects/a/topics/many-{number}"
        wanted.append((methods.SUBSCRIBER.CreateSubscription, made.SerializeToString()))
    metadata = [("authorization", tenants.authorization("ann"))]
    for part in (wanted[at : at + 200] for at in range(0, len(wanted), 200)):
        asked = [tenants._channel.unary_unary(method).future(data, metadata=metadata) for method, data in part]  # type: ignore[union-attr]
        for one in asked:
            one.result()


def _policy(tenants: Tenants, expressions: Iterable[str]) -> None:
    bindings = [
        {
            "role": "roles/pubsub.publisher",
            "members": ["allAuthenticatedUsers"],
            "condition": {"title": str(number), "expression": expression},
        }
        for number, expression in enumerate(expressions)
    ]
    tenants.ok("POST", f"/v1/{TOPIC}:setIamPolicy", {"policy": {"version": 3, "bindings": bindings}})


def _subscription(tenants: Tenants, more: Any = None) -> str:
    path = f"projects/a/subscriptions/{tenants.name()}"
    tenants.ok("PUT", f"/v1/{path}", {"topic": TOPIC, **(more or {})})
    return path


def _ruled(tenants: Tenants, sql: str, more: Any = None) -> str:
    path = _subscription(tenants, more)
    for number in range(20):
        tenants.ok("POST", f"/admin/v1/{path}/rules", {"name": f"r{number}", "sql": f"{sql} AND a<{number}"})
    tenants.ok("DELETE", f"/admin/v1/{path}/rules/$Default", None)
    return path


# -- who looks ---------------------------------------------------------------------------------------------------------


def look(port: int, authorization: str) -> None:
    """Ask for bob's topic until the input ends, and print how long that took, each time."""
    import select

    found: list[float] = []
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    while not select.select([sys.stdin], [], [], PAUSE_S if found else 0.0)[0]:
        began = time.monotonic()
        connection.request("GET", "/v1/projects/b/topics/ttt", None, {"authorization": authorization})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200
        found.append(time.monotonic() - began)
        if len(found) == 1:
            print(flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    look(int(sys.argv[1]), sys.argv[2])
