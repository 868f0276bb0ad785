"""Writes of the metadata that arrive when their caller has long given them up: each is void by then, or harmless."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from syncpoint.base.model.cluster import PUBLISH, ChainOwner, ChainRecord, DiskPlace, Member
from syncpoint.base.model.errors import Aborted, MetadataSilent, NotFound, SyncpointError, Unavailable
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.broker.publish.chain.known_disks import KnownDisks
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.contract import Compare, Delete, Indeterminate, Operation, Put, TxnResult
from syncpoint.catalog.metadata.layout import CHAINS, DRAINS, MEMBERS, OWNERS
from syncpoint.catalog.metadata.local import LocalShared
from syncpoint.catalog.metadata.memory import MemoryStore
from syncpoint.catalog.metadata.view import ClusterView, Versioned
from syncpoint.cluster.control.chain_creation import ChainCreator, ChainPlan
from syncpoint.cluster.control.membership import GRACE_S, TTL_S, Membership, NameTaken
from syncpoint.cluster.control.operations import Operations
from syncpoint.cluster.control.ownership_effects import ReleaseOwnership
from syncpoint.cluster.control.ownership_machine import OwnershipMachine
from syncpoint.cluster.control.peer_channels import Reach
from syncpoint.cluster.control.registration import Registration, registered_chains
from syncpoint.testing.rigs.plain_tests import Work, plain_test
from syncpoint.testing.rigs.simulated_loop import run_simulated

ME = Member("f1", (PUBLISH,), "10.0.0.1:1", 11, region="r")
LATE_S = 10.0


class Late(LocalShared):
    """A store behind a network that keeps a write for ten seconds where `delays` says so; its caller
    receives nothing.
    """

    def __init__(self, store: MemoryStore, clock: ManualClock) -> None:
        super().__init__(store, clock)
        self.delays: Callable[[Operation], bool] = lambda one: False
        self.arrived: list[bool] = []

    async def txn(
        self, compares: Sequence[Compare], then: Sequence[Operation], orelse: Sequence[Operation] = (), **more: Any
    ) -> TxnResult:
        if not any(map(self.delays, then)):
            return await super().txn(compares, then, orelse, **more)

        def arrive() -> None:
            try:
                self.arrived.append(self.store.txn(compares, then, orelse).ok)
            except ValueError:  # under a lease that has ended
                self.arrived.append(False)

        asyncio.get_running_loop().call_later(LATE_S, arrive)
        await asyncio.sleep(1.5)
        raise Indeterminate("nobody said whether it was done")

    def only(self, kind: type, prefix: str) -> None:
        """Delay the next write of this kind."""

        def delays(one: Operation) -> bool:
            if isinstance(one, kind) and one.key.startswith(prefix):
                self.delays = lambda one: False
                return True
            return False

        self.delays = delays

    def put(self, key: str, value: bytes) -> None:
        self.store.txn([], [Put(key, value)])

    def keys(self, prefix: str) -> list[str]:
        return [item.key for item in self.store.range(prefix).items]


class Copy:
    """A copy of the catalog that is as far as it is."""

    def __init__(self) -> None:
        self.stuck = asyncio.Event()
        self.stuck.set()

    async def at(self, revision: int) -> None:
        await self.stuck.wait()


def run(work: Work) -> None:
    clock = ManualClock()
    store = Late(MemoryStore(clock=clock, random=SeededRandom(1)), clock)

    async def main() -> None:
        await work(store)

    run_simulated(clock, main())


late = plain_test(run)
"""A decorator: a coroutine function over such a store as a plain test."""

# -- registrations -----------------------------------------------------------------------------------------------------


@late
async def test_a_late_removal_does_not_remove_the_next_registration(store: Late) -> None:
    store.put(OWNERS.key("7"), ChainOwner(ME.name, ME.incarnation, 3, ME.address).encode())
    registration = Registration(store, Copy(), lambda: ME)
    await registration.register(1, 7)
    store.only(Delete, "open/")
    with pytest.raises(SyncpointError):
        await registration.unregister(1, 7, 3)
    await registration.register(1, 7)
    await asyncio.sleep(LATE_S)
    assert store.arrived == [False]
    assert await registered_chains(store, 1) == [7]


@late
async def test_a_registration_asked_for_after_a_removal_is_not_removed_by_it(store: Late) -> None:
    """Both wait for the lock; the registration shares a batch that was begun before the removal."""
    store.put(OWNERS.key("7"), ChainOwner(ME.name, ME.incarnation, 3, ME.address).encode())
    registration = Registration(store, Copy(), lambda: ME)
    store.only(Put, "open/2/")
    first = asyncio.ensure_future(registration.register(2, 7))
    await asyncio.sleep(0.1)  # it holds the lock
    batch = asyncio.ensure_future(registration.register(3, 7))
    await asyncio.sleep(0.1)
    removal = asyncio.ensure_future(registration.unregister(1, 7, 3))
    await asyncio.sleep(0.1)
    again = asyncio.ensure_future(registration.register(1, 7))
    await asyncio.gather(first, batch, removal, again)
    assert await registered_chains(store, 1) == [7]


@late
async def test_a_stuck_copy_of_the_catalog_holds_up_nobody_else(store: Late) -> None:
    copy = Copy()
    registration = Registration(store, copy, lambda: ME)
    store.put("catalog/head", b"5 1")
    copy.stuck.clear()
    stuck = asyncio.ensure_future(registration.register(1, 7))
    await asyncio.sleep(0.1)
    store.put(OWNERS.key("7"), ChainOwner(ME.name, ME.incarnation, 3, ME.address).encode())
    async with asyncio.timeout(1):
        assert await registration.unregister(2, 7, 3)
    with pytest.raises(Unavailable, match="has not reached revision 5"):
        await stuck


@late
async def test_whoever_waits_for_a_registration_learns_soon_that_the_metadata_does_not_answer(store: Late) -> None:
    registration = Registration(store, Copy(), lambda: ME)
    store.delays = lambda one: True
    loop = asyncio.get_running_loop()
    begun = loop.time()
    with pytest.raises(MetadataSilent):
        await registration.register(1, 7)
    assert loop.time() - begun <= 3.0
    begun = loop.time()
    with pytest.raises(MetadataSilent):  # known by now
        await registration.register(2, 7)
    assert loop.time() - begun <= 0.5
    store.delays = lambda one: False
    await asyncio.sleep(LATE_S)  # what was asked for first goes on, and finds it answering again
    await registration.register(3, 7)
    assert await registered_chains(store, 3) == [7]


@late
async def test_a_removal_is_sent_only_if_it_is_still_wanted_once_the_metadata_answers(store: Late) -> None:
    store.put(OWNERS.key("7"), ChainOwner(ME.name, ME.incarnation, 3, ME.address).encode())
    registration = Registration(store, Copy(), lambda: ME)
    await registration.register(1, 7)
    await registration.register(2, 8)
    assert not await registration.unregister(1, 7, 3, lambda: False)
    assert set(await registration.registered(7)) == {1}
    asked: list[int] = []
    store.cut = True
    with pytest.raises(MetadataSilent):
        await registration.unregister(1, 7, 3, lambda: bool(asked.append(1)) or True)
    assert not asked
    with pytest.raises(MetadataSilent):
        await registration.registered(7)
    store.cut = False
    assert await registration.unregister(1, 7, 3, lambda: True)
    assert set(await registration.registered(7)) == set()


@late
async def test_what_is_registered_is_reported_only_once_the_copy_has_reached_the_catalog_of_then(store: Late) -> None:
    copy = Copy()
    registration = Registration(store, copy, lambda: ME)
    await registration.register(1, 7)
    store.put("catalog/head", b"5 1")
    copy.stuck.clear()
    with pytest.raises(Unavailable, match="has not reached revision 5"):
        await registration.registered(7)


# -- members -----------------------------------------------------------------------------------------------------------


@late
async def test_a_late_announcement_does_not_undo_a_later_one(store: Late) -> None:
    membership = Membership(store, ME)
    await membership.start()
    store.only(Put, MEMBERS)
    with pytest.raises(Indeterminate):
        await membership.announce(draining=True)
    await membership.announce(draining=False)
    await asyncio.sleep(LATE_S)
    assert store.arrived == [False]
    assert not Member.decode(store.store.get(MEMBERS.key("f1")).value).draining  # type: ignore[union-attr]
    await membership.stop()


@late
async def test_a_start_whose_outcome_is_unknown_looks_and_goes_on(store: Late) -> None:
    membership = Membership(store, ME)
    store.only(Put, MEMBERS)
    await membership.start()
    await asyncio.sleep(LATE_S)
    assert store.arrived == [False]
    assert membership.registered_at == store.store.get(MEMBERS.key("f1")).revision  # type: ignore[union-attr]
    await membership.stop()


@late
async def test_the_name_of_a_process_that_refuses_connections_is_taken_at_once(store: Late) -> None:
    loop = asyncio.get_running_loop()
    earlier = Membership(store, ME)
    await earlier.start()

    async def refused(address: str) -> Reach:
        assert address == ME.address
        return Reach.REFUSED

    begun = loop.time()
    later = Membership(store, replace(ME, address="10.0.0.1:2", incarnation=12), ping=refused)
    await later.start()
    assert loop.time() - begun < 1
    await earlier.stop()
    await later.stop()


@late
async def test_the_name_of_a_silent_process_is_taken_once_its_lease_has_ended(store: Late) -> None:
    loop = asyncio.get_running_loop()
    earlier = Membership(LocalShared(store.store, store.clock), ME)
    await earlier.start()

    async def silent(address: str) -> Reach:
        return Reach.SILENT

    def other() -> Membership:
        return Membership(store, replace(ME, address="10.0.0.1:2", incarnation=12), ping=silent)

    with pytest.raises(NameTaken, match=r"the name f1 is taken: a living process at 10\.0\.0\.1:1 has it"):
        await other().start()
    assert len(store.leases) == 0, "what was not needed is not kept alive"
    await earlier.store.close()  # its death
    begun = loop.time()
    later = other()
    await later.start()
    assert loop.time() - begun < TTL_S + GRACE_S
    await later.stop()


@late
async def test_a_name_that_lives_on_another_host_is_not_taken_by_what_this_host_sees_of_its_address(
    store: Late,
) -> None:
    earlier = Membership(LocalShared(store.store, store.clock), replace(ME, host="a", network="1"))
    await earlier.start()

    async def refused(address: str) -> Reach:
        return Reach.REFUSED

    for address, host, reported in (
        ("10.0.0.1:2", "b", " on host a"),
        (ME.address, "b", " on host a"),
        (ME.address, "a", ""),
    ):
        other = Membership(store, replace(ME, address=address, incarnation=12, host=host, network="2"), ping=refused)
        with pytest.raises(NameTaken, match=rf"a living process at 10\.0\.0\.1:1{reported} has it"):
            await other.start()
    assert not earlier.superseded.is_set()
    assert Member.decode(store.store.get(MEMBERS.key("f1")).value).incarnation == 11  # type: ignore[union-attr]
    await earlier.stop()
    await other.start()
    await other.stop()


@late
async def test_a_process_that_died_is_followed_at_once_where_its_machine_is_called_otherwise_by_now(
    store: Late,
) -> None:
    loop = asyncio.get_running_loop()
    earlier = Membership(LocalShared(store.store, store.clock), replace(ME, host="a", network="1"))
    await earlier.start()

    async def refused(address: str) -> Reach:
        return Reach.REFUSED

    begun = loop.time()
    other = replace(ME, address="10.0.0.1:2", incarnation=12, host="b", network="1")
    later = Membership(store, other, ping=refused)
    await later.start()
    assert loop.time() == begun
    await later.stop()


@late
async def test_a_name_that_was_taken_before_anybody_looked_is_seen_to_be_taken(store: Late) -> None:
    earlier = Membership(store, ME)
    await earlier.start()
    later = Membership(store, replace(ME, incarnation=12))
    await later.start()
    view = ClusterView(store)
    await view.start()
    later.heed(view.members)
    earlier.heed(view.members)
    assert (earlier.superseded.is_set(), later.superseded.is_set()) == (True, False)
    assert earlier.successor is not None
    assert earlier.successor.incarnation == 12
    await view.close()
    await later.stop()
    await earlier.stop()


# -- chains ------------------------------------------------------------------------------------------------------------


async def founding(store: Late) -> tuple[Membership, ChainCreator]:
    """Whoever makes a chain, and does not know whether it is made: that is late."""
    membership = Membership(store, ME)
    await membership.start()
    plan = ChainPlan((DiskPlace("c1", "d1", "s1"),), {"clusters": [0]}, "sync")
    founder = ChainCreator(store, membership, ["default"], lambda klass, known: plan)
    store.only(Put, CHAINS)
    with pytest.raises(Indeterminate):
        await founder.create_missing()
    return membership, founder


@late
async def test_a_chain_that_is_made_late_is_not_made_twice(store: Late) -> None:
    membership, founder = await founding(store)
    (made,) = await founder.create_missing()
    await asyncio.sleep(LATE_S)
    assert store.arrived == [False]
    assert [ChainRecord.decode(item.value) for item in store.store.range(CHAINS).items] == [made]
    await membership.stop()


@late
async def test_a_chain_that_was_made_after_all_is_taken_as_it_is(store: Late) -> None:
    membership, founder = await founding(store)
    store.only(Put, CHAINS)  # the second one is late, too: the first has arrived when it is read
    with pytest.raises(Indeterminate):
        await founder.create_missing()
    await asyncio.sleep(LATE_S)
    assert len(await founder.create_missing()) == len(store.keys(CHAINS)) == 1
    await membership.stop()


def test_an_ownership_that_nobody_wants_is_given_up() -> None:
    """A claim that arrived late, while its process was being drained: others take the owner for a living one."""
    machine = OwnershipMachine("f1", 11, 0.0)
    machine.leased(True, 0.0)
    other = Member("f2", (PUBLISH,), "10.0.0.1:2", 12, region="r")
    members = {"f1": Versioned(ME, 1), "f2": Versioned(other, 1)}
    owner = ChainOwner("f1", 11, 4, ME.address)
    chain = ChainRecord(1, "f2/default", "default", "r", "f2")
    effects = machine.step(10.0, harness(members, {"f1"}, {1: chain}, {1: Versioned(owner, 5)}))
    assert effects == [ReleaseOwnership(1, 4)]
    machine.released(1)
    assert machine.step(10.1, harness(members, {"f1"}, {1: chain}, {})) == []


def harness(members: Any, draining: set[str], chains: Any, owners: Any) -> Any:
    from syncpoint.cluster.control.ownership_effects import OwnershipView

    return OwnershipView(members, frozenset(draining), chains, owners, 9)


@late
async def test_what_an_earlier_owner_knew_of_the_disks_does_not_come_back(store: Late) -> None:
    earlier, later = KnownDisks(store), KnownDisks(LocalShared(store.store, store.clock))
    await later.note(1, await later.known(1), ["a", "b", "c"])
    known = await earlier.known(1)
    store.only(Put, "disks/")
    with pytest.raises(Unavailable):
        await earlier.note(1, known, ["a", "b", "x"])
    await later.note(1, await later.known(1), ["a", "b", "d"])
    await asyncio.sleep(LATE_S)
    assert store.arrived == [False]
    assert (await later.known(1)).disks == ("a", "b", "d")
    with pytest.raises(Unavailable, match="Another owner of chain 1"):
        await earlier.note(1, known, ["a", "b", "y"])


# -- operators ---------------------------------------------------------------------------------------------------------


@late
async def test_a_late_drain_does_not_follow_its_undoing(store: Late) -> None:
    for name in ("f1", "f2", "f3"):
        store.put(MEMBERS.key(name), replace(ME, name=name).encode())
    view = ClusterView(store)
    await view.start()
    operations = Operations(view, Catalog(), store.clock)
    store.only(Put, DRAINS)
    with pytest.raises(Unavailable):
        await operations.drain("f1", "")
    await operations.drain("f1", "once more")
    await operations.undrain("f1")
    with pytest.raises(NotFound):
        await operations.undrain("f1")
    await asyncio.sleep(LATE_S)
    assert store.arrived == [False]
    assert store.keys(DRAINS) == []
    store.only(Delete, DRAINS)
    await operations.drain("f1", "")
    with pytest.raises(Unavailable):
        await operations.undrain("f1")
    await operations.undrain("f1")
    await operations.drain("f1", "wanted")
    await asyncio.sleep(LATE_S)
    assert store.keys(DRAINS) == [DRAINS.key("f1")]
    await view.close()


@late
async def test_two_changes_at_once_are_made_one_after_the_other(store: Late) -> None:
    """Each was checked against what is there; both together might leave a topic with nowhere to go."""
    for name in ("f1", "f2", "f3"):
        store.put(MEMBERS.key(name), replace(ME, name=name).encode())
    view = ClusterView(store)
    await view.start()
    operations = Operations(view, Catalog(), store.clock)
    done = await asyncio.gather(operations.drain("f1", ""), operations.drain("f2", ""), return_exceptions=True)
    assert sum(isinstance(one, Aborted) for one in done) == 1
    await view.close()
