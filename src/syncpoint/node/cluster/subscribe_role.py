"""The subscribe forwarder's role: the servicers of one node over messages gathered from all chains.

Proxies relay their clients' calls here as they came, so this process answers `google.pubsub.v1.Subscriber` itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from syncpoint.base.model.errors import SyncpointError
from syncpoint.base.runtime.tasks import Tasks
from syncpoint.broker.subscribe.gather import Gatherer
from syncpoint.broker.subscribe.lease_holder import lender_of
from syncpoint.broker.subscribe.link import ServeLink
from syncpoint.broker.subscribe.rule_work import RuleWork
from syncpoint.broker.subscribe.subscribe_forwarder import TICK_S, SubscribeForwarder
from syncpoint.catalog.access.access import AccessFile
from syncpoint.cluster.control.usage_reports import UsageReporter
from syncpoint.front.api.at_risk_admin import lent_sums
from syncpoint.front.api.connected_clients import STREAM_NAME
from syncpoint.front.api.letter_moves import LetterMoves
from syncpoint.front.api.options_admin import follow_limits
from syncpoint.front.api.streaming_pull import StreamingPullService
from syncpoint.front.api.subscriber import SubscriberService
from syncpoint.node.cluster.context import ClusterContext
from syncpoint.node.cluster.own_publishing import publish_by_proxy
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal
from syncpoint.wire.protobuf.serving import served
from syncpoint.wire.transport.calls import Methods

LINGER_S = 5.0


class SubscribeRole:
    """Run a subscribe forwarder."""

    disk_address = ""

    def __init__(self, context: ClusterContext) -> None:
        self._context = context
        self._publishing = Tasks()
        self.access: AccessFile | None = None
        self._delivered: dict[int, int] = {}
        self._used_at = 0.0

    async def start(self) -> None:
        """Make the parts."""
        context, loop = self._context, asyncio.get_running_loop()
        self.gatherer = Gatherer(
            context.process.name,
            context.incarnation,
            context.catalog,
            context.directory,
            context.clock,
            connect=partial(ServeLink, context.environment.network),
            publish=self._publish,
            registered=None,
        )
        context.directory.on_change.append(self.gatherer.changed)
        self.limits = follow_limits(context.shared)
        self.forwarder = SubscribeForwarder(
            self.gatherer,
            context.catalog,
            context.clock,
            key=context.ack_key,
            random=context.random,
            soon=loop.call_soon,
            lender=lender_of(context.process.name, context.incarnation),
            linger_s=LINGER_S,
            guard=self.gatherer.guard,  # one count of both
            recorder=context.recording.recorder,
        )
        context.shared.on_change.append(self.forwarder.follow)
        self.forwarder.work = RuleWork(context.environment.apart)
        self.access = context.access_file()
        if self.access is not None:
            self.forwarder.letter_refusal = self.access.service.letter_refusal
            if context.environment.apart.account is None:
                context.environment.apart.account = self.access.cpu
            self.forwarder.quota.bytes_of = self.access.outstanding_of
        self.streams = StreamingPullService(self.forwarder, self.limits)
        self.streams.named = lambda stream: stream.metadata.get(STREAM_NAME, b"").decode("utf-8", "replace")
        self.pulls = SubscriberService(self.forwarder)
        self._uses = UsageReporter(context.store, context.clock, self._used)
        self._uses.start()
        self._ticking = loop.create_task(self._tick())

    def methods(self) -> Methods:
        return {
            **self.streams.methods(),
            **self.pulls.methods(),
            **self.pulls.internal_methods(),
            **self.streams.internal_methods(),
            **served(
                {
                    methods.DELIVERIES.Describe: self._describe,
                    methods.DELIVERIES.ListLent: self._list_lent,
                    methods.DELIVERIES.ListStreams: self._list_streams,
                    methods.DELIVERIES.DeadLetter: LetterMoves(self.forwarder).move,
                }
            ),
        }

    async def on_joined(self) -> None:
        """From now on publish forwarders can distinguish this life of the process from earlier ones."""
        self.gatherer.join(self._context.membership.registered_at)

    async def drain(self) -> None:
        """Pulls that wait are answered; streams end when the listener drains."""
        self.pulls.drain()

    async def stop(self) -> None:
        await self._uses.stop()
        self._ticking.cancel()
        self.gatherer.close()
        if self.forwarder.work is not None:
            await self.forwarder.work.stop()
        self._publishing.cancel()

    def status(self) -> dict[str, Any]:
        messages, nbytes = self.forwarder.outstanding()
        return {
            **self.gatherer.status(),
            "streams": len(self.streams.streams),
            "outstanding_messages": messages,
            "outstanding_bytes": nbytes,
        }

    def load(self, seconds: float) -> dict[str, Any]:
        before = self._delivered
        self._delivered = {n: one.state.delivered for n, one in self.forwarder.deliveries.items()}
        rates = {number: (count - before.get(number, 0)) / seconds for number, count in self._delivered.items()}
        return {
            "connections": len(self.streams.streams),
            "subscriptions": {str(number): [rate, 0.0] for number, rate in rates.items() if rate > 0},
        }

    async def _describe(self, asked: internal.DescribeDeliveryRequest) -> internal.DescribeDeliveryResponse:
        if asked.revision:  # a reader takes the subscription, or goes on having it
            await self._context.shared.at(asked.revision)
            self.forwarder.used[asked.subscription] = self._context.clock.monotonic()
        delivery = self.forwarder.deliveries.get(asked.subscription)
        answer = internal.DescribeDeliveryResponse()
        if delivery is not None:
            answer.messages, answer.bytes = delivery.table.total()
            answer.subscribers = len(delivery.consumers)
        return answer

    async def _list_lent(self, asked: internal.LentRequest) -> internal.LentResponse:
        return internal.LentResponse(lent=lent_sums(self.forwarder.lent()))

    async def _list_streams(self, asked: internal.StreamsRequest) -> internal.StreamsResponse:
        return internal.StreamsResponse(streams=self.streams.held(asked.subscription))

    def _used(self) -> list[int]:
        used = [number for number, at in self.forwarder.used.items() if at > self._used_at]
        self._used_at = self._context.clock.monotonic()
        return used

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            for tick in (self.gatherer.tick, self.forwarder.tick):
                self.gatherer.guard.run(tick)

    # -- dead letters ------------------------------------------------------------------------------------------------

    def _publish(self, topic: str, request: bytes, done: Callable[[bytes | Exception], None]) -> None:
        """Publish on behalf of the service: through a proxy, as anybody does."""
        self._publishing.start(self._publish_by_proxy(topic, request, done))

    async def _publish_by_proxy(self, topic: str, request: bytes, done: Callable[[bytes | Exception], None]) -> None:
        try:
            answer: bytes | Exception = await publish_by_proxy(self._context, topic, request)
        except SyncpointError as error:
            answer = error
        done(answer)
