"""What a process measures of itself for its report: how late its event loop was, and how much of a core it used.

Place: used by `process`, which reports it every two seconds; `mitigation` and `control.headroom` read the reports.
"""

from __future__ import annotations

import asyncio
import resource
from typing import Final

LATE_S: Final = 0.1
_STEPS: Final = 8


class OwnLoad:
    """`measures`: whether clocks and processors are real."""

    def __init__(self, *, measures: bool) -> None:
        self._measures = measures
        self._late_looks = 0

    async def measure(self, seconds: float) -> dict[str, float]:
        """Sleep so long, and say what was seen in the meantime. Rounded, so that a report is news and not noise.

        `late_looks` rises with each time in which the loop was late: equal reports are not the same report then.
        """
        if not self._measures:
            await asyncio.sleep(seconds)
            return {}
        loop, begun, used = asyncio.get_running_loop(), asyncio.get_running_loop().time(), _used_s()
        worst = 0.0
        for _ in range(_STEPS):
            due = loop.time() + seconds / _STEPS
            await asyncio.sleep(seconds / _STEPS)
            worst = max(worst, loop.time() - due)
        found = {"cpu": round(20 * (_used_s() - used) / (loop.time() - begun)) / 20}
        if worst >= LATE_S:
            self._late_looks += 1
            found["loop_lag_s"] = round(worst, 1)
        if self._late_looks:
            found["late_looks"] = self._late_looks
        return found


def _used_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
