"""Reference tables: folders of Parquet, CSV or JSON as frames that Spark keeps in memory, and reads again when they
change.

Place: under `enriching`; on Spark's driver. A stream joins each of its batches with what is in memory. One thread for a
session checks the folders, each as often as asked for; when names, sizes or times of its files differ, Spark is asked
to read the folder anew, which it does with the next batch. A batch sees one state of a table.
Promise: a table has one row for each key, so a join adds no rows: of several rows the greatest counts, by the columns
taken in their order.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from syncpoint.base.model.errors import FailedPrecondition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOOK_S = 0.5
READING: dict[str, dict[str, str]] = {
    "csv": {"header": "true", "escape": '"', "multiLine": "true"},  # as RFC 4180 has it; all is text
    "json": {},
    "parquet": {},
}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reference:
    """A table: its folder (or file), how it is read, its key columns, the columns taken, how often it is checked, and
    the types of columns that are not to be as they are read, by column; a value that is none of its type is empty.
    """

    path: Path
    kind: str
    keys: tuple[str, ...]
    take: tuple[str, ...]
    refresh_s: float
    types: tuple[tuple[str, str], ...] = ()


Signature = tuple[tuple[str, int, int], ...]


@dataclass(slots=True)
class _Kept:
    frame: DataFrame
    signature: Signature
    refresh_s: float
    look_at: float = 0.0


@dataclass(slots=True)
class ReferenceTables:
    """The tables of one application of Spark."""

    spark: SparkSession
    _kept: dict[Reference, _Kept] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _thread: threading.Thread | None = None

    def frame(self, reference: Reference) -> DataFrame:
        """The table with one row for each key; its columns are k0, k1 ... as text and v0, v1 ... as read. Raises
        `FailedPrecondition` when it lacks a column, or has one that is not a scalar.
        """
        with self._lock:
            kept = self._kept.get(reference)
            if kept is None:
                signature = signature_of(reference.path)  # before it is read, so that what changes now is seen later
                kept = self._kept[reference] = _Kept(self._read(reference), signature, reference.refresh_s)
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="reference-tables", daemon=True)
                self._thread.start()
        return kept.frame

    def look(self, now: float) -> list[Path]:
        """Have Spark read again what has changed, of the tables whose time has come; their folders."""
        changed = []
        with self._lock:
            for reference, kept in self._kept.items():
                if now < kept.look_at:
                    continue
                kept.look_at = now + kept.refresh_s
                signature = signature_of(reference.path)
                if signature == kept.signature:
                    continue
                if not signature:
                    log.warning(
                        "reference table %s: the folder is empty or missing; keeping the last state", reference.path
                    )
                    continue
                self.spark.catalog.refreshByPath(str(reference.path))
                kept.signature = signature
                changed.append(reference.path)
        return changed

    def _read(self, reference: Reference) -> DataFrame:
        from pyspark.sql.functions import col, struct
        from pyspark.sql.functions import max as max_of

        reader = self.spark.read.format(reference.kind).options(**READING[reference.kind])
        table = reader.load(str(reference.path))
        kinds = dict(table.dtypes)
        for name in (*reference.keys, *reference.take, *(name for name, _ in reference.types)):
            if name not in kinds:
                raise FailedPrecondition(
                    f"the table {reference.path} has no column {name}; it has {', '.join(table.columns)}"
                )
            if kinds[name].startswith(("struct", "array", "map")):
                raise FailedPrecondition(f"the column {name} of the table {reference.path} is not a scalar")
        table = table.withColumns({name: col(f"`{name}`").try_cast(kind) for name, kind in reference.types})
        keys = [col(f"`{name}`").cast("string").alias(f"k{i}") for i, name in enumerate(reference.keys)]
        values = struct(*(col(f"`{name}`").alias(f"v{i}") for i, name in enumerate(reference.take)))
        one_each = table.groupBy(*keys).agg(max_of(values).alias("v"))
        return one_each.select(*(f"k{i}" for i in range(len(keys))), "v.*").cache()

    def _watch(self) -> None:
        while self.spark.sparkContext._jsc is not None:  # None: Spark was stopped
            time.sleep(LOOK_S)
            try:
                for path in self.look(time.monotonic()):
                    log.info("reference table %s has changed; reading it again", path)
            except Exception:  # a folder that cannot be listed, or Spark is ending: the next look tries again
                log.exception("reference tables cannot be checked")


def signature_of(path: Path) -> Signature:
    """Names, sizes and times of the files of a table; as for Spark, none that begins with a dot or an underscore."""
    files = [path] if path.is_file() else sorted(path.rglob("*")) if path.is_dir() else []
    found = []
    for one in files:
        if one.name.startswith((".", "_")):
            continue
        try:
            stat = one.stat()
        except FileNotFoundError:
            continue  # replaced just now: the next look sees it
        if one.is_file():
            found.append((str(one), stat.st_size, stat.st_mtime_ns))
    return tuple(found)


_TABLES: dict[str, ReferenceTables] = {}


def tables_of(spark: SparkSession) -> ReferenceTables:
    """The tables of the application that a session belongs to: what Spark keeps in memory, it keeps for all of them."""
    return _TABLES.setdefault(spark.sparkContext.applicationId, ReferenceTables(spark))
