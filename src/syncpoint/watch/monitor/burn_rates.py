"""How fast error budgets are spent, and when somebody has to know: several windows, several rates.

Place: between the counted events of an objective and its alerts; the same numbers are in the generated rules of
Prometheus.
Promise: time before the first event counts as good, so minutes of data do not spend the budget of a month. An alert
needs both windows of a rule. The long one shows that the budget suffers, the short one, a twelfth of
it, that it still does: an alert ends soon after its cause. Without events nothing burns.

The rates are those of Google's SRE workbook, chapter 5, for a window of 30 days: 14.4 spends 2 % of the budget in an
hour, 6 spends 5 % in six hours, 1 spends 10 % in three days.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from syncpoint.watch.monitor.event_counts import EventCounts, bad_share

PAGE, TICKET = "page", "ticket"


class BurnRateRule(NamedTuple):
    """Both windows have at least this burn rate."""

    rate: float
    long_s: float
    short_s: float
    severity: str


RULES: Final = (
    BurnRateRule(14.4, 3600.0, 300.0, PAGE),
    BurnRateRule(6.0, 6 * 3600.0, 1800.0, PAGE),
    BurnRateRule(1.0, 3 * 86_400.0, 6 * 3600.0, TICKET),
)
BAD_MIN: Final = 5
"""In the short window: a single call that fails at night is no reason to wake somebody."""

WINDOWS_S: Final = tuple(sorted({window for rule in RULES for window in (rule.long_s, rule.short_s)}))


def burn_rate(counts: EventCounts, target: float, window_s: float, now_s: float, *, excusing: bool = False) -> float:
    """How many times as fast as allowed the budget is spent. `excusing`: see `EventCounts.over`."""
    return spent(counts, window_s, now_s, excusing=excusing) / (1.0 - target)


def spent(counts: EventCounts, window_s: float, now_s: float, *, excusing: bool = False) -> float:
    """The share of a window that was bad; what of it nobody has watched yet was good."""
    bad = bad_share(counts.over(window_s, now_s, excusing=excusing))
    return bad * counts.covered_s(window_s, now_s) / window_s


def burning(counts: EventCounts, target: float, now_s: float, *, excusing: bool = False) -> dict[str, BurnRateRule]:
    """By severity: the fastest rule that holds. `excusing`: also without what is excused."""
    found: dict[str, BurnRateRule] = {}
    rates = {window: burn_rate(counts, target, window, now_s, excusing=excusing) for window in WINDOWS_S}
    for rule in RULES:
        good, total = counts.over(rule.short_s, now_s, excusing=excusing)
        if rates[rule.long_s] >= rule.rate and rates[rule.short_s] >= rule.rate and total - good >= BAD_MIN:
            found.setdefault(rule.severity, rule)
    return found
