"""Publisher.Publish on raw bytes.

Station 2 of a message's life: the request goes to the publish forwarder as it came; nothing is decoded here. The
answer is sent when the messages are persisted.
"""

from syncpoint.publish.forwarder import PublishForwarder
from syncpoint.transport.calls import Call, Methods, Unary

PUBLISH = b"/google.pubsub.v1.Publisher/Publish"


def publisher_methods(forwarder: PublishForwarder) -> Methods:
    """The data-plane method of google.pubsub.v1.Publisher."""

    def publish(call: Call, request: bytes) -> None:
        forwarder.publish_request(call, request)

    return {PUBLISH: Unary(publish)}
