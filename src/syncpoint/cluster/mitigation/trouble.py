"""Trouble: what is wrong with which process, by the newest reports of all of them. Pure.

Place: between `health_reports` and `sickness`, which counts bad looks.
Promise: a process is held against its peers: what most of them have as well is nobody's own fault, and draining one
would not help. The word of an owner whose own event loop is late does not count against a disk.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from statistics import median_low
from typing import Final, NamedTuple

from syncpoint.cluster.mitigation.drain_budget import BudgetedProcess
from syncpoint.cluster.mitigation.health_reports import HealthReport, ReportedDisk
from syncpoint.cluster.mitigation.sickness import SicknessLimits

STORAGE: Final = "storage"
SLOWER_TIMES: Final = 3.0  # than the disks of others
NO_DISK: Final = ReportedDisk(0.0, failing=False)


class TroubleCause(StrEnum):
    """Why a process is sick."""

    LATE_LOOP = "late event loop"
    ERRORS = "errors"
    SLOW_DISK = "slow disk"
    FAILING_DISK = "failing disk"

    @property
    def of_disk(self) -> bool:
        """Whether a process that serves disks is meant by it."""
        return self in (TroubleCause.SLOW_DISK, TroubleCause.FAILING_DISK)


class Trouble(NamedTuple):
    """A cause of trouble found in one look.

    `size`: the deviation, in seconds or as a share of calls, depending on the cause.
    """

    cause: TroubleCause
    size: float


def troubles(
    reports: Mapping[str, HealthReport],
    fresh: Collection[str],
    processes: Sequence[BudgetedProcess],
    limits: SicknessLimits,
) -> dict[str, Trouble]:
    """By process. `fresh`: whose reports are new at this look."""
    found: dict[str, Trouble] = {}
    for process in processes:
        report = reports.get(process.name)
        if report is None or process.name not in fresh:
            continue
        if report.loop_lag_s >= limits.loop_lag_s:
            found[process.name] = Trouble(TroubleCause.LATE_LOOP, report.loop_lag_s)
        elif _fails_alone(process, report, reports, processes, limits):
            found[process.name] = Trouble(TroubleCause.ERRORS, report.failing_share)
    for name, trouble in _disks(reports, fresh, processes, limits).items():
        found.setdefault(name, trouble)
    return found


def _fails_alone(
    process: BudgetedProcess,
    report: HealthReport,
    reports: Mapping[str, HealthReport],
    processes: Sequence[BudgetedProcess],
    limits: SicknessLimits,
) -> bool:
    if report.ended < limits.calls_min or report.failing_share < limits.errors_share:
        return False
    peers = [one.name for one in processes if one.name != process.name and set(one.roles) & set(process.roles)]
    likewise = sum(name in reports and reports[name].failing_share >= report.failing_share / 2 for name in peers)
    return likewise * 2 <= len(peers)


def _disks(
    reports: Mapping[str, HealthReport],
    fresh: Collection[str],
    processes: Sequence[BudgetedProcess],
    limits: SicknessLimits,
) -> dict[str, Trouble]:
    serving = [one.name for one in processes if STORAGE in one.roles]
    worst = dict.fromkeys(serving, NO_DISK)
    renewed: set[str] = set()
    for owner in (one.name for one in processes):
        report = reports.get(owner)
        if report is None or report.loop_lag_s >= limits.loop_lag_s:
            continue
        for name, seen in report.disks.items():
            if name in worst:
                known = worst[name]
                worst[name] = ReportedDisk(max(known.p99_s, seen.p99_s), known.failing or seen.failing)
                if owner in fresh:
                    renewed.add(name)
    found = {}
    for name in sorted(renewed):
        others = [worst[one] for one in serving if one != name]
        if not others:
            continue  # nobody to compare with
        if worst[name].failing and sum(one.failing for one in others) * 2 <= len(others):
            found[name] = Trouble(TroubleCause.FAILING_DISK, worst[name].p99_s)
        elif worst[name].p99_s >= max(limits.disk_p99_s, SLOWER_TIMES * median_low([one.p99_s for one in others])):
            found[name] = Trouble(TroubleCause.SLOW_DISK, worst[name].p99_s)
    return found
