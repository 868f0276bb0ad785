"""The clock and the dice."""

from __future__ import annotations

import pytest

from syncpoint.base.runtime.clock import Clock, ManualClock, SystemClock
from syncpoint.base.runtime.random import Random, SeededRandom, SystemRandom


def test_manual_clock_moves_only_on_request() -> None:
    clock = ManualClock(time_ns=5, monotonic=7.0)
    assert (clock.monotonic(), clock.time_ns()) == (7.0, 5)
    clock.advance(1.5)
    assert (clock.monotonic(), clock.time_ns()) == (8.5, 1_500_000_005)
    clock.set_time_ns(1)
    assert (clock.monotonic(), clock.time_ns()) == (8.5, 1)
    with pytest.raises(ValueError, match="back"):
        clock.advance(-1)


def test_system_clock_goes_forward() -> None:
    clock: Clock = SystemClock()
    assert clock.monotonic() <= clock.monotonic()
    assert clock.time_ns() > 1_700_000_000 * 10**9


def test_seeded_random_repeats_itself() -> None:
    def draw(random: Random) -> tuple[bytes, int, float]:
        return random.token(16), random.randrange(10, 1000), random.random()

    assert draw(SeededRandom(1)) == draw(SeededRandom(1))
    assert draw(SeededRandom(1)) != draw(SeededRandom(2))


@pytest.mark.parametrize("random", [SeededRandom(3), SystemRandom()])
def test_ranges(random: Random) -> None:
    assert len(random.token(9)) == 9
    assert all(3 <= random.randrange(3, 5) < 5 for _ in range(50))
    assert 0 <= random.random() < 1
