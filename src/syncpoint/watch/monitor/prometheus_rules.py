"""The same rules for Prometheus: recording rules of error ratios, alerts of budgets and of durability.

Place: behind `syncpoint slo rules`. Names and labels are those of Sloth, so that its dashboards fit.
Promise: an expression is made of the same selections, windows and bounds as what the process computes itself. What
Prometheus cannot know is left out: whether an indicator applies (without its series nothing is recorded). What follows
from a process that is gone or a dead disk is no alert for as long as that explains it; of budgets that is `MOVING`
after the process is gone, and after it is back, as nothing says here which events it explains.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import yaml

from syncpoint.watch.monitor.alert_causes import DEAD, DISK_SERVED, DISK_STATE, FOLLOWING, GONE, LINGER_S, OF_DISKS
from syncpoint.watch.monitor.alert_rules import THRESHOLD_RULES, ThresholdRule, budget_rule
from syncpoint.watch.monitor.burn_rates import BAD_MIN, RULES, WINDOWS_S, BurnRateRule
from syncpoint.watch.monitor.indicators import Youngest
from syncpoint.watch.monitor.objectives import Objective
from syncpoint.watch.monitor.sli_table import promql_duration

LOOK: Final = "slo:look_bad:bool"
"""Whether an age is above its threshold now; of looks at it, the share that was is an error ratio."""

DISKS_GONE: Final = "syncpoint:chain_disks_gone:bool"
"""Of chains: whoever serves disks of one does not answer, or was paged for within the last minutes."""
CLIENTS_MOVE: Final = "syncpoint:clients_move:bool"
"""A process has just gone, or has just come back."""
MOVING: Final = "10m"
_UP: Final = 'up{job=~"syncpoint.*"}'
_PAGED: Final = f'ALERTS{{alertname="{GONE}", alertstate="firing"}}'

HEAD: Final = "# Made by `syncpoint slo rules`; make it anew when objectives change. Check: promtool check rules FILE\n"


def rules_file(objectives: Iterable[Objective], runbooks: str) -> str:
    """The text of a file of rules. `runbooks`: what links to runbooks begin with."""
    groups: list[dict[str, Any]] = []
    for one in objectives:
        groups.append({"name": f"syncpoint-slo-{one.name}", "rules": [*_recorded(one), *_budget(one, runbooks)]})
    groups.append({"name": "syncpoint-causes", "rules": _causes()})
    groups.append({"name": "syncpoint-conditions", "rules": _conditions(runbooks)})
    text: str = yaml.safe_dump({"groups": groups}, sort_keys=False, width=10_000)
    return HEAD + text


def _labels(one: Objective) -> dict[str, str]:
    return {"sloth_service": "syncpoint", "sloth_slo": one.name, "sloth_id": f"syncpoint-{one.name}"}


def _recorded(one: Objective) -> list[dict[str, Any]]:
    found, measure = list[dict[str, Any]](), one.sli.measure
    if isinstance(measure, Youngest):
        above = f"{measure.query} > bool {one.threshold:g}"
        found.append({"record": LOOK, "expr": above, "labels": _labels(one)})
    for window_s in WINDOWS_S:
        window = promql_duration(window_s)
        if isinstance(measure, Youngest):
            expression = f'avg_over_time({LOOK}{{sloth_slo="{one.name}"}}[{window}])'
        else:
            bad, total = measure.promql(one.threshold, window)
            expression = f"{bad} / ({total} > 0)"
        found.append({"record": f"slo:sli_error:ratio_rate{window}", "expr": expression, "labels": _labels(one)})
    objective = {"record": "slo:objective:ratio", "expr": f"vector({one.target:g})", "labels": _labels(one)}
    return [*found, objective]


def _budget(one: Objective, runbooks: str) -> list[dict[str, Any]]:
    found = []
    of_disks = f" unless on () group({DISKS_GONE})" if one.sli.name in OF_DISKS else ""
    for severity in dict.fromkeys(rule.severity for rule in RULES):
        name = budget_rule(severity)
        expressions = [f"({_burns(one, rule)})" for rule in RULES if rule.severity == severity]
        found.append(
            {
                "alert": name,
                "expr": f"({' or '.join(expressions)}) unless on () {CLIENTS_MOVE}{of_disks}",
                "labels": {"severity": severity, "slo": one.name},
                "annotations": {
                    "summary": f"{one.title}: the error budget of {one.in_words} is spent too fast.",
                    "runbook_url": f"{runbooks}#{name.lower()}",
                },
            }
        )
    return found


def _burns(one: Objective, rule: BurnRateRule) -> str:
    bound = f"({rule.rate:g} * {1 - one.target:.6g})"
    parts = [
        f'max(slo:sli_error:ratio_rate{promql_duration(window)}{{sloth_slo="{one.name}"}}) >= {bound}'
        for window in (rule.short_s, rule.long_s)
    ]
    measure = one.sli.measure
    if not isinstance(measure, Youngest):
        bad, _ = measure.promql(one.threshold, promql_duration(rule.short_s))
        parts.append(f"({bad} * {rule.short_s:g}) >= {BAD_MIN}")
    return " and ".join(parts)


def _causes() -> list[dict[str, Any]]:
    gone = f'label_replace({_UP} == 0 or present_over_time({_PAGED}[{LINGER_S:g}s]), "server", "$1", "process", "(.+)")'
    served = f"group by (chain, server) (present_over_time({DISK_SERVED}[{MOVING}]))"
    went = f"({_UP} == 0 and max_over_time({_UP}[{MOVING}]) == 1)"
    paged = f"(present_over_time({_PAGED}[{MOVING}]) unless ({_PAGED} and {_PAGED} offset {MOVING}))"
    return [
        {"record": DISKS_GONE, "expr": f"group by (chain) ({served} and on (server) {gone})"},
        {"record": CLIENTS_MOVE, "expr": f"group({went} or {paged})"},
    ]


def _unexplained(rule: ThresholdRule) -> str:
    expression = rule.promql
    if rule.name in FOLLOWING[GONE]:
        expression = f"({expression}) unless on (chain) {DISKS_GONE}"
    if rule.name in FOLLOWING[DEAD]:
        dead = f'{DISK_STATE}{{state="failed"}}'
        if "disk" in rule.by:
            return f"{expression} unless on (chain, disk) ({dead} > 0)"  # once it is back, why it was away is asked
        expression = f"{expression} unless on (chain) (max_over_time({dead}[{LINGER_S:g}s]) > 0)"
    return expression


def _conditions(runbooks: str) -> list[dict[str, Any]]:
    return [
        {
            "alert": rule.name,
            "expr": _unexplained(rule),
            **({"for": f"{rule.for_s:g}s"} if rule.for_s else {}),
            "labels": {"severity": rule.severity},
            "annotations": {
                "summary": _templated(rule.summary, rule.by),
                "runbook_url": f"{runbooks}#{rule.name.lower()}",
            },
        }
        for rule in THRESHOLD_RULES
    ]


def _templated(summary: str, labels: Iterable[str]) -> str:
    for label in labels:
        summary = summary.replace(f"{{{label}}}", f"{{{{ $labels.{label} }}}}")
    return summary
