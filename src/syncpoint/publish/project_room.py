"""Room in bytes that projects share, where what one of them sends may stay long.

Place: for publishes that wait to be checked or transformed on a node, under `prepared_publishes`.
Promise: all together have no more than the room. A project that has some of it already gets more only while it then has
no more than is left: one alone gets half, and leaves half to the others.
"""

from __future__ import annotations

from syncpoint.model.errors import ResourceExhausted


class ProjectRoom:
    """See the module."""

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
        left = self._bytes_max - self._all - size
        if (had and had + size > left) or (self._all and left < 0):
            raise ResourceExhausted("Many messages are being checked or transformed; retry later.")
        self._of[project] = had + size
        self._all += size

    def give_back(self, project: str, size: int) -> None:
        """What was taken."""
        self._all -= size
        self._of[project] -= size
        if not self._of[project]:
            del self._of[project]
