"""Ordering keys: one key's messages come in the order of publishing; nothing else waits for them."""

from __future__ import annotations

from collections import defaultdict

import pytest

from syncpoint.testing.rigs import checkers
from syncpoint.testing.rigs.history import History, MessageIdentity, Outcome, seal
from syncpoint.testing.rigs.official import bodies, eventually

pytestmark = pytest.mark.shows("ordering")


def numbers(received):
    return [int(body) for body in bodies(received)]


def ordered(space, **fields):
    return space.pair(enable_message_ordering=True, ack_deadline_seconds=600, **fields)


def publish_numbers(space, topic, key, count):
    for number in range(count):
        space.publish(topic, b"%d" % number, key=key)


def test_several_messages_of_one_key_are_out_at_once_in_order(space):
    topic, subscription = ordered(space)
    stream = space.stream(subscription)
    publish_numbers(space, topic, "k", 20)
    assert numbers(stream.wait(20)) == list(range(20))


def test_a_backlog_of_one_key_comes_in_order_by_pull(space):
    topic, subscription = ordered(space)
    space.publish(topic, *[b"%d" % number for number in range(500)], key="k")
    got = space.pull(subscription, 500, ack=True, most=70)
    assert numbers(got) == list(range(500))


def test_one_key_goes_to_one_stream_at_a_time(space):
    topic, subscription = ordered(space)
    streams = [space.stream(subscription) for _ in range(3)]
    for number in range(10):
        for key in range(12):
            space.publish(topic, b"%d" % number, key=f"key-{key}")
    eventually(lambda: sum(len(stream.messages) for stream in streams) >= 120)
    holders = defaultdict(set)
    for index, stream in enumerate(streams):
        per_key = defaultdict(list)
        for one in stream.messages:
            per_key[one.message.ordering_key].append(int(one.message.data))
            holders[one.message.ordering_key].add(index)
        assert all(got == list(range(10)) for got in per_key.values())
    assert all(len(holder) == 1 for holder in holders.values())


def test_a_nack_brings_it_and_all_later_ones_again(space):
    topic, subscription = ordered(space)
    stream = space.stream(subscription)
    publish_numbers(space, topic, "k", 6)
    first = stream.wait(6)
    space.ack(subscription, *first[:2])
    space.nack(subscription, first[2])
    again = stream.wait(10)[6:]
    assert numbers(again) == [2, 3, 4, 5]
    space.ack(subscription, *again)
    publish_numbers(space, topic, "k", 1)
    assert numbers(stream.wait(11)[10:]) == [0]


def test_an_expired_message_brings_all_later_ones_again(space):
    topic, subscription = ordered(space)
    stream = space.stream(subscription, stream_ack_deadline_seconds=600)
    publish_numbers(space, topic, "k", 5)
    first = stream.wait(5)
    space.deadline(subscription, 1, first[1])
    again = stream.wait(9)[5:]
    assert numbers(again) == [1, 2, 3, 4]


def test_a_nack_of_one_key_leaves_other_keys_alone(space):
    topic, subscription = ordered(space)
    stream = space.stream(subscription)
    publish_numbers(space, topic, "a", 3)
    publish_numbers(space, topic, "b", 3)
    got = stream.wait(6)
    space.nack(subscription, next(one for one in got if one.message.ordering_key == "a"))
    again = stream.wait(9)[6:]
    assert {one.message.ordering_key for one in again} == {"a"}
    assert numbers(again) == [0, 1, 2]


def test_messages_without_a_key_wait_for_nobody(space):
    topic, subscription = ordered(space)
    space.publish(topic, b"0", key="k")
    (held,) = space.pull(subscription)
    space.publish(topic, b"1", key="k")
    ids = set(space.publish(topic, *[b"free"] * 50))
    got = []
    while not ids <= {one.message.message_id for one in got}:
        got += space.pull(subscription)
    space.ack(subscription, held)
    if b"1" not in bodies(got):
        assert bodies(space.pull(subscription)) == [b"1"]


def test_flow_control_keeps_the_order(space):
    topic, subscription = ordered(space)
    space.publish(topic, *[b"%d" % number for number in range(100)], key="k")
    stream = space.stream(subscription, max_outstanding_messages=3)
    done = 0
    while done < 100:
        got = stream.wait(done + 1)
        space.ack(subscription, *got[done:])
        done = len(got)
    assert numbers(stream.messages) == list(range(100))


def test_large_messages_of_many_keys_come_in_order_under_tight_limits(space):
    topic, subscription = ordered(space)
    for number in range(40):
        for key in ("a", "b", "c"):
            space.publish(topic, b"%d" % number + b" " * 60_000, key=key)
    stream = space.stream(subscription, max_outstanding_bytes=200_000)
    done, nacked, acked = 0, set(), set()
    per_key = defaultdict(list)
    while any(len(set(got)) < 40 for got in per_key.values()) or len(per_key) < 3:
        got = stream.wait(done + 1)
        for one in got[done:]:
            key, number = one.message.ordering_key, int(one.message.data)
            last = per_key[key][-1] if per_key[key] else -1
            skipped = {(key, between) for between in range(last + 1, number)}
            assert skipped <= acked, f"{key}: {number} after {last}"  # what was on its way at a nack may be acked
            per_key[key].append(number)
            if number % 10 == 7 and (key, number) not in nacked:
                nacked.add((key, number))
                space.nack(subscription, one)
            else:
                space.ack(subscription, one)
                acked.add((key, number))
        done = len(got)
    assert len(nacked) == 12


def test_acks_out_of_order_do_not_disturb_the_order(space):
    topic, subscription = ordered(space)
    stream = space.stream(subscription)
    publish_numbers(space, topic, "k", 10)
    got = stream.wait(10)
    for one in reversed(got[1:]):
        space.ack(subscription, one)
    publish_numbers(space, topic, "k", 3)
    assert numbers(stream.wait(13)) == [*range(10), 0, 1, 2]


def test_the_next_stream_takes_over_a_key_in_order(space):
    topic, subscription = ordered(space)
    first = space.stream(subscription)
    publish_numbers(space, topic, "k", 5)
    got = first.wait(5)
    space.ack(subscription, *got[:2])
    first.cancel()
    second = space.stream(subscription)
    space.publish(topic, b"5", key="k")
    space.nack(subscription, got[2])
    assert numbers(second.wait(4)) == [2, 3, 4, 5]


def test_a_subscription_without_ordering_does_not_serialise_keys(space):
    topic, subscription = space.pair(ack_deadline_seconds=600)
    space.publish(topic, *[b"%d" % number for number in range(10)], key="k")
    first = space.pull(subscription, 3, most=3)
    rest = space.pull(subscription, 7)
    space.nack(subscription, first[0])
    assert numbers(space.pull(subscription)) == [int(first[0].message.data)]
    assert sorted(numbers(first + rest)) == list(range(10))


def test_random_nacks_and_acks_keep_every_promise(space):
    """Twenty keys, three streams, every fifth message nacked; judged by the checkers."""
    topic, subscription = ordered(space)
    history = History()
    history.end(history.creating(subscription, topic, ordered=True), Outcome.OK)
    for number in range(400):
        identity = MessageIdentity("p", number)
        key = f"key-{number % 20}"
        operation = history.publishing(topic, identity, key)
        history.published(operation, space.publish(topic, seal(identity), key=key)[0])
    seen = [0, 0, 0]
    acked = set()

    def received_by(index):
        def on_message(one):
            message = one.message
            history.delivered(subscription, f"s{index}", message.message_id, message.data, message.ordering_key)

        return on_message

    streams = [
        space.stream(subscription, on_message=received_by(index), max_outstanding_messages=40) for index in range(3)
    ]

    def step():
        for index, stream in enumerate(streams):
            for one in stream.messages[seen[index] :]:
                seen[index] += 1
                if sum(seen) % 5 == 0 and sum(seen) < 1500:
                    space.nack(subscription, one)
                else:
                    operation = history.acking(subscription, one.message.message_id)
                    space.ack(subscription, one)
                    history.end(operation, Outcome.OK)
                    acked.add(one.message.message_id)
        return len(acked) == 400

    eventually(step, within=60, what="all are acknowledged")
    checkers.check(history, checkers.order_per_key, checkers.acknowledged_is_never_lost)
