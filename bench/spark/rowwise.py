"""The yardstick: messages pulled and published through protobuf, one Python object and one row each.

What a data source for Pub/Sub looks like that stands on the official messages alone: tasks pull from a subscription,
give rows, acknowledge; the sink makes a message of each row and publishes them by the hundred. Nothing in it is exactly
once. Options: endpoint, and `subscription` with `rows` (how many) and `partitions`, or `topic`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter, InputPartition, WriterCommitMessage
from pyspark.sql.types import StructType

_SCHEMA = "message_id string, publish_time timestamp, data binary, attributes map<string, string>, ordering_key string"
_PULL = 1000
_PUBLISH = 500
_PATIENCE_SECONDS = 60.0
_BYTES_MAX = 64 << 20


class RowwiseSource(DataSource):
    """See the module."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "rowwise"

    def schema(self) -> str:
        """A message's own fields."""
        return _SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Rows of a subscription."""
        return _Reader(dict(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Messages for a topic."""
        return _Writer(dict(self.options))


class _Reader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        rows, parts = int(self._options["rows"]), int(self._options["partitions"])
        return [InputPartition(rows * (i + 1) // parts - rows * i // parts) for i in range(parts)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        types, call = _official(self._options["endpoint"])
        name, left = self._options["subscription"], partition.value
        patience_end = time.monotonic() + _PATIENCE_SECONDS
        while left:
            request = types.PullRequest(subscription=name, max_messages=min(_PULL, left))
            received = call("Subscriber/Pull", request, types.PullResponse).received_messages
            if not received and time.monotonic() > patience_end:
                raise RuntimeError(f"{left} messages of {name} did not come")
            for one in received:
                message = one.message
                yield (
                    message.message_id,
                    message.publish_time.ToDatetime(),
                    message.data,
                    dict(message.attributes),
                    message.ordering_key,
                )
            left -= len(received)
            if received:
                acks = types.AcknowledgeRequest(subscription=name, ack_ids=[one.ack_id for one in received])
                call("Subscriber/Acknowledge", acks, types.Empty)


class _Writer(DataSourceWriter):
    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        types, call = _official(self._options["endpoint"])
        request = types.PublishRequest(topic=self._options["topic"])
        for row in iterator:
            request.messages.add(data=bytes(row.data), attributes=row.attributes, ordering_key=row.ordering_key)
            if len(request.messages) == _PUBLISH:
                call("Publisher/Publish", request, types.PublishResponse)
                del request.messages[:]
        if request.messages:
            call("Publisher/Publish", request, types.PublishResponse)
        return WriterCommitMessage()


class _Types:
    """The official classes, without the wrappers that cost as much again."""

    def __init__(self) -> None:
        from google.protobuf.empty_pb2 import Empty
        from google.pubsub_v1.types import pubsub

        self.Empty = Empty
        for name in ("PullRequest", "PullResponse", "AcknowledgeRequest", "PublishRequest", "PublishResponse"):
            setattr(self, name, getattr(pubsub, name).pb())

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


_opened: dict[str, Any] = {}


def _official(endpoint: str) -> tuple[Any, Any]:
    """Message classes, and a function that calls; kept for the next task in this worker."""
    if endpoint not in _opened:
        import grpc

        limits = [("grpc.max_receive_message_length", _BYTES_MAX), ("grpc.max_send_message_length", _BYTES_MAX)]
        channel = grpc.insecure_channel(endpoint, options=limits)

        def call(method: str, request: Any, answer: Any) -> Any:
            made = channel.unary_unary(
                f"/google.pubsub.v1.{method}", lambda message: message.SerializeToString(), answer.FromString
            )
            return made(request, timeout=_PATIENCE_SECONDS)

        _opened[endpoint] = (_Types(), call)
    found: tuple[Any, Any] = _opened[endpoint]
    return found
