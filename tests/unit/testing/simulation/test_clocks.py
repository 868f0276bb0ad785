"""Wall clocks of machines drift and jump by themselves; monotonic time is everybody's."""

from __future__ import annotations

from syncpoint.base.runtime.clock import ManualClock
from syncpoint.testing.simulation.sim_clocks import MachineClock


def test_a_machine_s_wall_clock_drifts_and_jumps_and_its_monotonic_one_does_not() -> None:
    base = ManualClock()
    clock = MachineClock(base, drift=1e-3)
    begun = clock.time_ns()
    base.advance(10.0)
    assert clock.time_ns() - begun == 10_010_000_000
    clock.off_ns = -(10**9)
    assert clock.time_ns() - begun == 9_010_000_000
    assert clock.monotonic() == base.monotonic()
