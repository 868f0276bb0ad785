"""Lives that once went wrong, by name. Each is replayed in its world and is good.

A seed is the same life only as long as the world draws the same lots; so what such a life showed is a planted bug, too,
where it can be planted (see `planted`): that the world still notices it is tested there.
"""

from __future__ import annotations

import pytest

from syncpoint.testing.simulation.chain_runs import run_chains

LIVES = {
    "a clock weeks behind while messages are published": 1,
    "an acknowledgement of unknown outcome, whose message was read anew under the same grant": 8,
    "a disk that lost its power where nothing is synced": 17,
    "a registration that an earlier owner left": 2,
    "segments that only facts keep": 24,
}


@pytest.mark.parametrize("name", LIVES)
def test_a_life_that_once_went_wrong(name: str) -> None:
    assert run_chains(LIVES[name]).violations == []


def test_a_seed_is_one_life() -> None:
    first, second = run_chains(3), run_chains(3)
    assert (first.digest, first.steps) == (second.digest, second.steps)
