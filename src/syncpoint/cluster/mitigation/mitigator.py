"""Mitigator: which processes to drain and to put back now, from the newest reports and the drains there are.

Place: between `sickness` and `drain_budget` on one side and `mitigation_driver`, which carries it out, on the other.
Promise: what it decides follows from reports and stored drains alone, so a router that takes over goes on where the
other one stopped. Its own drains are known by their comment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from syncpoint.cluster.mitigation.drain_budget import BudgetedProcess, budget_refusal
from syncpoint.cluster.mitigation.health_reports import HealthReport
from syncpoint.cluster.mitigation.sickness import HealthVerdict, ProcessHealth, SicknessLimits
from syncpoint.cluster.mitigation.trouble import STORAGE, TroubleCause, troubles
from syncpoint.cluster.mitigation.zones import KnownZones

MARK = "mitigation: "
"""What the comment of a drain of ours begins with."""
KEPT_ROLES = ("router",)  # they only advise


class MitigationMode(StrEnum):
    """`observe`: decide and say it, and change nothing."""

    OFF = "off"
    OBSERVE = "observe"
    ACT = "act"


class MitigationAction(StrEnum):
    """What is decided about a process."""

    DRAIN = "drain"
    UNDRAIN = "undrain"
    REFUSED = "refused"  # sick, and over the budget


class MitigationDecision(NamedTuple):
    """One decision. `reason`: in words, with what was measured."""

    action: MitigationAction
    process: str
    reason: str
    cause: str = ""


@dataclass(frozen=True, slots=True)
class MitigationSettings:
    """`share`: of the processes of a role, how many may be out of service before mitigation drains no more."""

    mode: MitigationMode = MitigationMode.OBSERVE
    limits: SicknessLimits = field(default_factory=SicknessLimits)
    share: float = 0.34


class Mitigator:
    """Decide which unhealthy processes to drain.

    `health`: by live process; `zones`: the processes that each zone has had.
    """

    def __init__(self, settings: MitigationSettings) -> None:
        self._settings = settings
        self.health: dict[str, ProcessHealth] = {}
        self.zones = KnownZones()
        self._newest: dict[str, object] = {}  # by process: what the last report was known by
        self._ours: set[str] = set()  # drained by mitigation, as far as the drains say

    def step(
        self,
        now: float,
        processes: Sequence[BudgetedProcess],
        reports: Mapping[str, HealthReport],
        drains: Mapping[str, str],
    ) -> list[MitigationDecision]:
        """What to do now. `reports`: the newest of each process; `drains`: targets with their comments."""
        if self._settings.mode is MitigationMode.OFF:
            return []
        self.zones.note(now, processes)
        self._listen(now, processes, reports)
        marked = {target for target, comment in drains.items() if comment.startswith(MARK)}
        decisions: list[MitigationDecision] = []
        current = {one.name: one for one in sorted(processes)}
        # What crashed, or was lost with its zone, is out of service, and stays in the count.
        gone = [one._replace(draining=True) for one in self.zones.missing()]
        for name, process in current.items():
            health = self.health[name]
            if name in marked and name not in self._ours:
                health.begin_sick(now)  # drained just now, or by the router that led before
            waited_s, verdict = health.probation_s, health.verdict(now)
            if name in marked and verdict not in (HealthVerdict.SICK, HealthVerdict.RECOVERING):
                text = f"no trouble for {waited_s:g} s"
                decisions.append(MitigationDecision(MitigationAction.UNDRAIN, name, text))
            elif verdict is HealthVerdict.SICK and not process.draining:
                cause, reason = health.cause(now), health.reason(now)
                refusal = budget_refusal(name, [*current.values(), *gone], self._settings.share, _kept(cause))
                if refusal:
                    text = f"{reason}; not drained: {refusal}"
                    decisions.append(MitigationDecision(MitigationAction.REFUSED, name, text, cause))
                else:
                    decisions.append(MitigationDecision(MitigationAction.DRAIN, name, reason, cause))
                    current[name] = process._replace(draining=True)
        self._ours = marked & current.keys()  # one that is away begins its probation anew when it is back
        return decisions

    def _listen(self, now: float, processes: Sequence[BudgetedProcess], reports: Mapping[str, HealthReport]) -> None:
        living = {one.name for one in processes}
        self.health = {name: one for name, one in self.health.items() if name in living}
        self._newest = {name: one for name, one in self._newest.items() if name in living}
        fresh = {name for name in living & reports.keys() if self._newest.get(name) != reports[name].news}
        self._newest |= {name: reports[name].news for name in fresh}
        found = troubles(reports, fresh, processes, self._settings.limits)
        for name in living:
            health = self.health.setdefault(name, ProcessHealth(self._settings.limits))
            if name in found:
                health.note(now, found[name].cause, found[name].size)


def _kept(cause: str) -> tuple[str, ...]:
    """Roles that are not drained for a cause. What is on disks does not move, so who serves them is drained only for
    its disks: what could not be acknowledged without them is published elsewhere then.
    """
    return KEPT_ROLES if cause and TroubleCause(cause).of_disk else (*KEPT_ROLES, STORAGE)
