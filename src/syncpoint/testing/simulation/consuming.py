"""Subscribers of the small simulation: the shipped subscribe side in a process, and clients beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from syncpoint.base.model.errors import SyncpointError, Unavailable
from syncpoint.broker.subscribe.gather import Gatherer
from syncpoint.broker.subscribe.lease_holder import lender_of
from syncpoint.broker.subscribe.link import ServeLink
from syncpoint.broker.subscribe.peers import Peer
from syncpoint.broker.subscribe.subscribe_forwarder import SubscribeForwarder
from syncpoint.catalog.metadata.records import ACTIVE, Subscription
from syncpoint.testing.rigs.history import Ack, Outcome
from syncpoint.testing.simulation.nodes import SimNode
from syncpoint.testing.simulation.sets import named
from syncpoint.testing.simulation.topology import PATIENT
from syncpoint.wire.protobuf.messages import pubsub

QUICK_MOST, SLOW_MOST = 50, 2  # messages that a client has at a time
SLOW_S = 2.5  # how long a slow one works on each, at most


class Consuming(SimNode):
    """A subscribe forwarder process with clients of its own."""

    gatherer: Gatherer

    async def start(self) -> None:
        """In the process."""
        sim = self.sim
        incarnation = sim.next_number()
        self.gatherer = Gatherer(
            self.name,
            incarnation,
            self.shared.catalog,
            sim,
            self.clock,
            connect=self._connect,
            publish=self._bury,
            registered=incarnation,
        )
        self.failing = False  # steps of its clock, and of what it learns, fail
        self.subscribe = SubscribeForwarder(
            self.gatherer,
            self.shared.catalog,
            self.clock,
            key=bytes(32),
            random=sim.random,
            soon=sim.loop.call_soon,
            lender=lender_of(self.name, incarnation),
            linger_s=60.0 if sim.shape.absent else 10.0,
            guard=self.gatherer.guard,
        )
        self.clients: dict[str, SimSubscriber] = {}
        self._ticking = asyncio.get_running_loop().create_task(self._tick())

    def _bury(self, topic: str, request: bytes, done: Callable[[bytes | Exception], None]) -> None:
        """Publish a dead letter, as the shipped role does over a router."""

        async def bury() -> None:
            answer = await self.sim.bury(topic, request)
            self.sim.coverage.sometimes("a dead letter is published", answer is not None)
            done(answer if answer is not None else Unavailable("nobody takes the letter"))

        self.process.start(bury())

    def _connect(self, address: str, peer: Peer) -> ServeLink:
        received = peer.received
        peer.received = lambda data: self._do(partial(received, data))  # type: ignore[method-assign]
        return ServeLink(self.sim.network, address, peer)

    def catch_up(self) -> None:
        super().catch_up()
        if not self.shared.cut:
            self.gatherer.changed()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            for record in self.shared.catalog.subscriptions():
                if record.state == ACTIVE and record.name not in self.clients and self._serves(record.name):
                    self.clients[record.name] = SimSubscriber(self, record)
            for client in list(self.clients.values()):
                client.tick()
                if not self._serves(client.record.name):
                    del self.clients[client.record.name]
                    self.subscribe.leave(client.record, client.consumer)
            for tick in (self.gatherer.tick, self.subscribe.tick):
                self.gatherer.guard.run(partial(self._do, tick))

    def _do(self, tick: Callable[[], None]) -> None:
        """A step that fails now and then, in its middle."""
        if self.failing and self.sim.random.random() < 0.2:
            self.accidents.armed = 1
        self.accidents.within(tick, expressions=False)

    def _serves(self, name: str) -> bool:
        """Whether a subscription has clients here."""
        sim = self.sim
        if not sim.shape.absent:
            return True
        living = sorted(one.name for one in sim.nodes.values() if isinstance(one, Consuming) and one.process.alive)
        return living[(sim.turn + sum(name.encode())) % len(living)] == self.name


class SimSubscriber:
    """A client of one subscription: acknowledges most of what it gets, sooner or later."""

    def __init__(self, node: Consuming, record: Subscription) -> None:
        self.node, self.sim, self.record = node, node.sim, record
        self.name = f"{node.name}.{self.sim.next_number()}"
        self.patient = record.name == PATIENT
        self.doomed = record.dead_letter is not None
        self.held: list[tuple[str, str, str]] = []  # (ack id, message id, judged as), until all is delivered
        self.slow = self.sim.shape.lasting and self.sim.random.random() < 0.5 and not self.patient
        most, deadline_s = (5_000, 300) if self.patient else (SLOW_MOST, 10) if self.slow else (QUICK_MOST, 2)
        self.consumer = node.subscribe.join(
            record, self._send, max_messages=most, max_bytes=most << 15, deadline_s=deadline_s, gone=self._gone
        )

    def tick(self) -> None:
        """Ten times a second."""
        record = self.node.shared.catalog.subscription_by_incarnation(self.record.incarnation)
        self.record = record or self.record
        if self.slow and self.sim.moments.healed:
            self.slow, self.consumer.max_messages = False, QUICK_MOST
            self.node.subscribe.delivery(self.record).wake()
        if self.held and self.sim.draining:
            for ack_id, message_id, name in self.held:
                self._ack(ack_id, message_id, name)
            self.held.clear()

    def _gone(self) -> None:
        """The subscription was deleted."""
        self.node.clients.pop(self.record.name, None)

    def _send(self, parts: Any, serials: Any) -> None:
        sim, random = self.sim, self.sim.random
        loop = asyncio.get_running_loop()
        name = named(self.record.name, self.node.subscribe.delivery(self.record).leases.generation)
        kept = 0.4 if self.doomed else 1.0 if sim.shape.emptying else 0.85
        for one in pubsub.PullResponse.FromString(b"".join(parts)).received_messages:
            message = one.message
            sim.received(name, self.name, message)
            chance = random.random()
            if self.patient and not sim.draining:
                sim.held += 1
                self.held.append((one.ack_id, message.message_id, name))
            elif self.slow and chance < 0.95:
                loop.call_later(0.3 + SLOW_S * random.random(), self._ack, one.ack_id, message.message_id, name)
            elif chance < kept or sim.draining:
                late_s = random.random() ** 3 * (0.1 if sim.shape.emptying else 1.0)
                loop.call_later(late_s, self._ack, one.ack_id, message.message_id, name)
            elif chance < 0.92 or self.slow:
                loop.call_later(random.random() * 0.1, self._nack, one.ack_id)
            else:
                sim.coverage.sometimes("a message is left to its deadline")

    def _ack(self, ack_id: str, message_id: str, name: str, tried: Ack | None = None) -> None:
        """`tried`: it was before, and nobody knew what became of it."""
        sim = self.sim
        operation = tried or sim.history.acking(name, message_id)

        def again() -> None:  # as official clients do
            sim.coverage.sometimes("an acknowledgement of unknown outcome is tried again")
            later_s = 0.5 + sim.random.random()
            asyncio.get_running_loop().call_later(later_s, self._ack, ack_id, message_id, name, operation)

        def confirmed(failed: list[bytes], unknown: list[bytes]) -> None:
            if unknown and (sim.shape.strict or self.patient):
                again()
                return
            sim.coverage.sometimes("an acknowledgement fails", failed)
            sim.coverage.sometimes("the outcome of an acknowledgement is unknown", unknown)
            outcome = Outcome.FAILED if failed else Outcome.UNKNOWN if unknown else Outcome.OK
            sim.history.end(operation, outcome)
            sim.note(f"{self.name}: {name} {message_id} acknowledged: {outcome.value}")

        request = pubsub.AcknowledgeRequest(subscription=self.record.name, ack_ids=[ack_id]).SerializeToString()
        try:
            leases = self.node.subscribe.delivery(self.record).leases
            leases.acknowledge(request, 2, sim.clock.monotonic(), confirmed)
        except SyncpointError as error:
            if isinstance(error, Unavailable) and (sim.shape.strict or self.patient):
                again()
            else:
                sim.history.end(operation, Outcome.UNKNOWN)

    def _nack(self, ack_id: str) -> None:
        request = pubsub.ModifyAckDeadlineRequest(subscription=self.record.name, ack_ids=[ack_id]).SerializeToString()
        with suppress(SyncpointError):  # the subscription was deleted
            self.node.subscribe.delivery(self.record).leases.modify(request, 4, 0, self.sim.clock.monotonic())
