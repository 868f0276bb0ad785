"""Bugs planted into changes that every chain has to act by in a cluster (`acted_changes`). See `planted_bugs`."""

from __future__ import annotations

from contextlib import AbstractContextManager

from syncpoint.control import plane
from syncpoint.control.plane import ControlPlane
from syncpoint.metadata.records import CatalogChange, ChangeOp, Record, Subscription, Topic
from syncpoint.testing.simulation.planted import planted
from syncpoint.testing.simulation.scaled import patched
from syncpoint.testing.simulation.scenario import run_cluster
from syncpoint.testing.simulation.sim_runs import RunResult


def run(seed: int, *, shape: None, kinds: tuple[str, ...], beyond: bool = False) -> RunResult:
    """One seed in which chains are checked after changes, as `planted_bugs` runs it."""
    return run_cluster(4 * seed + 3, kinds=kinds)


@planted(None, "partition", "metadata outage", "hang", seed=0, run=run)
def a_change_that_is_asked_for_again_is_not_confirmed() -> AbstractContextManager[None]:
    """Where the catalog has a change already no chain is asked, whether all have confirmed it or not."""
    right = ControlPlane._confirm

    async def confirm(self: ControlPlane, change: CatalogChange, known: Record | None) -> None:
        record = change.record
        if change.op is ChangeOp.PUT:
            if isinstance(record, Subscription) and isinstance(known, Subscription):
                if plane._kept(record) == plane._kept(known):
                    return
            elif (
                isinstance(record, Topic) and isinstance(known, Topic) and plane._stored(record) == plane._stored(known)
            ):
                return
        await right(self, change, known)

    return patched(ControlPlane, _confirm=confirm)
