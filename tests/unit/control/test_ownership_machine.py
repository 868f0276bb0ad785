"""The claim machine: directed schedules, and hundreds of random ones over imagined metadata and disks."""

from __future__ import annotations

import pytest

from syncpoint.control.ownership_machine import QUIET_S, RETURN_HOLD_S
from tests.kit.ownership import TTL_S, Imagined

NAMES = ("f1", "f2", "f3")


def settled(seed: int = 1, chains_each: int = 1) -> Imagined:
    world = Imagined(seed, NAMES, chains_each)
    world.run(20)
    assert world.serving() == world.homes()
    return world


def test_everybody_opens_its_own_chains_at_a_start_and_no_others() -> None:
    world = Imagined(1, NAMES, chains_each=2)
    world.run(1.5)
    assert world.serving() == world.homes()
    world.run(60)
    assert len(world.claims) == 6


def test_a_killed_owner_is_replaced_before_its_lease_ends() -> None:
    world = settled()
    world.kill("f1")
    world.run(2.5)
    assert world.serving()[1] in ("f2", "f3")
    assert world.meta.epochs[1] == 2


def test_a_paused_owner_is_replaced_after_its_lease_and_wakes_as_nobody() -> None:
    world = settled()
    world.current["f1"].paused = True
    world.run(2.5)
    assert 1 not in world.serving()
    world.run(TTL_S + 1)
    assert world.serving()[1] in ("f2", "f3")
    world.current["f1"].paused = False
    world.run(1)
    assert 1 not in world.current["f1"].open


def test_the_chains_of_a_dead_owner_are_spread() -> None:
    world = settled(chains_each=4)
    world.kill("f1")
    world.run(5)
    now = world.serving()
    assert sorted(list(now.values()).count(name) for name in ("f2", "f3")) == [6, 6]
    assert len([1 for _, chain, _ in world.claims if chain <= 4]) == 8, "nobody takes what another took"


def test_a_chain_goes_home_once_its_home_has_been_back_for_a_while() -> None:
    world = settled(chains_each=3)
    world.kill("f1")
    world.run(30)
    world.start("f1")
    world.run(QUIET_S - 1)
    assert "f1" not in world.serving().values()
    world.run(QUIET_S + 10)
    assert world.serving() == world.homes()
    moved = [at for at, chain, name in world.claims if name == "f1"][3:]
    assert len(moved) == 3
    claims = len(world.claims)
    world.run(120)
    assert len(world.claims) == claims, "and then nothing moves any more"


def test_a_restarted_process_takes_its_chains_back_at_once() -> None:
    world = settled()
    world.kill("f1")
    world.run(0.1)
    world.start("f1")
    world.run(1.5)
    assert world.serving() == world.homes()


def test_without_metadata_owners_go_on_and_nobody_claims() -> None:
    world = settled()
    world.meta.up = False
    world.run(1)
    world.kill("f3")
    claims, serving = len(world.claims), world.serving()
    world.run(600)
    assert (len(world.claims), world.serving()) == (claims, serving)
    world.meta.up = True
    world.run(RETURN_HOLD_S + 5)
    assert {chain: world.serving()[chain] for chain in (1, 2)} == {1: "f1", 2: "f2"}, "owners confirm what they hold"
    assert world.meta.epochs[1] == world.meta.epochs[2] == 1
    assert world.serving()[3] in ("f1", "f2")


def test_a_drained_owner_hands_over_one_after_the_other_and_gets_its_chains_back() -> None:
    world = settled(chains_each=3)
    world.meta.drained.add("f1")
    world.run(30)
    assert "f1" not in world.serving().values()
    assert len(world.serving()) == 9
    world.meta.drained.clear()
    world.run(90)
    assert world.serving() == world.homes()


def test_when_all_are_drained_chains_stay_served() -> None:
    world = settled()
    world.meta.drained |= set(NAMES)
    world.run(30)
    assert len(world.serving()) == 3


def test_disks_that_know_a_higher_epoch_are_overtaken_soon() -> None:
    """As after a restored backup of the metadata: its epochs are older than those on the disks."""
    world = settled()
    for name in NAMES:
        world.kill(name)
    world.run(30)
    world.disks[1] = 500
    for name in NAMES:
        world.start(name)
    world.run(90)
    assert world.serving() == world.homes()
    assert world.meta.epochs[1] > 500


def test_a_chain_that_cannot_be_opened_is_tried_ever_more_rarely() -> None:
    world = settled()
    world.kill("f1")
    world.broken.add(1)
    world.run(60)
    tries = len([1 for _, chain, _ in world.claims if chain == 1])
    assert 5 < tries < 30
    world.broken.clear()
    world.run(15)
    assert 1 in world.serving()


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_one_owner_per_epoch_and_in_the_end_everything_at_home(seed: int) -> None:
    world = Imagined(seed, NAMES[: 2 + seed % 2], chains_each=1 + seed % 3)
    random, names = world.random, NAMES[: 2 + seed % 2]
    for _ in range(40):
        world.run(random.uniform(0.1, 8))
        name = random.choice(names)
        life = world.current[name]
        match random.randrange(7):
            case 0 | 1:
                if life.alive:
                    world.kill(name)
                else:
                    world.start(name)
            case 2:
                life.paused = not life.paused
            case 3:
                world.meta.up = not world.meta.up
            case 4:
                world.meta.drained ^= {name}
            case 5:
                world.broken ^= {random.choice(list(world.meta.chains))}
            case 6:
                pass
    world.meta.up = True
    world.meta.drained.clear()
    world.broken.clear()
    for name in names:
        world.current[name].paused = False
        if not world.current[name].alive:
            world.start(name)
    world.run(20)
    assert world.serving().keys() == world.homes().keys(), "everything is taken over"
    world.run(150)
    assert world.serving() == world.homes()
    for chain, name in world.serving().items():
        owner = world.meta.owners[chain].value
        assert (owner.member, owner.epoch) == (name, world.disks[chain])
