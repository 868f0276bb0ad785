"""Methods written on messages, served on bytes.

Place: between the transport and the servicers off the hot path.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from syncpoint.api.validate import parsed
from syncpoint.control.plane import ControlPlane
from syncpoint.model.errors import Aborted, Conflict
from syncpoint.transport.calls import Call, Unary
from syncpoint.transport.tasks import unary_fair

ATTEMPTS_MAX = 100

_Request = TypeVar("_Request")
_Answer = TypeVar("_Answer")


def checked_again(
    control: ControlPlane, function: Callable[[_Request], Awaitable[_Answer]]
) -> Callable[[_Request], Awaitable[_Answer]]:
    """The function on a catalog that is up to date, and again whenever another process changed it first."""

    async def run(request: _Request) -> _Answer:
        await control.refresh()
        for _ in range(ATTEMPTS_MAX):
            try:
                return await function(request)
            except Conflict:
                continue  # the copy has caught up: the request may be wrong now
        raise Aborted("Too many changes at once. Try again.")

    return run


def served(kind: Any, function: Callable[[Any], Awaitable[Any]]) -> Unary:
    """A unary method: bytes are parsed as `kind`, the message that `function` answers is serialised. Such methods take
    turns, so that a caller with thousands of them holds nobody else up."""

    async def run(call: Call, request: bytes) -> bytes:
        answer: bytes = (await function(parsed(kind, request))).SerializeToString()
        return answer

    return unary_fair(run)
