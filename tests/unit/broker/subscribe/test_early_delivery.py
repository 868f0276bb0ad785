"""Messages that are delivered before they are persisted."""

from dataclasses import replace
from typing import Any

import pytest

from syncpoint.base.model.errors import Unavailable
from syncpoint.broker.publish.keep.backlog import unacknowledged
from syncpoint.catalog.metadata.records import CatalogChange, DeadLetter, Subscription, Topic, encode_changes
from syncpoint.log.storage.record import EntryKind
from syncpoint.testing.rigs.forwarder_harness import SUB, ForwarderHarness, Subscriber
from syncpoint.wire.protobuf.messages import pubsub

pytestmark = pytest.mark.shows("early-delivery")


def test_early_delivery_does_not_wait_for_the_disks_and_a_failed_write_is_reported() -> None:
    harness = ForwarderHarness(early_delivery=True)
    subscriber = Subscriber(harness)
    harness.quiesce()
    caller = harness.send("early", quiesce=False)
    while harness.soon:
        harness.soon.popleft()()
    assert subscriber.data == ["early"], "seen before it is persisted"
    harness.store.fail(OSError("disk gone"))
    assert isinstance(caller.error, Unavailable), "its publisher is notified that the outcome is unknown"
    with pytest.raises(Unavailable):
        harness.send("later")


def turns(harness: ForwarderHarness) -> None:
    while harness.soon:
        harness.soon.popleft()()


DEAD = DeadLetter("projects/p/topics/dead", 5)


@pytest.mark.parametrize(
    "options", [{}, {"ordered": True}, {"dead_letter": DEAD}, {"ordered": True, "dead_letter": DEAD}]
)
def test_what_was_delivered_early_is_not_forgotten_where_that_is_switched_off(options: dict[str, object]) -> None:
    harness = ForwarderHarness(early_delivery=True, **options)
    harness.commit(
        CatalogChange.put(Topic(7, DEAD.topic)),
        CatalogChange.put(Subscription(8, "projects/p/subscriptions/d", 7, DEAD.topic)),
    )
    subscriber = Subscriber(harness)
    harness.quiesce()
    harness.send("early", key="k", quiesce=False)
    turns(harness)
    for _ in range(4):
        harness.leases.modify(nack(subscriber), 4, 0, harness.clock.monotonic())
        turns(harness)
    assert subscriber.data == ["early"] * 5
    change(harness, early_delivery=False)
    harness.leases.modify(nack(subscriber), 4, 0, harness.clock.monotonic())
    turns(harness)
    harness.send("later", key="k", quiesce=False)
    harness.advance(3)
    if "dead_letter" in options:
        assert subscriber.data == ["early"] * 5 + ["later"]
        assert sum(source.end for source in harness.publish.sources.of_topic(7)) == 1
        assert unacknowledged(harness.publish, harness.record) == 1
    else:
        assert subscriber.data == ["early"] * 6 + ["later"]
    before = len(subscriber.data)
    harness.send("persisted", quiesce=False)
    turns(harness)
    assert len(subscriber.data) == before, "it is switched off now"
    harness.quiesce()
    assert subscriber.data[-1] == "persisted"


def nack(subscriber: Subscriber) -> bytes:
    ids, subscriber.held = list(subscriber.held), {}
    return pubsub.ModifyAckDeadlineRequest(subscription=SUB, ack_ids=ids).SerializeToString()


def change(harness: ForwarderHarness, **options: Any) -> None:
    """Of the subscription; the disks do not have it yet."""
    (assigned,) = harness.publish.catalog.assign([CatalogChange.put(replace(harness.record, **options))])
    harness.publish.commit.append_fact(EntryKind.CATALOG, encode_changes([assigned]))
    harness.publish.catalog.apply(assigned)
    harness.follower.changed(assigned)


def test_what_was_delivered_early_and_is_nowhere_to_be_read_comes_back_later(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = ForwarderHarness(early_delivery=True)
    subscriber = Subscriber(harness)
    harness.quiesce()
    harness.send("early", quiesce=False)
    turns(harness)
    with monkeypatch.context() as patched:
        read = harness.store.read
        patched.setattr(harness.store, "read", lambda *asked, early=False: read(*asked))  # memory has let go of it
        harness.leases.modify(nack(subscriber), 4, 0, harness.clock.monotonic())
        turns(harness)
        assert subscriber.data == ["early"]
    harness.advance(1)
    assert subscriber.data == ["early", "early"]
