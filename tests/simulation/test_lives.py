"""Lives that once went wrong, by name. Each is replayed in its world and is good.

A seed is the same life only as long as the world draws the same lots; so what such a life showed is a planted bug, too,
where it can be planted (see `planted`): that the world still notices it is tested there.
"""

from __future__ import annotations

import pytest

from syncpoint.testing.simulation.chain_runs import run_chains

LIVES = {
    "a seek followed by an owner that fails": 14,
    "where what is acknowledged is not kept, a seek while acknowledgements are on their way": 24,
    "letters that wait for a chain": 28,
    "two disk servers killed one after the other, and a disk that lost its power": 17,
    "a clock weeks ahead while messages wait": 200,
}


@pytest.mark.parametrize("name", LIVES)
def test_a_life_that_once_went_wrong(name: str) -> None:
    assert run_chains(LIVES[name]).violations == []


def test_a_seed_is_one_life() -> None:
    first, second = run_chains(3), run_chains(3)
    assert (first.digest, first.steps) == (second.digest, second.steps)
