"""Topics read as logs over real servers: everything published, in columns, over restarts and crashes.

Messages are published and pulled by the official client; ranges are read by plain gRPC and Arrow's own reader.
"""

from __future__ import annotations

import time
from typing import Any

import grpc
import pyarrow as pa
import pytest

from syncpoint.testing.rigs import official
from syncpoint.testing.rigs.official import eventually, refused
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pipeline

pytestmark = pytest.mark.shows("pipelines")

COLUMNS = {
    "message_id": pa.string(),
    "offset": pa.int64(),
    "publish_time": pa.timestamp("us", tz="UTC"),
    "data": pa.binary(),
    "attributes": pa.map_(pa.string(), pa.string()),
    "ordering_key": pa.string(),
    "origin": pa.string(),
    "visited": pa.list_(pa.string()),
    "size": pa.int32(),
}
KEPT = {"message_retention_duration": {"seconds": 3600}}


class Reader:
    """A program that reads one topic of a server."""

    def __init__(self, endpoint: str, topic: str) -> None:
        self.topic, self.channel = topic, official.connect(endpoint)

    def call(self, method: str, **fields: Any) -> Any:
        path = methods.LOG_READER[method]
        made = self.channel.unary_unary(path, lambda one: one.SerializeToString(), path.response.FromString)
        return made(path.request(**fields), timeout=20, wait_for_ready=True)

    def positions(self, **fields: Any) -> Any:
        if "subscription" not in fields:
            fields["topic"] = self.topic
        return self.call("GetPositions", **fields)

    def read(self, source: int, begin: int, end: int, *names: str, **fields: Any) -> list[dict[str, Any]]:
        """The rows of a range; all columns if none are named."""
        wanted = names or tuple(COLUMNS)
        made = self.channel.unary_stream(
            methods.LOG_READER.ReadRange,
            request_serializer=lambda one: one.SerializeToString(),
            response_deserializer=pipeline.ReadFrame.FromString,
        )
        request = pipeline.ReadRangeRequest(
            topic=self.topic, source=source, begin=begin, end=end,
            columns=[pipeline.Column.Value(name.upper()) for name in wanted], **fields,
        )  # fmt: skip
        schema = pa.schema([(name, COLUMNS[name]) for name in wanted])
        rows: list[dict[str, Any]] = []
        reached = begin
        for frame in made(request, timeout=60):
            batch = pa.ipc.read_record_batch(pa.py_buffer(frame.batch), schema)
            batch.validate(full=True)
            assert batch.num_rows == frame.rows
            assert frame.next_offset > reached
            reached = frame.next_offset
            rows += batch.to_pylist()
        assert reached == end
        return rows

    def data(self, answer: Any, **fields: Any) -> list[bytes]:
        """Everything from the starting positions of an answer."""
        return [
            row["data"] for one in answer.sources for row in self.read(one.source, one.start, one.end, "data", **fields)
        ]


@pytest.fixture
def reader():
    made = []

    def make(endpoint: str, topic: str) -> Reader:
        made.append(Reader(endpoint, topic))
        return made[-1]

    yield make
    for one in made:
        one.channel.close()


def received(message: Any) -> dict[str, Any]:
    """A message that the official client has, as the columns should say it."""
    return {
        "message_id": message.message_id,
        "data": message.data,
        "attributes": dict(message.attributes),
        "ordering_key": message.ordering_key,
        "publish_time": message.publish_time,
    }


def test_every_column_of_every_message_over_restarts(boot, enter, reader):
    server = boot()
    space = enter(server.endpoint)
    topic = space.topic(**KEPT)
    subscription = space.subscription(topic, enable_message_ordering=True)
    log = reader(server.endpoint, topic)
    published = []
    for life in range(3):
        space.publish(topic, b"", attributes={"only": "attributes", "unicode ключ": "значение \U0001f680", "empty": ""})
        space.publish(topic, bytes(range(256)) * 5, b"\x00", key=f"key {life} ü")
        space.publish(topic, *(b"%d" % number * 300 for number in range(1, 400)))
        published += space.pull(subscription, 402, ack=True)
        answer = log.positions()
        assert [one.sealed for one in answer.sources] == [True] * life + [False]
        server.restart(hard=life == 1)
    by_id = {one.message.message_id: received(one.message) for one in published}
    assert len(by_id) == 3 * 402
    answer = log.positions()
    assert [one.end - one.begin for one in answer.sources if one.begin < one.end] == [402] * 3
    seen = []
    for one in answer.sources:
        rows = log.read(one.source, one.begin, one.end, frame_bytes=50_000)
        assert [row["offset"] for row in rows] == list(range(one.begin, one.end))
        for row in rows:
            expected = by_id[row["message_id"]]
            attributes = row["attributes"]
            assert len(dict(attributes)) == len(attributes)
            assert {**row, "attributes": dict(attributes)} == {
                **expected, "offset": row["offset"], "origin": "", "visited": [], "size": row["size"],
            }  # fmt: skip
            assert row["size"] > len(row["data"])
            seen.append(row["message_id"])
    assert sorted(seen) == sorted(by_id)
    first = next(one for one in answer.sources if one.begin < one.end)
    assert [set(row) for row in log.read(first.source, 5, 6, "size", "data")] == [{"size", "data"}]
    ours = log.read(first.source, 0, first.end, "offset", filter="attributes:only")
    assert [row["offset"] for row in ours] == [0]


def test_many_megabytes_to_a_caller_with_small_windows(space, reader):
    topic = space.topic(**KEPT)
    body = bytes(range(256)) * 4096  # 1 MiB
    for number in range(24):
        space.publish(topic, b"%02d" % number + body)
    log = reader(space.endpoint, topic)
    (source,) = log.positions().sources
    rows = log.read(source.source, 0, 24, "data")
    assert [row["data"][:2] for row in rows] == [b"%02d" % number for number in range(24)]
    assert all(row["data"][2:] == body for row in rows)


def test_what_retention_has_deleted_fails_loudly(boot, enter, reader):
    server = boot()
    space = enter(server.endpoint)
    topic = space.topic()
    space.publish(topic, b"nobody needs this")
    log = reader(server.endpoint, topic)
    (source,) = log.positions().sources
    server.restart(hard=True)  # its segment is closed then, and can be deleted
    eventually(lambda: not log.positions().sources, what="deleted")
    with refused("OUT_OF_RANGE", topic, str(source.source), "0 to 0", "not stored"):
        log.read(source.source, 0, 1)
    space.publish(topic, b"a")
    (new,) = log.positions().sources
    with refused("OUT_OF_RANGE", "do not exist yet"):
        log.read(new.source, 0, 2)


def test_a_topic_created_again_is_not_read_on(space, reader):
    topic = space.topic(**KEPT)
    space.publish(topic, b"old")
    log = reader(space.endpoint, topic)
    before = log.positions()
    space.api.delete_topic({"topic": topic})
    with refused("NOT_FOUND"):
        log.positions()
    space.topic(**KEPT)
    with refused("FAILED_PRECONDITION", "created again"):
        log.positions(topic_incarnation=before.topic_incarnation)
    with refused("FAILED_PRECONDITION", "created again"):
        log.read(before.sources[0].source, 0, 1, topic_incarnation=before.topic_incarnation)
    assert log.positions().topic_incarnation > before.topic_incarnation


def test_starting_at_a_time_a_snapshot_a_backlog(boot, enter, reader):
    server = boot()
    space = enter(server.endpoint)
    topic = space.topic(**KEPT)
    subscription = space.subscription(topic)
    log = reader(server.endpoint, topic)
    space.publish(topic, b"a", b"b", b"c")
    got = space.pull(subscription, 3)
    space.ack(subscription, *(one for one in got if one.message.data != b"b"))
    for one in got:
        if one.message.data == b"b":
            space.nack(subscription, one)
    snapshot = space.path("snapshots", "then")
    space.api.create_snapshot({"name": snapshot, "subscription": subscription})
    server.restart(hard=True)
    time.sleep(0.01)  # times have microseconds
    middle = time.time_ns()
    space.publish(topic, b"d")
    at = {"seconds": middle // 10**9, "nanos": middle % 10**9}
    assert log.data(log.positions()) == [b"a", b"b", b"c", b"d"]
    assert log.data(log.positions(time=at)) == [b"d"]
    assert log.data(log.positions(latest=True)) == []
    space.pull(subscription, 2, ack=True)
    then = log.positions(snapshot=snapshot)
    assert then.sources[0].start == 1
    assert log.data(then, skip_snapshot=snapshot) == [b"b", b"d"]
    space.publish(topic, b"e")
    backlog = log.positions(subscription=subscription, backlog=True)
    assert log.data(backlog, skip_subscription=subscription) == [b"e"]


def test_a_cursor_keeps_what_it_has_not_passed_over_kill_9(boot, enter, reader):
    server = boot()
    space = enter(server.endpoint)
    topic = space.topic()
    log = reader(server.endpoint, topic)
    space.publish(topic, *(b"%d" % number for number in range(10)))
    (first,) = log.positions(cursor={"name": "spark"}, first=True).sources
    server.restart(hard=True)
    space.publish(topic, b"10")
    answer = log.positions(cursor={"name": "spark"}, processed=[{"source": first.source, "end": 4}])
    assert not answer.lost
    old, new = answer.sources
    assert [row["data"] for row in log.read(old.source, 4, 10, "data")] == [b"%d" % number for number in range(4, 10)]
    (cursor,) = log.call("ListCursors", topic=topic).cursors
    assert cursor.lag_messages == 7
    # Once it has passed the sealed source, that one goes; nothing of the new one does.
    processed = [{"source": new.source, "end": 0}]
    assert not log.positions(cursor={"name": "spark"}, processed=processed).lost
    eventually(lambda: len(log.positions().sources) == 1, what="the old source is deleted")
    server.restart(hard=True)
    answer = log.positions(cursor={"name": "spark"}, processed=processed)
    assert not answer.lost
    assert log.data(answer) == [b"10"]


def test_a_subscription_read_by_a_stream_alone(space, reader):
    topic, subscription = space.pair()
    log = reader(space.endpoint, topic)
    space.publish(topic, b"a", b"b", b"c")
    mine = {"subscription": subscription, "exclusive_reader": "stream-7", "exclusive_seconds": 60}
    holder = space.stream(subscription)
    holder.wait(3)
    with refused("FAILED_PRECONDITION", subscription, "attached"):
        log.positions(**mine)
    holder.cancel()
    answer = eventually(lambda: _taken(log, mine), what="the stream has left")
    assert log.data(answer, skip_subscription=subscription) == [b"a", b"b", b"c"]
    with refused("FAILED_PRECONDITION", "stream-7"):
        space.api.pull({"subscription": subscription, "max_messages": 1})
    assert space.stream(subscription).ended() == "FAILED_PRECONDITION"
    with refused("FAILED_PRECONDITION", "stream-7"):
        log.positions(**{**mine, "exclusive_reader": "another"})
    log.positions(processed=[{"source": answer.sources[0].source, "end": 2}], **mine)
    log.call("ReleaseSubscription", subscription=subscription, exclusive_reader="stream-7")
    assert [one.message.data for one in space.pull(subscription, 1, ack=True)] == [b"c"]


def _taken(log: Reader, mine: dict[str, Any]) -> Any:
    try:
        return log.positions(backlog=True, **mine)
    except grpc.RpcError as error:
        if error.code() is not grpc.StatusCode.FAILED_PRECONDITION:
            raise
        return None
