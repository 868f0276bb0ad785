"""Bugs planted into copies that rules make, noticed where rules change in a cluster (`ruled`). See `planted_bugs`."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager
from typing import Any

from syncpoint.base.kernel.acks import decode_runs, encode_runs
from syncpoint.base.model.errors import Unavailable
from syncpoint.base.model.lanes import in_lane, place_in
from syncpoint.broker.publish.chain import chain as chain_module
from syncpoint.broker.publish.facts import recovery as publish_recovery
from syncpoint.broker.publish.facts.ledgers import AckVerdict, Ledgers
from syncpoint.catalog.metadata.entity_options import stopped_lanes
from syncpoint.catalog.metadata.records import Subscription
from syncpoint.cluster.control import expiry
from syncpoint.cluster.control.barrier import Barrier
from syncpoint.testing.simulation.planted import planted, together
from syncpoint.testing.simulation.scaled import patched
from syncpoint.testing.simulation.scenario import run_cluster
from syncpoint.testing.simulation.sim_runs import RunResult


def run(seed: int, *, shape: None, kinds: tuple[str, ...], beyond: bool = False) -> RunResult:
    """One seed in which rules change, as `planted_bugs` runs it."""
    return run_cluster(4 * seed + 2, kinds=kinds)


@planted(None, "crash", seed=3, run=run)
def rule_21_an_acknowledgement_counts_for_every_copy() -> AbstractContextManager[None]:
    """Who acknowledges one copy of a message has acknowledged the others."""
    right = Ledgers.acknowledge

    def acknowledge(self: Ledgers, subscription: int, generation: int, source: int, runs: bytes) -> AckVerdict:
        held = self.get(subscription)
        if held is not None and held.lanes:
            found = [(place_in(begin)[1], length) for begin, length in decode_runs(runs)]
            runs = encode_runs(sorted((in_lane(lane, begin), length) for begin, length in found for lane in held.lanes))
        return right(self, subscription, generation, source, runs)

    return patched(Ledgers, acknowledge=acknowledge)


@planted(None, "crash", "restart", seed=7, run=run)
def rule_21_an_adopter_draws_bounds_elsewhere() -> AbstractContextManager[None]:
    """Where lanes start and stop is where their sources end when a chain is opened."""
    right = publish_recovery.replay

    def replay(store: Any) -> Any:
        memory = right(store)
        for ledger in memory.ledgers.values():
            ledger.lanes.clear()
        return memory

    return patched(chain_module, replay=replay)


@planted(None, "hang", "crash", seed=7, run=run)
def lanes_are_removed_while_a_chain_is_away() -> AbstractContextManager[None]:
    """By what those chains say that answer at once. It is asked several times a second, so that some are away."""

    async def drained(self: Barrier, record: Subscription, revision: int) -> set[int]:
        found = set(stopped_lanes(record.options))
        for chain in await self._chains(record.topic_incarnation):
            try:
                async with asyncio.timeout(0.3):
                    answer = await self._confirm_one(
                        chain, record.topic_incarnation, revision, subscription=record.incarnation
                    )
            except (TimeoutError, Unavailable):
                continue
            found.intersection_update(answer.drained)
        return found

    return together(patched(Barrier, drained=drained), patched(expiry, EXPIRE_S=0.4))
