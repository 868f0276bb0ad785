"""What `syncpoint top` shows: the figures of a server or a cluster, as panels of rows, made of two readings.

Place: between `cli.top_readings`, which has the changes of numbers, and `cli.top_screen`, which draws.
Promise: plain values in seconds, bytes, messages per second; None is what nobody has measured in between. What several
processes do is added up, also where one subscription is served by many.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from syncpoint.base.model.wording import lasting
from syncpoint.programs.cli.top_readings import PROCESS, Movement, Row

CHAINS: Final = "/chains/"  # below the folder of a disk that several chains share
DISK_STATES: Final = ("failed", "damaged", "away", "healing", "ok")  # worst first

Form = Callable[[float], str]


def per_second(value: float) -> str:
    """A rate, or a number of messages."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= limit:
            return f"{value / (1e3 if unit == 'k' else limit):.4g} {unit}"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def size(value: float) -> str:
    """A number of bytes, in units of a thousand."""
    for limit, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= limit:
            return f"{value / limit:.3g} {unit}"
    return f"{value:.0f} B"


def percent(value: float) -> str:
    """A share of one core."""
    return f"{value * 100:.0f}%"


@dataclass(frozen=True)
class TopColumn:
    """One column. `key`: its name in JSON, with the unit; `form`: how its numbers are shown, None for text."""

    key: str
    heading: str
    form: Form | None = None


@dataclass(frozen=True)
class TopPanel:
    """One table. The rows have a value for each column; None is not known."""

    name: str
    columns: Sequence[TopColumn]
    rows: Sequence[Sequence[Any]]


@dataclass(frozen=True)
class TopFigures:
    """All of one look. `totals`: of the whole; `silent`: processes that did not answer, and why."""

    seconds: float
    totals: Mapping[str, float | None]
    panels: Sequence[TopPanel]
    silent: Mapping[str, str]

    def as_json(self) -> dict[str, Any]:
        """Return the figures for JSON output."""
        panels = {
            panel.name: [
                dict(zip((one.key for one in panel.columns), map(_plain, row), strict=True)) for row in panel.rows
            ]
            for panel in self.panels
        }
        totals = {key: _plain(value) for key, value in self.totals.items()}
        return {"seconds": round(self.seconds, 3), "totals": totals, **panels, "silent": dict(self.silent)}


TOTALS: Final = (
    TopColumn("publishedPerSecond", "published/s", per_second),
    TopColumn("publishedBytesPerSecond", "bytes/s", size),
    TopColumn("deliveredPerSecond", "delivered/s", per_second),
    TopColumn("acknowledgedPerSecond", "acknowledged/s", per_second),
    TopColumn("backlogMessages", "backlog", per_second),
    TopColumn("oldestSeconds", "oldest", lasting),
    TopColumn("publishSecondsP50", "publish p50", lasting),
    TopColumn("publishSecondsP99", "publish p99", lasting),
    TopColumn("persistSecondsP99", "persist p99", lasting),
    TopColumn("deliverySecondsP50", "to delivery p50", lasting),
    TopColumn("deliverySecondsP99", "to delivery p99", lasting),
    TopColumn("failedCallsPerSecond", "failed calls/s", per_second),
)
PROCESSES: Final = (
    TopColumn("process", "PROCESS"),
    TopColumn("roles", "ROLES"),
    TopColumn("cores", "CPU", percent),
    TopColumn("memoryBytes", "MEMORY", size),
    TopColumn("connections", "CLIENTS", per_second),
    TopColumn("callsPerSecond", "CALLS/S", per_second),
    TopColumn("publishedPerSecond", "PUBLISHED/S", per_second),
    TopColumn("deliveredPerSecond", "DELIVERED/S", per_second),
    TopColumn("loopLagSecondsP99", "LAG P99", lasting),
    TopColumn("uptimeSeconds", "UP", lasting),
)
TOPICS: Final = (
    TopColumn("topic", "TOPIC"),
    TopColumn("project", "PROJECT"),
    TopColumn("publishedPerSecond", "PUBLISHED/S", per_second),
    TopColumn("bytesPerSecond", "BYTES/S", size),
    TopColumn("requestsPerSecond", "REQUESTS/S", per_second),
    TopColumn("published", "SINCE START", per_second),
)
SUBSCRIPTIONS: Final = (
    TopColumn("subscription", "SUBSCRIPTION"),
    TopColumn("project", "PROJECT"),
    TopColumn("backlogMessages", "BACKLOG", per_second),
    TopColumn("oldestSeconds", "OLDEST", lasting),
    TopColumn("deliveredPerSecond", "DELIVERED/S", per_second),
    TopColumn("acknowledgedPerSecond", "ACKED/S", per_second),
    TopColumn("redeliveredPerSecond", "AGAIN/S", per_second),
    TopColumn("outstandingMessages", "OUTSTANDING", per_second),
    TopColumn("subscribers", "WAITING", per_second),
)
DISKS: Final = (
    TopColumn("disk", "DISK"),
    TopColumn("process", "PROCESS"),
    TopColumn("state", "STATE"),
    TopColumn("writtenBytesPerSecond", "BYTES/S", size),
    TopColumn("commitsPerSecond", "COMMITS/S", per_second),
    TopColumn("syncSecondsP50", "SYNC P50", lasting),
    TopColumn("syncSecondsP99", "SYNC P99", lasting),
    TopColumn("behindEntries", "BEHIND", per_second),
    TopColumn("freeBytes", "FREE", size),
)


def figures(moved: Movement, silent: Mapping[str, str]) -> TopFigures:
    """All that is shown, of one movement."""
    panels = (
        TopPanel("processes", PROCESSES, _processes(moved)),
        TopPanel("topics", TOPICS, _topics(moved)),
        TopPanel("subscriptions", SUBSCRIPTIONS, _subscriptions(moved)),
        TopPanel("disks", DISKS, _disks(moved)),
    )
    return TopFigures(moved.seconds, _totals(moved), panels, silent)


def _totals(moved: Movement) -> dict[str, float | None]:
    publish: dict[str, str] = {"listener": "clients", "method": "Publisher.Publish"}
    ended = moved.growth("syncpoint_calls_total", "code", listener="clients")
    failed = sum(grown for (code,), grown in ended.items() if code not in ("OK", "CANCELLED"))
    found = (
        moved.rate("syncpoint_publish_messages_total"),
        moved.rate("syncpoint_publish_bytes_total"),
        moved.rate("syncpoint_subscription_messages_total"),
        moved.rate("syncpoint_subscription_acknowledged_total"),
        moved.values("syncpoint_subscription_backlog_messages").get(()),
        moved.most("syncpoint_subscription_oldest_unacked_age_seconds").get(()),
        moved.share("syncpoint_call_seconds", 0.5, **publish),
        moved.share("syncpoint_call_seconds", 0.99, **publish),
        moved.share("syncpoint_publish_persist_seconds", 0.99),
        moved.share("syncpoint_delivery_latency_seconds", 0.5),
        moved.share("syncpoint_delivery_latency_seconds", 0.99),
        failed / moved.seconds,
    )
    return {column.key: value for column, value in zip(TOTALS, found, strict=True)}


def _processes(moved: Movement) -> list[list[Any]]:
    info = {labels[PROCESS]: labels.get("roles", "") for labels in moved.labels("syncpoint_process_info")}
    columns = (
        moved.rates("process_cpu_seconds_total", PROCESS),
        moved.values("process_resident_memory_bytes", PROCESS),
        moved.values("syncpoint_listener_connections", PROCESS, listener="clients"),
        moved.rates("syncpoint_calls_total", PROCESS),
        moved.rates("syncpoint_publish_messages_total", PROCESS),
        moved.rates("syncpoint_subscription_messages_total", PROCESS),
        moved.shares("syncpoint_loop_lag_seconds", 0.99, PROCESS),
        moved.values("syncpoint_process_uptime_seconds", PROCESS),
    )
    return [[name, info[name], *(column.get((name,)) for column in columns)] for name in sorted(info)]


def _topics(moved: Movement) -> list[list[Any]]:
    by = ("topic", "project")
    columns = (
        moved.rates("syncpoint_topic_messages_total", *by),
        moved.rates("syncpoint_topic_bytes_total", *by),
        moved.rates("syncpoint_topic_requests_total", *by),
        moved.values("syncpoint_topic_messages_total", *by),
    )
    return _beside(columns[-1], columns)


def _subscriptions(moved: Movement) -> list[list[Any]]:
    by = ("subscription", "project")
    prefix = "syncpoint_subscription"
    columns = (
        moved.values(f"{prefix}_backlog_messages", *by),
        moved.most(f"{prefix}_oldest_unacked_age_seconds", *by),
        moved.rates(f"{prefix}_messages_total", *by),
        moved.rates(f"{prefix}_acknowledged_total", *by),
        moved.rates(f"{prefix}_redelivered_total", *by),
        moved.values(f"{prefix}_outstanding_messages", *by),
        moved.values(f"{prefix}_subscribers", *by),
    )
    return _beside({row: 0.0 for column in columns for row in column}, columns)


def _disks(moved: Movement) -> list[list[Any]]:
    """A disk once, whatever chains are on it: numbers are added up, the worst state counts."""
    by = ("disk", PROCESS)
    states: dict[Row, str] = {}
    for (disk, process, state), there in moved.values("syncpoint_disk_state", *by, "state").items():
        if there:
            row = _folder((disk, process))
            states[row] = min(state, states.get(row, state), key=_badness)
    prefix = "syncpoint_disk"
    columns = (
        _summed(moved.rates(f"{prefix}_written_bytes_total", *by)),
        _summed(moved.rates(f"{prefix}_commits_total", *by)),
        _largest(moved.shares(f"{prefix}_sync_seconds", 0.5, *by)),
        _largest(moved.shares(f"{prefix}_sync_seconds", 0.99, *by)),
        _summed(moved.values(f"{prefix}_behind_entries", *by)),
        _largest(moved.values(f"{prefix}_free_bytes", *by)),
    )
    served = moved.values("syncpoint_disk_server_free_bytes", *by)  # of a storage process, which writes for others
    rows: list[list[Any]] = [[*row, states[row], *(column.get(row) for column in columns)] for row in sorted(states)]
    return rows + [[*row, "served", *[None] * 5, free] for row, free in sorted(served.items())]


def _badness(state: str) -> int:
    return DISK_STATES.index(state) if state in DISK_STATES else 0


def _folder(row: Row) -> Row:
    return (row[0].partition(CHAINS)[0], *row[1:])


def _summed(found: Mapping[Row, float]) -> Mapping[Row, float]:
    sums: dict[Row, float] = defaultdict(float)
    for row, value in found.items():
        sums[_folder(row)] += value
    return sums


def _largest(found: Mapping[Row, float]) -> Mapping[Row, float]:
    largest: dict[Row, float] = {}
    for row, value in found.items():
        largest[_folder(row)] = max(value, largest.get(_folder(row), value))
    return largest


def _beside(rows: Mapping[Row, Any], columns: Sequence[Mapping[Row, float]]) -> list[list[Any]]:
    return [[*row, *(column.get(row) for column in columns)] for row in sorted(rows)]


def _plain(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value
