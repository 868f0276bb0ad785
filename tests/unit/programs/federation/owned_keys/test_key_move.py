"""Moving keys: in which order, what is waited for, what goes back, and what it is refused for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from syncpoint.base.model.errors import FailedPrecondition, NotFound, Unavailable
from syncpoint.base.model.key_homes import NOWHERE, SLOTS, KeyRange, SlotHome, Slots, later, slots_of
from syncpoint.catalog.metadata.home_sites import fill_ranges, ranges_in
from syncpoint.programs.federation.owned_keys import key_move
from syncpoint.programs.federation.owned_keys.key_move import KeyMove, MovedKeys
from syncpoint.programs.federation.owned_keys.key_sites import KeySites
from syncpoint.programs.federation.spec import FederatedCluster
from syncpoint.wire.protobuf.messages import admin, pipeline
from tests.unit.programs.federation.acks.test_ack_rounds import links
from tests.unit.programs.federation.acks.test_home_move import SitesInMemory

HALVES = slots_of([KeyRange(0, 127, SlotHome(4, "a")), KeyRange(128, 255, SlotHome(4, "b"))])


class KeysInMemory(SitesInMemory):
    """Two sites; what they know of keys, and how much of them consumers have."""

    def __init__(self) -> None:
        super().__init__()
        self.slots: dict[str, Slots] = {"a": HALVES, "b": HALVES}
        self.leaving: list[int] = [0]
        self.before_set: list[Any] = []

    def call(self, cluster: FederatedCluster, method: str, request: Any) -> Any:
        name = cluster.name
        if name in self.away:
            raise Unavailable("away")
        if method == "Admin.GetSubscriptionState":
            left = self.leaving.pop(0) if len(self.leaving) > 1 else self.leaving[0]
            self.steps.append(f"{name} has {left}")
            return admin.SubscriptionState(leaving_messages=left, outstanding_messages=99)
        if method == "AckExchange.SetHome":
            if self.before_set:
                self.before_set.pop(0)()
            known, asked = self.slots[name], slots_of(ranges_in(request.keys))
            for before, after in zip(known, asked, strict=True):
                if request.instead_of and after.epoch and before not in (after,) and before.home != request.instead_of:
                    raise FailedPrecondition("somebody else has moved them")
            self.slots[name] = later(known, asked)
            homes = sorted({one.home.partition(" ")[0] for one in asked if one.epoch})
            self.steps.append(f"{name} knows {', '.join(homes)}")
            answer = pipeline.SetHomeResponse()
        elif method == "AckExchange.AckChanges":
            answer = super().call(cluster, method, request)
        else:
            return super().call(cluster, method, request)
        del answer.keys[:]
        fill_ranges(answer.keys, [KeyRange(slot, slot, at) for slot, at in enumerate(self.slots[name])])
        return answer


def move(
    folder: Path, sites: KeysInMemory, wanted: dict[int, str], drain_s: float = 5.0, *, force: bool = False
) -> MovedKeys:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    made = KeySites(links(folder, acks=True), sites, "billing")  # type: ignore[arg-type]
    return KeyMove(made, lambda: now[0], sleep).move(wanted, drain_s, force=force)


def test_keys_are_held_until_consumers_are_done_and_then_the_next_site_begins(tmp_path: Path) -> None:
    sites = KeysInMemory()
    sites.leaving = [3, 1, 0]
    found = move(tmp_path, sites, {0: "b", 1: "b", 200: "b"})
    assert (found.slots, found.epoch, found.lent, found.lacking) == (2, 6, 0, 0)
    held = ["a knows (moving)", "b knows (moving)"]
    assert sites.steps == [*held, "a has 3", "a has 1", "a has 0", "b knows b", "a knows b"]
    after = [SlotHome(6, "b")] * 2 + [*HALVES[2:]]
    assert [list(one) for one in sites.slots.values()] == [after, after]
    assert move(tmp_path, sites, {0: "b"}).slots == 0, "again: nothing is to be done"


def test_keys_go_back_where_consumers_do_not_end(tmp_path: Path) -> None:
    sites = KeysInMemory()
    sites.leaving = [2]
    with pytest.raises(FailedPrecondition, match="b would repeat 2 messages that consumers still have"):
        move(tmp_path, sites, {0: "b"})
    assert [sites.slots[name][0] for name in "ab"] == [SlotHome(6, "a")] * 2
    forced = move(tmp_path, sites, {0: "b"}, force=True)
    assert (forced.lent, sites.slots["b"][0]) == (2, SlotHome(8, "b"))


def test_what_the_next_site_lacks_is_waited_for_and_keys_go_back_where_it_stays_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites = KeysInMemory()
    sites.copied = [90, 95, 99, 100]
    assert move(tmp_path, sites, {0: "b"}).lacking == 0
    sites.copied = [40]
    with pytest.raises(FailedPrecondition, match="b would lack 60 messages"):
        move(tmp_path, sites, {1: "b"})
    assert sites.slots["a"][1].home == "a"
    monkeypatch.setattr(key_move, "NEARLY", 10)
    steps = len(sites.steps)
    with pytest.raises(FailedPrecondition, match="b would lack 60 messages"):
        move(tmp_path, sites, {1: "b"})
    assert sites.steps[steps:] == [], "too much: nothing is held"


def test_an_owner_that_does_not_answer_keeps_its_keys(tmp_path: Path) -> None:
    sites = KeysInMemory()
    sites.away = {"a"}
    with pytest.raises(FailedPrecondition, match="a does not answer: what it delivers now is unknown"):
        move(tmp_path, sites, {0: "b"})
    assert sites.steps == []
    with pytest.raises(FailedPrecondition, match="a does not answer"):
        move(tmp_path, sites, {200: "a"}, force=True)
    assert move(tmp_path, sites, {0: "b"}, force=True).slots == 1
    sites.slots["b"] = NOWHERE
    with pytest.raises(FailedPrecondition, match="a does not answer"):
        move(tmp_path, sites, {0: "b"})  # every site delivers what has no home
    with pytest.raises(NotFound, match="site 'c'; there is a, b"):
        move(tmp_path, sites, {0: "c"})


def test_of_two_movers_one_stops_and_the_keys_of_one_that_broke_off_are_moved_again(tmp_path: Path) -> None:
    sites = KeysInMemory()

    def other() -> None:
        """Another program has marked them as its own, at both, in the same generation."""
        for name in "ab":
            sites.slots[name] = later(sites.slots[name], slots_of([KeyRange(0, 0, SlotHome(5, "(moving) z"))]))

    sites.before_set = [lambda: None, lambda: None, other]
    with pytest.raises(FailedPrecondition, match="somebody else has moved them"):
        move(tmp_path, sites, {0: "b"})
    assert sites.slots["b"][0] == SlotHome(5, "(moving) z"), "nobody delivers it"
    sites.before_set = []
    assert move(tmp_path, sites, {0: "b"}).epoch == 7
    assert sites.slots["a"][0] == sites.slots["b"][0] == SlotHome(7, "b")
    assert len(sites.slots["a"]) == SLOTS


TAKEN = [SlotHome(5, "b", "a") if one.home == "a" else one for one in HALVES]


def test_no_key_moves_before_it_is_known_what_a_site_that_is_back_has_delivered(tmp_path: Path) -> None:
    """A move exchanges acknowledgements; whose they were nobody could tell any more."""
    sites = KeysInMemory()
    sites.slots["b"] = TAKEN
    with pytest.raises(FailedPrecondition, match="a has come back"):
        move(tmp_path, sites, {200: "a"})
    assert sites.steps == []
