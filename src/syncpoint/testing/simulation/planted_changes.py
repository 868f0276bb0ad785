"""A bug planted into what a change waits for before it is answered (`acted_changes`). See `planted_bugs`."""

from __future__ import annotations

from contextlib import AbstractContextManager

from syncpoint.catalog.metadata.records import CatalogChange, Record, Subscription, Topic
from syncpoint.cluster.control.plane import ControlPlane
from syncpoint.testing.simulation.planted import planted
from syncpoint.testing.simulation.scaled import patched
from syncpoint.testing.simulation.scenario import run_cluster
from syncpoint.testing.simulation.sim_runs import RunResult


def run(seed: int, *, shape: None, kinds: tuple[str, ...], beyond: bool = False) -> RunResult:
    """One seed in which chains are checked after changes, as `planted_bugs` runs it."""
    return run_cluster(4 * seed + 3, kinds=kinds)


@planted(None, "hang", "metadata outage", "partition", seed=18, run=run)
def a_change_that_is_asked_for_again_asks_no_chain() -> AbstractContextManager[None]:
    """What is in the catalog already is answered, though not every chain has confirmed it."""
    right = ControlPlane._confirm

    async def confirm(self: ControlPlane, change: CatalogChange, known: Record | None) -> None:
        if isinstance(known, Topic | Subscription):
            self._note(known)
        await right(self, change, known)

    async def at_once(self: ControlPlane, record: Subscription) -> None:
        """Ask nobody."""

    return patched(ControlPlane, _confirm=confirm, confirm=at_once)
