"""The readers as Spark calls them, without Spark: against the twin of the server."""

import logging
import pickle

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, LessThanOrEqual
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from pyspark_pubsub import DefaultSource
from pyspark_pubsub.errors import CallError, DataLossError, OptionError, SchemaError
from pyspark_pubsub.offsets import Offsets
from pyspark_pubsub.options import READ, Options
from pyspark_pubsub.reading import prefetched, read
from pyspark_pubsub.schema import IN_BLOCK, arrow_schema, source_schema
from pyspark_pubsub.source import BatchReader, FilteredBatchReader, StreamReader
from syncpoint.base import kernel
from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.testing.rigs.official import eventually
from syncpoint.wire.protobuf.status import not_stored_info
from tests.unit.pyspark_pubsub.pubsub_twin import TOPIC, Running, TwinSource, failure

pytestmark = pytest.mark.shows("spark")


def options(running: Running, **more: object) -> Options:
    given = {"endpoint": running.endpoint, "topic": TOPIC, "patienceSeconds": "10"}
    return Options(given | {name: str(value) for name, value in more.items()}, READ)


def offsets_read(parts: list) -> list[tuple[int, int]]:
    """(source, offset) of all rows, each partition sent to its task as Spark sends it."""
    found = []
    for part in pickle.loads(pickle.dumps(parts)):
        for batch in read(part):
            found += zip(batch.column("source").to_pylist(), batch.column("offset").to_pylist(), strict=True)
    return found


def batch(running: Running, **more: object) -> list[tuple[int, int]]:
    return offsets_read(list(BatchReader(options(running, **more), source_schema()).partitions()))


@pytest.mark.parametrize(
    "columns",
    [
        "",
        "data",
        "topic",
        "topic,source",
        "offset,topic,data,attributes,visited,size",
        "json_end,data,json_fields,topic",
    ],
)
@pytest.mark.parametrize("prefetch", [0, 2])
def test_batches_have_just_the_schema_that_spark_expects(running, columns, prefetch):
    running.twin.fill(100)
    asked = options(running, columns=columns, prefetch=prefetch, fetchBytes=1024)
    schema = source_schema(asked["columns"])
    (part,) = BatchReader(asked, schema).partitions()
    found = list(read(part))
    assert sum(batch.num_rows for batch in found) == 100
    assert len(found) > 1
    for one in found:
        assert one.schema.equals(arrow_schema(schema))
        one.validate(full=True)


def test_rows_are_those_that_are_stored(running):
    running.twin.fill(3, size=20)
    (part,) = BatchReader(options(running), source_schema()).partitions()
    (rows,) = [batch.to_pylist() for batch in read(part)]
    stored = running.twin.topics[TOPIC].sources[1].rows
    assert [row["data"] for row in rows] == [row["data"] for row in stored]
    assert rows[1]["attributes"] == [("n", "1")]
    assert (rows[2]["offset"], rows[2]["source"], rows[2]["topic"]) == (2, 1, TOPIC)
    assert rows[0]["publish_time"].isoformat() == "2001-09-09T01:46:40+00:00"


@pytest.mark.parametrize("compiled", [True, False])
def test_what_is_found_in_data(running, monkeypatch, compiled):
    """Beside the rows as they are stored; nothing where there is only the slow kernel."""
    monkeypatch.setattr(kernel, "COMPILED", compiled)
    running.twin.fill(4)
    stored = running.twin.topics[TOPIC].sources[1].rows
    for row, data in zip(stored, (b'{"id":7,"a":{"b":"x"}}  ', b"?", b'{"new":1}', b'{"a":{"c":1}}'), strict=True):
        row["data"] = data
    asked = options(running, columns="json_end,data,json_fields", jsonFields="id,a.b", jsonWithout="new")
    (part,) = BatchReader(asked, source_schema(asked["columns"])).partitions()
    (rows,) = [batch.to_pylist() for batch in read(part)]
    assert [row["data"] for row in rows] == [row["data"] for row in stored]
    found = [(row["json_end"], row["json_fields"]) for row in rows]
    nothing = (None, None)
    assert found == ([(21, [("id", "7"), ("a.b", "x")]), nothing, nothing, (12, [])] if compiled else [nothing] * 4)


def test_what_is_found_in_data_needs_them(running):
    with pytest.raises(SchemaError, match="json_end is what is found in data"):
        source_schema(["offset", "json_end"])
    many = DefaultSource(
        {"endpoint": running.endpoint, "topic": TOPIC, "jsonFields": ",".join(f"f{n}" for n in range(33))}
    )
    with pytest.raises(OptionError, match="names 33 fields; it takes 32"):
        many.reader(source_schema())


@pytest.mark.parametrize("prefetch", [0, 2])
def test_blocks_hold_the_same_rows(running, prefetch):
    running.twin.fill(100)
    asked = options(running, columns="source,block,rows", prefetch=prefetch, fetchBytes=1024)
    schema = source_schema(asked["columns"])
    (part,) = BatchReader(asked, schema).partitions()
    found = list(read(part))
    assert len(found) > 1
    inner = arrow_schema(source_schema(IN_BLOCK))
    offsets = []
    for one in found:
        assert one.schema.equals(arrow_schema(schema))
        one.validate(full=True)
        (row,) = one.to_pylist()
        rows = pa.ipc.read_record_batch(pa.py_buffer(row["block"]), inner)
        assert (row["source"], row["rows"]) == (1, rows.num_rows)
        offsets += rows.column("offset").to_pylist()
    assert offsets == list(range(100))


def test_record_batches_begin_at_multiples_of_64(running):
    running.twin.fill(50)
    (part,) = BatchReader(options(running, columns="offset", prefetch=0), source_schema(("offset",))).partitions()
    (one,) = read(part)
    assert one.column("offset").buffers()[1].address % 8 == 0


def test_a_batch_ends_where_it_is_reported(running):
    running.twin.fill(10)
    assert batch(running, startingPosition='{"1": 3}', endingPosition='{"1": 5}') == [(1, 3), (1, 4)]
    assert batch(running, startingPosition="2001-09-09T01:46:40.000008Z") == [(1, 8), (1, 9)]
    assert batch(running, startingPosition='{"t": {"1": -1}}') == []
    assert batch(running, startingPosition="latest") == []
    with pytest.raises(DataLossError, match="has the offsets 0 to 10, not 11"):
        batch(running, startingPosition='{"1": 11}')
    with pytest.raises(OptionError, match="has no source 7"):
        batch(running, startingPosition='{"7": 1}')


def test_a_broken_connection_is_taken_up_behind_the_last_frame(running):
    running.twin.fill(100, size=1000)
    failures = [failure(Code.UNAVAILABLE, "moved")] * 3

    def before_frame(left: int) -> None:
        if failures and left % 7 == 3:
            raise failures.pop()

    running.twin.before_frame = before_frame
    assert batch(running, fetchBytes=2000, patienceSeconds=30) == [(1, at) for at in range(100)]
    assert not failures
    assert running.twin.calls["ReadRange"] == 4


def test_a_server_that_comes_back_in_the_middle(running):
    running.twin.fill(60, size=1000)
    (part,) = BatchReader(options(running, fetchBytes=2000, prefetch=0), source_schema()).partitions()
    found = read(part)
    first = next(found)
    running.stop()
    running.again()
    rest = [at for one in found for at in one.column("offset").to_pylist()]
    assert [*first.column("offset").to_pylist(), *rest] == list(range(60))


def test_messages_deleted_before_their_task_ran(running, caplog):
    running.twin.fill(20)
    (strict,) = BatchReader(options(running), source_schema()).partitions()
    (lenient,) = BatchReader(options(running, failOnDataLoss=False), source_schema()).partitions()
    running.twin.topics[TOPIC].sources[1].delete_below(5)
    with pytest.raises(DataLossError, match=r"Source 1 of .* cannot be read from offset 0 to 20.*option cursor"):
        offsets_read([strict])
    with caplog.at_level(logging.WARNING):
        assert offsets_read([lenient]) == [(1, at) for at in range(5, 20)]
    assert "Going on at 5" in caplog.text


def test_messages_deleted_in_the_middle_of_a_source(running, caplog):
    """What nobody needs is not deleted from the front: the source still begins at 0."""
    running.twin.fill(20, size=1000)
    gap = SyncpointError(Code.OUT_OF_RANGE, "Messages 10 to 13 are gone.", [not_stored_info(14)])
    gaps = []

    def before_frame(left: int) -> None:
        if left == 5 and gaps:
            raise gaps.pop()

    running.twin.before_frame = before_frame
    for fails in (True, False):
        gaps.append(gap)
        (part,) = BatchReader(options(running, fetchBytes=2000, failOnDataLoss=fails), source_schema()).partitions()
        if fails:
            with pytest.raises(DataLossError, match=r"cannot be read from offset 10 to 20.*failOnDataLoss"):
                offsets_read([part])
        else:
            with caplog.at_level(logging.WARNING):
                assert offsets_read([part]) == [(1, at) for at in (*range(10), *range(14, 20))]
            assert "Going on at 14" in caplog.text


def test_a_stream_from_its_first_batch_on(running):
    running.twin.fill(10)
    reader = StreamReader(options(running, maxRowsPerTrigger=6, cursor="c"), source_schema())
    start = reader.initialOffset()
    running.twin.fill(5)
    assert reader.initialOffset() == start  # Spark asks twice
    assert reader.getDefaultReadLimit() == ReadMaxRows(6)
    seen = []
    while (end := reader.latestOffset(start, ReadMaxRows(6))) != start:
        seen.append(offsets_read(list(reader.partitions(start, end))))
        start = end
    assert [len(rows) for rows in seen] == [6, 6, 3]
    assert [row for rows in seen for row in rows] == [(1, at) for at in range(15)]
    moved = [asked for asked in running.twin.asked if hasattr(asked, "cursor") and asked.cursor.name == "c"]
    assert [asked.first for asked in moved] == [True, False, False, False, False]
    assert [r.end for asked in moved[1:] for r in asked.processed] == [0, 6, 12, 15]


def test_a_restart_plans_from_the_checkpoint_alone(running):
    running.twin.fill(10)
    reader = StreamReader(options(running), source_schema())
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    again = StreamReader(options(running), source_schema())
    assert offsets_read(list(again.partitions(start, end))) == [(1, at) for at in range(10)]


def test_available_now_ends_and_all_available_ignores_limits(running):
    running.twin.fill(10)
    reader = StreamReader(options(running, maxRowsPerTrigger=4), source_schema())
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    running.twin.fill(10)
    end = reader.latestOffset(start, ReadAllAvailable())
    assert Offsets.from_json(end).sources == {1: 10}
    assert reader.latestOffset(end, ReadAllAvailable()) is end
    assert reader.reportLatestOffset() == {"topic": TOPIC, "sources": {"1": 20}, "messagesBehind": 10}


def test_the_progress_says_how_many_messages_behind_a_stream_is(running):
    running.twin.fill(10)
    reader = StreamReader(options(running, maxRowsPerTrigger=4), source_schema())
    assert reader.reportLatestOffset() is None
    at = reader.initialOffset()
    behind = []
    for _ in range(4):
        at = reader.latestOffset(at, ReadMaxRows(4))
        behind.append(reader.reportLatestOffset()["messagesBehind"])
    assert behind == [6, 2, 0, 0]
    running.twin.fill(5)
    at = reader.latestOffset(at, ReadMaxRows(4))
    assert reader.reportLatestOffset()["messagesBehind"] == 1


def test_few_rows_wait_for_more_but_not_for_ever(running):
    running.twin.fill(3)
    waits = StreamReader(options(running, minRowsPerTrigger=5, maxTriggerDelay="1h"), source_schema())
    start = waits.initialOffset()
    assert waits.latestOffset(start, ReadAllAvailable()) is start
    hurries = StreamReader(options(running, minRowsPerTrigger=5, maxTriggerDelay=0), source_schema())
    assert hurries.latestOffset(start, ReadAllAvailable()) != start
    running.twin.fill(2)
    assert waits.latestOffset(start, ReadAllAvailable()) != start


def test_a_stream_fails_loudly_over_a_gap_or_another_topic(running, caplog):
    running.twin.fill(10)
    reader = StreamReader(options(running, maxRowsPerTrigger=2), source_schema())
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(2))
    running.twin.topics[TOPIC].sources[1].delete_below(7)
    with pytest.raises(DataLossError, match=r"source 1 offsets 2 to 7.*failOnDataLoss"):
        reader.latestOffset(end, ReadMaxRows(2))
    lenient = StreamReader(options(running, maxRowsPerTrigger=2, failOnDataLoss=False), source_schema())
    with caplog.at_level(logging.WARNING):
        after = lenient.latestOffset(end, ReadMaxRows(2))
    assert offsets_read(list(lenient.partitions(end, after))) == [(1, 7), (1, 8)]
    assert "Continuing after them" in caplog.text
    running.twin.topics[TOPIC].incarnation = 2
    with pytest.raises(DataLossError, match="deleted and created again"):
        lenient.latestOffset(end, ReadMaxRows(2))


def test_sources_that_seal_and_appear_while_a_stream_runs(running):
    topic = running.twin.topics[TOPIC]
    reader = StreamReader(options(running), source_schema())
    start, seen = reader.initialOffset(), []
    for number in range(1, 6):
        running.twin.fill(4, source=number)
        end = reader.latestOffset(start, ReadAllAvailable())
        seen += offsets_read(list(reader.partitions(start, end)))
        assert len(end["sources"]) <= 2
        start = end
        topic.sources[number].sealed = True
        topic.sources[number + 1] = TwinSource(number + 1)
    assert seen == [(number, at) for number in range(1, 6) for at in range(4)]


def test_a_subscriptions_stream_has_one_identity_over_restarts(running):
    running.twin.fill(4)
    given = {"endpoint": running.endpoint, "subscription": "projects/p/subscriptions/t"}
    reader = StreamReader(Options(given, READ), source_schema())
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    again = StreamReader(Options(given, READ), source_schema())
    again.prepareForTriggerAvailableNow()
    assert again.latestOffset(end, ReadAllAvailable()) is end
    readers = {asked.exclusive_reader for asked in running.twin.asked if getattr(asked, "exclusive_reader", "")}
    assert readers == {end["reader"]}
    assert running.twin.calls["ReleaseSubscription"] == 1
    assert [r.end for r in running.twin.asked[-2].processed] == [4]
    reader.stop()


def test_a_stream_whose_subscription_was_reset_is_refused_until_it_begins_anew(running):
    running.twin.fill(4)
    running.twin.generation = 3
    given = {"endpoint": running.endpoint, "subscription": "projects/p/subscriptions/t"}
    reader = StreamReader(Options(given, READ), source_schema())
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert end["generation"] == 3
    assert reader.latestOffset(end, ReadAllAvailable()) is end
    running.twin.generation = 4
    with pytest.raises(CallError, match="new checkpoint"):
        reader.latestOffset(end, ReadAllAvailable())
    reader.stop()
    anew = StreamReader(Options(given, READ), source_schema())
    end = anew.latestOffset(anew.initialOffset(), ReadAllAvailable())
    assert end["generation"] == 4
    anew.stop()


def test_filters_on_source_and_offset_are_taken_and_others_left():
    given = {"endpoint": "a:1", "topic": TOPIC}
    reader = FilteredBatchReader(Options(given, READ), source_schema())
    mine = [EqualTo(("source",), 1), GreaterThan(("offset",), 3), LessThanOrEqual(("offset",), 6)]
    other = EqualTo(("ordering_key",), "k")
    assert list(reader.pushFilters([*mine, other])) == [other]


def test_filters_shorten_ranges(running):
    running.twin.fill(10)
    reader = FilteredBatchReader(options(running), source_schema())
    list(reader.pushFilters([GreaterThan(("offset",), 3), LessThanOrEqual(("offset",), 6)]))
    assert offsets_read(list(reader.partitions())) == [(1, 4), (1, 5), (1, 6)]


def test_the_format_needs_no_pushdown_setting_by_default(running):
    """Spark refuses readers with pushFilters unless it is configured for them."""
    source = DefaultSource({"endpoint": running.endpoint, "topic": TOPIC})
    assert type(source.reader(source.schema())) is BatchReader
    assert "pushFilters" not in vars(BatchReader)


def test_connect_is_refused_with_a_way_out(monkeypatch):
    monkeypatch.setenv("SPARK_REMOTE", "sc://x")
    with pytest.raises(OptionError, match=r"does not work over Spark Connect.*master"):
        DefaultSource({"endpoint": "a:1", "topic": TOPIC}).schema()


@pytest.mark.parametrize(
    ("kind", "given", "says"),
    [
        (BatchReader, {"maxRowsPerTrigger": 3}, "for streams"),
        (StreamReader, {"endingPosition": "latest"}, "for batches"),
        (BatchReader, {"startingPosition": "soon"}, "is earliest, latest, a time"),
        (BatchReader, {"startingPosition": "2999-01-31T12:00:00Z"}, "lies ahead"),
        (BatchReader, {"startingPosition": '{"x": 1}'}, "not JSON of the form"),
        (BatchReader, {"startingPosition": '{"other": {"1": 1}}'}, "offsets of other"),
    ],
)
def test_options_that_do_not_go_together(running, kind, given, says):
    with pytest.raises(OptionError, match=says):
        kind(options(running, **given), source_schema())


def test_what_a_prefetching_thread_meets_is_raised_where_it_is_read():
    def breaks():
        yield 1
        raise CallError(14, "gone")

    found = prefetched(breaks(), 1)
    assert next(found) == 1
    with pytest.raises(CallError, match="gone"):
        next(found)


def test_a_prefetching_thread_ends_with_its_consumer():
    closed = []

    def endless():
        try:
            while True:
                yield 1
        finally:
            closed.append(True)

    found = prefetched(endless(), 2)
    next(found)
    found.close()
    eventually(lambda: closed == [True])
