"""StreamingPull, held request by request: opening, keep-alive, flow control, acks on it, and every way it ends."""

from __future__ import annotations

import threading

import pytest
from google.pubsub_v1.types import StreamingPullRequest

from syncpoint.testing.rigs.official import bodies, eventually, refused

pytestmark = pytest.mark.shows("clients-python", "flow-control")

DEADLINE = {"stream_ack_deadline_seconds": 60}
SAME_SIZE = "ack IDs and deadlines must have the same size"


def answered_ping(stream):
    """Everything sent before a ping was handled once the ping is answered (protocol version 1)."""
    before = len(stream.responses)
    stream.send()
    stream.until(lambda: len(stream.responses) > before, what="the answer to a ping")


@pytest.mark.parametrize(
    ("first", "text"),
    [
        (DEADLINE, "first message must set subscription"),
        ({"subscription": "SUB"}, "first message must set stream_ack_deadline_seconds"),
        (
            {"subscription": "SUB", "stream_ack_deadline_seconds": 9},
            "stream_ack_deadline_seconds must be between 10 and 600 seconds",
        ),
        (
            {"subscription": "SUB", "stream_ack_deadline_seconds": 601},
            "stream_ack_deadline_seconds must be between 10 and 600 seconds",
        ),
    ],
)
def test_a_bad_first_request_ends_the_stream(space, first, text):
    _, subscription = space.pair()
    first = {field: subscription if value == "SUB" else value for field, value in first.items()}
    stream = space.stream(subscription, raw_first=first)
    assert stream.ended() == "INVALID_ARGUMENT"
    assert text in stream.text


@pytest.mark.parametrize(
    ("later", "text"),
    [
        ({"subscription": "SUB"}, "subscription may only be set in first message"),
        ({"modify_deadline_ack_ids": ["a"], "modify_deadline_seconds": []}, SAME_SIZE),
        ({"modify_deadline_ack_ids": [], "modify_deadline_seconds": [1]}, SAME_SIZE),
        ({"modify_deadline_ack_ids": ["a"], "modify_deadline_seconds": [-1]}, ""),
        ({"modify_deadline_ack_ids": ["bogus"], "modify_deadline_seconds": [10]}, "Invalid ack id (ack_id=bogus)"),
        ({"ack_ids": ["bogus"]}, "Invalid ack id (ack_id=bogus)"),
        ({"stream_ack_deadline_seconds": 9}, "stream_ack_deadline_seconds must be between 10 and 600 seconds"),
        ({"max_outstanding_messages": 5}, "max_outstanding_messages"),
        ({"max_outstanding_bytes": 5}, "max_outstanding_bytes"),
        ({"protocol_version": 1}, "protocol_version"),
    ],
    ids=str,
)
def test_a_bad_later_request_ends_the_stream(space, later, text):
    topic, subscription = space.pair()
    stream = space.stream(subscription)
    space.publish(topic, b"x")
    stream.wait(1)
    stream.send(**{field: subscription if value == "SUB" else value for field, value in later.items()})
    assert stream.ended() == "INVALID_ARGUMENT"
    assert text in stream.text


def test_a_missing_subscription_ends_the_stream(space):
    name = space.path("subscriptions", "missing")
    stream = space.stream(name)
    assert stream.ended() == "NOT_FOUND"
    assert f"Resource not found (resource={name})." in stream.text


def test_deleting_the_subscription_ends_its_streams(space):
    topic, subscription = space.pair()
    streams = [space.stream(subscription) for _ in range(3)]
    space.publish(topic, b"x")
    eventually(lambda: any(stream.messages for stream in streams))
    space.api.delete_subscription({"subscription": subscription})
    assert [stream.ended() for stream in streams] == ["NOT_FOUND"] * 3
    assert subscription in streams[0].text


def test_half_close_ends_the_stream_well(space):
    topic, subscription = space.pair()
    stream = space.stream(subscription)
    space.publish(topic, b"x")
    stream.wait(1)
    stream.half_close()
    assert stream.ended() == "OK"
    space.ack(subscription, *stream.messages)
    assert not space.peek(subscription)


@pytest.mark.parametrize(("exactly_once", "ordered"), [(False, False), (True, False), (False, True), (True, True)])
def test_every_response_carries_the_properties(space, exactly_once, ordered):
    topic, subscription = space.pair(enable_exactly_once_delivery=exactly_once, enable_message_ordering=ordered)
    stream = space.stream(subscription, protocol_version=1)
    for _ in range(3):
        answered_ping(stream)
        space.publish(topic, b"x")
    stream.wait(3)
    for response in list(stream.responses):
        properties = response.subscription_properties
        assert properties.exactly_once_delivery_enabled is exactly_once
        assert properties.message_ordering_enabled is ordered


def test_a_change_of_the_properties_reaches_an_open_stream(space):
    _, subscription = space.pair()
    stream = space.stream(subscription, protocol_version=1)
    answered_ping(stream)
    assert not stream.responses[-1].subscription_properties.exactly_once_delivery_enabled
    change = {"name": subscription, "enable_exactly_once_delivery": True}
    space.api.update_subscription({"subscription": change, "update_mask": {"paths": ["enable_exactly_once_delivery"]}})
    answered_ping(stream)
    eventually(lambda: stream.responses[-1].subscription_properties.exactly_once_delivery_enabled)


def test_pings_without_protocol_version_keep_the_stream_alive(space):
    topic, subscription = space.pair()
    stream = space.stream(subscription)
    for _ in range(5):
        stream.send()
    space.publish(topic, b"x")
    assert bodies(stream.wait(1)) == [b"x"]
    assert stream.status is None


def test_messages_outstanding_stop_exactly_at_the_limit(space):
    topic, subscription = space.pair()
    space.publish(topic, *[b"%d" % number for number in range(20)])
    stream = space.stream(subscription, max_outstanding_messages=5, protocol_version=1)
    stream.wait(5)
    answered_ping(stream)
    assert len(stream.messages) == 5

    space.ack(subscription, stream.messages[0])
    stream.wait(6)
    answered_ping(stream)
    assert len(stream.messages) == 6, "one ack frees one place"

    space.deadline(subscription, 60, *stream.messages[1:6])
    answered_ping(stream)
    assert len(stream.messages) == 6, "a longer deadline frees no place"

    stream.acknowledge(*stream.messages[1:4])
    stream.wait(9)
    answered_ping(stream)
    assert len(stream.messages) == 9, "acks on the stream free places too"

    space.nack(subscription, stream.messages[4])
    stream.wait(10)
    answered_ping(stream)
    assert len(stream.messages) == 10, "a nack frees a place"


def test_bytes_outstanding_stop_exactly_at_the_limit(space):
    topic, subscription = space.pair()
    tight = space.subscription(topic, "tight")
    measure = space.subscription(topic, "measure")
    space.publish(topic, *[b"%03d" % number * 1000 for number in range(20)])  # one request: all of one size
    size = space.pull(measure, 1)[0].message._pb.ByteSize()
    stream = space.stream(subscription, max_outstanding_bytes=5 * size, protocol_version=1)
    stream.wait(5)
    answered_ping(stream)
    assert len(stream.messages) == 5
    space.ack(subscription, *stream.messages[:2])
    stream.wait(7)
    answered_ping(stream)
    assert len(stream.messages) == 7
    stream.cancel()

    stream = space.stream(tight, max_outstanding_bytes=5 * size - 1, protocol_version=1)
    stream.wait(4)
    answered_ping(stream)
    assert len(stream.messages) == 4, "one byte short of the fifth"


def test_a_message_larger_than_the_limit_is_still_delivered(space):
    topic, subscription = space.pair()
    space.publish(topic, b"large" * 10_000)
    space.publish(topic, b"next")
    stream = space.stream(subscription, max_outstanding_bytes=1000, protocol_version=1)
    stream.wait(1)
    answered_ping(stream)
    assert len(stream.messages) == 1
    space.ack(subscription, *stream.messages)
    assert {len(body) for body in bodies(stream.wait(2))} == {4, 50_000}


@pytest.mark.parametrize("limit", [0, -1])
def test_no_limit_means_no_limit(space, limit):
    topic, subscription = space.pair()
    for _ in range(3):
        space.publish(topic, *[b"x"] * 1000)
    stream = space.stream(subscription, max_outstanding_messages=limit, max_outstanding_bytes=limit)
    assert len(stream.wait(3000)) == 3000


def test_each_stream_has_its_own_limits(space):
    topic, subscription = space.pair()
    narrow = space.stream(subscription, max_outstanding_messages=1, protocol_version=1)
    answered_ping(narrow)
    wide = space.stream(subscription, max_outstanding_messages=100)
    space.publish(topic, *[b"%d" % number for number in range(20)])
    eventually(lambda: len(narrow.messages) + len(wide.messages) == 20)
    assert len(narrow.messages) <= 1


def test_acks_and_nacks_over_the_stream(space):
    topic, subscription = space.pair()
    stream = space.stream(subscription)
    space.publish(topic, b"a", b"b")
    first, second = stream.wait(2)
    stream.acknowledge(first)
    stream.send(modify_deadline_ack_ids=[second.ack_id], modify_deadline_seconds=[0])
    third = stream.wait(3)[2]
    assert third.message.message_id == second.message.message_id
    assert third.ack_id != second.ack_id
    stream.send(ack_ids=[third.ack_id, first.ack_id])
    stream.half_close()
    assert stream.ended() == "OK"
    assert not space.peek(subscription)


def test_many_deadlines_in_one_request(space):
    topic, subscription = space.pair()
    stream = space.stream(subscription, max_outstanding_messages=10)
    space.publish(topic, *[b"%d" % number for number in range(10)])
    got = stream.wait(10)
    seconds = [0 if number % 2 else 30 for number in range(10)]
    stream.send(modify_deadline_ack_ids=[one.ack_id for one in got], modify_deadline_seconds=seconds)
    again = stream.wait(15)[10:]
    assert sorted(bodies(again)) == sorted(bodies(got)[1::2])


def test_a_cancelled_stream_gives_back_what_it_had_not_sent(space):
    """A reader that never reads takes at most what fits into buffers; the rest goes to the next stream at once."""
    topic, subscription = space.pair(ack_deadline_seconds=600)
    for _ in range(30):
        space.publish(topic, *[b"x" * 10_000] * 100)
    opened = threading.Event()

    def requests():
        yield StreamingPullRequest({"subscription": subscription, "stream_ack_deadline_seconds": 600})
        opened.set()
        closed.wait(30)

    closed = threading.Event()
    call = space.api.streaming_pull.raw(requests())
    assert next(call).received_messages
    assert opened.wait(30)
    call.cancel()
    closed.set()
    assert len(space.stream(subscription).wait(1500)) >= 1500


def test_a_stream_survives_many_small_acks(space):
    topic, subscription = space.pair()
    stream = space.stream(subscription, max_outstanding_messages=10)
    total = 500
    space.publish(topic, *[b"%d" % number for number in range(total)])
    done = 0
    while done < total:
        got = stream.wait(done + 1)
        for one in got[done:]:
            stream.acknowledge(one)
        done = len(got)
    assert sorted(bodies(stream.messages), key=int) == [b"%d" % number for number in range(total)]
    stream.half_close()
    stream.ended()
    assert not space.peek(subscription)


def test_an_empty_stream_is_a_bad_argument(space):
    """Half-closed before the first request."""
    with refused("INVALID_ARGUMENT"):
        list(space.api.streaming_pull.raw(iter(()), timeout=10))
