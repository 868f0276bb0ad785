"""Each interval of an abuse guard lets as many events pass as the first."""

from __future__ import annotations

import pytest

from syncpoint.base.runtime.clock import ManualClock
from syncpoint.wire.transport.frames import ConnectionFault, ErrorCode
from syncpoint.wire.transport.guard import PINGS, AbuseGuard
from syncpoint.wire.transport.limits import TransportLimits


def test_one_more_than_the_limit_ends_the_connection_in_any_interval() -> None:
    clock = ManualClock()
    guard = AbuseGuard(TransportLimits(pings_per_interval=3, interval_s=5.0), clock.monotonic)
    for _ in range(3):
        for _ in range(3):
            guard.count(PINGS)
        clock.advance(5)
    for _ in range(3):
        guard.count(PINGS)
    with pytest.raises(ConnectionFault, match="PING") as ended:
        guard.count(PINGS)
    assert ended.value.code == ErrorCode.ENHANCE_YOUR_CALM
