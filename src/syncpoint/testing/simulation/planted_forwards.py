"""Bugs planted into subscriptions that forward in a cluster (`forwarded`). See `planted_bugs`."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable
from contextlib import AbstractContextManager

from syncpoint.base.model.reserved import FORWARDED_FROM
from syncpoint.broker.forward import forward_driver
from syncpoint.broker.forward.forward_driver import ForwardedSubscription
from syncpoint.broker.forward.forward_kind import ForwardKind
from syncpoint.broker.forward.forwarded_message import publish_request
from syncpoint.broker.inner.inner_consumer import InnerConsumer, Send
from syncpoint.broker.inner.inner_driver import Ended
from syncpoint.broker.inner.lent import Acknowledged, Lent
from syncpoint.catalog.metadata.records import Subscription
from syncpoint.testing.simulation.planted import planted
from syncpoint.testing.simulation.scaled import patched
from syncpoint.testing.simulation.scenario import run_cluster
from syncpoint.testing.simulation.sim_runs import RunResult
from syncpoint.wire.protobuf.messages import pubsub


def run(seed: int, *, shape: None, kinds: tuple[str, ...], beyond: bool = False) -> RunResult:
    """One seed in which something is forwarded, as `planted_bugs` runs it."""
    return run_cluster(4 * seed, kinds=kinds)


@planted(None, "crash", "restart", seed=6, run=run)
def forwards_are_acknowledged_before_they_are_published() -> AbstractContextManager[None]:
    """As if they were gathered for a second."""
    right = ForwardedSubscription.send

    async def late(self: ForwardedSubscription, effect: Send) -> Ended:
        self.perform([Acknowledged(tuple(one.ack_id for one in effect.lent))])
        await asyncio.sleep(1.0)
        return await right(self, effect)

    return patched(ForwardedSubscription, send=late)


@planted(None, "crash", "restart", seed=13, run=run)
def forwards_have_another_name_each_time() -> AbstractContextManager[None]:
    """What is forwarded again is not known by what it was called before."""
    times = itertools.count()

    def renamed(target: str, source: Subscription, lent: Iterable[Lent], among: int) -> bytes:
        request = pubsub.PublishRequest.FromString(publish_request(target, source, lent, among))
        for message in request.messages:
            message.attributes[FORWARDED_FROM] += f"/{next(times)}"
        return bytes(request.SerializeToString())

    return patched(forward_driver, publish_request=renamed)


@planted(None, "crash", "restart", seed=0, run=run)
def requests_of_a_key_are_under_way_together() -> AbstractContextManager[None]:
    """What waits of a key is published while what is before it is."""

    right = InnerConsumer._occupy

    def occupy(self: InnerConsumer, lane: str) -> None:
        if not isinstance(self.kind, ForwardKind):
            right(self, lane)

    return patched(InnerConsumer, _occupy=occupy)
