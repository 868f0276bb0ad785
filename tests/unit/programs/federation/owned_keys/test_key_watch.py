"""Keys of a lost site: of which subscription they are taken, when, and what waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from syncpoint.base.model.errors import NotFound, Unavailable
from syncpoint.base.model.key_homes import KeyRange, SlotHome, Slots, later, slots_of
from syncpoint.catalog.metadata.home_sites import fill_ranges, ranges_in
from syncpoint.programs.federation.acks.ack_rounds import ExchangeState
from syncpoint.programs.federation.owned_keys.key_watch import KeyWatch, Record
from syncpoint.programs.federation.spec import FederatedCluster
from syncpoint.wire.protobuf.messages import pipeline, pubsub
from tests.unit.programs.federation.acks.test_linked_sites import BANK, SHOP, two_namespaces


class Sites:
    """The bank's subscription in b and c, the shop's in a and b; each site has one half of the keys."""

    def __init__(self) -> None:
        self.slots: dict[tuple[str, str], Slots] = {}
        for name, sites in ((BANK, "bc"), (SHOP, "ab")):
            halves = slots_of(KeyRange(at * 128, at * 128 + 127, SlotHome(1, one)) for at, one in enumerate(sites))
            self.slots |= {(site, name): halves for site in sites}
        self.away: set[str] = set()

    def call(self, cluster: FederatedCluster, method: str, request: Any) -> Any:
        if cluster.name in self.away:
            raise Unavailable("away")
        at = cluster.name, request.subscription
        if at not in self.slots:
            raise NotFound(request.subscription)
        if method == "Subscriber.GetSubscription":
            return pubsub.Subscription(topic=f"{request.subscription.partition('/sub')[0]}/topics/orders.v1")
        if method == "AckExchange.SetHome":
            self.slots[at] = later(self.slots[at], slots_of(ranges_in(request.keys)))
        answer = pipeline.SetHomeResponse() if method == "AckExchange.SetHome" else pipeline.AckChangesResponse()
        fill_ranges(answer.keys, [KeyRange(slot, slot, one) for slot, one in enumerate(self.slots[at])])
        return answer

    def homes(self, site: str, name: str) -> set[str]:
        return {one.home for one in self.slots[site, name]}


def pairs() -> list[ExchangeState]:
    """Of a topic whose id has a dot."""
    ends = (("bank", "b", "c"), ("shop", "a", "b"))
    return [ExchangeState(f"{name}.{one}-{other}.orders.v1", "billing", one, other) for name, one, other in ends]


def watch(folder: Path, sites: Sites, now: list[float], records: list[Record]) -> KeyWatch:
    links = two_namespaces(folder, keys={"takeover": "10s"})
    return KeyWatch(links, sites, lambda: records, lambda _: None, clock=lambda: now[0])  # type: ignore[arg-type]


def test_a_lost_site_loses_its_keys_of_each_subscription_to_sites_that_have_it(tmp_path: Path) -> None:
    sites, now = Sites(), [0.0]
    made = watch(tmp_path, sites, now, [])
    sites.away = {"b"}
    for now[0] in (0.0, 11.0):
        made.step(pairs())
    assert (sites.homes("a", SHOP), sites.homes("c", BANK)) == ({"a"}, {"c"})
    assert [one["subscription"] for one in made.records] == [BANK, SHOP]
    assert [made.waits(one) for one in pairs()] == [True, True]
    assert not made.waits(ExchangeState("other.b-c.orders", "billing", "b", "c"))


def test_a_lost_site_of_one_subscription_is_none_of_the_other(tmp_path: Path) -> None:
    sites, now = Sites(), [0.0]
    made = watch(tmp_path, sites, now, [])
    sites.away = {"a"}
    for now[0] in (0.0, 11.0):
        made.step(pairs())
    assert (sites.homes("b", SHOP), sites.homes("b", BANK), sites.homes("c", BANK)) == ({"b"}, {"b", "c"}, {"b", "c"})
    assert [made.waits(one) for one in pairs()] == [False, True]


def test_what_was_taken_waits_also_after_a_restart_and_before_a_first_look(tmp_path: Path) -> None:
    sites, now = Sites(), [0.0]
    record = {"subscription": SHOP, "lost": "a", "back_at": 0.0}
    made = watch(tmp_path, sites, now, [record, {"subscription": BANK, "lost": "b", "back_at": 5.0}])
    made.step([])
    assert [made.waits(one) for one in pairs()] == [False, True]
    sites.away = {"c"}
    made.step(pairs())  # at once: nothing was looked at before
    now[0] = 11.0
    made.step(pairs())
    assert sites.homes("b", BANK) == {"b"}


def test_a_look_that_fails_again_for_the_same_reason_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sites, now = Sites(), [0.0]
    made, slots = watch(tmp_path, sites, now, []), sites.slots
    for now[0], sites.slots in ((0.0, {}), (2.0, {}), (4.0, slots), (6.0, {})):
        made.step(pairs()[:1])
    assert [one.getMessage().partition(":")[0] for one in caplog.records] == [
        "keys of billing are checked again later"
    ] * 2
