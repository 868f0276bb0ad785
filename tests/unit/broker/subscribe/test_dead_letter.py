"""Messages that were delivered too often and go to the dead letter topic."""

from syncpoint.base.model.names import DEAD_LETTERS_REFUSED
from syncpoint.catalog.metadata.entity_options import SubscriptionOptions
from syncpoint.catalog.metadata.records import CatalogChange, DeadLetter, Subscription, Topic
from syncpoint.testing.rigs.forwarder_harness import SUB, ForwarderHarness, Subscriber


def test_dead_letters_carry_where_they_came_from() -> None:
    harness = ForwarderHarness(dead_letter=DeadLetter("projects/p/topics/dead", 5))
    harness.commit(
        CatalogChange.put(Topic(7, "projects/p/topics/dead")),
        CatalogChange.put(Subscription(8, "projects/p/subscriptions/dead", 7, "projects/p/topics/dead")),
    )
    subscriber = Subscriber(harness)
    harness.send("poison", key="k", colour="red")
    attempts = []
    for _ in range(5):
        attempts.append(subscriber.received[-1].delivery_attempt)
        subscriber.nack(*subscriber.held)
    assert attempts == [1, 2, 3, 4, 5]
    assert len(subscriber.received) == 5, "after the last attempt it is not offered again"
    harness.record = harness.publish.catalog.subscription("projects/p/subscriptions/dead")  # type: ignore[assignment]
    dead = Subscriber(harness)
    harness.quiesce()
    (letter,) = dead.received
    assert letter.message.data == b"poison"
    assert letter.message.ordering_key == "k"
    assert letter.message.attributes["colour"] == "red"
    assert letter.message.attributes["CloudPubSubDeadLetterSourceDeliveryCount"] == "5"
    assert letter.message.attributes["CloudPubSubDeadLetterSourceSubscription"] == "billing"
    assert letter.message.message_id != subscriber.received[0].message.message_id


def test_a_dead_letter_without_its_topic_is_not_lost() -> None:
    harness = ForwarderHarness(dead_letter=DeadLetter("projects/p/topics/nowhere", 5))
    subscriber = Subscriber(harness)
    harness.send("poison")
    for _ in range(5):
        subscriber.nack(*subscriber.held)
    harness.advance(2)
    assert len(subscriber.received) == 6


def test_a_message_is_not_given_up_to_where_that_is_not_allowed() -> None:
    harness = ForwarderHarness(dead_letter=DeadLetter("projects/p/topics/dead", 5))
    harness.commit(CatalogChange.put(Topic(7, "projects/p/topics/dead")))
    harness.subscribe.letter_refusal = lambda record: DEAD_LETTERS_REFUSED if record.name == SUB else ""
    subscriber = Subscriber(harness)
    harness.send("poison")
    for _ in range(5):
        subscriber.nack(*subscriber.held)
    harness.advance(2)
    assert len(subscriber.received) == 6
    assert harness.publish.sources.of_topic(7) == []


def test_a_dead_letter_that_is_not_found_is_not_acknowledged() -> None:
    harness = ForwarderHarness(dead_letter=DeadLetter("projects/p/topics/dead", 5))
    harness.commit(CatalogChange.put(Topic(7, "projects/p/topics/dead")))
    subscriber = Subscriber(harness)
    harness.send("poison")
    fetch = harness.publish.server.fetch
    for _ in range(5):
        if subscriber.received[-1].delivery_attempt == 5:
            harness.publish.server.fetch = lambda *asked: asked[-1]([])  # type: ignore[method-assign]
        subscriber.nack(*subscriber.held)
    harness.publish.server.fetch = fetch  # type: ignore[method-assign]
    harness.advance(2)
    (source,) = harness.publish.sources.of_topic(harness.record.topic_incarnation)
    ledger = harness.publish.ledgers[harness.record.incarnation]
    assert not ledger.covers(source.number, 0, 1), "nobody has said that it was acknowledged, and nothing keeps it"


def test_a_dead_letter_lets_its_key_go_on() -> None:
    harness = ForwarderHarness(ordered=True, dead_letter=DeadLetter("projects/p/topics/dead", 5))
    harness.commit(CatalogChange.put(Topic(20, "projects/p/topics/dead")))
    subscriber = Subscriber(harness)
    for data in "abc":
        harness.send(data, key="k")
    for _ in range(5):
        subscriber.nack(next(ack_id for ack_id, data in subscriber.held.items() if data == "a"))
    harness.quiesce()
    assert subscriber.data == ["a", "b", "c"] * 5 + ["b", "c"]


def test_a_message_as_large_as_the_limits_allow_still_becomes_a_dead_letter() -> None:
    harness = ForwarderHarness(dead_letter=DeadLetter("projects/p/topics/dead", 5))
    dead = Subscription(21, "projects/p/subscriptions/dead", 20, "projects/p/topics/dead")
    harness.commit(CatalogChange.put(Topic(20, "projects/p/topics/dead")), CatalogChange.put(dead))
    subscriber = Subscriber(harness)
    harness.send("poison", **{f"k{number}": "v" for number in range(100)})
    for _ in range(5):
        subscriber.nack(*subscriber.held)
    harness.advance(2)
    assert len(subscriber.received) == 5
    harness.record = dead
    letters = Subscriber(harness)
    harness.quiesce()
    assert letters.data == ["poison"]


def test_what_the_filter_leaves_out_becomes_no_letter() -> None:
    """Its time to live has ended before it was looked at."""
    harness = ForwarderHarness(
        dead_letter=DeadLetter("projects/p/topics/dead", 5), filter_text="attributes:wanted",
        options=SubscriptionOptions(ttl_s=60, dead_letter_expired=True),
    )  # fmt: skip
    harness.commit(CatalogChange.put(Topic(7, "projects/p/topics/dead")))
    harness.send("no")
    harness.send("yes", wanted="1")
    harness.quiesce()
    harness.clock.advance(100)
    Subscriber(harness)
    harness.advance(2)
    (letters,) = harness.publish.sources.of_topic(7)
    (source,) = harness.publish.sources.of_topic(harness.record.topic_incarnation)
    assert letters.end == 1
    assert harness.publish.ledgers[harness.record.incarnation].covers(source.number, 0, 2)
