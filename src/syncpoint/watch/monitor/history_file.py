"""Two weeks of samples in one SQLite file: dense for what is new, sparse for what is old, bounded in rows and bytes.

Place: written and read in the monitor's thread; `history_queries` puts samples together.
Promise: what was written is there after a crash, but for the newest seconds. A row has all series of one name at one
time, so there are never more rows than names times the sum of `TIERS`; more series than `SERIES_MAX` are not kept, and
counted. Where the file would become larger than allowed, what is oldest goes first.
"""

from __future__ import annotations

import json
import sqlite3
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from syncpoint.watch.monitor.increases import Look
from syncpoint.watch.monitor.kept_families import is_left_out, takes_largest
from syncpoint.watch.monitor.scraped_text import Labels


class Tier(NamedTuple):
    """How densely samples are kept, and for how long."""

    step_s: int
    kept_s: int


TIERS: Final = (Tier(10, 2 * 3600), Tier(60, 2 * 86_400), Tier(600, 14 * 86_400))
SERIES_MAX: Final = 20_000
BYTES_MAX: Final = 256 << 20
_SCHEMA: Final = """
create table if not exists names(id integer primary key, name text unique not null, counts integer not null);
create table if not exists series(id integer primary key, name integer not null, labels text not null,
  seen integer not null, unique(name, labels));
create table if not exists looks(tier integer, t integer, looks integer not null, primary key(tier, t)) without rowid;
create table if not exists looked(one integer primary key, at_s real not null);
create table if not exists points(tier integer, name integer, t integer, ids blob not null, numbers blob not null,
  primary key(tier, name, t)) without rowid;
"""


class HistoryRow(NamedTuple):
    """The samples of one name at one time, by the numbers of their series."""

    t: int
    numbers: dict[int, float]


class HistoryFile:
    """Two weeks of samples in one SQLite file; used by one thread at a time."""

    def __init__(self, path: Path | str, *, bytes_max: int = BYTES_MAX, series_max: int = SERIES_MAX) -> None:
        """Raises the errors of SQLite, and `OSError`."""
        self._bytes_max, self._series_max = bytes_max, series_max
        self.database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self.database.execute("pragma journal_mode=wal")
        self.database.execute("pragma synchronous=normal")
        self.database.executescript(_SCHEMA)
        self.not_kept = 0  # samples of series that were too many
        self._load()

    def _load(self) -> None:
        """Read which names and series there are."""
        self._names = {
            name: (number, bool(counts)) for number, name, counts in self.database.execute("select * from names")
        }
        names = {number: name for name, (number, _) in self._names.items()}
        self._series: dict[tuple[str, Labels], int] = {}
        self._labels: dict[int, Labels] = {}
        for number, name, labels in self.database.execute("select id, name, labels from series"):
            self._remember(number, names[name], tuple((key, value) for key, value in json.loads(labels)))
        self._next_series = 1 + max(self._labels, default=0)

    def close(self) -> None:
        """Nothing is written after this."""
        self.database.close()

    def write(self, at_s: float, look: Look, counts: frozenset[str] | set[str]) -> None:
        """Keep a look, under the beginning of its step; `counts`: names whose numbers are increases. A second look
        within a step is added to the first. Raises the errors of SQLite, with nothing kept.
        """
        try:
            self._write(at_s, look, counts)
        except sqlite3.Error:
            self._load()  # without what was new
            raise

    def _write(self, at_s: float, look: Look, counts: frozenset[str] | set[str]) -> None:
        t = int(at_s) // TIERS[0].step_s * TIERS[0].step_s
        newest = self.newest(0)
        with self.transaction():
            if newest is not None and newest < t:
                self._roll_up(newest, t)
            for name, by_labels in look.items():
                self._write_name(t, name, name in counts, by_labels)
            self.database.execute("insert or ignore into looks values(0, ?, 1)", (t,))
            self.database.execute("insert or replace into looked values(1, ?)", (at_s,))

    @property
    def looked_s(self) -> float:
        """When the newest look was; 0: there was none."""
        found = self.database.execute("select at_s from looked").fetchone()
        return float(found[0]) if found else 0.0

    def newest(self, tier: int) -> int | None:
        """When the newest step of a tier began."""
        found: int | None = self.database.execute("select max(t) from looks where tier=?", (tier,)).fetchone()[0]
        return found

    def counts(self, name: str) -> bool | None:
        """Whether the numbers of a name are increases; None: nothing is known of it."""
        known = self._names.get(name)
        return None if known is None else known[1]

    def labels_of(self, series: int) -> Labels:
        """Return the labels of a series in a row."""
        return self._labels[series]

    def names(self) -> list[str]:
        """All that were kept."""
        return sorted(self._names)

    def looks(self, tier: int, begin: int, end: int) -> dict[int, int]:
        """How many looks each step has, of those that begin within [begin, end)."""
        query = "select t, looks from looks where tier=? and t>=? and t<?"
        return dict(self.database.execute(query, (tier, begin, end)).fetchall())

    def rows(self, tier: int, name: str, begin: int, end: int) -> Iterator[HistoryRow]:
        """The samples of a name in the steps that begin within [begin, end), in order."""
        known = self._names.get(name)
        if known is None:
            return
        query = "select t, ids, numbers from points where tier=? and name=? and t>=? and t<? order by t"
        for t, ids, numbers in self.database.execute(query, (tier, known[0], begin, end)):
            yield HistoryRow(t, _unpacked(ids, numbers))

    @property
    def used_bytes(self) -> int:
        """What of the file is in use."""
        (size,), (pages,), (free,) = (
            self.database.execute(f"pragma {one}").fetchone() for one in ("page_size", "page_count", "freelist_count")
        )
        return int(size * (pages - free))

    # -- writing -----------------------------------------------------------------------------------------------------

    def _write_name(self, t: int, name: str, counts: bool, by_labels: dict[Labels, float]) -> None:
        known = self._names.get(name)
        if known is None:
            cursor = self.database.execute("insert into names(name, counts) values(?, ?)", (name, counts))
            known = self._names[name] = (int(cursor.lastrowid or 0), counts)
        found: dict[int, float] = {}
        for labels, value in by_labels.items():
            if (counts and not value) or is_left_out(name, labels):
                continue  # an increase of nothing needs no place
            number = self._series.get((name, labels)) or self._new_series(t, name, known[0], labels)
            if number:
                found[number] = value
        if not found:
            return
        before = self.database.execute(
            "select ids, numbers from points where tier=0 and name=? and t=?", (known[0], t)
        ).fetchone()
        if before is not None:
            kept = _unpacked(*before)
            found = {**kept, **{one: value + (kept.get(one, 0.0) if counts else 0.0) for one, value in found.items()}}
        self._put(0, known[0], t, found)

    def _new_series(self, t: int, name: str, number: int, labels: Labels) -> int:
        if len(self._labels) >= self._series_max:
            self.not_kept += 1
            return 0
        series, self._next_series = self._next_series, self._next_series + 1
        self.database.execute("insert into series values(?, ?, ?, ?)", (series, number, json.dumps(labels), t))
        self._remember(series, name, labels)
        return series

    def _remember(self, number: int, name: str, labels: Labels) -> None:
        self._series[name, labels], self._labels[number] = number, labels

    def _put(self, tier: int, name: int, t: int, numbers: dict[int, float]) -> None:
        self.database.execute(
            "insert or replace into points values(?, ?, ?, ?, ?)",
            (tier, name, t, array("I", numbers).tobytes(), array("d", numbers.values()).tobytes()),
        )

    def _roll_up(self, newest: int, t: int) -> None:
        """Make steps of sparser tiers of those that ended with `newest`, now that `t` begins; forget what is old."""
        for tier in range(1, len(TIERS)):
            step_s = TIERS[tier].step_s
            begin = newest // step_s * step_s
            if t // step_s * step_s == begin:
                break
            self._sum_up(tier, begin, begin + step_s)
        if t // TIERS[1].step_s != newest // TIERS[1].step_s:
            self._forget(t)

    def _sum_up(self, tier: int, begin: int, end: int) -> None:
        looks = sum(self.looks(tier - 1, begin, end).values())
        for name, (number, counts) in self._names.items():
            found: dict[int, float] = {}
            weights = self.looks(tier - 1, begin, end)
            for row in self.rows(tier - 1, name, begin, end):
                weight = 1.0 if counts else weights.get(row.t, 1) / max(1, looks)
                for series, value in row.numbers.items():
                    if takes_largest(name):
                        found[series] = max(found.get(series, value), value)
                    else:
                        found[series] = found.get(series, 0.0) + value * weight
            if found:
                self._put(tier, number, begin, found)
        self.database.execute("insert or replace into looks values(?, ?, ?)", (tier, begin, looks))

    def _forget(self, t: int) -> None:
        for tier, (_, kept_s) in enumerate(TIERS):
            self._delete(tier, t - kept_s)
        share = 1.0
        while self.used_bytes > self._bytes_max and share > 0.001:
            share *= 0.8
            for tier, (_, kept_s) in enumerate(TIERS):
                self._delete(tier, t - int(kept_s * share))
        query = "select id from series where seen < ?"
        old = {number for (number,) in self.database.execute(query, (t - TIERS[-1].kept_s,))}
        if old:
            self._forget_series(t, old)

    def _delete(self, tier: int, before: int) -> None:
        self.database.execute("delete from looks where tier=? and t<?", (tier, before))
        for number, _ in self._names.values():
            self.database.execute("delete from points where tier=? and name=? and t<?", (tier, number, before))

    def _forget_series(self, t: int, old: set[int]) -> None:
        """Forget series that were new two weeks ago and have no samples left."""
        used: set[int] = set()
        for (ids,) in self.database.execute("select ids from points"):
            used.update(array("I", ids))
        self.database.executemany("update series set seen=? where id=?", [(t, one) for one in old & used])
        self.database.executemany("delete from series where id=?", [(one,) for one in old - used])
        for key, number in [(key, number) for key, number in self._series.items() if number in old - used]:
            del self._series[key], self._labels[number]

    # -- shared ------------------------------------------------------------------------------------------------------

    def transaction(self) -> Transaction:
        """Around changes that belong together."""
        return Transaction(self.database)


class Transaction:
    """All of it or nothing."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def __enter__(self) -> None:
        self._database.execute("begin immediate")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._database.execute("commit")
        finally:
            if self._database.in_transaction:  # SQLite ends some by itself, as when there is no room
                self._database.execute("rollback")


def _unpacked(ids: bytes, numbers: bytes) -> dict[int, float]:
    return dict(zip(array("I", ids), array("d", numbers), strict=True))
