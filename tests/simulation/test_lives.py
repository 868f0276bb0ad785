"""Lives that once went wrong, by name. Each is replayed in its world and is good.

A seed is the same life only as long as the world draws the same lots; so what such a life showed is a planted bug, too,
where it can be planted (see `planted`): that the world still notices it is tested there.
"""

from __future__ import annotations

import pytest

from syncpoint.testing.simulation.chain_runs import run_chains
from syncpoint.testing.simulation.planted import PLANTED

LIVES = {
    "a key's later message came ahead of an earlier one after an adoption": 31,
    "keys moved while messages of the same process waited for the disks": 42,
    "keys moved while messages waited for disks, and another process adopted them": 94,
    "what was delivered before a seek is acknowledged after it": 149,
    "the same, and a snapshot was taken between": 105,
    "a seek while a chain had nothing of the topic but its ledger": 450,
    "an answer from before a claim was given again after it, which is right": 451,
    "keys moved while two forwarders shared the chains": 132,
}


@pytest.mark.parametrize("name", LIVES)
def test_a_life_that_once_went_wrong(name: str) -> None:
    assert run_chains(LIVES[name]).violations == []


@pytest.mark.parametrize(("bug", "seed"), [("nobody goes on", 5), ("a source ends early", 8)])
def test_a_life_in_which_a_bug_was_noticed_first_is_good_without_it(bug: str, seed: int) -> None:
    planted = PLANTED[bug]
    assert run_chains(seed, shape=planted.shape, kinds=planted.kinds).violations == []
