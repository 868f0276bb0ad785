"""The same port over HTTP/1.1: as `curl` asks, as the official client asks over REST, with TLS and tokens."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.pubsub_v1.services.publisher import PublisherClient
from google.pubsub_v1.services.publisher.transports.rest import PublisherRestTransport
from google.pubsub_v1.services.subscriber import SubscriberClient
from google.pubsub_v1.services.subscriber.transports.rest import SubscriberRestTransport

from syncpoint.front.client.credentials import Credentials
from syncpoint.programs.cli.main import cli
from syncpoint.testing.rigs.certificates import Authority
from syncpoint.testing.server_process import ServerProcess
from syncpoint.wire.protobuf.messages import pubsub

pytestmark = pytest.mark.shows("rest")

JSON = {"content-type": "application/json"}


class Curl:
    """Requests over one connection."""

    def __init__(self, endpoint: str, tls: ssl.SSLContext | None = None) -> None:
        plain = http.client.HTTPConnection(endpoint, timeout=40)
        self.connection = http.client.HTTPSConnection(endpoint, timeout=40, context=tls) if tls else plain
        self.headers: dict[str, str] = {}

    def __call__(self, verb: str, path: str, body: Any = None) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body)
        self.connection.request(verb, path, data, {**JSON, **self.headers})
        answer = self.connection.getresponse()
        return answer.status, json.loads(answer.read())

    def done(self, verb: str, path: str, body: Any = None) -> Any:
        status, content = self(verb, path, body)
        assert status == 200, content
        return content


@pytest.fixture
def dial() -> Iterator[Callable[..., Curl]]:
    """`dial(endpoint)` is a connection that ends with the test."""
    made: list[Curl] = []

    def dial(endpoint: str, tls: ssl.SSLContext | None = None) -> Curl:
        made.append(Curl(endpoint, tls))
        return made[-1]

    yield dial
    for curl in made:
        curl.connection.close()


@pytest.mark.parametrize("kind", ["topics", "subscriptions"])
def test_fields_of_a_later_version_survive_rest(space: Any, dial: Callable[..., Curl], kind: str) -> None:
    """Sent as protobuf, since JSON has no name for them; a change by JSON leaves them as they are."""
    curl, unknown = dial(space.endpoint), b"\xfa\x3f\x05later"
    topic = space.topic()
    made = b"" if kind == "topics" else pubsub.Subscription(topic=topic).SerializeToString()
    path = f"/v1/{space.path(kind, 'later')}"

    def asked(verb: str, body: bytes | None = None) -> bytes:
        curl.connection.request(verb, f"{path}?alt=proto", body, {"content-type": "application/x-protobuf"})
        answer = curl.connection.getresponse()
        content = answer.read()
        assert answer.status == 200, content
        return content

    assert unknown in asked("PUT", made + unknown)
    resource = kind.removesuffix("s")
    changed = curl.done("PATCH", path, {resource: {"labels": {"a": "b"}}, "updateMask": "labels"})
    assert changed["labels"] == {"a": "b"}
    assert unknown in asked("GET")


def test_a_message_from_curl_to_grpc_and_back(space: Any, dial: Callable[..., Curl]) -> None:
    curl = dial(space.endpoint)
    topic, sub = space.path("topics", "orders"), space.path("subscriptions", "mail")
    assert curl.done("PUT", f"/v1/{topic}", {"labels": {"team": "a"}})["labels"] == {"team": "a"}
    assert curl("PUT", f"/v1/{topic}")[1]["error"]["status"] == "ALREADY_EXISTS"
    made = curl.done("PUT", f"/v1/{sub}", {"topic": topic, "enableMessageOrdering": True, "ackDeadlineSeconds": 20})
    assert (made["messageRetentionDuration"], made["expirationPolicy"]) == ("604800s", {"ttl": "2678400s"})
    data = base64.b64encode(b"\xffhello").decode()
    sent = {"messages": [{"data": data, "attributes": {"k": "v"}, "orderingKey": "o"}]}
    (number,) = curl.done("POST", f"/v1/{topic}:publish", sent)["messageIds"]
    (received,) = space.pull(sub)
    assert (received.message.data, received.message.message_id) == (b"\xffhello", number)
    space.nack(sub, received)
    (again,) = curl.done("POST", f"/v1/{sub}:pull", {"maxMessages": 10})["receivedMessages"]
    assert again["message"]["data"] == data
    assert again["message"]["attributes"] == {"k": "v"}
    assert again["message"]["orderingKey"] == "o"
    assert curl.done("POST", f"/v1/{sub}:acknowledge", {"ackIds": [again["ackId"]]}) == {}
    assert curl.done("POST", f"/v1/{sub}:pull", {"maxMessages": 10, "returnImmediately": True}) == {}
    patched = curl.done(
        "PATCH", f"/v1/{sub}?updateMask=ackDeadlineSeconds", {"subscription": {"ackDeadlineSeconds": 33}}
    )
    assert patched["ackDeadlineSeconds"] == 33
    body = {"subscription": {"name": sub, "labels": {"x": "y"}}, "updateMask": "labels"}
    assert curl.done("PATCH", f"/v1/{sub}", body)["labels"] == {"x": "y"}
    listed = curl.done("GET", f"/v1/projects/{space.project}/subscriptions?pageSize=1&fields=subscriptions/name")
    assert listed == {"subscriptions": [{"name": sub}]}
    assert curl.done("GET", f"/v1/{topic}/subscriptions") == {"subscriptions": [sub]}
    assert curl.done("GET", f"/v1/{topic}:getIamPolicy") == {"etag": "ACAB"}
    state = curl.done("GET", f"/admin/v1/{sub}:state")
    assert "backlogMessages" not in state
    assert curl.done("DELETE", f"/v1/{topic}") == {}
    status, content = curl("GET", f"/v1/{topic}")
    assert status == 404
    assert content["error"]["message"] == f"Resource not found (resource={topic})."


def test_the_limit_of_a_publish_is_that_of_grpc(space: Any, dial: Callable[..., Curl]) -> None:
    topic = space.topic()
    curl = dial(space.endpoint)
    room = 10_000_000 - len(topic) - 64
    for size, status in ((room, 200), (10_000_000, 400)):
        sent = {"messages": [{"data": base64.b64encode(bytes(size)).decode()}]}
        got, content = curl("POST", f"/v1/{topic}:publish", sent)
        assert got == status, content
    assert content["error"]["status"] == "INVALID_ARGUMENT"


def test_the_official_client_over_rest(space: Any) -> None:
    options: dict[str, Any] = {"url_scheme": "http", "credentials": AnonymousCredentials()}
    publisher = PublisherClient(transport=PublisherRestTransport(host=space.endpoint, **options))
    subscriber = SubscriberClient(transport=SubscriberRestTransport(host=space.endpoint, **options))
    topic, sub = space.path("topics", "orders"), space.path("subscriptions", "mail")
    with publisher, subscriber:
        assert publisher.create_topic(request={"name": topic, "labels": {"a": "b"}}).state.name == "ACTIVE"
        subscriber.create_subscription(request={"name": sub, "topic": topic, "retry_policy": {}})
        mask = {"paths": ["ack_deadline_seconds", "retry_policy.minimum_backoff"]}
        changed = {"name": sub, "ack_deadline_seconds": 30, "retry_policy": {"minimum_backoff": {"seconds": 3}}}
        updated = subscriber.update_subscription(request={"subscription": changed, "update_mask": mask})
        assert (updated.ack_deadline_seconds, updated.retry_policy.minimum_backoff.seconds) == (30, 3)
        (number,) = publisher.publish(request={"topic": topic, "messages": [{"data": b"hi"}]}).message_ids
        (received,) = subscriber.pull(request={"subscription": sub, "max_messages": 1}).received_messages
        assert (received.message.data, received.message.message_id) == (b"hi", number)
        subscriber.acknowledge(request={"subscription": sub, "ack_ids": [received.ack_id]})
        assert [one.name for one in publisher.list_topics(project=f"projects/{space.project}")] == [topic]
        publisher.delete_topic(request={"topic": topic})
        with pytest.raises(exceptions.NotFound, match="Resource not found"):
            publisher.get_topic(request={"topic": topic})


def test_with_tls_only_who_shows_a_token_may_call(tmp_path: Path, dial: Callable[..., Curl]) -> None:
    made = CliRunner().invoke(
        cli,
        [
            "iam",
            "init",
            str(tmp_path / "auth.yaml"),
            "--owner",
            "admin@demo.example",
            "--key-file",
            str(tmp_path / "key"),
        ],
    )
    assert made.exit_code == 0, made.output
    authority = Authority(tmp_path / "ca")
    certificate, key = authority.issue("server")
    files = ("--tls-cert", str(certificate), "--tls-key", str(key), "--auth", str(tmp_path / "auth.yaml"))
    with ServerProcess(tmp_path / "data", args=files) as server:
        tls = ssl.create_default_context(cafile=str(authority.ca))
        tls.set_alpn_protocols(["http/1.1"])
        curl = dial(server.endpoint, tls)
        status, content = curl("PUT", "/v1/projects/p/topics/orders")
        assert (status, content["error"]["status"]) == (401, "UNAUTHENTICATED")
        assert curl.connection.sock.selected_alpn_protocol() == "http/1.1"
        curl.headers["authorization"] = "Bearer nonsense"
        assert curl("GET", "/admin/v1/server")[0] == 401
        curl.headers["authorization"] = f"Bearer {Credentials(tmp_path / 'key').token()}"
        assert curl.done("PUT", "/v1/projects/p/topics/orders")["name"] == "projects/p/topics/orders"
        assert curl.done("GET", "/admin/v1/server")["topics"] == "1"
