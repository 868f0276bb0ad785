"""Dead letters as a table: what they say of themselves in columns, counted by cause, and whatever SQL asks of them.

Place: a batch job over a dead-letter topic; `syncpoint analyze letters` prints it.
Promise: nothing is delivered or acknowledged. The content of a letter may come from anybody who may publish to
its topic: a column that cannot be read is NULL, and never an error.
"""

from __future__ import annotations

import base64
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from syncpoint.broker.subscribe.dead_letter import DESCRIPTION, MESSAGE_ID, PREFIX, REASON, SOURCE, TOO_OFTEN
from syncpoint.front.api.letter_texts import REDRIVES
from syncpoint.programs.analytics.stored_messages import ROWS_PER_PARTITION, OnProgress, StoredTopic, utc, watched
from syncpoint.programs.federation.flow_options import access

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

VIEW: Final = "letters"
VIEW_COLUMNS: Final = (
    "letter_id", "time", "subscription", "reason", "description", "original_message_id", "original_time", "attempts",
    "redrives", "ordering_key", "bytes", "attributes", "data",
)  # fmt: skip
"""`time`: when it became a letter; `subscription`: that gave it up; `original_time`: when the message was published."""
COLUMNS: Final = ("message_id", "publish_time", "ordering_key", "attributes", "size", "data")
FORMATS: Final = (".parquet", ".csv")
DESCRIPTIONS: Final = 20
"""That are named, the most frequent ones first."""
ROWS_SHOWN: Final = 1_000
"""Of the result of SQL."""


@dataclass(frozen=True, slots=True)
class LetterCause:
    """Letters of one subscription with one reason. `redriven`: those that were one before; `attempts`: the most that
    one was delivered; `example`: the oldest one's id.
    """

    subscription: str
    reason: str
    letters: int
    first: datetime
    last: datetime
    bytes: int
    largest: int
    attempts: int
    redriven: int
    example: str


@dataclass(frozen=True, slots=True)
class LetterDescription:
    """A group of letters with the same reason and description; `example`: the id of one."""

    reason: str
    description: str
    letters: int
    example: str


@dataclass(frozen=True, slots=True)
class LetterTable:
    """Summary of a dead-letter topic.

    `columns`, `rows`: the first rows of the SQL result; `more`: there are further rows.
    """

    topic: str
    letters: int
    causes: tuple[LetterCause, ...]
    descriptions: tuple[LetterDescription, ...]
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    more: bool = False


def letter_table(
    spark: SparkSession,
    stored: StoredTopic,
    on_progress: OnProgress,
    *,
    subscription: str = "",
    waiting_for: str = "",
    since: str = "",
    sql: str = "",
    out: Path | None = None,
) -> LetterTable:
    """Letters of a topic. `subscription`: of this one alone; `waiting_for`: those that this subscription of the topic
    has not acknowledged; `since`: those of then and later; `sql`: a query over the view `letters`; `out`: a file for
    its result, or for the letters where there is none. Raises what Spark raises for SQL without meaning.
    """
    from pyspark import StorageLevel
    from pyspark.sql import functions as F

    with watched(spark, on_progress):
        frame = letters(spark, stored, subscription=subscription, waiting_for=waiting_for, since=since)
        frame = frame.persist(StorageLevel.DISK_ONLY)
        try:
            frame.createOrReplaceTempView(VIEW)
            found = spark.sql(sql) if sql else None  # before any work: it may have no meaning
            rows = [] if found is None else found.limit(ROWS_SHOWN + 1).collect()
            if out is not None:
                write(frame if found is None else found, out)
            causes = frame.groupBy("subscription", "reason").agg(
                F.count("*").alias("letters"),
                F.unix_micros(F.min("time")).alias("first"), F.unix_micros(F.max("time")).alias("last"),
                F.sum("bytes").alias("bytes"), F.max("bytes").alias("largest"),
                F.coalesce(F.max("attempts"), F.lit(0)).alias("attempts"),
                F.count_if(F.col("redrives") > 0).alias("redriven"), F.min_by("letter_id", "time").alias("example"),
            ).orderBy(F.desc("letters"), "subscription", "reason").collect()  # fmt: skip
            described = frame.where("description <> ''").groupBy("reason", "description").agg(
                F.count("*").alias("letters"), F.min_by("letter_id", "time").alias("example")
            ).orderBy(F.desc("letters"), "reason", "description").limit(DESCRIPTIONS).collect()  # fmt: skip
            return LetterTable(
                stored.name,
                sum(row.letters for row in causes),
                tuple(LetterCause(**row.asDict() | {"first": utc(row.first), "last": utc(row.last)}) for row in causes),
                tuple(LetterDescription(row.reason, row.description, row.letters, row.example) for row in described),
                () if found is None else tuple(found.columns),
                tuple(tuple(map(_plain, row)) for row in rows[:ROWS_SHOWN]),
                len(rows) > ROWS_SHOWN,
            )
        finally:
            spark.catalog.dropTempView(VIEW)
            frame.unpersist()


def letters(
    spark: SparkSession, stored: StoredTopic, *, subscription: str = "", waiting_for: str = "", since: str = ""
) -> DataFrame:
    """The columns of the view."""
    from pyspark.sql import functions as F

    if waiting_for:
        options = {
            **access(stored.server), "subscription": waiting_for, "columns": ",".join(COLUMNS),
            "maxRowsPerPartition": str(ROWS_PER_PARTITION),
        }  # fmt: skip
        frame = spark.read.format("pubsub").options(**options).load()
        frame = frame.where(F.col("publish_time") >= F.to_timestamp(F.lit(since))) if since else frame
    else:
        frame = stored.frame(spark, COLUMNS, begin=since)

    def attribute(name: str) -> Column:
        return F.nullif(F.try_element_at("attributes", F.lit(name)), F.lit(""))

    def number(name: str) -> Column:
        return attribute(name).try_cast("int")

    project, name = attribute(f"{PREFIX}SubscriptionProject"), attribute(f"{PREFIX}Subscription")
    written = F.concat(F.lit("projects/"), project, F.lit("/subscriptions/"), name)
    too_often = F.when(attribute(f"{PREFIX}DeliveryCount").isNotNull(), TOO_OFTEN)
    table = frame.select(
        F.col("message_id").alias("letter_id"),
        F.col("publish_time").alias("time"),
        F.coalesce(attribute(SOURCE), written, F.lit("")).alias("subscription"),
        F.coalesce(attribute(REASON), too_often, F.lit("")).alias("reason"),
        F.coalesce(attribute(DESCRIPTION), F.lit("")).alias("description"),
        attribute(MESSAGE_ID).alias("original_message_id"),
        F.try_to_timestamp(attribute(f"{PREFIX}TopicPublishTime")).alias("original_time"),
        number(f"{PREFIX}DeliveryCount").alias("attempts"),
        number(REDRIVES).alias("redrives"),
        "ordering_key",
        F.col("size").alias("bytes"),
        "attributes",
        "data",
    )
    return table.where(F.col("subscription") == subscription) if subscription else table


def write(frame: DataFrame, out: Path) -> None:
    """One file of these rows, by its suffix one of `FORMATS`; it is there as a whole, or not at all. In CSV attributes
    and other nested values are JSON, and data is text where it is text, else base64.
    """
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as folder:
        target = str(Path(folder) / "table")
        if out.suffix == ".csv":
            frame.select(*_flat(frame)).coalesce(1).write.option("header", True).option("escape", '"').csv(target)
        else:
            frame.coalesce(1).write.parquet(target)
        (part,) = Path(target).glob(f"part-*{out.suffix}*")
        shutil.move(part, out)


def _plain(value: Any) -> Any:
    """A value of Spark's as people and JSON have it: bytes are text where they are, else base64."""
    if isinstance(value, bytes | bytearray):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, tuple) and hasattr(value, "asDict"):
        return {name: _plain(one) for name, one in value.asDict().items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _flat(frame: DataFrame) -> Sequence[Column]:
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, BinaryType, MapType, StructType

    found = []
    for described in frame.schema.fields:
        column = F.col(f"`{described.name}`")
        if isinstance(described.dataType, BinaryType):
            column = F.when(F.is_valid_utf8(column.cast("string")), column.cast("string")).otherwise(F.base64(column))
        elif isinstance(described.dataType, ArrayType | MapType | StructType):
            column = F.to_json(column)
        found.append(column.alias(described.name))
    return found
