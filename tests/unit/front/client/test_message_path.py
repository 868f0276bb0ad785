"""One message's path out of records: what happened, and what nobody knows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from syncpoint.base.model.errors import FailedPrecondition, NotFound
from syncpoint.base.model.identity import format_message_id
from syncpoint.front.client.message_path import RecordedPath, events_of, letters_of, recorded_path, topics_of
from syncpoint.wire.protobuf.messages import admin, pubsub

TOPIC, SUB = "projects/p/topics/orders", "projects/p/subscriptions/billing"
UNIVERSE = 10**12


def content(number: int, *records: dict[str, Any], writer: str = "node/1", **more: Any) -> dict[str, Any]:
    return {"topic": TOPIC, "writer": writer, "number": number, "lost": 0, "records": list(records), **more}


def record(kind: str, at: int, *runs: tuple[int, int], **more: Any) -> dict[str, Any]:
    return {"kind": kind, "at": at, "source": 7, "runs": runs, **more}


WHOLE = [
    content(1, record("published", 2_000, (0, 10), published=1_000, log=3)),
    content(
        2,
        record("delivered", 3_000, (0, 2), (4, 2), subscription=SUB, generation=0, attempt=1),
        record("delivered", 3_000, (2, 2), subscription=SUB, generation=0),
        {**record("delivered", 3_500, (5, 1), subscription=SUB), "source": 8},
    ),
    content(
        3,
        record("returned", 4_000, (5, 1), subscription=SUB, generation=1, why="nacked"),
        record("acknowledged", 5_000, (5, 1), subscription=SUB, lane=2),
        record("dead-lettered", 6_000, (5, 1), subscription=SUB, to="dead", message_id="9", why="x"),
    ),
]


def test_the_events_of_one_message() -> None:
    assert [(one.at_us, one.event, one.subscription, one.detail) for one in events_of(WHOLE, 7, 5)] == [
        (1_000, "published", "", "in a batch of 10"),
        (2_000, "persisted", "", "in log 3, after 1.0 ms"),
        (3_000, "delivered", SUB, "attempt 1"),
        (4_000, "came back", SUB, "nacked, after seek 1"),
        (5_000, "acknowledged", SUB, "copy of lane 2"),
        (6_000, "dead-lettered", SUB, "to dead as 9: x"),
    ]
    assert list(events_of(WHOLE, 7, 10)) == []


def test_a_dead_letter_is_followed_to_its_topic() -> None:
    server = Server()
    dead = format_message_id(UNIVERSE, 7, 1)
    letter = {**record("dead-lettered", 6_000, (5, 1), subscription=SUB), "to": "projects/p/topics/dead",
              "message_id": dead}  # fmt: skip
    path = RecordedPath("here", TOPIC, 7, 5, events=list(events_of([content(1, letter)], 7, 5)))
    (found,) = letters_of(server.call, path)
    assert (found.topic, found.source, found.offset) == ("projects/p/topics/dead", 7, 1)
    assert "delivered" in {one.event for one in found.events}
    (found,) = letters_of(Server("").call, path)
    assert "is not recorded" in found.unknown[0]


class Server:
    """Answers of a server that stores message 5 of source 7, and records in pages of one."""

    def __init__(self, records_topic: str = "projects/p/topics/records", records: list[dict[str, Any]] = WHOLE) -> None:
        self.records_topic, self.records, self.asked = records_topic, records, []

    def call(self, method: str, request: Any) -> Any:
        self.asked.append(request)
        if method == "Publisher.ListTopics":
            return pubsub.ListTopicsResponse(
                topics=[pubsub.Topic(name="projects/p/topics/a"), pubsub.Topic(name=TOPIC)]
            )
        if method == "Admin.GetTopicOptions":
            return admin.TopicOptions(records_topic=self.records_topic)
        if request.topic == self.records_topic:
            at = int(request.page_token or 0)
            message = pubsub.PubsubMessage(data=json.dumps(self.records[at]).encode())
            more = str(at + 1) if at + 1 < len(self.records) else ""
            return admin.PeekResponse(
                messages=[admin.PeekedMessage(message=message)] * 2, next_page_token=more, unknown=["chain 2 is away"]
            )
        answer = admin.PeekResponse()
        if request.topic == TOPIC:
            found = answer.messages.add(source=7, offset=5)
            found.message.message_id = format_message_id(UNIVERSE, 7, 5)
            found.message.publish_time.seconds = 10_000
        return answer


def test_the_records_of_a_topic_are_read_from_its_publish_time_on() -> None:
    server = Server()
    path = recorded_path(server.call, "here", TOPIC, 7, 5)
    assert [one.event for one in path.events] == [one.event for one in events_of(WHOLE, 7, 5)]
    assert path.unknown == ["chain 2 is away"]
    assert server.asked[-1].start_time.seconds == 9_400, "clocks may have differed by ten minutes"
    with pytest.raises(FailedPrecondition, match="is not recorded"):
        recorded_path(Server("").call, "here", TOPIC, 7, 5)


def test_gaps_of_the_records_are_said() -> None:
    path = recorded_path(Server(records=[WHOLE[0], WHOLE[2]]).call, "here", TOPIC, 7, 5)
    assert path.unknown[1:] == [
        "What node/1 did between 1970-01-01T00:00:00.002000Z and 1970-01-01T00:00:00.004000Z, since message 2 of its"
        " records is not stored (any more)."
    ]
    behind = recorded_path(Server(records=WHOLE[1:]).call, "here", TOPIC, 7, 5)
    assert behind.unknown == ["chain 2 is away"], "older records than those of the message are not asked for"
    gone = recorded_path(Server(records=WHOLE[1:]).call, "here", TOPIC, 7, 6)
    assert "message 1 of its records is not stored (any more)" in gone.unknown[1], "where nobody knows how old it is"


def test_the_topic_of_a_message_is_found_by_its_id() -> None:
    assert topics_of(Server().call, "p", format_message_id(UNIVERSE, 7, 5)) == [TOPIC]
    with pytest.raises(NotFound, match="No topic of the project p"):
        topics_of(Server().call, "p", format_message_id(UNIVERSE + 1, 7, 5))
