"""What tests on Spark do to topics of a real server."""

import uuid
from typing import Any

from pyspark_pubsub.options import ServerAccess
from pyspark_pubsub.rpc import BlockingChannel
from syncpoint.testing.server_process import ServerProcess
from syncpoint.wire.protobuf.messages import pubsub

PUBLISHER = "/google.pubsub.v1.Publisher/"
SUBSCRIBER = "/google.pubsub.v1.Subscriber/"


class Topic:
    """A topic of its own for a test, with the two things done to topics here."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.name = f"projects/spark/topics/t{uuid.uuid4().hex[:12]}"
        self.call("CreateTopic", pubsub.Topic(name=self.name, message_retention_duration={"seconds": 86_400}))

    def call(self, method: str, request: Any, service: str = PUBLISHER) -> bytes:
        """A call to the server's public interface."""
        return BlockingChannel(ServerAccess((self.server.endpoint,))).call(service + method, request)

    def publish(self, first: int, end: int, size: int = 0) -> None:
        """Messages `first` to `end` - 1: the number is their data and their attribute; 250 in a row have one key."""
        for at in range(first, end, 250):
            request = pubsub.PublishRequest(topic=self.name)
            for i in range(at, min(end, at + 250)):
                text = str(i).encode().ljust(size, b" ")
                request.messages.add(data=text, attributes={"n": str(i)}, ordering_key=f"k{at // 250 % 3}")
            self.call("Publish", request)


def numbers(frame: Any) -> list[int]:
    """The numbers in the data of a batch, in the order of source and offset."""
    found = frame.select("source", "offset", "data").collect()
    return [int(row.data) for row in sorted(found, key=lambda row: (row.source, row.offset))]
