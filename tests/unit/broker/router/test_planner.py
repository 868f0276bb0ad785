"""What is assigned to what as forwarders, loads, rules and regions change."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from syncpoint.base.model.cluster import SUBSCRIBE, DiskPlace, Member
from syncpoint.broker.router.assignment import TopicAssignment
from syncpoint.broker.router.planner import MOVES_MAX, STABLE_S, Changes, Loads, Planner, State
from syncpoint.broker.router.routing_rules import RoutingRule
from syncpoint.log.storage.quorum import AckRule
from tests.kit.router import Site, after, state, subscription, topic

pytestmark = pytest.mark.shows("routers")

NONE = Loads({}, {})


def stable(planner: Planner, site: Site, before: State, now: float = 0.0) -> State:
    """Plan until nothing changes."""
    for _ in range(100):
        changes = planner.plan(site.cluster_state, before, now)
        if not changes.topics and not changes.subscriptions:
            return before
        before = after(before, changes)
    raise AssertionError("it never comes to rest")


def test_topics_without_load_are_spread_and_stay() -> None:
    site, planner = Site(forwarders=5), Planner()
    found = stable(planner, site, state([topic(number) for number in range(1, 201)]))
    counts = Counter(one.chains for one in found.topic_homes.values())
    assert all(len(chains) == 1 for chains in counts)
    assert max(counts.values()) <= 50
    assert all(one.epoch == 1 for one in found.topic_homes.values())
    assert planner.plan(site.cluster_state, found, 100.0) == Changes({}, {})


def test_a_forwarder_of_twice_the_weight_gets_twice_the_share() -> None:
    site, planner = Site(forwarders=3), Planner()
    site.chains[1] = replace(site.chains[1], weight=2.0)
    site.members["subscribe-eu-1"] = replace(site.members["subscribe-eu-1"], weight=2.0)
    topics = [topic(number) for number in range(1, 401)]
    found = stable(
        planner, site, state(topics, [subscription(1000 + one.incarnation, one.incarnation) for one in topics])
    )
    chains = Counter(chain for one in found.topic_homes.values() for chain in one.chains)
    members = Counter(name for one in found.subscription_homes.values() for name in one.members)
    for counts, heavy in ((chains, 1), (members, "subscribe-eu-1")):
        light = [count for name, count in counts.items() if name != heavy]
        assert len(light) == 2
        assert 1.6 <= counts[heavy] / (sum(light) / 2) <= 2.5, counts  # type: ignore[index]
    site.lose("publish-eu-1")
    site.adopt(1, "publish-eu-2")
    assert planner.plan(site.cluster_state, found, 1.0).topics == {}, "adopted, the chain keeps its share"


def test_a_forwarder_that_dies_moves_no_key_and_moves_its_subscriptions_only() -> None:
    site, planner = Site(), Planner()
    topics = [topic(number) for number in range(1, 41)]
    found = stable(
        planner, site, state(topics, [subscription(100 + one.incarnation, one.incarnation) for one in topics])
    )
    site.lose("publish-eu-2")
    assert planner.plan(site.cluster_state, found, 1.0) == Changes({}, {})
    site.adopt(2, "publish-eu-3")
    assert planner.plan(site.cluster_state, found, 2.0) == Changes({}, {})
    site.lose("subscribe-eu-1")
    changes = planner.plan(site.cluster_state, found, 3.0)
    assert changes.topics == {}
    had = {number for number, one in found.subscription_homes.items() if "subscribe-eu-1" in one.members}
    assert changes.subscriptions.keys() == had
    assert all(one.epoch == 2 and "subscribe-eu-1" not in one.members for one in changes.subscriptions.values())


def test_new_topics_avoid_a_chain_that_nobody_has_open() -> None:
    site, planner = Site(), Planner()
    del site.owners[2]
    found = stable(planner, site, state([topic(number) for number in range(1, 100)]))
    assert all(2 not in one.chains for one in found.topic_homes.values())


def test_a_hot_topic_is_split_in_a_new_epoch_and_joined_again() -> None:
    site, planner = Site(forwarders=6), Planner()
    found = stable(planner, site, state([topic(1), topic(2)], [subscription(11, 1)]))
    now = 0.0
    epochs = [found.topic_homes[1].epoch]
    for _ in range(30):
        now += 2
        planner.observe(now, Loads({"eu": {1: 1_200_000.0}}, {"eu": {11: 1_200_000.0}}))
        found = after(found, planner.plan(site.cluster_state, found, now))
        epochs.append(found.topic_homes[1].epoch)
    assert set(found.topic_homes[1].chains) == {1, 2, 3, 4, 5, 6}
    assert len(found.subscription_homes[11].members) == 6
    assert len(found.topic_homes[2].chains) == 1
    assert epochs[-1] == 4  # 1, 2, 4, 6 chains
    for _ in range(400):
        now += 2
        planner.observe(now, NONE)
        found = after(found, planner.plan(site.cluster_state, found, now))
    assert len(found.topic_homes[1].chains) == 1
    assert len(found.subscription_homes[11].members) == 1


def worst(site: Site, found: State, loads: dict[int, float]) -> float:
    """What the busiest chain carries, by the average."""
    carried = dict.fromkeys(site.chains, 0.0)
    for number, one in found.topic_homes.items():
        for chain in one.chains:
            carried[chain] += loads[number] / len(one.chains)
    return max(carried.values()) * len(carried) / sum(carried.values())


@pytest.mark.parametrize("seed", [5, 6, 7])
def test_the_bound_is_kept_as_loads_change(seed: int) -> None:
    chance, site, planner = random.Random(seed), Site(forwarders=8), Planner()
    topics = [topic(number) for number in range(1, 301)]
    loads = {one.incarnation: 20_000 / (rank + 1) ** 0.8 for rank, one in enumerate(chance.sample(topics, 300))}
    found, now, moved = state(topics), 0.0, 0
    for step in range(200):
        now += 4
        for number in chance.sample(sorted(loads), 3):
            loads[number] *= chance.choice((0.5, 2))
        planner.observe(now, Loads({"eu": loads}, {}))
        changes = planner.plan(site.cluster_state, found, now)
        moved += len(changes.topics) if step > 50 else 0
        found = after(found, changes)
        assert len(changes.topics) <= MOVES_MAX or not step
    assert worst(site, found, loads) <= 1.35, "the bound, and what smoothing lags behind while loads change"
    assert moved < 300
    for _ in range(20):
        now += 4
        planner.observe(now, Loads({"eu": loads}, {}))
        found = after(found, planner.plan(site.cluster_state, found, now))
    assert worst(site, found, loads) <= 1.25


def test_another_forwarder_takes_over_only_what_is_above_the_bound() -> None:
    site, planner = Site(forwarders=4), Planner()
    found = stable(planner, site, state([topic(number) for number in range(1, 401)]))
    site.add_publisher("eu", "publish-eu-5")
    later = stable(planner, site, found)
    moved = [number for number, one in found.topic_homes.items() if later.topic_homes[number].chains != one.chains]
    before = Counter(one.chains for one in found.topic_homes.values())
    assert all(before[found.topic_homes[number].chains] > 100 for number in moved)
    surplus = sum(max(0, count - int(1.25 * 400 / 5)) for count in before.values())
    assert len(moved) == surplus


def test_a_subscription_is_not_torn_away_from_its_first_subscribers_for_balance_alone() -> None:
    site, planner = Site(forwarders=1), Planner()
    found = stable(planner, site, state([topic(1)], [subscription(10 + number, 1) for number in range(8)]))
    site._add("subscribe-eu-2", SUBSCRIBE, "eu")
    assert planner.plan(site.cluster_state, found, STABLE_S - 1).subscriptions == {}
    moved = planner.plan(site.cluster_state, found, STABLE_S).subscriptions
    assert len(moved) == 3  # down to 1.25 times the average
    later = after(found, Changes({}, moved))
    assert planner.plan(site.cluster_state, later, STABLE_S + 1).subscriptions == {}
    site.lose("subscribe-eu-1")
    assert (
        len(planner.plan(site.cluster_state, later, STABLE_S + 1).subscriptions) == 5
    )  # who has none waits for nothing


def test_what_is_nearly_idle_stays_where_it_is_until_one_place_carries_really_more() -> None:
    chance, site, planner = random.Random(3), Site(forwarders=3), Planner()
    numbers = range(11, 71)
    found = stable(planner, site, state([topic(1), topic(2)], [subscription(number, 1) for number in numbers]))
    now, moved = 0.0, 0

    def step(loads: dict[int, float]) -> int:
        nonlocal now, found
        now += 4
        planner.observe(now, Loads({"eu": {1: sum(loads.values())}}, {"eu": loads}))
        changes = planner.plan(site.cluster_state, found, now)
        found = after(found, changes)
        return len(changes.subscriptions) + len(changes.topics)

    for _ in range(300):  # bursts of a few messages, and now and then of many
        moved += step({number: chance.choice((0, 0, 0, 3, 40, 400)) for number in chance.sample(numbers, 6)})
    assert not moved
    (place,) = found.subscription_homes[11].members
    together = [number for number, one in found.subscription_homes.items() if one.members == (place,)]
    loads = dict.fromkeys(together, 1_000.0)
    for _ in range(100):
        moved += step(loads)
    assert 0 < moved < len(together)
    carried = Counter(found.subscription_homes[number].members for number in together)
    assert max(carried.values()) <= 1.3 * len(together) / 3, carried


def test_keys_lie_in_one_region_and_messages_without_a_key_in_each() -> None:
    site, planner = Site(("eu", "us")), Planner()
    found = stable(planner, site, state([topic(number) for number in range(1, 60)]))
    homes = set()
    for one in found.topic_homes.values():
        [home] = {site.chains[chain].region for chain in one.chains}
        [other] = one.elsewhere
        assert {home, other} == {"eu", "us"}
        assert set(one.elsewhere[other]) <= site.in_region(other)
        homes.add(home)
    assert homes == {"eu", "us"}


def test_keys_begin_where_the_topic_is_stored_most() -> None:
    site, planner = Site(("eu", "us")), Planner()
    planner.observe(0.0, Loads({"us": {1: 100.0}, "eu": {1: 1.0, 2: 5.0}}, {}))
    found = stable(planner, site, state([topic(1), topic(2)]))
    assert set(found.topic_homes[1].chains) <= site.in_region("us")
    assert set(found.topic_homes[2].chains) <= site.in_region("eu")


def test_location_policy() -> None:
    site, planner = Site(("eu", "us")), Planner()
    found = stable(planner, site, state([topic(1, regions=("us",)), topic(2, regions=("asia",)), topic(3)]))
    assert set(found.topic_homes[1].chains) <= site.in_region("us")
    assert found.topic_homes[1].elsewhere == {}
    assert 2 not in found.topic_homes
    # The policy of topic 3 is changed: its keys go where they may lie.
    [home] = {site.chains[chain].region for chain in found.topic_homes[3].chains}
    other = "us" if home == "eu" else "eu"
    changed = found._replace(topics={**found.topics, 3: topic(3, regions=(other,))})
    moved = planner.plan(site.cluster_state, changed, 1.0).topics[3]
    assert moved.epoch == 2
    assert set(moved.chains) <= site.in_region(other)


def test_in_transit_binds_subscribe_forwarders() -> None:
    site, planner = Site(("eu", "us")), Planner()
    tight = topic(1, regions=("us",), enforce_in_transit=True)
    found = stable(planner, site, state([tight, topic(2)], [subscription(11, 1), subscription(12, 2)]))
    assert {site.members[name].region for name in found.subscription_homes[11].members} == {"us"}
    assert {site.members[name].region for name in found.subscription_homes[12].members} == {"us", "eu"}


def test_classes_have_chains_of_their_own() -> None:
    site, planner = Site(), Planner()
    site.add_publisher("eu", "publish-eu-9", "firm")
    found = stable(planner, site, state([topic(1, durability="firm"), topic(2)]))
    assert found.topic_homes[1].chains == (5,)
    assert found.topic_homes[2].chains[0] < 5


def test_a_region_that_is_drained_is_left_and_a_dark_one_is_not() -> None:
    site, planner = Site(("eu", "us")), Planner()
    found = stable(planner, site, state([topic(number) for number in range(1, 21)]))
    in_us = {number for number, one in found.topic_homes.items() if set(one.chains) <= site.in_region("us")}
    site.drains.append("region/us")
    changes = planner.plan(site.cluster_state, found, 1.0)
    assert in_us <= changes.topics.keys()
    assert all(set(one.chains) <= site.in_region("eu") and not one.elsewhere for one in changes.topics.values())
    site.drains.clear()
    for name in [name for name, one in site.members.items() if one.region == "us"]:
        site.lose(name)
    dark = planner.plan(site.cluster_state, found, 1.0).topics
    assert not in_us & dark.keys()
    assert all(one.epoch == 1 for one in dark.values())


def test_what_all_clients_share_avoids_what_a_rule_shuts_some_out_of() -> None:
    site, planner = Site(proxies=2), Planner()
    site.rules.append(RoutingRule("r", clients="name=proxy-eu-1", forwarders="name=publish-eu-1", topics="name=t1"))
    found = stable(planner, site, state([topic(number) for number in range(1, 50)], [subscription(99, 1)]))
    assert found.topic_homes[1].chains != (1,)
    # A chain is where its owner is: adopted by the forwarder of the rule, it is left.
    [chain] = found.topic_homes[1].chains
    site.adopt(chain, "publish-eu-1")
    moved = planner.plan(site.cluster_state, found, 1.0)
    assert list(moved.topics) == [1]
    assert moved.topics[1].epoch == 2


def test_topics_leave_chains_that_could_not_acknowledge_without_the_disks_of_a_drained_process() -> None:
    site, planner = Site(forwarders=3), Planner()
    for number, storage in ((1, "s1"), (2, "s2"), (3, "s2")):
        places = (DiskPlace("c", "d1", storage),)
        site.chains[number] = replace(site.chains[number], places=places, rule=AckRule.single(1).to_values())
    for name in ("s1", "s2"):
        site.members[name] = Member(name, ("storage",), "127.0.0.1:1", 1, "eu")
    topics = [topic(number) for number in range(1, 31)]
    found = stable(planner, site, state(topics))
    assert {chain for one in found.topic_homes.values() for chain in one.chains} == {1, 2, 3}
    site.drains.append("s1")
    drained = stable(planner, site, found, 1.0)
    assert {chain for one in drained.topic_homes.values() for chain in one.chains} == {2, 3}
    kept = {number for number, one in found.topic_homes.items() if one.chains != (1,)}
    assert all(drained.topic_homes[number] == found.topic_homes[number] for number in kept), "others stay"
    site.drains.append("s2")
    for number in (1, 2):
        assert [one.number for one in site.cluster_state.steady([site.chains[number]])] == [number], "none is left"
    three = tuple(DiskPlace("c", f"d{slot}", storage) for slot, storage in enumerate(("s1", "s2", "s2")))
    site.drains.remove("s2")
    site.chains[1] = replace(site.chains[1], places=three, rule=AckRule.single(3).to_values())
    assert site.cluster_state.steady([site.chains[1]]) == [site.chains[1]], "two of three are enough"
    assert [one.number for one in site.cluster_state.steady(list(site.chains.values()))] == [1, 2, 3]


def test_nothing_at_all() -> None:
    planner = Planner()
    found = state([topic(1)], [subscription(11, 1)])
    site = Site(forwarders=0)
    assert planner.plan(site.cluster_state, found, 0.0) == Changes({}, {})
    held = found._replace(topic_homes={1: TopicAssignment(3, (7,))})
    assert planner.plan(site.cluster_state, held, 0.0) == Changes({}, {})


def test_only_new_ones() -> None:
    site, planner = Site(), Planner()
    found = stable(planner, site, state([topic(1), topic(2)]))
    site.drains.append("publish-eu-1")
    more = found._replace(topics={**found.topics, 3: topic(3)})
    assert list(planner.plan(site.cluster_state, more, 0.0, only_new=True).topics) == [3]


def test_two_routers_decide_alike() -> None:
    site = Site(("eu", "us"), forwarders=7)
    given = state([topic(number) for number in range(1, 100)], [subscription(500 + n, n) for n in range(1, 100)])
    assert Planner().plan(site.cluster_state, given, 0.0) == Planner().plan(site.cluster_state, given, 99.0)


def test_a_member_that_is_about_to_stop_gets_nothing_new() -> None:
    site, planner = Site(), Planner()
    site.members["subscribe-eu-1"] = replace(site.members["subscribe-eu-1"], draining=True)
    found = stable(planner, site, state([topic(1)], [subscription(100 + n, 1) for n in range(50)]))
    assert all("subscribe-eu-1" not in one.members for one in found.subscription_homes.values())


def test_a_deleted_topic_s_subscriptions_are_still_served() -> None:
    site, planner = Site(), Planner()
    found = stable(planner, site, state([], [subscription(11, 1)]))
    assert len(found.subscription_homes[11].members) == 1


def test_without_load_it_comes_to_rest() -> None:
    planner = Planner()
    planner.observe(0.0, Loads({"eu": {1: 50.0}}, {}))
    assert not planner.at_rest(0.0)
    for now in range(4, 1_400, 4):
        planner.observe(float(now), NONE)
    assert planner.at_rest(1_400.0)
    planner.observe(1_404.0, Loads({"eu": {1: 50.0}}, {}))
    assert not planner.at_rest(1_404.0)
