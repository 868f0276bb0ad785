"""The methods of syncpoint.admin.v1 about history, indicators, objectives and alerts.

Place: mounted by `node` beside the other methods of Admin. Of a cluster, or of workers, one process has the monitor;
the others pass calls on to it (`relay`).
Promise: without a monitor the answer is FAILED_PRECONDITION, with advice on how to get one; where the process that has
it does not answer, UNAVAILABLE.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from google.protobuf.message import Message

from syncpoint.base.model.errors import FailedPrecondition, InvalidArgument, SyncpointError
from syncpoint.watch.monitor.alert_causes import words_of
from syncpoint.watch.monitor.alert_machine import Alert, AlertSilence
from syncpoint.watch.monitor.alert_rules import budget_rule
from syncpoint.watch.monitor.burn_rates import PAGE, RULES
from syncpoint.watch.monitor.duty_answers import on_call_message, ownerships_message
from syncpoint.watch.monitor.history_queries import HistoryQuery
from syncpoint.watch.monitor.monitor_core import (
    MEASURED,
    NO_DATA,
    NOT_APPLICABLE,
    IndicatorValue,
    MonitorCore,
    ObjectiveState,
)
from syncpoint.watch.monitor.monitor_driver import Monitor
from syncpoint.watch.monitor.prober_pages import boards
from syncpoint.watch.monitor.scrape_sources import fetched
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import admin, well_known
from syncpoint.wire.protobuf.methods import Method
from syncpoint.wire.protobuf.serving import served
from syncpoint.wire.transport.calls import Methods

RESOLVED_MAX: Final = 1000
RESOLVED_PAGE: Final = 100
HOUR_S: Final = 3600.0
DAY_S: Final = 86_400.0
Relay = Callable[[Method, bytes], Awaitable[bytes]]
"""Calls the process that has the monitor."""

NOWHERE: Final = (
    "No process of this cluster keeps history. Name one in cluster.yaml, for example monitor: {process: proxy-1, "
    "data: /var/lib/syncpoint/monitor}, and restart the processes; or run `syncpoint monitor`."
)
_STATES: Final = {MEASURED: 1, NO_DATA: 2, NOT_APPLICABLE: 3}


class MonitorAdmin:
    """Serve history, indicators, objectives and alerts.

    `monitor`: None if this process has none; `relay`: None if no other process has one.
    """

    def __init__(self, monitor: Monitor | None, relay: Relay | None = None) -> None:
        self.monitor, self._relay = monitor, relay
        self.refusal: SyncpointError = FailedPrecondition(NOWHERE)

    def methods(self) -> Methods:
        """The method table."""
        table: dict[str, Callable[[Any], Awaitable[Message]]] = {
            "QueryHistory": self.query_history,
            "ListSlis": self.list_slis,
            "ListSlos": self.list_slos,
            "GetSlaReport": self.get_sla_report,
            "ListAlerts": self.list_alerts,
            "AcknowledgeAlert": self.acknowledge_alert,
            "CreateSilence": self.create_silence,
            "ListSilences": self.list_silences,
            "DeleteSilence": self.delete_silence,
            "GetOnCall": self.get_on_call,
            "ListProbers": self.list_probers,
            "ListOwnerships": self.list_ownerships,
        }
        return served(
            {methods.ADMIN[name]: partial(self._here_or_there, methods.ADMIN[name], one) for name, one in table.items()}
        )

    # -- methods -----------------------------------------------------------------------------------------------------

    async def query_history(self, request: admin.QueryHistoryRequest) -> admin.QueryHistoryResponse:
        """QueryHistory."""
        monitor = self._mine()
        query = _query(request, monitor.now_s)
        found = await monitor.ask(lambda core: core.history(query, monitor.now_s))
        response = admin.QueryHistoryResponse(kind=found.kind, unit=_unit(request.family, found.kind))
        response.start_time.FromSeconds(found.begin_s)
        response.step.FromSeconds(found.step_s)
        for group, values in sorted(found.series.items()):
            labels = dict(zip(query.group_by, group, strict=True))
            response.series.append(admin.HistorySeries(labels=labels, values=values))
            await asyncio.sleep(0)
        return response

    async def list_slis(self, request: admin.ListSlisRequest) -> admin.ListSlisResponse:
        """ListSlis."""
        monitor = self._mine()
        found = await monitor.ask(lambda core: core.indicators(monitor.now_s))
        return admin.ListSlisResponse(slis=map(_indicator, found))

    async def list_slos(self, request: admin.ListSlosRequest) -> admin.ListSlosResponse:
        """ListSlos."""
        monitor = self._mine()
        found = await monitor.ask(lambda core: core.objectives(monitor.now_s))
        response = admin.ListSlosResponse(slos=map(_objective, found))
        for one in response.slos:
            one.runbook = monitor.settings.runbook(budget_rule(PAGE))
        for rule in RULES:
            made = response.burn_rules.add(severity=_severity(rule.severity), rate=rule.rate)
            made.long_window.FromSeconds(int(rule.long_s))
            made.short_window.FromSeconds(int(rule.short_s))
        return response

    async def get_sla_report(self, request: admin.GetSlaReportRequest) -> admin.SlaReport:
        """GetSlaReport."""
        monitor = self._mine()
        month = request.month
        found = await monitor.ask(lambda core: core.agreements(month, monitor.now_s))
        goals = {one.name: one.in_words for one in monitor.settings.objectives}
        report = admin.SlaReport(
            month=found.month,
            complete=found.complete,
            measured_ratio=found.measured_ratio,
            credit_percent=found.percent,
        )
        for line in found.lines:
            report.lines.add(
                slo=line.agreement.slo,
                objective=goals[line.agreement.slo],
                promised=line.agreement.promised,
                measured=line.measured or 0.0,
                events=line.events,
                credit_percent=line.percent,
                state=_STATES[NO_DATA if line.measured is None else MEASURED],
            )
        return report

    async def list_alerts(self, request: admin.ListAlertsRequest) -> admin.ListAlertsResponse:
        """ListAlerts."""
        monitor = self._mine()
        if not 0 <= request.page_size <= RESOLVED_MAX:
            raise InvalidArgument("page_size", f"must be from 0 to {RESOLVED_MAX}")
        most = (request.page_size or RESOLVED_PAGE) if request.resolved else 0

        def listed(core: MonitorCore) -> list[admin.Alert]:
            names = {words_of(one.rule, one.labels): one.alert for one in core.alerts(0)}
            return [self._alert(one, names.get(one.follows, "")) for one in core.alerts(most)]

        return admin.ListAlertsResponse(alerts=await monitor.ask(listed))

    async def acknowledge_alert(self, request: admin.AcknowledgeAlertRequest) -> admin.Alert:
        """AcknowledgeAlert."""
        monitor, name, by, comment = self._mine(), request.alert, request.by, request.comment
        return await monitor.ask(lambda core: self._alert(core.acknowledge(name, by, monitor.now_s, comment)))

    async def create_silence(self, request: admin.CreateSilenceRequest) -> admin.Silence:
        """CreateSilence."""
        monitor, asked = self._mine(), request.silence
        made = AlertSilence(
            "", asked.rule, tuple(sorted(asked.labels.items())), _seconds(asked.end_time), asked.by, asked.comment
        )
        return _silence(await monitor.ask(lambda core: core.silence(made, monitor.now_s)))

    async def list_silences(self, request: admin.ListSilencesRequest) -> admin.ListSilencesResponse:
        """ListSilences."""
        monitor = self._mine()
        found = await monitor.ask(
            lambda core: [one for one in core.machine.silences.values() if one.end_s > monitor.now_s]
        )
        return admin.ListSilencesResponse(silences=map(_silence, found))

    async def delete_silence(self, request: admin.DeleteSilenceRequest) -> well_known.Empty:
        """DeleteSilence."""
        name = request.silence
        await self._mine().ask(lambda core: core.end_silence(name))
        return well_known.Empty()

    async def get_on_call(self, request: admin.GetOnCallRequest) -> admin.OnCall:
        """GetOnCall."""
        monitor = self._mine()
        return await monitor.ask(lambda core: on_call_message(core, monitor.now_s))

    async def list_probers(self, request: admin.ListProbersRequest) -> admin.ListProbersResponse:
        """ListProbers."""
        return await boards(await self._mine().probers(), fetched)

    async def list_ownerships(self, request: admin.ListOwnershipsRequest) -> admin.ListOwnershipsResponse:
        """ListOwnerships."""
        monitor = self._mine()
        begin_s = _seconds(request.start_time) or monitor.now_s - DAY_S
        return await monitor.ask(lambda core: ownerships_message(core, begin_s))

    # -- shared ------------------------------------------------------------------------------------------------------

    async def _here_or_there(
        self, method: Method, function: Callable[[Any], Awaitable[Message]], request: Message
    ) -> Message:
        if self.monitor is None and self._relay is not None:
            answer: Message = method.response.FromString(await self._relay(method, request.SerializeToString()))
            return answer
        return await function(request)

    def _mine(self) -> Monitor:
        if self.monitor is None:
            raise self.refusal
        return self.monitor

    def _alert(self, one: Alert, cause: str = "") -> admin.Alert:
        made = admin.Alert(
            alert=one.alert,
            rule=one.rule,
            labels=dict(one.labels),
            severity=_severity(one.severity),
            state=3 if one.resolved_s else 2 if one.acknowledged_s else 1,
            summary=one.summary,
            runbook=self._mine().settings.runbook(one.rule),
            acknowledged_by=one.acknowledged_by,
            level=one.level,
            notified=one.notified,
            silenced=one.silenced,
            follows=one.follows,
            cause=cause,
        )
        for name, at_s in (
            ("start_time", one.started_s),
            ("acknowledge_time", one.acknowledged_s),
            ("resolve_time", one.resolved_s),
            ("acknowledge_deadline", one.deadline_s),
        ):
            if at_s:
                getattr(made, name).FromMilliseconds(int(at_s * 1000))
        for at_s, text in one.events:
            event = made.events.add(text=text)
            event.time.FromMilliseconds(int(at_s * 1000))
        return made


def _severity(severity: str) -> admin.Alert.Severity:
    return admin.Alert.PAGE if severity == PAGE else admin.Alert.TICKET


def _query(request: admin.QueryHistoryRequest, now_s: float) -> HistoryQuery:
    if not request.family:
        raise InvalidArgument(
            "family", "name a family of `syncpoint docs metrics`, such as syncpoint_publish_messages_total"
        )
    end_s = _seconds(request.end_time) or now_s
    begin_s = _seconds(request.start_time) or end_s - HOUR_S
    if begin_s >= end_s:
        raise InvalidArgument("start_time", "must be before end_time")
    if not 0 <= request.quantile < 1:
        raise InvalidArgument("quantile", "must be from 0 to 1, such as 0.99")
    where: dict[str, list[str]] = {}
    for number, text in enumerate(request.labels):
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidArgument(f"labels[{number}]", f"{text!r} is not NAME=VALUE")
        where.setdefault(name, []).append(value)
    step_s = request.step.seconds + request.step.nanos / 1e9
    return HistoryQuery(request.family, begin_s, end_s, step_s, where, tuple(request.group_by), request.quantile)


def _unit(family: str, kind: str) -> str:
    unit = "seconds" if "_seconds" in family else "bytes" if "_bytes" in family else ""
    return f"{unit}/s".lstrip("/") if kind == "counter" and unit else unit or ("1/s" if kind == "counter" else "")


def _indicator(one: IndicatorValue) -> admin.Sli:
    sli = one.sli
    made = admin.Sli(
        name=sli.name,
        title=sli.title,
        definition=sli.definition,
        unit=sli.unit,
        families=sli.families,
        state=_STATES[one.state],
        value=one.value,
        events=one.events,
        query=sli.promql,
    )
    made.window.FromSeconds(int(sli.window_s))
    for part in sli.parts:
        made.parts.add(**part._asdict())
    return made


def _objective(one: ObjectiveState) -> admin.Slo:
    goal, (good, total) = one.objective, one.events
    made = admin.Slo(
        name=goal.name,
        sli=goal.sli.name,
        objective=goal.in_words,
        target=goal.target,
        threshold=goal.threshold,
        state=_STATES[one.state],
        good_ratio=good / total if total else 0.0,
        events=total,
        budget_left=one.left,
    )
    made.window.FromSeconds(int(goal.window_s))
    for seconds, rate in one.rates:
        made.burn_rates.add(rate=rate).window.FromSeconds(int(seconds))
    return made


def _silence(one: AlertSilence) -> admin.Silence:
    made = admin.Silence(silence=one.silence, rule=one.rule, labels=dict(one.labels), by=one.by, comment=one.comment)
    made.end_time.FromMilliseconds(int(one.end_s * 1000))
    return made


def _seconds(time: Any) -> float:
    return float(time.seconds + time.nanos / 1e9)
