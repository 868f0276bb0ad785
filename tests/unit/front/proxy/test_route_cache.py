"""Routes: what routers said first, then lists of our own; never outside of the allowed regions."""

from __future__ import annotations

import random
from typing import Any

import pytest

from syncpoint.base.model.cluster import PROXY, PUBLISH, SUBSCRIBE, ChainOwner, ChainRecord, Member
from syncpoint.broker.router.distance import Distances
from syncpoint.broker.router.rendezvous import pick_chain
from syncpoint.broker.router.routing_rules import RoutingRule
from syncpoint.catalog.metadata.records import Topic
from syncpoint.catalog.metadata.view import ClusterView, Versioned, View
from syncpoint.front.proxy.route_cache import RouteCache, SubscriptionRoute, TopicRoute

TOPIC = Topic(7, "projects/p/topics/t")


class Harness:
    """A view filled by hand."""

    def __init__(self, region: str = "r1") -> None:
        nothing: Any = None
        self.view = ClusterView(nothing)
        self.rules: View[RoutingRule] = View(nothing, "constraints/", RoutingRule.decode)
        self.distances = Distances(region)
        me = Member("proxy", (PROXY,), "proxy:1", 1, region)
        self.routes = RouteCache(self.view, me, self.distances.order, rules=self.rules)

    def member(self, name: str, role: str, region: str = "r1", **fields: Any) -> Member:
        made = Member(name, (role,), f"{name}:1", 1, region, **fields)
        self.view.members.items[name] = Versioned(made, 1)
        self.routes.changed()
        return made

    def chain(self, number: int, region: str = "r1", owner: str | None = "", klass: str = "default") -> None:
        self.view.chains.items[str(number)] = Versioned(ChainRecord(number, f"c{number}", klass, region, ""), 1)
        if owner is not None:
            holder = self.member(owner or f"f{number}", PUBLISH, region)
            self.view.owners.items[str(number)] = Versioned(ChainOwner(holder.name, 1, 1, holder.address), 1)
        self.routes.changed()


def chains(targets: Any) -> list[int]:
    return [target.chain for target in targets]


def test_what_routers_say_comes_first() -> None:
    harness = Harness()
    for number in range(1, 6):
        harness.chain(number)
    harness.routes.put_topic(7, TopicRoute(3, (4, 2), (4, 2), (5,)))
    choice = harness.routes.keyless(TOPIC)
    assert chains(choice.first) == [4, 2]
    assert chains(choice.others)[0] == 5
    assert sorted(chains(choice.others)) == [1, 3, 5]
    assert choice.first[0].address == "f4:1"
    assert harness.routes.keyed(TOPIC, b"k") == (pick_chain(7, b"k", (4, 2)), 3)


def test_an_older_answer_changes_nothing() -> None:
    harness = Harness()
    harness.chain(1)
    harness.chain(2)
    harness.routes.put_topic(7, TopicRoute(3, (1,)))
    harness.routes.put_topic(7, TopicRoute(2, (2,)))
    harness.routes.put_subscription(9, SubscriptionRoute(3, ("a",)))
    harness.routes.put_subscription(9, SubscriptionRoute(2, ("b",)))
    assert harness.routes.topics[7].chains == (1,)
    assert harness.routes.subscriptions[9].members == ("a",)


def test_without_routers_every_proxy_makes_the_same_list() -> None:
    lists = []
    for seed in range(3):
        harness = Harness()
        numbers = list(range(1, 6))
        random.Random(seed).shuffle(numbers)
        for number in numbers:
            harness.chain(number)
        lists.append(harness.routes.candidates(TOPIC))
        choice = harness.routes.keyless(TOPIC)
        assert chains((*choice.first, *choice.others)) == lists[0]
    assert lists[0] == lists[1] == lists[2]
    assert harness.routes.keyed(TOPIC, b"k") is None  # that is for the metadata to say


def test_nearest_first_then_the_rest() -> None:
    harness = Harness("r2")
    harness.chain(1, "r1")
    harness.chain(2, "r2")
    harness.chain(3, "r3")
    for region, seconds in (("r1", 0.9), ("r2", 0.001), ("r3", 0.4)):
        harness.distances.measured(region, seconds)
    assert harness.routes.candidates(TOPIC) == [2, 3, 1]
    harness.routes.put_topic(7, TopicRoute(1, (1,), elsewhere={"r3": (3,)}))
    choice = harness.routes.keyless(TOPIC)
    assert (chains(choice.first), chains(choice.others)) == ([2], [3, 1])
    assert harness.routes.keyed(TOPIC, b"k") == (1, 1)


@pytest.mark.parametrize("seed", range(30))
def test_no_chain_outside_of_the_allowed_regions_or_of_another_class(seed: int) -> None:
    chance = random.Random(seed)
    harness = Harness(chance.choice(["r1", "r2", "r3"]))
    for number in range(1, 12):
        harness.chain(
            number,
            chance.choice(["r1", "r2", "r3"]),
            chance.choice(["", None, "shared"]),
            chance.choice(["default", "gold"]),
        )
    regions = tuple(chance.sample(["r1", "r2", "r3"], chance.randrange(3)))
    topic = Topic(7, "projects/p/topics/t", durability=chance.choice(["", "gold"]), regions=regions)
    harness.routes.put_topic(
        7, TopicRoute(1, tuple(chance.sample(range(1, 12), 3)), tuple(chance.sample(range(1, 12), 3)))
    )
    harness.routes.suspect(f"f{chance.randrange(1, 12)}:1", True)
    choice = harness.routes.keyless(topic)
    named = chains((*choice.first, *choice.others))
    assert len(named) == len(set(named))
    for number in named:
        record = harness.view.chain(number)
        assert record is not None
        assert record.klass == (topic.durability or "default")
        assert not regions or record.region in regions
        assert harness.routes.open_at(number) is not None


def test_suspected_and_draining_owners_come_last() -> None:
    harness = Harness()
    for number in (1, 2, 3):
        harness.chain(number)
    harness.routes.put_topic(7, TopicRoute(1, (1, 2, 3), (1, 2, 3)))
    harness.routes.suspect("f1:1", True)
    assert chains(harness.routes.keyless(TOPIC).first) == [2, 3]
    assert chains(harness.routes.keyless(TOPIC).others) == [1]
    harness.view.drains.items["f2"] = Versioned({}, 1)
    harness.routes.changed()
    assert chains(harness.routes.keyless(TOPIC).first) == [3]
    harness.routes.suspect("f3:1", True)
    choice = harness.routes.keyless(TOPIC)
    assert sorted(chains((*choice.first, *choice.others))) == [1, 2, 3]  # better than nobody
    harness.routes.suspect("f1:1", False)
    assert chains(harness.routes.keyless(TOPIC).first) == [1]


def test_who_serves_a_subscription() -> None:
    harness = Harness()
    for name, region in (("a", "r1"), ("b", "r1"), ("c", "r2"), ("d", "r1")):
        harness.member(name, SUBSCRIBE, region)
    harness.member("x", PUBLISH)

    def names(spread: int = 0, topic: Topic | None = TOPIC) -> list[str]:
        return [one.name for one in harness.routes.serving(9, topic, spread)]

    assert sorted(names()) == ["a", "b", "c", "d"]
    assert names()[-1] == "c"
    harness.routes.put_subscription(9, SubscriptionRoute(1, ("b", "a", "c"), ("d",)))
    assert harness.routes.sharing(9)
    assert names(0) == ["b", "a", "c", "d"]
    assert names(1) == ["a", "b", "c", "d"]
    abroad = Topic(7, "projects/p/topics/t", regions=("r2",), enforce_in_transit=True)
    assert names(0, abroad) == []  # not through us, who are in r1
    harness.routes.suspect("b:1", True)
    assert names(0) == names(1) == ["a", "c", "d", "b"]
    harness.view.drains.items["a"] = Versioned({}, 1)
    harness.routes.changed()
    assert names(0, None) == ["c", "d", "a", "b"]


def test_rules_hold_whoever_made_the_list() -> None:
    harness = Harness()
    for number in (1, 2, 3):
        harness.chain(number)
    for name in ("s1", "s2"):
        harness.member(name, SUBSCRIBE)
    harness.routes.put_topic(7, TopicRoute(1, (1, 2), (1, 2), (3,)))
    harness.routes.put_subscription(9, SubscriptionRoute(1, ("s1",), ("s2",)))
    rule = RoutingRule("keep-out", action="deny", forwarders="name=f1")
    harness.rules.items["keep-out"] = Versioned(rule, 1)
    harness.rules.items["nor-there"] = Versioned(RoutingRule("nor-there", action="deny", forwarders="name=s1"), 1)
    harness.routes.changed()
    choice = harness.routes.keyless(TOPIC)
    assert chains((*choice.first, *choice.others)) == [2, 3]
    assert not harness.routes.allowed(1, TOPIC)
    assert [one.name for one in harness.routes.serving(9, TOPIC)] == ["s2"]
