"""A gateway in front of two sites, and Google's Python client, which knows the gateway's address alone."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from syncpoint.base.runtime.ports import free_ports
from syncpoint.front.gateway.ack_tags import TAG_BYTES
from syncpoint.testing.rigs.official import eventually
from syncpoint.testing.server_process import ServerProcess
from syncpoint.wire.protobuf.messages import pubsub
from tests.integration.conftest import Space
from tests.kit.gateway_rig import GatewayProcess

pytestmark = pytest.mark.shows("gateway")


def receiving(space: Space, subscription: str) -> Counter[bytes]:
    """What a subscriber of Google's client has acknowledged so far, by data."""
    got: Counter[bytes] = Counter()

    def handle(message: Any) -> None:
        got[message.data] += 1
        message.ack()

    space.listen(subscription, handle)
    return got


@pytest.fixture
def sites(boot: Callable[..., ServerProcess], tmp_path: Path) -> Iterator[tuple[list[ServerProcess], GatewayProcess]]:
    servers = [boot(), boot()]
    gateway = GatewayProcess(tmp_path, {"eu": servers[0].endpoint, "us": servers[1].endpoint})
    yield servers, gateway
    gateway.end()


def published(space: Space, topic: str, numbers: range) -> float:
    """The longest that one publish took, of some after each other; each is confirmed."""
    longest, publisher = 0.0, space.publisher()
    for number in numbers:
        began = time.monotonic()
        publisher.publish(topic, b"%d" % number).result(60)
        longest = max(longest, time.monotonic() - began)
    return longest


@pytest.fixture
def hasty_sites(
    boot: Callable[..., ServerProcess], tmp_path: Path
) -> Iterator[tuple[list[ServerProcess], GatewayProcess]]:
    servers = [boot(), boot()]
    endpoints = {"eu": servers[0].endpoint, "us": servers[1].endpoint}
    gateway = GatewayProcess(tmp_path, endpoints, answers_within="1s")
    yield servers, gateway
    gateway.end()


def test_clients_go_on_when_a_site_is_killed_and_when_it_hangs(
    hasty_sites: tuple[list[ServerProcess], GatewayProcess], enter: Callable[[str], Space]
) -> None:
    servers, gateway = hasty_sites
    space = enter(gateway.endpoint)
    topic, subscription = space.pair()
    got = receiving(space, subscription)
    published(space, topic, range(50))
    eventually(lambda: len(got) == 50)

    os.kill(servers[0].pid or 0, signal.SIGSTOP)
    try:
        assert published(space, topic, range(50, 100)) < 30
        assert gateway.states() == {"eu": "masked by health", "us": "home"}
        eventually(lambda: len(got) == 100)
    finally:
        os.kill(servers[0].pid or 0, signal.SIGCONT)
    eventually(lambda: gateway.states()["eu"] == "home")

    published(space, topic, range(100, 150))
    eventually(lambda: len(got) == 150)
    servers[0].kill9()
    assert published(space, topic, range(150, 200)) < 30
    eventually(lambda: len(got) == 200)
    # What was confirmed was received; what the site that hung was given may come twice, once it is back.
    assert all(got[b"%d" % number] for number in range(200))


def test_acknowledgements_go_to_the_site_that_lent_and_a_masked_site_is_drained(
    sites: tuple[list[ServerProcess], GatewayProcess], enter: Callable[[str], Space]
) -> None:
    servers, gateway = sites
    space = enter(gateway.endpoint)
    topic, subscription = space.pair(ack_deadline_seconds=10)
    published(space, topic, range(10))
    lent = space.pull(subscription, 10)
    done = gateway.say("mask", "eu")
    assert done.returncode == 0, done.stderr
    assert gateway.states() == {"eu": "masked by command", "us": "home"}
    assert gateway.metric('site_open{site="eu"}') == 0
    assert gateway.metric('site_home{site="us"}') == gateway.metric('site_changes_total{site="eu"}') == 1
    # New messages go to the other site at once; those lent before are acknowledged where they are.
    published(space, topic, range(10, 20))
    newer = space.pull(subscription, 10)
    assert {int(one.message.data) for one in newer} == set(range(10, 20))
    space.ack(subscription, *lent, *newer)
    there = enter(servers[0].endpoint)
    ids = [one.ack_id[TAG_BYTES:] for one in lent]
    there.api.modify_ack_deadline({"subscription": subscription, "ack_ids": ids, "ack_deadline_seconds": 0})
    assert there.peek(subscription) == []  # given back, they would be here, were they not acknowledged

    refused = gateway.say("mask", "us")
    assert refused.returncode == 1
    assert "last site" in refused.stderr
    assert gateway.say("unmask", "eu").returncode == 0
    assert gateway.states()["eu"] == "home"


def test_changes_are_made_at_all_sites_and_errors_are_those_of_a_site(
    sites: tuple[list[ServerProcess], GatewayProcess], enter: Callable[[str], Space]
) -> None:
    servers, gateway = sites
    space = enter(gateway.endpoint)
    topic, subscription = space.pair()
    for server in servers:
        there = enter(server.endpoint)
        assert there.api.get_topic({"topic": topic}).name == topic
        assert there.api.get_subscription({"subscription": subscription}).topic == topic
    space.api.delete_subscription({"subscription": subscription})
    for server in servers:
        with pytest.raises(grpc.RpcError, match="NOT_FOUND"):
            enter(server.endpoint).api.get_subscription({"subscription": subscription})
    with pytest.raises(grpc.RpcError, match="NOT_FOUND"):
        space.publish(topic + "x", b"x")


def test_exactly_once_outcomes_name_the_ids_that_the_client_has(
    sites: tuple[list[ServerProcess], GatewayProcess], enter: Callable[[str], Space]
) -> None:
    _, gateway = sites
    space = enter(gateway.endpoint)
    topic, subscription = space.pair(enable_exactly_once_delivery=True)
    outcomes: list[Any] = []

    def handle(message: Any) -> None:
        outcomes.append(message.ack_with_response().result(timeout=20))

    space.listen(subscription, handle)
    published(space, topic, range(20))
    eventually(lambda: len(outcomes) == 20)
    assert {one.name for one in outcomes} == {"SUCCESS"}


@pytest.fixture
def dual_sites(
    boot: Callable[..., ServerProcess], tmp_path: Path
) -> Iterator[tuple[list[ServerProcess], GatewayProcess]]:
    servers = [boot(), boot()]
    more = {"dual": [{"topics": "projects/dual/topics/*"}], "drain": "1s", "recover": {"lag": 0}}
    gateway = GatewayProcess(tmp_path, {"eu": servers[0].endpoint, "us": servers[1].endpoint}, more)
    yield servers, gateway
    gateway.end()


def test_dual_topics_are_at_both_sites_and_received_once(
    dual_sites: tuple[list[ServerProcess], GatewayProcess], enter: Callable[[str], Space]
) -> None:
    servers, gateway = dual_sites
    space = enter(gateway.endpoint)
    space.project = "dual"
    topic, subscription = space.pair(enable_message_ordering=True, retain_acked_messages=True)
    probe = space.subscription(topic, "probe", enable_message_ordering=True)

    def held(server: ServerProcess) -> list[tuple[str, bytes]]:
        """Identity and data of all that a site has for a subscription that nobody receives from."""
        messages = [one.message for one in enter(server.endpoint).pull(probe, 60)]
        return [(one.attributes["sys.MessageId"], one.data) for one in messages]

    space.publish(topic, *(b"%d" % n for n in range(20)), key="k")
    assert gateway.say("mask", "us").returncode == 0
    space.publish(topic, *(b"%d" % n for n in range(20, 40)), key="k")
    eventually(lambda: gateway.say("unmask", "us").returncode == 0)  # once it lacks nothing
    space.publish(topic, *(b"%d" % n for n in range(40, 60)), key="k")
    assert gateway.metric("dual_published_total") == 3
    assert gateway.metric("dual_copied_messages_total") >= 20
    one, two = held(servers[0]), held(servers[1])
    assert one == two
    assert [int(data) for _, data in one] == list(range(60))
    assert len({identity for identity, _ in one}) == 60

    changed = {"name": subscription, "topic": topic, "ack_deadline_seconds": 30}
    space.api.update_subscription({"subscription": changed, "update_mask": {"paths": ["ack_deadline_seconds"]}})
    for server in servers:
        kept = enter(server.endpoint).api.get_subscription({"subscription": subscription})
        assert kept.ack_deadline_seconds == 30
    with grpc.insecure_channel(gateway.endpoint) as channel:
        publish = channel.unary_unary("/google.pubsub.v1.Publisher/Publish")
        request = pubsub.PublishRequest(topic=space.topic("receipts"), messages=[{"data": b"x"}]).SerializeToString()
        _, call = publish.with_call(request, metadata=[("x-syncpoint-receipt", "1")])
        assert dict(call.trailing_metadata()) == {"x-syncpoint-receipt-problem": "UNIMPLEMENTED"}
    with pytest.raises(grpc.RpcError, match="INVALID_ARGUMENT"):
        space.publish(topic, b"")  # the identity does not make it legal

    # What is acknowledged at the home is not delivered at the other site, also when acknowledged after the home died.
    lent = space.pull(subscription, 60)
    assert not any("sys.MessageId" in one.message.attributes for one in lent)  # published again, each is a new message
    space.ack(subscription, *lent[:30])
    servers[0].kill9()
    eventually(lambda: gateway.states()["us"] == "home")
    space.ack(subscription, *lent[30:50])
    rest = space.pull(subscription, 10)
    assert [int(one.message.data) for one in rest] == list(range(50, 60))
    # A seek brings back what was acknowledged.
    space.ack(subscription, *rest)
    space.api.seek({"subscription": subscription, "time": {"seconds": 0}})
    again = space.pull(subscription, 60)
    assert [int(one.message.data) for one in again] == list(range(60))
    space.ack(subscription, *again)
    enter(servers[1].endpoint).api.seek({"subscription": subscription, "time": {"seconds": 0}})  # past the gateway
    again = space.pull(subscription, 60)
    assert [int(one.message.data) for one in again] == list(range(60))
    # A topic that is made again is copied again.
    space.api.delete_topic({"topic": topic})
    space.api.create_topic({"name": topic})
    space.publish(topic, b"new")
    name = f"projects/dual/subscriptions/gateway-fill-{topic.rpartition('/')[2]}"
    assert enter(servers[1].endpoint).api.get_subscription({"subscription": name}).topic == topic


def test_copies_of_what_the_home_has_done_with_are_not_held_for_ever(
    boot: Callable[..., ServerProcess], tmp_path: Path, enter: Callable[[str], Space]
) -> None:
    servers, more = [boot(), boot()], {"dual": [{"topics": "projects/dual/topics/*"}]}
    sites = {"eu": servers[0].endpoint, "us": servers[1].endpoint}
    gateway = GatewayProcess(tmp_path, sites, more, hurried=True)
    space, home = enter(gateway.endpoint), enter(servers[0].endpoint)
    space.project = "dual"
    dead = space.topic("dead")
    letters = space.subscription(dead, "letters")
    policy = {"dead_letter_topic": dead, "max_delivery_attempts": 5}
    topic, subscription = space.pair(dead_letter_policy=policy, enable_message_ordering=True)

    def left(of: str) -> list[int]:
        """What waits at each site."""
        return [enter(one.endpoint).asked("GetSubscriptionState", subscription=of).backlog_messages for one in servers]

    space.publish(dead, b"first")  # so that letters are copied from now on
    space.publish(topic, b"first")
    space.pull(subscription, 1, ack=True)
    eventually(lambda: any("letters are copied by" in line for line in gateway.log))
    space.publish(topic, b"poison")
    space.publish(topic, b"waits", key="k")
    space.publish(topic, b"unknown")
    found = {one.message.data: one for one in space.pull(subscription, 3)}
    eventually(lambda: gateway.metric("dual_held_messages") == 3)
    # the answer to this acknowledgement never came to the gateway
    home.api.acknowledge({"subscription": subscription, "ack_ids": [found[b"unknown"].ack_id[TAG_BYTES:]]})
    poison = found[b"poison"]
    for _ in range(4):
        space.nack(subscription, poison)
        (poison,) = space.pull(subscription, 1)
    space.nack(subscription, poison)
    eventually(lambda: left(letters) == [2, 2])
    eventually(lambda: left(subscription) == [1, 1])
    assert gateway.metric("dual_held_messages") == 1
    servers[0].kill9()
    eventually(lambda: gateway.states()["us"] == "home")
    assert [one.message.data for one in space.pull(subscription, 1)] == [b"waits"]
    gateway.end()


def test_a_site_that_was_away_gets_what_was_changed_and_shows_no_subscription_of_the_gateway(
    dual_sites: tuple[list[ServerProcess], GatewayProcess], enter: Callable[[str], Space]
) -> None:
    servers, gateway = dual_sites
    space = enter(gateway.endpoint)
    space.project = "dual"
    topic, subscription = space.pair()
    space.publish(topic, b"prepared")
    assert list(space.api.list_topic_subscriptions({"topic": topic}).subscriptions) == [subscription]
    assert [one.name for one in space.api.list_subscriptions({"project": "projects/dual"}).subscriptions] == [
        subscription
    ]
    old = space.subscription(topic, "old")
    assert gateway.say("mask", "us").returncode == 0
    space.api.delete_subscription({"subscription": old})
    push = {"push_endpoint": "https://example.com/push"}
    for changed, path in (({"labels": {"team": "blue"}}, "labels"), ({"push_config": push}, "push_config")):
        wanted = {"name": subscription, "topic": topic, **changed}
        space.api.update_subscription({"subscription": wanted, "update_mask": {"paths": [path]}})
    kept = {"name": topic, "message_retention_duration": {"seconds": 3600}}
    paths = {"paths": ["message_retention_duration"]}
    space.api.update_topic({"topic": kept, "update_mask": paths})
    eventually(lambda: gateway.say("unmask", "us").returncode == 0)
    there = enter(servers[1].endpoint).api
    found = there.get_subscription({"subscription": subscription})
    assert dict(found.labels) == {"team": "blue"}
    assert not found.push_config.push_endpoint, "where a site pushes to is its own"
    assert there.get_topic({"topic": topic}).message_retention_duration.total_seconds() == 3600

    def differs() -> list[str]:
        found = {one["site"]: one["differs"] for one in json.loads(gateway.say("status").stdout)["sites"]}
        return list(found["us"])

    assert differs() == [f"{old} is not at eu"], "it may be there on purpose, so it stays"
    there.delete_subscription({"subscription": old})
    eventually(lambda: differs() == [])


@pytest.fixture
def two_gateways(
    boot: Callable[..., ServerProcess], tmp_path: Path
) -> Iterator[tuple[list[ServerProcess], list[GatewayProcess]]]:
    servers, admin = [boot(), boot()], [f"127.0.0.1:{port}" for port in free_ports(2)]
    more = {"dual": [{"topics": "projects/dual/topics/*"}], "peers": admin}
    gateways = []
    for at, address in enumerate(admin):
        (tmp_path / str(at)).mkdir()
        sites = {"eu": servers[0].endpoint, "us": servers[1].endpoint}
        gateways.append(GatewayProcess(tmp_path / str(at), sites, {**more, "admin": {"listen": address}}))
    yield servers, gateways
    for one in gateways:
        one.end()


def test_gateways_report_to_each_other_what_was_acknowledged(
    two_gateways: tuple[list[ServerProcess], list[GatewayProcess]], enter: Callable[[str], Space]
) -> None:
    servers, gateways = two_gateways
    spaces = [enter(one.endpoint) for one in gateways]
    for space in spaces:
        space.project = "dual"
    topic, subscription = spaces[0].pair()

    def there() -> Any:
        """The subscription at the other site: who receives, and what is left."""
        return enter(servers[1].endpoint).asked("GetSubscriptionState", subscription=subscription)

    spaces[0].publish(topic, b"first")
    (first,) = spaces[1].pull(subscription, 1)  # from now on the second gateway holds copies, too
    spaces[1].ack(subscription, first)
    eventually(lambda: there().backlog_messages == 0, 60)
    got = receiving(spaces[0], subscription)
    eventually(lambda: there().subscribers == 2)
    for n in range(40):
        spaces[n % 2].publish(topic, *(b"%d-%d" % (n, k) for k in range(10)))
    eventually(lambda: len(got) == 400)
    eventually(lambda: there().backlog_messages == 0)
    servers[0].kill9()
    eventually(lambda: all(one.states()["us"] == "home" for one in gateways))
    spaces[1].publish(topic, b"last")
    eventually(lambda: got[b"last"] == 1)
    assert set(got.values()) == {1}
    for one in gateways:
        eventually(lambda peer=one.admin: gateways[0].metric(f'peer_waiting{{peer="{peer}"}}') == 0)
