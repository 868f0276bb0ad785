"""Lives like those that once went wrong, by name. Each is replayed in its harness, and is good.

A seed is the same life only as long as the harness draws the same lots. So what made such a life is demanded of it:
where a seed has become another life, another one is looked for. What it once showed is a planted bug, too, where it can
be planted (see `planted`): that the harness still notices it is tested there.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from syncpoint.testing.simulation.chain_runs import run_chains
from syncpoint.testing.simulation.delivery_runs import run_delivery
from syncpoint.testing.simulation.pipeline_runs import run_pipelines
from syncpoint.testing.simulation.scenario import run_cluster
from syncpoint.testing.simulation.scheduled_runs import run_scheduled
from syncpoint.testing.simulation.topology import Topology

pytestmark = pytest.mark.shows("simulation")

LIVES = {
    "a clock is weeks wrong while messages are published": (1, {"fault: clock jump"}),
    "acknowledgements of unknown outcome, and messages that are read anew": (
        3,
        {"an acknowledgement fails", "a message is left to its deadline"},
    ),
    "disks lose their power": (17, {"fault: power cut"}),
    "owners whose registrations outlive them": (1, {"a chain is taken over from a living owner", "fault: takeover"}),
    "segments that little keeps": (14, {"what is needed is copied before it is deleted", "a fenced owner stops"}),
}


@pytest.mark.parametrize("name", LIVES)
def test_a_life_that_once_went_wrong(name: str) -> None:
    seed, wanted = LIVES[name]
    life = run_chains(seed)
    assert wanted <= set(life.happened), "the harness draws other lots: look for another seed in which this happens"
    assert life.violations == []


def test_a_cluster_in_which_messages_are_read_while_their_copies_are_persisted() -> None:
    """Copied forward behind its disks, which were slow; see `tests/unit/log/storage/test_copied_reads.py`."""
    assert run_cluster(50057).violations == []


def test_a_cluster_whose_rules_change_for_all_while_chains_have_no_owner() -> None:
    """Lanes that recovery brings back say nothing; see `tests/unit/broker/publish/facts/test_lane_bounds.py`."""
    assert run_cluster(71003).violations == []


def test_a_life_in_which_steps_of_a_subscribe_forwarder_fail_for_long() -> None:
    """What was begun anew again and again waits for it no longer than ten seconds; see
    `tests/unit/broker/subscribe/test_gather.py`.
    """
    life = run_delivery(71051)
    assert "fault: steps of a subscribe forwarder fail" in life.happened
    assert life.violations == []


def test_a_life_of_pipelines_whose_oldest_sources_lose_their_newest_messages_first() -> None:
    """A source ends where it ended; see `tests/unit/broker/publish/facts/test_source_ends.py`."""
    life = run_pipelines(91056)
    assert "a range has a gap" in life.happened
    assert life.violations == []


def test_a_life_in_which_the_clocks_of_most_machines_are_ahead() -> None:
    """Scheduled messages come early by no more than that; see `tests/unit/testing/simulation/test_clocks.py`."""
    life = run_scheduled(91550)
    assert "fault: clock jump" in life.happened
    assert life.violations == []


@pytest.mark.parametrize(
    "shape", [Topology(3, 1), Topology(1, 3), Topology(3, 3, spread=True)], ids=["3x1", "1x3", "3x3"]
)
def test_chains_are_served_while_storage_is_away_for_long(shape: Topology) -> None:
    """Each cluster, or each disk of the only one, in turn; owners die in the meantime."""
    places = range(0, shape.clusters * shape.disks, shape.disks if shape.clusters > 1 else 1)
    wanted = {f"storage is away from place {place} of a chain's list on" for place in places}
    seen: set[str] = set()
    for seed in range(20):
        life = run_chains(seed, shape=replace(shape, lasting=True), kinds=("storage away",))
        assert life.violations == []
        assert life.happened["a chain is taken over while storage is away"]
        seen |= set(life.happened)
        if wanted <= seen:
            return
    raise AssertionError(f"never: {sorted(wanted - seen)}")


def test_a_seed_is_one_life() -> None:
    first, second = run_chains(3), run_chains(3)
    assert (first.digest, first.steps) == (second.digest, second.steps)


def test_a_life_of_pipelines_is_one_life() -> None:
    first, second = run_pipelines(7), run_pipelines(7)
    assert (first.digest, first.steps) == (second.digest, second.steps)
    assert first.violations == []
