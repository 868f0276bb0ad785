"""Every bug planted into a shipped module is noticed within 200 seeds, by a life that is good without it.

`Planted.seed` is where it was noticed last; a change of the product may draw other lots, then it is looked for anew.
`make test` plants every fourth one, which are bugs of every kind; `make planted` plants all.
"""

from __future__ import annotations

import os

import pytest

from syncpoint.testing.simulation.planted_bugs import PLANTED, first_caught

SEEDS = 200
EVERY = 1 if os.environ.get("SYNCPOINT_PLANTED") == "all" else 4
FOUND = {name: PLANTED[name].seed for name in list(PLANTED)[::EVERY]}
pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("name", FOUND)
def test_a_planted_bug_is_noticed(name: str) -> None:
    found = first_caught(name, SEEDS, FOUND[name])
    assert found is not None
    print(f"{name}: seed {found[0]}, {found[1]}")
