"""A message becomes one letter, whoever dies and whatever stays unknown: it is known by the copy it was made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from syncpoint.base.model.errors import Unavailable
from syncpoint.base.model.lanes import LANE_SIZE
from syncpoint.base.model.reserved import IDENTITY
from syncpoint.broker.subscribe.confirm import CopyId
from syncpoint.broker.subscribe.dead_letter import letter
from syncpoint.broker.subscribe.shared_state import Reason
from syncpoint.catalog.metadata.entity_options import SubscriptionOptions
from syncpoint.catalog.metadata.records import CatalogChange, DeadLetter, Subscription, Topic
from syncpoint.testing.rigs.forwarder_harness import ForwarderHarness, Subscriber
from syncpoint.wire.protobuf.messages import pubsub

DEAD = "projects/p/topics/dead"
STEPS = 14
ODD = Reason("Odd", "d")


def prepared(**options: object) -> ForwarderHarness:
    harness = ForwarderHarness(dead_letter=DeadLetter(DEAD, 5), **options)  # type: ignore[arg-type]
    dead = Subscription(8, "projects/p/subscriptions/dead", 7, DEAD)
    harness.commit(CatalogChange.put(Topic(7, DEAD)), CatalogChange.put(dead))
    return harness


def letters(harness: ForwarderHarness) -> list[str]:
    found = harness.publish.catalog.subscription("projects/p/subscriptions/dead")
    assert found is not None
    harness.record, before = found, harness.record
    reader = Subscriber(harness)
    harness.quiesce()
    harness.record = before
    return reader.data


def is_done(harness: ForwarderHarness) -> bool:
    ledger = harness.publish.ledgers[harness.record.incarnation]
    return all(
        ledger.covers(source.number, 0, source.end)
        for source in harness.publish.sources.of_topic(harness.record.topic_incarnation)
    )


def given_up(harness: ForwarderHarness) -> None:
    """Its subscriber nacks what it has until nothing is left of it."""
    subscriber = Subscriber(harness)
    for _ in range(40):
        if is_done(harness):
            return
        harness.advance(1)
        if subscriber.held:
            subscriber.nack(*subscriber.held)
    raise AssertionError("it is not given up")


def test_letters_of_two_sites_have_one_identity_and_others_have_others() -> None:
    record = Subscription(5, "projects/p/subscriptions/s", 1, "projects/p/topics/t", dead_letter=DeadLetter(DEAD, 5))
    other = replace(record, name="projects/p/subscriptions/other")

    def made(one: Subscription, copy: CopyId, identity: str) -> str:
        message = pubsub.PubsubMessage(data=b"x", attributes={IDENTITY: identity} if identity else {})
        request = letter(message.SerializeToString(), one, copy, 5, left=None)
        return pubsub.PublishRequest.FromString(request).messages[0].attributes.get(IDENTITY, "")

    first = made(record, CopyId(1, 7, 0), "gw-a")
    assert first.startswith("gw-of-")
    assert made(replace(record, incarnation=6), CopyId(9, 2, 0), "gw-a") == first, "at the other site"
    assert first not in {
        made(other, CopyId(1, 7, 0), "gw-a"),
        made(record, CopyId(1, 7, 1), "gw-a"),  # after a seek
        made(record, CopyId(1, LANE_SIZE + 7, 0), "gw-a"),  # of another rule
        made(record, CopyId(1, 7, 0), "gw-b"),
        made(record, CopyId(1, 7, 0), first),  # a letter that became one again
    }
    assert [made(record, CopyId(1, 7, 0), one) for one in ("", "order-7")] == ["", "order-7"]


def dies_while_giving_up(steps: int, key: str = "") -> ForwarderHarness:
    """A message came back from its last delivery; so many steps later, disks included, the server dies."""
    harness = prepared(ordered=bool(key))
    subscriber = Subscriber(harness)
    harness.send("poison", key=key)
    for _ in range(4):
        subscriber.nack(*subscriber.held)
    ids = list(subscriber.held)
    request = pubsub.ModifyAckDeadlineRequest(subscription=harness.record.name, ack_ids=ids).SerializeToString()
    harness.leases.modify(request, 4, 0, harness.clock.monotonic())
    for _ in range(steps):
        if harness.soon:
            harness.soon.popleft()()
            continue
        harness.store.persist()
        timers, harness.timers = harness.timers, []
        for _, act in timers:  # an acknowledgement that nobody waits for rides with a later commit
            act()
    harness.restart()
    return harness


@pytest.mark.parametrize("key", ["", "k"])
@pytest.mark.parametrize("steps", range(STEPS))
def test_a_letter_is_made_once_wherever_the_server_dies(steps: int, key: str) -> None:
    harness = dies_while_giving_up(steps, key)
    given_up(harness)
    assert letters(harness) == ["poison"]


def test_these_deaths_come_before_between_and_after_the_letter_and_its_acknowledgement() -> None:
    died = [dies_while_giving_up(steps) for steps in range(STEPS)]
    assert {(len(letters(one)), is_done(one)) for one in died} == {(0, False), (1, False), (1, True)}


@pytest.mark.parametrize("reason", [None, ODD])
def test_a_letter_of_which_nobody_knows_whether_it_is_stored_is_stored_once(reason: Reason | None) -> None:
    harness = prepared()
    right, unknown = harness.publish.server.publish, 3

    def publish(topic: str, request: bytes, done: Callable[[bytes | Exception], None]) -> None:
        nonlocal unknown
        if unknown:
            unknown -= 1
            right(topic, request, lambda answer: done(Unavailable("The outcome is unknown.")))
        else:
            right(topic, request, done)

    harness.publish.server.publish = publish  # type: ignore[method-assign]
    harness.send("poison")
    if reason is not None:
        subscriber = Subscriber(harness)
        request = pubsub.AcknowledgeRequest(ack_ids=list(subscriber.held)).SerializeToString()
        harness.leases.give_up(request, 2, reason, 0.0, lambda message: lambda error: None)
        harness.quiesce()
        harness.subscribe.leave(harness.record, subscriber.consumer, ())
    given_up(harness)
    assert not unknown
    assert letters(harness) == ["poison"]


def test_what_ran_out_is_one_letter_though_its_outcome_was_unknown() -> None:
    harness = prepared(options=SubscriptionOptions(ttl_s=60, dead_letter_expired=True))
    right, asked = harness.publish.server.publish, 0

    def publish(topic: str, request: bytes, done: Callable[[bytes | Exception], None]) -> None:
        nonlocal asked
        asked += 1
        right(topic, request, (lambda answer: done(Unavailable("unknown"))) if asked < 4 else done)

    harness.publish.server.publish = publish  # type: ignore[method-assign]
    harness.send("old", "older")
    harness.clock.advance(100)
    given_up(harness)
    assert asked > 3
    assert sorted(letters(harness)) == ["old", "older"]


def test_a_seek_makes_other_letters() -> None:
    harness = prepared()
    harness.send("poison")
    given_up(harness)
    harness.publish.replace_acks(harness.record.incarnation, {}, None)
    harness.quiesce()
    assert not is_done(harness)
    given_up(harness)
    assert letters(harness) == ["poison"] * 2
