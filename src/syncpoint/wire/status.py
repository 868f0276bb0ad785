"""Errors on the wire: details that clients read, and the table from codes to HTTP.

Place: at the edge, where a `SyncpointError` leaves (server) or arrives (client).
Promise: `google.rpc.Status` bytes as official clients decode them from the trailer `grpc-status-details-bin`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from syncpoint.model.errors import Code, SyncpointError
from syncpoint.wire.messages import rpc, well_known

#: The domain that clients of Pub/Sub expect in an ErrorInfo.
DOMAIN = "pubsub.googleapis.com"
EXACTLY_ONCE_REASON = "EXACTLY_ONCE_ACKID_FAILURE"
PERMANENT_INVALID_ACK_ID = "PERMANENT_FAILURE_INVALID_ACK_ID"
TRANSIENT_INVALID_ACK_ID = "TRANSIENT_FAILURE_INVALID_ACK_ID"

#: How each code reads in HTTP (the mapping published with google.rpc.Code).
HTTP_STATUS = {
    Code.OK: 200,
    Code.CANCELLED: 499,
    Code.UNKNOWN: 500,
    Code.INVALID_ARGUMENT: 400,
    Code.DEADLINE_EXCEEDED: 504,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.PERMISSION_DENIED: 403,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.FAILED_PRECONDITION: 400,
    Code.ABORTED: 409,
    Code.OUT_OF_RANGE: 400,
    Code.UNIMPLEMENTED: 501,
    Code.INTERNAL: 500,
    Code.UNAVAILABLE: 503,
    Code.DATA_LOSS: 500,
    Code.UNAUTHENTICATED: 401,
}

_TYPE_PREFIX = "type.googleapis.com/"


def _packed(message: Any) -> bytes:
    holder = well_known.Any(type_url=_TYPE_PREFIX + message.DESCRIPTOR.full_name, value=message.SerializeToString())
    packed: bytes = holder.SerializeToString()
    return packed


def error_info(reason: str, metadata: Mapping[str, str], domain: str = DOMAIN) -> bytes:
    """An ErrorInfo as serialised Any, ready for `SyncpointError.details`."""
    return _packed(rpc.ErrorInfo(reason=reason, domain=domain, metadata=dict(metadata)))


def bad_request(violations: Iterable[tuple[str, str]]) -> bytes:
    """A BadRequest as serialised Any, from pairs of field path and description."""
    violation = rpc.BadRequest.FieldViolation
    return _packed(
        rpc.BadRequest(field_violations=[violation(field=field, description=text) for field, text in violations])
    )


def retry_info(delay_s: float) -> bytes:
    """A RetryInfo as serialised Any: wait `delay_s` seconds before asking again."""
    nanoseconds = round(delay_s * 1e9)
    delay = well_known.Duration(seconds=nanoseconds // 10**9, nanos=nanoseconds % 10**9)
    return _packed(rpc.RetryInfo(retry_delay=delay))


def ack_failure(
    ack_ids: Iterable[str | bytes],
    outcome: str = PERMANENT_INVALID_ACK_ID,
    *,
    unknown: Iterable[str | bytes] = (),
) -> SyncpointError:
    """The failure of some acknowledgements of an exactly-once subscription; ids that are not named succeeded.

    Clients look only at the first detail; an outcome that starts with `TRANSIENT_` makes them retry those ids, as is
    right for `unknown` ones.
    """
    found = {
        ack_id.decode() if isinstance(ack_id, bytes) else ack_id: what
        for ids, what in ((ack_ids, outcome), (unknown, TRANSIENT_INVALID_ACK_ID))
        for ack_id in ids
    }
    detail = error_info(EXACTLY_ONCE_REASON, found)
    message = "Some ack ids of the request are no longer valid: expired, replaced by a newer delivery, or acknowledged."
    return SyncpointError(Code.INVALID_ARGUMENT, message, [detail])


def encode_status(error: SyncpointError) -> bytes:
    """The serialised google.rpc.Status of an error."""
    status = rpc.Status(code=int(error.code), message=error.message)
    for detail in error.details:
        status.details.add().ParseFromString(detail)
    encoded: bytes = status.SerializeToString()
    return encoded


def decode_status(data: bytes) -> SyncpointError:
    """The error in a serialised google.rpc.Status. Raises protobuf's `DecodeError` when it is not one."""
    status = rpc.Status.FromString(data)
    code = Code(status.code) if 0 <= status.code <= 16 else Code.UNKNOWN
    return SyncpointError(code, status.message, [detail.SerializeToString() for detail in status.details])


def unpacked(details: Iterable[bytes]) -> list[Any]:
    """Details as messages; kinds that are not known here are left out."""
    found = []
    for data in details:
        holder = well_known.Any.FromString(data)
        name = holder.type_url.rpartition("/")[2].removeprefix("google.rpc.")
        kind = getattr(rpc, name, None)
        if kind is not None:
            found.append(kind.FromString(holder.value))
    return found
