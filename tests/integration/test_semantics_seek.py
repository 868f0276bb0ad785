"""Seek to a time and to a snapshot, exact to the nanosecond, with subscribers at work; retention by topic."""

from __future__ import annotations

import datetime

import pytest
from google.pubsub_v1.types import SeekRequest

from syncpoint.testing.rigs.official import bodies, refused

pytestmark = pytest.mark.shows("seek")

YEAR_3000 = datetime.datetime(3000, 1, 1, tzinfo=datetime.UTC)
LONG_AGO = {"seconds": 1}


@pytest.fixture
def retaining(space):
    """A topic with a subscription that keeps what was acknowledged."""
    return space.pair(retain_acked_messages=True, ack_deadline_seconds=600)


def seek(space, subscription, **target):
    space.api.seek({"subscription": subscription, **target})


def seek_nanoseconds(space, subscription, nanoseconds):
    request = SeekRequest({"subscription": subscription})
    request._pb.time.FromNanoseconds(nanoseconds)
    space.api.seek(request)


def take_all(space, topic, subscription):
    """Receive and acknowledge everything there is: up to a barrier message published now."""
    (barrier,) = space.publish(topic, b"barrier")
    got = []
    while not any(one.message.message_id == barrier for one in got):
        got += space.pull(subscription, ack=True)
    return sorted(body for body in bodies(got) if body != b"barrier")


def test_acknowledged_messages_come_again_after_a_seek_back(space, retaining):
    topic, subscription = retaining
    ids = space.publish(topic, b"a", b"b")
    space.pull(subscription, 2, ack=True)
    seek(space, subscription, time=LONG_AGO)
    again = space.pull(subscription, 2, ack=True)
    assert sorted(one.message.message_id for one in again) == sorted(ids)
    seek(space, subscription, time=LONG_AGO)
    assert take_all(space, topic, subscription) == [b"a", b"b"], "as often as one likes"


def test_a_seek_to_a_publish_time_is_exact_to_the_nanosecond(space, retaining):
    topic, subscription = retaining
    for body in (b"1", b"2", b"3"):
        space.publish(topic, body)
    received = space.pull(subscription, 3, ack=True)
    got = {one.message.data: one.message._pb.publish_time.ToNanoseconds() for one in received}
    assert got[b"1"] < got[b"2"] < got[b"3"], "separate requests have separate times"
    seek_nanoseconds(space, subscription, got[b"2"])
    assert take_all(space, topic, subscription) == [b"2", b"3"]
    seek_nanoseconds(space, subscription, got[b"2"] + 1)
    assert take_all(space, topic, subscription) == [b"3"]
    seek_nanoseconds(space, subscription, got[b"1"])
    assert take_all(space, topic, subscription) == [b"1", b"2", b"3"]


def test_a_seek_to_the_future_purges(space):
    topic, subscription = space.pair(ack_deadline_seconds=600)
    for _ in range(3):
        space.publish(topic, *[b"old"] * 500)
    (held,) = space.pull(subscription, most=1)
    seek(space, subscription, time=YEAR_3000)
    assert not space.peek(subscription)
    space.nack(subscription, held)
    (new,) = space.publish(topic, b"new")
    assert [one.message.message_id for one in space.pull(subscription, ack=True)] == [new]


def test_a_seek_forward_acknowledges_what_lies_before(space):
    topic, subscription = space.pair(ack_deadline_seconds=600)
    measure = space.subscription(topic, "measure")
    for body in (b"1", b"2", b"3"):
        space.publish(topic, body)
    times = {one.message.data: one.message._pb.publish_time.ToNanoseconds() for one in space.pull(measure, 3)}
    seek_nanoseconds(space, subscription, times[b"3"])
    assert take_all(space, topic, subscription) == [b"3"]


def test_an_open_stream_gets_what_a_seek_brings_back(space, retaining):
    topic, subscription = retaining
    stream = space.stream(subscription)
    space.publish(topic, b"x")
    (first,) = stream.wait(1)
    space.ack(subscription, first)
    seek_nanoseconds(space, subscription, first.message._pb.publish_time.ToNanoseconds())
    second = stream.wait(2)[1]
    assert second.message == first.message
    assert second.ack_id != first.ack_id
    space.ack(subscription, second)
    space.publish(topic, b"after")
    assert bodies(stream.wait(3)) == [b"x", b"x", b"after"]


def test_ack_ids_from_before_a_seek_back_acknowledge_nothing(space, retaining):
    topic, subscription = retaining
    space.publish(topic, b"x")
    (old,) = space.pull(subscription)
    seek(space, subscription, time=LONG_AGO)
    space.ack(subscription, old)
    assert take_all(space, topic, subscription) == [b"x"]


def test_a_seek_back_frees_what_was_out(space, retaining):
    topic, subscription = retaining
    stream = space.stream(subscription, max_outstanding_messages=2)
    space.publish(topic, b"a", b"b", b"c")
    stream.wait(2)
    seek(space, subscription, time=LONG_AGO)
    got = stream.wait(4)[2:]
    space.ack(subscription, *got)
    eventually_all = {one.message.data for one in stream.wait(5)}
    assert eventually_all == {b"a", b"b", b"c"}


def test_without_retention_a_seek_back_brings_only_what_was_never_acknowledged(space):
    topic, subscription = space.pair(ack_deadline_seconds=600)
    space.publish(topic, b"acked", b"open")
    got = {one.message.data: one for one in space.pull(subscription, 2)}
    space.ack(subscription, got[b"acked"])
    seek(space, subscription, time=LONG_AGO)
    assert b"open" in take_all(space, topic, subscription)


def test_a_snapshot_brings_back_what_was_acknowledged_after_it(space):
    topic, subscription = space.pair(ack_deadline_seconds=600)
    space.publish(topic, b"acked before", b"open then", b"acked after")
    got = {one.message.data: one for one in space.pull(subscription, 3)}
    space.ack(subscription, got[b"acked before"])
    name = space.api.create_snapshot({"name": space.path("snapshots", "snap"), "subscription": subscription}).name
    space.ack(subscription, got[b"acked after"])
    space.publish(topic, b"later")
    space.pull(subscription, ack=True)
    seek(space, subscription, snapshot=name)
    assert take_all(space, topic, subscription) == [b"acked after", b"later", b"open then"]
    seek(space, subscription, snapshot=name)
    again = take_all(space, topic, subscription)
    assert again == [b"acked after", b"later", b"open then"], "a snapshot may be used again"


def test_a_snapshot_of_one_subscription_serves_another(space):
    topic, one = space.pair(ack_deadline_seconds=600)
    two = space.subscription(topic, "two", ack_deadline_seconds=600)
    space.publish(topic, b"a", b"b")
    got = {each.message.data: each for each in space.pull(one, 2)}
    space.ack(one, got[b"a"])
    name = space.api.create_snapshot({"name": space.path("snapshots", "snap"), "subscription": one}).name
    space.pull(two, 2, ack=True)
    seek(space, two, snapshot=name)
    assert take_all(space, topic, two) == [b"b"]


def test_a_snapshot_keeps_messages_after_its_subscription_is_gone(space):
    topic, one = space.pair(ack_deadline_seconds=600)
    space.publish(topic, b"kept")
    name = space.api.create_snapshot({"name": space.path("snapshots", "snap"), "subscription": one}).name
    space.pull(one, ack=True)
    space.api.delete_subscription({"subscription": one})
    fresh = space.subscription(topic, "fresh", ack_deadline_seconds=600)
    seek(space, fresh, snapshot=name)
    assert take_all(space, topic, fresh) == [b"kept"]


def test_a_snapshot_of_another_topic_is_refused(space):
    _, subscription = space.pair()
    other = space.subscription(space.topic("other"), "other")
    name = space.api.create_snapshot({"name": space.path("snapshots", "snap"), "subscription": other}).name
    with pytest.raises(Exception, match="topic") as caught:
        seek(space, subscription, snapshot=name)
    assert caught.value.code().name in ("INVALID_ARGUMENT", "FAILED_PRECONDITION")


def test_a_seek_needs_a_target(space):
    _, subscription = space.pair()
    with refused("INVALID_ARGUMENT"):
        seek(space, subscription)


def test_subscriptions_seek_alone(space):
    topic = space.topic()
    one, two = (
        space.subscription(topic, name, retain_acked_messages=True, ack_deadline_seconds=600) for name in ("one", "two")
    )
    space.publish(topic, b"x")
    for subscription in (one, two):
        space.pull(subscription, ack=True)
    seek(space, one, time=LONG_AGO)
    assert take_all(space, topic, one) == [b"x"]
    space.pull(two, ack=True)  # the barrier of the other one
    assert not space.peek(two)


def test_a_retaining_topic_serves_subscriptions_that_come_later(space):
    topic = space.topic(message_retention_duration={"seconds": 3600})
    ids = [one for number in range(3) for one in space.publish(topic, b"%d" % number)]
    late = space.subscription(topic, "late", ack_deadline_seconds=600)
    assert not space.peek(late), "a subscription begins at its sync point"
    seek(space, late, time=LONG_AGO)
    got = space.pull(late, 3)
    assert sorted(one.message.message_id for one in got) == sorted(ids)


def test_a_seek_back_on_a_filtered_subscription_brings_only_what_matches(space):
    topic, subscription = space.pair(filter="attributes:k", retain_acked_messages=True, ack_deadline_seconds=600)
    space.publish(topic, b"no", attributes={"other": ""})
    space.publish(topic, b"yes", attributes={"k": ""})
    space.pull(subscription, ack=True)
    seek(space, subscription, time=LONG_AGO)
    assert bodies(space.pull(subscription)) == [b"yes"]
    assert not space.peek(subscription)


def test_a_seek_back_on_an_ordered_subscription_keeps_the_order(space):
    topic, subscription = space.pair(enable_message_ordering=True, retain_acked_messages=True, ack_deadline_seconds=600)
    for number in range(10):
        space.publish(topic, b"%d" % number, key="k")
    space.pull(subscription, 10, ack=True)
    stream = space.stream(subscription)
    seek(space, subscription, time=LONG_AGO)
    assert bodies(stream.wait(10)) == [b"%d" % number for number in range(10)]
