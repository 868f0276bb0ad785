"""The subscribe forwarder's role: the servicers over messages of the chains that a process reads.

Place: the same on a node and in processes of a cluster. Where messages are fetched from is handed in: `solo.own_log`
reads the one log in its own process, `cluster.gathered_chains` gathers them from all chains. Proxies relay their
clients' calls here as they came, so a process of a cluster answers `google.pubsub.v1.Subscriber` itself.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from syncpoint.base.model.delivery import PublishSide
from syncpoint.broker.subscribe.rule_work import RuleWork
from syncpoint.broker.subscribe.step_guard import StepGuard
from syncpoint.broker.subscribe.subscribe_forwarder import SubscribeForwarder
from syncpoint.catalog.access.access import Access, AccessFile
from syncpoint.front.api.at_risk_admin import lent_sums
from syncpoint.front.api.letter_moves import LetterMoves
from syncpoint.front.api.streaming_pull import StreamingPullService
from syncpoint.front.api.subscriber import SubscriberService
from syncpoint.node.process import ProcessContext, Role
from syncpoint.node.process_metrics import Measured
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal
from syncpoint.wire.protobuf.serving import served
from syncpoint.wire.transport.calls import Methods


class Fetching(NamedTuple):
    """Where a forwarder fetches messages; the rest as `SubscribeForwarder` takes it."""

    side: PublishSide
    key: bytes
    lender: int | None = None
    linger_s: float = 0.0
    guard: StepGuard | None = None


class Upstream(Role, ABC):
    """The chains that a forwarder reads, and what else depends on where they are: a part of its role."""

    @abstractmethod
    async def fetching(self) -> Fetching:
        """Make the way to the chains."""

    @abstractmethod
    def serve(self, role: SubscribeRole) -> None:
        """The parts are made."""


class SubscribeRole(Role):
    """Run a subscribe forwarder."""

    def __init__(self, context: ProcessContext, upstream: Upstream) -> None:
        self._context, self.upstream = context, upstream
        self._delivered: dict[int, int] = {}

    async def start(self) -> None:
        """Make the parts."""
        context = self._context
        side, key, lender, linger_s, guard = await self.upstream.fetching()
        self.forwarder = SubscribeForwarder(
            side,
            context.shared.catalog,
            context.clock,
            key=key,
            random=context.random,
            soon=asyncio.get_running_loop().call_soon,
            lender=lender,
            linger_s=linger_s,
            guard=guard,
            recorder=context.recording.recorder,
        )
        self.work = self.forwarder.work = RuleWork(context.environment.apart)
        self.streams = StreamingPullService(self.forwarder, context.limits)
        self.pulls = SubscriberService(self.forwarder)
        self.upstream.serve(self)

    def heed(self, access: Access | AccessFile) -> None:
        """Deliver by the file of --auth."""
        self.forwarder.letter_refusal = access.service.letter_refusal
        self.forwarder.quota.bounds_of = access.outstanding_bounds

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
        await self.upstream.on_joined()

    async def drain(self) -> None:
        """Pulls that wait are answered; streams end when the listener drains."""
        self.pulls.drain()

    async def stop(self) -> None:
        await self.upstream.stop()
        await self.work.stop()

    def measure(self, found: Measured) -> None:
        found.subscribe, found.streams = self.forwarder, lambda: self.streams.streams
        found.recorder = self._context.recording.recorder
        self.upstream.measure(found)

    def status(self) -> dict[str, Any]:
        messages, nbytes = self.forwarder.outstanding()
        return {
            **self.upstream.status(),
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
        if asked.revision:  # its owner has changed it, or a reader takes it, or goes on having it
            await self._context.shared.at(asked.revision)
            self.forwarder.used[asked.subscription] = self._context.clock.monotonic()
        delivery = self.forwarder.deliveries.get(asked.subscription)
        answer = internal.DescribeDeliveryResponse()
        if delivery is not None:
            answer.messages, answer.bytes = delivery.table.total()
            answer.subscribers, answer.leaving = len(delivery.consumers), delivery.leaving
        return answer

    async def _list_lent(self, asked: internal.LentRequest) -> internal.LentResponse:
        return internal.LentResponse(lent=lent_sums(self.forwarder.lent()))

    async def _list_streams(self, asked: internal.StreamsRequest) -> internal.StreamsResponse:
        return internal.StreamsResponse(streams=self.streams.held(asked.subscription))
