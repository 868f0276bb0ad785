"""Bugs planted into what serves pipelines on clusters; see `planted_bugs`. Noticed by `pipeline_clusters`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from typing import Any

from syncpoint.base.model.errors import Unavailable
from syncpoint.broker.pipeline.mounting import ChainHome, ChainPipelines
from syncpoint.front.proxy.pipeline_chains import ChainCalls
from syncpoint.front.proxy.pipeline_writing import ClusterWriter
from syncpoint.testing.simulation.planted import planted, together
from syncpoint.testing.simulation.planted_pipelines import ONE_PLAIN
from syncpoint.testing.simulation.scaled import patched
from syncpoint.testing.simulation.sim_runs import RunResult
from syncpoint.testing.simulation.simulated_jobs import PipelineShape
from syncpoint.wire.protobuf.messages import pipeline


def run(seed: int, *, shape: PipelineShape | None, kinds: tuple[str, ...], beyond: bool = False) -> RunResult:
    """One seed of this simulation, as `planted_bugs` runs it."""
    from syncpoint.testing.simulation.pipeline_clusters import run_cluster_pipelines  # needs pyspark

    return run_cluster_pipelines(seed, shape=shape, kinds=kinds)


@planted(ONE_PLAIN, "owner killed in a commit", "crash", seed=47, run=run)
def queries_have_no_home() -> AbstractContextManager[None]:
    """Every call of a query goes to the chain that comes first of those that are open now, which takes it."""

    async def anywhere(self: ClusterWriter, query: str, link: str, topic: Any, deadline: float) -> int:
        return await self._chosen(link or query, topic, deadline)

    async def unknown(self: ClusterWriter, query: str, link: str) -> int | None:
        return None

    async def admit(self: ChainHome, query: str, link: str) -> None:
        """Everybody is welcome."""

    def knows(self: ChainHome, query: str, link: str) -> bool:
        return True

    return together(
        patched(ClusterWriter, _home=anywhere, _known_home=unknown),
        patched(ChainHome, admit=admit, knows=knows),
    )


@planted(ONE_PLAIN, "crash", "hang", "partition", seed=0, run=run)
def a_chain_that_is_away_is_left_out() -> AbstractContextManager[None]:
    """Positions are those of the chains that answer."""
    call = ChainCalls.call

    async def reported(self: ChainCalls, chain: int, path: str, request: bytes, deadline: float, **more: Any) -> bytes:
        try:
            return await call(self, chain, path, request, deadline - 29.0 if "Positions" in path else deadline, **more)
        except Unavailable:
            if "Positions" not in path:
                raise
            empty: bytes = pipeline.Positions().SerializeToString()
            return empty

    return patched(ChainCalls, call=reported)


@planted(ONE_PLAIN, "crash", seed=1, run=run)
def decisions_are_not_pinned() -> AbstractContextManager[None]:
    """A chain is not registered for the topics of an epoch before it decides it."""

    async def pin(self: ChainHome, topics: Collection[int]) -> None:
        """Nobody is notified."""

    return patched(ChainHome, pin=pin, unpin=lambda self, topics: None)


@planted(ONE_PLAIN, "crash", "restart", seed=14, run=run)
def cursors_begin_late() -> AbstractContextManager[None]:
    """A chain has a cursor from when it learns of it from a reader, not from its first message of the topic on."""
    return patched(ChainPipelines, opening=lambda self, topic: None)


@planted(ONE_PLAIN, "crash", "restart", "metadata outage", seed=0, run=run)
def an_epoch_says_what_was_read() -> AbstractContextManager[None]:
    """A source is taken for read when one of a later epoch was, in whatever chain."""
    from pyspark_pubsub import offsets as plans  # needs pyspark

    def passed(number: int, place: tuple[int, int], places: Mapping[int, tuple[int, int]]) -> bool:
        return any((other[0], other[1], later) > (*place, number) for later, other in places.items())

    return patched(plans, _passed=passed)
