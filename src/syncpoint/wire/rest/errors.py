"""Errors in the shape that Google's JSON interfaces have.

Place: at the very edge of `app`; `wire.status` makes the details, this writes them as JSON. Where a field is to blame
the details name it, so that a form can say so beside it.
"""

from __future__ import annotations

import base64
import math
from typing import Any, Final

from google.protobuf import json_format

from syncpoint.base.model.errors import Code, InvalidArgument, SyncpointError
from syncpoint.wire.protobuf.messages import POOL, rpc, well_known
from syncpoint.wire.protobuf.status import unpacked

HTTP_STATUS: Final = {
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
"""As google/rpc/code.proto maps them."""

_REASONS: Final = {
    400: "badRequest",
    401: "authError",
    403: "forbidden",
    404: "notFound",
    409: "alreadyExists",
    429: "rateLimitExceeded",
    501: "notImplemented",
    503: "backendError",
}


def bad_request(field: str, text: str) -> InvalidArgument:
    """INVALID_ARGUMENT that names the invalid field of the JSON."""
    request = rpc.BadRequest()
    request.field_violations.add(field=field, description=text)
    holder = well_known.Any(
        type_url=f"type.googleapis.com/{request.DESCRIPTOR.full_name}", value=request.SerializeToString()
    )
    return InvalidArgument("", text, [holder.SerializeToString()])


def status_of(error: SyncpointError) -> int:
    """The HTTP status of an error."""
    return HTTP_STATUS.get(error.code, 500)


def error_json(error: SyncpointError, *, status: int | None = None, legacy: bool = False) -> dict[str, Any]:
    """The body of an error. `status`: where HTTP has a finer one; `legacy`: with `errors` (`$.xgafv=1`)."""
    http = status or status_of(error)
    body: dict[str, Any] = {"code": http, "message": error.message}
    if legacy:
        reason = _REASONS.get(http, "backendError" if http >= 500 else "badRequest")
        body["errors"] = [{"message": error.message, "domain": "global", "reason": reason}]
    body["status"] = error.code.name
    details = error.details
    if isinstance(error, InvalidArgument) and error.field and not details:
        details = bad_request(error.field, error.message).details
    if details:
        body["details"] = [_detail(data) for data in details]
    return {"error": body}


def headers_for(error: SyncpointError) -> dict[str, str]:
    """Header fields that go with an error: how to show oneself, when to come back."""
    if error.code is Code.UNAUTHENTICATED:
        return {"www-authenticate": 'Bearer realm="syncpoint"'}
    for detail in unpacked(error.details):
        if detail.DESCRIPTOR.name == "RetryInfo":
            seconds = detail.retry_delay.seconds + detail.retry_delay.nanos / 1e9
            return {"retry-after": str(math.ceil(seconds))}
    return {}


def _detail(data: bytes) -> dict[str, Any]:
    holder = well_known.Any.FromString(data)
    try:
        found: dict[str, Any] = json_format.MessageToDict(holder, descriptor_pool=POOL)
    except (TypeError, ValueError):  # of a kind that is not known here
        return {"@type": holder.type_url, "value": base64.b64encode(holder.value).decode()}
    return found
