"""What a service level agreement comes to in a month: what was promised, what was measured, what is credited.

Place: under `syncpoint slo report`; the numbers are those that objectives are judged by.
Promise: unmeasured time does not count as good: the report shows the measured share of the month.
"""

from __future__ import annotations

from calendar import monthrange
from datetime import UTC, datetime
from typing import NamedTuple

from syncpoint.watch.monitor.indicators import Events


class Credit(NamedTuple):
    """Below this share of good events, this percentage of the month's price is credited."""

    below: float
    percent: float


class Agreement(NamedTuple):
    """What is promised of one objective, and what follows when it is missed."""

    slo: str
    promised: float
    credits: tuple[Credit, ...]

    def credited(self, measured: float) -> float:
        """Percent; the largest of the credits that hold."""
        return max((one.percent for one in self.credits if measured < one.below), default=0.0)


class AgreementLine(NamedTuple):
    """One line. `measured`: None where nothing happened."""

    agreement: Agreement
    measured: float | None
    events: float
    percent: float


class AgreementReport(NamedTuple):
    """One month. `measured_ratio`: the share of the month, as far as it is over, of which something is known."""

    month: str
    complete: bool
    measured_ratio: float
    lines: tuple[AgreementLine, ...]

    @property
    def percent(self) -> float:
        """What is credited: the largest of the lines."""
        return max((one.percent for one in self.lines), default=0.0)


def month_of(at_s: float) -> str:
    """Such as 2026-11, in UTC."""
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m}"


def report(
    month: str, agreements: tuple[Agreement, ...], events: dict[str, Events], measured_s: float, now_s: float
) -> AgreementReport:
    """The report of a month. Raises `ValueError` for what is none."""
    begin = datetime.strptime(month, "%Y-%m").replace(tzinfo=UTC)
    begin_s = begin.timestamp()
    end_s = begin_s + monthrange(begin.year, begin.month)[1] * 86_400
    lines = []
    for one in agreements:
        found = events.get(one.slo, Events(0, 0))
        measured = found.good / found.total if found.total else None
        lines.append(AgreementLine(one, measured, found.total, 0.0 if measured is None else one.credited(measured)))
    passed_s = min(end_s, now_s) - begin_s
    ratio = min(1.0, measured_s / passed_s) if passed_s > 0 else 0.0
    return AgreementReport(month, now_s >= end_s, ratio, tuple(lines))
