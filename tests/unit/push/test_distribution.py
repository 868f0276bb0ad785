"""Which process pushes what."""

from __future__ import annotations

from dataclasses import replace

from syncpoint.model.cluster import PROXY, SUBSCRIBE, Member
from syncpoint.push.distribution import pusher_of, pushers

SUBSCRIPTIONS = range(1, 401)
MEMBERS = [Member(f"s{number}", (PROXY,), f"h{number}:1", number) for number in range(1, 6)]


def by_subscription(members: list[Member]) -> dict[int, str]:
    able = pushers(members)
    found = {one: pusher_of(one, able) for one in SUBSCRIPTIONS}
    return {number: member.name for number, member in found.items() if member is not None}


def test_each_subscription_is_pushed_by_one_and_everybody_agrees() -> None:
    expected = by_subscription(MEMBERS)
    assert by_subscription(MEMBERS[::-1]) == expected
    assert len(expected) == len(SUBSCRIPTIONS)
    assert all(40 <= list(expected.values()).count(one.name) <= 130 for one in MEMBERS)


def test_of_one_that_dies_or_drains_only_its_own_move() -> None:
    before = by_subscription(MEMBERS)
    for after in (by_subscription(MEMBERS[1:]), by_subscription([replace(MEMBERS[0], draining=True), *MEMBERS[1:]])):
        assert {number for number in SUBSCRIPTIONS if before[number] != after[number]} == {
            number for number in SUBSCRIPTIONS if before[number] == "s1"
        }


def test_one_that_is_back_has_what_it_had() -> None:
    again = [replace(MEMBERS[0], incarnation=99, address="elsewhere:1"), *MEMBERS[1:]]
    assert by_subscription(again) == by_subscription(MEMBERS)
    assert by_subscription([*MEMBERS, again[0]]) == by_subscription(MEMBERS)  # its earlier life is still listed


def test_a_weight_is_a_share() -> None:
    heavy = [replace(MEMBERS[0], weight=8.0), *MEMBERS[1:]]
    assert list(by_subscription(heavy).values()).count("s1") > 200


def test_where_all_drain_all_push_and_where_nobody_may_nobody_does() -> None:
    draining = [replace(one, draining=True) for one in MEMBERS]
    assert by_subscription(draining) == by_subscription(MEMBERS)
    assert pusher_of(1, pushers([Member("s", (SUBSCRIBE,), "h:1", 1)])) is None
    assert pusher_of(1, pushers([])) is None
