"""The monitor without waiting: texts of processes go in, history, objectives and alerts follow, notifications come out.

Place: driven by `monitor_driver`, in one thread; a simulated week is a loop around `look`.
Promise: the same for one node, for workers, for a cluster and for targets over HTTP: they differ in whose texts come
in.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from syncpoint.base.model.errors import InvalidArgument, NotFound
from syncpoint.watch.monitor.alert_causes import AlertCauses
from syncpoint.watch.monitor.alert_machine import Alert, AlertMachine, AlertSilence, Notification
from syncpoint.watch.monitor.alert_rules import UNANSWERED, ThresholdWatch, budget_conditions
from syncpoint.watch.monitor.burn_rates import WINDOWS_S, burn_rate, spent
from syncpoint.watch.monitor.history_queries import HistoryAnswer, HistoryQuery, answered, quantile_of, totals
from syncpoint.watch.monitor.increases import FORGOTTEN_S, Look, ProcessIncreases
from syncpoint.watch.monitor.indicators import ATTENDED, Events, Quick, Share
from syncpoint.watch.monitor.kept_families import is_kept
from syncpoint.watch.monitor.monitor_file import MonitorFile
from syncpoint.watch.monitor.monitor_settings import MonitorSettings
from syncpoint.watch.monitor.objectives import Objective
from syncpoint.watch.monitor.prober_pages import PREFIX as PROBER_PREFIX
from syncpoint.watch.monitor.scraped_text import Labels, ScrapedSeries, ScrapedText
from syncpoint.watch.monitor.sla_report import AgreementReport, month_of, report
from syncpoint.watch.monitor.sli_table import RATIO, SLIS, SUBSCRIBERS, ServiceLevelIndicator

log = logging.getLogger(__name__)

LOOK_S: Final = 10.0
YOUNG_S: Final = 60.0  # of a process that began longer ago it is not guessed when it counted what
UPTIME: Final = "syncpoint_process_uptime_seconds"
MEASURED, NO_DATA, NOT_APPLICABLE = "measured", "no data", "not applicable"


class ProcessText(NamedTuple):
    """The answer of a process about itself; None: it did not answer. `fresh`: it began with the monitor."""

    name: str
    labels: Mapping[str, str]
    text: bytes | None
    fresh: bool = False


@dataclass(slots=True)
class WatchedProcess:
    """What is remembered of a process between looks."""

    text: ScrapedText
    increases: ProcessIncreases
    listed_s: float
    probes: bool = False  # it is a prober program


class IndicatorValue(NamedTuple):
    """An indicator now."""

    sli: ServiceLevelIndicator
    state: str
    value: float
    events: float


class ObjectiveState(NamedTuple):
    """Where an objective stands. `left`: the share of its error budget that is left."""

    objective: Objective
    state: str
    events: Events
    left: float
    rates: tuple[tuple[float, float], ...]  # seconds of a window, its burn rate


class MonitorCore:
    """Evaluate indicators, objectives and alerts, without waiting. `name`: makes names of alerts and silences."""

    def __init__(self, settings: MonitorSettings, file: MonitorFile, name: Callable[[], str], now_s: float) -> None:
        """Raises `InvalidArgument` for a schedule with a gap."""
        self.settings, self.file, self._name = settings, file, name
        self.schedule = settings.schedule(now_s)
        self.machine = AlertMachine(
            self.schedule.chain,
            name,
            people=settings.people,
            acknowledge_s=settings.acknowledge_s,
            alerts=file.firing(),
            silences=file.silences(),
        )
        self.counts = file.counts([one.name for one in settings.objectives], now_s)
        self.latest: Look = {}
        self.looked_s = 0.0
        self._earlier_s = file.history.looked_s  # the last look of an earlier life
        self.full = False  # the file took nothing at the last look
        self._processes: dict[str, WatchedProcess] = {}
        self._watch, self._causes = ThresholdWatch(), AlertCauses()
        self._attended_s: dict[Labels, float] = {}  # since when subscriptions have subscribers at every look

    # -- looking -----------------------------------------------------------------------------------------------------

    def look(self, texts: list[ProcessText], now_s: float) -> list[Notification]:
        """Take in what processes say of themselves now; returns whom to notify of what."""
        look, counters = self._taken(texts, now_s)
        since_s = min(now_s - self.looked_s, 3 * LOOK_S) if self.looked_s else 0.0
        if since_s < 0:  # a clock that was set back: what would be counted twice is not
            since_s = 0.0
        self.latest, self.looked_s = look, now_s
        refused = self._unless_full(lambda: self.file.history.write(now_s, look, counters))
        look[ATTENDED] = self._attended(look, now_s)
        events = {one.name: one.sli.measure.of(look, one.threshold) for one in self.settings.objectives}
        if not self._causes.look(look, now_s):
            for counts in self.counts.values():
                counts.unexcuse()
        for one in self.settings.objectives:
            self.counts[one.name].add(now_s, events[one.name], excused=self._causes.explain(one.sli.name, now_s))
        refused |= self._unless_full(lambda: self.file.count(now_s, month_of(now_s), events, since_s))
        conditions = self._watch.conditions(look, now_s)
        conditions += budget_conditions(self.settings.objectives, self.counts, now_s, self._causes.excuse)
        notifications = self.machine.looked(self._causes.with_causes(conditions), now_s)
        refused |= self.keep()
        if self.full and not refused:
            log.info("what the monitor sees is kept again")
        self.full = refused
        return notifications

    def keep(self) -> bool:
        """Write alerts that changed, now or with a later look; whether the disk had no room for them."""
        return bool(self.machine.changed) and self._unless_full(self._keep)

    def _keep(self) -> None:
        self.file.keep(self.machine.changed.values())
        self.machine.changed.clear()

    def _unless_full(self, work: Callable[[], None]) -> bool:
        """Write to the file; whether its disk takes nothing, which must not keep alerts from being sent."""
        try:
            work()
        except sqlite3.OperationalError as error:
            if not self.full:
                log.error("alerts are checked and sent, but nothing is kept of them and of history: %s", error)
            self.full = True
            return True
        return False

    def _taken(self, texts: list[ProcessText], now_s: float) -> tuple[Look, set[str]]:
        look: Look = {}
        counters: set[str] = set()
        for one in texts:
            process = self._processes.get(one.name)
            if process is None:
                process = WatchedProcess(ScrapedText(is_kept, one.labels), ProcessIncreases(fresh=one.fresh), now_s)
                self._processes[one.name] = process
            process.listed_s = now_s
            look.setdefault(UNANSWERED, {})[("process", one.name),] = float(one.text is None)
            if one.text is not None:
                numbers = process.text.read(one.text)
                counters.update(series.name for series in numbers if series.counts)
                process.probes = any(series.name.startswith(PROBER_PREFIX) for series in numbers)
                if not process.increases.seen:
                    process.increases.seen = self._uncounted(numbers, now_s)
                process.increases.take(numbers, now_s, look)
        self._processes = {name: one for name, one in self._processes.items() if one.listed_s > now_s - FORGOTTEN_S}
        return look, counters

    def _attended(self, look: Look, now_s: float) -> dict[Labels, float]:
        """For how long each subscription that has a subscriber has had one."""
        found: dict[Labels, float] = {}
        for labels, value in look.get(SUBSCRIBERS, {}).items():
            key = tuple((name, text) for name, text in labels if name in ("project", "subscription"))
            if value > 0:
                found[key] = self._attended_s.get(key, now_s)
        self._attended_s = found
        return {key: now_s - since_s for key, since_s in found.items()}

    def _uncounted(self, numbers: Mapping[ScrapedSeries, float], now_s: float) -> bool:
        """Whether nobody has counted what a process shows that is seen for the first time: it began a moment ago, and
        after the last look of an earlier life of the monitor.
        """
        uptime_s = max((value for series, value in numbers.items() if series.name == UPTIME), default=YOUNG_S)
        return uptime_s < YOUNG_S and now_s - uptime_s > self._earlier_s

    # -- answers -----------------------------------------------------------------------------------------------------

    def history(self, query: HistoryQuery, now_s: float) -> HistoryAnswer:
        """Raises `NotFound` for a family that is not kept."""
        try:
            return answered(self.file.history, query, now_s)
        except LookupError:
            raise NotFound(f"history of {query.family}") from None

    def indicators(self, now_s: float) -> list[IndicatorValue]:
        """All ten."""
        return [self._indicator(one, now_s) for one in SLIS]

    def objectives(self, now_s: float) -> list[ObjectiveState]:
        """All of them."""
        return [self._objective(one, now_s) for one in self.settings.objectives]

    def agreements(self, month: str, now_s: float) -> AgreementReport:
        """The report of a month; "": of this one. Raises `InvalidArgument`."""
        month = month or month_of(now_s)
        events, measured_s = self.file.month(month)
        try:
            return report(month, self.settings.agreements, events, measured_s, now_s)
        except ValueError:
            raise InvalidArgument("month", f"{month!r} is not a month such as 2026-11") from None

    def alerts(self, resolved: int) -> list[Alert]:
        """Active alerts, the newest first, and the latest resolved ones."""
        firing = sorted(self.machine.firing.values(), key=lambda one: -one.started_s)
        return [*firing, *(self.file.resolved(resolved) if resolved else ())]

    def probers(self) -> set[str]:
        """Names of prober programs among what is watched."""
        return {name for name, one in self._processes.items() if one.probes}

    def acknowledge(self, alert: str, by: str, now_s: float, comment: str = "") -> Alert:
        """Raises `NotFound` for one that does not fire."""
        try:
            found = self.machine.acknowledge(alert, by, now_s, comment)
        except LookupError:
            raise NotFound(f"alert {alert}") from None
        self.keep()
        return found

    def silence(self, asked: AlertSilence, now_s: float) -> AlertSilence:
        """Begin one; it gets a name. Raises `InvalidArgument`."""
        if asked.end_s <= now_s:
            raise InvalidArgument("silence.end_time", "must be in the future")
        made = AlertSilence(self._name(), asked.rule, asked.labels, asked.end_s, asked.by, asked.comment)
        self.machine.silences[made.silence] = made
        self.file.keep_silences(self.machine.silences)
        return made

    def end_silence(self, silence: str) -> None:
        """Raises `NotFound`."""
        if self.machine.silences.pop(silence, None) is None:
            raise NotFound(f"silence {silence}")
        self.file.keep_silences(self.machine.silences)

    def _applies(self, sli: ServiceLevelIndicator) -> bool:
        if not sli.role:
            return True
        members = self.latest.get("syncpoint_members", {})
        return any(value > 0 and ("role", sli.role) in labels for labels, value in members.items())

    def _indicator(self, sli: ServiceLevelIndicator, now_s: float) -> IndicatorValue:
        if not self._applies(sli):
            return IndicatorValue(sli, NOT_APPLICABLE, 0.0, 0.0)
        measure = sli.measure
        if not isinstance(measure, Share | Quick):
            largest = measure.largest(self.latest)
            if largest is None or now_s - self.looked_s > 3 * LOOK_S:
                return IndicatorValue(sli, NO_DATA, 0.0, 0.0)
            return IndicatorValue(sli, MEASURED, largest, 1.0)
        names = set(sli.families)
        if isinstance(measure, Quick):
            names |= {f"{measure.took.name}_bucket", f"{measure.took.name}_count"}
        history = self.file.history
        hour: Look = {name: totals(history, name, now_s - sli.window_s, now_s) for name in names}
        events = measure.of(hour, sli.threshold)
        if not events.total:
            return IndicatorValue(sli, NO_DATA, 0.0, 0.0)
        if sli.unit == RATIO:
            return IndicatorValue(sli, MEASURED, events.good / events.total, events.total)
        assert isinstance(measure, Quick)
        buckets: dict[float, float] = {}
        took = measure.took._replace(name=f"{measure.took.name}_bucket")
        for labels, value in took.found(hour):
            bound = float(dict(labels)["le"])
            buckets[bound] = buckets.get(bound, 0.0) + value
        return IndicatorValue(sli, MEASURED, quantile_of(buckets, measure.quantile), events.total)

    def _objective(self, one: Objective, now_s: float) -> ObjectiveState:
        counts = self.counts[one.name]
        events = counts.over(one.window_s, now_s)
        state = NOT_APPLICABLE if not self._applies(one.sli) else MEASURED if events.total else NO_DATA
        left = 1.0 - spent(counts, one.window_s, now_s) / (1.0 - one.target)
        rates = tuple((window, burn_rate(counts, one.target, window, now_s)) for window in WINDOWS_S)
        return ObjectiveState(one, state, events, left, rates)
