"""Order of keyed publishes: nothing overtakes a batch that has to be sent again, or is not ready to be sent.

Place: in front of the log of one node (`prepared_publishes`), and of the attempts of a proxy (`proxy.publisher`).
Batches of one key leave as they come, many may be prepared or underway together; none leaves before those ahead of it
have, whatever these wait for: room, transforms, a route. When one fails, it is sent again only after all before it are
complete, and later ones that have not left wait.
Leaves to the chain: the order of what arrives over one connection.
"""

from __future__ import annotations

import asyncio
from collections import deque


class BatchPlace:
    """The place of one batch in the line of its key."""

    __slots__ = ("failed", "left", "line", "preparing", "turn")

    def __init__(self, line: deque[BatchPlace]) -> None:
        self.line = line
        self.failed = False
        self.left = False  # it is underway, or was
        self.preparing = False  # what it is sent with is not ready
        self.turn: asyncio.Future[None] | None = None

    @property
    def may_go(self) -> bool:
        """Whether it may be sent now."""
        if self.failed:
            return self.line[0] is self
        for other in self.line:
            if other is self:
                return True
            if other.failed or not other.left:
                return False
        return True

    async def wait(self) -> None:
        """Return when it may be sent."""
        while not self.may_go:
            if self.turn is None:
                self.turn = asyncio.get_running_loop().create_future()
            try:
                await self.turn
            finally:
                self.turn = None

    def leave(self) -> None:
        """Note that the batch is sent, so that the next may follow."""
        if not self.left:
            self.left = True
            wake_next(self.line)

    def wake(self) -> None:
        """Something before it has changed."""
        if self.turn is not None and not self.turn.done() and self.may_go:
            self.turn.set_result(None)


def wake_next(line: deque[BatchPlace]) -> None:
    """Something in a line has changed: one may go now, at most, and lets the next go when it leaves."""
    for place in line:
        if place.failed or not place.left:
            place.wake()
            return


class PublishOrder:
    """The lines of all keys that have something underway."""

    def __init__(self) -> None:
        self.lines: dict[tuple[int, bytes], deque[BatchPlace]] = {}  # by topic and key

    def __len__(self) -> int:
        return len(self.lines)

    def __contains__(self, line: tuple[int, bytes]) -> bool:
        """Whether something of this topic and key is underway."""
        return line in self.lines

    def newest(self, topic: int, key: bytes) -> BatchPlace | None:
        """The place after which a batch would arrive now."""
        line = self.lines.get((topic, key))
        return line[-1] if line else None

    def enter(self, topic: int, key: bytes) -> BatchPlace:
        """A batch arrives."""
        line = self.lines.get((topic, key))
        if line is None:
            line = self.lines[topic, key] = deque()
        place = BatchPlace(line)
        line.append(place)
        return place

    def release(self, topic: int, key: bytes, place: BatchPlace) -> None:
        """A batch is answered, whatever the answer."""
        line = place.line
        line.remove(place)
        if not line:
            del self.lines[topic, key]
        wake_next(line)
