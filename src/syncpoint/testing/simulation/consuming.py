"""Subscribers of the small world: the shipped subscribe side in a process, and clients beside it."""

from __future__ import annotations

import asyncio
from typing import Any

from syncpoint.metadata.records import ACTIVE, Subscription
from syncpoint.model.errors import SyncpointError
from syncpoint.subscribe.forwarder import SubscribeForwarder
from syncpoint.subscribe.gather import Gatherer
from syncpoint.subscribe.lenders import lender_of
from syncpoint.subscribe.link import ServeLink
from syncpoint.subscribe.peers import Peer
from syncpoint.testing.history import Outcome
from syncpoint.testing.simulation.nodes import Node
from syncpoint.testing.simulation.shape import PATIENT
from syncpoint.wire.messages import pubsub


class Consuming(Node):
    """A subscribe forwarder process with clients of its own."""

    gatherer: Gatherer

    async def start(self) -> None:
        """In the process."""
        world = self.world
        incarnation = world.next_number()
        self.gatherer = Gatherer(
            self.name,
            incarnation,
            self.shared.catalog,
            world,
            world.clock,
            connect=self._connect,
            publish=lambda *_: None,
            registered=incarnation,
        )
        self.subscribe = SubscribeForwarder(
            self.gatherer,
            self.shared.catalog,
            world.clock,
            key=bytes(32),
            random=world.random,
            soon=world.loop.call_soon,
            lender=lender_of(self.name, incarnation),
            linger_s=10.0,
        )
        self.clients: dict[str, Client] = {}
        self._ticking = asyncio.get_running_loop().create_task(self._tick())

    def _connect(self, address: str, peer: Peer) -> ServeLink:
        return ServeLink(self.world.network, address, peer)

    def catch_up(self) -> None:
        super().catch_up()
        if not self.shared.cut:
            self.gatherer.changed()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            for record in self.shared.catalog.subscriptions():
                if record.state == ACTIVE and record.name not in self.clients:
                    self.clients[record.name] = Client(self, record)
            for client in self.clients.values():
                client.tick()
            self.gatherer.tick()
            self.subscribe.tick()


class Client:
    """A client of one subscription: acknowledges most of what it gets, sooner or later."""

    def __init__(self, node: Consuming, record: Subscription) -> None:
        self.node, self.world, self.record = node, node.world, record
        self.name = f"{node.name}.{self.world.next_number()}"
        self.patient = record.name == PATIENT
        self.held: list[tuple[str, str]] = []  # (ack id, message id), until all is delivered
        most, deadline_s = (5_000, 300) if self.patient else (50, 2)
        self.consumer = node.subscribe.join(
            record, self._send, max_messages=most, max_bytes=most << 15, deadline_s=deadline_s, gone=lambda: None
        )

    def tick(self) -> None:
        """Ten times a second."""
        if self.held and self.world.draining:
            for ack_id, message_id in self.held:
                self._ack(ack_id, message_id)
            self.held.clear()

    def _send(self, parts: Any, serials: Any) -> None:
        world, random = self.world, self.world.random
        loop = asyncio.get_running_loop()
        for one in pubsub.PullResponse.FromString(b"".join(parts)).received_messages:
            message = one.message
            world.received(self.record.name, self.name, message)
            chance = random.random()
            if self.patient and not world.draining:
                world.held += 1
                self.held.append((one.ack_id, message.message_id))
            elif chance < 0.85 or world.draining:
                loop.call_later(random.random() ** 3, self._ack, one.ack_id, message.message_id)
            elif chance < 0.92:
                loop.call_later(random.random() * 0.1, self._nack, one.ack_id)
            else:
                world.coverage.sometimes("a message is left to its deadline")

    def _ack(self, ack_id: str, message_id: str) -> None:
        world = self.world
        operation = world.history.acking(self.record.name, message_id)

        def confirmed(failed: list[bytes], unknown: list[bytes]) -> None:
            world.coverage.sometimes("an acknowledgement fails", failed)
            world.coverage.sometimes("the outcome of an acknowledgement is unknown", unknown)
            outcome = Outcome.FAILED if failed else Outcome.UNKNOWN if unknown else Outcome.OK
            world.history.end(operation, outcome)
            world.note(f"{self.name}: {self.record.name} {message_id} acknowledged: {outcome.value}")

        request = pubsub.AcknowledgeRequest(subscription=self.record.name, ack_ids=[ack_id]).SerializeToString()
        try:
            lending = self.node.subscribe.delivery(self.record).lending
            lending.acknowledge(request, 2, world.clock.monotonic(), confirmed)
        except SyncpointError:
            world.history.end(operation, Outcome.UNKNOWN)

    def _nack(self, ack_id: str) -> None:
        request = pubsub.ModifyAckDeadlineRequest(subscription=self.record.name, ack_ids=[ack_id]).SerializeToString()
        self.node.subscribe.delivery(self.record).lending.modify(request, 4, 0, self.world.clock.monotonic())
