"""Publisher.Publish on raw bytes.

Place: where a message comes in. The request goes to the publish forwarder as it came; nothing is decoded here. The
answer is sent when the messages are persisted.
"""

from syncpoint.publish.forwarder import PublishForwarder
from syncpoint.transport.calls import Call, Methods, Unary
from syncpoint.wire import methods


def publisher_methods(forwarder: PublishForwarder) -> Methods:
    """The data-plane method of google.pubsub.v1.Publisher."""

    def publish(call: Call, request: bytes) -> None:
        forwarder.client_request(call, request)

    return {methods.PUBLISHER.Publish.encode(): Unary(publish)}
