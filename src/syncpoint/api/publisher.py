"""Publisher.Publish on raw bytes.

Place: where a message comes in. The request goes to the publish forwarder as it came; nothing is decoded here, unless
the topic has transforms. The answer is sent when the messages are persisted.
"""

import logging

from syncpoint.kernel import split
from syncpoint.metadata.records import Topic
from syncpoint.model.errors import Code, SyncpointError, Unavailable
from syncpoint.publish.forwarder import PublishForwarder
from syncpoint.runtime.tasks import Tasks
from syncpoint.transforms.publish_requests import PublishTransforms, TransformedRequest
from syncpoint.transport.calls import Call, Methods, Unary
from syncpoint.wire import methods

log = logging.getLogger(__name__)


class PublisherService:
    """The data-plane method of google.pubsub.v1.Publisher."""

    def __init__(self, forwarder: PublishForwarder, transforms: PublishTransforms) -> None:
        self._forwarder, self._transforms = forwarder, transforms
        self._tasks = Tasks()

    def methods(self) -> Methods:
        return {methods.PUBLISHER.Publish.encode(): Unary(self.publish)}

    def publish(self, call: Call, request: bytes) -> None:
        """Take a request. Raises `SyncpointError` when it is refused at once."""
        topic = self._forwarder.topic_of(request)
        if topic.transforms:
            self._tasks.start(self._transformed(call, topic, request))
        else:
            self._forwarder.client_request(call, topic, request)

    async def _transformed(self, call: Call, topic: Topic, request: bytes) -> None:
        try:
            _, key = split.route_of(request)
            changed = await self._transforms.transformed(topic, key, request)
            now = self._forwarder.topic_of(request)
            if (now.incarnation, now.transforms) != (topic.incarnation, topic.transforms):
                raise Unavailable(f"The transforms of {now.name} have changed in the meantime. Try again.")
            if changed.request is None:
                call.reply(changed.response(b""))
            else:
                self._forwarder.client_request(_Caller(call, changed), now, changed.request)
        except SyncpointError as error:
            call.fail(error)
        except Exception:
            log.exception("a publish failed")
            call.fail(SyncpointError(Code.INTERNAL, "Internal error."))

    async def stop(self) -> None:
        """Leave nothing behind."""
        await self._tasks.stop()


class _Caller:
    """The publisher of a request of which some messages may have been dropped."""

    def __init__(self, call: Call, changed: TransformedRequest) -> None:
        self.fail, self._reply, self._changed = call.fail, call.reply, changed

    def reply(self, message: bytes) -> None:
        self._reply(self._changed.response(message))
