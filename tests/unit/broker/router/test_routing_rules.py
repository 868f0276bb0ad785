"""Rules, drains, and what is refused before it is stored."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncpoint.base.model.cluster import PROXY, PUBLISH, SUBSCRIBE, Member
from syncpoint.base.model.errors import InvalidArgument
from syncpoint.broker.router.routing_rules import (
    ALLOW,
    DENY,
    Policy,
    RoutingRule,
    Selector,
    drain_refusal,
    matches,
    rule_refusal,
)
from syncpoint.catalog.metadata.records import Topic


def member(name: str, *roles: str, region: str = "eu", zone: str = "", rack: str = "") -> Member:
    return Member(name, roles, f"{name}:1", 1, region, zone, rack)


def topic(name: str, project: str = "p", **more: object) -> Topic:
    return Topic(1, f"projects/{project}/topics/{name}", **more)  # type: ignore[arg-type]


PROXY_EU, PROXY_US = member("proxy-1", PROXY), member("proxy-2", PROXY, region="us")
PUBLISH_EU, PUBLISH_US = member("pub-1", PUBLISH, zone="a"), member("pub-2", PUBLISH, region="us", zone="b")
SUBSCRIBE_EU, SUBSCRIBE_US = member("sub-1", SUBSCRIBE, zone="a"), member("sub-2", SUBSCRIBE, region="us", zone="b")
ALL = [PROXY_EU, PROXY_US, PUBLISH_EU, PUBLISH_US, SUBSCRIBE_EU, SUBSCRIBE_US]
ORDERS, BILLS = topic("orders"), topic("bills", "q")


def test_the_highest_priority_decides_and_deny_comes_first() -> None:
    rules = [
        RoutingRule("all", DENY, forwarders="region=us"),
        RoutingRule("some", ALLOW, forwarders="name=pub-*", priority=1),
        RoutingRule("more", ALLOW, forwarders="region=us"),
    ]
    policy = Policy(rules)
    assert policy.allows(PROXY_EU, PUBLISH_US, ORDERS.name)
    assert not policy.allows(PROXY_EU, SUBSCRIBE_US, ORDERS.name)
    assert policy.allows(PROXY_EU, SUBSCRIBE_EU, ORDERS.name)
    decided = policy.decides(PROXY_EU, SUBSCRIBE_US, ORDERS.name)
    assert decided is not None
    assert decided.name == "all"


def test_topics_are_selected_by_project_short_and_full_name() -> None:
    known = ("name", "project")
    assert Selector.parse("project=p", known).topic(ORDERS.name)
    assert not Selector.parse("project=p", known).topic(BILLS.name)
    assert Selector.parse("name=ord*", known).topic(ORDERS.name)
    assert Selector.parse("name=projects/*/topics/orders", known).topic(ORDERS.name)
    assert not Selector.parse("name=orders,project=q", known).topic(ORDERS.name)


def test_a_drain_is_above_all_rules() -> None:
    rules = [RoutingRule("always", ALLOW, priority=1000)]
    for target in ("pub-2", "cluster/b", "region/us"):
        policy = Policy(rules, [target])
        assert not policy.allows(PROXY_EU, PUBLISH_US, ORDERS.name)
        assert policy.permits(PROXY_EU, PUBLISH_US, ORDERS.name)
        assert policy.allows(PROXY_EU, PUBLISH_EU, ORDERS.name)


@pytest.mark.parametrize(
    ("rule", "field"),
    [
        (RoutingRule("Bad name"), "name"),
        (RoutingRule("a", "maybe"), "action"),
        (RoutingRule("a", clients="colour=red"), "clients"),
        (RoutingRule("a", forwarders="region"), "forwarders"),
        (RoutingRule("a", topics="region=eu"), "topics"),
        (RoutingRule("a", topics="name="), "topics"),
        (RoutingRule("a", priority=10**9), "priority"),
    ],
)
def test_what_is_wrong_is_named(rule: RoutingRule, field: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        rule.check()
    assert caught.value.field == field


def test_stored_form() -> None:
    rule = RoutingRule("a", ALLOW, "region=eu", "zone=a", "name=x*", 5, "why", 17)
    assert RoutingRule.decode(rule.encode()) == rule
    assert RoutingRule.decode(b'{"name":"a","newer":1}') == RoutingRule("a")
    with pytest.raises(ValueError):
        RoutingRule.decode(b"[]")


def test_a_rule_that_leaves_nowhere_to_go_is_refused() -> None:
    nowhere = RoutingRule("no-eu", DENY, clients="region=us", topics="name=orders")
    assert "orders" in rule_refusal({}, [], nowhere, ALL, [BILLS, ORDERS])
    assert rule_refusal({}, [], nowhere, ALL, [BILLS]) == ""
    # A rule for part of the forwarders, and the one that takes the rest.
    first = RoutingRule("first", DENY, forwarders="zone=a")
    assert rule_refusal({}, [], first, ALL, [ORDERS]) == ""
    second = RoutingRule("second", DENY, forwarders="name=sub-2")
    assert "subscribe-forwarder" in rule_refusal({"first": first}, [], second, ALL, [ORDERS])
    # What lies with a drain.
    assert "nowhere" not in rule_refusal({}, ["region/us"], second, ALL, [ORDERS])
    assert rule_refusal({}, ["region/us"], first, ALL, [ORDERS]) != ""


def test_location_counts() -> None:
    bound = topic("bound", regions=("eu",))
    assert rule_refusal({}, [], RoutingRule("a", DENY, forwarders="name=pub-1"), ALL, [bound]) != ""
    assert rule_refusal({}, [], RoutingRule("a", DENY, forwarders="name=sub-1"), ALL, [bound]) == ""
    tight = topic("tight", regions=("eu",), enforce_in_transit=True)
    assert rule_refusal({}, [], RoutingRule("a", DENY, forwarders="name=sub-1"), ALL, [tight]) != ""
    # Clients elsewhere have no way as it is; nothing is taken from them.
    assert rule_refusal({}, [], RoutingRule("a", DENY, clients="region=us"), ALL, [tight]) == ""


def test_drains_that_are_refused() -> None:
    assert drain_refusal([], [], "pub-1", ALL, [ORDERS]) == ""
    assert drain_refusal([], [], "region/us", ALL, [ORDERS]) == ""
    assert "matches no running process" in drain_refusal([], [], "pub-9", ALL, [ORDERS])
    assert drain_refusal([], ["region/us"], "sub-1", ALL, []) == "No subscribe-forwarder would be left."
    assert "proxy" in drain_refusal([], ["region/us"], "proxy-1", ALL, [ORDERS])
    bound = topic("bound", regions=("eu",))
    assert "bound" in drain_refusal([], [], "region/eu", ALL, [ORDERS, bound])


def test_what_a_rule_is_about() -> None:
    rule = RoutingRule("a", DENY, clients="region=us", forwarders="zone=a", topics="project=q")
    assert matches(rule, ALL, [ORDERS, BILLS]) == (["proxy-2"], ["pub-1", "sub-1"], [BILLS.name])


words = st.sampled_from(["a", "b", "ab", "abc"])
patterns = st.sampled_from(["", "name=a", "name=a*", "name=*b", "region=b", "name=*,region=a*", "region=*b*"])
rules = st.lists(
    st.builds(
        RoutingRule, st.just("r"), st.sampled_from([ALLOW, DENY]), patterns, patterns,
        st.sampled_from(["", "name=a*", "project=b", "name=b,project=*"]), st.integers(0, 2),
    ),
    max_size=6,
)  # fmt: skip


@settings(deadline=None)
@given(rules, words, words, words, words, words, words)
def test_against_a_plain_matcher(
    rules: list[RoutingRule], client: str, client_region: str, name: str, region: str, short: str, project: str
) -> None:
    def holds(text: str, values: dict[str, str]) -> bool:
        pairs = (part.split("=") for part in text.split(",") if part)
        return all(fnmatchcase(values[field], pattern) for field, pattern in pairs)

    verdict, best = True, -1
    for rule in rules:
        if (
            holds(rule.clients, {"name": client, "region": client_region})
            and holds(rule.forwarders, {"name": name, "region": region})
            and holds(rule.topics, {"name": short, "project": project})
        ):
            if rule.priority > best:
                verdict, best = rule.action == ALLOW, rule.priority
            elif rule.priority == best:
                verdict = verdict and rule.action == ALLOW
    found = Policy(rules).allows(
        member(client, PROXY, region=client_region), member(name, PUBLISH, region=region), topic(short, project).name
    )
    assert found == verdict
