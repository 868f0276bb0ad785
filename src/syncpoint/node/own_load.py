"""What a process measures for its report: how late its event loop was, how much of a core it used, how many of its
calls failed by its own fault, and which disks of its chains were slow or failed.

Place: used by `process`, which reports it every two seconds; `mitigation` and `control.headroom` read the reports.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from syncpoint.base.model.errors import Code
from syncpoint.base.model.histogram import Histogram
from syncpoint.base.runtime.clock import until_beat
from syncpoint.wire.transport.calls import Methods, Unary

LATE_S: Final = 0.1
SLOW_SYNC_S: Final = 0.05  # below that a disk is not worth a word
SYNCS_MIN: Final = 5  # that say something of a disk, unless one of them took so long as this:
LONG_SYNC_S: Final = 1.0
FAULTS: Final = (Code.UNKNOWN, Code.DEADLINE_EXCEEDED, Code.INTERNAL, Code.UNAVAILABLE)
"""Codes of calls that failed, as far as the caller can tell, because of who was called."""
_LOOK_S: Final = 0.5


class OwnLoad:
    """`measures`: whether clocks and processors are real."""

    def __init__(self, *, measures: bool) -> None:
        self._measures = measures
        self._late_looks = 0

    async def measure(self, seconds: float) -> dict[str, float]:
        """Sleep for this time, and return what was measured in the meantime. Rounded, so that a report is news and not
        noise.

        `late_looks` rises with each time in which the loop was late: equal reports are not the same report then.
        """
        if not self._measures:
            await asyncio.sleep(seconds)
            return {}
        loop, begun, used = asyncio.get_running_loop(), asyncio.get_running_loop().time(), _used_s()
        worst = 0.0
        while (now := loop.time()) < begun + seconds - _LOOK_S / 2:
            due = now + until_beat(now, _LOOK_S)
            await asyncio.sleep(due - now)
            worst = max(worst, loop.time() - due)
        found = {"cpu": round(20 * (_used_s() - used) / (loop.time() - begun)) / 20}
        if worst >= LATE_S:
            self._late_looks += 1
            found["loop_lag_s"] = round(worst, 1)
        if self._late_looks:
            found["late_looks"] = self._late_looks
        return found


class OwnCalls:
    """Calls of `tables` that ended, and those that ended by a fault of this process. Streams end with whoever is at
    their other end, and say nothing."""

    def __init__(self, tables: Callable[[], Iterable[Methods]]) -> None:
        self._tables = tables
        self._seen = (0, 0)

    def take(self) -> dict[str, Any]:
        """Since the last time; nothing where no call failed."""
        failed = ended = 0
        for table in self._tables():
            for path, method in table.items():
                if isinstance(method, Unary) and b".Process/" not in path:  # pings
                    ended += sum(method.counts.codes)
                    failed += sum(method.counts.codes[code] for code in FAULTS)
        before, self._seen = self._seen, (failed, ended)
        if failed == before[0]:
            return {}
        return {"failed_calls": [failed - before[0], ended - before[1]]}


class ObservedDisk(NamedTuple):
    """A disk of a chain that is open here. `key`: which one of which opening; `process`: who serves it."""

    key: object
    process: str
    sync: Histogram
    failing: bool


class DiskLooks:
    """How disks were since the last look."""

    def __init__(self) -> None:
        self._seen: dict[object, Sequence[int]] = {}

    def take(self, disks: Iterable[ObservedDisk]) -> dict[str, Any]:
        """The worst of each process, for those that were slow or failed."""
        found: dict[str, list[float]] = {}
        seen: dict[object, Sequence[int]] = {}
        for disk in disks:
            counts = seen[disk.key] = tuple(disk.sync.counts)
            before = self._seen.get(disk.key) or (0,) * len(counts)
            p99_s = _p99_s(disk.sync.bounds, [now - then for now, then in zip(counts, before, strict=True)])
            if p99_s >= SLOW_SYNC_S or disk.failing:
                known = found.setdefault(disk.process, [0.0, 0])
                known[:] = max(known[0], p99_s), int(bool(known[1]) or disk.failing)
        self._seen = seen
        return {"disks": found} if found else {}


def _p99_s(bounds: Sequence[float], counts: Sequence[int]) -> float:
    """The bound below which 99 in 100 are; 0 where too few say something."""
    many, above = sum(counts), 0
    bound = 0.0
    for number in reversed(range(len(counts))):
        above += counts[number]
        if above * 100 > many:
            bound = bounds[min(number, len(bounds) - 1)]
            break
    return bound if many >= SYNCS_MIN or bound >= LONG_SYNC_S else 0.0


def _used_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
