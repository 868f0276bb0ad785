"""Servicers on a catalog that other processes change, too."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from syncpoint.control.plane import ControlPlane
from syncpoint.model.errors import Aborted, Conflict

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
