"""Error details are what official clients decode."""

from __future__ import annotations

from google.protobuf import any_pb2
from google.rpc import error_details_pb2

from syncpoint.base.model.errors import Code
from syncpoint.wire.protobuf import status


def test_ack_failures_decode_with_the_official_classes() -> None:
    error = status.ack_failure([b"one", "two"])
    assert error.code is Code.INVALID_ARGUMENT
    info = error_details_pb2.ErrorInfo()
    assert any_pb2.Any.FromString(error.details[0]).Unpack(info)
    assert (info.reason, info.domain) == ("EXACTLY_ONCE_ACKID_FAILURE", "pubsub.googleapis.com")
    assert dict(info.metadata) == dict.fromkeys(["one", "two"], "PERMANENT_FAILURE_INVALID_ACK_ID")


def test_details_that_are_not_known_are_left_out() -> None:
    foreign = any_pb2.Any(type_url="type.googleapis.com/other.Thing", value=b"x").SerializeToString()
    (info,) = status.unpacked([foreign, *status.ack_failure(["a"], status.TRANSIENT_INVALID_ACK_ID).details])
    assert dict(info.metadata) == {"a": "TRANSIENT_FAILURE_INVALID_ACK_ID"}
