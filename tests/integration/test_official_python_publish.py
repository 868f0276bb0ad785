"""Publishing: every limit at its edge, ids, publish times, what a client may not set, and the high-level publisher."""

from __future__ import annotations

import datetime

import pytest
from google.pubsub_v1.types import PublishRequest

from syncpoint.testing.rigs.official import attributes_of, refused

REQUEST_BYTES_MAX = 10_000_000


def request_of(topic, size):
    """A publish request of exactly `size` serialised bytes, with one message."""
    data = size
    for _ in range(4):  # the lengths before the data take more bytes as it grows
        request = PublishRequest({"topic": topic, "messages": [{"data": b"x" * data}]})
        data -= request._pb.ByteSize() - size
    assert request._pb.ByteSize() == size
    return request


@pytest.mark.parametrize("size", [1, 1024, 1_000_000])
def test_bytes_come_back_as_they_were_sent(space, size):
    topic, subscription = space.pair()
    body = bytes(number % 251 for number in range(size))
    space.publish(topic, body)
    assert space.pull(subscription, ack=True)[0].message.data == body


def test_an_empty_body_needs_attributes(space):
    topic, subscription = space.pair()
    space.publish(topic, b"", attributes={"only": "attributes"})
    (got,) = space.pull(subscription)
    assert got.message.data == b""
    assert attributes_of(got) == {"only": "attributes"}
    with refused("INVALID_ARGUMENT", "Some messages are empty"):
        space.publish(topic, b"")
    with refused("INVALID_ARGUMENT", "Some messages are empty"):
        space.publish(topic, b"full", b"")
    with refused("INVALID_ARGUMENT", "Some messages are empty"):
        space.publish(topic, b"", key="an ordering key alone")
    assert not space.peek(subscription)


def test_no_messages_is_refused(space):
    with refused("INVALID_ARGUMENT", "No messages to publish"):
        space.api.publish({"topic": space.topic()})


def test_ten_million_bytes_exactly_pass_and_come_back(space):
    topic, subscription = space.pair()
    request = request_of(topic, REQUEST_BYTES_MAX)
    assert len(space.api.publish(request, timeout=60).message_ids) == 1
    (got,) = space.pull(subscription, within=60, ack=True)
    assert got.message.data == request.messages[0].data


def test_one_byte_more_is_refused(space):
    topic, subscription = space.pair()
    with refused("INVALID_ARGUMENT", "request_size is too large"):
        space.api.publish(request_of(topic, REQUEST_BYTES_MAX + 1), timeout=60)
    assert not space.peek(subscription)


def test_a_thousand_messages_pass_in_order(space):
    topic, subscription = space.pair()
    wanted = [b"%d" % number for number in range(1000)]
    ids = space.publish(topic, *wanted)
    assert len(set(ids)) == 1000
    got = space.pull(subscription, 1000, ack=True)
    assert {one.message.message_id: one.message.data for one in got} == dict(zip(ids, wanted, strict=True))


def test_one_message_more_is_refused(space):
    topic, subscription = space.pair()
    with refused("INVALID_ARGUMENT", "Too many messages to publish"):
        space.publish(topic, *[b"x"] * 1001)
    assert not space.peek(subscription)


GOOD = {
    "100 attributes": {f"key-{number}": "v" for number in range(100)},
    "a key of 256 bytes": {"k" * 256: "v"},
    "a value of 1024 bytes": {"k": "v" * 1024},
    "an empty value": {"k": ""},
    "trace attributes of the clients": {"googclient_traceparent": "00-1-1-01"},
    "unicode": {"schlüssel": "wert ✓ 値"},
    "a key like goo": {"goo": "v"},
}
BAD = {
    "101 attributes": {f"key-{number}": "v" for number in range(101)},
    "a key of 257 bytes": {"k" * 257: "v"},
    "a key of 129 two-byte letters": {"ü" * 129: "v"},
    "a value of 1025 bytes": {"k": "v" * 1025},
    "an empty key": {"": "v"},
    "a key of the service": {"goog-key": "v"},
    "another key of the service": {"google": "v"},
}


@pytest.mark.parametrize("name", GOOD)
def test_attributes_at_the_limit_come_back(space, name):
    topic, subscription = space.pair()
    space.publish(topic, b"x", attributes=GOOD[name])
    assert attributes_of(space.pull(subscription)[0]) == GOOD[name]


@pytest.mark.parametrize("name", BAD)
def test_attributes_beyond_the_limit_are_refused_and_named(space, name):
    topic, subscription = space.pair()
    messages = [{"data": b"good"}, {"data": b"bad", "attributes": BAD[name]}]
    with refused("INVALID_ARGUMENT", "messages[1]"):
        space.api.publish({"topic": topic, "messages": messages})
    assert not space.peek(subscription), "a refused request must leave nothing behind"


def test_ordering_keys_to_1024_bytes(space):
    topic, subscription = space.pair()
    space.publish(topic, b"x", key="k" * 1024)
    assert space.pull(subscription)[0].message.ordering_key == "k" * 1024
    with refused("INVALID_ARGUMENT", "ordering_key"):
        space.publish(topic, b"x", key="k" * 1025)


def test_one_request_has_one_ordering_key(space):
    topic, subscription = space.pair()
    messages = [{"data": b"a", "ordering_key": "1"}, {"data": b"b", "ordering_key": "2"}]
    with refused("INVALID_ARGUMENT", "ordering_key"):
        space.api.publish({"topic": topic, "messages": messages})
    assert not space.peek(subscription)


def test_ids_are_unique_and_rise_with_the_order_of_publishing(space):
    topic = space.topic()
    ids = [one for _ in range(50) for one in space.publish(topic, b"a", b"b", b"c")]
    assert len(set(ids)) == 150
    assert all(one.isdigit() for one in ids)
    assert [int(one) for one in ids] == sorted(int(one) for one in ids)


def test_ids_are_unique_over_topics(space):
    first, second = space.topic("one"), space.topic("two")
    ids = [one for _ in range(20) for topic in (first, second) for one in space.publish(topic, b"x", b"y")]
    assert len(set(ids)) == len(ids)


def test_the_server_sets_id_and_time(space):
    topic, subscription = space.pair()
    before = datetime.datetime.now(datetime.UTC)
    forged = {"data": b"x", "message_id": "42", "publish_time": {"seconds": 1, "nanos": 5}}
    (given,) = space.api.publish({"topic": topic, "messages": [forged]}).message_ids
    after = datetime.datetime.now(datetime.UTC)
    (got,) = space.pull(subscription)
    assert given != "42"
    assert got.message.message_id == given
    second = datetime.timedelta(seconds=1)
    assert before - second <= got.message.publish_time <= after + second


def test_publish_time_stays_the_same_over_deliveries_and_subscriptions(space):
    topic, one = space.pair()
    two = space.subscription(topic, "two")
    space.publish(topic, b"x")
    (first,) = space.pull(one)
    space.nack(one, first)
    (again,) = space.pull(one)
    (elsewhere,) = space.pull(two)
    times = {got.message._pb.publish_time.ToNanoseconds() for got in (first, again, elsewhere)}
    assert len(times) == 1


def test_publishing_to_a_topic_without_subscriptions_is_fine(space):
    assert space.publish(space.topic(), b"x")


def test_a_malformed_request_is_a_bad_argument_not_an_unknown_error(space):
    call = space.api.channel.unary_unary("/google.pubsub.v1.Publisher/Publish")
    for rubbish in (b"\xff\xff\xff", b"\x0a\x7fshort", b"\x12\x02\x0a\x7f", b"\x0b"):
        with refused("INVALID_ARGUMENT"):
            call(rubbish, timeout=10)


def test_text_that_is_not_utf8_is_refused(space):
    topic = space.topic().encode()
    message = b"\x0a\x01x\x12\x08\x0a\x03k\xff\xfe\x12\x01v"  # data, and an attribute with a broken key
    raw = b"\x0a" + bytes([len(topic)]) + topic + b"\x12" + bytes([len(message)]) + message
    call = space.api.channel.unary_unary("/google.pubsub.v1.Publisher/Publish")
    with refused("INVALID_ARGUMENT"):
        call(raw, timeout=10)


def test_the_high_level_publisher_batches_and_gets_every_id(space):
    topic, subscription = space.pair()
    client = space.publisher(batch_messages=50)
    futures = [client.publish(topic, b"%d" % number, origin="official") for number in range(500)]
    ids = [future.result(timeout=30) for future in futures]
    assert len(set(ids)) == 500
    got = space.pull(subscription, 500, ack=True)
    assert {one.message.message_id: one.message.data for one in got} == {
        one: b"%d" % number for number, one in enumerate(ids)
    }
    assert all(attributes_of(one) == {"origin": "official"} for one in got)


def test_compressed_requests_are_understood(space):
    """The Go and Java clients compress large publish requests."""
    import grpc

    topic, subscription = space.pair()
    body = b"compressible " * 1000
    space.api.publish({"topic": topic, "messages": [{"data": body}]}, compression=grpc.Compression.Gzip)
    assert space.pull(subscription)[0].message.data == body
