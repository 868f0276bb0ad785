"""Bugs planted into pushes of a cluster; see `planted_bugs`. Noticed by `scenario`."""

from __future__ import annotations

from contextlib import AbstractContextManager

from syncpoint.push.pusher import Effect, Pusher
from syncpoint.testing.simulation.planted import planted
from syncpoint.testing.simulation.scaled import patched
from syncpoint.testing.simulation.scenario import run_cluster
from syncpoint.testing.simulation.sim_runs import RunResult


def run(seed: int, *, shape: None, kinds: tuple[str, ...], beyond: bool = False) -> RunResult:
    """One seed in which something is pushed, as `planted_bugs` runs it."""
    return run_cluster(4 * seed + 1)


@planted(None, seed=0, run=run)
def every_push_counts() -> AbstractContextManager[None]:
    """What is pushed is acknowledged, whatever the endpoint says."""
    answered = Pusher.answered

    def taken(self: Pusher, number: int, status: int | None, now: float) -> list[Effect]:
        return answered(self, number, 200, now)

    return patched(Pusher, answered=taken)
