"""The claim machine: directed schedules, and hundreds of random ones over imagined metadata and disks."""

from __future__ import annotations

import pytest

from syncpoint.base.model.cluster import PUBLISH, ChainOwner, ChainRecord, Member
from syncpoint.catalog.metadata.view import Versioned
from syncpoint.cluster.control.ownership_effects import ClaimChain, OwnershipView
from syncpoint.cluster.control.ownership_machine import QUIET_S, RETURN_HOLD_S, YOUNG_S, OwnershipMachine
from tests.kit.examples import seeds
from tests.kit.ownership import TTL_S, Imagined

NAMES = ("f1", "f2", "f3")


def completed(seed: int = 1, chains_each: int = 1) -> Imagined:
    harness = Imagined(seed, NAMES, chains_each)
    harness.run(20)
    assert harness.serving() == harness.homes()
    return harness


def test_everybody_opens_its_own_chains_at_a_start_and_no_others() -> None:
    harness = Imagined(1, NAMES, chains_each=2)
    harness.run(1.5)
    assert harness.serving() == harness.homes()
    harness.run(60)
    assert len(harness.claims) == 6


def test_a_killed_owner_is_replaced_before_its_lease_ends() -> None:
    harness = completed()
    harness.kill("f1")
    harness.run(2.5)
    assert harness.serving()[1] in ("f2", "f3")
    assert harness.meta.epochs[1] == 2


def test_a_paused_owner_is_replaced_after_its_lease_and_wakes_as_nobody() -> None:
    harness = completed()
    harness.current["f1"].paused = True
    harness.run(2.5)
    assert 1 not in harness.serving()
    harness.run(TTL_S + 1)
    assert harness.serving()[1] in ("f2", "f3")
    harness.current["f1"].paused = False
    harness.run(1)
    assert 1 not in harness.current["f1"].open


def test_the_chains_of_a_dead_owner_are_spread() -> None:
    harness = completed(chains_each=4)
    harness.kill("f1")
    harness.run(5)
    now = harness.serving()
    assert sorted(list(now.values()).count(name) for name in ("f2", "f3")) == [6, 6]
    assert len([1 for _, chain, _ in harness.claims if chain <= 4]) == 8, "nobody takes what another took"


def test_a_chain_goes_home_once_its_home_has_been_back_for_a_while() -> None:
    harness = completed(chains_each=3)
    harness.kill("f1")
    harness.run(30)
    harness.start("f1")
    harness.run(QUIET_S - 1)
    assert "f1" not in harness.serving().values()
    harness.run(QUIET_S + 10)
    assert harness.serving() == harness.homes()
    moved = [at for at, chain, name in harness.claims if name == "f1"][3:]
    assert len(moved) == 3
    claims = len(harness.claims)
    harness.run(120)
    assert len(harness.claims) == claims, "and then nothing moves any more"


def test_a_restarted_process_takes_its_chains_back_at_once() -> None:
    harness = completed()
    harness.kill("f1")
    harness.run(0.1)
    harness.start("f1")
    harness.run(1.5)
    assert harness.serving() == harness.homes()


def test_without_metadata_owners_go_on_and_nobody_claims() -> None:
    harness = completed()
    harness.meta.up = False
    harness.run(1)
    harness.kill("f3")
    claims, serving = len(harness.claims), harness.serving()
    harness.run(600)
    assert (len(harness.claims), harness.serving()) == (claims, serving)
    harness.meta.up = True
    harness.run(RETURN_HOLD_S + 5)
    assert {chain: harness.serving()[chain] for chain in (1, 2)} == {1: "f1", 2: "f2"}, "owners confirm what they hold"
    assert harness.meta.epochs[1] == harness.meta.epochs[2] == 1
    assert harness.serving()[3] in ("f1", "f2")


def test_a_drained_owner_hands_over_one_after_the_other_and_gets_its_chains_back() -> None:
    harness = completed(chains_each=3)
    harness.meta.drained.add("f1")
    harness.run(30)
    assert "f1" not in harness.serving().values()
    assert len(harness.serving()) == 9
    harness.meta.drained.clear()
    harness.run(90)
    assert harness.serving() == harness.homes()


def test_when_all_are_drained_chains_stay_served() -> None:
    harness = completed()
    harness.meta.drained |= set(NAMES)
    harness.run(30)
    assert len(harness.serving()) == 3


def test_disks_that_know_a_higher_epoch_are_overtaken_soon() -> None:
    """As after a restored backup of the metadata: its epochs are older than those on the disks."""
    harness = completed()
    for name in NAMES:
        harness.kill(name)
    harness.run(30)
    harness.disks[1] = 500
    for name in NAMES:
        harness.start(name)
    harness.run(90)
    assert harness.serving() == harness.homes()
    assert harness.meta.epochs[1] > 500


def test_a_chain_that_cannot_be_opened_is_tried_ever_more_rarely() -> None:
    harness = completed()
    harness.kill("f1")
    harness.broken.add(1)
    harness.run(60)
    tries = len([1 for _, chain, _ in harness.claims if chain == 1])
    assert 5 < tries < 30
    harness.broken.clear()
    harness.run(15)
    assert 1 in harness.serving()


@pytest.mark.parametrize(
    ("incarnation", "registered", "refusals", "claimed"),
    [
        pytest.param(1, 5, 0, False, id="it lives"),
        pytest.param(9, 5, 0, False, id="registered before it became owner, under another number"),
        pytest.param(9, 11, 0, True, id="started again"),
        pytest.param(1, 5, 2, False, id="refused, of a young ownership"),
    ],
)
def test_whose_chain_may_be_claimed(incarnation: int, registered: int, refusals: int, claimed: bool) -> None:
    machine = OwnershipMachine("f2", 2, 0.0)
    machine.leased(True, 0.0)
    members = {
        name: Versioned(Member(name, (PUBLISH,), f"{name}:1", number, region="r"), revision)
        for name, number, revision in (("f1", incarnation, registered), ("f2", 2, 6))
    }
    owner = Versioned(ChainOwner("f1", 1, 1, "f1:1"), 10)
    view = OwnershipView(members, frozenset(), {1: ChainRecord(1, "f1/default", "default", "r", "f1")}, {1: owner}, 11)
    for _ in range(refusals):
        machine.refused("f1", 1)
    effects = [effect for now in (10.0, 11.0) for effect in machine.step(now, view)]
    assert any(isinstance(effect, ClaimChain) for effect in effects) is claimed
    if refusals:
        assert [type(one) for now in (10 + YOUNG_S, 11 + YOUNG_S) for one in machine.step(now, view)] == [ClaimChain]


@pytest.mark.parametrize("seed", seeds(20, 40))
def test_whatever_happens_one_owner_per_epoch_and_in_the_end_everything_at_home(seed: int) -> None:
    harness = Imagined(seed, NAMES[: 2 + seed % 2], chains_each=1 + seed % 3)
    random, names = harness.random, NAMES[: 2 + seed % 2]
    for _ in range(40):
        harness.run(random.uniform(0.1, 8))
        name = random.choice(names)
        life = harness.current[name]
        match random.randrange(7):
            case 0 | 1:
                if life.alive:
                    harness.kill(name)
                else:
                    harness.start(name)
            case 2:
                life.paused = not life.paused
            case 3:
                harness.meta.up = not harness.meta.up
            case 4:
                harness.meta.drained ^= {name}
            case 5:
                harness.broken ^= {random.choice(list(harness.meta.chains))}
            case 6:
                pass
    harness.meta.up = True
    harness.meta.drained.clear()
    harness.broken.clear()
    for name in names:
        harness.current[name].paused = False
        if not harness.current[name].alive:
            harness.start(name)
    harness.run(20)
    assert harness.serving().keys() == harness.homes().keys(), "everything is taken over"
    harness.run(150)
    assert harness.serving() == harness.homes()
    for chain, name in harness.serving().items():
        owner = harness.meta.owners[chain].value
        assert (owner.member, owner.epoch) == (name, harness.disks[chain])


def test_time_alone_is_waited_for_only_while_something_is_to_be_decided() -> None:
    harness = completed()
    lives = [harness.current[name] for name in NAMES]
    assert all(life.machine.is_at_rest(harness.now) for life in lives)
    harness.kill("f1")
    harness.run(0.5)
    waiting = [life.machine for life in lives[1:]]
    assert not all(machine.is_at_rest(harness.now) for machine in waiting), "its chain waits for an owner"
    harness.run(60)
    assert all(machine.is_at_rest(harness.now) for machine in waiting)
    waiting[0].refused("f3", 3)
    assert not waiting[0].is_at_rest(harness.now)
    waiting[0].answered("f3", 3)
    harness.start("f1")
    harness.run(1)
    assert not harness.current["f1"].machine.is_at_rest(harness.now), "what is at home elsewhere is held back"
