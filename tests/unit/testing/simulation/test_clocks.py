"""Wall clocks of machines drift and jump by themselves; monotonic time is everybody's."""

from __future__ import annotations

from syncpoint.base.runtime.clock import ManualClock
from syncpoint.testing.simulation.sim_clocks import MachineClock, most_led_ns


def test_a_machine_s_wall_clock_drifts_and_jumps_and_its_monotonic_one_does_not() -> None:
    base = ManualClock()
    clock = MachineClock(base, drift=1e-3)
    begun = clock.time_ns()
    base.advance(10.0)
    assert clock.time_ns() - begun == 10_010_000_000
    clock.off_ns = -(10**9)
    assert clock.time_ns() - begun == 9_010_000_000
    assert clock.monotonic() == base.monotonic()


def test_most_machines_led_by_no_more_than_the_middle_one() -> None:
    """As a trusted clock believes them: of five, two may be as far ahead as they like."""
    base = ManualClock()
    clocks = [MachineClock(base) for _ in range(5)]
    assert most_led_ns((), base.time_ns()) == most_led_ns(clocks, base.time_ns()) == 0
    for clock, led in zip(clocks, (9000, 50, 0, -7, 0), strict=True):
        clock.off_ns = led
        clock.off_ns = 0
    assert most_led_ns(clocks, base.time_ns()) == 0, "a minority"
    before = base.time_ns()
    base.advance(1.0)
    clocks[4].off_ns = 300
    assert [most_led_ns(clocks, until) for until in (before, base.time_ns())] == [0, 50]
