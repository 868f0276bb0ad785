"""Which subscriptions are exchanged, how failures are reported, and that one that fails holds up no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from syncpoint.base.model.errors import NotFound, SyncpointError, Unavailable
from syncpoint.programs.federation.acks.ack_rounds import LOOK_S, REST_S, AckRounds, ExchangeState
from syncpoint.programs.federation.flow_plan import FederationLink, Flow
from syncpoint.programs.federation.patterns.registry import links_of
from syncpoint.programs.federation.spec import FederatedCluster, parse
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pipeline, pubsub

CLUSTERS = {name: {"endpoint": f"{name}:1"} for name in "abc"}


def links(folder: Path, **keys: Any) -> list[FederationLink]:
    content = {"version": 1, "clusters": CLUSTERS, "namespaces": {"shop": {"clusters": ["a", "b"], **keys}}}
    return links_of(parse(content, folder))


class ServersInMemory:
    """Both ends: the subscriptions that they have, and what a call to one of them fails with."""

    def __init__(self) -> None:
        self.there: dict[str, dict[str, dict[str, Any]]] = {"a": {}, "b": {}}
        self.failing: dict[tuple[str, str], SyncpointError] = {}
        self.asked: list[tuple[str, str, str]] = []
        self.silent: dict[str, str] = {}
        self.snapshots: dict[str, list[pipeline.SiteSnapshot]] = {}
        self.filled: list[tuple[str, str]] = []  # of a snapshot: at a site, messages of a link

    def reported_flows(self, links: list[FederationLink]) -> tuple[list[Flow], dict[str, str]]:
        flows = [one for link in links for one in link.flows(["projects/shop/topics/orders"])]
        return [one for one in flows if one.link.source.name not in self.silent], self.silent

    def call(self, cluster: FederatedCluster, method: str, request: Any) -> Any:
        if cluster.name in self.silent:
            raise Unavailable(self.silent[cluster.name])
        if method == "Subscriber.ListSubscriptions":
            named = [
                pubsub.Subscription(
                    name=f"projects/shop/subscriptions/{name}", topic="projects/shop/topics/orders", **keys
                )
                for name, keys in self.there[cluster.name].items()
            ]
            first = 0 if not request.page_token else int(request.page_token)
            token = str(first + 1) if first + 1 < len(named) else ""
            return pubsub.ListSubscriptionsResponse(subscriptions=named[first : first + 1], next_page_token=token)
        service, _, name = method.partition(".")
        assert service == "AckExchange"
        short = request.subscription.rpartition("/")[2]
        self.asked.append((cluster.name, name, short))
        if (cluster.name, short) in self.failing:
            raise self.failing[cluster.name, short]
        answer = methods.ACK_EXCHANGE[name].response()
        if name == "AckChanges" and self.snapshots:
            answer.place, answer.snapshots_at = f"{cluster.name}/11", 1
            answer.snapshots.extend(self.snapshots.get(cluster.name, ()))
        elif name == "MergeAcks" and request.snapshot:
            self.filled.append((cluster.name, request.link))
        return answer


@pytest.fixture
def servers() -> ServersInMemory:
    return ServersInMemory()


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_only_links_that_ask_for_it_are_exchanged(tmp_path: Path, servers: ServersInMemory) -> None:
    servers.there = {"a": {"s": {}}, "b": {"s": {}}}
    assert AckRounds(links(tmp_path), servers).links == []  # type: ignore[arg-type]
    rounds = AckRounds(links(tmp_path, acks=True), servers)  # type: ignore[arg-type]
    rounds.step()
    assert [(one.flow, one.subscription, one.why) for one in rounds.states] == [
        ("shop.a-b.orders", "s", ""),
        ("shop.b-a.orders", "s", ""),
    ]


def test_subscriptions_of_one_end_or_with_another_meaning_are_left_alone(
    tmp_path: Path, servers: ServersInMemory
) -> None:
    day = {"message_retention_duration": {"seconds": 86_400}}
    servers.there = {
        "a": {"one": {}, "filtered": {"filter": "attributes:x"}, "kept": day, "gone": {"detached": True}, "same": {}},
        "b": {"other": {}, "filtered": {}, "kept": {}, "gone": {}, "same": {}},
    }
    rounds = AckRounds(links(tmp_path, acks=True), servers)  # type: ignore[arg-type]
    rounds.step()
    assert {one.subscription: one.why for one in rounds.states} == {
        "filtered": "their filters differ",
        "gone": "one of them is detached",
        "kept": "their message retention differs",
        "same": "",
    }
    assert {name for *_, name in servers.asked} == {"same"}


def test_one_that_fails_rests_and_holds_up_no_other(tmp_path: Path, servers: ServersInMemory) -> None:
    servers.there = {"a": {"good": {}, "bad": {}}, "b": {"good": {}, "bad": {}}}
    servers.failing["a", "bad"] = Unavailable("away")
    clock, said = Clock(), list[list[ExchangeState]]()
    rounds = AckRounds(links(tmp_path, acks=True), servers, lambda states: said.append(list(states)), clock)  # type: ignore[arg-type]
    rounds.step()
    assert {(one.subscription, "away" in one.why) for one in said[-1]} == {("bad", True), ("good", False)}
    assert all(one.at == 0 for one in said[-1] if one.subscription == "bad")
    servers.asked.clear()
    clock.now = REST_S / 2
    rounds.step()
    assert {name for *_, name in servers.asked} == {"good"}
    servers.failing.clear()
    rounds.hurry()
    rounds.step()
    assert all(not one.why and one.at for one in said[-1])


def test_a_link_that_has_copied_nothing_is_shown_as_waiting(tmp_path: Path, servers: ServersInMemory) -> None:
    servers.there = {"a": {"s": {}}, "b": {"s": {}}}
    servers.failing["b", "s"] = NotFound("f", "Link not found (resource=f).")
    rounds = AckRounds(links(tmp_path, acks=True), servers)  # type: ignore[arg-type]
    rounds.step()
    assert {one.why for one in rounds.states} == {"Link not found (resource=f)."}


def test_a_silent_server_keeps_what_was_found(tmp_path: Path, servers: ServersInMemory) -> None:
    servers.there = {"a": {"s": {}}, "b": {"s": {}}}
    clock = Clock()
    rounds = AckRounds(links(tmp_path, acks=True), servers, clock=clock)  # type: ignore[arg-type]
    rounds.step()
    servers.silent = {"a": "away"}
    clock.now = LOOK_S
    rounds.step()
    assert {one.flow for one in rounds.states} == {"shop.a-b.orders", "shop.b-a.orders"}
    servers.silent, servers.there["b"] = {}, {}
    clock.now = 2 * LOOK_S
    rounds.step()
    assert rounds.states == []


@pytest.mark.parametrize("among", [None, "ab"])
def test_a_snapshot_is_copied_with_messages_of_a_site_that_takes_no_part(
    tmp_path: Path, servers: ServersInMemory, among: str | None
) -> None:
    """What its messages, at both other sites, are in the snapshot is known without it; left out, the copy would lack
    those that were acknowledged there.
    """
    servers.there = {name: {"s": {}} for name in "abc"}
    servers.silent = {} if among else {"c": "away"}
    servers.snapshots = {"a": [pipeline.SiteSnapshot(snapshot="projects/shop/snapshots/nightly", identity="a/12")]}
    rounds = AckRounds(links(tmp_path, acks=True, clusters=["a", "b", "c"]), servers, among=among)  # type: ignore[arg-type]
    rounds.step()
    assert {one.flow for one in rounds.states} == {"shop.a-b.orders", "shop.b-a.orders"}
    assert {link for site, link in servers.filled if site == "b"} == {"", "shop.a-b.orders", "shop.c-b.orders"}
