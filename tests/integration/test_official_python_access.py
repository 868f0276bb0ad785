"""The official Python client at a server that asks who calls: key files of accounts, tokens of an issuer, TLS."""

from __future__ import annotations

import json
import queue
import ssl
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import jwt
import pytest
import yaml
from google.api_core.exceptions import Aborted, PermissionDenied, Unauthenticated
from google.cloud import pubsub_v1
from google.iam.v1 import iam_policy_pb2, policy_pb2
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

from syncpoint.testing.rigs.official import eventually
from syncpoint.testing.server_process import ServerProcess
from syncpoint.wire.protobuf.messages import accounts, admin
from tests.kit.endpoint import Endpoint
from tests.kit.guarded import GuardedServer, bearer, signing

pytestmark = pytest.mark.shows("clients-python", "access", "authors")

TOPIC, SUBSCRIPTION = "projects/a/topics/orders", "projects/a/subscriptions/billing"


@pytest.fixture(scope="module", params=[(), ("--workers", "2")], ids=["one", "workers"])
def guarded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[GuardedServer, str]]:
    made = GuardedServer(tmp_path_factory.mktemp("guarded"))
    files = ("--tls-cert", str(made.cert), "--tls-key", str(made.key), "--auth", str(made.auth))
    pushes = ("--push-network", "loopback", "--push-issuer", "https://pubsub.example")
    (made.folder / "bucket").mkdir()
    buckets = ("--bucket", f"archive={made.folder}/bucket")
    with ServerProcess(made.folder / "data", args=[*files, *pushes, *buckets, *request.param]) as server:
        yield made, server.endpoint


Clients = Callable[[Any], tuple[pubsub_v1.PublisherClient, pubsub_v1.SubscriberClient]]


@pytest.fixture
def clients(guarded: tuple[GuardedServer, str]) -> Iterator[Clients]:
    made, endpoint = guarded
    channels = []

    def of(credentials: Any) -> tuple[pubsub_v1.PublisherClient, pubsub_v1.SubscriberClient]:
        channels.append(channel := made.channel(endpoint, credentials))
        return (
            pubsub_v1.PublisherClient(transport=PublisherGrpcTransport(channel=channel)),
            pubsub_v1.SubscriberClient(transport=SubscriberGrpcTransport(channel=channel)),
        )

    yield of
    for channel in channels:
        channel.close()


def granted(role: str, *members: str) -> policy_pb2.Policy:
    return policy_pb2.Policy(bindings=[policy_pb2.Binding(role=role, members=members)])


def test_an_owner_grants_and_others_may_what_is_granted(guarded: tuple[GuardedServer, str], clients: Clients) -> None:
    made, _ = guarded
    publisher, subscriber = clients(signing(made.owner))
    ann, ann_subscriber = clients(bearer(made.token("ann")))
    with pytest.raises(PermissionDenied, match="User not authorized to perform this action"):
        ann.create_topic(name=TOPIC)
    publisher.create_topic(name=TOPIC)
    subscriber.create_subscription(name=SUBSCRIPTION, topic=TOPIC)
    with pytest.raises(PermissionDenied):
        ann.publish(TOPIC, b"no").result(60)
    policy = publisher.set_iam_policy(
        request=iam_policy_pb2.SetIamPolicyRequest(
            resource=TOPIC, policy=granted("roles/pubsub.publisher", "user:ann@example.com")
        )
    )
    assert publisher.get_iam_policy(request=iam_policy_pb2.GetIamPolicyRequest(resource=TOPIC)) == policy
    with pytest.raises(Aborted):
        publisher.set_iam_policy(
            request=iam_policy_pb2.SetIamPolicyRequest(resource=TOPIC, policy=policy_pb2.Policy(etag=b"other"))
        )
    deadline = time.monotonic() + 60  # until every worker has learned of it
    while True:
        try:
            assert ann.publish(TOPIC, b"hello").result(60)
            break
        except PermissionDenied:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    asked = ["pubsub.topics.publish", "pubsub.topics.delete"]
    mine = ann.test_iam_permissions(request=iam_policy_pb2.TestIamPermissionsRequest(resource=TOPIC, permissions=asked))
    assert list(mine.permissions) == ["pubsub.topics.publish"]
    with pytest.raises(PermissionDenied):
        ann_subscriber.pull(subscription=SUBSCRIPTION, max_messages=1)
    with pytest.raises(PermissionDenied):
        ann.set_iam_policy(
            request=iam_policy_pb2.SetIamPolicyRequest(resource=TOPIC, policy=granted("roles/owner", "allUsers"))
        )
    (received,) = subscriber.pull(subscription=SUBSCRIPTION, max_messages=10).received_messages
    assert received.message.data == b"hello"
    future = ann_subscriber.subscribe(SUBSCRIPTION, callback=lambda message: None)
    with pytest.raises(PermissionDenied):
        future.result(20)
    publisher.delete_topic(topic=TOPIC)
    subscriber.delete_subscription(subscription=SUBSCRIPTION)


def test_pushes_need_grants_of_their_own_and_their_tokens_are_for_one_endpoint(
    guarded: tuple[GuardedServer, str], clients: Clients
) -> None:
    made, endpoint = guarded
    publisher, subscriber = clients(signing(made.owner))
    bob, bob_subscriber = clients(bearer(made.token("bob")))
    pusher, topic, name = "pusher@a.example", "projects/a/topics/pushed", "projects/a/subscriptions/pushed"

    def grant(resource: str, role: str, member: str) -> None:
        publisher.set_iam_policy(
            request=iam_policy_pb2.SetIamPolicyRequest(resource=resource, policy=granted(role, member))
        )

    with made.channel(endpoint, signing(made.owner)) as channel:
        create = channel.unary_unary("/syncpoint.iam.v1.ServiceAccounts/CreateServiceAccount")
        create(accounts.CreateServiceAccountRequest(project="projects/a", email=pusher).SerializeToString())
    publisher.create_topic(name=topic)
    grant("projects/a", "roles/pubsub.editor", "user:bob@example.com")
    with Endpoint() as taker, Endpoint() as other:
        config = {"push_endpoint": taker.url, "oidc_token": {"service_account_email": pusher}}
        once_allowed(lambda: bob.get_topic(topic=topic), PermissionDenied)
        with pytest.raises(PermissionDenied):
            bob_subscriber.create_subscription(name=name, topic=topic, push_config=config)
        subscriber.create_subscription(name=name, topic=topic, push_config=config)
        with pytest.raises(PermissionDenied):  # the token would go with it
            bob_subscriber.update_subscription(
                subscription={"name": name, "push_config": {"push_endpoint": other.url}},
                update_mask={"paths": ["push_config.push_endpoint"]},
            )
        wanted = iam_policy_pb2.SetIamPolicyRequest(resource=name, policy=granted("roles/owner", "allUsers"))
        with pytest.raises(PermissionDenied):
            bob.set_iam_policy(request=wanted)
        publisher.publish(topic, b"hello").result(60)
        with pytest.raises(queue.Empty):
            taker.requests.get(timeout=1.5)  # nobody has let the server itself read
        grant(name, "roles/pubsub.subscriber", "serviceAccount:pubsub@syncpoint.internal")
        headers, body = taker.next()
        assert json.loads(body)["subscription"] == name
        token = headers["authorization"].removeprefix("Bearer ")
        port = endpoint.rpartition(":")[2]
        context = ssl.create_default_context(cafile=str(made.ca))
        found = urllib.request.urlopen(f"https://localhost:{port}/.well-known/openid-configuration", context=context)
        assert json.load(found)["jwks_uri"] == "https://pubsub.example/oauth2/v3/certs"
        keys = urllib.request.urlopen(f"https://localhost:{port}/oauth2/v3/certs", context=context)
        key = jwt.PyJWKSet.from_dict(json.load(keys))[jwt.get_unverified_header(token)["kid"]]
        claims = jwt.decode(token, key, ["RS256"], audience=taker.url, issuer="https://pubsub.example")
        assert (claims["email"], claims["email_verified"]) == (pusher, True)
        with pytest.raises(jwt.InvalidAudienceError):  # whom the first one passes it on to
            jwt.decode(token, key, ["RS256"], audience=other.url)
        assert other.requests.empty()


def test_exports_need_grants_of_their_own(guarded: tuple[GuardedServer, str], clients: Clients) -> None:
    made, _ = guarded
    publisher, subscriber = clients(signing(made.owner))
    topic, name = "projects/a/topics/exported", "projects/a/subscriptions/exported"
    publisher.create_topic(name=topic)
    config = {"bucket": "archive", "max_messages": 1_000, "service_account_email": "writer@a.example"}
    bob, bob_subscriber = clients(bearer(made.token("bob")))
    editor = iam_policy_pb2.SetIamPolicyRequest(
        resource="projects/a", policy=granted("roles/pubsub.editor", "user:bob@example.com")
    )
    publisher.set_iam_policy(request=editor)
    once_allowed(lambda: bob.get_topic(topic=topic), PermissionDenied)
    with pytest.raises(PermissionDenied):  # who names an account needs to be allowed to act as it
        bob_subscriber.create_subscription(request={"name": name, "topic": topic, "cloud_storage_config": config})
    subscriber.create_subscription(request={"name": name, "topic": topic, "cloud_storage_config": config})
    states = type(subscriber.get_subscription(subscription=name).cloud_storage_config).State
    assert subscriber.get_subscription(subscription=name).cloud_storage_config.state == states.PERMISSION_DENIED
    for sent in [publisher.publish(topic, b"%d" % number) for number in range(1_000)]:
        sent.result(60)
    publisher.set_iam_policy(
        request=iam_policy_pb2.SetIamPolicyRequest(
            resource=name, policy=granted("roles/pubsub.subscriber", "serviceAccount:pubsub@syncpoint.internal")
        )
    )
    bucket, end = made.folder / "bucket", time.monotonic() + 60
    while not (files := [path for path in bucket.iterdir() if not path.name.startswith(".")]):
        assert time.monotonic() < end
        time.sleep(0.1)
    assert sorted(map(int, files[0].read_text().split())) == list(range(1_000))
    # Each worker learns of the grant for itself.
    while subscriber.get_subscription(subscription=name).cloud_storage_config.state != states.ACTIVE:
        assert time.monotonic() < end
        time.sleep(0.1)


class Revoked:
    """What ann, an owner of projects/r, set there; her grants come and go."""

    def __init__(self, guarded: tuple[GuardedServer, str], clients: Clients) -> None:
        self.made, self.endpoint = guarded
        self.publisher, self.subscriber = clients(signing(self.made.owner))
        self.ann, self.ann_subscriber = clients(bearer(self.made.token("ann")))
        self.admin = self.made.channel(self.endpoint, signing(self.made.owner))
        for project in ("r", "s"):
            self.allow(f"projects/{project}", **{"roles/owner": self.SERVER})

    SERVER = "serviceAccount:pubsub@syncpoint.internal"

    def allow(self, resource: str, **roles: str) -> None:
        """Replace a policy: role -> who has it."""
        bindings = [policy_pb2.Binding(role=role, members=who.split()) for role, who in roles.items()]
        self.publisher.set_iam_policy(
            request=iam_policy_pb2.SetIamPolicyRequest(resource=resource, policy=policy_pb2.Policy(bindings=bindings))
        )

    def allow_ann(self) -> None:
        self.allow("projects/r", **{"roles/owner": f"{self.SERVER} user:ann@example.com"})
        once_allowed(lambda: list(self.ann.list_topics(project="projects/r")), PermissionDenied)

    def topic(self, name: str, project: str = "r") -> str:
        made = f"projects/{project}/topics/{name}"
        self.publisher.create_topic(name=made)
        return made

    def subscription(self, name: str, topic: str) -> str:
        made = f"projects/{topic.split('/')[1]}/subscriptions/{name}"
        self.subscriber.create_subscription(name=made, topic=topic)
        return made

    def call(self, method: str, request: Any, answer: Any) -> Any:
        path = f"/syncpoint.admin.v1.Admin/{method}"
        return answer.FromString(self.admin.unary_unary(path)(request.SerializeToString()))

    def as_ann(self, method: str, request: Any) -> None:
        """Call as ann, as soon as the server knows that she may."""
        with self.made.channel(self.endpoint, bearer(self.made.token("ann"))) as channel:
            call = channel.unary_unary(f"/syncpoint.admin.v1.Admin/{method}")
            once_allowed(lambda: call(request.SerializeToString()), grpc.RpcError)

    def forward(self, name: str, target: str) -> None:
        options = admin.SubscriptionOptions(subscription=name, forward_to=target)
        mask = {"paths": ["forward_to"]}
        wanted = admin.UpdateSubscriptionOptionsRequest(options=options, update_mask=mask)
        self.as_ann("UpdateSubscriptionOptions", wanted)

    def state(self, name: str) -> Any:
        request = admin.GetSubscriptionStateRequest(subscription=name)
        return self.call("GetSubscriptionState", request, admin.SubscriptionState)

    def waits(self, name: str, permission: str, resource: str) -> None:
        """Until whoever consumes it has given up for that reason, naming all three."""
        wanted = "user:ann@example.com set the d"

        def refused() -> bool:
            state = self.state(name)
            why = state.push.last_error or state.forward.last_error
            if state.HasField("export"):
                why = state.delivery_advice if state.export.state == "PERMISSION_DENIED" else ""
            assert state.options.delivery_author == "user:ann@example.com"
            return wanted in why and f"no longer has {permission} on {resource}" in why and bool(state.delivery_advice)

        eventually(refused, what="its messages wait for a reason")

    def stays(self, name: str, topic: str) -> None:
        """What is published now waits, and nobody has it."""
        self.publisher.publish(topic, b"later").result(60)
        eventually(lambda: self.state(name).backlog_messages == 1, what="it is stored")
        assert self.state(name).outstanding_messages == 0


@pytest.fixture
def revoked(guarded: tuple[GuardedServer, str], clients: Clients) -> Revoked:
    found = Revoked(guarded, clients)
    found.allow_ann()
    return found


def test_a_forward_waits_once_who_set_it_may_not_publish_there_any_more(revoked: Revoked) -> None:
    source, target = revoked.topic("source"), revoked.topic("target", "s")
    inbox = revoked.subscription("inbox", target)
    revoked.allow(target, **{"roles/pubsub.publisher": "user:ann@example.com"})
    name = "projects/r/subscriptions/forwards"
    revoked.ann_subscriber.create_subscription(name=name, topic=source)
    revoked.forward(name, target)
    revoked.publisher.publish(source, b"now").result(60)
    got: list[bytes] = []

    def arrived() -> int:
        answer = revoked.subscriber.pull(subscription=inbox, max_messages=10)
        got.extend(one.message.data for one in answer.received_messages)
        if answer.received_messages:
            ids = [one.ack_id for one in answer.received_messages]
            revoked.subscriber.acknowledge(subscription=inbox, ack_ids=ids)
        return len(got)

    eventually(lambda: arrived() == 1, what="it is forwarded")
    revoked.allow(target)
    revoked.waits(name, "pubsub.topics.publish", target)
    revoked.stays(name, source)
    assert arrived() == 1
    revoked.allow(target, **{"roles/pubsub.publisher": "user:ann@example.com"})
    eventually(lambda: arrived() == 2, what="it goes on")
    assert got == [b"now", b"later"]


def test_what_a_seek_brings_back_waits_for_the_right_too(revoked: Revoked) -> None:
    source, target = revoked.topic("sought-source"), revoked.topic("sought-target", "s")
    inbox, name = revoked.subscription("sought-inbox", target), "projects/r/subscriptions/brought-back"
    right = {"roles/pubsub.publisher": "user:ann@example.com"}
    revoked.allow(target, **right)
    revoked.ann_subscriber.create_subscription(request={"name": name, "topic": source, "retain_acked_messages": True})
    revoked.forward(name, target)
    revoked.publisher.publish(source, b"now").result(60)
    eventually(lambda: revoked.state(inbox).backlog_messages == 1, what="it is forwarded")
    eventually(lambda: revoked.state(name).backlog_messages == 0, what="and acknowledged")
    revoked.allow(target)
    revoked.waits(name, "pubsub.topics.publish", target)
    revoked.subscriber.seek(request={"subscription": name, "time": {"seconds": 1}})
    eventually(lambda: revoked.state(name).backlog_messages == 1, what="it is brought back")
    revoked.waits(name, "pubsub.topics.publish", target)
    assert revoked.state(name).outstanding_messages == 0
    assert revoked.state(inbox).backlog_messages == 1
    revoked.allow(target, **right)
    eventually(lambda: revoked.state(inbox).backlog_messages == 2, what="it goes on")


def test_delivery_records_wait_once_who_named_their_topic_may_not_publish_there_any_more(revoked: Revoked) -> None:
    topic, records = revoked.topic("recorded"), "projects/s/topics/records"
    revoked.publisher.create_topic(request={"name": records, "message_retention_duration": {"seconds": 86_400}})
    kept = revoked.subscription("records", records)
    right = {"roles/pubsub.publisher": "user:ann@example.com"}
    revoked.allow(records, **right)
    options = admin.TopicOptions(topic=topic, records_topic=records)
    wanted = admin.UpdateTopicOptionsRequest(options=options, update_mask={"paths": ["records_topic"]})
    revoked.as_ann("UpdateTopicOptions", wanted)
    revoked.publisher.publish(topic, b"now").result(60)
    eventually(lambda: revoked.state(kept).backlog_messages > 0, what="it is recorded")
    revoked.allow(records)

    def advice() -> str:
        asked = admin.GetTopicStateRequest(topic=topic)
        return str(revoked.call("GetTopicState", asked, admin.TopicState).records_advice)

    eventually(lambda: "ann@example.com set the records topic of this topic" in advice(), what="it is said")
    assert f"no longer has pubsub.topics.publish on {records}" in advice()
    before = steady(lambda: revoked.state(kept).backlog_messages)
    revoked.publisher.publish(topic, b"later").result(60)
    assert steady(lambda: revoked.state(kept).backlog_messages) == before, "records wait"
    revoked.allow(records, **right)
    eventually(lambda: not advice(), what="she may again")
    eventually(lambda: revoked.state(kept).backlog_messages > before, what="they go on")


def steady(number: Callable[[], int]) -> int:
    """Once it has stayed as it is for longer than an answer stands, and records linger."""
    found, since = number(), time.monotonic()
    while time.monotonic() < since + 4:
        time.sleep(0.2)
        if (now := number()) != found:
            found, since = now, time.monotonic()
    return found


def test_pushes_wait_once_who_set_them_may_not_act_as_the_account(revoked: Revoked) -> None:
    account, topic, name = "pusher@r.iam.syncpoint.internal", revoked.topic("pushes"), "projects/r/subscriptions/pushes"
    create = revoked.admin.unary_unary("/syncpoint.iam.v1.ServiceAccounts/CreateServiceAccount")
    create(accounts.CreateServiceAccountRequest(project="projects/r", email=account).SerializeToString())
    editor = {"roles/owner": revoked.SERVER, "roles/pubsub.editor": "user:ann@example.com"}
    with Endpoint() as taker:
        config = {"push_endpoint": taker.url, "oidc_token": {"service_account_email": account}}

        def make() -> None:
            revoked.ann_subscriber.create_subscription(name=name, topic=topic, push_config=config)

        once_allowed(make, PermissionDenied)
        revoked.publisher.publish(topic, b"now").result(60)
        assert "authorization" in taker.next()[0]
        revoked.allow("projects/r", **editor)
        revoked.waits(name, "iam.serviceAccounts.actAs", f"projects/-/serviceAccounts/{account}")
        revoked.stays(name, topic)
        assert taker.requests.empty()
        revoked.allow_ann()
        assert json.loads(taker.next()[1])["subscription"] == name


def test_pushes_and_exports_wait_once_who_set_them_may_not_any_more(revoked: Revoked) -> None:
    topic, pushed, exported = revoked.topic("sent"), "projects/r/subscriptions/sent", "projects/r/subscriptions/stored"
    with Endpoint() as taker:
        revoked.ann_subscriber.create_subscription(name=pushed, topic=topic, push_config={"push_endpoint": taker.url})
        revoked.publisher.publish(topic, b"now").result(60)
        taker.next()
        config = {"bucket": "archive", "filename_prefix": "revoked-", "max_duration": {"seconds": 60}}
        revoked.ann_subscriber.create_subscription(
            request={"name": exported, "topic": topic, "cloud_storage_config": config}
        )
        revoked.allow("projects/r", **{"roles/owner": revoked.SERVER})
        for name in (pushed, exported):
            revoked.waits(name, "pubsub.subscriptions.update", name)
        revoked.stays(exported, topic)
        assert (revoked.state(pushed).backlog_messages, revoked.state(pushed).outstanding_messages) == (1, 0)
        assert taker.requests.empty()
        revoked.allow_ann()
        assert json.loads(taker.next()[1])["subscription"] == pushed
        eventually(lambda: revoked.state(exported).export.held == 1, what="it is taken for a file")


def test_dead_letters_wait_once_who_set_them_may_not_publish_there_any_more(revoked: Revoked) -> None:
    topic, dead = revoked.topic("poison"), revoked.topic("dead", "s")
    graves, name = revoked.subscription("graves", dead), "projects/r/subscriptions/poison"
    revoked.allow(dead, **{"roles/pubsub.publisher": "user:ann@example.com"})
    policy = {"dead_letter_topic": dead, "max_delivery_attempts": 5}

    def make() -> None:
        revoked.ann_subscriber.create_subscription(request={"name": name, "topic": topic, "dead_letter_policy": policy})

    once_allowed(make, PermissionDenied)
    revoked.allow(dead)
    eventually(
        lambda: "no longer has pubsub.topics.publish" in revoked.state(name).dead_letter_advice, what="it is said"
    )
    revoked.publisher.publish(topic, b"poison").result(60)

    def offered() -> int:
        pulled = revoked.subscriber.pull(subscription=name, max_messages=1)
        for one in pulled.received_messages:
            revoked.subscriber.modify_ack_deadline(subscription=name, ack_ids=[one.ack_id], ack_deadline_seconds=0)
            return one.delivery_attempt
        return 0

    eventually(lambda: offered() > 6, what="it is offered beyond its attempts")
    revoked.allow(dead, **{"roles/pubsub.publisher": "user:ann@example.com"})

    def buried() -> bool:
        offered()
        return revoked.state(graves).backlog_messages == 1

    eventually(buried, what="it is moved once she may again")


def once_allowed(ask: Callable[[], Any], error: type[Exception], within: float = 60) -> None:
    """Ask until it is not refused any more."""
    deadline = time.monotonic() + within
    while True:
        try:
            ask()
            return
        except error:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_who_shows_nothing_or_something_false_does_not_come_in(
    guarded: tuple[GuardedServer, str], clients: Clients
) -> None:
    made, endpoint = guarded
    stranger = made.key_file("stranger@demo.example")
    for credentials in (bearer("junk"), bearer(made.token("ann", -60)), signing(stranger)):
        publisher, _ = clients(credentials)
        with pytest.raises(Unauthenticated):
            publisher.get_topic(topic=TOPIC)
    target, tls = f"localhost:{endpoint.rpartition(':')[2]}", grpc.ssl_channel_credentials(made.ca.read_bytes())
    with grpc.secure_channel(target, tls) as channel:
        publisher = pubsub_v1.PublisherClient(transport=PublisherGrpcTransport(channel=channel))
        with pytest.raises(Unauthenticated):
            publisher.get_topic(topic=TOPIC)


def test_a_key_that_is_added_is_believed_without_a_restart(
    guarded: tuple[GuardedServer, str], clients: Clients
) -> None:
    made, _ = guarded
    path = made.key_file("late@demo.example")
    publisher, _ = clients(signing(path))
    with pytest.raises(Unauthenticated):
        publisher.get_topic(topic=TOPIC)
    content = yaml.safe_load(made.auth.read_text())
    content["service_accounts"].append({"email": "late@demo.example", "key_files": ["late@demo.example.pub"]})
    content["owners"].append("serviceAccount:late@demo.example")
    made.auth.write_text(yaml.safe_dump(content))
    deadline, found = time.monotonic() + 60, 0
    while found < 5:  # by every worker
        try:
            list(publisher.list_topics(project="projects/a"))
            found += 1
        except Unauthenticated:
            assert time.monotonic() < deadline
            time.sleep(0.2)
