"""Ledgers over any succession of steps: see `ledger_model`. SYNCPOINT_LEDGER_SEEDS=FIRST:COUNT runs other seeds."""

from __future__ import annotations

import os

import pytest

from syncpoint.testing.simulation.planted_rules import a_seek_while_nothing_is_stored_is_left_aside
from tests.kit.chain import ChainHarness, simulated
from tests.unit.publish.ledger_model import Run

FIRST, COUNT = (int(one) for one in os.environ.get("SYNCPOINT_LEDGER_SEEDS", "0:20").split(":"))
STEPS = 40


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_ledgers_are_what_a_plain_model_says(seed: int) -> None:
    reported: list[str] = []

    @simulated
    async def run(harness: ChainHarness) -> None:
        await Run(harness, seed, reported.append).run(STEPS)

    try:
        run()
    except Exception as error:
        raise AssertionError(f"seed {seed}: {error}\n" + "\n".join(reported[-25:])) from error


def test_a_seek_that_is_left_aside_while_nothing_is_stored_is_noticed() -> None:
    @simulated
    async def run(harness: ChainHarness) -> None:
        model = Run(harness, 3)
        for chain in model.chains:
            await model.open(chain)
        for step in (model.subscribe, model.publish, model.run_empty):
            await step()

    run()
    with a_seek_while_nothing_is_stored_is_left_aside(), pytest.raises(AssertionError, match="of generation 0, not 1"):
        run()
