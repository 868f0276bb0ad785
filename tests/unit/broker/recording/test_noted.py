"""What publish and subscribe forwarders note of messages, over both of them and a log in memory."""

from __future__ import annotations

import json
from typing import Any

import pytest

from syncpoint.base.model.identity import OFFSET_END
from syncpoint.broker.publish.keep.backlog import unacknowledged
from syncpoint.broker.recording.recorder import Recorder
from syncpoint.catalog.metadata.entity_options import TopicOptions
from syncpoint.catalog.metadata.records import CatalogChange, DeadLetter, Topic
from syncpoint.testing.rigs.forwarder_harness import TOPIC, ForwarderHarness, Subscriber
from syncpoint.wire.protobuf.messages import pubsub
from tests.kit.recording import ListCatalog

pytestmark = pytest.mark.shows("records")

RECORDED = TopicOptions(records_topic="projects/p/topics/records")


class Recorded(ForwarderHarness):
    """The harness, with a recorder."""

    def __init__(self, options: TopicOptions = RECORDED, **more: Any) -> None:
        super().__init__(**more)
        self.recorder = Recorder("test", self.clock.time_ns)
        self.commit(CatalogChange.put(Topic(1, TOPIC, options=options)))
        self.recorder.follow(ListCatalog(self.publish.catalog))
        self.publish.commit.recorder = self.subscribe.recorder = self.recorder

    def noted(self) -> list[tuple[Any, ...]]:
        """Kind, runs, and why, of what was noted since."""
        found = []
        for sent in list(self.recorder.due()):
            data = pubsub.PublishRequest.FromString(sent.request).messages[0].data
            found += [
                (one["kind"], [tuple(run) for run in one["runs"]], *((one["why"],) if "why" in one else ()))
                for one in json.loads(data)["records"]
            ]
            self.recorder.published(sent, None)
        return found


def test_a_message_is_published_delivered_and_acknowledged() -> None:
    harness = Recorded()
    subscriber = Subscriber(harness)
    harness.send("a", "b", "c")
    assert harness.noted() == [("published", [(0, 3)]), ("delivered", [(0, 3)])]
    subscriber.ack()
    assert harness.noted() == [("acknowledged", [(0, 3)])]


def test_what_comes_back_and_is_delivered_again() -> None:
    harness = Recorded()
    subscriber = Subscriber(harness)
    harness.send("a", "b", "c")
    harness.noted()
    subscriber.nack(next(iter(subscriber.held)))
    assert harness.noted() == [("returned", [(0, 1)], "nacked"), ("delivered", [(0, 1)])]
    harness.advance(11)
    assert harness.noted() == [("returned", [(0, 3)], "deadline"), ("delivered", [(0, 3)])]


def test_what_a_filter_leaves_out_is_said_to_be_filtered_and_the_rest_is_named_exactly() -> None:
    harness = Recorded(filter_text='attributes.kind = "x"')
    Subscriber(harness)
    for at in range(4):
        harness.send(str(at), kind="x" if at % 2 else "y", quiesce=False)
    harness.quiesce()
    found = harness.noted()
    assert ("filtered", [(0, 1), (2, 1)]) in found
    assert ("delivered", [(1, 1), (3, 1)]) in found
    harness.advance(0.1)
    assert harness.noted() == [("acknowledged", [(0, 1), (2, 1)])]


def test_what_runs_out_is_said_to_be_expired() -> None:
    harness = Recorded(RECORDED._replace(default_ttl_s=5))
    harness.send("a", "b")
    harness.advance(6)
    harness.noted()
    Subscriber(harness)
    harness.quiesce()
    assert [one for one in harness.noted() if one[0] == "expired"] == [("expired", [(0, 2)])]


def test_what_runs_out_with_nobody_there_is_said_to_be_expired_once() -> None:
    harness = Recorded(RECORDED._replace(default_ttl_s=5))
    subscriber = Subscriber(harness, max_messages=2)
    harness.send("a", "b", "c", "d")
    subscriber.ack(next(one for one, data in subscriber.held.items() if data == "b"))
    harness.subscribe.leave(harness.record, subscriber.consumer)
    harness.noted()
    harness.advance(6)
    for _ in range(2):
        assert unacknowledged(harness.publish, harness.record) == 0
    expired = [run for kind, runs, *_ in harness.noted() if kind == "expired" for run in runs]
    assert sorted(offset for begin, count in expired for offset in range(begin, begin + count)) == [0, 2, 3]
    subscriber = Subscriber(harness)
    harness.send("e")
    assert subscriber.data == ["e"]
    assert harness.noted() == [("published", [(4, 1)]), ("delivered", [(4, 1)])]


def test_a_dead_letter_is_named() -> None:
    harness = Recorded(dead_letter=DeadLetter("projects/p/topics/dead", 1))
    harness.commit(CatalogChange.put(Topic(3, "projects/p/topics/dead")))
    subscriber = Subscriber(harness)
    harness.send("a")
    subscriber.nack(*subscriber.held)
    harness.advance(0.1)
    assert harness.noted() == [
        ("published", [(0, 1)]),
        ("delivered", [(0, 1)]),
        ("returned", [(0, 1)], "nacked"),
        ("dead-lettered", [(0, 1)], "MaxDeliveryCountExceeded"),
        ("acknowledged", [(0, 1)]),
    ]


def test_a_seek_says_what_counts_as_acknowledged() -> None:
    harness = Recorded(retain_acked=True)
    subscriber = Subscriber(harness)
    harness.send("a", "b")
    subscriber.ack()
    harness.noted()
    harness.publish.replace_acks(2, {source: harness.publish.ledgers[2].acks[source].copy() for source in
                                     harness.publish.ledgers[2].acks}, None)  # fmt: skip
    harness.quiesce()
    assert ("placed", [(0, 2)]) in harness.noted()


@pytest.mark.parametrize("options", [TopicOptions(), TopicOptions(default_ttl_s=5)])
def test_a_topic_without_the_option_is_not_recorded(options: TopicOptions) -> None:
    harness = Recorded(options)
    subscriber = Subscriber(harness)
    harness.send("a")
    subscriber.ack()
    assert harness.noted() == []
    assert not harness.recorder.topics


def test_what_is_void_after_a_step_that_failed_is_said_to_be_revoked() -> None:
    harness = Recorded()
    Subscriber(harness)
    harness.send("a", "b")
    harness.noted()
    harness.subscribe.delivery(harness.record).begin_anew()
    harness.quiesce()
    assert harness.noted() == [("returned", [(0, OFFSET_END)], "revoked"), ("delivered", [(0, 2)])]
