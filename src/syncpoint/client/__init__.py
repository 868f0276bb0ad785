"""The client: publishers and subscribers for programs in Python, blocking and with asyncio (docs/client.md).

from syncpoint.client import Publisher, Subscriber
with Publisher("127.0.0.1:8085") as publisher:
    publisher.publish("projects/p/topics/t", b"data", color="red").result()
"""

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.client.bulk_pieces import OutgoingMessage
from syncpoint.client.client_errors import (
    AcknowledgeError,
    AcknowledgeStatus,
    BulkPublishError,
    FlowControlLimitError,
    MessageTooLargeError,
    PausedOrderingKeyError,
)
from syncpoint.client.client_future import ClientFuture
from syncpoint.client.client_options import (
    BatchSettings,
    ClientRetry,
    FlowControl,
    LimitExceededBehavior,
    PublishFlowControl,
)
from syncpoint.client.publishers import AsyncPublisher, Publisher, topic_path
from syncpoint.client.received_messages import Message, MessageBatch
from syncpoint.client.subscribers import AsyncSubscriber, StreamingPullFuture, Subscriber, subscription_path

__all__ = [
    "AcknowledgeError",
    "AcknowledgeStatus",
    "AsyncPublisher",
    "AsyncSubscriber",
    "BatchSettings",
    "BulkPublishError",
    "ClientFuture",
    "ClientRetry",
    "Code",
    "FlowControl",
    "FlowControlLimitError",
    "LimitExceededBehavior",
    "Message",
    "MessageBatch",
    "MessageTooLargeError",
    "OutgoingMessage",
    "PausedOrderingKeyError",
    "PublishFlowControl",
    "Publisher",
    "StreamingPullFuture",
    "Subscriber",
    "SyncpointError",
    "subscription_path",
    "topic_path",
]  # fmt: skip
