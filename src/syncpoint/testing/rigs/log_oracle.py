"""An oracle of logs: what a topic's log holds, and how two logs differ, message by message.

Place on the message's path: outside of it. It reads with plain gRPC (grpcio) and pyarrow, none of which the pipelines'
own client or Spark has a part in. Needs the packages grpcio and pyarrow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from syncpoint.testing.rigs.official import connect
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pipeline

SCHEMA = pa.schema(
    [
        ("message_id", pa.string()),
        ("offset", pa.int64()),
        ("publish_time", pa.timestamp("us", tz="UTC")),
        ("data", pa.binary()),
        ("attributes", pa.map_(pa.string(), pa.string())),
        ("ordering_key", pa.string()),
        ("origin", pa.string()),
        ("visited", pa.list_(pa.string())),
    ]
)
COLUMNS = (1, 2, 3, 4, 5, 6, 7, 8)


@dataclass(frozen=True)
class LoggedMessage:
    """One message as a log holds it."""

    message_id: str
    publish_time: Any
    data: bytes
    attributes: Mapping[str, str]
    ordering_key: str
    origin: str
    visited: tuple[str, ...]
    source: int
    offset: int

    @property
    def content(self) -> tuple[Any, ...]:
        """All that a copy keeps."""
        attributes = tuple(sorted(self.attributes.items()))
        return self.message_id, self.publish_time, self.data, attributes, self.ordering_key


Message = LoggedMessage  # its short name in tests


class Oracle:
    """Logs of one server, over a channel of its own."""

    def __init__(self, endpoint: str) -> None:
        self._channel = connect(endpoint)

    def close(self) -> None:
        self._channel.close()

    def positions(self, topic: str) -> Any:
        call = self._channel.unary_unary(
            methods.LOG_READER.GetPositions,
            request_serializer=pipeline.GetPositionsRequest.SerializeToString,
            response_deserializer=pipeline.Positions.FromString,
        )
        return call(pipeline.GetPositionsRequest(topic=topic), timeout=30, wait_for_ready=True)

    def batches(self, topic: str) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Everything a topic's log holds, source after source in the order of keys: (source, rows)."""
        call = self._channel.unary_stream(
            methods.LOG_READER.ReadRange,
            request_serializer=pipeline.ReadRangeRequest.SerializeToString,
            response_deserializer=pipeline.ReadFrame.FromString,
        )
        positions = self.positions(topic)
        for one in positions.sources:
            if one.begin == one.end:
                continue
            request = pipeline.ReadRangeRequest(
                topic=topic,
                topic_incarnation=positions.topic_incarnation,
                source=one.source,
                begin=one.begin,
                end=one.end,
                columns=COLUMNS,
            )
            for frame in call(request, timeout=120):
                if frame.rows:
                    yield one.source, pa.ipc.read_record_batch(pa.py_buffer(frame.batch), SCHEMA)

    def log(self, topic: str) -> list[LoggedMessage]:
        """Return a topic's log message by message."""
        return [
            LoggedMessage(
                row["message_id"],
                row["publish_time"],
                row["data"],
                dict(row["attributes"]),
                row["ordering_key"],
                row["origin"],
                tuple(row["visited"]),
                source,
                row["offset"],
            )
            for source, batch in self.batches(topic)
            for row in batch.to_pylist()
        ]


@dataclass(frozen=True)
class LogComparison:
    """What became of messages, by id: `changed`: anything but the id differs; `disordered`: keys out of order."""

    published: int
    stored: int
    missing: int
    twice: int
    changed: int
    foreign: int
    disordered: int

    @property
    def exact(self) -> bool:
        return not (self.missing or self.twice or self.changed or self.foreign or self.disordered)


def judge(published: Iterable[LoggedMessage], stored: Iterable[LoggedMessage]) -> LogComparison:
    """Compare two logs."""
    wanted, found = list(published), list(stored)
    by_id = {one.message_id: one for one in wanted}
    times = Counter(one.message_id for one in found)
    changed = sum(one.message_id in by_id and by_id[one.message_id].content != one.content for one in found)
    return LogComparison(
        len(wanted),
        len(found),
        len(by_id.keys() - times.keys()),
        sum(count - 1 for count in times.values()),
        changed,
        len(times.keys() - by_id.keys()),
        len(disordered(wanted, found)),
    )


def disordered(wanted: Iterable[LoggedMessage], found: Iterable[LoggedMessage]) -> set[str]:
    """Keys whose messages are not in the order in which they were published."""
    orders: list[dict[str, list[str]]] = []
    for messages in (wanted, found):
        seen: dict[str, None] = {}
        order: dict[str, list[str]] = {}
        for one in messages:
            if one.ordering_key and one.message_id not in seen:
                seen[one.message_id] = None
                order.setdefault(one.ordering_key, []).append(one.message_id)
        orders.append(order)
    first, second = orders
    return {key for key, ids in second.items() if [one for one in first.get(key, []) if one in set(ids)] != ids}
