"""Every bug planted into a shipped module is noticed within 200 seeds, by a life that is good without it.

`Planted.seed` is where it was noticed last; a change of the product may draw other lots, then it is looked for anew.
`make test` plants every fourth one, which are bugs of every kind, but for those whose lives are longest; `make planted`
plants all.
"""

from __future__ import annotations

import os

import pytest

from syncpoint.testing.simulation.planted_bugs import PLANTED, first_caught

SEEDS = 200
LONGEST = {
    "letters are acknowledged before they are redriven",
    "forwards are acknowledged before they are published",
    "ids end with the process that took them",
    "rule 10",
}
ALL = os.environ.get("SYNCPOINT_PLANTED") == "all"
NAMES = list(PLANTED) if ALL else [name for name in list(PLANTED)[::4] if name not in LONGEST]
FOUND = {name: PLANTED[name].seed for name in NAMES}
pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.shows("simulation"),
]  # a seed that shows nothing any more is looked for anew


@pytest.mark.parametrize("name", FOUND)
def test_a_planted_bug_is_noticed(name: str) -> None:
    found = first_caught(name, SEEDS, FOUND[name])
    assert found is not None
    print(f"{name}: seed {found[0]}, {found[1]}")
