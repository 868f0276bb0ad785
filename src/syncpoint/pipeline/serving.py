"""Methods written on messages, served on bytes, for the services of this room."""

from collections.abc import Awaitable, Callable
from typing import Any

from google.protobuf.message import DecodeError

from syncpoint.model.errors import InvalidArgument
from syncpoint.transport.calls import Call, Unary
from syncpoint.transport.tasks import unary_async


def parsed(kind: Any, request: bytes) -> Any:
    """The request as a message of class `kind`. Raises `InvalidArgument` for bytes that are none."""
    try:
        return kind.FromString(request)
    except DecodeError:
        raise InvalidArgument("", f"The request is not a valid {kind.DESCRIPTOR.name}.") from None


def served(kind: Any, function: Callable[[Any], Awaitable[Any]]) -> Unary:
    """A unary method: bytes are parsed as `kind`, the message that `function` answers is serialised."""

    async def run(call: Call, request: bytes) -> bytes:
        answer: bytes = (await function(parsed(kind, request))).SerializeToString()
        return answer

    return unary_async(run)
