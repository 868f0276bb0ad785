"""What is wrong at one look: conditions of rules that hold now, each with its labels.

Place: between looks and the alerts' machine. Rules of durability page at once, for they are not budgets: one entry
that cannot be read is one too many. Budgets are `burn_rates`.
Promise: a condition that must hold for a while holds at every look of it. What was not seen is not well: a
process that does not answer is a condition of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from syncpoint.watch.monitor.burn_rates import PAGE, TICKET, burning
from syncpoint.watch.monitor.event_counts import EventCounts
from syncpoint.watch.monitor.increases import Look
from syncpoint.watch.monitor.objectives import Objective
from syncpoint.watch.monitor.scraped_text import Labels
from syncpoint.watch.monitor.selections import SeriesSelection

UNANSWERED = "syncpoint_monitor_unanswered"
"""Of each process that is watched: 1 while it does not answer. Prometheus has `up` for that."""


UNSERVED_S: Final = 8.0
"""Longer than a takeover takes on a busy machine."""


class ThresholdRule(NamedTuple):
    """A number is above a bound for `for_s`, under each value of the labels `by`; of a counter (`grows`): it grew
    within the last 5 minutes; of a gauge that shows whether something is well (`is_zero`): it is 0. `summary`: with
    labels in braces. The runbook is the section of the rule's name in docs/operations/alerts.md.
    """

    name: str
    severity: str
    numbers: SeriesSelection
    by: tuple[str, ...]
    summary: str
    above: float = 0.0
    for_s: float = 0.0
    grows: bool = False
    is_zero: bool = False

    @property
    def promql(self) -> str:
        """Return the rule as a Prometheus expression."""
        if self.numbers.name == UNANSWERED:
            return 'up{job=~"syncpoint.*"} == 0'
        if self.is_zero:
            return f"min by ({', '.join(self.by)}) ({self.numbers.promql}) == 0"
        found = f"increase({self.numbers.promql}[5m])" if self.grows else self.numbers.promql
        return f"max by ({', '.join(self.by)}) ({found}) > {self.above:g}"


class AlertCondition(NamedTuple):
    """A rule holds under these labels. `follows`: from which other condition, in words; "": from none that is known."""

    rule: str
    labels: Labels
    severity: str
    summary: str
    follows: str = ""

    @property
    def key(self) -> tuple[str, Labels]:
        """What distinguishes it from others."""
        return self.rule, self.labels


THRESHOLD_RULES: Final = (
    ThresholdRule(
        "ChainUnserved",
        PAGE,
        SeriesSelection("syncpoint_chain_unserved_seconds"),
        ("chain",),
        f"No process has had chain {{chain}} open for more than {UNSERVED_S:g} s: its messages are neither accepted nor"
        " delivered.",
        above=UNSERVED_S,
    ),
    ThresholdRule(
        "PlacedBelowPolicy",
        TICKET,
        SeriesSelection("syncpoint_chain_below_policy"),
        ("chain",),
        "Chain {chain} spans fewer racks than its durability class requires: the loss of one rack may stop it.",
    ),
    ThresholdRule(
        "UnderReplicated",
        PAGE,
        SeriesSelection("syncpoint_log_under_replicated_seconds"),
        ("process", "chain"),
        "Entries of chain {chain} have been under-replicated for more than a minute.",
        above=60.0,
    ),
    ThresholdRule(
        "MessagesUnreadable",
        PAGE,
        SeriesSelection("syncpoint_disk_unreadable_places"),
        ("process", "chain", "disk"),
        "Disk {disk} of chain {chain} has places with no readable copy on any disk: messages are lost.",
    ),
    ThresholdRule(
        "DataCorrupted",
        PAGE,
        SeriesSelection("syncpoint_disk_damages_total"),
        ("process", "chain", "disk"),
        "Disk {disk} of chain {chain} returned corrupted data; it is repaired from other copies.",
        grows=True,
    ),
    ThresholdRule(
        "BelowPolicy",
        PAGE,
        SeriesSelection("syncpoint_log_too_few_disks"),
        ("process", "chain"),
        "Too few disks of chain {chain} are healthy: publishes are refused.",
    ),
    ThresholdRule(
        "MessagesAtRisk",
        PAGE,
        SeriesSelection("syncpoint_at_risk_unborne_disks"),
        ("process", "chain"),
        "Chain {chain} would lose entries or stop if one more of its disks failed.",
        for_s=30.0,
    ),
    ThresholdRule(
        "DiskDead",
        PAGE,
        SeriesSelection("syncpoint_disk_state", (("state", ("failed",)),)),
        ("process", "chain", "disk"),
        "Disk {disk} of chain {chain} failed: it returned errors or hung. Its server still runs.",
    ),
    ThresholdRule(
        "DiskGivenUp",
        TICKET,
        SeriesSelection("syncpoint_disk_failures_total"),
        ("process", "chain", "disk"),
        "Disk {disk} of chain {chain} failed, at least briefly: it returned errors, hung or was unreachable.",
        grows=True,
    ),
    ThresholdRule(
        "LogEnded",
        PAGE,
        SeriesSelection("syncpoint_log_ended"),
        ("process", "chain"),
        "The log of chain {chain} can no longer be written.",
    ),
    ThresholdRule(
        "DisksFull",
        PAGE,
        SeriesSelection("syncpoint_log_full"),
        ("process", "chain"),
        "The disks of chain {chain} are full: publishes are refused.",
    ),
    ThresholdRule(
        "ProcessUnanswered",
        PAGE,
        SeriesSelection(UNANSWERED),
        ("process",),
        "Process {process} does not answer requests for its metrics.",
        for_s=30.0,
    ),
    ThresholdRule(
        "ZoneLost",
        PAGE,
        SeriesSelection("syncpoint_mitigation_lost_zones"),
        (),
        "A zone has lost all its processes; automatic drains of the rest stay within the budget.",
    ),
    ThresholdRule(
        "SickNotDrained",
        PAGE,
        SeriesSelection("syncpoint_mitigation_over_budget"),
        (),
        "An unhealthy process stays in service: the mitigation budget is already used up.",
        for_s=30.0,
    ),
    ThresholdRule(
        "SickDrained",
        TICKET,
        SeriesSelection("syncpoint_mitigation_drained"),
        (),
        "Mitigation has drained a process; `syncpoint mitigation status` shows the reason.",
    ),
    ThresholdRule(
        "NoHeadroom",
        TICKET,
        SeriesSelection("syncpoint_headroom_short"),
        ("domain", "role"),
        "If {domain} failed, the remaining {role} processes would be overloaded.",
        for_s=300.0,
    ),
    ThresholdRule(
        "FederationBlocked",
        TICKET,
        SeriesSelection("syncpoint_federation_blocked"),
        ("flow", "source", "target"),
        "Flow {flow} from {source} to {target} is blocked: source messages were deleted before they were copied.",
    ),
    ThresholdRule(
        "NotAddingUp",
        PAGE,
        SeriesSelection("syncpoint_reconciliation_findings"),
        ("project",),
        "Messages of {project} do not add up: published, copied, delivered and acknowledged differ.",
    ),
    ThresholdRule(
        "ReconciliationOverdue",
        TICKET,
        SeriesSelection("syncpoint_reconciliation_overdue"),
        ("project",),
        "{project} has the class billing, and was not reconciled for 26 hours.",
    ),
    ThresholdRule(
        "ProberUnexpected",
        PAGE,
        SeriesSelection("syncpoint_prober_as_expected"),
        ("endpoint",),
        "Probes of {endpoint} have failed for 90 s.",
        for_s=90.0,
        is_zero=True,
    ),
)
GROWN_S: Final = 300.0


class ThresholdWatch:
    """Since when each condition of some rules holds."""

    def __init__(self, rules: Iterable[ThresholdRule] = THRESHOLD_RULES) -> None:
        self._rules = tuple(rules)
        self._since: dict[tuple[str, Labels], float] = {}
        self._grew: dict[tuple[str, Labels], float] = {}

    def conditions(self, look: Look, now_s: float) -> list[AlertCondition]:
        """Those that hold at this look."""
        found, since = [], {}
        for rule in self._rules:
            for labels in self._above(rule, look, now_s):
                key = (rule.name, labels)
                since[key] = self._since.get(key, now_s)
                if now_s - since[key] >= rule.for_s:
                    known = {**dict.fromkeys(rule.by, ""), **dict(labels)}
                    found.append(AlertCondition(rule.name, labels, rule.severity, rule.summary.format_map(known)))
        self._since = since
        return found

    def _above(self, rule: ThresholdRule, look: Look, now_s: float) -> list[Labels]:
        above: dict[Labels, None] = {}
        for labels, value in rule.numbers.found(look):
            known = dict(labels)
            group = tuple((key, known[key]) for key in rule.by if known.get(key))
            if (value == 0) if rule.is_zero else (value > rule.above):
                above[group] = None
        if rule.grows:
            for group in above:
                self._grew[rule.name, group] = now_s
            self._grew = {key: at_s for key, at_s in self._grew.items() if at_s > now_s - GROWN_S}
            return [group for name, group in self._grew if name == rule.name]
        return list(above)


def budget_conditions(
    objectives: Iterable[Objective], counts: Mapping[str, EventCounts], now_s: float, excuse: str = ""
) -> list[AlertCondition]:
    """Objectives whose budget is spent too fast. `excuse`: what those follow from that would not hold without the
    events that it excuses.
    """
    found = []
    for one in objectives:
        alone = burning(counts[one.name], one.target, now_s, excusing=True) if excuse else ()
        for severity, rule in burning(counts[one.name], one.target, now_s).items():
            found.append(
                AlertCondition(
                    budget_rule(severity),
                    (("slo", one.name),),
                    severity,
                    f"{one.title}: burn rate of at least {rule.rate:g} on the error budget of {one.in_words}.",
                    "" if severity in alone else excuse,
                )
            )
    return found


def budget_rule(severity: str) -> str:
    """The name of the rule for budgets."""
    return "ErrorBudgetBurnsFast" if severity == PAGE else "ErrorBudgetBurns"
