"""The recorder: what is collected, numbered, lost and said to be."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from syncpoint.base.model.errors import InvalidArgument, NotFound, PermissionDenied, Unavailable
from syncpoint.base.model.lanes import in_lane
from syncpoint.broker.recording.recorder import HELD_MAX, MESSAGE_RUNS_MAX, RECORDS_MAX, RUNS_MAX, Recorder, runs_of
from syncpoint.broker.recording.recorder_driver import RecorderDriver
from syncpoint.catalog.metadata.entity_options import TopicOptions
from syncpoint.catalog.metadata.records import CatalogChange, Topic
from syncpoint.testing.rigs.plain_tests import on_loop
from syncpoint.wire.protobuf.messages import pubsub
from tests.kit.recording import ListCatalog

pytestmark = pytest.mark.shows("records")

NAME, RECORDS = "projects/p/topics/orders", "projects/p/topics/records"


class Kept:
    """A recorder whose messages are taken by hand."""

    def __init__(self) -> None:
        self.copy = ListCatalog()
        self.recorder = Recorder("node/1", lambda: 5_000_000)
        self.recorder.follow(self.copy)
        self.calls: list[int] = []
        self.recorder.on_noted = lambda: self.calls.append(1)

    def options(self, records: str, topic: int = 1) -> None:
        self.copy.change(CatalogChange.put(Topic(topic, NAME, options=TopicOptions(records_topic=records))))

    def take(self, error: Any = None) -> list[dict[str, Any]]:
        return [self.content(one, error) for one in list(self.recorder.due())]

    def content(self, sent: Any, error: Any = None) -> dict[str, Any]:
        request = pubsub.PublishRequest.FromString(sent.request)
        assert request.topic == sent.target == RECORDS
        assert dict(request.messages[0].attributes) == {"topic": NAME, "writer": "node/1"}
        self.recorder.published(sent, error)
        return json.loads(request.messages[0].data)


def test_what_is_noted_is_published_once_under_numbers_that_go_up() -> None:
    kept = Kept()
    kept.options(RECORDS)
    kept.recorder.note(1, "published", 7, [(0, 3)], published=4)
    kept.recorder.note(1, "delivered", 7, [(0, 1)], "projects/p/subscriptions/s", generation=2)
    assert len(kept.calls) == 1, "the driver is called once, until it asks"
    (first,) = kept.take()
    assert first == {
        "topic": NAME, "writer": "node/1", "number": 1, "lost": 0, "records": [
            {"kind": "published", "at": 5000, "source": 7, "published": 4, "runs": [[0, 3]]},
            {"kind": "delivered", "at": 5000, "source": 7, "subscription": "projects/p/subscriptions/s",
             "generation": 2, "runs": [[0, 1]]},
        ],
    }  # fmt: skip
    assert kept.take() == []
    kept.recorder.note(1, "published", 7, [(3, 1)])
    assert [one["number"] for one in kept.take()] == [2]


def test_a_message_whose_outcome_is_unknown_keeps_its_number_and_what_comes_waits() -> None:
    kept = Kept()
    kept.options(RECORDS)
    kept.recorder.note(1, "published", 7, [(0, 1)])
    (sent,) = kept.recorder.due()
    kept.recorder.note(1, "published", 7, [(1, 1)])
    assert list(kept.recorder.due()) == []
    assert kept.recorder.published(sent, Unavailable("nobody knows")), "it is published again"
    assert not kept.recorder.published(sent, None)
    assert [(one["number"], one["records"][0]["runs"]) for one in kept.take()] == [(2, [[1, 1]])]
    kept.recorder.note(1, "published", 7, [(2, 1)])
    (sent,) = kept.recorder.due()
    assert kept.recorder.waiting() == 1
    assert not kept.recorder.published(sent, NotFound(RECORDS)), "there is no such topic: the number is missing then"
    assert (kept.recorder.records_published, kept.recorder.records_lost, kept.recorder.waiting()) == (2, 1, 0)
    kept.recorder.note(1, "published", 7, [(3, 1)])
    assert [one["number"] for one in kept.take()] == [4]


def test_what_does_not_fit_is_counted_and_long_records_are_cut() -> None:
    kept = Kept()
    kept.options(RECORDS)
    kept.recorder.note(1, "acknowledged", 7, [(2 * at, 1) for at in range(RUNS_MAX + 1)])
    (cut,) = kept.take()
    assert [len(one["runs"]) for one in cut["records"]] == [RUNS_MAX, 1]
    for at in range(HELD_MAX + 3):
        kept.recorder.note(1, "published", 7, [(at, 1)])
    assert kept.recorder.waiting() == HELD_MAX
    (first,) = kept.take()
    assert (len(first["records"]), first["lost"]) == (RECORDS_MAX, 3)
    recorder = kept.recorder
    assert (recorder.records_published, recorder.records_lost) == (2 + RECORDS_MAX, 3)
    assert recorder.waiting() == HELD_MAX - RECORDS_MAX


def test_copies_by_rules_are_named_by_their_lane() -> None:
    kept = Kept()
    kept.options(RECORDS)
    kept.recorder.note(1, "acknowledged", 7, [(4, 2), (in_lane(3, 4), 1)])
    assert [(one.get("lane"), one["runs"]) for one in kept.take()[0]["records"]] == [(0, [[4, 2]]), (3, [[4, 1]])]


def test_options_begin_and_end_it_and_a_writer_never_begins_its_numbers_again() -> None:
    kept, added = Kept(), []
    kept.recorder.on_added = added.append
    kept.recorder.note(1, "published", 7, [(0, 1)])
    assert not kept.recorder.topics
    kept.options(RECORDS)
    kept.options(RECORDS)
    assert added == [1]
    kept.recorder.note(1, "published", 7, [(0, 1)])
    kept.recorder.note(1, "returned", 7, [])
    assert [(one["number"], len(one["records"])) for one in kept.take()] == [(1, 1)]
    kept.options("")
    assert not kept.recorder.topics
    kept.options(RECORDS)
    kept.recorder.note(1, "published", 7, [(1, 1)])
    assert [one["number"] for one in kept.take()] == [3], (
        "the one left out says that there is something unknown between"
    )
    kept.copy.change(CatalogChange.delete(Topic(1, NAME, options=TopicOptions(records_topic=RECORDS))))
    assert not kept.recorder.topics


def test_an_orderly_end_is_said_in_the_last_message() -> None:
    kept = Kept()
    kept.options(RECORDS)
    assert not kept.recorder.end()
    for at in range(RECORDS_MAX + 1):
        kept.recorder.note(1, "published", 7, [(at, 1)])
    assert kept.recorder.end()
    assert [one.get("ended", False) for one in (*kept.take(), *kept.take(), *kept.take())] == [False, True]


def test_runs_of_offsets() -> None:
    assert runs_of([]) == []
    assert runs_of([1, 2, 3, 7, 9, 10]) == [(1, 3), (7, 1), (9, 2)]


def test_a_message_stays_within_what_a_publish_takes() -> None:
    kept = Kept()
    kept.options(RECORDS)
    runs = [(10_000_000 + 3 * number, 2) for number in range(3 * MESSAGE_RUNS_MAX)]
    kept.recorder.note(1, "found", 7, runs)
    found: list[list[int]] = []
    while sent := list(kept.recorder.due()):
        assert len(sent[0].request) < 5_000_000
        found += [run for one in kept.content(sent[0])["records"] for run in one["runs"]]
    assert found == [list(run) for run in runs]


def test_records_wait_while_they_are_refused_and_go_where_they_then_go() -> None:
    kept = Kept()
    refused = {RECORDS: "PERMISSION_DENIED: ann may not."}
    kept.recorder.refusal = lambda topic: refused.get(topic.options.records_topic, "")
    kept.options(RECORDS)
    kept.recorder.note(1, "published", 7, [(0, 1)])
    (sent,) = kept.recorder.due()
    with pytest.raises(PermissionDenied, match="ann may not") as denied:
        kept.recorder.check(sent)
    assert kept.recorder.published(sent, denied.value), "it is tried again"
    assert kept.recorder.retargeted(sent) is sent
    assert kept.recorder.waiting() == 1
    kept.options("projects/p/topics/elsewhere")
    with pytest.raises(Unavailable, match="any more"):
        kept.recorder.check(sent)
    moved = kept.recorder.retargeted(sent)
    kept.recorder.check(moved)
    request = pubsub.PublishRequest.FromString(moved.request)
    assert request.topic == moved.target == "projects/p/topics/elsewhere"
    assert json.loads(request.messages[0].data)["number"] == 1
    assert not kept.recorder.published(moved, None)
    assert not kept.recorder.waiting()
    kept.options("")
    with pytest.raises(Unavailable, match="any more"):
        kept.recorder.check(moved)
    assert not kept.recorder.published(moved, Unavailable("")), "nobody waits for it"


@on_loop
async def test_what_is_refused_is_published_once_that_is_over() -> None:
    kept, sent = Kept(), asyncio.Queue[str]()
    refused = ["PERMISSION_DENIED: ann may not."]
    asked = asyncio.Event()

    def refusal(topic: Topic) -> str:
        asked.set()
        return refused[0]

    async def publish(topic: str, request: bytes) -> bytes:
        sent.put_nowait(topic)
        return b""

    kept.recorder.refusal = refusal
    driver = RecorderDriver(kept.recorder, publish)
    kept.options(RECORDS)
    driver.start()
    kept.recorder.note(1, "published", 7, [(0, 1)])
    await asked.wait()
    assert sent.empty()
    refused[0] = ""
    assert await sent.get() == RECORDS
    await driver.stop()


def test_a_message_that_is_never_taken_does_not_hold_up_the_next_one() -> None:
    kept = Kept()
    kept.options(RECORDS)
    kept.recorder.note(1, "published", 7, [(0, 1)])
    assert [one["number"] for one in kept.take(InvalidArgument("messages", "no"))] == [1]
    kept.recorder.note(1, "published", 7, [(1, 1)])
    assert [one["number"] for one in kept.take()] == [2]
