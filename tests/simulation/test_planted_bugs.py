"""Every bug planted into a shipped module is noticed, and the same life is good without it.

The seeds are the first that notice, within 200, as `tools/sim.py --planted` finds them; it finds others when the worlds
draw other lots.
"""

from __future__ import annotations

import pytest

from syncpoint.testing.simulation.planted import PLANTED, caught, is_good_without

SEEDS = 200
FOUND = {name: planted.seed for name, planted in PLANTED.items() if planted.seed is not None}


@pytest.mark.parametrize("name", FOUND)
def test_a_planted_bug_is_noticed(name: str) -> None:
    seed = FOUND[name]
    assert 0 <= seed < SEEDS
    assert caught(name, seed) is not None, "look for another seed: tools/sim.py --planted"
    assert is_good_without(name, seed) == []
