"""A gateway over sites that are made up, without sockets: what each of them was asked, and what it does then."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from syncpoint.base.model.errors import Code, SyncpointError, Unavailable
from syncpoint.base.model.reserved import IDENTITY
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SystemRandom
from syncpoint.front.api.health import HealthService
from syncpoint.front.gateway.gateway_driver import Gateway, SiteAccess
from syncpoint.front.gateway.gateway_file import CallerLimits, DualTopics, GatewayFile, HealthSettings, SiteSpec
from syncpoint.testing.rigs.simulated_loop import run_simulated
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pubsub
from syncpoint.wire.transport.calls import Call, Methods, Streaming, StreamingCall, Unary
from syncpoint.wire.transport.memory import Faults, MemoryChannel

PUBLISH, PULL = methods.PUBLISHER.Publish, methods.SUBSCRIBER.Pull
ACK = methods.SUBSCRIBER.Acknowledge


class FakeSite:
    """A site that answers by its name. `hangs`: it answers nothing; `faults`: of the way there."""

    def __init__(self, name: str) -> None:
        self.name, self.hangs = name, False
        self.health = HealthService()
        self.asked: list[tuple[str, bytes]] = []
        self.shown: list[dict[bytes, bytes]] = []
        self.faults = Faults(SystemRandom())
        self.stored: list[tuple[str, bytes]] = []  # identity and data, in the order of storing
        self.answers_lost = 0
        self.allows = True
        self.refuses: Code | None = None  # what is created, and published

    def methods(self) -> Methods:
        ours = (*methods.PUBLISHER, *methods.SUBSCRIBER, *methods.IAM)
        table: dict[bytes, Any] = {path.encode(): Unary(self._serve) for path in ours}
        check = methods.HEALTH.Check.encode()
        healthy = self.health.methods()[check]
        assert isinstance(healthy, Unary)

        def alive(call: Call, request: bytes) -> None:
            if not self.hangs:
                healthy.handler(call, request)

        pull = Streaming(self._lend, PUBLISH.encode())
        return {**table, check: Unary(alive), methods.SUBSCRIBER.StreamingPull.encode(): pull}

    def _lend(self, stream: StreamingCall) -> None:
        """Lend one message on each stream; end when the caller does."""

        def asked(request: bytes) -> None:
            if pubsub.StreamingPullRequest.FromString(request).subscription:
                lent = [pubsub.ReceivedMessage(ack_id=f"of-{self.name}".ljust(48, "-"))]  # as long as of a server
                stream.send(pubsub.StreamingPullResponse(received_messages=lent).SerializeToString())

        stream.on_message, stream.on_end = asked, stream.finish

    def _serve(self, call: Call, request: bytes) -> None:
        path = call.path.decode()
        self.asked.append((path, request))
        self.shown.append(call.metadata)
        if self.hangs:
            return
        if self.refuses is not None and path in (PUBLISH, methods.PUBLISHER.CreateTopic):
            call.fail(SyncpointError(self.refuses, f"Refused by {self.name}."))
        elif path == PUBLISH:
            for one in pubsub.PublishRequest.FromString(request).messages:
                identity = one.attributes[IDENTITY]
                if identity not in [known for known, _ in self.stored] or not identity:
                    self.stored.append((identity, one.data))
            if self.answers_lost:
                self.answers_lost -= 1
                call.fail(Unavailable("The connection was lost."))
                return
            call.reply(pubsub.PublishResponse(message_ids=[self.name]).SerializeToString())
        elif path == methods.IAM.TestIamPermissions:
            allowed = ["pubsub.subscriptions.consume"] if self.allows else []
            call.reply(methods.IAM.TestIamPermissions.response(permissions=allowed).SerializeToString())
        elif path == PULL:
            lent = [pubsub.ReceivedMessage(ack_id=f"of-{self.name}")]
            call.reply(pubsub.PullResponse(received_messages=lent).SerializeToString())
        elif path == methods.SUBSCRIBER.GetSubscription:
            call.reply(pubsub.Subscription(name="s", topic="t").SerializeToString())
        else:
            call.reply(b"")

    def access(self) -> SiteAccess:
        return SiteAccess(lambda: MemoryChannel(self.methods(), self.faults))


FILE = GatewayFile(
    sites=(SiteSpec("eu", "eu:1", weight=200), SiteSpec("us", "us:1")),
    health=HealthSettings(interval_s=0.02, timeout_s=0.05, failures=2, successes=3),
    limits=CallerLimits(streams_per_caller=1, bytes_per_caller=100),
    drain_s=0.2,
)


class Harness:
    """Two sites, a gateway, and a client of it."""

    def __init__(self, answer: str = "") -> None:
        self.eu, self.us = FakeSite("eu"), FakeSite("us")
        roomy = CallerLimits(bytes_per_caller=10_000)
        file = replace(FILE, dual=(DualTopics("t*", answer),), limits=roomy) if answer else FILE
        self.gateway = Gateway(file, {"eu": self.eu.access(), "us": self.us.access()})
        self.gateway.fill.ready = self._ready  # type: ignore[method-assign]  # these sites have no topics
        self.client = MemoryChannel(self.gateway.methods())

    async def _ready(self, topic: str) -> None:
        assert topic == "t"

    async def send(self, data: bytes, key: str = "", **more: Any) -> None:
        message = pubsub.PubsubMessage(data=data, ordering_key=key)
        request = pubsub.PublishRequest(topic="t", messages=[message])
        await self.client.unary(PUBLISH, request.SerializeToString(), **more)

    async def publish(self, size: int = 1) -> str:
        request = pubsub.PublishRequest(topic="t", messages=[pubsub.PubsubMessage(data=b"x" * size)])
        answer = await self.client.unary(
            PUBLISH, request.SerializeToString(), metadata=((b"authorization", b"Bearer of-the-caller"),)
        )
        return str(pubsub.PublishResponse.FromString(answer).message_ids[0])


def in_harness(work: Any, answer: str = "") -> None:
    async def run() -> None:
        harness = Harness(answer)
        await harness.gateway.start()
        try:
            await asyncio.wait_for(work(harness), 10)
        finally:
            await harness.gateway.stop()

    run_simulated(ManualClock(), run())
