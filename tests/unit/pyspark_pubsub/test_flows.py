"""Many topics in one stream, as Spark calls source and sink, without Spark: against the twin of the server."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pyspark_pubsub import DefaultSource, flows_sink
from pyspark_pubsub.checkpoint import plans_from_json
from pyspark_pubsub.errors import CallError, FlowRefused, OptionError, SchemaError
from pyspark_pubsub.flows_file import FlowsFile, SharedFlow
from pyspark_pubsub.flows_sink import FlowsWriter
from pyspark_pubsub.flows_source import FlowsReader
from pyspark_pubsub.options import READ, WRITE, Options
from pyspark_pubsub.schema import source_schema
from pyspark_pubsub.slices import SliceGroup
from pyspark_pubsub.staging import StagedPart
from pyspark_pubsub.stream_plans import kafka_at
from syncpoint.base.model.errors import Code
from tests.unit.pyspark_pubsub.pubsub_twin import Running, TwinSource, failure

COLUMNS = "message_id,source,offset,publish_time,data,attributes,ordering_key,origin,visited,flow"


def name(kind: str, number: int) -> str:
    return f"projects/p/topics/{kind}{number}"


def flow(number: int, run: str = "r", **more: Any) -> SharedFlow:
    return SharedFlow(f"f{number}", name("in", number), run, name("out", number), **more)


class Query:
    """What Spark does with a source and a sink, batch after batch, with a checkpoint of its own."""

    def __init__(self, running: Running, folder: Path, monkeypatch: pytest.MonkeyPatch, columns: str = COLUMNS) -> None:
        self.running, self.twin, self.folder = running, running.twin, folder
        self.file = FlowsFile(folder / "flows.json")
        self.now, self.epoch = 0.0, 0
        given = {"endpoint": running.endpoint, "flows": str(self.file.path), "patienceSeconds": "1"}
        self.read_options = Options({**given, "columns": columns}, READ)
        self.write_options = Options({**given, "checkpointLocation": str(folder), "via": "a", "here": "b"}, WRITE)
        self.schema = source_schema(self.read_options["columns"])
        self.partition = 0
        monkeypatch.setattr(flows_sink, "epoch_of_task", lambda: ("query", "run", self.epoch))
        monkeypatch.setattr(flows_sink, "part_of_task", self._part)
        self.begin()

    def _part(self, query: str, run: str, epoch: int) -> StagedPart:
        self.partition += 1
        return StagedPart(query, run, epoch, self.partition, f"attempt-{self.partition}")

    def begin(self) -> None:
        self.reader = FlowsReader(self.read_options, self.schema, lambda: self.now, self._sleep)
        self.start = self.reader.initialOffset()

    def _sleep(self, seconds: float) -> None:
        self.now += seconds

    def plan(self) -> dict[str, int]:
        """The rows that the next batch reads, by flow."""
        self.now += 1.0
        self.end = json.loads(json.dumps(self.reader.latestOffset(self.start, ReadAllAvailable())))
        if self.end == self.start:
            return {}
        (self.folder / "offsets").mkdir(exist_ok=True)
        (self.folder / "offsets" / str(self.epoch)).write_text(f"v1\n{{}}\n{json.dumps(self.end)}")
        return {one: sum(r.end - r.begin for r in plan.at.ranges()) for one, plan in plans_from_json(self.end).items()}

    def write(self, writer: FlowsWriter) -> list[Any]:
        parts = pickle.loads(pickle.dumps(list(self.reader.partitions(self.start, self.end))))
        writer = pickle.loads(pickle.dumps(writer))
        return [pickle.loads(pickle.dumps(writer.write(self.reader.read(part)))) for part in parts]

    def writer(self) -> FlowsWriter:
        return FlowsWriter(self.write_options, self.schema, False)

    def batch(self) -> dict[str, int]:
        planned = self.plan()
        if planned:
            writer = self.writer()
            writer.commit(self.write(writer), self.epoch)
            self.start, self.epoch = self.end, self.epoch + 1
        return planned

    def out(self, number: int) -> list[bytes]:
        return [row["data"] for row in self.twin.topics[name("out", number)].sources[1].rows]

    def all_of(self, number: int) -> list[bytes]:
        return [row["data"] for row in self.twin.topics[name("in", number)].sources[1].rows]


@pytest.fixture
def query(running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Query:
    for number in range(4):
        running.twin.topic(name("in", number), TwinSource(1))
        running.twin.topic(name("out", number), TwinSource(1))
    return Query(running, tmp_path, monkeypatch)


def test_each_flow_is_copied_to_its_topic_under_its_own_record(query: Query) -> None:
    query.file.write([flow(0), flow(1), flow(2)])
    query.twin.fill(10, name=name("in", 0))
    query.twin.fill(5, name=name("in", 1))
    assert query.batch() == {"f0": 10, "f1": 5}
    assert (query.out(0), query.out(1), query.out(2)) == (query.all_of(0), query.all_of(1), [])
    assert query.twin.links == {"f0": {1: 10}, "f1": {1: 5}}
    assert {one: runs for one, runs in query.twin.runs.items() if runs} == {"f0": ["r"], "f1": ["r"]}
    query.twin.fill(3, name=name("in", 2))
    assert query.batch() == {"f2": 3}
    assert "f0" not in query.end["flows"]  # nothing is said of who reads nothing
    assert query.out(2) == query.all_of(2)


def test_flows_with_nothing_to_read_cost_one_call_and_fewer_the_longer_it_takes(query: Query) -> None:
    query.file.write([flow(0), flow(1), flow(2)])
    query.twin.fill(1, name=name("in", 0))
    query.batch()
    assert query.batch() == {}  # the cursor of the first is moved
    query.twin.calls.clear()
    for _ in range(5):
        assert query.plan() == {}
    assert query.twin.calls == Counter(ListCursors=5)
    begun = query.now
    query.reader._not_before = begun + 3
    assert query.plan() == {}
    assert query.now == begun + 3  # it has waited, instead of being asked in vain
    query.now += 700
    query.plan()
    assert query.twin.calls["GetPositions"] == 3  # their cursors are not to expire


def test_where_a_project_may_not_be_asked_each_topic_is(query: Query) -> None:
    query.file.write([flow(0), flow(1)])
    query.batch()
    query.twin.failures = [failure(Code.PERMISSION_DENIED, "not of the project")]
    query.twin.fill(2, name=name("in", 1))
    assert query.batch() == {"f1": 2}


def test_one_alone_is_asked_as_ever(query: Query) -> None:
    query.file.write([flow(0)])
    query.twin.fill(2, name=name("in", 0))
    assert query.batch() == {"f0": 2}
    query.plan()
    assert query.twin.calls["ListCursors"] == 0


def test_a_flow_that_stops_lets_the_others_go_on(query: Query) -> None:
    query.file.write([flow(0), flow(1)])
    query.batch()
    del query.twin.topics[name("in", 0)]
    query.twin.fill(4, name=name("in", 1))
    assert query.batch() == {"f1": 4}
    assert "There is no topic" in query.file.failures()["f0"]
    assert "NameNotFound" in query.file.failures()["f0"]
    query.twin.topic(name("in", 0), TwinSource(1))
    query.twin.fill(2, name=name("in", 0))
    assert query.batch() == {}  # it is the job's to put it back
    query.file.write([flow(0, "again"), flow(1)])
    assert query.file.failures() == {}
    assert query.batch() == {"f0": 2}


def test_a_server_that_does_not_answer_stops_all(query: Query) -> None:
    query.file.write([flow(0), flow(1)])
    query.batch()
    query.twin.failures = [failure(Code.UNAVAILABLE, "away")] * 50
    with pytest.raises(CallError, match="away"):
        query.plan()
    assert query.file.failures() == {}


def test_what_a_target_refuses_of_a_stream_fails_the_batch_that_spark_would_take_for_processed(query: Query) -> None:
    at = json.dumps(kafka_at("orders", "cluster", 7, {0: 3}).to_json())
    query.file.write([flow(0)])  # its rows come from a topic here, as they would from Kafka
    query.twin.links["f0"] = {1: 0}
    query.twin.fill(5, name=name("in", 0))
    query.twin.topics[name("in", 0)].sources[1].delete_below(3)
    query.plan()
    query.file.write([flow(0, stream="kafka", at=at)])
    writer = query.writer()
    staged = query.write(writer)
    (query.folder / "offsets" / "0").write_text('v1\n{}\n{"orders":{"0":5}}')  # as Spark's Kafka source has it
    with pytest.raises(FlowRefused, match=r"DataLossError: The link f0 would leave a gap"):
        writer.commit(staged, 0)
    query.twin.links["f0"] = {1: 3}
    writer.commit(staged, 0)
    assert query.out(0) == query.all_of(0)
    assert query.file.failures() == {}


def test_a_gap_at_the_target_stops_its_flow_and_the_source_does_not_take_it_for_processed(query: Query) -> None:
    query.file.write([flow(0), flow(1)])
    query.twin.links["f0"] = {1: 0}
    query.twin.fill(5, name=name("in", 0))
    query.twin.fill(5, name=name("in", 1))
    query.twin.topics[name("in", 0)].sources[1].delete_below(2)
    assert query.batch() == {"f0": 3, "f1": 5}
    assert "DataLossError" in query.file.failures()["f0"]
    assert (query.out(0), query.out(1)) == ([], query.all_of(1))
    before = dict(query.twin.cursors[name("in", 0), "f0"])
    query.plan()
    assert query.twin.cursors[name("in", 0), "f0"] == before


def test_messages_that_are_gone_before_they_were_read_stop_a_flow(query: Query) -> None:
    query.twin.fill(9, name=name("in", 0))
    at = {"v": 1, "topic": name("in", 0), "incarnation": 1, "universe": "00ff"}
    at |= {"sources": {"1": 3}, "from": {"1": 3}, "places": {"1": [1, 0]}}
    query.file.write([flow(0, at=json.dumps(at)), flow(1)])
    query.twin.topics[name("in", 0)].sources[1].delete_below(5)
    assert query.batch() == {}
    assert "offsets 3 to 5" in query.file.failures()["f0"]


def test_a_flow_goes_on_where_it_is_said_to_be(query: Query) -> None:
    query.twin.fill(9, name=name("in", 0))
    at = {"v": 1, "topic": name("in", 0), "incarnation": 1, "universe": "00ff"}
    at |= {"sources": {"1": 3}, "from": {"1": 3}, "places": {"1": [1, 0]}}
    query.file.write([flow(0, at=json.dumps(at)), flow(1, start="latest")])
    assert query.batch() == {"f0": 6}
    assert query.out(0) == query.all_of(0)[3:]
    assert [one.topic for one in query.twin.asked if getattr(one, "first", False)] == [name("in", 1)]


def test_flows_come_and_go_and_nothing_of_those_gone_is_under_way(query: Query) -> None:
    query.file.write([flow(0), flow(1)])
    query.twin.fill(3, name=name("in", 0))
    query.twin.fill(3, name=name("in", 1))
    query.plan()
    writer = query.writer()
    staged = query.write(writer)
    without = query.file.write([flow(1), flow(2)])
    assert query.file.seen() < without
    writer.commit(staged, query.epoch)  # of a batch that was planned before
    query.start, query.epoch = query.end, query.epoch + 1
    assert (query.out(0), query.out(1)) == ([], query.all_of(1))
    query.twin.fill(2, name=name("in", 2))
    assert query.batch() == {"f2": 2}
    assert query.file.seen() == without


def test_tasks_that_do_not_know_a_flow_commit_nothing_of_it(query: Query) -> None:
    """However Spark keeps a writer: a plan without its rows would be a loss."""
    query.file.write([flow(1)])
    early = query.writer()
    query.file.write([flow(0), flow(1)])
    query.twin.fill(3, name=name("in", 0))
    query.twin.fill(2, name=name("in", 1))
    assert query.plan() == {"f0": 3, "f1": 2}
    early.commit(query.write(early), query.epoch)
    assert (query.out(0), query.out(1)) == ([], query.all_of(1))
    assert query.twin.links == {"f1": {1: 2}}
    assert set(query.file.failures()) == {"f0"}


def test_what_a_server_does_not_take_of_one_flow_is_said_of_that_one(query: Query) -> None:
    query.file.write([flow(0), flow(1)])
    query.twin.fill(3, name=name("in", 0))
    query.twin.fill(2, name=name("in", 1))
    del query.twin.topics[name("out", 0)]
    query.batch()
    assert "There is no topic" in query.file.failures()["f0"]
    assert query.out(1) == query.all_of(1)


def test_a_batch_that_begins_again_stores_nothing_twice(query: Query) -> None:
    """The driver dies between two commits: one flow has its epoch, the other has not; both begin anew."""
    query.file.write([flow(0), flow(1)])
    for number in (0, 1):
        query.twin.fill(4, name=name("in", number))
    query.plan()
    writer = query.writer()
    staged = query.write(writer)
    query.file.write([flow(0)])
    writer.commit(staged, query.epoch)
    query.file.write([flow(0, "second"), flow(1, "second")])
    query.begin()
    query.epoch = 0
    assert query.batch() == {"f0": 4, "f1": 4}
    for number in (0, 1):
        assert query.out(number) == query.all_of(number)
    assert query.twin.runs["f0"] == ["r", "second"]  # the first one may not write any more


def test_a_batch_has_bounds_as_a_whole_shared_fairly(query: Query) -> None:
    query.reader._options = query.read_options.replaced({"maxRowsPerTrigger": 100})
    query.file.write([flow(0), flow(1), flow(2)])
    for number, count in enumerate((1000, 1000, 10)):
        query.twin.fill(count, name=name("in", number))
    assert query.batch() == {"f0": 45, "f1": 45, "f2": 10}
    while query.batch():
        pass
    assert query.out(1) == query.all_of(1)


def test_small_pieces_share_a_task(query: Query) -> None:
    query.file.write([flow(number) for number in range(4)])
    for number, count in enumerate((3000, 5, 6, 7)):
        query.twin.fill(count, name=name("in", number))
    before = query.start
    query.batch()
    large, small = query.reader.partitions(before, query.end)
    assert isinstance(small, SliceGroup)
    assert (large.flow, [one.flow for one in small.slices]) == ("f0", ["f1", "f2", "f3"])
    assert [query.out(number) for number in range(4)] == [query.all_of(number) for number in range(4)]


def test_pieces_of_a_topic_keep_their_order_whatever_their_sizes(query: Query) -> None:
    """The rest of a source is small, the next one, which has the same keys, is large."""
    query.twin.topic(name("in", 3), TwinSource(1, sealed=True), TwinSource(2, epoch=2))
    query.twin.fill(5, name=name("in", 3), source=1)
    query.twin.fill(3000, name=name("in", 3), source=2)
    query.twin.fill(5, name=name("in", 0))
    query.file.write([flow(0), flow(3)])
    before = query.start
    query.batch()
    first, second = query.reader.partitions(before, query.end)
    assert [(one.flow, one.source) for one in first.slices] == [("f0", 1), ("f3", 1)]
    assert (second.flow, second.source) == ("f3", 2)


def test_blocks_of_many_flows(running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(2):
        running.twin.topic(name("in", number), TwinSource(1))
        running.twin.topic(name("out", number), TwinSource(1))
    query = Query(running, tmp_path, monkeypatch, "source,block,flow")
    query.file.write([flow(0), flow(1)])
    for number in range(2):
        query.twin.fill(50, name=name("in", number))
    query.batch()
    assert [query.out(number) for number in range(2)] == [query.all_of(number) for number in range(2)]


def test_an_end_bounds_a_flow_and_lets_the_next_source_follow(query: Query) -> None:
    query.twin.topic(name("in", 3), TwinSource(1), TwinSource(2), TwinSource(3))
    for source in (1, 2, 3):
        query.twin.fill(5, name=name("in", 3), source=source)
    query.file.write([flow(3, until='{"1": 2, "2": 4}')])
    while query.batch():
        pass
    assert query.twin.links == {"f3": {1: 2, 2: 4}}


@pytest.mark.parametrize("rows", [pa.array([None, "f0"], pa.string()), None])
def test_rows_without_a_flow_are_refused(query: Query, rows: pa.Array | None) -> None:
    query.file.write([flow(0), flow(1)])
    columns = {"data": pa.array([b"a", b"b"]), "source": pa.array([1, 1]), "offset": pa.array([0, 1])}
    if rows is not None:
        columns["flow"] = rows
    batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    with pytest.raises(SchemaError, match="flow"):
        query.writer().write(iter([batch]))


def test_flows_go_with_no_options_of_one_topic_and_with_no_batch(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="does not go with flows"):
        Options({"endpoint": "a:1", "flows": "x", "topic": "projects/p/topics/t"}, READ)
    with pytest.raises(OptionError, match="for streams"):
        DefaultSource({"endpoint": "a:1", "flows": "x"}).reader(source_schema())
    with pytest.raises(OptionError, match="cannot be read"):
        FlowsFile(tmp_path / "none").read()
