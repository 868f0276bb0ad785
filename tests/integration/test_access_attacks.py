"""Attacks on a server that asks who calls: another tenant, forged ids, bombs, and wrong ways to speak TLS."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import socket
import ssl
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import jwt
import pytest

from syncpoint.catalog.access.rules import RULES
from syncpoint.testing.rigs.certificates import Authority
from syncpoint.testing.rigs.official import eventually
from syncpoint.testing.server_process import ServerProcess
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import accounts, iam, pubsub
from tests.kit.issuer import TokenIssuer
from tests.unit.catalog.access.test_gate import of_project_a

pytestmark = pytest.mark.shows("attacks")

P, S, SCHEMAS, IAM = methods.PUBLISHER, methods.SUBSCRIBER, methods.SCHEMAS, methods.IAM
TOPIC, SUBSCRIPTION, SNAPSHOT = "projects/a/topics/one", "projects/a/subscriptions/two", "projects/a/snapshots/three"
SCHEMA, PUSHER = "projects/a/schemas/four", "app@a.iam.syncpoint.internal"
OTHER = "projects/b/topics/other"
MINE, MY_SUBSCRIPTION = "projects/b/topics/mine", "projects/b/subscriptions/mine"
RECORD = json.dumps({"type": "record", "name": "R", "fields": [{"name": "f", "type": "string"}]})
Code = grpc.StatusCode


class Victim:
    """A server with two tenants: ann owns project a, bob project b, and root everything."""

    def __init__(self, folder: Path) -> None:
        self.authority, self.clients = Authority(folder / "ca"), Authority(folder / "clients")
        self.cert, self.key = self.authority.issue("server", ["localhost", "127.0.0.1"])
        issuer = TokenIssuer(folder, certificates=[{"match": "CN:bob", "principal": "user:bob@example.com"}])
        self.token = issuer.token
        tls = ("--tls-cert", str(self.cert), "--tls-key", str(self.key), "--tls-client-ca", str(self.clients.ca))
        more = ("--auth", str(issuer.auth), "--push-network", "loopback")
        self.server = ServerProcess(folder / "data", durability="memory", args=[*tls, *more])

    def start(self) -> None:
        self.server.start()
        self.port = int(self.server.endpoint.rpartition(":")[2])
        tls = grpc.ssl_channel_credentials(self.authority.ca.read_bytes())
        self.channel = grpc.secure_channel(f"localhost:{self.port}", tls)
        for who in "ab":
            self.grant(f"projects/{who}", "roles/owner", f"user:{'ann' if who == 'a' else 'bob'}@example.com")
        for path, request in (
            (P.CreateTopic, pubsub.Topic(name=TOPIC)),
            (S.CreateSubscription, pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC)),
            (S.CreateSnapshot, pubsub.CreateSnapshotRequest(name=SNAPSHOT, subscription=SUBSCRIPTION)),
            (
                SCHEMAS.CreateSchema,
                pubsub.CreateSchemaRequest(parent="projects/a", schema_id="four", schema=schema(RECORD)),
            ),
            (
                methods.ACCOUNTS.CreateServiceAccount,
                accounts.CreateServiceAccountRequest(project="projects/a", email=PUSHER),
            ),
        ):
            self.call(path, request, "ann")
        for name in (MINE, OTHER):
            self.call(P.CreateTopic, pubsub.Topic(name=name), "bob")
        self.call(S.CreateSubscription, pubsub.Subscription(name=MY_SUBSCRIPTION, topic=MINE), "bob")

    def call(self, path: methods.Method, request: Any, who: str, *headers: tuple[str, str], **more: Any) -> Any:
        metadata = [("authorization", f"Bearer {self.token(who)}"), *headers]
        if path.is_streaming:
            stream = self.channel.stream_stream(path)
            return next(stream(iter([request.SerializeToString()]), metadata=metadata, timeout=10))
        found = self.channel.unary_unary(path)(request.SerializeToString(), metadata=metadata, timeout=10, **more)
        return path.response.FromString(found)

    def refusal(self, path: methods.Method, request: Any, who: str, *headers: tuple[str, str], **more: Any) -> Any:
        with pytest.raises(grpc.RpcError) as refused:
            self.call(path, request, who, *headers, **more)
        return refused.value

    def grant(self, resource: str, role: str, *members: str) -> None:
        policy = iam.Policy(bindings=[iam.Binding(role=role, members=members)] if members else [])
        self.call(IAM.SetIamPolicy, iam.SetIamPolicyRequest(resource=resource, policy=policy), "root")

    def everything(self) -> list[Any]:
        """All that project a has."""
        asked = (
            (P.ListTopics, pubsub.ListTopicsRequest(project="projects/a")),
            (S.ListSubscriptions, pubsub.ListSubscriptionsRequest(project="projects/a")),
            (S.ListSnapshots, pubsub.ListSnapshotsRequest(project="projects/a")),
            (SCHEMAS.ListSchemas, pubsub.ListSchemasRequest(parent="projects/a")),
            (methods.ACCOUNTS.ListServiceAccounts, accounts.ListServiceAccountsRequest(project="projects/a")),
            (IAM.GetIamPolicy, iam.GetIamPolicyRequest(resource=TOPIC)),
        )
        return [self.call(path, request, "ann") for path, request in asked]

    def rest(self, verb: str, path: str, body: bytes | None, who: str, **headers: str) -> tuple[int, Any]:
        tls = ssl.create_default_context(cafile=str(self.authority.ca))
        connection = http.client.HTTPSConnection("localhost", self.port, context=tls, timeout=20)
        fields = {"authorization": f"Bearer {self.token(who)}"}
        fields |= {key.replace("_", "-"): value for key, value in headers.items()}
        try:
            connection.request(verb, path, body, fields)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    @property
    def memory_mb(self) -> float:
        """The most that the server ever had."""
        for line in Path(f"/proc/{self.server.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
        raise AssertionError("no VmHWM")


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    made = Victim(tmp_path_factory.mktemp("victim"))
    try:
        made.start()
        yield made
        made.channel.close()
    finally:
        made.server.close()


def schema(definition: str, kind: str = "AVRO") -> Any:
    return pubsub.Schema(type=kind, definition=definition)


PUBLIC = [path for path, rule in RULES.items() if not (rule.open or rule.known or rule.internal)]


def test_a_tenant_has_no_method_for_what_is_anothers(victim: Victim) -> None:
    before, missing = victim.everything(), set()
    for path in PUBLIC:
        refused = victim.refusal(path, of_project_a(path.request), "bob", ("x-goog-request-params", f"topic={MINE}"))
        if refused.code() is Code.UNIMPLEMENTED:
            missing.add(path)
            continue
        assert refused.code() is Code.PERMISSION_DENIED, (path, refused)
        assert refused.details() == "User not authorized to perform this action.", path
    assert missing < set(methods.ADMIN), "those of clusters alone are not there"
    for path, rule in RULES.items():
        if rule.internal:
            refused = victim.refusal(path, path.request(), "root")
            assert refused.code() in (Code.PERMISSION_DENIED, Code.UNIMPLEMENTED), path
    permissions = ["pubsub.topics.get", "pubsub.topics.publish"]
    asked = iam.TestIamPermissionsRequest(resource=TOPIC, permissions=permissions)
    assert not victim.call(IAM.TestIamPermissions, asked, "bob").permissions
    assert victim.call(IAM.TestIamPermissions, asked, "ann").permissions == permissions
    assert victim.everything() == before


def beside() -> dict[str, tuple[methods.Method, Any, str, str]]:
    """Requests of bob about what is his, that name something of ann's beside it; what is asked of it, and of what."""
    mask = {"paths": ["dead_letter_policy"]}
    dead = {"dead_letter_topic": TOPIC, "max_delivery_attempts": 5}
    token = {"push_endpoint": "https://example.com/x", "oidc_token": {"service_account_email": PUSHER}}
    settings = {"schema": SCHEMA, "encoding": "JSON"}
    new = "projects/b/subscriptions/new"
    account = f"projects/-/serviceAccounts/{PUSHER}"
    model = {"ai_inference": {"endpoint": "x", "service_account_email": PUSHER}}
    return {
        "a topic to subscribe to": (
            S.CreateSubscription, pubsub.Subscription(name=new, topic=TOPIC), "pubsub.topics.attachSubscription", TOPIC,
        ),
        "a dead letter topic": (
            S.CreateSubscription, pubsub.Subscription(name=new, topic=MINE, dead_letter_policy=dead),
            "pubsub.topics.publish", TOPIC,
        ),
        "a dead letter topic later": (
            S.UpdateSubscription, pubsub.UpdateSubscriptionRequest(
                subscription={"name": MY_SUBSCRIPTION, "dead_letter_policy": dead}, update_mask=mask),
            "pubsub.topics.publish", TOPIC,
        ),
        "a schema": (
            P.CreateTopic, pubsub.Topic(name="projects/b/topics/new", schema_settings=settings),
            "pubsub.schemas.attach", SCHEMA,
        ),
        "a schema later": (
            P.UpdateTopic, pubsub.UpdateTopicRequest(
                topic={"name": OTHER, "schema_settings": settings}, update_mask={"paths": ["schema_settings"]}),
            "pubsub.schemas.attach", SCHEMA,
        ),
        "a schema to validate with": (
            SCHEMAS.ValidateMessage, pubsub.ValidateMessageRequest(
                parent="projects/b", name=SCHEMA, message=b'{"f": "x"}', encoding="JSON"),
            "pubsub.schemas.get", SCHEMA,
        ),
        "an account to push as": (
            S.CreateSubscription, pubsub.Subscription(name=new, topic=MINE, push_config=token),
            "iam.serviceAccounts.actAs", account,
        ),
        "an account to push as later": (
            S.ModifyPushConfig, pubsub.ModifyPushConfigRequest(subscription=MY_SUBSCRIPTION, push_config=token),
            "iam.serviceAccounts.actAs", account,
        ),
        "an account to ask a model as": (
            P.CreateTopic, pubsub.Topic(name="projects/b/topics/new", message_transforms=[model]),
            "iam.serviceAccounts.actAs", account,
        ),
        "a subscription to keep": (
            S.CreateSnapshot, pubsub.CreateSnapshotRequest(name="projects/b/snapshots/new", subscription=SUBSCRIPTION),
            "pubsub.subscriptions.consume", SUBSCRIPTION,
        ),
        "a snapshot to seek to": (
            S.Seek, pubsub.SeekRequest(subscription=MY_SUBSCRIPTION, snapshot=SNAPSHOT),
            "pubsub.snapshots.seek", SNAPSHOT,
        ),
    }  # fmt: skip


BESIDE = beside()


def absent(request: Any) -> Any:
    """The same with names of project a that nothing has."""
    text = request.SerializeToString()
    for name in (TOPIC, SUBSCRIPTION, SNAPSHOT, SCHEMA, PUSHER):
        gone = name.replace("one", "eno").replace("two", "owt").replace("three", "eerht").replace("four", "ruof")
        text = text.replace(name.encode(), gone.replace("app@", "ppa@").encode())
    return type(request).FromString(text)


@pytest.mark.parametrize("what", BESIDE)
def test_what_a_request_names_beside_its_resource_is_asked_for_too(victim: Victim, what: str) -> None:
    path, request, permission, resource = BESIDE[what]
    for one in (request, absent(request)):
        refused = victim.refusal(path, one, "bob")
        assert refused.code() is Code.PERMISSION_DENIED, refused
    found = facts(victim.refusal(path, request, "bob"))
    assert (found["permission"], found["resource"]) == (permission, resource)
    if what == "an account to ask a model as":
        return  # no model is configured here
    on = "projects/a" if "account" in what else resource
    role = "roles/iam.serviceAccountUser" if "account" in what else "roles/pubsub.editor"
    victim.grant(on, role, "user:bob@example.com", "user:ann@example.com")
    try:
        if what == "a snapshot to seek to":  # let in, and told why not
            assert victim.refusal(path, request, "bob").code() is Code.FAILED_PRECONDITION
        else:
            victim.call(path, request, "bob")
    finally:
        if on == "projects/a":
            victim.grant(on, "roles/owner", "user:ann@example.com")
        else:
            victim.grant(on, "roles/owner")
        for delete, made in (
            (S.DeleteSubscription, pubsub.DeleteSubscriptionRequest(subscription="projects/b/subscriptions/new")),
            (S.DeleteSnapshot, pubsub.DeleteSnapshotRequest(snapshot="projects/b/snapshots/new")),
            (P.DeleteTopic, pubsub.DeleteTopicRequest(topic="projects/b/topics/new")),
        ):
            with contextlib.suppress(grpc.RpcError):
                victim.call(delete, made, "bob")


def facts(refused: Any) -> dict[str, str]:
    """The metadata of a refusal's ErrorInfo."""
    from google.rpc import error_details_pb2, status_pb2

    (status,) = [value for key, value in refused.trailing_metadata() if key == "grpc-status-details-bin"]
    info = error_details_pb2.ErrorInfo()
    assert status_pb2.Status.FromString(status).details[0].Unpack(info)
    return dict(info.metadata)


def test_an_ack_id_is_good_for_nothing_elsewhere(victim: Victim) -> None:
    publish = pubsub.PublishRequest(topic=TOPIC, messages=[pubsub.PubsubMessage(data=b"x")])
    victim.call(P.Publish, publish, "ann")
    pull = pubsub.PullRequest(subscription=SUBSCRIPTION, max_messages=1)
    received = eventually(lambda: list(victim.call(S.Pull, pull, "ann").received_messages))[0]
    theirs = received.ack_id
    victim.call(P.Publish, pubsub.PublishRequest(topic=MINE, messages=[pubsub.PubsubMessage(data=b"y")]), "bob")
    forged = (theirs, theirs[:-1], theirs[:-1] + ("A" if theirs[-1] != "A" else "B"), "x" * 48, "", "\0")
    for ack_id in forged:
        for path, request in (
            (S.Acknowledge, pubsub.AcknowledgeRequest(subscription=MY_SUBSCRIPTION, ack_ids=[ack_id])),
            (
                S.ModifyAckDeadline,
                pubsub.ModifyAckDeadlineRequest(
                    subscription=MY_SUBSCRIPTION, ack_ids=[ack_id], ack_deadline_seconds=600
                ),
            ),
        ):
            assert victim.refusal(path, request, "bob").code() is Code.INVALID_ARGUMENT, ack_id
    denied = pubsub.AcknowledgeRequest(subscription=SUBSCRIPTION, ack_ids=[theirs])
    assert victim.refusal(S.Acknowledge, denied, "bob").code() is Code.PERMISSION_DENIED
    nack = pubsub.ModifyAckDeadlineRequest(subscription=SUBSCRIPTION, ack_ids=[theirs], ack_deadline_seconds=0)
    victim.call(S.ModifyAckDeadline, nack, "ann")
    again = eventually(lambda: list(victim.call(S.Pull, pull, "ann").received_messages))[0]
    assert again.message.message_id == received.message.message_id, "nobody has acknowledged it"
    victim.call(S.Acknowledge, pubsub.AcknowledgeRequest(subscription=SUBSCRIPTION, ack_ids=[again.ack_id]), "ann")


def test_over_rest_the_path_says_what_is_meant(victim: Victim) -> None:
    body = json.dumps({"messages": [{"data": "eA=="}]}).encode()
    assert victim.rest("POST", f"/v1/{TOPIC}:publish", body, "bob")[0] == 403
    publish = f"/v1/{MINE}:publish"
    assert victim.rest("POST", publish, body, "bob", x_goog_request_params=f"topic={TOPIC}")[0] == 200
    assert victim.rest("POST", f"{publish}?topic={TOPIC}", body, "bob")[0] in (200, 400)
    named = json.dumps({"topic": TOPIC, "messages": [{"data": "eA=="}]}).encode()
    assert victim.rest("POST", publish, named, "bob")[0] in (200, 400)
    pulled = pubsub.PullRequest(subscription=SUBSCRIPTION, max_messages=10, return_immediately=True)
    assert not victim.call(S.Pull, pulled, "ann").received_messages, "nothing came to the other topic"
    for name in ("../../a/topics/one", "%2e%2e%2f%2e%2e%2fa%2ftopics%2fone", "..%2F..%2Fa%2Ftopics%2Fone", "a%00b",
                 "t%D0%BEp", "a" * 300, "googtopic", "_deleted-topic_"):  # fmt: skip
        status, _ = victim.rest("PUT", f"/v1/projects/b/topics/{name}", b"{}", "bob")
        assert status in (400, 403, 404), name
    override = victim.rest("POST", f"/v1/{TOPIC}", b"", "bob", x_http_method_override="DELETE")
    assert override[0] == 403


def test_bombs_are_refused_and_cost_little_memory(victim: Victim) -> None:
    before = victim.memory_mb
    zeros = gzip.compress(b"\0" * 50_000_000, 9)
    for content in (zeros, gzip.compress(b" " * 50_000_000, 9)):
        assert victim.rest("POST", f"/v1/{MINE}:publish", content, "bob", content_encoding="gzip")[0] in (400, 429)
    for deep in (b"[" * 60_000, b'{"a":' * 60_000, b'{"maxMessages": ' + b"9" * 60_000 + b"}"):
        assert victim.rest("POST", f"/v1/{MY_SUBSCRIPTION}:pull", deep, "bob")[0] == 400
    large = pubsub.PublishRequest(topic=MINE, messages=[pubsub.PubsubMessage(data=b"\0" * 40_000_000)])
    refused = victim.refusal(P.Publish, large, "bob", compression=grpc.Compression.Gzip)
    assert refused.code() in (Code.RESOURCE_EXHAUSTED, Code.INVALID_ARGUMENT)
    nested = "[" * 20_000 + '"string"' + "]" * 20_000
    proto = 'syntax = "proto3"; ' + "message M { " * 3_000 + "}" * 3_000
    for kind, text in (("AVRO", nested), ("PROTOCOL_BUFFER", proto)):
        asked = pubsub.CreateSchemaRequest(parent="projects/b", schema_id="bomb", schema=schema(text, kind))
        assert victim.refusal(SCHEMAS.CreateSchema, asked, "bob").code() is Code.INVALID_ARGUMENT, kind
    filters = ("NOT " * 60 + "attributes:a", "(" * 200 + "attributes:a", 'hasPrefix(attributes.a, "' + "x" * 300 + '")')
    for text in filters:
        wanted = pubsub.Subscription(name="projects/b/subscriptions/filtered", topic=MINE, filter=text)
        assert victim.refusal(S.CreateSubscription, wanted, "bob").code() is Code.INVALID_ARGUMENT, text[:20]
    many = [("x-flood", "x" * 200_000)]
    assert victim.refusal(P.GetTopic, pubsub.GetTopicRequest(topic=MINE), "bob", *many).code() in (
        Code.RESOURCE_EXHAUSTED, Code.UNAVAILABLE, Code.INTERNAL,
    )  # fmt: skip
    assert victim.call(P.GetTopic, pubsub.GetTopicRequest(topic=MINE), "bob").name == MINE
    assert victim.memory_mb < before + 150


def test_only_tls_of_today_with_the_right_certificates_comes_in(victim: Victim) -> None:
    with socket.create_connection(("127.0.0.1", victim.port), 10) as plain:
        plain.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        assert not plain.recv(100).startswith(b"\0"), "no frame of HTTP/2 comes back"
    trusting = victim.authority.ca

    def asked(context: ssl.SSLContext) -> bytes:
        with (
            socket.create_connection(("127.0.0.1", victim.port), 10) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as tls,
        ):
            tls.sendall(b"GET /v1/%s HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n" % MINE.encode())
            return tls.recv(100)

    old = ssl.create_default_context(cafile=str(trusting))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises(ssl.SSLError):
        asked(old)
    with pytest.raises(ssl.SSLCertVerificationError):
        asked(ssl.create_default_context(cafile=str(victim.clients.ca)))
    for authority, name, days, status in (
        (victim.clients, "bob", 30, b"200"),
        (victim.clients, "somebody", 30, b"401"),
        (victim.clients, "bob", -1, b""),
        (victim.authority, "bob", 30, b""),
    ):
        context = ssl.create_default_context(cafile=str(trusting))
        context.load_cert_chain(*authority.issue(name, days=days))
        try:
            found = asked(context)
        except (ssl.SSLError, ConnectionError):
            found = b""
        assert found[9:12] == status, (name, days, found)


def test_what_is_logged_of_a_token_is_one_line_and_not_the_token(victim: Victim) -> None:
    forged = jwt.encode({"iss": "x\n2026 everything is fine", "sub": "x"}, "k" * 32, "HS256", {"kid": "\r\nfake"})
    channel = victim.channel.unary_unary(P.GetTopic)
    with pytest.raises(grpc.RpcError) as refused:
        channel(b"", metadata=[("authorization", f"Bearer {forged}")], timeout=10)
    assert refused.value.code() is Code.UNAUTHENTICATED
    text = victim.server.logs()
    assert forged not in text
    assert victim.token("ann").rpartition(".")[0] not in text
    assert not any(line.startswith(("2026 everything", "fake")) for line in text.splitlines())
