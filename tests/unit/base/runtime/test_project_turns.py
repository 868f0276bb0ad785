"""Turns of projects at the processes that run functions, on a clock of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.project_turns import ProjectTurns
from syncpoint.testing.rigs.simulated_loop import run_simulated

pytestmark = pytest.mark.shows("quotas")


class Work:
    """Requests of projects, and when and where each of them was served."""

    def __init__(self, places: int) -> None:
        self.turns = ProjectTurns(places)
        self._began = asyncio.get_running_loop().time()
        self.served: list[tuple[str, float, int]] = []  # whose, when it ended, where

    def ask(self, project: str, seconds: float) -> asyncio.Task[None]:
        return asyncio.ensure_future(self._ask(project, seconds))

    async def _ask(self, project: str, seconds: float) -> None:
        async with self.turns.turn(project) as place:
            await asyncio.sleep(seconds)
        self.served.append((project, asyncio.get_running_loop().time() - self._began, place))

    def ended(self, project: str) -> list[float]:
        return [round(when, 3) for whose, when, _ in self.served if whose == project]


def played(places: int, story: Callable[[Work], Awaitable[None]]) -> Work:
    async def run() -> Work:
        work = Work(places)
        await story(work)
        assert len(work.turns) == 0
        return work

    return run_simulated(ManualClock(), run())


def test_a_project_leaves_one_place_to_the_others_however_much_it_asks_for() -> None:
    async def story(work: Work) -> None:
        spinning = [work.ask("spins", 10.0) for _ in range(8)]
        await asyncio.sleep(1.0)
        for _ in range(5):
            await work.ask("other", 0.1)
        await asyncio.gather(*spinning)

    work = played(3, story)
    assert work.ended("other") == [1.1, 1.2, 1.3, 1.4, 1.5]
    assert work.ended("spins") == [10.0, 10.0, 20.0, 20.0, 30.0, 30.0, 40.0, 40.0]
    assert {place for _, _, place in work.served} == {0, 1, 2}


def test_whoever_has_used_the_least_time_is_next_and_a_project_is_served_as_it_asks() -> None:
    async def story(work: Work) -> None:
        spinning = [work.ask("spins", 10.0) for _ in range(3)]
        await asyncio.sleep(1.0)
        short = [work.ask("other", 0.5 + 0.1 * n) for n in range(5)]
        await asyncio.gather(*spinning, *short)

    work = played(1, story)
    assert work.ended("other") == [10.5, 11.1, 11.8, 12.6, 13.5], "all of them before another long one"
    assert work.ended("spins") == [10.0, 23.5, 33.5]


def test_time_in_which_a_project_asks_for_nothing_is_not_saved_up() -> None:
    async def story(work: Work) -> None:
        steady = [work.ask("steady", 1.0) for _ in range(200)]
        await asyncio.sleep(100.5)
        late = [work.ask("late", 1.0) for _ in range(10)]
        await asyncio.gather(*steady, *late)

    work = played(1, story)
    assert work.ended("late")[-1] <= 121.0, "every second turn is theirs"
    assert len([when for when in work.ended("steady") if 101.0 < when <= 111.0]) >= 4, "and the others are not"


def test_who_gives_up_takes_no_turn_and_keeps_no_place() -> None:
    async def story(work: Work) -> None:
        running, waiting, behind = (work.ask("a", 10.0) for _ in range(3))
        await asyncio.sleep(1.0)
        running.cancel()
        waiting.cancel()  # it is still in the line when the other one's place is free
        await asyncio.sleep(0)
        await asyncio.gather(running, waiting, return_exceptions=True)
        await behind
        async with work.turns.turn("a"):
            granted = work.ask("b", 1.0)
            await asyncio.sleep(0)
        granted.cancel()  # it has a place, and has not run since
        await asyncio.gather(granted, return_exceptions=True)
        await work.ask("c", 1.0)

    work = played(1, story)
    assert work.ended("a") == [11.0]
    assert (work.ended("b"), work.ended("c")) == ([], [12.0])


def test_tenants_have_turns_by_their_weight_and_their_projects_share_them() -> None:
    """Two places; big has three times the weight of small, and two projects of which one asks for much more."""
    shares = {"big-1": ("big", 3.0), "big-2": ("big", 3.0), "small": ("small", 1.0)}

    async def story(work: Work) -> None:
        work.turns.share_of = shares.__getitem__
        asked = [work.ask("big-1", 1.0) for _ in range(60)]
        asked += [work.ask(project, 1.0) for project in ("big-2", "small") for _ in range(20)]
        await asyncio.gather(*asked)

    work = played(2, story)
    early = [whose for whose, when, _ in work.served if when <= 20.0]
    assert len(early) == 40
    assert early.count("small") == pytest.approx(20, abs=1), "no tenant has all places"
    assert early.count("big-1") == pytest.approx(early.count("big-2"), abs=1)


def test_a_heavier_tenant_has_more_turns_where_places_are_scarce() -> None:
    shares = {"a": ("a", 3.0), "b": ("b", 1.0), "c": ("c", 1.0)}

    async def story(work: Work) -> None:
        work.turns.share_of = shares.__getitem__
        await asyncio.gather(*(work.ask(project, 1.0) for project in "abc" for _ in range(40)))

    work = played(1, story)
    early = [whose for whose, when, _ in work.served if when <= 40.0]
    counts = [early.count(project) for project in "abc"]
    assert counts == [pytest.approx(24, abs=1), pytest.approx(8, abs=1), pytest.approx(8, abs=1)]
