"""Mitigation's driver: every other second, in the router that leads, what was decided is done and written down.

Place: started by the router's role; decisions are `mitigator`'s, drains `control.operations`'s.
Promise: each decision is in the log of the process, in the audit log where there is one, and among the newest
RECORDS_MAX in the metadata, where `syncpoint mitigation status` reads it. While it is paused, or only observes, nothing
is changed. What cannot be changed now is tried at the next look.
"""

from __future__ import annotations

import json
import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any

from syncpoint.base.model.errors import SyncpointError
from syncpoint.base.runtime.clock import Clock
from syncpoint.base.runtime.periodic import Periodic
from syncpoint.catalog.metadata.contract import Put, StoreError
from syncpoint.catalog.metadata.layout import MITIGATION_PAUSED, MITIGATION_STATUS
from syncpoint.catalog.metadata.store_client import SharedStore
from syncpoint.catalog.metadata.view import ClusterView
from syncpoint.cluster.control.headroom import headroom
from syncpoint.cluster.control.operations import Operations
from syncpoint.cluster.mitigation.drain_budget import BudgetedProcess
from syncpoint.cluster.mitigation.health_reports import report_of
from syncpoint.cluster.mitigation.mitigator import (
    MARK,
    MitigationAction,
    MitigationDecision,
    MitigationMode,
    MitigationSettings,
    Mitigator,
)
from syncpoint.cluster.mitigation.sickness import HealthVerdict

LOOK_S = 2.0
RECORDS_MAX = 50

Audited = Callable[[str, str, bool, str], None]
"""What was decided about which process, whether it was done, and why."""

log = logging.getLogger(__name__)


def not_audited(action: str, process: str, done: bool, why: str) -> None:
    """Where there is no audit log."""


class MitigationDriver:
    """Apply the decisions of mitigation. `leads`: whether this router is the acting one."""

    def __init__(
        self,
        store: SharedStore,
        view: ClusterView,
        operations: Operations,
        settings: MitigationSettings,
        leads: Callable[[], bool],
        clock: Clock,
        audited: Audited = not_audited,
    ) -> None:
        self._store, self._view, self._operations = store, view, operations
        self._settings, self._leads, self._clock, self._audited = settings, leads, clock, audited
        self._done: Counter[str] = Counter()  # by what was done
        self._over_budget: frozenset[str] = frozenset()  # who is sick and stays
        self._lost: frozenset[str] = frozenset()  # zones
        self._mitigator = Mitigator(settings)
        self._records: deque[Mapping[str, Any]] = deque(maxlen=RECORDS_MAX)
        self._said: dict[str, MitigationAction] = {}  # by process: so that what lasts is said once
        self._written = b""
        self._short: set[tuple[str, str]] = set()  # failure domains and roles without headroom
        self._recalled = False  # whether what the last leader wrote was read
        self._rounds = Periodic(
            self.look, lambda: LOOK_S, (SyncpointError, StoreError), "mitigation could not look at the cluster"
        )

    def start(self) -> None:
        """Begin. Needs the event loop."""
        if self._settings.mode is not MitigationMode.OFF:
            self._rounds.start()

    async def stop(self) -> None:
        """End. Nothing happens where it was not started."""
        await self._rounds.stop()

    async def look(self) -> None:
        """One look at all members. Raises `SyncpointError` and `StoreError`."""
        if not self._leads():
            self._mitigator = Mitigator(self._settings)  # the next leader begins with what is stored
            self._said.clear()
            self._over_budget = self._lost = frozenset()
            self._recalled = False
            return
        if not self._recalled:
            await self._recall()
        paused = await self._store.get(MITIGATION_PAUSED) is not None
        drains = {target: str(seen.value.get("comment", "")) for target, seen in self._view.drains.items.items()}
        reports = {name: report_of(seen.value) for name, seen in self._view.loads.items.items()}
        processes = [
            BudgetedProcess(one.name, one.roles, one.zone, self._view.draining(one))
            for one in (seen.value for seen in self._view.members.items.values())
        ]
        decisions = self._mitigator.step(self._clock.monotonic(), processes, reports, drains)
        for decision in decisions:
            await self._carry_out(decision, paused=paused)
        self._said = {one.process: one.action for one in decisions}
        self._over_budget = frozenset(one.process for one in decisions if one.action is MitigationAction.REFUSED)
        self._watch_zones()
        self._watch_headroom()
        await self._report(paused)

    def _watch_headroom(self) -> None:
        short = {(one.domain, one.role) for one in headroom(self._view) if one.short}
        for domain, role in sorted(short - self._short):
            self._alarm(
                f"if {domain} were lost, the others of the role {role} would have too much to do", "no headroom"
            )
        self._short = short

    def _watch_zones(self) -> None:
        lost = frozenset(self._mitigator.zones.lost)
        for zone in sorted(lost - self._lost):
            names = [one.name for one in self._mitigator.zones.lost_processes() if one.zone == zone]
            text = f"nobody in zone {zone} is there any more ({', '.join(names)}); what is left counts as the rest"
            self._alarm(f"{text} of the cluster, and is drained only within the budget", "zone lost")
        for zone in sorted(self._lost - lost):
            self._alarm(f"zone {zone} is there again, or is not expected any more", "zone back")
        self._lost = lost

    def _alarm(self, text: str, outcome: str) -> None:
        log.warning("mitigation: %s: %s", outcome, text)
        record = {"action": "alarm", "process": "", "reason": text, "outcome": outcome}
        self._records.append({**record, "time_ns": self._clock.time_ns()})
        self._done["alarms"] += 1
        self._audited("alarm", outcome, True, text)

    async def _carry_out(self, decision: MitigationDecision, *, paused: bool) -> None:
        acts = self._settings.mode is MitigationMode.ACT and not paused
        outcome = "paused" if paused else "observed"
        if decision.action is MitigationAction.REFUSED:
            outcome = "over the budget"
        elif acts:
            try:
                if decision.action is MitigationAction.DRAIN:
                    await self._operations.drain(decision.process, MARK + decision.reason)
                else:
                    await self._operations.undrain(decision.process)
                outcome = "done"
            except SyncpointError as error:
                outcome = f"refused: {error.message}"
        if outcome != "done" and self._said.get(decision.process) is decision.action:
            return
        log.warning("mitigation: %s %s (%s): %s", decision.action, decision.process, outcome, decision.reason)
        self._records.append({**decision._asdict(), "outcome": outcome, "time_ns": self._clock.time_ns()})
        done = outcome == "done"
        key = "refusals" if decision.action is MitigationAction.REFUSED else f"{decision.action.value}s" if done else ""
        self._done[key] += 1
        self._audited(decision.action.value, decision.process, done, f"{outcome}: {decision.reason}")

    def status(self) -> dict[str, int]:
        """What was done since this process began to lead, and how it stands; for metrics."""
        now = self._clock.monotonic()
        verdicts = Counter(one.verdict(now) for one in self._mitigator.health.values()) if self._recalled else Counter()
        comments = [str(seen.value.get("comment", "")) for seen in self._view.drains.items.values()]
        return {
            **{key: self._done[key] for key in ("drains", "undrains", "refusals", "alarms")},
            "drained": sum(one.startswith(MARK) for one in comments) if self._recalled else 0,
            "sick": verdicts[HealthVerdict.SICK],
            "over_budget": len(self._over_budget),
            "lost_zones": len(self._lost),
        }

    async def _recall(self) -> None:
        found = await self._store.get(MITIGATION_STATUS)
        if found is not None:
            written = json.loads(found.value)
            if not self._records:
                self._records.extend(written.get("records", ()))
            self._mitigator.zones.recall(written.get("zones", {}))
        self._recalled = True

    async def _report(self, paused: bool) -> None:
        now = self._clock.monotonic()
        health = {name: one.verdict(now).value for name, one in sorted(self._mitigator.health.items())}
        status = {
            "mode": self._settings.mode.value,
            "paused": paused,
            "share": self._settings.share,
            "health": health,
            "zones": self._mitigator.zones.written(),
            "records": list(self._records),
        }
        written = json.dumps(status, separators=(",", ":"), sort_keys=True).encode()
        if written != self._written:
            await self._store.txn([], [Put(MITIGATION_STATUS, written)])
            self._written = written
