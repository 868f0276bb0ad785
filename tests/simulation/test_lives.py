"""Lives like those that once went wrong, by name. Each is replayed in its harness, and is good.

A seed is the same life only as long as the harness draws the same lots. So what made such a life is demanded of it:
where a seed has become another life, another one is looked for. What it once showed is a planted bug, too, where it can
be planted (see `planted`): that the harness still notices it is tested there.
"""

from __future__ import annotations

import pytest

from syncpoint.testing.simulation.chain_runs import run_chains
from syncpoint.testing.simulation.pipeline_runs import run_pipelines

LIVES = {
    "a clock is weeks wrong while messages are published": (1, {"fault: clock jump"}),
    "acknowledgements of unknown outcome, and messages that are read anew": (
        3,
        {"an acknowledgement fails", "a message is left to its deadline"},
    ),
    "disks lose their power": (17, {"fault: power cut"}),
    "owners whose registrations outlive them": (2, {"a chain is taken over from a living owner", "fault: takeover"}),
    "segments that little keeps": (14, {"what is needed is copied before it is deleted", "a fenced owner stops"}),
}


@pytest.mark.parametrize("name", LIVES)
def test_a_life_that_once_went_wrong(name: str) -> None:
    seed, wanted = LIVES[name]
    life = run_chains(seed)
    assert wanted <= set(life.happened), "the harness draws other lots: look for another seed in which this happens"
    assert life.violations == []


def test_a_seed_is_one_life() -> None:
    first, second = run_chains(3), run_chains(3)
    assert (first.digest, first.steps) == (second.digest, second.steps)


def test_a_life_of_pipelines_is_one_life() -> None:
    first, second = run_pipelines(7), run_pipelines(7)
    assert (first.digest, first.steps) == (second.digest, second.steps)
    assert first.violations == []
