"""The metadata store of a node, opened so that no state of its file keeps the server down.

Everything in it is held elsewhere, too: the catalog in the log, universe, log counter and identities of disks on the
disks. A damaged file is therefore set aside, not repaired; a lost or an old one is brought up to date.
"""

import logging
import os
import sqlite3
from contextlib import closing
from pathlib import Path

from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.base.runtime.clock import Clock
from syncpoint.base.runtime.random import Random
from syncpoint.broker.publish.facts.recovery import RecoveredState
from syncpoint.catalog.metadata.contract import StoreError, StoreUnavailable
from syncpoint.catalog.metadata.mirror import CatalogMirror
from syncpoint.catalog.metadata.sqlite import SqliteStore

log = logging.getLogger(__name__)

_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_FILES = ("", "-wal", "-shm")


def open_metadata(path: Path, clock: Clock, random: Random) -> SqliteStore:
    """The store at `path`, a new one if there is none or a damaged one. Raises `FailedPrecondition` when
    another process holds it or it is of another format.
    """
    problem = damage(path)
    if problem is not None:
        aside = path.with_name(path.name + ".damaged")
        log.warning("%s is damaged (%s); it is kept as %s and rebuilt from the log", path, problem, aside.name)
        for end in _FILES:
            Path(f"{aside}{end}").unlink(missing_ok=True)
            if Path(f"{path}{end}").exists():
                os.replace(f"{path}{end}", f"{aside}{end}")
    try:
        return SqliteStore(path, clock=clock, random=random, durable=False)
    except StoreUnavailable as error:
        raise FailedPrecondition(f"the metadata file cannot be used: {error}") from error


def damage(path: Path) -> str | None:
    """What is wrong with the file, in SQLite's words; None when it is good, absent, or locked."""
    if not path.exists():
        return None
    try:
        with closing(sqlite3.connect(path, timeout=0)) as connection:
            (found,) = connection.execute("pragma quick_check(1)").fetchone()
            tables = connection.execute("select count(*) from sqlite_master where name = 'about'").fetchone()
            if found == "ok" and tables != (0,) and connection.execute("select * from about").fetchone() is None:
                return "the format is missing"
    except sqlite3.DatabaseError as error:
        return str(error) if error.sqlite_errorcode & 0xFF in _DAMAGED else None
    return None if found == "ok" else str(found)


def align(mirror: CatalogMirror, memory: RecoveredState) -> None:
    """Bring the catalog's copy to where the log is: by the changes it misses if the log's tail has them, or anew. One
    that cannot be written keeps nobody from being served: the log is the truth."""
    try:
        _bring(mirror, memory)
    except (StoreError, sqlite3.Error, ValueError, OSError) as error:
        mirror.give_up(error)
        log.error(
            "metadata.sqlite, a copy of the catalog, is not updated until the next start; the log has everything: %s",
            error,
        )


def _bring(mirror: CatalogMirror, memory: RecoveredState) -> None:
    if not mirror.agrees(memory.catalog):
        missing = [change for change in memory.changes if change.revision > mirror.revision]
        if mirror.revision and missing and missing[0].revision == mirror.revision + 1:
            mirror.note(missing)
            mirror.flush()
        else:
            mirror.rebuild(memory.catalog)
