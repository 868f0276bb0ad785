"""Bugs planted into pushes of a cluster; see `planted_bugs`. Noticed by `scenario`."""

from __future__ import annotations

from contextlib import AbstractContextManager

from syncpoint.broker.inner.inner_consumer import SendOutcome
from syncpoint.broker.inner.inner_driver import Ended
from syncpoint.broker.inner.lent import Lent
from syncpoint.broker.push.push_config import Endpoint
from syncpoint.broker.push.push_driver import PushedSubscription
from syncpoint.testing.simulation.planted import planted
from syncpoint.testing.simulation.scaled import patched
from syncpoint.testing.simulation.scenario import run_cluster
from syncpoint.testing.simulation.sim_runs import RunResult
from syncpoint.wire.protobuf.messages import pubsub


def run(seed: int, *, shape: None, kinds: tuple[str, ...], beyond: bool = False) -> RunResult:
    """One seed in which something is pushed, as `planted_bugs` runs it."""
    return run_cluster(4 * seed + 1)


@planted(None, seed=0, run=run)
def every_push_counts() -> AbstractContextManager[None]:
    """What is pushed is acknowledged, whatever the endpoint says."""
    right = PushedSubscription._push

    async def taken(
        self: PushedSubscription, lent: Lent, endpoint: Endpoint | None, config: pubsub.PushConfig
    ) -> Ended:
        await right(self, lent, endpoint, config)
        return Ended(SendOutcome.STORED)

    return patched(PushedSubscription, _push=taken)
