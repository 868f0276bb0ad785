"""Turns at a few places that projects share: who has used the least time is next.

Place: in front of processes: those of `child_processes`, and of `transforms.sandbox`. Promise: a project has all places
but one at most, so one whose turns are long leaves a place to the others. Of those that wait and may have another
place, the one whose turns have taken the least time goes first, so many short turns are not held up by a few long
ones; within a project the order of arrival is kept. One that comes after a pause begins where the others are: time in
which it asked for nothing is not saved up. Projects of a tenant have their turns together, by its weight, and among
themselves again fairly.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

_Grant = tuple[int, float]  # a place, and when it was granted


ShareOf = Callable[[str], tuple[str, float]]
"""A name under which projects/P shares turns (its tenant), and its weight. By itself each project has its own."""


class _ProjectWork:
    """What one project has running and waiting."""

    __slots__ = ("running", "used_s", "waiting")

    def __init__(self, used_s: float) -> None:
        self.used_s = used_s
        self.running = 0
        self.waiting: deque[asyncio.Future[_Grant]] = deque()


class _Sharing:
    """Projects that share turns. `used_s`: by weight; `begun_s`: what the project whose turn began last had used."""

    __slots__ = ("begun_s", "projects", "running", "used_s")

    def __init__(self, used_s: float) -> None:
        self.used_s = used_s
        self.begun_s = 0.0
        self.running = 0
        self.projects: dict[str, _ProjectWork] = {}  # with something to do


class ProjectTurns:
    """Turns at a fixed number of places that projects share fairly.

    Places are numbers from 0; the lowest that is free is taken.
    """

    def __init__(self, places: int) -> None:
        self.share_of: ShareOf = lambda project: (project, 1.0)
        self._free = set(range(places))
        self._running_max = max(1, places - 1)  # of those that share
        self._sharing: dict[str, _Sharing] = {}  # with something to do
        self._used_s = 0.0  # of those whose turn began last, then

    def __len__(self) -> int:
        """Projects, or tenants, with something to do."""
        return len(self._sharing)

    @asynccontextmanager
    async def turn(self, project: str) -> AsyncIterator[int]:
        """A place that nobody else has until this ends."""
        loop, granted = asyncio.get_running_loop(), asyncio.Future[_Grant]()
        who, weight = self.share_of(project)
        sharing = self._sharing.get(who)
        if sharing is None:
            sharing = self._sharing[who] = _Sharing(self._used_s)
        work = sharing.projects.get(project)
        if work is None:
            work = sharing.projects[project] = _ProjectWork(sharing.begun_s)
        work.waiting.append(granted)
        self._grant(loop.time())
        try:
            yield (await granted)[0]
        finally:
            if granted.cancelled():
                work.waiting.remove(granted)
            else:
                place, began = granted.result()
                used_s = loop.time() - began
                work.used_s += used_s
                sharing.used_s += used_s / weight
                work.running -= 1
                sharing.running -= 1
                self._free.add(place)
            if not work.running and not work.waiting:
                del sharing.projects[project]
                if not sharing.projects:
                    del self._sharing[who]
            self._grant(loop.time())

    def _grant(self, now: float) -> None:
        while self._free:
            able = [
                (sharing, work)
                for sharing in self._sharing.values()
                if sharing.running < self._running_max
                for work in sharing.projects.values()
                if _next(work)
            ]
            if not able:
                return
            sharing, work = min(able, key=lambda one: (one[0].used_s, one[1].used_s))
            granted = _next(work)
            assert granted is not None
            work.waiting.remove(granted)
            work.running += 1
            sharing.running += 1
            self._used_s, sharing.begun_s = sharing.used_s, work.used_s
            place = min(self._free)
            self._free.remove(place)
            granted.set_result((place, now))


def _next(work: _ProjectWork) -> asyncio.Future[_Grant] | None:
    """A caller that gave up stays in the line until it runs again."""
    return next((one for one in work.waiting if not one.done()), None)
