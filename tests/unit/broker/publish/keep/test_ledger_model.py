"""Ledgers over any succession of steps: see `ledger_model`. SYNCPOINT_LEDGER_SEEDS=FIRST:COUNT runs other seeds."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from syncpoint.base.kernel.acks import AckSet, decode_runs, encode_runs
from syncpoint.base.model.lanes import ends_of, in_lane, place_in
from syncpoint.broker.publish.facts.ledger import Ledger
from syncpoint.broker.publish.facts.ledgers import AckVerdict, Ledgers
from syncpoint.broker.publish.keep import lane_needs
from syncpoint.testing.simulation.planted_rules import a_seek_while_nothing_is_stored_is_left_aside
from syncpoint.testing.simulation.scaled import patched
from tests.kit.chain import ChainHarness, simulated
from tests.unit.broker.publish.ledger_model import Run

pytestmark = pytest.mark.shows("ledgers")

FIRST, COUNT = (int(one) for one in os.environ.get("SYNCPOINT_LEDGER_SEEDS", "0:20").split(":"))
STEPS = 40


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_ledgers_are_what_a_plain_model_says(seed: int) -> None:
    compared(seed)


@pytest.mark.parametrize("half", [0, pytest.param(1, marks=pytest.mark.long)])
def test_lanes_are_forgotten_when_nobody_can_want_anything_of_them(half: int) -> None:
    assert sum(compared(seed, ruled=True) for seed in range(FIRST + half, FIRST + COUNT, 2)) > 0


def compared(seed: int, *, ruled: bool = False) -> int:
    """How many lanes were forgotten."""
    reported: list[str] = []
    runs: list[Run] = []

    @simulated
    async def run(harness: ChainHarness) -> None:
        runs.append(Run(harness, seed, reported.append, ruled=ruled))
        await runs[0].run(2 * STEPS if ruled else STEPS)

    try:
        run()
    except Exception as error:
        raise AssertionError(f"seed {seed}: {error}\n" + "\n".join(reported[-25:])) from error
    return runs[0].forgotten_lanes


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


def an_acknowledgement_counts_in_every_lane() -> AbstractContextManager[None]:
    right = Ledgers.acknowledge

    def acknowledge(self: Ledgers, subscription: int, generation: int, source: int, runs: bytes) -> AckVerdict:
        held = self.get(subscription)
        if held is not None and held.lanes:
            found = [(place_in(begin)[1], length) for begin, length in decode_runs(runs)]
            runs = encode_runs([(in_lane(lane, begin), length) for begin, length in found for lane in held.lanes])
        return right(self, subscription, generation, source, runs)

    return patched(Ledgers, acknowledge=acknowledge)


def a_stopped_lane_begins_anew() -> AbstractContextManager[None]:
    """In sources that were opened after it was stopped."""

    def bound(self: Ledger, source: int, acks: AckSet) -> None:
        for lane, bounds in self.lanes.items():
            begin, end = ends_of(lane)
            acks.add(begin, begin + bounds.start.get(source, 0))
            if bounds.stop is not None and source in bounds.stop:
                acks.add(begin + bounds.stop[source], end)

    return patched(Ledger, _bound=bound)


def lanes_are_removed_while_a_chain_is_away() -> AbstractContextManager[None]:
    """By what the others say."""
    return patched(Run, is_enough=lambda self, answers: True)


def lanes_are_removed_for_what_waits_alone() -> AbstractContextManager[None]:
    """Whatever a seek of the subscription itself, or of another one, may bring back."""

    def keeps(self: Any, begin: int, end: int) -> bool:
        return any(not ledger.covers(self.number, begin, end) for _, ledger in self._waits[:1])

    return patched(lane_needs._SourceNeeds, keeps=keeps)


@pytest.mark.parametrize(
    ("planted", "ruled", "seed", "noticed"),
    [
        (an_acknowledgement_counts_in_every_lane, False, 15, "lost"),
        (a_stopped_lane_begins_anew, False, 15, "again"),
        (lanes_are_removed_while_a_chain_is_away, True, 27, "is forgotten with"),
        (lanes_are_removed_for_what_waits_alone, True, 10, "is forgotten with"),
    ],
)
def test_a_bug_planted_into_lanes_is_noticed(
    planted: Callable[[], AbstractContextManager[None]], ruled: bool, seed: int, noticed: str
) -> None:
    """In that seed, or in one of some others: a change of the product may draw other lots."""

    def is_noticed(drawn: int) -> bool:
        @simulated
        async def run(harness: ChainHarness) -> None:
            await Run(harness, drawn, ruled=ruled).run(2 * STEPS)

        try:
            run()
        except AssertionError as error:
            return noticed in str(error)
        return False

    with planted():
        assert any(map(is_noticed, (seed, *range(40))))
