"""How many executors there should be, as lag and time go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from syncpoint.programs.federation.scaling import SHRINK_AFTER_S, Scaling
from syncpoint.programs.federation.spec import Runtime


def scaling(**more: Any) -> Scaling:
    return Scaling(Runtime(Path("/"), master="managed", executors_max=3, rows_each=1000, idle_s=60.0, **more))


def test_nothing_runs_before_something_waits_and_after_nothing_came_for_a_while() -> None:
    machine = scaling()
    assert machine.wanted(0.0, 0) == 0
    assert machine.wanted(1.0, 1) == 1
    assert machine.wanted(2.0, 0) == 1
    assert machine.wanted(60.9, 0) == 1
    assert machine.wanted(61.0, 0) == 0
    assert machine.wanted(62.0, 5) == 1


def test_lag_makes_it_grow_at_once_and_shrink_after_a_while() -> None:
    machine = scaling()
    assert machine.wanted(0.0, 2500) == 3
    assert machine.wanted(1.0, 1500) == 3
    assert machine.wanted(SHRINK_AFTER_S, 1500) == 2
    assert machine.wanted(SHRINK_AFTER_S + 1, 100_000) == 3


def test_kept_warm_or_at_its_least_it_never_sleeps() -> None:
    assert scaling(warm=True).wanted(0.0, 0) == 1
    machine = scaling(executors_min=2)
    assert machine.wanted(0.0, 0) == 2
    assert machine.wanted(1.0, 10) == 2
    assert machine.wanted(1000.0, 0) == 2


@given(st.lists(st.tuples(st.floats(0.0, 100.0), st.integers(0, 10_000)), max_size=30), st.integers(0, 2))
def test_it_stays_within_its_bounds_and_runs_while_something_waits(looks: list[tuple[float, int]], least: int) -> None:
    machine, now = scaling(executors_min=least), 0.0
    for passed, lag in looks:
        now += passed
        wanted = machine.wanted(now, lag)
        assert least <= wanted <= 3
        assert wanted >= 1 or not lag
        assert wanted == 3 or lag <= wanted * 1000
