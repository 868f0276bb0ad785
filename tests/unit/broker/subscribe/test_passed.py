"""What could not be read when it was its turn is delivered once it can be."""

from itertools import pairwise

import pytest

from syncpoint.broker.subscribe.passed import FIRST_S, MOST_S, PassedOver
from syncpoint.broker.subscribe.retry import OffsetRun
from syncpoint.catalog.metadata.records import CatalogChange, DeadLetter, Retry, Topic
from syncpoint.log.storage.record import EntryKind
from syncpoint.testing.rigs.forwarder_harness import ForwarderHarness, Subscriber


def positions(harness: ForwarderHarness) -> list[int]:
    """Of the entries that hold messages."""
    return [entry.position for entry in harness.store.entries if entry.kind == EntryKind.MESSAGES]


def test_runs_are_tried_ever_more_rarely_until_they_are_read() -> None:
    passed, run, now = PassedOver(), OffsetRun(5, 10, 20, 1), 0.0
    passed.answered(run, [(0, 15), (18, 30)], now)
    times = []
    for _ in range(9):
        while not (due := passed.take_due(now)):
            now += 0.5
        assert sorted(due) == [OffsetRun(5, 10, 15, 1), OffsetRun(5, 18, 20, 1)]
        times.append(now)
        for one in due:
            passed.answered(one, [(one.begin, one.end)], now)
    waits = [later - earlier for earlier, later in pairwise(times)]
    assert times[0] == FIRST_S
    assert waits == sorted(waits)
    assert waits[-1] == MOST_S
    passed.answered(OffsetRun(5, 12, 19, 1), (), now)  # read in another way
    now += MOST_S
    assert sorted(passed.take_due(now)) == [OffsetRun(5, 10, 12, 1), OffsetRun(5, 19, 20, 1)]
    assert passed.take_due(now + MOST_S) == [], "not while it is being tried"
    passed.forget_source(5)
    assert not passed


def repaired(harness: ForwarderHarness, subscriber: Subscriber) -> None:
    """Everything can be read again; wait for the next delivery."""
    harness.store.damaged.clear()
    before = len(subscriber.data)
    for _ in range(round(MOST_S) + 1):
        if len(subscriber.data) > before:
            return
        harness.advance(1)
    raise AssertionError("it is not delivered")


@pytest.mark.parametrize("ordered", [False, True])
def test_a_new_message_that_could_not_be_read_is_delivered_when_it_can_be(ordered: bool) -> None:
    harness = ForwarderHarness(ordered=ordered)
    for data in "abc":
        harness.send(data, key="k" if ordered else "")
    harness.store.damaged.add(positions(harness)[1])
    subscriber = Subscriber(harness)
    harness.advance(3)
    assert subscriber.data == ["a", "c"], "what lies behind it is not held up"
    subscriber.ack()
    harness.advance(20)
    assert subscriber.data == ["a", "c"]
    repaired(harness, subscriber)
    assert subscriber.data == ["a", "c", "b"]
    subscriber.ack()
    harness.advance(30)
    assert subscriber.data == ["a", "c", "b"]
    assert not harness.subscribe.delivery(harness.record).reader.passed


def test_the_newest_message_that_could_not_be_read_is_delivered_when_it_can_be() -> None:
    harness = ForwarderHarness()
    subscriber = Subscriber(harness)
    harness.send("a")
    harness.send("b", quiesce=False)
    while harness.soon:
        harness.soon.popleft()()
    harness.store.damaged.add(positions(harness)[-1])
    harness.quiesce()
    harness.send("c")
    assert subscriber.data == ["a", "c"]
    harness.store.damaged.clear()
    harness.advance(3)
    assert subscriber.data == ["a", "c", "b"]


@pytest.mark.parametrize("key", ["", "k"])
def test_a_message_that_can_not_be_read_again_when_it_came_back_is_delivered_when_it_can_be(key: str) -> None:
    harness = ForwarderHarness(ordered=bool(key))
    subscriber = Subscriber(harness)
    harness.send("a", key=key)
    harness.store.damaged.update(positions(harness))
    subscriber.nack(*subscriber.held)
    harness.advance(3)
    assert subscriber.data == ["a"]
    repaired(harness, subscriber)
    assert subscriber.data == ["a", "a"]
    subscriber.ack()
    harness.advance(30)
    assert subscriber.data == ["a", "a"]


def test_its_deliveries_are_still_counted() -> None:
    dead = DeadLetter("projects/p/topics/dead", 5)
    harness = ForwarderHarness(dead_letter=dead, retry=Retry(0.1, 0.1))
    harness.commit(CatalogChange.put(Topic(9, "projects/p/topics/dead")))
    subscriber = Subscriber(harness)
    harness.send("a")
    subscriber.nack(*subscriber.held)
    harness.store.damaged.update(positions(harness))
    harness.advance(3)
    repaired(harness, subscriber)
    assert [message.delivery_attempt for message in subscriber.received] == [1, 2]


def test_a_dead_letter_that_can_not_be_read_is_not_taken_for_acknowledged() -> None:
    dead = DeadLetter("projects/p/topics/dead", 5)
    harness = ForwarderHarness(dead_letter=dead)
    harness.commit(CatalogChange.put(Topic(9, "projects/p/topics/dead")))
    subscriber = Subscriber(harness)
    harness.send("a")
    for _ in range(4):
        subscriber.nack(*subscriber.held)
    mine = positions(harness)
    harness.store.damaged.update(mine)
    subscriber.nack(*subscriber.held)
    harness.advance(5)
    ledger = harness.publish.ledgers[2]
    (source,) = harness.publish.sources.of_topic(1)
    assert ledger.first_gap(source.number, 0) == 0
    assert positions(harness) == mine, "nothing was published to the dead letter topic"
    repaired(harness, subscriber)
    subscriber.nack(*subscriber.held)
    harness.quiesce()
    assert ledger.first_gap(source.number, 0) == 1
    assert len(positions(harness)) == len(mine) + 1
