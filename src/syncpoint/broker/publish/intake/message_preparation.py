"""What a topic does to messages before they are stored: its transforms, then the check against its schema.

Place: asked by `prepared_publishes` on one node, by `proxy.publish_preparing` in a cluster. Leaves the order of
requests to them.
"""

from __future__ import annotations

from syncpoint.catalog.metadata.records import Topic
from syncpoint.catalog.schemas.publishing import SchemaGate
from syncpoint.catalog.transforms.publish_requests import PublishTransforms, TransformedRequest


class MessagePreparation:
    """Check and transform messages before they are stored."""

    def __init__(self, schemas: SchemaGate, transforms: PublishTransforms) -> None:
        self.schemas, self.transforms = schemas, transforms

    def is_quick(self, topic: Topic, request: bytes) -> bool:
        """Whether `at_once` may be asked: it would not hold the event loop for long."""
        return not topic.transforms and not self.schemas.is_large(topic, request)

    def at_once(self, topic: Topic, request: bytes) -> bytes | memoryview:
        """What is to be stored of a request. Raises `SyncpointError` when it is refused."""
        return self.schemas.marked(topic, request)

    async def prepared(self, topic: Topic, request: bytes) -> TransformedRequest:
        """Prepare any request; child processes run functions and check large requests."""
        found = TransformedRequest(request, ())
        if topic.transforms:
            found = await self.transforms.transformed(topic, request)
        if found.request is None:
            return found
        return found._replace(request=await self.schemas.marked_apart(topic, found.request))
