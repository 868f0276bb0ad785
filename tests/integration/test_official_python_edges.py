"""Values at the edge of their types: an orderly refusal or an orderly answer, never UNKNOWN or INTERNAL.

Clients retry INTERNAL and UNKNOWN for minutes, so a bad value must not end there.
"""

from __future__ import annotations

import grpc
import pytest
from google.protobuf import duration_pb2, timestamp_pb2
from google.pubsub_v1 import types

pytestmark = pytest.mark.shows("limits")

INT_MAX, INT_MIN = 2**31 - 1, -(2**31)
ORDERLY = {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "OUT_OF_RANGE", "FAILED_PRECONDITION", "UNIMPLEMENTED"}

DURATIONS = [
    (-1, 0),
    (0, -1),
    (10**12, 0),
    (-(10**12), 0),
    (2**63 - 1, 0),
    (-(2**63), 0),
    (600, 2**31 - 1),
    (1, -(2**31)),
]
TIMES = [
    (0, 0),
    (-1, 0),
    (-62135596801, 0),
    (253402300799, 999_999_999),
    (253402300800, 0),
    (2**63 - 1, 0),
    (-(2**63), 0),
    (1, -1),
    (1, 10**9),
    (1, INT_MAX),
]


def answer(call, *arguments, **options):
    """The status of a call, which must be an orderly one and say something."""
    try:
        call(*arguments, **options)
    except grpc.RpcError as error:
        code = error.code().name
        assert code in ORDERLY, (code, error.details())  # noqa: PT017
        assert error.details()  # noqa: PT017
        return code
    return "OK"


@pytest.mark.parametrize("value", DURATIONS, ids=str)
def test_durations(space, value):
    duration = duration_pb2.Duration(seconds=value[0], nanos=value[1])
    topic = types.Topic({"name": space.path("topics", "topic")})
    topic._pb.message_retention_duration.CopyFrom(duration)
    assert answer(space.api.create_topic, topic) == "INVALID_ARGUMENT"
    good = space.topic("good")
    for place in (
        lambda one: one.message_retention_duration,
        lambda one: one.expiration_policy.ttl,
        lambda one: one.retry_policy.minimum_backoff,
        lambda one: one.retry_policy.maximum_backoff,
    ):
        subscription = types.Subscription({"name": space.path("subscriptions", "sub"), "topic": good})
        place(subscription._pb).CopyFrom(duration)
        assert answer(space.api.create_subscription, subscription) == "INVALID_ARGUMENT"


@pytest.mark.parametrize("value", TIMES, ids=str)
def test_seek_times(space, value):
    topic, subscription = space.pair()
    request = types.SeekRequest({"subscription": subscription})
    request._pb.time.CopyFrom(timestamp_pb2.Timestamp(seconds=value[0], nanos=value[1]))
    outcome = answer(space.api.seek, request)
    assert outcome in ("OK", "INVALID_ARGUMENT")
    if not 0 <= value[1] < 10**9:
        assert outcome == "INVALID_ARGUMENT"
    ids = space.publish(topic, b"x")
    assert ids[0] in {one.message.message_id for one in space.pull(subscription)}, "the subscription works on"


@pytest.mark.parametrize("number", [INT_MAX, INT_MIN, -1, 1])
def test_numbers(space, number):
    topic, subscription = space.pair()
    project = f"projects/{space.project}"
    space.publish(topic, b"x")
    answers = {
        "page": answer(space.api.list_topics, {"project": project, "page_size": number}),
        "pull": answer(space.api.pull, {"subscription": subscription, "max_messages": number}),
        "deadline": answer(
            space.api.create_subscription,
            {"name": space.path("subscriptions", "other"), "topic": topic, "ack_deadline_seconds": number},
        ),
        "modack": answer(
            space.api.modify_ack_deadline,
            {"subscription": subscription, "ack_ids": ["x"], "ack_deadline_seconds": number},
        ),
    }
    assert answers["deadline"] == answers["modack"] == "INVALID_ARGUMENT"
    assert answers["page"] == answers["pull"] == ("OK" if number > 0 else "INVALID_ARGUMENT")


@pytest.mark.parametrize(
    "first",
    [
        {"stream_ack_deadline_seconds": INT_MAX},
        {"stream_ack_deadline_seconds": -1},
        {"max_outstanding_messages": 2**63 - 1, "max_outstanding_bytes": 2**63 - 1},
        {"max_outstanding_messages": -(2**63), "max_outstanding_bytes": -(2**63)},
        {"client_id": "x" * 100_000},
        {"protocol_version": 2**63 - 1},
        {"ack_ids": ["bogus"]},
        {"modify_deadline_ack_ids": ["bogus"], "modify_deadline_seconds": [10]},
        {"modify_deadline_seconds": [INT_MAX] * 1000},
    ],
    ids=lambda value: str(value)[:60],
)
def test_first_requests_of_streams(space, first):
    topic, subscription = space.pair()
    stream = space.stream(subscription, **first)
    space.publish(topic, b"x")
    stream.until(lambda: stream.status is not None or stream.messages, what="a message or a refusal")
    assert stream.status in (None, "INVALID_ARGUMENT"), stream.text


@pytest.mark.parametrize("count", [1000, 100_000])
def test_very_many_ack_ids(space, count):
    _, subscription = space.pair()
    request = {"subscription": subscription, "ack_ids": ["x" * 48] * count}
    assert answer(space.api.acknowledge, request) == "INVALID_ARGUMENT"


def test_names_with_strange_letters(space):
    for short in ("..", "a/../b", "a%00b", "a\tb", "a\nb", "ab\u202ec", "😀😀😀", "a" * 100_000):
        for method, request in (
            ("create_topic", {"name": space.path("topics", short)}),
            ("get_topic", {"topic": space.path("topics", short)}),
            ("delete_subscription", {"subscription": space.path("subscriptions", short)}),
        ):
            assert answer(getattr(space.api, method), request) in ("OK", "INVALID_ARGUMENT", "NOT_FOUND")


@pytest.mark.parametrize(
    "labels",
    [{"k" * 64: "v"}, {"": "v"}, {"k": "v" * 64}, {f"k{number}": "v" for number in range(65)}, {"K": "v"}],
    ids=lambda value: str(value)[:40],
)
def test_labels(space, labels):
    """The documented rules are strict; a server may be generous, but must give back what it took."""
    name = space.path("topics", "labelled")
    if answer(space.api.create_topic, {"name": name, "labels": labels}) == "OK":
        assert dict(space.api.get_topic({"topic": name}).labels) == labels


def test_a_call_whose_deadline_has_passed_is_not_an_error_of_the_server(space):
    topic = space.topic()
    for timeout in (0.000001, 0.0001, 0.001):
        try:
            space.api.publish({"topic": topic, "messages": [{"data": b"x"}]}, timeout=timeout)
        except grpc.RpcError as error:
            assert error.code().name in ("DEADLINE_EXCEEDED", "CANCELLED")  # noqa: PT017
    assert space.publish(topic, b"works on")
