"""Publisher.Publish on raw bytes.

Place: where a message comes in. The request goes to the publish forwarder as it came; nothing is decoded here, unless
the topic has a schema or transforms. The answer is sent when the messages are persisted.
"""

from collections.abc import Callable
from functools import partial
from typing import cast

from syncpoint.broker.publish.facts.origin import PublishOrigin
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.broker.publish.intake.message_preparation import MessagePreparation
from syncpoint.broker.publish.intake.prepared_publishes import PreparedPublishes
from syncpoint.wire.protobuf import methods
from syncpoint.wire.transport.call_batches import CallBatch
from syncpoint.wire.transport.calls import Call, Methods, Unary

NotePublisher = Callable[[Call, str], None]
"""Called about once a second for each connection and topic, see `ConnectedClients.note_publisher`."""


class PublisherService:
    """The data-plane method of google.pubsub.v1.Publisher."""

    def __init__(self, forwarder: PublishForwarder, preparation: MessagePreparation) -> None:
        self._intake = forwarder.intake
        self.note_publisher: NotePublisher = lambda call, topic: None
        self.prepared = PreparedPublishes(preparation, self._intake.topic_of, self._intake.publish)

    def methods(self) -> Methods:
        return {methods.PUBLISHER.Publish.encode(): Unary(self.publish, batch_handler=self.publish_batch)}

    def publish_batch(self, batch: CallBatch, at: int) -> int:
        """Take the requests from `at` on that are plain publishes to one topic; how many. None where the first one is
        something else. Raises `SyncpointError`, with nothing taken, where they may have to be refused.
        """
        topic = self._intake.topic_of(batch.requests[at])
        if not topic.plain or self.prepared.order.lines:
            return 0
        if batch.noted.get(topic.name, 0.0) <= batch.began:
            self.note_publisher(cast(Call, batch), topic.name)
        return self._intake.publish_plain(topic, batch.requests, at, partial(batch.answering, at))

    def publish(self, call: Call, request: bytes, *, origin: PublishOrigin = PublishOrigin.CLIENT) -> None:
        """Take a request of a client, or of a subscription that forwards. Raises `SyncpointError` when it is refused at
        once."""
        topic = self._intake.topic_of(request)
        if call.noted.get(topic.name, 0.0) <= call.began and origin is PublishOrigin.CLIENT:
            self.note_publisher(call, topic.name)
        if (topic.plain or not topic.stamp) and not self.prepared.order.lines:
            self._intake.publish(call, topic, request, origin)
        else:
            self.prepared.take(call, topic, request, origin)

    async def stop(self) -> None:
        """Leave nothing running."""
        await self.prepared.stop()
