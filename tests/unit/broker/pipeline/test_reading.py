"""LogReader: positions, ranges, and subscriptions that a stream reads alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.broker.pipeline import columns, reading_ranges
from syncpoint.catalog.metadata.entity_options import MessageRule, RuleChange, changed_rules
from syncpoint.catalog.metadata.records import CatalogChange, Subscription, Topic
from syncpoint.log.storage.errors import StorageDamaged
from syncpoint.log.storage.record import StoredBatch
from syncpoint.testing.rigs.forwarder_harness import Subscriber
from syncpoint.wire.protobuf.messages import pipeline
from syncpoint.wire.protobuf.status import next_stored
from tests.kit.reading import SNAPSHOT, SUB, TOPIC, ReadingHarness, only_source, refusal

pytestmark = pytest.mark.shows("pipelines")


def test_an_empty_topic_has_no_sources() -> None:
    answer = ReadingHarness().positions(topic_incarnation=1)
    assert (answer.topic, answer.topic_incarnation, len(answer.sources)) == (TOPIC, 1, 0)


def test_sources_appear_and_seal_with_restarts() -> None:
    harness = ReadingHarness()
    harness.send("a", "b")
    first = only_source(harness)
    assert (first.begin, first.end, first.sealed, first.epoch, first.chain) == (0, 2, False, 0, 0)
    assert first.mean_bytes == len(harness.store.entries[-1].payload) // 2
    harness.restart()
    harness.send("c")
    answer = harness.positions()
    assert [(one.end, one.sealed) for one in answer.sources] == [(2, True), (1, False)]
    assert answer.sources[0].source == first.source
    assert answer.universe == f"{harness.store.universe:x}"
    assert answer.time.ToNanoseconds() == harness.clock.time_ns()


def test_only_what_is_persisted_is_named_and_read() -> None:
    harness = ReadingHarness()
    harness.send("a")
    harness.send("b", quiesce=False)
    harness.publish.commit.flush()
    (source,) = harness.publish.sources.of_topic(1)
    assert (source.visible, source.end) == (1, 2)
    wanted = {"topic": TOPIC, "source": source.number, "begin": 0, "end": 2}
    error = refusal(harness.reader._selection, _request(**wanted))
    assert error.code == Code.OUT_OF_RANGE
    assert "do not exist yet" in str(error)


def _request(**fields: Any) -> Any:
    from syncpoint.wire.protobuf.messages import pipeline

    return pipeline.ReadRangeRequest(**fields)


def test_starting_positions() -> None:
    harness = ReadingHarness(retain_acked=True)
    harness.send("a", "b")
    harness.advance(10)
    between = harness.clock.time_ns()
    harness.advance(10)
    harness.send("c")
    harness.take_snapshot(7, SNAPSHOT)
    one = Subscriber(harness)
    harness.quiesce()
    one.ack(*[ack_id for ack_id, data in one.held.items() if data in "ab"])
    assert [s.start for s in harness.positions().sources] == [0]
    assert [s.start for s in harness.positions(latest=True).sources] == [3]
    at = {"seconds": between // 10**9, "nanos": between % 10**9}
    assert [s.start for s in harness.positions(time=at).sources] == [2]
    assert [s.start for s in harness.positions(time={"seconds": 1 << 33}).sources] == [3]
    assert [s.start for s in harness.positions(subscription=SUB, backlog=True).sources] == [2]
    assert [s.start for s in harness.positions(snapshot=SNAPSHOT).sources] == [0]
    assert refusal(harness.positions, time={"seconds": 1, "nanos": -5}).code == Code.INVALID_ARGUMENT
    assert refusal(harness.positions, backlog=True).code == Code.INVALID_ARGUMENT


def test_a_snapshot_is_read_as_what_was_not_acknowledged_then() -> None:
    harness = ReadingHarness(retain_acked=True)
    harness.send(*"abcdef")
    one = Subscriber(harness)
    harness.quiesce()
    one.ack(*[ack_id for ack_id, data in one.held.items() if data in "ace"])
    harness.take_snapshot(7, SNAPSHOT)
    one.ack()
    harness.send("g")
    (source,) = harness.positions(snapshot=SNAPSHOT).sources
    assert source.start == 1
    found = harness.rows(source=source.source, begin=source.start, end=7, skip_snapshot=SNAPSHOT)
    assert [row["data"] for row in found] == [b"b", b"d", b"f", b"g"]
    left = harness.rows(source=source.source, begin=0, end=7, skip_snapshot=SNAPSHOT, skip_subscription=SUB)
    assert [row["data"] for row in left] == [b"g"]
    harness.restart()
    assert harness.rows(source=source.source, begin=1, end=7, skip_snapshot=SNAPSHOT) == found


def test_refused_positions() -> None:
    harness = ReadingHarness()
    harness.send("a")
    other = "projects/p/topics/other"
    harness.commit(
        CatalogChange.put(Topic(8, other)), CatalogChange.put(Subscription(9, "projects/p/subscriptions/gone", 99, "t"))
    )
    for fields, code in (
        ({"topic": ""}, Code.INVALID_ARGUMENT),
        ({"topic": TOPIC, "subscription": SUB}, Code.INVALID_ARGUMENT),
        ({"topic": "nonsense"}, Code.INVALID_ARGUMENT),
        ({"topic": TOPIC + "x"}, Code.NOT_FOUND),
        ({"subscription": SUB + "x"}, Code.NOT_FOUND),
        ({"subscription": "projects/p/subscriptions/gone"}, Code.FAILED_PRECONDITION),
        ({"snapshot": SNAPSHOT}, Code.NOT_FOUND),
        ({"topic_incarnation": 2}, Code.FAILED_PRECONDITION),
        ({"subscription": SUB, "cursor": {"name": "x"}}, Code.INVALID_ARGUMENT),
        ({"subscription": SUB, "processed": [{"source": 1, "end": 1}]}, Code.INVALID_ARGUMENT),
        ({"subscription": SUB, "exclusive_reader": "x", "exclusive_seconds": -1}, Code.INVALID_ARGUMENT),
    ):
        assert refusal(harness.positions, **fields).code == code, fields
    harness.take_snapshot(7, SNAPSHOT)
    assert refusal(harness.positions, topic=other, snapshot=SNAPSHOT).code == Code.INVALID_ARGUMENT


def test_a_subscription_with_rules_is_not_read() -> None:
    harness = ReadingHarness()
    rules = changed_rules(harness.record.options, RuleChange((MessageRule("big", "size > 1"),)), 9)
    harness.commit(CatalogChange.put(replace(harness.record, options=rules)))
    error = refusal(harness.positions, subscription=SUB)
    assert error.code == Code.FAILED_PRECONDITION
    assert "has rules" in str(error)


def test_a_topic_created_again_is_another_topic() -> None:
    harness = ReadingHarness()
    harness.send("a")
    source = only_source(harness)
    topic = harness.publish.catalog.topic(TOPIC)
    assert topic is not None
    harness.commit(CatalogChange.delete(topic), CatalogChange.put(Topic(5, TOPIC)))
    error = refusal(harness.positions, topic_incarnation=1)
    assert error.code == Code.FAILED_PRECONDITION
    assert "created again" in str(error)
    assert harness.positions().topic_incarnation == 5
    assert refusal(harness.positions, subscription=SUB).code == Code.FAILED_PRECONDITION
    _, error_ = harness.frames(topic_incarnation=1, source=source.source, begin=0, end=1)
    assert error_ is not None
    assert error_.code == Code.FAILED_PRECONDITION
    _, error_ = harness.frames(source=source.source, begin=0, end=1)
    assert error_ is not None
    assert error_.code == Code.INVALID_ARGUMENT


@given(
    st.lists(
        st.lists(st.binary(min_size=1, max_size=30).map(bytes.hex), min_size=1, max_size=4), min_size=1, max_size=6
    ),
    st.data(),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_range_in_frames_of_any_size(sent: list[list[str]], data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(reading_ranges, "TAKE_BYTES", data.draw(st.sampled_from((0, 100, 1_000)), "frames to gather"))
        patched.setattr(reading_ranges, "STEP_BYTES", data.draw(st.sampled_from((1, 50, 1 << 20)), "of a turn"))
        patched.setattr(reading_ranges, "READ_BYTES", data.draw(st.sampled_from((1, 50, 1 << 20)), "of a read"))
        any_range_in_frames_of_any_size(sent, data)


def any_range_in_frames_of_any_size(sent: list[list[str]], data: st.DataObject) -> None:
    harness = ReadingHarness()
    harness.store.on_disk = data.draw(st.booleans(), "on disk")
    for batch in sent:
        harness.send(*batch)
    flat = [one for batch in sent for one in batch]
    begin = data.draw(st.integers(0, len(flat)))
    end = data.draw(st.integers(begin, len(flat)))
    frame_bytes = data.draw(st.integers(0, 400))
    found = harness.rows(source=only_source(harness).source, begin=begin, end=end, frame_bytes=frame_bytes)
    assert [(row["offset"], row["data"].decode()) for row in found] == list(enumerate(flat))[begin:end]


def test_frames_say_how_far_they_go() -> None:
    harness = ReadingHarness()
    for _ in range(6):
        harness.send("x" * 100, kind="a")
        harness.send("y" * 100, kind="b")
    fields = {
        "source": only_source(harness).source,
        "begin": 0,
        "end": 12,
        "frame_bytes": 1,
        "columns": [columns.OFFSET],
    }
    found, error = harness.frames(filter='attributes.kind = "a"', **fields)
    assert error is None
    assert [(frame.rows, frame.next_offset) for frame in found] == [(1, at) for at in range(1, 12, 2)] + [(0, 12)]
    assert harness.reader.rows == 6
    none, error = harness.frames(filter="attributes:c", **fields)
    assert error is None
    assert [(frame.rows, frame.next_offset) for frame in none] == [(0, 12)]
    assert harness.frames(**{**fields, "end": 0}) == ([], None)


def test_no_columns_are_only_counts() -> None:
    harness = ReadingHarness()
    harness.send(*"abc")
    (frame,), _ = harness.frames(source=only_source(harness).source, begin=1, end=3)
    assert (frame.rows, frame.next_offset) == (2, 3)
    assert len(frame.batch) < 128


def test_what_a_subscription_acknowledged_is_left_out_also_where_it_is_deleted() -> None:
    harness = ReadingHarness(filter_text='attributes.kind = "a"')
    for data in "abcdef":
        harness.send(data, kind="b" if data == "f" else "a")
    ledger = harness.publish.ledgers[harness.record.incarnation]
    source = only_source(harness)
    ledger.of(source.source).add(1, 3)
    harness.collect()
    fields = {"source": source.source, "begin": 0, "end": 6}
    found = harness.rows(skip_subscription=SUB, **fields)
    assert [row["data"] for row in found] == [b"a", b"d", b"e"]
    assert [row["data"] for row in harness.rows(skip_subscription=SUB, filter="attributes:kind", **fields)] == [
        b"a", b"d", b"e",
    ]  # fmt: skip
    rows, error = harness.frames(**fields)
    assert error is not None
    assert error.code == Code.OUT_OF_RANGE
    assert f"Messages 1 to 2 of source {source.source} of {TOPIC} are not stored" in str(error)
    assert next_stored(error.details) == 3
    assert [frame.rows for frame in rows] == [1]  # what came before is right
    ledger.of(source.source).add(5, 6)
    harness.collect()
    assert len(harness.rows(skip_subscription=SUB, **fields)) == 3
    _, error = harness.frames(**{**fields, "begin": 5})
    assert error is not None
    assert "Messages 5 to 5" in str(error)


def test_copies_and_loops() -> None:
    harness = ReadingHarness()
    source = harness.publish.open_source(1)

    def field(number: int, value: bytes) -> bytes:
        tag = number << 3 | 2
        return bytes((tag & 127 | 128, tag >> 7)) + bytes((len(value),)) + value

    for body in (b"", field(1001, b"a"), field(1001, b"b") + field(1002, b"a") + field(1002, b"c")):
        harness.publish.commit.append_batch(source, len(body).to_bytes(4, "little") + body, 1, lambda error: None)
    harness.quiesce()
    numbers = (columns.OFFSET, columns.ORIGIN, columns.VISITED)
    fields = {"numbers": numbers, "source": source.number, "begin": 0, "end": 3}
    assert harness.rows(**fields) == [
        {"offset": 0, "origin": "", "visited": []},
        {"offset": 1, "origin": "a", "visited": []},
        {"offset": 2, "origin": "b", "visited": ["a", "c"]},
    ]
    assert [row["offset"] for row in harness.rows(origins=["", "b"], **fields)] == [0, 2]
    assert [row["offset"] for row in harness.rows(origins=[""], **fields)] == [0]
    assert [row["offset"] for row in harness.rows(not_visited="c", **fields)] == [0, 1]
    assert [row["offset"] for row in harness.rows(not_visited="b", **fields)] == [0, 1, 2]


def test_refused_ranges() -> None:
    harness = ReadingHarness()
    harness.send("a")
    source = only_source(harness).source
    good = {"source": source, "begin": 0, "end": 1}
    other = "projects/p/topics/other"
    harness.commit(CatalogChange.put(Topic(8, other)), CatalogChange.put(Subscription(9, SUB + "-other", 8, other)))
    for fields, code in (
        ({"end": 2}, Code.OUT_OF_RANGE),
        ({"source": 5}, Code.OUT_OF_RANGE),
        ({"topic": TOPIC + "x"}, Code.NOT_FOUND),
        ({"topic": other}, Code.INVALID_ARGUMENT),
        ({"begin": -1}, Code.INVALID_ARGUMENT),
        ({"begin": 2}, Code.INVALID_ARGUMENT),
        ({"columns": [99]}, Code.INVALID_ARGUMENT),
        ({"filter": "nonsense ("}, Code.INVALID_ARGUMENT),
        ({"frame_bytes": -1}, Code.INVALID_ARGUMENT),
        ({"frame_bytes": 1 << 30}, Code.INVALID_ARGUMENT),
        ({"skip_subscription": SUB + "x"}, Code.NOT_FOUND),
        ({"skip_subscription": SUB + "-other"}, Code.INVALID_ARGUMENT),
        ({"skip_snapshot": SNAPSHOT}, Code.NOT_FOUND),
    ):
        frames, error = harness.frames(**{**good, **fields})
        assert not frames
        assert error is not None
        assert error.code == code, (fields, error)
    assert harness.frames(source=5, begin=3, end=3) == ([], None)


def test_what_storage_can_not_read_fails_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = ReadingHarness()
    harness.send("a")
    fields = {"source": only_source(harness).source, "begin": 0, "end": 1}
    for error, code in ((StorageDamaged("rot"), Code.DATA_LOSS), (OSError("broken"), Code.INTERNAL)):
        monkeypatch.setattr(harness.store, "read", lambda source, begin, size, reply, error=error, **more: reply(error))
        _, found = harness.frames(**fields)
        assert found is not None
        assert found.code == code


class SlowStream:
    """A caller that takes a frame when it is asked to."""

    def __init__(self) -> None:
        self.frames: list[Any] = []
        self.ready, self.ended = True, False
        self.error: SyncpointError | None = None
        self.on_message: Any = None
        self.on_end: Any = None
        self.on_writable: Any = None
        self.on_cancel: Any = None
        self.on_drain: Any = None

    @property
    def writable(self) -> bool:
        return self.ready

    def send(self, message: Any, token: object = None) -> None:
        self.frames.append(b"".join(message))
        self.ready = False

    def finish(self, error: SyncpointError | None = None) -> None:
        assert not self.ended
        self.ended, self.error = True, error


def opened(harness: ReadingHarness, **fields: Any) -> SlowStream:
    stream = SlowStream()
    harness.reader.read_range(stream)  # type: ignore[arg-type]
    stream.on_message(_request(topic=TOPIC, source=only_source(harness).source, **fields).SerializeToString())
    harness.quiesce()
    return stream


def test_nothing_is_gathered_before_the_caller_takes_it() -> None:
    harness = ReadingHarness()
    for _ in range(5):
        harness.send("x" * 50)
    stream = opened(harness, begin=0, end=5, frame_bytes=1)
    for taken in range(1, 6):
        assert len(stream.frames) == taken
        assert stream.ended is (taken == 5)
        stream.ready = True
        stream.on_writable()
        harness.quiesce()
    assert stream.ended
    assert stream.error is None


def test_a_stream_that_is_cancelled_or_drained_reads_no_more() -> None:
    harness = ReadingHarness()
    for _ in range(5):
        harness.send("x" * 50)
    gone = opened(harness, begin=0, end=5, frame_bytes=1)
    gone.on_cancel()
    drained = opened(harness, begin=0, end=5, frame_bytes=1)
    drained.on_drain()
    assert drained.error is not None
    assert drained.error.code == Code.UNAVAILABLE
    for stream in (gone, drained):
        stream.ready = True
        stream.on_writable()
        harness.quiesce()
        assert len(stream.frames) == 1


class ReadingThread:
    """In place of the store's way to its disks: a test is the thread that reads."""

    def __init__(self, harness: ReadingHarness, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches: list[StoredBatch] = []
        self._harness = harness
        harness.store.read(only_source(harness).source, 0, 1 << 20, self.batches.extend)
        monkeypatch.setattr(harness.store, "read", self._read)

    def _read(self, source: int, begin: int, size: int, reply: Any, *, take: Any) -> None:
        self.reply, self.take = reply, take

    def answer(self, answer: list[StoredBatch] | Exception) -> None:
        self.reply(answer)
        self._harness.quiesce()


def gathering(monkeypatch: pytest.MonkeyPatch) -> tuple[ReadingHarness, ReadingThread, SlowStream]:
    harness = ReadingHarness()
    for _ in range(4):
        harness.send("x" * 50)
    thread = ReadingThread(harness, monkeypatch)
    return harness, thread, opened(harness, begin=0, end=4, columns=[columns.OFFSET])


def rows_of(stream: SlowStream) -> list[int]:
    return [pipeline.ReadFrame.FromString(frame).rows for frame in stream.frames]


@pytest.mark.parametrize("how", ["drained", "ended"])
def test_a_call_that_ends_while_a_thread_gathers_for_it_sends_nothing_of_that(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness, thread, stream = gathering(monkeypatch)
    assert thread.take(thread.batches[0])
    if how == "drained":
        stream.on_drain()
    else:
        harness.reader._ranges[-1].end(SyncpointError(Code.UNAVAILABLE, "elsewhere now"))
    assert stream.error is not None
    assert stream.error.code == Code.UNAVAILABLE
    assert not thread.take(thread.batches[1]), "nobody waits for more"
    thread.answer([])
    assert stream.frames == []


def test_a_caller_that_leaves_while_a_thread_gathers_for_it_is_sent_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    _, thread, stream = gathering(monkeypatch)
    assert thread.take(thread.batches[0])
    stream.on_cancel()
    assert not thread.take(thread.batches[1])
    thread.answer([])
    assert (stream.frames, stream.ended) == ([], False)


def test_what_was_gathered_before_a_fault_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    _, thread, stream = gathering(monkeypatch)
    assert thread.take(thread.batches[0])
    assert thread.take(thread.batches[1])
    thread.answer(StorageDamaged("rot"))
    assert rows_of(stream) == [2]
    assert stream.error is not None
    assert stream.error.code == Code.DATA_LOSS


def test_a_thread_that_gathers_reports_gaps_and_what_is_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    _, thread, stream = gathering(monkeypatch)
    assert thread.take(thread.batches[0])
    with pytest.raises(SyncpointError) as gap:
        thread.take(thread.batches[2])
    assert gap.value.code == Code.OUT_OF_RANGE
    thread.answer(gap.value)
    assert rows_of(stream) == [1]
    assert stream.error is gap.value
    _, thread, stream = gathering(monkeypatch)
    assert thread.take(thread.batches[0])
    with pytest.raises(SyncpointError) as malformed:
        thread.take(thread.batches[1]._replace(payload=b"\xff" * len(thread.batches[1].payload)))
    assert malformed.value.code == Code.DATA_LOSS
    thread.answer(malformed.value)
    assert rows_of(stream) == [1]
    assert stream.error is malformed.value


def test_what_is_acknowledged_is_looked_up_by_nobody_but_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = ReadingHarness()
    harness.send("x", "y")
    harness.publish.ledgers[harness.record.incarnation].of(only_source(harness).source).add(0, 1)
    thread = ReadingThread(harness, monkeypatch)
    monkeypatch.setattr(harness.store, "read", lambda source, begin, size, reply: reply(thread.batches))
    stream = opened(harness, begin=0, end=2, skip_subscription=SUB, columns=[columns.OFFSET])
    assert rows_of(stream) == [1]


def test_a_call_without_a_request() -> None:
    stream = SlowStream()
    ReadingHarness().reader.read_range(stream)  # type: ignore[arg-type]
    stream.on_end()
    assert stream.error is not None
    assert stream.error.code == Code.INVALID_ARGUMENT


def test_where_a_source_ended_is_reported_to_who_stood_in_it() -> None:
    harness = ReadingHarness()
    harness.send("a", "b")
    (first,) = harness.positions().sources
    harness.restart()
    one = Subscriber(harness)
    harness.quiesce()
    one.ack()
    harness.advance(1)
    harness.collect()
    harness.send("c")
    harness.reader.tick()
    harness.quiesce()
    for _ in range(2):
        answer = harness.positions(known=[first.source, 12345])
        assert first.source not in [at.source for at in answer.sources]
        assert [(at.source, at.end) for at in answer.ended] == [(first.source, 2)]
        assert not harness.positions().ended
        harness.restart()
