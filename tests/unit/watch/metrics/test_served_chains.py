"""Chains that nobody serves, chains on too few racks, and who serves which disk, as members show them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from syncpoint.base.model.cluster import ChainOwner, ChainRecord, DiskPlace
from syncpoint.catalog.metadata.view import Versioned
from syncpoint.watch.metrics.exposition import written
from syncpoint.watch.metrics.family import Samples
from syncpoint.watch.metrics.role_families import MEMBER_FAMILIES, QUIET_S, ChainDiskRoom, MemberRoom


class Items(SimpleNamespace):
    """A view of one prefix."""

    def __init__(self) -> None:
        super().__init__(items={}, listeners=[])

    def get(self, key: str) -> Any:
        found = self.items.get(key)
        return None if found is None else found.value

    def put(self, key: str, value: Any) -> None:
        self.items[key] = Versioned(value, 1)
        self.notify(key)

    def drop(self, key: str) -> None:
        del self.items[key]
        self.notify(key)

    def notify(self, key: str) -> None:
        for listener in self.listeners:
            listener({key})


class Member:
    """What the process `here` sees. `now` is its clock."""

    def __init__(self) -> None:
        self.now, self.open = 0.0, set[int]()
        self.chains, self.owners = Items(), Items()
        view: Any = SimpleNamespace(members=Items(), chains=self.chains, owners=self.owners, draining=lambda one: False)
        self.room = MemberRoom(view, "here", lambda: True, lambda: self.open, lambda: self.now)

    def chain(self, number: int, **fields: Any) -> ChainRecord:
        record = ChainRecord(number, f"here/{number}", "", "r", "here", **fields)
        self.chains.put(str(number), record)
        return record

    def own(self, number: int, name: str) -> None:
        self.owners.put(str(number), ChainOwner(name, 1, 1, "127.0.0.1:1"))

    def shown(self, family: str) -> dict[str, float]:
        samples = Samples(MEMBER_FAMILIES)
        self.room.collect(samples)
        lines = [one for one in written(samples).decode().splitlines() if one.startswith(f"{family}{{")]
        return {line.partition("}")[0].partition("{")[2]: float(line.rpartition(" ")[2]) for line in lines}

    def unserved(self) -> dict[str, float]:
        return self.shown("syncpoint_chain_unserved_seconds")


def test_a_chain_is_unserved_from_when_its_owner_is_gone_until_another_has_kept_it() -> None:
    here = Member()
    here.chain(1)
    here.own(1, "there")
    here.now = 100.0
    assert here.unserved() == {}
    here.owners.drop("1")
    here.now += 7
    assert here.unserved() == {'chain="1"': 7}
    here.own(1, "elsewhere")
    here.now += QUIET_S - 1
    assert here.unserved() == {'chain="1"': 7}, "it does not grow while the new owner has it"
    here.now += 1
    assert here.unserved() == {}


def test_owners_that_take_turns_and_open_nothing_serve_nothing() -> None:
    here = Member()
    here.chain(1)
    for _ in range(10):
        for name in ("there", "elsewhere", "here"):
            here.own(1, name)
            here.now += QUIET_S - 1
            here.owners.drop("1")
    assert here.unserved() == {'chain="1"': 30 * (QUIET_S - 1)}


def test_an_owner_that_has_not_opened_its_chain_says_so() -> None:
    here = Member()
    here.chain(1)
    here.own(1, "here")
    here.now += 60
    assert here.unserved() == {'chain="1"': 60}
    here.open.add(1)
    here.unserved()
    here.now += QUIET_S
    assert here.unserved() == {}
    here.chains.drop("1")
    here.owners.drop("1")
    assert here.unserved() == {}


def test_only_chains_below_their_policy_are_shown_so() -> None:
    here = Member()
    here.chain(1)
    here.chain(2, below_policy=True)
    assert here.shown("syncpoint_chain_below_policy") == {'chain="2"': 1}


def test_who_serves_the_disks_of_a_chain() -> None:
    here = Member()
    record = here.chain(1, places=(DiskPlace("c1", "d1", "s1"), DiskPlace("c2", "d1", "s2")))
    here.room = ChainDiskRoom(lambda: [record])  # type: ignore[assignment]
    assert here.shown("syncpoint_chain_disk") == {
        'chain="1",disk="/c1/d1",server="s1"': 1,
        'chain="1",disk="/c2/d1",server="s2"': 1,
    }


def test_a_chain_that_was_opened_between_two_looks_is_not_counted_until_the_second() -> None:
    here = Member()
    here.chain(1)
    here.own(1, "here")  # it is not open yet
    here.now += 0.1
    here.open.add(1)
    here.now += 10
    assert here.unserved().get('chain="1"', 0.0) < 1
