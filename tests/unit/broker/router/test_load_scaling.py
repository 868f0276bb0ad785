"""When topics are split and joined."""

from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from syncpoint.broker.router.load_scaling import Scaler, ScalingSettings, units

SETTINGS = ScalingSettings(floor=5_000.0)


def run(scaler: Scaler, loads: list[float], *, parts: int = 1, most: int = 16, average: float = 50_000.0) -> list[int]:
    """Parts after each of some loads, two seconds apart."""
    found, begin = [], getattr(scaler, "_at", None) or 0.0
    for step, load in enumerate(loads, 1):
        now = begin + 2.0 * step
        scaler.observe(now, {1: load})
        parts = scaler.parts(1, now, parts, average, most)
        found.append(parts)
    return found


def test_a_hot_topic_is_split_within_seconds_by_doubling() -> None:
    found = run(Scaler(SETTINGS), [80_000.0] * 15)
    assert found[-1] == 8  # parts of 10,000, a fifth of the average
    assert all(later in (earlier, min(8, 2 * earlier)) for earlier, later in pairwise(found))
    assert found.index(2) <= 3


def test_nothing_small_is_split() -> None:
    assert set(run(Scaler(SETTINGS), [4_900.0] * 50, average=5_000.0)) == {1}


def test_never_more_parts_than_there_are_places() -> None:
    assert run(Scaler(SETTINGS), [1e9] * 30, most=3)[-1] == 3


def test_it_shrinks_late_and_to_what_is_well_below() -> None:
    scaler = Scaler(SETTINGS)
    assert run(scaler, [80_000.0] * 15)[-1] == 8
    found = run(scaler, [8_000.0] * 300, parts=8)
    assert found[30] == 8
    assert found[-1] == 2  # one would carry 0.8 of what splits


def test_a_load_that_ends_leaves_nothing_behind() -> None:
    scaler = Scaler(SETTINGS)
    run(scaler, [80_000.0] * 15)
    found = run(scaler, [0.0] * 600, parts=8)
    assert found[-1] == 1
    scaler.observe(1e6, {})
    scaler.observe(1e6 + 2, {})
    assert scaler.total() == 0


@settings(deadline=None)
@given(st.floats(100, 500_000), st.floats(0, 0.2), st.integers(1, 16), st.integers(0, 1000))
def test_a_wavering_load_comes_to_rest(load: float, wave: float, start: int, seed: int) -> None:
    chance = random.Random(seed)
    found = run(Scaler(SETTINGS), [load * (1 + chance.uniform(-wave, wave)) for _ in range(600)], parts=start)
    ways = [later > earlier for earlier, later in pairwise(found[10:]) if later != earlier]
    assert True not in ways or False not in ways[ways.index(True) :]  # what was split is not joined again
    parts, limit = found[-1], 10_000
    assert load / parts <= limit * 1.25 or parts == 16
    assert parts == 1 or load / (parts - 1) >= limit * SETTINGS.joined_at * 0.5


def test_units() -> None:
    assert units(100, 2048) == 102
