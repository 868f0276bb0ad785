"""Error details are what official clients decode."""

from __future__ import annotations

import grpc
from google.rpc import error_details_pb2, status_pb2

from syncpoint.model.errors import Code, FailedPrecondition, SyncpointError
from syncpoint.wire import status


def test_ack_failures_decode_with_the_official_classes() -> None:
    error = status.ack_failure([b"one", "two"])
    theirs = status_pb2.Status.FromString(status.encode_status(error))
    assert theirs.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    info = error_details_pb2.ErrorInfo()
    assert theirs.details[0].Unpack(info)
    assert (info.reason, info.domain) == ("EXACTLY_ONCE_ACKID_FAILURE", "pubsub.googleapis.com")
    assert dict(info.metadata) == dict.fromkeys(["one", "two"], "PERMANENT_FAILURE_INVALID_ACK_ID")


def test_other_details() -> None:
    error = SyncpointError(
        Code.RESOURCE_EXHAUSTED, "full", [status.retry_info(1.25), status.bad_request([("topic", "too long")])]
    )
    theirs = status_pb2.Status.FromString(status.encode_status(error))
    retry, bad = error_details_pb2.RetryInfo(), error_details_pb2.BadRequest()
    assert theirs.details[0].Unpack(retry)
    assert theirs.details[1].Unpack(bad)
    assert retry.retry_delay.ToMilliseconds() == 1250
    assert [(v.field, v.description) for v in bad.field_violations] == [("topic", "too long")]


def test_status_round_trip() -> None:
    error = status.ack_failure(["a"], status.TRANSIENT_INVALID_ACK_ID)
    back = status.decode_status(status.encode_status(error))
    assert (back.code, back.message, back.details) == (error.code, error.message, error.details)
    (info,) = status.unpacked(back.details)
    assert dict(info.metadata) == {"a": "TRANSIENT_FAILURE_INVALID_ACK_ID"}
    plain = status.decode_status(status.encode_status(FailedPrecondition("no")))
    assert (plain.code, plain.message, plain.details) == (Code.FAILED_PRECONDITION, "no", ())


def test_unknown_codes_and_details_are_survived() -> None:
    foreign = status_pb2.Status(code=77, message="?")
    foreign.details.add(type_url="type.googleapis.com/other.Thing", value=b"x")
    back = status.decode_status(foreign.SerializeToString())
    assert back.code is Code.UNKNOWN
    assert status.unpacked(back.details) == []


def test_every_code_has_an_http_status() -> None:
    assert set(status.HTTP_STATUS) == set(Code)
