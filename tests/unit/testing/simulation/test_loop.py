"""Time in simulated loops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from syncpoint.base.runtime.clock import ManualClock
from syncpoint.testing.rigs.simulated_loop import run_simulated
from syncpoint.testing.simulation import loop as loop_module
from syncpoint.testing.simulation.loop import ProcessLoop, SimulationStuck, run_in_loop


async def _reaches(clock: ManualClock, end: float) -> bool:
    """Whether somebody who waits for the rest again and again gets to a time that the clock cannot show exactly."""
    for _ in range(20):
        rest = end - clock.monotonic()
        if rest <= 0:
            return True
        timer = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(rest, timer.set_result, None)
        await timer
    return False


Run = Callable[[ManualClock, Callable[[], Coroutine[Any, Any, bool]]], bool]
RUNS: dict[str, Run] = {
    "one": lambda clock, work: run_simulated(clock, work()),
    "processes": lambda clock, work: run_in_loop(clock, lambda loop: work()),
}


@pytest.mark.parametrize("kind", RUNS)
def test_time_goes_on_where_less_than_a_step_of_the_clock_is_waited_for(kind: str) -> None:
    clock = ManualClock()
    end = clock.monotonic() + 0.25 + 3e-10
    assert RUNS[kind](clock, lambda: _reaches(clock, end))


def test_what_goes_round_in_a_circle_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "STEPS_MAX", 1_000)

    async def work(loop: ProcessLoop) -> None:
        while True:
            await asyncio.sleep(0)
            assert loop.steps < 2_000

    with pytest.raises(SimulationStuck, match="no end"):
        run_in_loop(ManualClock(), work)
