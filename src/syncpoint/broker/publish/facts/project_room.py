"""Room in bytes that projects share, where what one of them sends may stay long.

Place: for publishes that wait to be checked or transformed on a node, under `prepared_publishes`.
Promise: all together have no more than the room. A project that has some of it already gets more only while it then has
no more than is left: one alone gets half, and leaves half to the others.
"""

from __future__ import annotations

from syncpoint.base.model.errors import ResourceExhausted


def is_fair(had: int, taken: int, more: int, room: int) -> bool:
    """Whether somebody who has `had` of a room, of which all together have `taken`, may have so much more."""
    left = room - taken - more
    return left >= 0 and (not had or had + more <= left)


class ProjectRoom:
    """Share memory, in bytes, fairly among projects."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._all = 0
        self._of: dict[str, int] = {}

    def __len__(self) -> int:
        """Projects that have some of it."""
        return len(self._of)

    def take(self, project: str, size: int) -> None:
        """Raises `ResourceExhausted` when there is not as much. Where nobody has any, any size is taken."""
        had = self._of.get(project, 0)
        if self._all and not is_fair(had, self._all, size, self._bytes_max):
            raise ResourceExhausted(
                "Too many messages of this project are being checked or transformed. Retry with backoff."
            )
        self._of[project] = had + size
        self._all += size

    def give_back(self, project: str, size: int) -> None:
        """What was taken."""
        self._all -= size
        self._of[project] -= size
        if not self._of[project]:
            del self._of[project]
