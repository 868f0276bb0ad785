"""Topics to measure with: made and filled over the official interface, counted over the log's.

Messages carry 1,024 bytes that no compression makes smaller (so that no reader is helped by repetition) and one
attribute. Promise: the same number of rows gives the same messages.
"""

from __future__ import annotations

import base64
import json
import random
from types import TracebackType
from typing import Any, Self

from bench.process import Failed
from syncpoint.front.client.client import Client
from syncpoint.wire.protobuf.messages import pipeline, pubsub

SIZE = 1024
_PER_REQUEST = 500
_KINDS = ("order", "refund", "invoice", "parcel")
_CALL_SECONDS = 60.0
_RETENTION_SECONDS = 86_400


def topic_name(name: str) -> str:
    return f"projects/bench/topics/{name}"


def subscription_name(name: str) -> str:
    return f"projects/bench/subscriptions/{name}"


class Topics:
    """The topics of one server; a context manager."""

    def __init__(self, address: str) -> None:
        self._client = Client(address, timeout_s=_CALL_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def create(self, name: str, subscriptions: tuple[str, ...] = ()) -> str:
        """A new topic; its full name. It keeps its messages, which without a subscription nobody would wait for."""
        topic = topic_name(name)
        made = pubsub.Topic(name=topic)
        made.message_retention_duration.FromSeconds(_RETENTION_SECONDS)
        self._client.call("Publisher.CreateTopic", made)
        for one in subscriptions:
            request = pubsub.Subscription(name=subscription_name(one), topic=topic, ack_deadline_seconds=600)
            self._client.call("Subscriber.CreateSubscription", request)
        return topic

    def delete(self, topic: str) -> None:
        """The topic and what is in it."""
        self._client.call("Publisher.DeleteTopic", pubsub.DeleteTopicRequest(topic=topic))

    def fill(self, topic: str, rows: int, *, json_rows: bool = False) -> None:
        """Publish so many messages; `json_rows`: objects in JSON of this size, whose text no compression makes smaller
        than three quarters.
        """
        dice = random.Random(rows)
        for begin in range(0, rows, _PER_REQUEST):
            request = pubsub.PublishRequest(topic=topic)
            for number in range(begin, min(rows, begin + _PER_REQUEST)):
                kind = _KINDS[number % len(_KINDS)]
                if json_rows:
                    row = {"id": number, "text": base64.b64encode(dice.randbytes(660)).decode(), "note": "n" * 80}
                    data = json.dumps(row).encode().ljust(SIZE)
                    request.messages.add(data=data, attributes={"kind": kind, "format": "json"})
                else:
                    request.messages.add(data=dice.randbytes(SIZE), attributes={"kind": kind})
            self._client.call("Publisher.Publish", request)

    def publish(self, topic: str, data: bytes) -> None:
        """One message."""
        self._client.call("Publisher.Publish", pubsub.PublishRequest(topic=topic, messages=[{"data": data}]))

    def take(self, subscription: str, within_seconds: float) -> bytes | None:
        """Wait for one message, and acknowledge it; None: it did not come."""
        request = pubsub.PullRequest(subscription=subscription_name(subscription), max_messages=1)
        for received in self._client.call("Subscriber.Pull", request, timeout_s=within_seconds).received_messages:
            acks = pubsub.AcknowledgeRequest(subscription=request.subscription, ack_ids=[received.ack_id])
            self._client.call("Subscriber.Acknowledge", acks)
            data: bytes = received.message.data
            return data
        return None

    def rows(self, topic: str) -> int:
        """How many messages are stored. Raises Failed when some are deleted already: nothing here is old enough."""
        found: Any = self._client.call("LogReader.GetPositions", pipeline.GetPositionsRequest(topic=topic))
        gone = [f"source {one.source}: {one.begin} of {one.end}" for one in found.sources if one.begin]
        if gone:
            raise Failed(f"{topic} has lost its first messages ({', '.join(gone)})")
        return sum(source.end for source in found.sources)
