"""Unary Pull, Acknowledge and ModifyAckDeadline: what they wait for, what they limit, what they refuse."""

from __future__ import annotations

import threading
import time

import grpc
import pytest

from syncpoint.base.model.limits import PULL_WAIT_SECONDS_MAX
from syncpoint.testing.rigs.official import bodies, eventually, refused


@pytest.mark.parametrize("most", [0, -1])
def test_pull_needs_a_number_of_messages(space, most):
    _, subscription = space.pair()
    with refused("INVALID_ARGUMENT", "max_messages"):
        space.api.pull({"subscription": subscription, "max_messages": most})


def test_the_text_for_zero_messages(space):
    _, subscription = space.pair()
    with refused("INVALID_ARGUMENT", "No max_messages specified"):
        space.api.pull({"subscription": subscription})


def test_pull_gives_no_more_than_asked_and_each_message_once(space):
    topic, subscription = space.pair(ack_deadline_seconds=600)
    ids = space.publish(topic, *[b"%d" % number for number in range(10)])
    got = []
    while len(got) < 10:
        part = space.pull(subscription, 1, most=3)
        assert len(part) <= 3
        got += part
    assert sorted(one.message.message_id for one in got) == sorted(ids)
    assert not space.peek(subscription)


def test_return_immediately_does_not_wait(space):
    _, subscription = space.pair()
    request = {"subscription": subscription, "max_messages": 1, "return_immediately": True}
    began = time.monotonic()
    assert not space.api.pull(request, timeout=60).received_messages
    assert time.monotonic() - began < PULL_WAIT_SECONDS_MAX / 2


def test_an_empty_pull_answers_before_the_caller_gives_up(space):
    _, subscription = space.pair()
    answer = space.api.pull({"subscription": subscription, "max_messages": 1}, timeout=4)
    assert not answer.received_messages


def test_a_waiting_pull_gets_a_message_as_it_comes(space):
    topic, subscription = space.pair()
    call = space.api.pull.future({"subscription": subscription, "max_messages": 10}, timeout=30)
    assert not call.done()
    space.publish(topic, b"now")
    assert bodies(call.result().received_messages) == [b"now"]


def test_a_pull_given_up_by_its_caller_takes_no_message(space):
    topic, subscription = space.pair(ack_deadline_seconds=600)
    for _ in range(5):
        waiting = threading.Thread(target=space.pull_once, args=(subscription,), kwargs={"wait": 0.05})
        waiting.start()
        waiting.join()
    space.publish(topic, b"x")
    assert bodies(space.pull(subscription)) == [b"x"]


def test_a_pull_whose_connection_broke_takes_no_message(space, enter):
    topic, subscription = space.pair(ack_deadline_seconds=600)
    other = enter(space.endpoint)
    done = threading.Event()

    def wait_in_vain():
        with pytest.raises(Exception, match=r"ancel|losed"):
            other.api.pull({"subscription": subscription, "max_messages": 1}, timeout=30)
        done.set()

    waiting = threading.Thread(target=wait_in_vain)
    waiting.start()
    assert not done.wait(0.3)
    other.api.close()
    waiting.join()
    space.publish(topic, b"x")
    assert bodies(space.pull(subscription)) == [b"x"]


def test_a_pull_answer_stays_below_what_clients_accept(space):
    """Clients refuse answers beyond 20 MiB; the rest comes with the next pull."""
    topic, subscription = space.pair()
    for number in range(4):
        space.api.publish({"topic": topic, "messages": [{"data": b"%d" % number * 9_000_000}]}, timeout=60)
    got = []
    while len(got) < 4:
        answer = space.api.pull({"subscription": subscription, "max_messages": 1000}, timeout=30)
        assert answer._pb.ByteSize() < 20 * 1024 * 1024
        got += answer.received_messages
        space.ack(subscription, *answer.received_messages)
    assert sorted(body[:1] for body in bodies(got)) == [b"0", b"1", b"2", b"3"]


def test_acks_may_be_repeated(space):
    topic, subscription = space.pair()
    space.publish(topic, b"x")
    (got,) = space.pull(subscription)
    for _ in range(3):
        space.ack(subscription, got)
    space.deadline(subscription, 10, got)
    space.nack(subscription, got)
    assert not space.peek(subscription)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"ack_ids": []}, "No ack ids specified."),
        ({"ack_ids": ["bogus"]}, "Invalid ack id (ack_id=bogus)"),
        ({"ack_ids": ["a" * 48]}, "Invalid ack id (ack_id=" + "a" * 48),
        ({"ack_ids": ["ä"]}, "Invalid ack id"),
        ({"ack_ids": [""]}, "Invalid ack id"),
    ],
)
def test_bad_ack_ids_are_refused(space, fields, text):
    _, subscription = space.pair()
    with refused("INVALID_ARGUMENT", text):
        space.api.acknowledge({"subscription": subscription, **fields})
    with refused("INVALID_ARGUMENT", text):
        space.api.modify_ack_deadline({"subscription": subscription, "ack_deadline_seconds": 10, **fields})


def test_one_bad_ack_id_changes_nothing(space):
    topic, subscription = space.pair()
    space.publish(topic, b"x")
    (got,) = space.pull(subscription)
    with refused("INVALID_ARGUMENT", "Invalid ack id (ack_id=bogus)"):
        space.api.acknowledge({"subscription": subscription, "ack_ids": [got.ack_id, "bogus"]})
    space.nack(subscription, got)
    assert bodies(space.pull(subscription)) == [b"x"]


def test_an_ack_id_works_for_its_own_subscription_only(space):
    topic, one = space.pair()
    two = space.subscription(topic, "two")
    space.publish(topic, b"x")
    (got,) = space.pull(one)
    try:
        space.ack(two, got)
    except grpc.RpcError as error:
        assert error.code().name == "INVALID_ARGUMENT"  # noqa: PT017
    assert bodies(space.pull(two)) == [b"x"]


@pytest.mark.parametrize(("seconds", "text"), [(-1, "Ack deadline cannot be negative"), (601, "ack_deadline_seconds")])
def test_bad_ack_deadlines_are_refused(space, seconds, text):
    topic, subscription = space.pair()
    space.publish(topic, b"x")
    (got,) = space.pull(subscription)
    with refused("INVALID_ARGUMENT", text):
        space.deadline(subscription, seconds, got)
    space.deadline(subscription, 600, got)


def test_ack_ids_are_short_and_new_at_every_delivery(space):
    topic, subscription = space.pair()
    space.publish(topic, *[b"%d" % number for number in range(20)])
    seen = set()
    for _ in range(5):
        got = space.pull(subscription, 20)
        ids = {one.ack_id for one in got}
        assert len(ids) == 20
        assert not ids & seen
        assert max(map(len, ids)) <= 164
        seen |= ids
        space.nack(subscription, *got)


def test_three_thousand_ack_ids_in_one_request(space):
    """The Node client sends that many."""
    topic, subscription = space.pair()
    for _ in range(3):
        space.publish(topic, *[b"x"] * 1000)
    got = space.pull(subscription, 3000)
    space.deadline(subscription, 60, *got)
    space.ack(subscription, *got)
    space.nack(subscription, *got)
    eventually(lambda: not space.peek(subscription))


def test_every_subscription_gets_every_message(space):
    topic = space.topic()
    subscriptions = [space.subscription(topic, f"sub-{number}") for number in range(8)]
    ids = space.publish(topic, b"a", b"b", b"c")
    for subscription in subscriptions:
        assert [one.message.message_id for one in space.pull(subscription, 3, ack=True)] == ids


def test_old_backlog_and_new_messages_both_come(space):
    topic, subscription = space.pair()
    old = [one for _ in range(5) for one in space.publish(topic, *[b"old"] * 1000)]
    first = space.pull(subscription, 1, most=10)
    new = space.publish(topic, b"new")
    got = first + space.pull(subscription, 5001 - len(first), ack=True)
    assert {one.message.message_id for one in got} == {*old, *new}
