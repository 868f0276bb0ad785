"""Ticks: rare at rest, at once when stirred; and the beats that pauses of the system's clock end at."""

from __future__ import annotations

import asyncio

import pytest

from syncpoint.base.runtime.clock import ManualClock, until_beat
from syncpoint.base.runtime.ticks import Ticks
from syncpoint.testing.rigs.simulated_loop import run_simulated


def test_a_loop_ticks_rarely_at_rest_and_at_once_when_it_is_stirred() -> None:
    clock = ManualClock()

    async def scenario() -> list[float]:
        ticks, took, begun = Ticks(clock, 0.1, 0.5), [], clock.monotonic()
        stirred = asyncio.get_running_loop().call_later(0.9, ticks.stir)
        for busy in (True, False, False, False, False):
            await ticks.pause(busy=busy)
            took.append(round(clock.monotonic() - begun, 3))
        stirred.cancel()
        return took

    # Stirred within the third pause, so the fourth is a short one.
    assert run_simulated(clock, scenario()) == [0.1, 0.6, 0.9, 1.0, 1.5]


def test_what_stirs_a_loop_between_two_pauses_is_not_missed() -> None:
    clock = ManualClock()

    async def scenario() -> float:
        ticks, begun = Ticks(clock, 0.1, 0.5), clock.monotonic()
        ticks.stir()
        await ticks.pause(busy=False)
        return clock.monotonic() - begun

    assert run_simulated(clock, scenario()) == pytest.approx(0.1)


@pytest.mark.parametrize("now", [1000.0 + step * 0.0137 for step in range(100)])
def test_pauses_of_all_periods_end_at_the_same_beats(now: float) -> None:
    ends = {seconds: now + until_beat(now, seconds) for seconds in (0.1, 0.5, 1.0)}
    for seconds, end in ends.items():
        assert 0.25 * seconds <= end - now <= 1.25 * seconds
        assert until_beat(end, seconds) == pytest.approx(seconds, abs=1e-6)
    whole = ends[1.0]
    for seconds in (0.1, 0.5):
        beats = (whole - ends[seconds]) / seconds
        assert beats == pytest.approx(round(beats), abs=1e-6), "a long pause ends where short ones do"
