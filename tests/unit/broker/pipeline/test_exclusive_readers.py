"""Subscriptions that one reader has to itself."""

from __future__ import annotations

import pytest

from syncpoint.base.model.errors import Code, FailedPrecondition
from syncpoint.broker.publish.intake.seek import seek_to_time
from syncpoint.testing.rigs.forwarder_harness import Subscriber
from tests.kit.reading import SNAPSHOT, SUB, ReadingHarness, refusal


def test_a_reader_has_a_subscription_to_itself_and_acknowledges() -> None:
    harness = ReadingHarness()
    harness.send(*"abc")
    mine = {"subscription": SUB, "exclusive_reader": "stream-1", "exclusive_seconds": 30}
    (source,) = harness.positions(backlog=True, **mine).sources
    with pytest.raises(FailedPrecondition, match="stream-1"):
        harness.subscribe.check_free(harness.record)
    error = refusal(harness.positions, subscription=SUB, exclusive_reader="stream-2")
    assert (error.code, "stream-1" in str(error)) == (Code.FAILED_PRECONDITION, True)
    assert len(harness.positions(subscription=SUB).sources) == 1  # looking is free
    harness.positions(processed=[{"source": source.source, "end": 2}], **mine)
    harness.positions(processed=[{"source": source.source, "end": 2}], **mine)
    harness.advance(0.1)  # acknowledgements nobody waits for linger
    harness.restart()
    with pytest.raises(FailedPrecondition, match="stream-1"):
        harness.subscribe.check_free(harness.record)
    assert harness.positions(subscription=SUB, backlog=True).sources[0].start == 2
    harness.positions(**mine)
    harness.call("ReleaseSubscription", subscription=SUB, exclusive_reader="stream-2")  # not its own
    with pytest.raises(FailedPrecondition):
        harness.subscribe.check_free(harness.record)
    harness.call("ReleaseSubscription", subscription=SUB, exclusive_reader="stream-1")
    harness.subscribe.check_free(harness.record)
    one = Subscriber(harness)
    harness.quiesce()
    assert one.data == ["c"]
    assert refusal(harness.call, "ReleaseSubscription", subscription=SUB).code == Code.INVALID_ARGUMENT


def test_a_refused_call_takes_nothing() -> None:
    harness = ReadingHarness()
    assert refusal(harness.positions, subscription=SUB, exclusive_reader="x", snapshot=SNAPSHOT).code == Code.NOT_FOUND
    harness.subscribe.check_free(harness.record)


def test_a_silent_reader_loses_it() -> None:
    harness = ReadingHarness()
    mine = {"subscription": SUB, "exclusive_reader": "stream-1", "exclusive_seconds": 5}
    harness.positions(**mine)
    harness.clock.advance(4)
    harness.positions(**mine)
    harness.clock.advance(4)
    assert refusal(harness.positions, **{**mine, "exclusive_reader": "other"}).code == Code.FAILED_PRECONDITION
    harness.clock.advance(4)  # holds are written for half as long again
    harness.subscribe.check_free(harness.record)
    harness.positions(**{**mine, "exclusive_reader": "other"})
    assert refusal(harness.positions, **mine).code == Code.FAILED_PRECONDITION


def test_a_reader_is_refused_while_others_consume() -> None:
    harness = ReadingHarness()
    harness.send(*"abc")
    mine = {"subscription": SUB, "exclusive_reader": "stream-1"}
    one = Subscriber(harness)
    harness.quiesce()
    assert "1 are attached" in str(refusal(harness.positions, **mine))
    harness.subscribe.leave(harness.record, one.consumer)
    assert "3 messages are outstanding" in str(refusal(harness.positions, **mine))
    one.ack(next(iter(one.held)))
    harness.advance(20)  # the others' deadlines are over
    harness.positions(**mine)


def test_what_was_read_ahead_for_others_is_not_delivered_after_the_stream_has_processed_it() -> None:
    harness = ReadingHarness()
    harness.send(*"abc")
    mine = {"subscription": SUB, "exclusive_reader": "stream-1"}
    one = Subscriber(harness, max_messages=1)
    harness.quiesce()
    harness.subscribe.leave(harness.record, one.consumer, over=True)
    (source,) = harness.positions(**mine).sources
    harness.positions(processed=[{"source": source.source, "end": 2}], **mine)
    harness.call("ReleaseSubscription", **mine)
    again = Subscriber(harness)
    harness.quiesce()
    assert again.data == ["c"]


def test_processed_sources_before_a_named_one_are_acknowledged_to_their_end() -> None:
    harness = ReadingHarness()
    harness.send("a", "b")
    harness.restart()
    harness.send("c", "d")
    mine = {"subscription": SUB, "exclusive_reader": "stream-1"}
    _, new = harness.positions(**mine).sources
    answer = harness.positions(processed=[{"source": new.source, "end": 1}], backlog=True, **mine)
    assert [one.start for one in answer.sources] == [2, 1]


def test_a_seek_is_not_undone_by_a_stream_that_reads_the_subscription() -> None:
    harness = ReadingHarness(retain_acked=True)
    harness.send(*"abc")
    mine = {"subscription": SUB, "exclusive_reader": "stream-1"}
    begun = harness.positions(backlog=True, **mine)
    done = [{"source": begun.sources[0].source, "end": 3}]
    harness.positions(processed=done, generation=begun.generation, **mine)
    harness.quiesce()
    assert harness.positions(subscription=SUB, backlog=True).sources[0].start == 3
    seek_to_time(harness.publish, harness.record, 0, None)
    harness.quiesce()
    error = refusal(harness.positions, processed=done, generation=begun.generation, **mine)
    assert error.code == Code.FAILED_PRECONDITION
    assert "new checkpoint" in str(error)
    harness.quiesce()
    again = harness.positions(subscription=SUB, backlog=True, exclusive_reader="stream-1")
    assert [one.start for one in again.sources] == [0]
    done[0]["end"] = 2
    harness.positions(processed=done, generation=again.generation, **mine)
    assert harness.positions(subscription=SUB, backlog=True).sources[0].start == 2
