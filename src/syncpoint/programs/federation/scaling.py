"""Scaling: how many executors there should be now. A machine: lag and time in, a number out.

One executor for a fixed number of waiting rows, between the least and the most; more at once, fewer only after the lag
has been low for a while, none when nothing has come for `idle_s` (unless Spark is kept warm).
"""

from __future__ import annotations

from dataclasses import dataclass

from syncpoint.programs.federation.spec import Runtime

SHRINK_AFTER_S = 15.0  # the lag of a burst is over sooner than a new executor has paid for its start


@dataclass(slots=True)
class Scaling:
    """`runtime`: the bounds. Ask `wanted` about once a second."""

    runtime: Runtime
    _busy_at: float | None = None  # when rows last waited
    _high_at: float = 0.0  # when as many as now were last needed
    _now_wanted: int = 0

    def wanted(self, now: float, lag: int) -> int:
        """Executors that should run at `now` (seconds) with `lag` rows that wait."""
        runtime = self.runtime
        least = max(runtime.executors_min, 1 if runtime.warm else 0)
        if self._busy_at is None or lag:
            self._busy_at = now if lag else -runtime.idle_s
        if not lag and now - self._busy_at >= runtime.idle_s:
            self._now_wanted = least
            return least
        needed = min(max(least, 1, -(-lag // runtime.rows_each)), runtime.executors_max)
        if needed >= self._now_wanted or now - self._high_at >= SHRINK_AFTER_S:
            self._now_wanted, self._high_at = needed, now
        return self._now_wanted
