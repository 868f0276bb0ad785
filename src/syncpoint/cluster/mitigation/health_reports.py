"""What processes report of themselves, and of the disks they write to, as far as mitigation reads it.

Place: between the loads in the metadata and `trouble`. Plain values. Reports of older versions lack some of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class ReportedDisk(NamedTuple):
    """What the owner of a chain saw of a disk since its last report: how long 99 in 100 syncs took at most, and whether
    it was given up or did not answer.
    """

    p99_s: float
    failing: bool


@dataclass(frozen=True, slots=True)
class HealthReport:
    """`news`: another one with each bad report, so that none is counted twice. `failed` of `ended`
    calls ended by a fault of the process; both 0 where none did. `disks`: by process that serves them, the worst; those
    that were well are not named.
    """

    news: object = None
    loop_lag_s: float = 0.0
    failed: int = 0
    ended: int = 0
    disks: Mapping[str, ReportedDisk] = field(default_factory=dict)

    @property
    def failing_share(self) -> float:
        """Return the share of calls that failed."""
        return self.failed / self.ended if self.ended else 0.0


def report_of(load: Mapping[str, Any]) -> HealthReport:
    """A report as it stands in the metadata."""
    failed, ended = load.get("failed_calls", (0, 0))
    return HealthReport(
        (load.get("late_looks", 0), load.get("bad_reports", 0)),
        float(load.get("loop_lag_s", 0.0)),
        int(failed),
        int(ended),
        {name: ReportedDisk(float(p99_s), bool(failing)) for name, (p99_s, failing) in load.get("disks", {}).items()},
    )
