"""Chains have an owner: real members, leases, watches and calls in a simulation."""

from __future__ import annotations

import asyncio
import random

import pytest

from syncpoint.base.model.cluster import ChainOwner, Member
from syncpoint.catalog.metadata.contract import Delete, Put
from syncpoint.catalog.metadata.layout import DRAINS, MEMBERS, OWNERS
from syncpoint.cluster.control.membership import NameTaken
from syncpoint.cluster.control.ownership_machine import QUIET_S
from tests.kit.control import ControlHarness, in_harness
from tests.kit.examples import seeds


@in_harness(each=2)
async def test_everybody_opens_its_own(harness: ControlHarness) -> None:
    await harness.run(2)
    assert harness.disks.writers() == harness.homes
    assert set(harness.disks.epochs.values()) == {1}
    for forwarder in harness.forwarders.values():
        assert len(forwarder.driver.open_chains) == 2
    owner = ChainOwner.decode(harness.store.get(OWNERS.key(1)).value)  # type: ignore[union-attr]
    assert (owner.member, owner.epoch) == ("f1", 1)


@in_harness()
async def test_a_crash_is_answered_in_a_second_and_a_half(harness: ControlHarness) -> None:
    await harness.run(QUIET_S + 2)
    harness.crash("f1")
    await harness.run(1.5)
    assert harness.disks.writers()[1] in ("f2", "f3")
    await harness.run(5)
    assert harness.disks.epochs[1] == 2


@in_harness()
async def test_a_broken_connection_is_looked_into_at_once(harness: ControlHarness) -> None:
    """Nobody waits for the next round of pings, nor for the next tick."""
    await harness.run(QUIET_S + 2)
    harness.crash("f1")
    await harness.run(0.35)
    assert harness.disks.writers()[1] in ("f2", "f3")


@in_harness()
async def test_a_hung_owner_is_replaced_within_eight_seconds_and_wakes_shut_out(harness: ControlHarness) -> None:
    await harness.run(QUIET_S + 2)
    hung = harness.forwarders["f1"]
    hung.process.hang()
    await harness.run(7)
    assert harness.disks.writers()[1] in ("f2", "f3")
    hung.process.go_on()
    await harness.run(1)
    assert 1 not in hung.host.open_at
    await harness.run(30)
    assert harness.disks.writers() == harness.homes


@in_harness(each=2)
async def test_an_orderly_end_hands_everything_over(harness: ControlHarness) -> None:
    await harness.run(QUIET_S + 2)
    await harness.forwarders["f1"].process.start(harness.forwarders["f1"].stop())
    assert harness.store.get(MEMBERS.key("f1")) is None
    await harness.run(2)
    assert {harness.disks.writers()[chain] for chain in (1, 2)} == {"f2", "f3"}
    harness.start("f1")
    await harness.run(30)
    assert harness.disks.writers() == harness.homes


@in_harness(each=2)
async def test_drained_and_undrained(harness: ControlHarness) -> None:
    await harness.run(QUIET_S + 2)
    harness.store.txn([], [Put(DRAINS.key("f2"), b"{}")])
    await harness.run(5)
    assert "f2" not in harness.disks.writers().values()
    assert len(harness.disks.writers()) == 6
    harness.store.txn([], [Delete(DRAINS.key("f2"))])
    await harness.run(40)
    assert harness.disks.writers() == harness.homes


@in_harness()
async def test_the_metadata_away_for_ten_minutes(harness: ControlHarness) -> None:
    await harness.run(QUIET_S + 2)
    for forwarder in harness.forwarders.values():
        forwarder.store.cut = True
    await harness.run(600)
    assert harness.disks.writers() == harness.homes
    assert harness.store.range(OWNERS).items == []
    for forwarder in harness.forwarders.values():
        forwarder.store.cut = False
    await harness.run(6)
    assert harness.disks.writers() == harness.homes
    assert set(harness.disks.epochs.values()) == {1}, "nobody was disturbed"
    assert len(harness.store.range(OWNERS).items) == 3


@in_harness()
async def test_cut_off_from_the_metadata_alone(harness: ControlHarness) -> None:
    """Its lease ends, others take over, and it learns of it from the disks; later it gets its chain back."""
    await harness.run(QUIET_S + 2)
    harness.forwarders["f1"].store.cut = True
    await harness.run(8)
    assert harness.disks.writers()[1] in ("f2", "f3")
    assert 1 not in harness.forwarders["f1"].host.open_at
    harness.forwarders["f1"].store.cut = False
    await harness.run(30)
    assert harness.disks.writers() == harness.homes


@in_harness()
async def test_a_name_that_a_living_process_has_is_refused(harness: ControlHarness) -> None:
    await harness.run(2)
    first = harness.forwarders["f1"]
    harness.ports["f1"] = 0
    harness.start("f1")
    second = harness.forwarders["f1"]
    await harness.run(8)
    with pytest.raises(NameTaken, match=f"the name f1 is taken: a living process at {first.membership.me.address}"):
        second.started.result()
    assert not first.membership.superseded.is_set()
    assert first.host.open_at == {1: 1}
    assert harness.forwarders["f2"].view.members.get("f1") == first.membership.me


@in_harness()
async def test_a_process_that_was_cut_off_for_long_loses_its_name_and_says_so(harness: ControlHarness) -> None:
    await harness.run(2)
    first = harness.forwarders["f1"]
    first.store.cut = True
    await harness.run(6)
    harness.ports["f1"] = 0
    harness.start("f1")
    await harness.run(3)
    first.store.cut = False
    await harness.run(30)
    assert first.membership.superseded.is_set()
    assert first.membership.successor == harness.forwarders["f1"].membership.me
    found = Member.decode(harness.store.get(MEMBERS.key("f1")).value)  # type: ignore[union-attr]
    assert found.incarnation == harness.forwarders["f1"].membership.me.incarnation
    assert harness.forwarders["f1"].driver.open_chains == [1]
    assert first.host.open_at == {}


STORES = ("s1", "s2", "s3")


@in_harness()
async def test_an_owner_that_reaches_too_few_disks_gives_its_chain_to_one_that_reaches_enough(
    harness: ControlHarness,
) -> None:
    await harness.store_at(*STORES)
    await harness.run(QUIET_S + 2)
    assert harness.disks.writers() == harness.homes
    harness.network.part(["f1", "s1"], ["s2", "s3"])
    await harness.run(10)
    assert harness.disks.writers()[1] in ("f2", "f3")
    epoch = harness.disks.epochs[1]
    assert epoch == 2
    await harness.run(90)
    assert harness.disks.epochs == {1: 2, 2: 1, 3: 1}, "it is not asked for as long as it could not be served"
    harness.network.heal()
    await harness.run(QUIET_S + 20)
    assert harness.disks.writers() == harness.homes


@in_harness()
async def test_where_nobody_reaches_enough_disks_nothing_moves(harness: ControlHarness) -> None:
    await harness.store_at(*STORES)
    await harness.run(QUIET_S + 2)
    harness.network.part(["f1", "f2", "f3", "s1"], ["s2", "s3"])
    await harness.run(60)
    assert set(harness.disks.epochs.values()) == {1}
    harness.network.heal()
    await harness.run(30)
    assert set(harness.disks.epochs.values()) == {1}


@in_harness()
async def test_one_failure_domain_out_of_sight_moves_nothing(harness: ControlHarness) -> None:
    await harness.store_at(*STORES)
    await harness.run(QUIET_S + 2)
    harness.network.part(["f1"], ["s3"])
    await harness.run(60)
    assert set(harness.disks.epochs.values()) == {1}


@pytest.mark.parametrize("seed", seeds(3, 6))
def test_any_history(seed: int) -> None:
    chance = random.Random(seed)
    names = ("f1", "f2", "f3", "f4")[: 2 + seed % 3]

    @in_harness(seed, names, 1 + seed % 3)
    async def run(harness: ControlHarness) -> None:
        harness.network.break_chance = 0.01
        for _ in range(25):
            await harness.run(chance.uniform(0.2, 9))
            forwarder = harness.forwarders[chance.choice(names)]
            match chance.randrange(5):
                case 0 | 1:
                    if forwarder.process.alive:
                        forwarder.crash()
                    else:
                        harness.start(forwarder.name)
                case 2:
                    forwarder.store.cut = not forwarder.store.cut
                case 3:
                    harness.network.part([forwarder.name], names)
                case 4:
                    harness.network.heal()
        harness.network.heal()
        harness.network.break_chance = 0.0
        for forwarder in list(harness.forwarders.values()):
            forwarder.store.cut = False
            if not forwarder.process.alive:
                harness.start(forwarder.name)
        await harness.run(25)
        assert harness.disks.writers().keys() == harness.homes.keys()
        await harness.run(120)
        assert harness.disks.writers() == harness.homes

    run()


@in_harness()
async def test_an_opening_that_never_ends_does_not_keep_a_process_from_ending(harness: ControlHarness) -> None:
    await harness.run(QUIET_S + 2)
    stuck = harness.forwarders["f2"]

    async def never(record: object, epoch: int) -> None:
        await asyncio.sleep(3_600)

    stuck.host.open = never  # type: ignore[method-assign]
    harness.crash("f1")
    harness.crash("f3")
    await harness.run(5)
    before = harness.loop.time()
    await stuck.process.start(stuck.stop())
    assert harness.loop.time() - before < 25
    assert harness.store.range(OWNERS).items == []


@in_harness(names=("f1", "f2"))
async def test_killed_again_and_again_each_gap_is_short(harness: ControlHarness) -> None:
    await harness.run(QUIET_S + 2)
    gaps = []
    for _ in range(12):
        owner = harness.disks.writers()[1]
        harness.crash(owner)
        begun = harness.loop.time()
        while 1 not in harness.disks.writers():
            await asyncio.sleep(0.01)
        gaps.append(harness.loop.time() - begun)
        harness.start(owner)
        await harness.run(4)
    assert max(gaps) < 1.5
