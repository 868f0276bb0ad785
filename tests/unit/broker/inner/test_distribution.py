"""Which process pushes what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

from syncpoint.base.model.cluster import PROXY, SUBSCRIBE, Member
from syncpoint.broker.inner.distribution import Distribution, pusher_of, pushers
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import CatalogChange, Subscription, Topic

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


class View:
    """Members as a process sees them."""

    def __init__(self, *members: Member) -> None:
        self.on_change: list[Callable[[], None]] = []
        self.members = SimpleNamespace(items={})
        self.drained: set[str] = set()
        self.set(*members)

    def set(self, *members: Member) -> None:
        self.members.items = {one.name: SimpleNamespace(value=one) for one in members}
        for called in self.on_change:
            called()

    def draining(self, member: Member) -> bool:
        return member.name in self.drained


def test_a_process_pushes_what_is_its_own_as_members_come_and_go_and_only_where_messages_may_pass() -> None:
    catalog = Catalog()
    everywhere, confined = (
        Topic(1, "projects/p/topics/a"),
        Topic(2, "projects/p/topics/b", regions=("r2",), enforce_in_transit=True),
    )
    records = [Subscription(10, "projects/p/subscriptions/a", 1, everywhere.name)]
    records.append(Subscription(11, "projects/p/subscriptions/b", 2, confined.name))
    for change in catalog.assign([CatalogChange.put(one) for one in (everywhere, confined, *records)]):
        catalog.apply(change)
    one, two = (Member(f"p{n}", (PROXY,), f"h{n}:1", n, region=f"r{n}") for n in (1, 2))
    view = View(one, two)
    mine = {member.name: Distribution(member.name, view, catalog).mine for member in (one, two)}  # type: ignore[arg-type]
    assert [mine["p1"](11), mine["p2"](11)] == [False, True]
    first = next(name for name in mine if mine[name](10))
    assert [mine["p1"](10), mine["p2"](10)].count(True) == 1
    view.set(*(member for member in (one, two) if member.name != first))
    assert [name for name in mine if mine[name](10)] == [name for name in mine if name != first]
    view.set(one)
    assert not mine["p1"](11)
    assert not mine["p1"](99)
