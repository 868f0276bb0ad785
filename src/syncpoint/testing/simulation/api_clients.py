"""Clients of Google's API in a simulation: they ask, publish, receive and acknowledge, again until it is known.

Place: under every simulation that serves the API, at whatever `endpoint` it has; what they did and saw is in its
history.
"""

from __future__ import annotations

import asyncio
from typing import Any

from syncpoint.base.model.errors import SyncpointError
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.testing.rigs.history import Creation, MessageIdentity, Outcome, seal
from syncpoint.testing.simulation.base import Simulation, Trace
from syncpoint.testing.simulation.loop import ProcessLoop
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pubsub

TOPIC = "projects/p/topics/orders"
REFUSED = 4  # every so many messages of a client that refuses some


class ApiClients(Simulation):
    """A simulation with an endpoint for clients. See the module."""

    def __init__(self, loop: ProcessLoop, clock: ManualClock, seed: int, trace: Trace | None) -> None:
        super().__init__(loop, clock, seed, trace)
        self.gone: set[str] = set()  # subscriptions that were deleted

    def endpoint(self) -> str:
        """HOST:PORT of somebody who answers clients."""
        raise NotImplementedError

    async def call(self, method: str, message: Any, timeout_s: float = 2.0) -> bytes:
        """Call the process that serves the endpoint."""
        channel = self.network.channel(self.endpoint())
        return await channel.unary(method, message.SerializeToString(), timeout=timeout_s)

    async def insist(self, method: str, message: Any, done: str = "") -> bytes:
        """Ask again until it is done; `done` in an error's text says that it had been."""
        while True:
            try:
                return await self.call(method, message, 5.0)
            except SyncpointError as error:
                if done and error.code.name == done:
                    return b""
                self.note(f"client: {method.rpartition('/')[2]}: {error.code.name}")
                await asyncio.sleep(0.2 + 0.2 * self.random.random())

    async def create_topic(self, name: str = TOPIC, retention_s: int = 0) -> None:
        """A topic."""
        topic = pubsub.Topic(name=name)
        if retention_s:
            topic.message_retention_duration.seconds = retention_s
        await self.insist(methods.PUBLISHER.CreateTopic, topic, "ALREADY_EXISTS")
        self.note(f"client: {name} is there")

    async def delete_topic(self, name: str) -> None:
        """Delete a topic; the subscriptions on it are deleted by their creators."""
        await self.insist(methods.PUBLISHER.DeleteTopic, pubsub.DeleteTopicRequest(topic=name), "NOT_FOUND")
        self.coverage.sometimes("a topic is deleted")
        self.note(f"client: {name} is deleted")

    async def unsubscribe(self, name: str, creation: Creation) -> None:
        """Delete a subscription: nothing is owed to it from here on."""
        creation.until = self.history.stamp()
        full = f"projects/p/subscriptions/{name}"
        await self.insist(
            methods.SUBSCRIBER.DeleteSubscription, pubsub.DeleteSubscriptionRequest(subscription=full), "NOT_FOUND"
        )
        self.gone.add(name)

    async def seek_to_the_beginning(self, name: str) -> tuple[str, int]:
        """Everything that the topic keeps is unacknowledged again; returns the subscription and the stamp before."""
        begun = self.history.stamp()
        asked = pubsub.SeekRequest(subscription=f"projects/p/subscriptions/{name}")
        asked.time.seconds = 1
        await self.insist(methods.SUBSCRIBER.Seek, asked)
        self.coverage.sometimes("a subscription is moved back")
        self.note(f"client: {name} moved to the beginning")
        return name, begun

    async def subscribe(
        self,
        name: str,
        *,
        ordered: bool = False,
        exactly_once: bool = False,
        topic: str = TOPIC,
        judged_as: str = TOPIC,
        dead_letters: tuple[str, str] | None = None,
        pushed_to: str = "",
    ) -> Creation:
        """Create a subscription, again until it is there. `dead_letters`: their topic, and its subscription.
        `pushed_to`: the address of an endpoint.
        """
        operation = self.history.creating(
            name, judged_as, ordered=ordered, exactly_once=exactly_once, letters=dead_letters[1] if dead_letters else ""
        )
        asked = pubsub.Subscription(
            name=f"projects/p/subscriptions/{name}", topic=topic, ack_deadline_seconds=10,
            enable_message_ordering=ordered, enable_exactly_once_delivery=exactly_once,
        )  # fmt: skip
        asked.push_config.push_endpoint = pushed_to
        if dead_letters:
            asked.dead_letter_policy.dead_letter_topic = dead_letters[0]
            asked.dead_letter_policy.max_delivery_attempts = 5
        await self.insist(methods.SUBSCRIBER.CreateSubscription, asked, "ALREADY_EXISTS")
        self.history.end(operation, Outcome.OK)
        self.note(f"client: {name} created")
        return operation

    async def publish(
        self, client: str, number: int, key: str, *, topic: str = TOPIC, judged_as: str = TOPIC, tries: int = 100
    ) -> None:
        """Publish one message, again until it is known to be stored."""
        identity = MessageIdentity(client, number)
        operation = self.history.publishing(judged_as, identity, key)
        body = pubsub.PubsubMessage(data=seal(identity, bytes(40)), ordering_key=key)
        request = pubsub.PublishRequest(topic=topic, messages=[body])
        for again in range(tries):
            try:
                answer = await self.call(methods.PUBLISHER.Publish, request)
            except SyncpointError as error:
                self.note(f"{client}: {number}: {error.code.name}")
                await asyncio.sleep(0.05 + 0.2 * self.random.random())
                continue
            (message_id,) = pubsub.PublishResponse.FromString(answer).message_ids
            self.history.published(operation, message_id)
            self.coverage.sometimes("a publish succeeds after a failure", again)
            self.published(identity, message_id)
            return
        self.history.end(operation, Outcome.UNKNOWN)

    async def consume(self, name: str, receiver: str, *, refuse: bool = False) -> None:
        """Receive for ever over streams that are opened again, acknowledging what comes, or refusing some."""
        full, lives = f"projects/p/subscriptions/{name}", 0
        while name not in self.gone:
            lives += 1
            try:
                channel = self.network.channel(self.endpoint())
                stream = channel.stream(methods.SUBSCRIBER.StreamingPull)
                first = pubsub.StreamingPullRequest(
                    subscription=full, stream_ack_deadline_seconds=10, client_id=receiver, max_outstanding_messages=100
                )
                await stream.send(first.SerializeToString())
                while (data := await stream.receive()) is not None:
                    for one in pubsub.StreamingPullResponse.FromString(data).received_messages:
                        self._received(name, f"{receiver}.{lives}", full, one, refuse)
            except SyncpointError as error:
                self.note(f"{receiver}: stream ends: {error.code.name}")
                self.coverage.sometimes("a client's stream ends")
            await asyncio.sleep(0.1 + 0.2 * self.random.random())

    def _received(self, name: str, receiver: str, full: str, one: Any, refuse: bool) -> None:
        found = self.received(name, receiver, one.message)
        if refuse and found is not None and found.number % REFUSED == 0:
            self.client.start(self._refuse(full, one.ack_id))
        else:
            self.client.start(self._acknowledge(name, full, one.ack_id, one.message.message_id))

    async def _refuse(self, full: str, ack_id: str) -> None:
        await asyncio.sleep(self.random.random() ** 3 * 0.5)
        asked = pubsub.ModifyAckDeadlineRequest(subscription=full, ack_ids=[ack_id], ack_deadline_seconds=0)
        try:
            await self.call(methods.SUBSCRIBER.ModifyAckDeadline, asked, 5.0)
        except SyncpointError as error:
            self.note(f"client: not refused: {error.code.name}")

    async def _acknowledge(self, name: str, full: str, ack_id: str, message_id: str) -> None:
        await asyncio.sleep(self.random.random() ** 3 * 0.5)
        operation = self.history.acking(name, message_id)
        try:
            await self.call(
                methods.SUBSCRIBER.Acknowledge, pubsub.AcknowledgeRequest(subscription=full, ack_ids=[ack_id]), 5.0
            )
        except SyncpointError:
            self.coverage.sometimes("an acknowledgement is not confirmed")
            self.history.end(operation, Outcome.UNKNOWN)
        else:
            self.history.end(operation, Outcome.OK)
