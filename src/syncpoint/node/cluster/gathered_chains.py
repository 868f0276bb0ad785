"""Messages gathered from the chains of all publish forwarders, and dead letters published as anybody's are.

Place: the `Upstream` of a process of a cluster, and of a worker.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from syncpoint.base.model.errors import SyncpointError
from syncpoint.base.runtime.tasks import Tasks
from syncpoint.base.runtime.ticks import Ticks
from syncpoint.broker.subscribe.gather import Gatherer
from syncpoint.broker.subscribe.lease_holder import lender_of
from syncpoint.broker.subscribe.link import ServeLink
from syncpoint.broker.subscribe.subscribe_forwarder import REST_S, TICK_S, SubscribeForwarder
from syncpoint.cluster.control.usage_reports import UsageReporter
from syncpoint.front.api.connected_clients import STREAM_NAME
from syncpoint.node.cluster.context import ClusterContext
from syncpoint.node.process_metrics import Measured
from syncpoint.node.subscribe_role import Fetching, SubscribeRole, Upstream
from syncpoint.watch.metrics.role_families import GATHERING, StatusRoom, gathering

LINGER_S: Final = 5.0


class GatheredChains(Upstream):
    """Deliver from the chains of a cluster."""

    def __init__(self, context: ClusterContext) -> None:
        self._context = context
        self._publishing, self._ticking = Tasks(), Tasks()
        self._used_at = 0.0

    async def fetching(self) -> Fetching:
        context = self._context
        lender = context.process.name, context.incarnation
        self.gatherer = Gatherer(
            *lender,
            context.catalog,
            context.directory,
            context.clock,
            connect=partial(ServeLink, context.environment.network),
            publish=self._publish,
            registered=None,
        )
        context.directory.on_change.append(self.gatherer.changed)
        # One guard, so that failures of both are counted together.
        return Fetching(self.gatherer, context.ack_key, lender_of(*lender), LINGER_S, self.gatherer.guard)

    def serve(self, role: SubscribeRole) -> None:
        context, access = self._context, self._context.access_file()
        context.shared.on_change.append(role.forwarder.follow)
        if access is not None:
            role.heed(access)
            if context.environment.apart.account is None:
                context.environment.apart.account = access.cpu
                context.environment.apart.share(access.cpu.share_of)
        role.streams.named = lambda stream: stream.metadata.get(STREAM_NAME, b"").decode("utf-8", "replace")
        self._uses = UsageReporter(context.store, context.clock, lambda: self._used(role.forwarder))
        self._uses.start()
        self._ticking.start(self._tick(role.forwarder))

    async def on_joined(self) -> None:
        """From now on publish forwarders can distinguish this life of the process from earlier ones."""
        self.gatherer.join(self._context.membership.registered_at)

    async def stop(self) -> None:
        await self._uses.stop()
        self._ticking.cancel()
        self.gatherer.close()
        self._publishing.cancel()

    def measure(self, found: Measured) -> None:
        found.further.append(StatusRoom("gathering", GATHERING, lambda: gathering(self.gatherer.status())))

    def status(self) -> dict[str, Any]:
        return self.gatherer.status()

    def _used(self, forwarder: SubscribeForwarder) -> list[int]:
        used = [number for number, at in forwarder.used.items() if at > self._used_at]
        self._used_at = self._context.clock.monotonic()
        return used

    async def _tick(self, forwarder: SubscribeForwarder) -> None:
        ticks = Ticks(self._context.clock, TICK_S, REST_S)
        forwarder.stir = ticks.stir
        while True:
            await ticks.pause(busy=not (self.gatherer.at_rest and forwarder.at_rest))
            for tick in (self.gatherer.tick, forwarder.tick):
                self.gatherer.guard.run(tick)

    def _publish(self, topic: str, request: bytes, done: Callable[[bytes | Exception], None]) -> None:
        """Publish a dead letter through a proxy."""
        self._publishing.start(self._publish_by_proxy(topic, request, done))

    async def _publish_by_proxy(self, topic: str, request: bytes, done: Callable[[bytes | Exception], None]) -> None:
        try:
            answer: bytes | Exception = await self._context.publish_by_proxy(topic, request)
        except SyncpointError as error:
            answer = error
        done(answer)
