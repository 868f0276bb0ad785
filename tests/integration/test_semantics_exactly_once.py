"""Exactly-once delivery: only the newest ack id of a message is good, and the answer says which ids were not.

The same promise across a crash of the server: test_recovery_kill.py.
"""

from __future__ import annotations

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from syncpoint.testing.rigs.official import bodies, eventually, refused

pytestmark = pytest.mark.shows("exactly-once")

PERMANENT = "PERMANENT_FAILURE_INVALID_ACK_ID"


def failed_ids(refusal):
    """ack id -> reason, read as the clients read it: from the first detail of the status."""
    status = status_pb2.Status.FromString(refusal.trailer("grpc-status-details-bin"))
    assert status.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info), "ErrorInfo must be the first detail"
    assert info.reason == "EXACTLY_ONCE_ACKID_FAILURE"
    assert info.domain == "pubsub.googleapis.com"
    return dict(info.metadata)


@pytest.fixture
def once(space):
    """A topic with an exactly-once subscription."""
    return space.pair(enable_exactly_once_delivery=True, ack_deadline_seconds=600)


def expire(space, subscription, *received):
    """Let the deliveries expire; returns the new ones."""
    space.deadline(subscription, 1, *received)
    return space.pull(subscription, len(received))


def test_the_newest_ack_id_is_good(space, once):
    topic, subscription = once
    space.publish(topic, b"x")
    (got,) = space.pull(subscription)
    space.deadline(subscription, 60, got)
    space.ack(subscription, got)
    space.publish(topic, b"barrier")
    assert bodies(space.pull(subscription)) == [b"barrier"]


def test_more_failed_ids_than_a_status_has_room_for_are_not_confirmed(space, once):
    """The official client in Python takes ids for confirmed where an error has no status."""
    topic, subscription = once
    space.publish(topic, *[b"%d" % number for number in range(300)])
    got = space.pull(subscription, 300)
    space.ack(subscription, *got)
    with refused("INVALID_ARGUMENT") as refusal:
        space.ack(subscription, *got)
    status = status_pb2.Status.FromString(refusal.trailer("grpc-status-details-bin"))
    assert status.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert not status.details


def test_an_acknowledged_id_fails_the_second_time(space, once):
    topic, subscription = once
    space.publish(topic, b"x")
    (got,) = space.pull(subscription)
    space.ack(subscription, got)
    with refused("INVALID_ARGUMENT") as refusal:
        space.ack(subscription, got)
    assert failed_ids(refusal) == {got.ack_id: PERMANENT}
    with refused("INVALID_ARGUMENT") as refusal:
        space.deadline(subscription, 60, got)
    assert failed_ids(refusal) == {got.ack_id: PERMANENT}


def test_a_superseded_id_fails_and_the_new_one_is_good(space, once):
    topic, subscription = once
    space.publish(topic, b"x")
    (old,) = space.pull(subscription)
    (new,) = expire(space, subscription, old)
    for change in (lambda: space.ack(subscription, old), lambda: space.deadline(subscription, 60, old)):
        with refused("INVALID_ARGUMENT") as refusal:
            change()
        assert failed_ids(refusal) == {old.ack_id: PERMANENT}
    with refused("INVALID_ARGUMENT"):
        space.nack(subscription, old)
    assert not space.peek(subscription), "an old id must not nack the new delivery"
    space.ack(subscription, new)


def test_an_expired_id_fails_even_before_the_message_is_out_again(space, once):
    topic, subscription = once
    space.publish(topic, b"x", b"other")
    old, other = space.pull(subscription, 2)
    space.deadline(subscription, 1, old)
    stay = space.stream(subscription, max_outstanding_messages=1)
    (new,) = stay.wait(1)  # it has certainly expired once it is out again
    assert new.message.message_id == old.message.message_id
    with refused("INVALID_ARGUMENT") as refusal:
        space.ack(subscription, old, other)
    assert failed_ids(refusal) == {old.ack_id: PERMANENT}
    space.ack(subscription, new)


def test_a_nacked_id_fails_afterwards(space, once):
    topic, subscription = once
    space.publish(topic, b"x")
    (old,) = space.pull(subscription)
    space.nack(subscription, old)
    (new,) = space.pull(subscription)
    with refused("INVALID_ARGUMENT") as refusal:
        space.ack(subscription, old)
    assert failed_ids(refusal) == {old.ack_id: PERMANENT}
    space.ack(subscription, new)


def test_what_is_not_named_in_a_partial_failure_succeeded(space, once):
    topic, subscription = once
    space.publish(topic, *[b"%d" % number for number in range(10)])
    got = space.pull(subscription, 10)
    space.ack(subscription, *got[:3])
    with refused("INVALID_ARGUMENT") as refusal:
        space.ack(subscription, *got)
    assert failed_ids(refusal) == {one.ack_id: PERMANENT for one in got[:3]}
    with refused("INVALID_ARGUMENT") as refusal:
        space.ack(subscription, *got)
    assert set(failed_ids(refusal)) == {one.ack_id for one in got}
    space.publish(topic, b"barrier")
    assert bodies(space.pull(subscription)) == [b"barrier"]


def test_malformed_ids_are_a_plain_refusal(space, once):
    _, subscription = once
    with refused("INVALID_ARGUMENT", "Invalid ack id (ack_id=bogus)"):
        space.api.acknowledge({"subscription": subscription, "ack_ids": ["bogus"]})


def test_a_message_is_with_one_subscriber_at_a_time(space, once):
    topic, subscription = once
    streams = [space.stream(subscription) for _ in range(4)]
    ids = [one for _ in range(10) for one in space.publish(topic, *[b"x"] * 30)]
    eventually(lambda: sum(len(stream.messages) for stream in streams) >= 300)
    space.publish(topic, b"barrier")
    eventually(lambda: any(b"barrier" in stream.bodies for stream in streams))
    got = [one.message.message_id for stream in streams for one in stream.messages if one.message.data == b"x"]
    assert sorted(got) == sorted(ids)


def test_acks_over_the_stream_are_confirmed_one_by_one(space, once):
    topic, subscription = once
    stream = space.stream(subscription)
    space.publish(topic, b"a", b"b")
    first, second = stream.wait(2)
    space.ack(subscription, first)
    stream.acknowledge(first, second)

    def confirmations(kind):
        return [getattr(response, kind) for response in stream.responses if kind in response]

    stream.until(lambda: confirmations("acknowledge_confirmation"), what="a confirmation")
    good = [one for confirmation in confirmations("acknowledge_confirmation") for one in confirmation.ack_ids]
    bad = [one for confirmation in confirmations("acknowledge_confirmation") for one in confirmation.invalid_ack_ids]
    assert good == [second.ack_id]
    assert bad == [first.ack_id]
    stream.send(modify_deadline_ack_ids=[first.ack_id], modify_deadline_seconds=[30])
    stream.until(lambda: confirmations("modify_ack_deadline_confirmation"), what="a confirmation")
    (confirmation,) = confirmations("modify_ack_deadline_confirmation")
    assert list(confirmation.invalid_ack_ids) == [first.ack_id]
    assert stream.status is None, "one bad id does not end the stream"


def test_unknown_ids_on_a_stream_are_ignored_without_exactly_once(space):
    topic, subscription = space.pair(ack_deadline_seconds=600)
    stream = space.stream(subscription, protocol_version=1)
    space.publish(topic, b"x")
    (got,) = stream.wait(1)
    stream.acknowledge(got)
    stream.acknowledge(got)
    stream.send(modify_deadline_ack_ids=[got.ack_id], modify_deadline_seconds=[30])
    space.publish(topic, b"y")
    stream.wait(2)
    assert stream.status is None


def test_exactly_once_can_be_switched_on_later(space):
    topic, subscription = space.pair(ack_deadline_seconds=600)
    space.publish(topic, b"x")
    change = {"name": subscription, "enable_exactly_once_delivery": True}
    mask = {"paths": ["enable_exactly_once_delivery"]}
    space.api.update_subscription({"subscription": change, "update_mask": mask})
    (got,) = space.pull(subscription)
    space.ack(subscription, got)
    with refused("INVALID_ARGUMENT") as refusal:
        space.ack(subscription, got)
    assert failed_ids(refusal) == {got.ack_id: PERMANENT}


def test_exactly_once_and_ordering_together(space):
    topic, subscription = space.pair(
        enable_exactly_once_delivery=True, enable_message_ordering=True, ack_deadline_seconds=600
    )
    for number in range(5):
        space.publish(topic, b"%d" % number, key="k")
    stream = space.stream(subscription)
    first = stream.wait(5)
    space.ack(subscription, first[0])
    space.nack(subscription, first[1])
    again = stream.wait(9)[5:]
    assert bodies(again) == [b"1", b"2", b"3", b"4"]
    with refused("INVALID_ARGUMENT") as refusal:
        space.ack(subscription, *first[2:])
    assert set(failed_ids(refusal)) == {one.ack_id for one in first[2:]}, "their redelivery took these ids away"
    space.ack(subscription, *again)
    space.publish(topic, b"5", key="k")
    assert bodies(stream.wait(10)[9:]) == [b"5"]
