"""Subscriptions that forward in a cluster: two hops after a topic, and the judge of what arrives.

Place: beside the other clients of `scenario`, with chance of its own, so that a seed's other life stays as it is.
What is judged: each message that is published arrives; of each that is stored in the first topic exactly one is stored
in the last, whoever of those that forward is killed; of a key the first arrivals come in order. That sources are
acknowledged is what draining waits for. Where a wall clock is set ahead by more than an hour, what was forwarded before
is not known after it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from syncpoint.base.model.errors import SyncpointError
from syncpoint.base.model.reserved import FORWARD_HOPS
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.testing.rigs.checkers import CheckResult
from syncpoint.testing.rigs.history import MessageIdentity, Outcome, Publish, unseal
from syncpoint.testing.simulation.api_clients import TOPIC, ApiClients
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import admin, pubsub

HALFWAY, END = "projects/p/topics/halfway", "projects/p/topics/end"
HOPS = (("onwards", TOPIC, HALFWAY), ("further", HALFWAY, END))
ARRIVALS = "arrivals"


async def receive(sim: ApiClients, random: SeededRandom, name: str, received: Callable[[Any], None]) -> None:
    """Give all messages of a subscription to `received`, and acknowledge them, for ever."""
    full = f"projects/p/subscriptions/{name}"
    while True:
        try:
            stream = sim.network.channel(sim.endpoint()).stream(methods.SUBSCRIBER.StreamingPull)
            first = pubsub.StreamingPullRequest(
                subscription=full, stream_ack_deadline_seconds=10, client_id=name, max_outstanding_messages=100
            )
            await stream.send(first.SerializeToString())
            while (data := await stream.receive()) is not None:
                for one in pubsub.StreamingPullResponse.FromString(data).received_messages:
                    received(one.message)
                    sim.client.start(_acknowledge(sim, random, full, one.ack_id))
        except SyncpointError as error:
            sim.note(f"{name}: stream ends: {error.code.name}")
        await asyncio.sleep(0.1 + 0.2 * random.random())


async def _acknowledge(sim: ApiClients, random: SeededRandom, full: str, ack_id: str) -> None:
    await asyncio.sleep(random.random() ** 3 * 0.5)
    request = pubsub.AcknowledgeRequest(subscription=full, ack_ids=[ack_id])
    try:
        await sim.call(methods.SUBSCRIBER.Acknowledge, request, 5.0)
    except SyncpointError:
        sim.coverage.sometimes("an acknowledgement of what arrives is not confirmed")


def stored_since(sim: ApiClients, begun: int) -> list[Publish]:
    """What was published to the first topic since then, and is known to be stored; `begun`: a stamp of the history."""
    published = sim.history.publishes
    return [one for one in published if one.topic == TOPIC and one.outcome is Outcome.OK and begun < one.begun]


class Arrived(NamedTuple):
    """A message that was handed to the client of the last topic."""

    identity: MessageIdentity | None
    message_id: str
    hops: str


@dataclass
class Forwarded:
    """Check forwarding subscriptions in a cluster."""

    sim: ApiClients
    seed: int
    clocks_set: bool
    arrived: list[Arrived] = field(default_factory=list)
    created: int = 1 << 62

    def __post_init__(self) -> None:
        self.random = SeededRandom(self.seed * 13 + 7)

    async def begin(self) -> None:
        """Create all of it."""
        sim = self.sim
        for topic in (HALFWAY, END):
            await sim.create_topic(topic)
        await self._subscribe(ARRIVALS, END)
        for name, topic, target in reversed(HOPS):
            options = admin.SubscriptionOptions(subscription=await self._subscribe(name, topic), forward_to=target)
            asked = admin.UpdateSubscriptionOptionsRequest(options=options)
            asked.update_mask.paths.append("forward_to")
            await sim.insist(methods.ADMIN.UpdateSubscriptionOptions, asked)
        self.created = sim.history.stamp()

    async def _subscribe(self, name: str, topic: str) -> str:
        asked = pubsub.Subscription(
            name=f"projects/p/subscriptions/{name}", topic=topic, ack_deadline_seconds=10, enable_message_ordering=True
        )
        await self.sim.insist(methods.SUBSCRIBER.CreateSubscription, asked, "ALREADY_EXISTS")
        return str(asked.name)

    async def consume(self) -> None:
        """Receive for ever what arrives."""
        await receive(self.sim, self.random, ARRIVALS, self._received)

    def _received(self, message: Any) -> None:
        came = Arrived(unseal(message.data), message.message_id, message.attributes[FORWARD_HOPS])
        self.arrived.append(came)
        self.sim.note(f"{ARRIVALS}: {came.identity} as {came.message_id}")

    # -- what it came to ---------------------------------------------------------------------------------------------

    def judged(self) -> list[CheckResult]:
        """All promises."""
        return [self._lost(), self._once(), self._in_order()]

    def lacks(self) -> list[str]:
        """What draining waits for."""
        return list(self._lost().violations[:1])

    def _owed(self) -> list[Publish]:
        return stored_since(self.sim, self.created)

    def _lost(self) -> CheckResult:
        seen, owed = {one.identity for one in self.arrived}, self._owed()
        lost = [f"{one.identity} ({one.key!r}) never arrived" for one in owed if one.identity not in seen]
        return CheckResult("what is forwarded arrives", len(owed), tuple(lost))

    def _once(self) -> CheckResult:
        """A client may store a message twice in the first topic; another subscription of that saw how often."""
        stored: dict[MessageIdentity | None, set[str]] = defaultdict(set)
        for one in self.sim.history.deliveries:
            if one.subscription == "ordered":
                stored[one.identity].add(one.message_id)
        ends: dict[MessageIdentity | None, set[str]] = defaultdict(set)
        for came in self.arrived:
            ends[came.identity].add(came.message_id)
        bad = [
            f"{identity} is stored {len(ids)} times where it was forwarded to, and {len(stored[identity])} times where"
            " it was published"
            for identity, ids in ends.items()
            if len(ids) > len(stored[identity]) and not self.clocks_set
        ]
        bad += [f"{one.identity} was forwarded {one.hops} times" for one in self.arrived if one.hops != str(len(HOPS))]
        return CheckResult("what is forwarded is stored once", len(ends), tuple(bad))

    def _in_order(self) -> CheckResult:
        bad, looked = [], 0
        owed = {one.identity: one for one in self._owed() if one.key}
        last: dict[str, Publish] = {}
        seen: set[MessageIdentity] = set()
        for came in self.arrived:
            publish = owed.get(came.identity) if came.identity is not None else None
            if publish is None or publish.identity in seen:
                continue
            seen.add(publish.identity)
            looked += 1
            before = last.setdefault(publish.key, publish)
            if before.begun > publish.ended:
                bad.append(f"{publish.identity} arrived for the first time after {before.identity}")
            elif publish.begun > before.begun:
                last[publish.key] = publish
        return CheckResult("what is forwarded arrives in order", looked, tuple(bad))
