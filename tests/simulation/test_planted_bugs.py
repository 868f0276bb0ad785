"""Every bug planted into a shipped module is caught within 200 seeds; the same worlds are good without it."""

import multiprocessing

import pytest

from syncpoint.testing.simulation.chain_runs import run_chains
from syncpoint.testing.simulation.planted import PLANTED, first_caught

SEEDS = 200
pytestmark = pytest.mark.timeout(300)  # the first test waits until all bugs are found


def caught(name: str) -> tuple[str, int, str]:
    """In a process of its own: patches of modules do not meet."""
    found = first_caught(name, SEEDS, run_chains)
    return (name, *found) if found is not None else (name, -1, "")


@pytest.fixture(scope="module")
def found() -> dict[str, tuple[int, str]]:
    """All bugs are looked for at once, on all cores."""
    with multiprocessing.get_context("spawn").Pool() as pool:
        return {name: (seed, how) for name, seed, how in pool.imap_unordered(caught, list(PLANTED))}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_caught(name: str, found: dict[str, tuple[int, str]]) -> None:
    seed, how = found[name]
    assert seed >= 0, f"not noticed in {SEEDS} seeds"
    print(f"{name}: seed {seed}, {how}")
    planted = PLANTED[name]
    assert run_chains(seed, shape=planted.shape, kinds=planted.kinds, beyond=planted.beyond).violations == []
