"""Turns at a few places that projects share: who has used the least time is next.

Place: in front of processes: those of `child_processes`, and of `transforms.sandbox`. Promise: a project has all places
but one at most, so one whose turns are long leaves a place to the others. Of those that wait and may have another
place, the one whose turns have taken the least time goes first, so many short turns are not held up by a few long
ones; within a project the order of arrival is kept. One that comes after a pause begins where the others are: time in
which it asked for nothing is not saved up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_Grant = tuple[int, float]  # a place, and when it was granted


class _ProjectWork:
    """What one project has running and waiting."""

    __slots__ = ("running", "used_s", "waiting")

    def __init__(self, used_s: float) -> None:
        self.used_s = used_s
        self.running = 0
        self.waiting: deque[asyncio.Future[_Grant]] = deque()


class ProjectTurns:
    """Turns at a fixed number of places that projects share fairly.

    Places are numbers from 0; the lowest that is free is taken.
    """

    def __init__(self, places: int) -> None:
        self._free = set(range(places))
        self._running_max = max(1, places - 1)  # of a project
        self._projects: dict[str, _ProjectWork] = {}  # with something to do
        self._used_s = 0.0  # of the project whose turn began last, then

    def __len__(self) -> int:
        """Projects with something to do."""
        return len(self._projects)

    @asynccontextmanager
    async def turn(self, project: str) -> AsyncIterator[int]:
        """A place that nobody else has until this ends."""
        loop, granted = asyncio.get_running_loop(), asyncio.Future[_Grant]()
        work = self._projects.get(project)
        if work is None:
            work = self._projects[project] = _ProjectWork(self._used_s)
        work.waiting.append(granted)
        self._grant(loop.time())
        try:
            yield (await granted)[0]
        finally:
            if granted.cancelled():
                work.waiting.remove(granted)
            else:
                place, began = granted.result()
                work.used_s += loop.time() - began
                work.running -= 1
                self._free.add(place)
            if not work.running and not work.waiting:
                del self._projects[project]
            self._grant(loop.time())

    def _grant(self, now: float) -> None:
        while self._free:
            able = [one for one in self._projects.values() if one.running < self._running_max and _next(one)]
            if not able:
                return
            work = min(able, key=lambda one: one.used_s)
            granted = _next(work)
            assert granted is not None
            work.waiting.remove(granted)
            work.running += 1
            self._used_s = work.used_s
            place = min(self._free)
            self._free.remove(place)
            granted.set_result((place, now))


def _next(work: _ProjectWork) -> asyncio.Future[_Grant] | None:
    """A caller that gave up stays in the line until it runs again."""
    return next((one for one in work.waiting if not one.done()), None)
