"""Ordered lists for clients."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from syncpoint.broker.router.assignment import SubscriptionAssignment, TopicAssignment
from syncpoint.broker.router.candidate_lists import CandidateLists
from syncpoint.broker.router.routing_rules import DENY, RoutingRule
from tests.kit.router import Site, topic

T = topic(1)
ASSIGNED = TopicAssignment(4, (2, 3), {"us": (6,)})


def eu_first(regions: Iterable[str]) -> list[str]:
    return sorted(regions)


def us_first(regions: Iterable[str]) -> list[str]:
    return sorted(regions, reverse=True)


def test_the_nearest_region_comes_first_and_in_it_what_is_assigned() -> None:
    site = Site(("eu", "us"))
    found = CandidateLists(site.cluster_state).topic(T, ASSIGNED, site.members["proxy-eu-1"], eu_first)
    assert (found.epoch, found.chains) == (4, (2, 3))
    assert set(found.nearest) == {2, 3}
    assert set(found.alternatives[:2]) == {1, 4}
    assert found.alternatives[2] == 6
    assert set(found.alternatives[3:]) == {5, 7, 8}
    found = CandidateLists(site.cluster_state).topic(T, ASSIGNED, site.members["proxy-us-1"], us_first)
    assert found.chains == (2, 3)
    assert found.nearest == (6,)
    assert set(found.alternatives[:3]) == {5, 7, 8}


def test_the_same_state_gives_the_same_list() -> None:
    site = Site(("eu", "us"))
    one, other = (CandidateLists(site.cluster_state).topic(T, None, None, eu_first) for _ in range(2))
    assert one == other
    assert len(one.nearest) == 1
    assert len(one.alternatives) == 7


def test_an_allowed_region_only() -> None:
    site = Site(("eu", "us"))
    bound = topic(1, regions=("us",))
    found = CandidateLists(site.cluster_state).topic(bound, ASSIGNED, site.members["proxy-eu-1"], eu_first)
    assert {*found.nearest, *found.alternatives} == {5, 6, 7, 8}
    tight = topic(1, regions=("us",), enforce_in_transit=True)
    assert CandidateLists(site.cluster_state).topic(tight, ASSIGNED, site.members["proxy-eu-1"], eu_first) == (
        4,
        (),
        (),
        (),
    )
    nowhere = topic(1, regions=("asia",))
    assert CandidateLists(site.cluster_state).topic(nowhere, None, None, eu_first) == (0, (), (), ())


def test_chains_that_nobody_has_open_come_last_and_drained_ones_not_at_all() -> None:
    site = Site()
    site.lose("publish-eu-2")
    found = CandidateLists(site.cluster_state).topic(T, ASSIGNED, None, eu_first)
    assert found.nearest == (3,)
    assert found.alternatives[-1] == 2
    site.drains.append("publish-eu-3")
    found = CandidateLists(site.cluster_state).topic(T, ASSIGNED, None, eu_first)
    assert {*found.nearest, *found.alternatives[:-1]} == {1, 4}
    assert found.chains == (2, 3)
    site.drains += ["publish-eu-1", "publish-eu-4"]
    site.adopt(2, "publish-eu-1")
    found = CandidateLists(site.cluster_state).topic(T, ASSIGNED, None, eu_first)
    assert {*found.nearest, *found.alternatives} == {1, 2, 3, 4}


def test_rules_are_the_client_s() -> None:
    site = Site(proxies=2)
    site.rules.append(RoutingRule("r", DENY, clients="name=proxy-eu-1", forwarders="name=*-eu-2"))
    lists = CandidateLists(site.cluster_state)
    shut_out = lists.topic(T, ASSIGNED, site.members["proxy-eu-1"], eu_first)
    assert 2 not in (*shut_out.nearest, *shut_out.alternatives)
    assert 2 in lists.topic(T, ASSIGNED, site.members["proxy-eu-2"], eu_first).nearest
    sharing = SubscriptionAssignment(1, ("subscribe-eu-2", "subscribe-eu-3"))
    served = lists.subscription(9, T, sharing, site.members["proxy-eu-1"], eu_first)
    assert served.members == ("subscribe-eu-3",)
    assert set(served.others) == {"subscribe-eu-1", "subscribe-eu-4"}


def test_subscribe_forwarders_nearest_first() -> None:
    site = Site(("eu", "us"), forwarders=2)
    sharing = SubscriptionAssignment(3, ("subscribe-eu-2", "subscribe-us-1"))
    lists = CandidateLists(site.cluster_state)
    found = lists.subscription(9, T, sharing, None, us_first)
    assert found == (3, ("subscribe-us-1", "subscribe-eu-2"), ("subscribe-us-2", "subscribe-eu-1"))
    assert lists.subscription(9, None, sharing, None, eu_first).members == ("subscribe-eu-2", "subscribe-us-1")
    unassigned = lists.subscription(9, T, None, None, eu_first)
    assert len(unassigned.members) == 1
    assert len(unassigned.others) == 3


def test_one_that_is_about_to_stop_comes_last() -> None:
    site = Site(forwarders=3)
    site.members["subscribe-eu-2"] = replace(site.members["subscribe-eu-2"], draining=True)
    sharing = SubscriptionAssignment(3, ("subscribe-eu-2",))
    found = CandidateLists(site.cluster_state).subscription(9, T, sharing, None, eu_first)
    assert found.members[0] != "subscribe-eu-2"
    assert found.others[-1] == "subscribe-eu-2"
    site.drains += ["subscribe-eu-2"]
    found = CandidateLists(site.cluster_state).subscription(9, T, sharing, None, eu_first)
    assert "subscribe-eu-2" not in (*found.members, *found.others)
