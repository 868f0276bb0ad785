"""A metadata store in one SQLite file: the default of a server on one machine.

Place: on such a server a replica of what the log holds, plus the identities of the installation.
Promise: the contract, across restarts and crashes; one process at a time (the file stays locked). With `durable` a
transaction is on the disk before the call returns; without it a crash of the machine may lose the last few, whole ones.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from syncpoint.base.runtime.clock import Clock
from syncpoint.base.runtime.random import Random
from syncpoint.catalog.metadata.contract import Event, Indeterminate, KeyValue, StoreUnavailable
from syncpoint.catalog.metadata.embedded import PREFIX_END, EmbeddedStore, Written

FORMAT = 1

_SCHEMA = """
create table about(name text primary key, value) without rowid;
create table items(
    key text primary key, value blob not null, create_revision integer not null, revision integer not null,
    version integer not null, lease integer
) without rowid;
create index leased on items(lease) where lease is not null;
create table events(revision integer not null, key text not null, value blob, primary key(revision, key)) without rowid;
create table leases(id integer primary key, ttl_s real not null);
"""
_COLUMNS = "key, value, create_revision, revision, version, lease"


class _Sqlite(Written):
    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def read(self, key: str) -> KeyValue | None:
        row = self._query(f"select {_COLUMNS} from items where key = ?", (key,)).fetchone()
        return None if row is None else KeyValue(*row)

    def read_range(self, begin: str, after: bool, end: str, limit: int) -> list[KeyValue]:
        relation = ">" if after else ">="
        query = f"select {_COLUMNS} from items where key {relation} ? and key < ? order by key limit ?"
        return [KeyValue(*row) for row in self._query(query, (begin, end, limit))]

    def write(
        self, revision: int, puts: Sequence[KeyValue], deletes: Sequence[str], leases: dict[int, float | None]
    ) -> None:
        run = self.connection.execute
        try:
            run("begin immediate")
            for put in puts:
                run(f"insert or replace into items({_COLUMNS}) values (?, ?, ?, ?, ?, ?)", put)
                run("insert into events values (?, ?, ?)", (revision, put.key, put.value))
            for key in deletes:
                run("delete from items where key = ?", (key,))
                run("insert into events values (?, ?, null)", (revision, key))
            for number, ttl_s in leases.items():
                if ttl_s is None:
                    run("delete from leases where id = ?", (number,))
                else:
                    run("insert into leases values (?, ?)", (number, ttl_s))
            run("insert or replace into about values ('revision', ?)", (revision,))
        except sqlite3.Error as error:
            self._roll_back()
            raise StoreUnavailable(str(error)) from error
        self.commit()

    def commit(self) -> None:
        """The one step whose failure leaves the outcome open."""
        try:
            self.connection.execute("commit")
        except sqlite3.Error as error:
            self._roll_back()
            raise Indeterminate(str(error)) from error

    def _roll_back(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            if self.connection.in_transaction:
                self.connection.execute("rollback")

    def newest(self) -> int:
        return int(self.about().get("revision", 0))

    def events(self, prefix: str, from_revision: int, limit: int) -> list[Event]:
        where = "from events where revision >= ? and key >= ? and key < ?"
        bounds = (from_revision, prefix, prefix + PREFIX_END)
        order = "order by revision, key limit ?"
        found = [Event(*row) for row in self._query(f"select * {where} {order}", (*bounds, limit))]
        if len(found) == limit:  # the rest of the last revision, however large
            last = found[-1]
            rest = self._query(f"select * {where} and revision = ? and key > ?", (*bounds, last.revision, last.key))
            found += [Event(*row) for row in rest]
        return found

    def compact(self, before: int) -> None:
        try:
            self.connection.execute("begin immediate")
            self.connection.execute("delete from events where revision < ?", (before,))
            self.connection.execute("insert or replace into about values ('compacted', ?)", (before,))
        except sqlite3.Error as error:
            self._roll_back()
            raise StoreUnavailable(str(error)) from error
        self.commit()

    def size(self) -> tuple[int, int]:
        (keys,) = self._query("select count(*) from items").fetchone()
        (pages,) = self._query("pragma page_count").fetchone()
        (page_size,) = self._query("pragma page_size").fetchone()
        return keys, pages * page_size

    def _query(self, query: str, values: tuple[object, ...] = ()) -> sqlite3.Cursor:
        try:
            return self.connection.execute(query, values)
        except sqlite3.Error as error:
            raise StoreUnavailable(str(error)) from error

    def about(self) -> dict[str, int | str]:
        """Facts about the store itself."""
        return dict(self._query("select name, value from about").fetchall())

    def leases(self) -> dict[int, float]:
        """Leases that had not ended when the store was last open: id -> length in seconds."""
        return dict(self._query("select id, ttl_s from leases").fetchall())


class SqliteStore(EmbeddedStore):
    """A store in a file, which is created when missing.

    Raises `StoreUnavailable` when the file cannot be opened, is used by another process, or is of another format.
    """

    def __init__(self, path: Path, *, clock: Clock, random: Random, durable: bool = True) -> None:
        try:
            kept = _Sqlite(_open(path, random, durable))
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{path}: {error}") from error
        self._sqlite = kept
        about = kept.about()
        if about["format"] != FORMAT:
            kept.connection.close()
            raise StoreUnavailable(f"{path}: written in format {about['format']}, this version reads {FORMAT}")
        revision, compacted = int(about.get("revision", 0)), int(about.get("compacted", 0))
        super().__init__(kept, clock, str(about["cluster_id"]), revision, compacted, kept.leases())

    def close(self) -> None:
        super().close()
        self._sqlite.connection.close()


def _open(path: Path, random: Random, durable: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, timeout=0, check_same_thread=False)
    try:
        run = connection.execute
        run("pragma locking_mode = exclusive")
        run("pragma journal_mode = wal")
        run(f"pragma synchronous = {'full' if durable else 'normal'}")
        run("begin immediate")  # takes the lock that is then kept for good
        if run("select count(*) from sqlite_master").fetchone() == (0,):
            for statement in _SCHEMA.split(";"):
                run(statement)
            run("insert into about values ('format', ?), ('cluster_id', ?)", (FORMAT, random.token(16).hex()))
        run("commit")
    except BaseException:
        connection.close()
        raise
    return connection
