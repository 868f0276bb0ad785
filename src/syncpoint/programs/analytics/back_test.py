"""A back-test: which stored messages a filter, or rules, would have selected, beside all, and beside other ones.

Place: one batch job over `stored_messages`; `syncpoint analyze backtest` prints it. A subscription's filter expression
is judged by the server that would judge it, and rules by `rule_test`, so what is counted is what the subscription would
have received.
Promise: nothing is delivered or acknowledged, and no subscription is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from syncpoint.programs.analytics.rule_test import (
    RULE_COLUMNS,
    CandidateRule,
    RuleOutcome,
    any_selects,
    outcomes,
    with_rules,
)
from syncpoint.programs.analytics.stored_messages import BUCKETS, OnProgress, StoredTopic, bucketed, utc, watched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SAMPLES: Final = 10
"""Messages that are named of each difference, the oldest first."""
COLUMNS: Final = ("message_id", "source", "offset", "publish_time", "size")


@dataclass(frozen=True, slots=True)
class Selected:
    """Messages, the bytes of them as stored, and the ids of the oldest."""

    messages: int
    bytes: int
    samples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JudgedBucket:
    """A stretch of time: all messages, and those selected."""

    begin: datetime
    messages: int
    selected: int


@dataclass(frozen=True, slots=True)
class BackTest:
    """`gained` and `lost`: what the filter selects and the other one does not, and the reverse; None: there is no other
    one.
    """

    topic: str
    filter: str
    against: str
    all: Selected
    selected: Selected
    rejected: Selected
    gained: Selected | None
    lost: Selected | None
    buckets: tuple[JudgedBucket, ...]
    rules: tuple[RuleOutcome, ...] = ()


def back_test(
    spark: SparkSession,
    stored: StoredTopic,
    filter_text: str,
    on_progress: OnProgress,
    *,
    rules: Sequence[CandidateRule] = (),
    against: str | None = None,
    against_rules: Sequence[CandidateRule] = (),
    since: str = "",
) -> BackTest:
    """Judge what is stored, or what was published since a time, by a filter expression ("": all), and by rules, if
    there are any: what one of them selects. `against`: another filter, with rules of its own; None: there is none.
    Raises what Spark raises when the server refuses an expression, and `InvalidArgument` for a rule.
    """
    from pyspark import StorageLevel
    from pyspark.sql import functions as F

    def chosen(text: str, tested: Sequence[CandidateRule], name: str) -> DataFrame:
        columns = RULE_COLUMNS if tested else ("source", "offset")
        frame = stored.frame(spark, columns, begin=since, **({"filter": text} if text else {}))
        if tested:
            frame = with_rules(frame, tested).where(any_selects(tested)).select("source", "offset")
        return frame.withColumn(name, F.lit(True))

    place = ["source", "offset"]
    with watched(spark, on_progress):
        frame = stored.frame(spark, COLUMNS, begin=since).join(chosen(filter_text, rules, "new"), place, "left")
        if against is not None:
            frame = frame.join(chosen(against, against_rules, "old"), place, "left")
        frame = frame.fillna(False).persist(StorageLevel.DISK_ONLY)
        try:
            new = F.col("new")
            made: tuple[RuleOutcome, ...] = ()
            if rules:
                options = {"filter": filter_text} if filter_text else {}
                made = outcomes(with_rules(stored.frame(spark, RULE_COLUMNS, begin=since, **options), rules), rules)
            gained = lost = None
            if against is not None:
                gained = _selected(frame.where(new & ~F.col("old")))
                lost = _selected(frame.where(~new & F.col("old")))
            return BackTest(
                stored.name,
                filter_text,
                against or "",
                _selected(frame, 0),
                _selected(frame.where(new)),
                _selected(frame.where(~new)),
                gained,
                lost,
                _buckets(frame),
                made,
            )
        finally:
            frame.unpersist()


def _selected(frame: DataFrame, samples: int = SAMPLES) -> Selected:
    from pyspark.sql import functions as F

    counted: Any = frame.agg(F.count("*").alias("messages"), F.sum("size").alias("bytes")).first()
    oldest = frame.orderBy("publish_time", "source", "offset").select("message_id").limit(samples).collect()
    return Selected(counted.messages, counted["bytes"] or 0, tuple(row.message_id for row in oldest))


def _buckets(frame: DataFrame) -> tuple[JudgedBucket, ...]:
    from pyspark.sql import functions as F

    begin_us, bucket_us, numbered = bucketed(frame, BUCKETS)
    found = numbered.groupBy("bucket").agg(F.count("*").alias("messages"), F.count_if("new").alias("selected"))
    rows = {row.bucket: row for row in found.collect()}
    return tuple(
        JudgedBucket(
            utc(begin_us + number * bucket_us),
            rows[number].messages if number in rows else 0,
            rows[number].selected if number in rows else 0,
        )
        for number in range(max(rows, default=-1) + 1)
    )
