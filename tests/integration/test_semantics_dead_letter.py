"""Messages that fail again and again: delivery attempts, the dead letter topic, and growing pauses between attempts."""

from __future__ import annotations

import datetime
import itertools
import re
import time

import pytest

from syncpoint.testing.rigs.official import attributes_of, bodies, eventually

pytestmark = pytest.mark.shows("retries")


class Dead:
    """A topic with a subscription that gives up after five attempts, and a reader of what it gave up."""

    def __init__(self, space, **fields):
        self.space = space
        self.topic, self.letters = space.topic("main"), space.topic("dead")
        policy = {"dead_letter_topic": self.letters, "max_delivery_attempts": 5}
        self.main = space.subscription(
            self.topic, "main-sub", dead_letter_policy=policy, ack_deadline_seconds=600, **fields
        )
        self.dead = space.subscription(self.letters, "dead-sub")

    def exhaust(self, give_up):
        """Receive the message five times and give it up each time; returns the deliveries."""
        got = []
        for _ in range(5):
            (one,) = self.space.pull(self.main)
            got.append(one)
            give_up(one)
        return got


def test_after_five_nacks_a_message_goes_to_the_dead_letter_topic(space):
    case = Dead(space)
    (original,) = space.publish(case.topic, b"poison", key="k", attributes={"own": "kept"})
    got = case.exhaust(lambda one: space.nack(case.main, one))
    assert [one.delivery_attempt for one in got] == [1, 2, 3, 4, 5]
    (letter,) = space.pull(case.dead, ack=True)
    assert letter.message.data == b"poison"
    assert letter.message.ordering_key == "k"
    assert letter.message.message_id != original
    assert letter.delivery_attempt == 0, "the dead letter subscription has no policy of its own"
    attributes = attributes_of(letter)
    published = attributes.pop("CloudPubSubDeadLetterSourceTopicPublishTime")
    assert attributes == {
        "own": "kept",
        "CloudPubSubDeadLetterSourceDeliveryCount": "5",
        "CloudPubSubDeadLetterSourceSubscription": "main-sub",
        "CloudPubSubDeadLetterSourceSubscriptionProject": space.project,
        "sys.DeadLetterReason": "MaxDeliveryCountExceeded",
        "sys.DeadLetterErrorDescription": "The message was delivered 5 times and not acknowledged.",
        "sys.DeadLetterSource": f"projects/{space.project}/subscriptions/main-sub",
        "sys.DeadLetterMessageId": original,
        "sys.DeadLetterCount": "1",
        "sys.ForwardedFrom": attributes["sys.ForwardedFrom"],  # what names the copy, so that it is made once
    }
    assert attributes["sys.ForwardedFrom"].startswith("dead/")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", published)
    source_time = got[0].message.publish_time
    assert abs(datetime.datetime.fromisoformat(published) - source_time) < datetime.timedelta(seconds=1)
    assert letter.message.publish_time >= source_time
    assert not space.peek(case.main), "it is gone from where it came from"
    assert not space.peek(case.dead), "it was forwarded once"


def test_expiry_counts_as_an_attempt(space):
    case = Dead(space)
    space.publish(case.topic, b"slow")
    got = case.exhaust(lambda one: space.deadline(case.main, 1, one))
    assert [one.delivery_attempt for one in got] == [1, 2, 3, 4, 5]
    assert bodies(space.pull(case.dead)) == [b"slow"]


def test_a_message_acknowledged_at_its_last_attempt_is_not_forwarded(space):
    case = Dead(space)
    space.publish(case.topic, b"saved")
    for _ in range(4):
        space.nack(case.main, *space.pull(case.main))
    (last,) = space.pull(case.main)
    assert last.delivery_attempt == 5
    space.ack(case.main, last)
    space.publish(case.topic, b"barrier")
    assert bodies(space.pull(case.main)) == [b"barrier"]
    assert not space.peek(case.dead)


def test_attempts_are_not_counted_without_a_policy(space):
    topic, subscription = space.pair()
    space.publish(topic, b"x")
    for _ in range(7):
        (got,) = space.pull(subscription)
        assert got.delivery_attempt == 0
        space.nack(subscription, got)


def test_only_the_failing_message_is_forwarded(space):
    case = Dead(space)
    space.publish(case.topic, *[b"%d" % number for number in range(20)])
    kept = set()
    stream = space.stream(case.main)
    seen = 0

    def step():
        nonlocal seen
        for one in stream.messages[seen:]:
            seen += 1
            if one.message.data == b"13":
                space.nack(case.main, one)
            else:
                space.ack(case.main, one)
                kept.add(one.message.data)
        return len(kept) == 19 and seen == 19 + 5

    eventually(step)
    assert bodies(space.pull(case.dead)) == [b"13"]


def test_a_forwarded_message_frees_its_ordering_key(space):
    case = Dead(space, enable_message_ordering=True)
    space.publish(case.topic, b"poison", key="k")
    space.publish(case.topic, b"next", key="k")
    stream = space.stream(case.main)
    seen, after = 0, []

    def step():
        nonlocal seen
        for one in stream.messages[seen:]:
            seen += 1
            if one.message.data == b"poison":
                space.nack(case.main, one)
            elif any(space.peek(case.dead)) or one.delivery_attempt > 1:
                after.append(one)
                space.ack(case.main, one)
        return after

    eventually(step)
    assert bodies(after) == [b"next"]


def test_a_dead_letter_topic_that_is_gone_loses_nothing(space):
    case = Dead(space)
    space.publish(case.topic, b"poison")
    space.api.delete_topic({"topic": case.letters})
    for _ in range(7):
        (got,) = space.pull(case.main, within=40)
        space.nack(case.main, got)
    assert bodies(space.pull(case.main, within=40, ack=True)) == [b"poison"]


def test_a_dead_letter_topic_may_have_many_sources_and_readers(space):
    case = Dead(space)
    policy = {"dead_letter_topic": case.letters, "max_delivery_attempts": 5}
    other = space.subscription(case.topic, "other", dead_letter_policy=policy, ack_deadline_seconds=600)
    reader = space.subscription(case.letters, "reader")
    space.publish(case.topic, b"x")
    case.exhaust(lambda one: space.nack(case.main, one))
    for _ in range(5):
        space.nack(other, *space.pull(other))
    for subscription in (case.dead, reader):
        letters = space.pull(subscription, 2)
        sources = {attributes_of(one)["CloudPubSubDeadLetterSourceSubscription"] for one in letters}
        assert sources == {"main-sub", "other"}


@pytest.mark.parametrize("size", [10, 5000])
def test_many_failing_messages_are_all_forwarded_once(space, size):
    case = Dead(space)
    wanted = {b"%03d" % number + b"x" * size for number in range(100)}
    for body in wanted:
        space.publish(case.topic, body)
    stream = space.stream(case.main)
    for attempt in range(1, 6):
        got = stream.wait(100 * attempt)[-100:]
        assert {one.delivery_attempt for one in got} == {attempt}
        assert set(bodies(got)) == wanted
        space.nack(case.main, *got)
    letters = space.pull(case.dead, 100, ack=True)
    assert sorted(bodies(letters)) == sorted(wanted)
    assert not space.peek(case.dead)
    assert not space.peek(case.main)


def attempt_times(space, subscription, attempts, give_up):
    times = []
    for _ in range(attempts):
        (got,) = space.pull(subscription, within=40)
        times.append(time.monotonic())
        give_up(got)
    return [later - earlier for earlier, later in itertools.pairwise(times)]


def policy(least, most):
    return {"retry_policy": {"minimum_backoff": {"seconds": least}, "maximum_backoff": {"seconds": most}}}


def test_pauses_begin_at_the_minimum_and_grow(space):
    topic, subscription = space.pair(ack_deadline_seconds=600, **policy(1, 60))
    space.publish(topic, b"x")
    pauses = attempt_times(space, subscription, 4, lambda got: space.nack(subscription, got))
    assert all(pause >= 0.95 * 2**number for number, pause in enumerate(pauses)), pauses


def test_a_message_that_pauses_holds_up_no_other(space):
    topic, subscription = space.pair(ack_deadline_seconds=600, **policy(600, 600))
    space.publish(topic, b"pausing")
    space.nack(subscription, *space.pull(subscription))
    space.publish(topic, b"other")
    assert bodies(space.pull(subscription)) == [b"other"]
    assert not space.peek(subscription)


def test_many_large_messages_pause_and_all_come_again(space):
    topic, subscription = space.pair(ack_deadline_seconds=600, **policy(1, 1))
    ids = {space.publish(topic, b"x" * 5000)[0] for _ in range(100)}
    stream = space.stream(subscription)
    space.nack(subscription, *stream.wait(100))
    again = stream.wait(200)[100:]
    assert {one.message.message_id for one in again} == ids


def test_pauses_hold_after_expiry_too(space):
    topic, subscription = space.pair(ack_deadline_seconds=600, **policy(600, 600))
    space.publish(topic, b"pausing", b"other")
    got = {one.message.data: one for one in space.pull(subscription, 2)}
    space.deadline(subscription, 1, got[b"pausing"])
    stop = time.monotonic() + 3
    eventually(lambda: space.peek(subscription) or time.monotonic() > stop)
    assert not space.peek(subscription)


def test_without_a_policy_a_nacked_message_comes_at_once(space):
    topic, subscription = space.pair(ack_deadline_seconds=600)
    space.publish(topic, b"x")
    pauses = attempt_times(space, subscription, 20, lambda got: space.nack(subscription, got))
    assert sum(pauses) < 60


def test_pauses_stop_growing_at_the_maximum(space):
    topic, subscription = space.pair(ack_deadline_seconds=600, **policy(1, 2))
    space.publish(topic, b"x")
    pauses = attempt_times(space, subscription, 8, lambda got: space.nack(subscription, got))
    assert all(pause >= 0.95 for pause in pauses)
    assert sum(pauses) < 60, "seven doublings would take more than two minutes"
