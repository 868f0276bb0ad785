"""Abuse guard: counts frames that cost work and bring nothing, and ends a connection with too many.

Place: asked by the connection for every frame that costs us work and brings nothing (see `limits`).
Promise: a kind of event more frequent than its limit per interval raises; counting costs no memory per event.
Leaves to the connection: which events count.
"""

from __future__ import annotations

from collections.abc import Callable

from syncpoint.wire.transport.frames import ConnectionFault, ErrorCode
from syncpoint.wire.transport.limits import TransportLimits

RESETS, SETTINGS, PINGS, EMPTIES, UPDATES = range(5)
_WORDS = ("stream resets", "SETTINGS frames", "PING frames", "frames without content", "WINDOW_UPDATE frames")


class AbuseGuard:
    """Counters of one connection over the interval that runs. `now` gives seconds."""

    __slots__ = ("_counts", "_interval_s", "_limits", "_now", "_until")

    def __init__(self, limits: TransportLimits, now: Callable[[], float]) -> None:
        self._limits = (
            limits.resets_per_interval,
            limits.settings_per_interval,
            limits.pings_per_interval,
            limits.empties_per_interval,
            limits.updates_per_interval,
        )
        self._interval_s = limits.interval_s
        self._now = now
        self._until = now() + limits.interval_s
        self._counts = [0] * len(self._limits)

    def count(self, event: int, times: int = 1) -> None:
        """Note an `event`, or several; raises ConnectionFault(ENHANCE_YOUR_CALM) above its limit."""
        counts = self._counts
        counts[event] += times
        if counts[event] <= self._limits[event]:
            return
        now = self._now()
        if now >= self._until:
            self._until = now + self._interval_s
            counts[:] = [0] * len(counts)
            counts[event] = times
            return
        raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, f"too many {_WORDS[event]}")
