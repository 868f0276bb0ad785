"""Methods written on messages, served on bytes.

Place: between the transport and the servicers off the hot path.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from syncpoint.api.validate import parsed
from syncpoint.transport.calls import Call, Unary
from syncpoint.transport.tasks import unary_async


def served(kind: Any, function: Callable[[Any], Awaitable[Any]]) -> Unary:
    """A unary method: bytes are parsed as `kind`, the message that `function` answers is serialised."""

    async def run(call: Call, request: bytes) -> bytes:
        answer: bytes = (await function(parsed(kind, request))).SerializeToString()
        return answer

    return unary_async(run)
