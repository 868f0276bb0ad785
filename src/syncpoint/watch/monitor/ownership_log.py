"""Who had which chain open, and since when: changes of owners, kept for two weeks beside history.

Place: written by the process that watches over a cluster, as its view of the metadata changes; one thread.
Promise: what happened while nobody looked is found at the next look, and marked: its time is when it was found.
Bounded: two weeks, and `CHANGES_MAX`; the newest change of each chain stays.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Final, NamedTuple

KEPT_S: Final = 14 * 86_400.0
CHANGES_MAX: Final = 50_000
_SCHEMA: Final = """
create table if not exists owners(number integer primary key, at_s real not null, chain integer not null,
  epoch integer not null, owner text not null, late integer not null);
create index if not exists owners_of on owners(chain, number);
"""
_LAST: Final = "select max(number) from owners group by chain"


class ChainHolder(NamedTuple):
    """From `at_s` on a chain was held by `owner`; "": by nobody. `late`: it was found then, and happened before."""

    at_s: float
    chain: int
    epoch: int
    owner: str
    late: bool = False


class OwnershipLog:
    """Record which process owned each chain, and since when. `database`: without a transaction under way."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._database.executescript(_SCHEMA)

    def note(self, holders: Iterable[ChainHolder]) -> None:
        """Who holds these chains now; what is known already is not written again."""
        known = {one.chain: one for one in self._read(f"number in ({_LAST})")}
        new = []
        for one in holders:
            before = known.get(one.chain)
            if before is None or (before.epoch, before.owner) != (one.epoch, one.owner):
                epoch = max(one.epoch, before.epoch if before is not None else 0)
                known[one.chain] = one._replace(epoch=epoch)
                new.append(known[one.chain])
        if not new:
            return
        insert = "insert into owners(at_s, chain, epoch, owner, late) values(?, ?, ?, ?, ?)"
        self._database.execute("begin immediate")
        try:
            self._database.executemany(insert, new)
            old = f"number not in ({_LAST}) and (at_s < ? or number <= (select max(number) from owners) - ?)"
            self._database.execute(f"delete from owners where {old}", (new[-1].at_s - KEPT_S, CHANGES_MAX))
        except sqlite3.Error:
            self._database.execute("rollback")
            raise
        self._database.execute("commit")

    def last(self) -> dict[int, ChainHolder]:
        """By chain, the newest that is known."""
        return {one.chain: one for one in self._read(f"number in ({_LAST})")}

    def since(self, begin_s: float) -> list[ChainHolder]:
        """In the order of their times; of each chain also the last one before."""
        before = "number in (select max(number) from owners where at_s < ? group by chain)"
        return self._read(f"at_s >= ? or {before}", begin_s, begin_s)

    @property
    def kept_since_s(self) -> float:
        """When the oldest change that is kept was; 0: there is none."""
        found = self._database.execute("select min(at_s) from owners").fetchone()[0]
        return float(found or 0.0)

    def _read(self, where: str, *values: float) -> list[ChainHolder]:
        query = f"select at_s, chain, epoch, owner, late from owners where {where} order by at_s, number"
        return [
            ChainHolder(at_s, chain, epoch, owner, bool(late))
            for at_s, chain, epoch, owner, late in self._database.execute(query, values)
        ]
