"""A cluster that asks who calls, with TLS inside: one answer at every proxy, and its processes need grants, too."""

from __future__ import annotations

import json
import queue
import socket
import ssl
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml

from syncpoint.base.model.errors import Aborted, Code, SyncpointError
from syncpoint.front.client.client import Client
from syncpoint.programs.clusters.local import Shape
from syncpoint.testing.rigs.certificates import Authority
from syncpoint.testing.rigs.etcd import why_not
from syncpoint.testing.rigs.official import eventually
from syncpoint.wire.protobuf.messages import admin, iam, pubsub
from syncpoint.wire.protobuf.status import unpacked
from tests.kit.clusters import Kit
from tests.kit.endpoint import Endpoint
from tests.kit.issuer import TokenIssuer

pytestmark = [pytest.mark.skipif(why_not() is not None, reason=why_not() or ""), pytest.mark.shows("access")]

SHAPE = Shape(clusters=1, disks=1, forwarders=1, routers=1, proxies=2)
TOPIC, DEAD, PUSHED = (f"projects/a/topics/{name}" for name in ("orders", "dead", "pushed"))
SUBSCRIPTION, LEFT, PUSHING = (f"projects/a/subscriptions/{name}" for name in ("billing", "left", "pushing"))
SERVER = "serviceAccount:pubsub@syncpoint.internal"


class Guarded(Kit):
    """A cluster with an issuer whose key the test has. root@ owns it."""

    def __init__(self, folder):
        quotas, audit = {"projects/full": {"outstanding_bytes": 1000}}, {"file": "audit.log"}
        self.token = TokenIssuer(folder, quotas=quotas, audit=audit).token
        tls = {"ca": "tls/ca.pem", "certificate": "tls/{name}.pem", "key": "tls/{name}.key"}
        inside = {"tls": tls, "metadata": {"ca_file": "tls/ca.pem"}}
        super().__init__(folder, SHAPE, {**inside, "auth": "auth.yaml", "push": {"networks": ["loopback"]}})
        authority = Authority(folder / "tls")
        for name in ("etcd-1", *yaml.safe_load(self.local.settings_path.read_text())["processes"]):
            authority.issue(name)

    def call(self, method, request, *, who="root", proxy=0):
        metadata = [(b"authorization", b"Bearer " + self.token(who).encode())] if who else []
        with Client(self.proxies[proxy], timeout_s=10.0, patience_s=5.0, metadata=metadata) as client:
            return client.call(method, request)

    def admin(self, method, request, proxy=0):
        return self.call(f"Admin.{method}", request, proxy=proxy)

    def grant(self, resource, role, member):
        self.allow(resource, member, role=role)

    def allowed(self, method, request, who):
        """Call as soon as the proxy knows that somebody may."""

        def may():
            try:
                self.call(method, request, who=who)
            except SyncpointError as error:
                if error.code is not Code.PERMISSION_DENIED:
                    raise
                return False
            return True

        eventually(may, what=f"{who} may")

    def allow(self, resource, *members, role="roles/pubsub.publisher"):
        policy = iam.Policy(bindings=[iam.Binding(role=role, members=members)])
        self.call("IAMPolicy.SetIamPolicy", iam.SetIamPolicyRequest(resource=resource, policy=policy))

    def data(self, subscription):
        """What a pull brings, acknowledged."""
        pull = pubsub.PullRequest(subscription=subscription, max_messages=10)
        found = self.call("Subscriber.Pull", pull).received_messages
        if found:
            ids = [one.ack_id for one in found]
            self.call("Subscriber.Acknowledge", pubsub.AcknowledgeRequest(subscription=subscription, ack_ids=ids))
        return [one.message.data for one in found]

    def publish(self, topic, data):
        self.call("Publisher.Publish", pubsub.PublishRequest(topic=topic, messages=[pubsub.PubsubMessage(data=data)]))

    def state(self, subscription, proxy=0):
        return self.admin("GetSubscriptionState", admin.GetSubscriptionStateRequest(subscription=subscription), proxy)

    def refusal(self, method, request, **more):
        with pytest.raises(SyncpointError) as refused:
            self.call(method, request, **more)
        return refused.value


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    kit = Guarded(tmp_path_factory.mktemp("guarded"))
    try:
        kit.up()
        for name in (TOPIC, DEAD, PUSHED):
            kit.call("Publisher.CreateTopic", pubsub.Topic(name=name))
        letter = pubsub.DeadLetterPolicy(dead_letter_topic=DEAD, max_delivery_attempts=5)
        for made in (
            pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC, dead_letter_policy=letter),
            pubsub.Subscription(name=LEFT, topic=DEAD),
        ):
            kit.call("Subscriber.CreateSubscription", made)
        kit.grant("projects/b", "roles/owner", "user:bob@example.com")
        yield kit
    finally:
        kit.down()


def test_a_tenant_reaches_nothing_of_another_one_at_any_proxy(guarded):
    message = pubsub.PubsubMessage(data=b"x")
    own, new = pubsub.Topic(name="projects/b/topics/own"), "projects/b/subscriptions/new"
    guarded.call("Publisher.CreateTopic", own, who="bob")
    for topic, subscription in (
        (TOPIC, SUBSCRIPTION),
        ("projects/a/topics/nowhere", "projects/a/subscriptions/nowhere"),
    ):
        for proxy in (0, 1):
            for method, request in (
                ("Publisher.Publish", pubsub.PublishRequest(topic=topic, messages=[message])),
                ("Publisher.GetTopic", pubsub.GetTopicRequest(topic=topic)),
                ("Publisher.DeleteTopic", pubsub.DeleteTopicRequest(topic=topic)),
                ("Publisher.ListTopics", pubsub.ListTopicsRequest(project="projects/a")),
                ("Subscriber.Pull", pubsub.PullRequest(subscription=subscription, max_messages=1)),
                ("Subscriber.Acknowledge", pubsub.AcknowledgeRequest(subscription=subscription, ack_ids=["x"])),
                ("Subscriber.Seek", pubsub.SeekRequest(subscription=subscription, snapshot="projects/b/snapshots/own")),
                ("Subscriber.CreateSubscription", pubsub.Subscription(name=new, topic=topic)),
                ("IAMPolicy.SetIamPolicy", iam.SetIamPolicyRequest(resource=topic, policy=iam.Policy())),
            ):
                found = guarded.refusal(method, request, who="bob", proxy=proxy)
                assert found.code is Code.PERMISSION_DENIED, (method, found)
                assert found.message == "User not authorized to perform this action."
                assert guarded.refusal(method, request, who="", proxy=proxy).code is Code.UNAUTHENTICATED

    def written():
        files = sorted(guarded.local.folder.glob("audit.proxy-*.log"))
        found = [json.loads(line) for path in files for line in path.read_text().splitlines()]
        refused = {(one["method"].rpartition("/")[2], one["resource"]) for one in found if one["why"]}
        return len(files) == 2 and {("Publish", TOPIC), ("Pull", SUBSCRIPTION), ("SetIamPolicy", TOPIC)} <= refused

    eventually(written, what="each proxy has written down what it refused")


def test_dead_letters_move_once_the_server_itself_may(guarded):
    guarded.call(
        "Publisher.Publish", pubsub.PublishRequest(topic=TOPIC, messages=[pubsub.PubsubMessage(data=b"again")])
    )

    def offered():
        pulled = guarded.call("Subscriber.Pull", pubsub.PullRequest(subscription=SUBSCRIPTION, max_messages=1))
        for one in pulled.received_messages:
            back = pubsub.ModifyAckDeadlineRequest(subscription=SUBSCRIPTION, ack_ids=[one.ack_id])
            guarded.call("Subscriber.ModifyAckDeadline", back)
            return one.delivery_attempt
        return 0

    eventually(lambda: offered() > 6, 40, "it is offered beyond its attempts while nobody may move it")
    guarded.grant(DEAD, "roles/pubsub.publisher", SERVER)
    guarded.grant(SUBSCRIPTION, "roles/pubsub.subscriber", SERVER)
    moved = []

    def left():
        offered()
        answer = guarded.call("Subscriber.Pull", pubsub.PullRequest(subscription=LEFT, max_messages=1))
        moved.extend(one.message.data for one in answer.received_messages)
        return bool(moved)

    eventually(left, 40, "it is moved once the server may")
    assert moved[0] == b"again"


def test_pushes_begin_once_the_server_itself_may(guarded):
    with Endpoint() as taker:
        config = pubsub.PushConfig(push_endpoint=taker.url)
        guarded.call(
            "Subscriber.CreateSubscription", pubsub.Subscription(name=PUSHING, topic=PUSHED, push_config=config)
        )
        guarded.call(
            "Publisher.Publish", pubsub.PublishRequest(topic=PUSHED, messages=[pubsub.PubsubMessage(data=b"go")])
        )
        with pytest.raises(queue.Empty):
            taker.requests.get(timeout=1.5)
        guarded.grant(PUSHING, "roles/pubsub.subscriber", SERVER)
        assert json.loads(taker.next()[1])["subscription"] == PUSHING


@pytest.mark.parametrize("event", ["nothing", "kill", "seek"])
def test_forwards_wait_once_who_set_them_may_not_publish_there_any_more(guarded, event):
    """Also where the owner of the chain dies, and what a seek brings back."""
    source, target = f"projects/b/topics/source-{event}", f"projects/a/topics/target-{event}"
    name, inbox = f"projects/b/subscriptions/onwards-{event}", f"projects/a/subscriptions/inbox-{event}"
    bob, waiting = "user:bob@example.com", [b"later"]
    guarded.call("Publisher.CreateTopic", pubsub.Topic(name=target))
    guarded.call("Publisher.CreateTopic", pubsub.Topic(name=source), who="bob")
    guarded.call("Subscriber.CreateSubscription", pubsub.Subscription(name=inbox, topic=target))
    forwarding = pubsub.Subscription(name=name, topic=source, retain_acked_messages=True)
    guarded.call("Subscriber.CreateSubscription", forwarding, who="bob")
    guarded.grant(name, "roles/pubsub.subscriber", SERVER)
    guarded.allow(target, SERVER, bob)
    options = admin.SubscriptionOptions(subscription=name, forward_to=target)
    wanted = admin.UpdateSubscriptionOptionsRequest(options=options, update_mask={"paths": ["forward_to"]})

    guarded.allowed("Admin.UpdateSubscriptionOptions", wanted, "bob")
    guarded.publish(source, b"now")
    eventually(lambda: guarded.data(inbox) == [b"now"], 40, "it is forwarded")
    eventually(lambda: guarded.state(name).backlog_messages == 0, 40, "and acknowledged")
    guarded.allow(target, SERVER)

    def refused():
        state = guarded.state(name)
        return (
            f"{bob} set the destination" in state.forward.last_error
            and f"topics.publish on {target}" in state.delivery_advice
        )

    eventually(refused, 60, "who forwards it says why it waits")
    guarded.publish(source, b"later")
    eventually(lambda: guarded.state(name).backlog_messages == 1, what="it waits")
    if event == "kill":
        (victim,) = guarded.names("publish-forwarder")
        guarded.local.kill(victim)
        guarded.heal()
    elif event == "seek":
        guarded.call("Subscriber.Seek", pubsub.SeekRequest(subscription=name, time={"seconds": 1}), who="bob")
        waiting.append(b"now")

    def waits_again():
        state = guarded.state(name)
        return not state.unknown and state.backlog_messages == len(waiting) and refused()

    eventually(waits_again, 60, "it goes on waiting")
    assert guarded.state(name).outstanding_messages == 0
    assert guarded.data(inbox) == []
    guarded.allow(target, SERVER, bob)
    came = []

    def all_came():
        came.extend(guarded.data(inbox))
        return len(came) >= len(waiting)

    eventually(all_came, 60, "it goes on")
    assert sorted(came) == sorted(waiting)


def test_delivery_records_wait_once_who_named_their_topic_may_not_publish_there_any_more(guarded):
    topic, records, bob = "projects/b/topics/recorded", "projects/a/topics/records", "user:bob@example.com"
    kept = "projects/a/subscriptions/records"
    guarded.call("Publisher.CreateTopic", pubsub.Topic(name=records, message_retention_duration={"seconds": 86_400}))
    guarded.call("Publisher.CreateTopic", pubsub.Topic(name=topic), who="bob")
    guarded.call("Subscriber.CreateSubscription", pubsub.Subscription(name=kept, topic=records))
    guarded.allow(records, bob)
    options = admin.TopicOptions(topic=topic, records_topic=records)
    wanted = admin.UpdateTopicOptionsRequest(options=options, update_mask={"paths": ["records_topic"]})
    guarded.allowed("Admin.UpdateTopicOptions", wanted, "bob")
    guarded.publish(topic, b"now")

    def recorded():
        """Offsets whose publish is recorded."""
        found = [json.loads(one) for one in guarded.data(kept)]
        return [
            run for one in found for record in one["records"] if record["kind"] == "published" for run in record["runs"]
        ]

    eventually(recorded, 60, "it is recorded")
    guarded.allow(records)

    def advice():
        return guarded.admin("GetTopicState", admin.GetTopicStateRequest(topic=topic)).records_advice

    eventually(lambda: f"{bob} set the records topic of this topic" in advice(), what="it is said")

    def waits():
        guarded.publish(topic, b"later")
        until = time.monotonic() + 4.0  # longer than an answer stands, and than records linger
        while time.monotonic() < until:
            if recorded():
                return False
            time.sleep(0.3)
        return True

    eventually(waits, 60, "its records wait")
    guarded.allow(records, bob)
    eventually(recorded, 60, "they go on")


def test_dead_letters_wait_once_who_set_them_may_not_publish_there_any_more(guarded):
    topic, dead, name = "projects/b/topics/poison", "projects/a/topics/graves", "projects/b/subscriptions/poison"
    left, bob = "projects/a/subscriptions/graves", "user:bob@example.com"
    guarded.call("Publisher.CreateTopic", pubsub.Topic(name=dead))
    guarded.call("Publisher.CreateTopic", pubsub.Topic(name=topic), who="bob")
    guarded.call("Subscriber.CreateSubscription", pubsub.Subscription(name=left, topic=dead))
    guarded.allow(dead, SERVER, bob)
    letter = pubsub.DeadLetterPolicy(dead_letter_topic=dead, max_delivery_attempts=5)
    made = pubsub.Subscription(name=name, topic=topic, dead_letter_policy=letter)

    guarded.allowed("Subscriber.CreateSubscription", made, "bob")
    guarded.grant(name, "roles/pubsub.subscriber", SERVER)
    eventually(lambda: not guarded.state(name).dead_letter_advice, what="the server may move them")
    guarded.allow(dead, SERVER)
    eventually(lambda: f"{bob} set the dead-letter topic" in guarded.state(name).dead_letter_advice, what="it is said")
    guarded.publish(topic, b"poison")

    def offered():
        pulled = guarded.call("Subscriber.Pull", pubsub.PullRequest(subscription=name, max_messages=1))
        for one in pulled.received_messages:
            back = pubsub.ModifyAckDeadlineRequest(subscription=name, ack_ids=[one.ack_id])
            guarded.call("Subscriber.ModifyAckDeadline", back)
            return one.delivery_attempt
        return 0

    eventually(lambda: offered() > 6, 60, "it is offered beyond its attempts")
    guarded.allow(dead, SERVER, bob)

    def buried():
        offered()
        return guarded.state(left).backlog_messages == 1

    eventually(buried, 60, "it is moved once bob may again")


def test_a_pull_beyond_the_quota_of_a_project_is_refused_through_a_proxy(guarded):
    topic, subscription = "projects/full/topics/large", "projects/full/subscriptions/slow"
    guarded.call("Publisher.CreateTopic", pubsub.Topic(name=topic))
    guarded.call("Subscriber.CreateSubscription", pubsub.Subscription(name=subscription, topic=topic))
    large = [pubsub.PubsubMessage(data=b"x" * 2000)] * 2
    guarded.call("Publisher.Publish", pubsub.PublishRequest(topic=topic, messages=large))
    pull = pubsub.PullRequest(subscription=subscription, max_messages=1)
    held = []

    def pulled():
        held.extend(guarded.call("Subscriber.Pull", pull).received_messages)
        return bool(held)

    eventually(pulled, what="one message")
    refused = guarded.refusal("Subscriber.Pull", pull, proxy=1)
    assert refused.code is Code.RESOURCE_EXHAUSTED
    assert [type(one).__name__ for one in unpacked(refused.details)] == ["ErrorInfo", "RetryInfo"]
    done = pubsub.AcknowledgeRequest(subscription=subscription, ack_ids=[held.pop().ack_id])
    guarded.call("Subscriber.Acknowledge", done)
    eventually(pulled, what="the other one")


def test_one_of_many_who_replace_a_policy_at_once_wins(guarded):
    seen = guarded.call("IAMPolicy.GetIamPolicy", iam.GetIamPolicyRequest(resource="projects/race"))

    def replaced(number):
        binding = iam.Binding(role="roles/pubsub.viewer", members=[f"user:u{number}@example.com"])
        policy = iam.Policy(etag=seen.etag, bindings=[binding])
        wanted = iam.SetIamPolicyRequest(resource="projects/race", policy=policy)
        try:
            guarded.call("IAMPolicy.SetIamPolicy", wanted, proxy=number % 2)
        except Aborted:
            return None
        return number

    with ThreadPoolExecutor(8) as callers:
        won = [number for number in callers.map(replaced, range(8)) if number is not None]
    assert len(won) == 1
    found = guarded.call("IAMPolicy.GetIamPolicy", iam.GetIamPolicyRequest(resource="projects/race"))
    assert found.bindings[0].members == [f"user:u{won[0]}@example.com"]


def test_an_ack_id_is_good_for_its_own_subscription_only(guarded):
    topic, mine, theirs = "projects/b/topics/acks", "projects/b/subscriptions/mine", "projects/c/subscriptions/theirs"
    guarded.call("Publisher.CreateTopic", pubsub.Topic(name=topic))
    for name in (mine, theirs):
        guarded.call("Subscriber.CreateSubscription", pubsub.Subscription(name=name, topic=topic))
    guarded.call("Publisher.Publish", pubsub.PublishRequest(topic=topic, messages=[pubsub.PubsubMessage(data=b"x")]))

    def pulled(name):
        answer = guarded.call("Subscriber.Pull", pubsub.PullRequest(subscription=name, max_messages=1))
        return [one.ack_id for one in answer.received_messages]

    held = eventually(lambda: pulled(theirs), what="the message")[0]
    own = eventually(lambda: pulled(mine), what="the message")[0]
    changed = own[:20] + ("A" if own[20] != "A" else "B") + own[21:]
    for proxy in (0, 1):
        for bad in (held, changed, own[:-1], own + "A", ""):
            for method, request in (
                ("Acknowledge", pubsub.AcknowledgeRequest(subscription=mine, ack_ids=[bad])),
                ("ModifyAckDeadline", pubsub.ModifyAckDeadlineRequest(subscription=mine, ack_ids=[bad])),
            ):
                refused = guarded.refusal(f"Subscriber.{method}", request, who="bob", proxy=proxy)
                assert refused.code is Code.INVALID_ARGUMENT, (bad, refused)
    nack = pubsub.ModifyAckDeadlineRequest(subscription=theirs, ack_ids=[held])
    guarded.call("Subscriber.ModifyAckDeadline", nack)
    assert eventually(lambda: pulled(theirs), what="it is still there, and comes again")


def test_etcd_answers_who_shows_a_certificate_of_the_cluster(guarded):
    host, _, port = guarded.local.settings().etcd[0].rpartition(":")
    folder = guarded.local.folder / "tls"

    def health(*certificate):
        context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
        if certificate:
            context.load_cert_chain(*certificate)
        with (
            socket.create_connection((host, int(port)), 10) as plain,
            context.wrap_socket(plain, server_hostname=host) as tls,
        ):
            tls.sendall(b"GET /health HTTP/1.1\r\nhost: etcd\r\nconnection: close\r\n\r\n")
            return tls.recv(100)

    assert b"200 OK" in health(folder / "router-1.pem", folder / "router-1.key")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        health()
