"""Seeds of two and three sites that found something once: snapshots that were deleted, and keys of a lost site."""

from __future__ import annotations

import pytest

from syncpoint.testing.simulation.runner import SIMULATIONS

SEEDS = (
    299,  # the others had not told each other what they acknowledged when they were compared with a site that was back
    2151,  # a snapshot was deleted, and another one had taken its name
    2523,  # the same, by a program that was late
    2564,  # as 299
)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_it_found_is_mended(seed: int) -> None:
    assert SIMULATIONS["sites"].run(seed).violations == []
