"""Admin methods on a catalog that others change, too: it catches up before a call, which a conflict makes run again.
What a caller may depends on it as well: on what a subscription sends as whom, say. So that is judged again each time.

Place: around each method of a servicer, where its table of methods is made.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from syncpoint.base.model.errors import Aborted, AlreadyExists, Conflict, MetadataSilent, NotFound
from syncpoint.catalog.access.authors import judge_caller
from syncpoint.cluster.control.plane import ControlPlane

ATTEMPTS_MAX = 100

_Request = TypeVar("_Request")
_Answer = TypeVar("_Answer")


def checked_again(
    control: ControlPlane, function: Callable[[_Request], Awaitable[_Answer]]
) -> Callable[[_Request], Awaitable[_Answer]]:
    """The function on a catalog that is up to date, and again whenever another process changed it first.

    While the metadata does not answer, what is known here can still be read; that a resource exists or does not is no
    reason for a refusal then, since it may be over. Raises `MetadataSilent` instead.
    """

    async def run(request: _Request) -> _Answer:
        old: MetadataSilent | None = None
        try:
            await control.refresh()
        except MetadataSilent as error:
            old = error
        for _ in range(ATTEMPTS_MAX):
            judge_caller()
            try:
                return await function(request)
            except Conflict:
                continue  # the copy has caught up: the request may be wrong now
            except (NotFound, AlreadyExists):
                if old is not None:
                    raise old from None
                raise
        raise Aborted("Other callers kept changing the catalog while this request ran. Nothing was changed. Try again.")

    return run


def checked_where_shared(
    control: ControlPlane, function: Callable[[_Request], Awaitable[_Answer]]
) -> Callable[[_Request], Awaitable[_Answer]]:
    """The function, for which only other processes can be in the way: `checked_again` where there are any."""
    return checked_again(control, function) if control.commits.staged else function
