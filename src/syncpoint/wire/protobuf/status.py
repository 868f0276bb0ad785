"""Errors on the wire: details that clients read.

Place: at the edge, where a `SyncpointError` leaves (server) or arrives (client).
Promise: details as official clients decode them. Leaves to `transport.headers`: the `google.rpc.Status` around them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from syncpoint.base.model.errors import Code, ResourceExhausted, SyncpointError
from syncpoint.wire.protobuf.messages import rpc, well_known

#: The domain that clients of Pub/Sub expect in an ErrorInfo.
DOMAIN = "pubsub.googleapis.com"
EXACTLY_ONCE_REASON = "EXACTLY_ONCE_ACKID_FAILURE"
PERMANENT_INVALID_ACK_ID = "PERMANENT_FAILURE_INVALID_ACK_ID"
NOT_STORED_REASON = "MESSAGES_NOT_STORED"
TRANSIENT_INVALID_ACK_ID = "TRANSIENT_FAILURE_INVALID_ACK_ID"

_TYPE_PREFIX = "type.googleapis.com/"


def _packed(message: Any) -> bytes:
    holder = well_known.Any(type_url=_TYPE_PREFIX + message.DESCRIPTOR.full_name, value=message.SerializeToString())
    packed: bytes = holder.SerializeToString()
    return packed


def error_info(reason: str, metadata: Mapping[str, str], domain: str = DOMAIN) -> bytes:
    """An ErrorInfo as serialised Any, ready for `SyncpointError.details`."""
    return _packed(rpc.ErrorInfo(reason=reason, domain=domain, metadata=dict(metadata)))


def not_stored_info(next_offset: int) -> bytes:
    """That messages are not stored any more, as serialised Any. `next_offset`: where to go on."""
    return error_info(NOT_STORED_REASON, {"next_offset": str(next_offset)}, "syncpoint")


def next_stored(details: Iterable[bytes]) -> int | None:
    """The next offset that is stored, as the refusal of a range has it; None where it has none."""
    for one in unpacked(details):
        if getattr(one, "reason", "") == NOT_STORED_REASON:
            offset = one.metadata.get("next_offset", "")
            return int(offset) if offset.isdecimal() else None
    return None


def retry_info(after_s: float) -> bytes:
    """A RetryInfo as serialised Any: when to try again."""
    info = rpc.RetryInfo()
    info.retry_delay.FromNanoseconds(round(after_s * 1e9))
    return _packed(info)


def quota_exceeded(project: str, metric: str, after_s: float | None = None) -> ResourceExhausted:
    """The refusal of what is beyond a quota; `after_s`: when to try again, None where waiting does not help."""
    facts = {"quota_metric": metric, "consumer": project, "service": "pubsub.googleapis.com"}
    details = [error_info("RATE_LIMIT_EXCEEDED", facts, "googleapis.com")]
    if after_s is not None:
        details.append(retry_info(after_s))
    todo = "Use less, or ask the operator for more." if after_s is None else f"Retry in {after_s:.3g} s."
    return ResourceExhausted(f"Quota exceeded for quota metric '{metric}' for consumer '{project}'. {todo}", details)


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


def ack_outcomes(error: SyncpointError) -> dict[str, str]:
    """The details of an error about single ack ids; nothing if it is not about them."""
    found: dict[str, str] = {}
    for info in unpacked(error.details):
        if getattr(info, "reason", "") == EXACTLY_ONCE_REASON:
            found.update(info.metadata)
    return found


def missing_permission(details: Iterable[bytes]) -> str:
    """The missing permission that a refusal names: "PERMISSION on RESOURCE"; "" if it names none."""
    for one in unpacked(details):
        if one.DESCRIPTOR.name == "ErrorInfo" and one.metadata.get("permission"):
            return f"{one.metadata['permission']} on {one.metadata.get('resource', '')}"
    return ""


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
