"""Dashboards for Grafana, made from the indicators and from one list of panels.

Place: under `syncpoint dashboards export`.
Promise: every expression names families that there are; a panel that is broken down by topic, region or task is the
same expression each time, grouped by another label, so its parts add up to the total.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from syncpoint.watch.monitor.burn_rates import WINDOWS_S
from syncpoint.watch.monitor.objectives import Objective
from syncpoint.watch.monitor.sli_table import SECONDS, SLIS, promql_duration

RATE: Final = "$__rate_interval"
WIDTH, HEIGHT = 12, 8
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


class PanelLine(NamedTuple):
    """One expression of a panel, and what its series are called."""

    expression: str
    legend: str


class DashboardPanel(NamedTuple):
    """One chart. `unit`: as Grafana names it."""

    title: str
    lines: tuple[PanelLine, ...]
    unit: str = "short"
    description: str = ""


class BrokenDown(NamedTuple):
    """A number that is broken down by `label`, region and task; `{by}` in the expression is where the grouping goes."""

    title: str
    expression: str
    unit: str
    label: str

    def panels(self) -> Iterator[DashboardPanel]:
        """The total, by topic (or subscription), by region, by process."""
        yield DashboardPanel(self.title, (PanelLine(self.expression.replace("{by}", ""), "total"),), self.unit)
        for label, named in ((self.label, self.label), ("region", "region"), ("process", "process")):
            line = PanelLine(self.expression.replace("{by}", f"by ({label}) "), f"{{{{{label}}}}}")
            yield DashboardPanel(f"{self.title}, by {named}", (line,), self.unit)


def _rate(family: str, where: str = "") -> str:
    return f"sum {{by}}(rate({family}{where}[{RATE}]))"


PUBLISHING: Final = (
    BrokenDown("Messages published", _rate("syncpoint_topic_messages_total"), "mps", "topic"),
    BrokenDown("Bytes published", _rate("syncpoint_topic_bytes_total"), "Bps", "topic"),
    BrokenDown("Publish requests", _rate("syncpoint_topic_requests_total"), "reqps", "topic"),
)
SUBSCRIBING: Final = (
    BrokenDown("Messages delivered", _rate("syncpoint_subscription_messages_total"), "mps", "subscription"),
    BrokenDown("Messages acknowledged", _rate("syncpoint_subscription_acknowledged_total"), "mps", "subscription"),
    BrokenDown("Backlog", "sum {by}(syncpoint_subscription_backlog_messages)", "short", "subscription"),
    BrokenDown("Outstanding bytes", "sum {by}(syncpoint_subscription_outstanding_bytes)", "bytes", "subscription"),
    BrokenDown("Redelivered", _rate("syncpoint_subscription_redelivered_total"), "mps", "subscription"),
)
PUBLISHERS: Final = DashboardPanel(
    "Publishers: topics, bytes, batches, messages, outstanding bytes",
    (
        PanelLine("max(syncpoint_catalog_topics)", "topics"),
        PanelLine("sum(rate(syncpoint_publish_bytes_total[{RATE}]))".replace("{RATE}", RATE), "bytes per second"),
        PanelLine(f"sum(rate(syncpoint_publish_batch_messages_count[{RATE}]))", "batches per second"),
        PanelLine(f"sum(rate(syncpoint_publish_messages_total[{RATE}]))", "messages per second"),
        PanelLine("sum(syncpoint_publish_in_flight_bytes)", "outstanding bytes"),
    ),
)
STORAGE: Final = (
    DashboardPanel("Disks by state", (PanelLine("sum by (state) (syncpoint_disk_state)", "{{state}}"),)),
    DashboardPanel(
        "Under-replicated entries, by process and chain",
        (PanelLine("sum by (process, chain) (syncpoint_log_under_replicated_entries)", "{{process}} {{chain}}"),),
    ),
    DashboardPanel(
        "Sync time, 99th percentile, by disk",
        (
            PanelLine(
                f"histogram_quantile(0.99, sum by (disk, le) (rate(syncpoint_disk_sync_seconds_bucket[{RATE}])))",
                "{{disk}}",
            ),
        ),
        "s",
    ),
    DashboardPanel(
        "Free disk space, by disk", (PanelLine("min by (disk) (syncpoint_disk_free_bytes)", "{{disk}}"),), "bytes"
    ),
    DashboardPanel(
        "Event loop delay, 99th percentile, by process",
        (
            PanelLine(
                f"histogram_quantile(0.99, sum by (process, le) (rate(syncpoint_loop_lag_seconds_bucket[{RATE}])))",
                "{{process}}",
            ),
        ),
        "s",
    ),
    DashboardPanel(
        "Memory, by process", (PanelLine("sum by (process) (process_resident_memory_bytes)", "{{process}}"),), "bytes"
    ),
)
PROBERS: Final = (
    DashboardPanel(
        "Probe result (1 passed, 0 failed), by prober and metric",
        (PanelLine("min by (prober, metric) (syncpoint_prober_as_expected)", "{{prober}} {{metric}}"),),
    ),
    DashboardPanel(
        "Probe result (1 passed, 0 failed), by endpoint",
        (PanelLine("min by (endpoint) (syncpoint_prober_as_expected)", "{{endpoint}}"),),
    ),
    DashboardPanel(
        "Step duration in the latest run, slowest endpoint",
        (PanelLine("max by (prober, step) (syncpoint_prober_step_newest_seconds)", "{{prober}} {{step}}"),),
        "s",
    ),
    DashboardPanel(
        "Step duration as a share of its limit, slowest endpoint",
        (
            PanelLine(
                "max by (prober, step) (syncpoint_prober_step_newest_seconds)"
                " / max by (prober, step) (syncpoint_prober_step_limit_seconds)",
                "{{prober}} {{step}}",
            ),
        ),
        "percentunit",
    ),
    DashboardPanel(
        "Probe results per second, by verdict",
        (PanelLine(f"sum by (verdict) (rate(syncpoint_prober_judgements_total[{RATE}]))", "{{verdict}}"),),
        "cps",
    ),
    DashboardPanel(
        "Incorrect messages and answers per second, by prober and kind",
        (PanelLine(f"sum by (prober, kind) (rate(syncpoint_prober_wrong_total[{RATE}]))", "{{prober}} {{kind}}"),),
        "cps",
    ),
    DashboardPanel(
        "Messages published and received by probers",
        (PanelLine(f"sum by (direction) (rate(syncpoint_prober_messages_total[{RATE}]))", "{{direction}}"),),
        "mps",
    ),
    DashboardPanel(
        "Time since the latest run, by prober and endpoint",
        (
            PanelLine(
                "time() - max by (prober, endpoint) (syncpoint_prober_last_run_timestamp_seconds)",
                "{{prober}} {{endpoint}}",
            ),
        ),
        "s",
    ),
)


def _flow(title: str, family: str, unit: str, *, rate: bool = True) -> DashboardPanel:
    found = f"rate(syncpoint_federation_{family}[{RATE}])" if rate else f"syncpoint_federation_{family}"
    line = PanelLine(f"sum by (flow, source, target) ({found})", "{{flow}}: {{source}} to {{target}}")
    return DashboardPanel(f"{title}, by flow", (line,), unit)


FEDERATION: Final = (
    _flow("Messages not copied yet", "lag_messages", "short", rate=False),
    _flow("Bytes not copied yet", "lag_bytes", "bytes", rate=False),
    _flow("Messages copied", "rows_total", "mps"),
    _flow("Bytes copied", "bytes_total", "Bps"),
    _flow("Stopped by a gap (1)", "blocked", "short", rate=False),
    _flow("Duplicates dropped per second", "duplicates_dropped_total", "cps"),
    DashboardPanel(
        "Duration of the latest batch, by flow",
        (PanelLine("max by (flow) (syncpoint_federation_batch_seconds)", "{{flow}}"),),
        "s",
    ),
    DashboardPanel(
        "Spark: executors, starts, crashes",
        (
            PanelLine("sum(syncpoint_federation_executors)", "executors"),
            PanelLine("sum(syncpoint_federation_starts_total)", "starts"),
            PanelLine("sum(syncpoint_federation_failures_total)", "crashes"),
        ),
    ),
)


def _gateway(title: str, expression: str, unit: str, by: str = "site") -> DashboardPanel:
    line = PanelLine(expression.replace("{by}", f"by ({by}) " if by else ""), f"{{{{{by}}}}}" if by else "total")
    return DashboardPanel(f"{title}, by {by}" if by else title, (line,), unit)


GATEWAY: Final = (
    _gateway("Takes calls (1), masked (0)", "min {by}(syncpoint_gateway_site_open)", "short"),
    _gateway("Answers probes (1)", "min {by}(syncpoint_gateway_site_answers)", "short"),
    _gateway("Calls per second", _rate("syncpoint_gateway_calls_total"), "reqps"),
    _gateway("Failed calls per second", _rate("syncpoint_gateway_calls_failed_total"), "reqps"),
    _gateway("Streaming pulls", "sum {by}(syncpoint_gateway_streams)", "short"),
    _gateway(
        "Messages of dual topics that a masked site lacks", "max {by}(syncpoint_gateway_lacking_messages)", "short"
    ),
    _gateway("Publishes to dual topics", _rate("syncpoint_gateway_dual_published_total"), "reqps", by=""),
    _gateway("Stored by one site alone at first", _rate("syncpoint_gateway_dual_one_site_total"), "reqps", by=""),
)


def dashboards(objectives: tuple[Objective, ...]) -> dict[str, dict[str, Any]]:
    """By the names of their files."""
    promised = [_indicator(number) for number in range(len(SLIS))] + [_burning(one) for one in objectives]
    made = {
        "syncpoint-overview": ("Syncpoint: service level objectives", promised),
        "syncpoint-publishing": ("Syncpoint: publishing", [PUBLISHERS, *_all(PUBLISHING)]),
        "syncpoint-subscriptions": ("Syncpoint: subscriptions", _all(SUBSCRIBING)),
        "syncpoint-storage": ("Syncpoint: disks and processes", list(STORAGE)),
        "syncpoint-probers": ("Syncpoint: probers", list(PROBERS)),
        "syncpoint-federation": ("Syncpoint: federation", list(FEDERATION)),
        "syncpoint-gateway": ("Syncpoint: gateway", list(GATEWAY)),
    }
    return {name: _dashboard(name, title, panels) for name, (title, panels) in made.items()}


def expressions(dashboard: dict[str, Any]) -> Iterator[str]:
    """All of a dashboard."""
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield target["expr"]


def _all(some: tuple[BrokenDown, ...]) -> list[DashboardPanel]:
    return [panel for one in some for panel in one.panels()]


def _indicator(number: int) -> DashboardPanel:
    sli = SLIS[number]
    unit = "s" if sli.unit == SECONDS else "percentunit"
    return DashboardPanel(f"SLI: {sli.title}", (PanelLine(sli.promql, sli.name),), unit, sli.definition)


def _burning(one: Objective) -> DashboardPanel:
    lines = tuple(
        PanelLine(
            f'slo:sli_error:ratio_rate{promql_duration(window)}{{sloth_slo="{one.name}"}} / {1 - one.target:.6g}',
            promql_duration(window),
        )
        for window in WINDOWS_S
    )
    meaning = "Speed at which the error budget is consumed, by window. At 1, the budget lasts exactly its whole window."
    return DashboardPanel(f"Burn rate: {one.title} ({one.in_words})", lines, description=meaning)


def _dashboard(uid: str, title: str, panels: list[DashboardPanel]) -> dict[str, Any]:
    return {
        "uid": uid,
        "title": title,
        "tags": ["syncpoint"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "templating": {
            "list": [{"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}]
        },
        "panels": [
            {
                "id": number + 1,
                "type": "timeseries",
                "title": panel.title,
                "description": panel.description,
                "datasource": _SOURCE,
                "gridPos": {"x": number % 2 * WIDTH, "y": number // 2 * HEIGHT, "w": WIDTH, "h": HEIGHT},
                "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
                "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
                "targets": [
                    {"refId": chr(65 + place), "datasource": _SOURCE, "expr": expression, "legendFormat": legend}
                    for place, (expression, legend) in enumerate(panel.lines)
                ],
            }
            for number, panel in enumerate(panels)
        ],
    }
