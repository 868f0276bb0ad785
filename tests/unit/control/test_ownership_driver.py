"""Chains have an owner: real members, leases, watches and calls in a simulated world."""

from __future__ import annotations

import asyncio
import random

import pytest

from syncpoint.control.membership import NameTaken
from syncpoint.control.ownership_machine import QUIET_S
from syncpoint.metadata.contract import Delete, Put
from syncpoint.metadata.layout import DRAINS, MEMBERS, OWNERS
from syncpoint.model.cluster import ChainOwner, Member
from tests.kit.control import ControlWorld, in_world


@in_world(each=2)
async def test_everybody_opens_its_own(world: ControlWorld) -> None:
    await world.run(2)
    assert world.disks.writers() == world.homes
    assert set(world.disks.epochs.values()) == {1}
    for forwarder in world.forwarders.values():
        assert len(forwarder.keeper.open_chains) == 2
    owner = ChainOwner.decode(world.store.get(OWNERS.key(1)).value)  # type: ignore[union-attr]
    assert (owner.member, owner.epoch) == ("f1", 1)


@in_world()
async def test_a_crash_is_answered_in_a_second_and_a_half(world: ControlWorld) -> None:
    await world.run(QUIET_S + 2)
    world.crash("f1")
    await world.run(1.5)
    assert world.disks.writers()[1] in ("f2", "f3")
    await world.run(5)
    assert world.disks.epochs[1] == 2


@in_world()
async def test_a_broken_connection_is_looked_into_at_once(world: ControlWorld) -> None:
    """Nobody waits for the next round of pings, nor for the next tick."""
    await world.run(QUIET_S + 2)
    world.crash("f1")
    await world.run(0.35)
    assert world.disks.writers()[1] in ("f2", "f3")


@in_world()
async def test_a_hung_owner_is_replaced_within_eight_seconds_and_wakes_shut_out(world: ControlWorld) -> None:
    await world.run(QUIET_S + 2)
    hung = world.forwarders["f1"]
    hung.process.hang()
    await world.run(7)
    assert world.disks.writers()[1] in ("f2", "f3")
    hung.process.go_on()
    await world.run(1)
    assert 1 not in hung.host.open_at
    await world.run(30)
    assert world.disks.writers() == world.homes


@in_world(each=2)
async def test_an_orderly_end_hands_everything_over(world: ControlWorld) -> None:
    await world.run(QUIET_S + 2)
    await world.forwarders["f1"].process.start(world.forwarders["f1"].stop())
    assert world.store.get(MEMBERS.key("f1")) is None
    await world.run(2)
    assert {world.disks.writers()[chain] for chain in (1, 2)} == {"f2", "f3"}
    world.start("f1")
    await world.run(30)
    assert world.disks.writers() == world.homes


@in_world(each=2)
async def test_drained_and_undrained(world: ControlWorld) -> None:
    await world.run(QUIET_S + 2)
    world.store.txn([], [Put(DRAINS.key("f2"), b"{}")])
    await world.run(5)
    assert "f2" not in world.disks.writers().values()
    assert len(world.disks.writers()) == 6
    world.store.txn([], [Delete(DRAINS.key("f2"))])
    await world.run(40)
    assert world.disks.writers() == world.homes


@in_world()
async def test_the_metadata_away_for_ten_minutes(world: ControlWorld) -> None:
    await world.run(QUIET_S + 2)
    for forwarder in world.forwarders.values():
        forwarder.store.cut = True
    await world.run(600)
    assert world.disks.writers() == world.homes
    assert world.store.range(OWNERS).items == []
    for forwarder in world.forwarders.values():
        forwarder.store.cut = False
    await world.run(6)
    assert world.disks.writers() == world.homes
    assert set(world.disks.epochs.values()) == {1}, "nobody was disturbed"
    assert len(world.store.range(OWNERS).items) == 3


@in_world()
async def test_cut_off_from_the_metadata_alone(world: ControlWorld) -> None:
    """Its lease ends, others take over, and it hears of it from the disks; later it gets its chain back."""
    await world.run(QUIET_S + 2)
    world.forwarders["f1"].store.cut = True
    await world.run(8)
    assert world.disks.writers()[1] in ("f2", "f3")
    assert 1 not in world.forwarders["f1"].host.open_at
    world.forwarders["f1"].store.cut = False
    await world.run(30)
    assert world.disks.writers() == world.homes


@in_world()
async def test_a_name_that_a_living_process_has_is_refused(world: ControlWorld) -> None:
    await world.run(2)
    first = world.forwarders["f1"]
    world.ports["f1"] = 0
    world.start("f1")
    second = world.forwarders["f1"]
    await world.run(8)
    with pytest.raises(NameTaken, match=f"the name f1 is taken: a living process at {first.membership.me.address}"):
        second.started.result()
    assert not first.membership.superseded.is_set()
    assert first.host.open_at == {1: 1}
    assert world.forwarders["f2"].view.members.get("f1") == first.membership.me


@in_world()
async def test_a_process_that_was_cut_off_for_long_loses_its_name_and_says_so(world: ControlWorld) -> None:
    await world.run(2)
    first = world.forwarders["f1"]
    first.store.cut = True
    await world.run(6)
    world.ports["f1"] = 0
    world.start("f1")
    await world.run(3)
    first.store.cut = False
    await world.run(30)
    assert first.membership.superseded.is_set()
    assert first.membership.successor == world.forwarders["f1"].membership.me
    found = Member.decode(world.store.get(MEMBERS.key("f1")).value)  # type: ignore[union-attr]
    assert found.incarnation == world.forwarders["f1"].membership.me.incarnation
    assert world.forwarders["f1"].keeper.open_chains == [1]
    assert first.host.open_at == {}


STORES = ("s1", "s2", "s3")


@in_world()
async def test_an_owner_that_reaches_too_few_disks_gives_its_chain_to_one_that_reaches_enough(
    world: ControlWorld,
) -> None:
    await world.store_at(*STORES)
    await world.run(QUIET_S + 2)
    assert world.disks.writers() == world.homes
    world.network.part(["f1", "s1"], ["s2", "s3"])
    await world.run(10)
    assert world.disks.writers()[1] in ("f2", "f3")
    epoch = world.disks.epochs[1]
    assert epoch == 2
    await world.run(90)
    assert world.disks.epochs == {1: 2, 2: 1, 3: 1}, "it is not asked for as long as it could not be served"
    world.network.heal()
    await world.run(QUIET_S + 20)
    assert world.disks.writers() == world.homes


@in_world()
async def test_where_nobody_reaches_enough_disks_nothing_moves(world: ControlWorld) -> None:
    await world.store_at(*STORES)
    await world.run(QUIET_S + 2)
    world.network.part(["f1", "f2", "f3", "s1"], ["s2", "s3"])
    await world.run(60)
    assert set(world.disks.epochs.values()) == {1}
    world.network.heal()
    await world.run(30)
    assert set(world.disks.epochs.values()) == {1}


@in_world()
async def test_one_failure_domain_out_of_sight_moves_nothing(world: ControlWorld) -> None:
    await world.store_at(*STORES)
    await world.run(QUIET_S + 2)
    world.network.part(["f1"], ["s3"])
    await world.run(60)
    assert set(world.disks.epochs.values()) == {1}


@pytest.mark.parametrize("seed", range(6))
def test_any_history(seed: int) -> None:
    chance = random.Random(seed)
    names = ("f1", "f2", "f3", "f4")[: 2 + seed % 3]

    @in_world(seed, names, 1 + seed % 3)
    async def run(world: ControlWorld) -> None:
        world.network.break_chance = 0.01
        for _ in range(25):
            await world.run(chance.uniform(0.2, 9))
            forwarder = world.forwarders[chance.choice(names)]
            match chance.randrange(5):
                case 0 | 1:
                    if forwarder.process.alive:
                        forwarder.crash()
                    else:
                        world.start(forwarder.name)
                case 2:
                    forwarder.store.cut = not forwarder.store.cut
                case 3:
                    world.network.part([forwarder.name], names)
                case 4:
                    world.network.heal()
        world.network.heal()
        world.network.break_chance = 0.0
        for forwarder in list(world.forwarders.values()):
            forwarder.store.cut = False
            if not forwarder.process.alive:
                world.start(forwarder.name)
        await world.run(25)
        assert world.disks.writers().keys() == world.homes.keys()
        await world.run(120)
        assert world.disks.writers() == world.homes

    run()


@in_world()
async def test_an_opening_that_never_ends_does_not_keep_a_process_from_ending(world: ControlWorld) -> None:
    await world.run(QUIET_S + 2)
    stuck = world.forwarders["f2"]

    async def never(record: object, epoch: int) -> None:
        await asyncio.sleep(3_600)

    stuck.host.open = never  # type: ignore[method-assign]
    world.crash("f1")
    world.crash("f3")
    await world.run(5)
    before = world.loop.time()
    await stuck.process.start(stuck.stop())
    assert world.loop.time() - before < 25
    assert world.store.range(OWNERS).items == []


@in_world(names=("f1", "f2"))
async def test_killed_again_and_again_each_gap_is_short(world: ControlWorld) -> None:
    await world.run(QUIET_S + 2)
    gaps = []
    for _ in range(12):
        owner = world.disks.writers()[1]
        world.crash(owner)
        begun = world.loop.time()
        while 1 not in world.disks.writers():
            await asyncio.sleep(0.01)
        gaps.append(world.loop.time() - begun)
        world.start(owner)
        await world.run(4)
    assert max(gaps) < 1.5
