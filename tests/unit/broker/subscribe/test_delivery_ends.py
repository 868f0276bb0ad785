"""Seeks, and ends of subscribers and subscriptions, over both forwarders."""

from __future__ import annotations

import pytest

from syncpoint.base.model.errors import NotFound
from syncpoint.broker.publish.intake.seek import seek_to_snapshot, seek_to_time
from syncpoint.catalog.metadata.records import CatalogChange, Subscription, Topic
from syncpoint.testing.rigs.forwarder_harness import SUB, TOPIC, ForwarderHarness, Subscriber
from syncpoint.wire.protobuf.messages import pubsub

pytestmark = pytest.mark.shows("exactly-once")


def test_seek_to_a_time_revives_and_purges() -> None:
    harness = ForwarderHarness(retain_acked=True)
    subscriber = Subscriber(harness)
    harness.send("old")
    harness.clock.advance(1)
    harness.send("new")
    boundary = subscriber.received[-1].message.publish_time.ToNanoseconds()
    subscriber.ack()
    seek_to_time(harness.publish, harness.record, boundary, lambda error: None)
    harness.quiesce()
    assert subscriber.data == ["old", "new", "new"], "what was published at the very time is included"
    seek_to_time(harness.publish, harness.record, harness.clock.time_ns() + 10**18, lambda error: None)
    harness.quiesce()
    assert subscriber.ack(*subscriber.held) == [], "ids of the old generation are ignored"
    harness.send("after")
    assert subscriber.data[-1] == "after"
    harness.restart()
    again = Subscriber(harness)
    harness.quiesce()
    assert again.data == ["after"], "the seek survives, an acknowledgement of the old generation does not undo it"


def test_seek_to_a_snapshot_replays_what_was_not_acknowledged_then() -> None:
    harness = ForwarderHarness()
    subscriber = Subscriber(harness)
    harness.send("a", "b")
    by_data = {data: ack_id for ack_id, data in subscriber.held.items()}
    subscriber.ack(by_data["a"])
    harness.take_snapshot(9)
    subscriber.ack()
    harness.send("c")
    subscriber.ack()
    seek_to_snapshot(harness.publish, harness.record, 9, lambda error: None)
    harness.quiesce()
    assert subscriber.data == ["a", "b", "c", "b", "c"]


def test_a_deleted_subscription_ends_its_subscribers() -> None:
    harness = ForwarderHarness()
    subscriber = Subscriber(harness)
    harness.commit(CatalogChange.delete(harness.record))
    assert subscriber.gone
    with pytest.raises(NotFound):
        harness.subscribe.named(SUB)


def test_a_subscriber_that_leaves_gives_back_what_was_not_sent() -> None:
    harness = ForwarderHarness()
    subscriber = Subscriber(harness)
    harness.send("a", "b")
    serial = harness.leases.table.last_serial
    harness.subscribe.leave(harness.record, subscriber.consumer, [serial])
    other = Subscriber(harness)
    harness.quiesce()
    assert other.data == ["a", "b"]


def test_a_subscriber_that_is_gone_gives_back_what_it_never_confirmed() -> None:
    for exactly_once, expected in ((False, ["b"]), (True, [])):
        harness = ForwarderHarness(exactly_once=exactly_once)
        subscriber = Subscriber(harness)
        harness.send("a", "b")
        by_data = {data: ack_id for ack_id, data in subscriber.held.items()}
        request = pubsub.ModifyAckDeadlineRequest(subscription=SUB, ack_ids=[by_data["a"]]).SerializeToString()
        assert harness.leases.modify(request, 4, 20, harness.clock.monotonic()) == []
        harness.subscribe.leave(harness.record, subscriber.consumer, over=True)
        other = Subscriber(harness)
        harness.quiesce()
        assert other.data == expected
        harness.advance(21)
        assert set(other.data) == {"a", "b"}


def test_a_subscription_gets_everything_published_after_it_was_created() -> None:
    harness = ForwarderHarness()
    harness.send("before")
    late = Subscription(
        30,
        "projects/p/subscriptions/late",
        1,
        harness.record.topic_name,
        created_revision=harness.publish.catalog.revision + 1,
    )
    harness.commit(CatalogChange.put(late))
    harness.send("after")
    harness.restart()
    harness.record = harness.publish.catalog.subscription("projects/p/subscriptions/late")  # type: ignore[assignment]
    subscriber = Subscriber(harness)
    harness.quiesce()
    assert subscriber.data == ["after"]


def test_what_the_topic_keeps_is_available_to_subscriptions_that_keep_less() -> None:
    harness = ForwarderHarness(retention_s=600)
    harness.commit(CatalogChange.put(Topic(1, TOPIC, retention_s=86_400)))
    subscriber = Subscriber(harness)
    harness.send("a")
    subscriber.ack()
    began = harness.clock.time_ns() - 1
    harness.clock.advance(3_600)
    seek_to_time(harness.publish, harness.record, began, lambda error: None)
    harness.quiesce()
    assert subscriber.data == ["a", "a"]
