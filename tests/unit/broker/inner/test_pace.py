"""The push window and the pauses."""

from __future__ import annotations

import pytest

from syncpoint.base.runtime.random import SeededRandom
from syncpoint.broker.inner.pace import Pace, PaceLimits


def pace(**limits: int) -> Pace:
    return Pace(PaceLimits(**limits), SeededRandom(1))


def round_trip(one: Pace, latency_s: float = 0.1) -> None:
    """Everything the window allows is sent and acknowledged."""
    window = one.window
    for left in range(window, 0, -1):
        one.on_acknowledged(latency_s, left)


def test_the_window_doubles_with_every_round_trip_until_its_end() -> None:
    one = Pace(PaceLimits(4, 3_000, 64), SeededRandom(1))
    seen = []
    for _ in range(6):
        seen.append(one.window)
        for _ in range(one.window):
            one.on_acknowledged(0.1, one.window)
    assert seen == [4, 8, 16, 32, 64, 64]


def test_a_window_that_is_not_used_does_not_grow() -> None:
    one = pace(window_first=8)
    for _ in range(100):
        one.on_acknowledged(0.1, 1)
    assert one.window == 8


def test_above_the_doubling_it_grows_by_one_a_round_trip_while_the_endpoint_is_fast() -> None:
    one = pace(window_first=10, window_linear=10, window_max=100)
    for _ in range(10):
        one.on_acknowledged(0.1, one.window)
    assert one.window in (10, 11)
    for _ in range(30):
        one.on_acknowledged(0.1, one.window)
    grown = one.window
    assert 12 <= grown <= 14
    for _ in range(100):
        one.on_acknowledged(30.0, one.window)  # slow now
    assert one.window == 10


def test_failures_pause_from_100_ms_up_to_a_minute_and_an_acknowledgement_shortens_the_next_pause() -> None:
    one, now, pauses = pace(), 0.0, []
    for _ in range(14):
        one.on_failed(0.0, now, now)
        until = one.paused_until(now)
        assert until is not None
        pauses.append(until - now)
        now = until + 0.001
    assert pauses[0] == pytest.approx(0.1)
    assert all(30.0 <= pause <= 60.0 for pause in pauses[-3:])
    assert one.window == 1
    assert one.paused_until(now) is None
    for _ in range(10):
        one.on_acknowledged(0.1, 1)
    one.on_failed(0.0, now, now)
    assert one.paused_until(now) == pytest.approx(now + 0.1)


def test_what_was_under_way_when_a_pause_began_does_not_lengthen_it() -> None:
    one = pace(window_first=100)
    for _ in range(100):
        one.on_failed(1.0, 0.0, 1.0)
    assert one.paused_until(1.0) == pytest.approx(1.1)
    assert one.window == 50


def test_a_pause_is_bounded_where_messages_rest_for_themselves() -> None:
    one = Pace(PaceLimits(), SeededRandom(1), pause_max_s=2.0)
    now = 0.0
    for _ in range(12):
        one.on_failed(0.0, now, now)
        until = one.paused_until(now)
        assert until is not None
        assert until - now <= 2.0
        now = until + 0.001


def test_the_end_of_the_window_can_be_moved() -> None:
    one = pace(window_first=100)
    one.set_window_max(10)
    assert one.window == 10
    round_trip(one)
    assert one.window == 10
