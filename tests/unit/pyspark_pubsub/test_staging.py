"""Staging and committing without Spark: batches to frames, frames to the twin, one commit."""

import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from pyspark_pubsub.checkpoint import planned_offsets, sources
from pyspark_pubsub.errors import ABORTED, CallError, DataLossError, OptionError, SchemaError
from pyspark_pubsub.offsets import Listing, SourceOffsets, initial, plan
from pyspark_pubsub.options import WRITE, Options, ServerAccess
from pyspark_pubsub.rpc import pb
from pyspark_pubsub.schema import IN_BLOCK, arrow_schema, source_schema, wire_columns
from pyspark_pubsub.sink import BatchWriter, StreamWriter
from pyspark_pubsub.staging import SinkTarget, StagedPart, divided, frame, pieces, requests, stage, standardised
from tests.unit.pyspark_pubsub.pubsub_twin import TOPIC, TwinSource

OTHER = "projects/p/topics/other"
DATA = StructType([StructField("data", StringType())])
COPIED = StructType(
    [StructField("data", BinaryType()), StructField("source", LongType()), StructField("offset", LongType())]
)


def rows_of(batch: pa.RecordBatch) -> list[dict]:
    return batch.to_pylist()


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([TOPIC, OTHER]), st.integers(1, 3), st.binary(max_size=50)), max_size=40),
    st.booleans(),
    st.booleans(),
)
def test_rows_are_divided_in_order_and_none_is_lost(rows, by_topic, by_source):
    batch = pa.record_batch(
        {
            "topic": pa.array([topic for topic, _, _ in rows], pa.string()),
            "source": pa.array([source for _, source, _ in rows], pa.int64()),
            "data": pa.array([data for _, _, data in rows], pa.binary()),
        }
    )
    target = SinkTarget(ServerAccess(("a:1",)), "" if by_topic else TOPIC, split_source=by_source)
    found: dict[tuple[str, int], list[bytes]] = {}
    for topic, source, some in divided(target, batch):
        found.setdefault((topic, source), []).extend(some.column("data").to_pylist())
    wanted: dict[tuple[str, int], list[bytes]] = {}
    for topic, source, data in rows:
        wanted.setdefault((topic if by_topic else TOPIC, source if by_source else 0), []).append(data)
    assert found == wanted


def test_a_target_topic_comes_before_the_option_and_the_column_topic():
    batch = pa.record_batch(
        {
            "target_topic": pa.array(["aside", None, "", "aside", None]),
            "topic": pa.array(["read", "read", "read", "other", "other"]),
            "data": pa.array([b"0", b"1", b"2", b"3", b"4"]),
        }
    )
    for option, wanted in ((TOPIC, {"aside": "03", TOPIC: "124"}), ("", {"aside": "03", "read": "12", "other": "4"})):
        found: dict[str, str] = {}
        for topic, _, some in divided(SinkTarget(ServerAccess(("a:1",)), option), batch):
            found[topic] = found.get(topic, "") + b"".join(some.column("data").to_pylist()).decode()
        assert found == wanted


@settings(deadline=None)
@given(st.lists(st.integers(0, 5000), min_size=1, max_size=60), st.integers(1024, 8000))
def test_pieces_are_small_and_whole(sizes, most):
    batch = pa.record_batch({"data": pa.array([b"x" * size for size in sizes], pa.binary())})
    found = list(pieces(batch, most))
    assert [row["data"] for piece in found for row in rows_of(piece)] == [b"x" * size for size in sizes]
    assert all(piece.num_rows == 1 or piece.nbytes <= 2 * most for piece in found)


def test_columns_get_the_types_that_travel():
    batch = pa.record_batch(
        {
            "data": pa.array(["ü", None], pa.large_string()),
            "ordering_key": pa.array(["k", "k"]).dictionary_encode(),
            "publish_time": pa.array([1, 2], pa.timestamp("us", "Europe/Berlin")),
            "attributes": pa.array([[("a", "b")], None], pa.map_(pa.string(), pa.string())),
            "offset": pa.array([1, 2], pa.int32()),
        }
    )
    found = standardised(batch, ["data", "ordering_key", "publish_time", "attributes", "offset"])
    assert [str(field.type) for field in found.schema] == [
        "binary",
        "string",
        "timestamp[us, tz=UTC]",
        "map<string, string>",
        "int64",
    ]
    assert found.column("data").to_pylist() == ["ü".encode(), None]


def test_a_frame_is_the_message_of_the_interface():
    batch = pa.record_batch({"data": pa.array([b"abc"] * 100, pa.binary())})
    request = pb.StageRequest.FromString(b"".join(bytes(part) for part in frame(TOPIC, 7, ["data"], batch.serialize())))
    assert (request.frame.topic, request.frame.source, list(request.frame.columns)) == (TOPIC, 7, [4])
    assert pa.ipc.read_record_batch(pa.py_buffer(request.frame.batch), batch.schema).equals(batch)


def blocks(*groups: tuple[int, int]) -> pa.RecordBatch:
    """Rows that hold blocks: (source, messages) each."""
    made, schema = [], arrow_schema(source_schema(IN_BLOCK))
    for source, count in groups:
        rows = [
            {"message_id": f"{source}-{i}", "offset": i, "data": b"x" * 900, "attributes": {"n": str(i)}}
            | {"publish_time": datetime.fromtimestamp(i, UTC), "ordering_key": "", "origin": "", "visited": []}
            for i in range(count)
        ]
        made.append(pa.RecordBatch.from_pylist(rows, schema).serialize().to_pybytes())
    return pa.record_batch({"source": pa.array([source for source, _ in groups], pa.int64()), "block": made})


@pytest.mark.parametrize("most", [1 << 20, 5000])
def test_blocks_go_on_as_they_are_unless_they_are_too_large(monkeypatch, most):
    monkeypatch.setattr("pyspark_pubsub.staging.BLOCK_MAX", most)
    batch = blocks((1, 40), (1, 3), (2, 7))
    target = SinkTarget(ServerAccess(("a:1",)), TOPIC, split_source=True, frame_bytes=4000)
    found = [pb.StageRequest.FromString(b"".join(map(bytes, one))).frame for one in requests(target, batch)]
    assert {one.topic for one in found} == {TOPIC}
    assert all(list(one.columns) == wire_columns(["block"]) for one in found)
    schema, seen = arrow_schema(source_schema(IN_BLOCK)), []
    for one in found:
        rows = pa.ipc.read_record_batch(pa.py_buffer(one.batch), schema)
        seen += [(one.source, row["message_id"], row["offset"], row["attributes"]) for row in rows.to_pylist()]
    assert seen == [
        (source, f"{source}-{i}", i, [("n", str(i))])
        for source, count in ((1, 40), (1, 3), (2, 7))
        for i in range(count)
    ]
    if most > 5000:
        assert [one.batch for one in found] == batch.column("block").to_pylist()
    else:
        assert len(found) > 3


def test_what_is_no_block_is_refused(monkeypatch):
    target = SinkTarget(ServerAccess(("a:1",)), TOPIC, split_source=True)
    missing = pa.record_batch({"source": pa.array([1], pa.int64()), "block": pa.array([None], pa.binary())})
    with pytest.raises(SchemaError, match="no block"):
        list(requests(target, missing))
    monkeypatch.setattr("pyspark_pubsub.staging.BLOCK_MAX", 10)
    other = pa.record_batch({"source": pa.array([1], pa.int64()), "block": [b"something else"]})
    with pytest.raises(SchemaError, match="no block of messages"):
        list(requests(target, other))


def test_rows_without_a_topic_are_refused(running):
    batch = pa.record_batch({"data": ["a"], "topic": pa.array([None], pa.string())})
    with pytest.raises(SchemaError, match="no topic"):
        stage(SinkTarget(ServerAccess((running.endpoint,))), StagedPart("q", "r", 0, 0, "a"), iter([batch]))


def test_a_stage_without_rows_asks_nothing_of_the_server(running):
    empty = pa.record_batch({"data": pa.array([], pa.binary())})
    assert not stage(
        SinkTarget(ServerAccess((running.endpoint,)), TOPIC), StagedPart("q", "r", 0, 0, "a"), iter([empty])
    ).staged
    assert running.twin.calls["Stage"] == 0


# --------------------------------------------------------------------------------------------------------- the writers


class Task:
    """What Spark reports a task."""

    def __init__(self, partition: int = 0, attempt: int = 1, run: str = "run", epoch: int = 0) -> None:
        self._partition, self._attempt = partition, attempt
        self._properties = {
            "sql.streaming.queryId": "query",
            "spark.jobGroup.id": run,
            "streaming.sql.batchId": str(epoch),
        }

    def partitionId(self) -> int:
        return self._partition

    def taskAttemptId(self) -> int:
        return self._attempt

    def getLocalProperty(self, name: str) -> str | None:
        return self._properties.get(name)


@pytest.fixture
def task(monkeypatch):
    """Be a task."""

    def be(**values: object) -> None:
        monkeypatch.setattr("pyspark.TaskContext.get", lambda: Task(**values))  # type: ignore[arg-type]

    be()
    return be


def writing(running, **more: object) -> Options:
    given = {"endpoint": running.endpoint, "topic": TOPIC, "patienceSeconds": "0"}
    return Options(given | {name: str(value) for name, value in more.items()}, WRITE)


def stored(running, topic: str = TOPIC) -> list[bytes]:
    return [row["data"] for row in running.twin.topics[topic].sources[1].rows]


def batch_of(*data: str) -> pa.RecordBatch:
    return pa.record_batch({"data": pa.array(data)})


def test_a_batch_becomes_visible_by_its_commit_in_the_order_of_partitions(running, task):
    writer = BatchWriter(writing(running), DATA, False)
    messages = []
    for partition in (2, 0, 1):
        task(partition=partition)
        messages.append(writer.write(iter([batch_of(f"{partition}a", f"{partition}b")])))
    assert stored(running) == []
    writer.commit([*messages, None])
    assert stored(running) == [b"0a", b"0b", b"1a", b"1b", b"2a", b"2b"]


def test_an_epoch_is_committed_once_and_only_with_the_attempts_spark_chose(running, task):
    writer = StreamWriter(writing(running), DATA, False)
    task(attempt=1)
    writer.write(iter([batch_of("loser")]))
    task(attempt=2)
    chosen = writer.write(iter([batch_of("winner")]))
    writer.commit([chosen], 0)
    writer.commit([writer.write(iter([batch_of("winner")]))], 0)  # as after a crash before Spark's own commit
    assert stored(running) == [b"winner"]


def test_an_older_run_is_fenced(running, task):
    old = StreamWriter(writing(running), DATA, False)
    message = old.write(iter([batch_of("old")]))
    task(run="newer")
    new = StreamWriter(writing(running), DATA, False)
    new.commit([new.write(iter([batch_of("new")]))], 0)
    with pytest.raises(CallError, match="later run of this query has taken over") as caught:
        old.commit([message], 1)
    assert caught.value.code == ABORTED
    assert stored(running) == [b"new"]


def test_an_aborted_epoch_leaves_nothing(running, task):
    writer = StreamWriter(writing(running), DATA, False)
    writer.abort([None, writer.write(iter([batch_of("x")]))], 0)
    writer.abort([None], 1)
    assert running.twin.stages == {}
    assert stored(running) == []


def checkpoint(folder, epoch: int, begin: int, end: int) -> None:
    """What Spark writes before an epoch begins."""
    before = initial(Listing(TOPIC, 1, "ab", (SourceOffsets(9, 1, 0, 0, end, start=begin),)))
    after = plan(before, Listing(TOPIC, 1, "ab", (SourceOffsets(9, 1, 0, 0, end),)))
    (folder / "offsets").mkdir(exist_ok=True)
    text = f"v1\n{json.dumps({'batchWatermarkMs': 0})}\n{json.dumps(after.to_json())}"
    (folder / "offsets" / str(epoch)).write_text(text)


def copied(begin: int, end: int) -> pa.RecordBatch:
    offsets = list(range(begin, end))
    return pa.record_batch(
        {
            "data": pa.array([str(at).encode() for at in offsets], pa.binary()),
            "source": pa.array([9] * len(offsets), pa.int64()),
            "offset": pa.array(offsets, pa.int64()),
        }
    )


def test_a_link_drops_what_it_has_and_refuses_a_gap(running, task, tmp_path):
    writer = StreamWriter(writing(running, link="l", checkpointLocation=tmp_path), COPIED, False)
    for epoch, begin, end in ((0, 0, 5), (1, 3, 8)):
        checkpoint(tmp_path, epoch, begin, end)
        task(epoch=epoch)
        writer.commit([writer.write(iter([copied(begin, end)]))], epoch)
    assert stored(running) == [str(at).encode() for at in range(8)]
    checkpoint(tmp_path, 2, 9, 12)
    task(epoch=2)
    message = writer.write(iter([copied(9, 12)]))
    with pytest.raises(DataLossError, match=r"link l would leave a gap.*accept-gap l"):
        writer.commit([message], 2)
    assert len(stored(running)) == 8
    lenient = writing(running, link="l", checkpointLocation=tmp_path, failOnDataLoss=False)
    StreamWriter(lenient, COPIED, False).commit([message], 2)
    assert len(stored(running)) == 11


def test_rows_of_several_topics_are_one_epoch(running, task):
    running.twin.topic(OTHER, TwinSource(1))
    schema = StructType([*DATA.fields, StructField("topic", StringType())])
    given = Options({"endpoint": running.endpoint}, WRITE)
    writer = StreamWriter(given, schema, False)
    batch = pa.record_batch({"data": ["a", "b", "c"], "topic": [TOPIC, OTHER, TOPIC]})
    writer.commit([writer.write(iter([batch]))], 0)
    assert (stored(running), stored(running, OTHER)) == ([b"a", b"c"], [b"b"])


def test_a_spark_that_does_not_name_epochs_is_noticed(running, task, monkeypatch):
    monkeypatch.setattr(Task, "getLocalProperty", lambda self, name: None)
    writer = StreamWriter(writing(running), DATA, False)
    with pytest.raises(RuntimeError, match=r"does not give tasks their epoch \(sql.streaming.queryId"):
        writer.write(iter([]))


@pytest.mark.parametrize(
    ("kind", "more", "says"),
    [
        (BatchWriter, {"link": "l"}, "link is for streams"),
        (StreamWriter, {"link": "l"}, "set the option checkpointLocation"),
    ],
)
def test_options_that_do_not_go_together(running, kind, more, says):
    with pytest.raises(OptionError, match=says):
        kind(writing(running, **more), COPIED, False)


def test_overwriting_is_refused(running):
    with pytest.raises(OptionError, match="cannot overwrite"):
        BatchWriter(writing(running), DATA, True)


def test_a_checkpoint_of_other_sources_is_refused(tmp_path):
    (tmp_path / "offsets").mkdir()
    file = tmp_path / "offsets" / "0"
    file.write_text('v1\n{}\n{"v":1}\n-')
    with pytest.raises(OptionError, match="reads 2 sources"):
        planned_offsets(str(tmp_path), 0)
    file.write_text('v1\n{}\n{"logOffset": 3}')
    with pytest.raises(OptionError, match="of the pubsub format"):
        planned_offsets(f"file://{tmp_path}", 0)
    with pytest.raises(OptionError, match="cannot read"):
        planned_offsets(str(tmp_path), 1)
    with pytest.raises(OptionError, match="log of offsets is not as Spark"):
        sources("x")
