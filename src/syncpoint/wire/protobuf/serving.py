"""Methods written on messages, served on bytes.

Place: between the transport and the servicers off the hot path.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message

from syncpoint.base.model.errors import InvalidArgument, not_a
from syncpoint.base.model.limits import RESOURCE_REQUEST_BYTES_MAX
from syncpoint.wire.protobuf.methods import Method
from syncpoint.wire.transport.calls import Call, Unary
from syncpoint.wire.transport.tasks import unary_async, unary_fair

_Message = TypeVar("_Message", bound=Message)


def parsed(kind: type[_Message], request: bytes) -> _Message:
    """The request as a message of class `kind`. Raises `InvalidArgument` for bytes that are none."""
    try:
        return kind.FromString(request)
    except DecodeError:
        raise not_a(kind.DESCRIPTOR.name) from None


def served(table: Mapping[Method, Callable[[Any], Awaitable[Message]]], *, fair: bool = False) -> dict[bytes, Unary]:
    """A table of unary methods from functions on messages. `fair`: they take turns, so that a caller with thousands of
    them holds nobody else up, and none may be large enough for a long turn."""

    def unary(path: Method, function: Callable[[Any], Awaitable[Message]]) -> Unary:
        kind = path.request

        async def run(call: Call, request: bytes) -> bytes:
            if fair and len(request) > RESOURCE_REQUEST_BYTES_MAX:
                raise InvalidArgument("", f"The request must not be larger than {RESOURCE_REQUEST_BYTES_MAX} bytes.")
            return (await function(parsed(kind, request))).SerializeToString()

        return unary_fair(run) if fair else unary_async(run)

    return {path.encode(): unary(path, function) for path, function in table.items()}
