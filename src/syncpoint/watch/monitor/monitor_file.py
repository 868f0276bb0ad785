"""What the monitor knows beside history: events of objectives by the minute, months, alerts, silences; in one file.

Place: read at a start, written by each look; one thread.
Promise: what was counted up to the newest minute, every alert that fires, and whom it was sent to, survive a crash.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final

from syncpoint.watch.monitor.alert_machine import Alert, AlertSilence
from syncpoint.watch.monitor.event_counts import COARSE_S, FINE_S, TEN_MINUTES_S, EventCounts
from syncpoint.watch.monitor.history_file import HistoryFile
from syncpoint.watch.monitor.indicators import Events
from syncpoint.watch.monitor.ownership_log import OwnershipLog

ALERTS_MAX: Final = 10_000  # that are over
_SCHEMA: Final = """
create table if not exists minutes(t integer primary key, events text not null);
create table if not exists ten_minutes(t integer primary key, events text not null);
create table if not exists months(month text, slo text, good real not null, total real not null,
  primary key(month, slo)) without rowid;
create table if not exists measured(month text primary key, seconds real not null);
create table if not exists alerts(alert text primary key, resolved real not null, body text not null);
create table if not exists silences(silence text primary key, body text not null);
"""
Counted = dict[str, Events]
"""Events by objective."""


class MonitorFile:
    """Store alerts, silences and other state of the monitor beside its history."""

    def __init__(self, history: HistoryFile) -> None:
        self.history = history
        self._database = history.database
        self._database.executescript(_SCHEMA)
        self.owners = OwnershipLog(history.database)
        self._minute = 0  # whose events are in `_pending`
        self._pending: Counted = {}
        self._pending_s = 0.0

    # -- events ------------------------------------------------------------------------------------------------------

    def counts(self, names: Iterable[str], now_s: float) -> dict[str, EventCounts]:
        """What was counted for each objective, as far back as is kept."""
        found = {name: EventCounts() for name in names}
        newest: float = now_s - FINE_S
        query = "select t, events from minutes where t > ? order by t"
        fine = self._database.execute(query, (newest,)).fetchall()
        until = fine[0][0] // TEN_MINUTES_S * TEN_MINUTES_S if fine else now_s
        query = "select t, events from ten_minutes where t < ? order by t"
        coarse = self._database.execute(query, (until,)).fetchall()
        for t, text in (*coarse, *fine):
            for name, (good, total) in json.loads(text).items():
                if name in found:
                    found[name].add(t, Events(good, total))
        return found

    def count(self, now_s: float, month: str, events: Counted, seconds: float) -> None:
        """Add the events of a look, which stands for `seconds`. Written once a minute, the rest by `flush`."""
        minute = int(now_s) // 60 * 60
        try:
            if minute != self._minute:
                self.flush()
        finally:  # what cannot be written is written with a later minute
            self._minute, self._month = minute, month
            self._pending_s += seconds
            for name, one in events.items():
                before = self._pending.get(name, Events(0, 0))
                self._pending[name] = Events(before.good + one.good, before.total + one.total)

    def flush(self) -> None:
        """Write what was counted since the last minute began."""
        if not self._pending_s:
            return
        minute, pending, seconds = self._minute, self._pending, self._pending_s
        with self.history.transaction():
            for table, t, kept_s in (
                ("minutes", minute, FINE_S),
                ("ten_minutes", minute // TEN_MINUTES_S * TEN_MINUTES_S, COARSE_S),
            ):
                self._add(table, t, pending)
                self._database.execute(f"delete from {table} where t < ?", (t - kept_s,))
            for name, (good, total) in pending.items():
                self._database.execute(
                    "insert into months values(?, ?, ?, ?) on conflict(month, slo) do update "
                    "set good = good + excluded.good, total = total + excluded.total",
                    (self._month, name, good, total),
                )
            self._database.execute(
                "insert into measured values(?, ?) on conflict(month) do update "
                "set seconds = seconds + excluded.seconds",
                (self._month, seconds),
            )
        self._pending, self._pending_s = {}, 0.0

    def month(self, month: str) -> tuple[Counted, float]:
        """Events of a month such as 2026-11, and of how many of its seconds something is known."""
        self.flush()
        rows = self._database.execute("select slo, good, total from months where month=?", (month,)).fetchall()
        measured = self._database.execute("select seconds from measured where month=?", (month,)).fetchone()
        return {name: Events(good, total) for name, good, total in rows}, measured[0] if measured else 0.0

    def _add(self, table: str, t: int, events: Counted) -> None:
        before = self._database.execute(f"select events from {table} where t=?", (t,)).fetchone()
        found: dict[str, tuple[float, float]] = {} if before is None else json.loads(before[0])
        for name, one in events.items():
            good, total = found.get(name, (0.0, 0.0))
            found[name] = (good + one.good, total + one.total)
        self._database.execute(f"insert or replace into {table} values(?, ?)", (t, json.dumps(found)))

    # -- alerts ------------------------------------------------------------------------------------------------------

    def firing(self) -> list[Alert]:
        """Alerts that are not resolved."""
        rows = self._database.execute("select body from alerts where resolved=0").fetchall()
        return [Alert.of(json.loads(body)) for (body,) in rows]

    def resolved(self, most: int) -> list[Alert]:
        """The newest of those that are."""
        rows = self._database.execute(
            "select body from alerts where resolved>0 order by resolved desc limit ?", (most,)
        ).fetchall()
        return [Alert.of(json.loads(body)) for (body,) in rows]

    def keep(self, alerts: Iterable[Alert]) -> None:
        """As they are now."""
        rows = [(one.alert, one.resolved_s, json.dumps(one.kept())) for one in alerts]
        with self.history.transaction():
            self._database.executemany("insert or replace into alerts values(?, ?, ?)", rows)
            self._database.execute(
                "delete from alerts where resolved>0 and alert not in "
                "(select alert from alerts where resolved>0 order by resolved desc limit ?)",
                (ALERTS_MAX,),
            )

    def silences(self) -> list[AlertSilence]:
        """All, also those that are over."""
        rows = self._database.execute("select body from silences").fetchall()
        kept = [json.loads(body) for (body,) in rows]
        return [AlertSilence(**{**one, "labels": tuple(map(tuple, one["labels"]))}) for one in kept]

    def keep_silences(self, silences: Mapping[str, AlertSilence]) -> None:
        """These, and no others."""
        with self.history.transaction():
            self._database.execute("delete from silences")
            for name, one in silences.items():
                body = {
                    "silence": one.silence,
                    "rule": one.rule,
                    "labels": one.labels,
                    "end_s": one.end_s,
                    "by": one.by,
                    "comment": one.comment,
                }
                self._database.execute("insert into silences values(?, ?)", (name, json.dumps(body)))
