"""Service level indicators of a topic from its delivery records: how long messages took, and how many were in time.

Place: a batch job over `recorded_topic`; `syncpoint analyze slis` prints it. `docs/operations/slis.md` has indicators
that a server counts as it goes; these are worked out afterwards, for each subscription and day, from each message.
Promise: times are between two records. Where clocks of processes differ, one below zero counts as zero. A message that
was published before recording began is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from syncpoint.broker.recording.record_kinds import ACKNOWLEDGED, DEAD_LETTERED, DELIVERED, PUBLISHED
from syncpoint.programs.analytics.recorded_topic import RecordedTopic, record_messages, recorded_offsets, recorded_runs
from syncpoint.programs.analytics.stored_messages import BUCKET_LEAST_US, BUCKETS, OnProgress, utc, watched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ACCURACY: Final = 1_000
"""Percentiles are within a thousandth of their rank."""
PARTS: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True, slots=True)
class DeliverySli:
    """Delivery latencies of one subscription on one day in UTC; of the topic itself, if `subscription` is "".

    Milliseconds run from the publish to the first delivery (for the topic, until the message is persisted). `within`:
    the share of messages within the target. `again`: messages delivered more than once; `acknowledged_ms`: the median
    from the first delivery to the acknowledgement.
    """

    day: str
    subscription: str
    messages: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float
    within: float
    again: int = 0
    acknowledged: int = 0
    acknowledged_ms: float | None = None
    dead_lettered: int = 0


@dataclass(frozen=True, slots=True)
class SubscriptionLag:
    """How many messages waited for a subscription at the ends of stretches of time: `waiting` were published and not
    delivered yet, `outstanding` delivered and not acknowledged yet. Those that were never delivered are in neither.
    """

    subscription: str
    waiting: tuple[int, ...]
    outstanding: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DeliverySlis:
    """Delivery latencies of a topic. `target_ms`: the target of `within`; `times`: the ends of the stretches of time of
    `lags`.
    """

    topic: str
    target_ms: float
    rows: tuple[DeliverySli, ...]
    times: tuple[datetime, ...] = ()
    lags: tuple[SubscriptionLag, ...] = ()


def delivery_slis(
    spark: SparkSession, topic: RecordedTopic, on_progress: OnProgress, *, target_s: float = 1.0
) -> DeliverySlis:
    """Indicators by subscription and day. Raises `SyncpointError` when the server refuses."""
    from pyspark import StorageLevel
    from pyspark.sql import functions as F

    def first(kind: str) -> Any:
        return F.min(F.when(F.col("kind") == kind, F.col("at")))

    def took(begin: str, end: str) -> Any:
        return F.greatest(F.lit(0), F.col(end) - F.col(begin)) / 1000

    with watched(spark, on_progress):
        offsets = recorded_offsets(recorded_runs(record_messages(spark, topic))).persist(StorageLevel.DISK_ONLY)
        try:
            published = offsets.where(F.col("kind") == PUBLISHED).groupBy("source", "offset").agg(
                F.min("published").alias("published_us"), F.min("at").alias("persisted_us")
            )  # fmt: skip
            copies = offsets.where("subscription <> ''").groupBy("source", "offset", "lane", "subscription").agg(
                first(DELIVERED).alias("delivered_us"),
                first(ACKNOWLEDGED).alias("acknowledged_us"),
                first(DEAD_LETTERED).alias("dead_us"),
                F.count_if(F.col("kind") == DELIVERED).alias("times"),
            )  # fmt: skip
            nothing = F.lit(None).cast("bigint")
            of_topic = published.select(
                "published_us", F.lit("").alias("subscription"), took("published_us", "persisted_us").alias("ms"),
                F.lit(1).alias("times"), nothing.alias("delivered_us"), nothing.alias("acknowledged_us"),
                nothing.alias("dead_us"),
            )  # fmt: skip
            of_each = published.join(copies, ["source", "offset"]).where("delivered_us IS NOT NULL").select(
                "published_us", "subscription", took("published_us", "delivered_us").alias("ms"), "times",
                "delivered_us", "acknowledged_us", "dead_us",
            )  # fmt: skip
            day = F.date_format(F.timestamp_micros("published_us"), "yyyy-MM-dd").alias("day")
            rows = of_topic.unionByName(of_each).groupBy(day, "subscription").agg(
                F.count("*").alias("messages"),
                *(F.percentile_approx("ms", part, ACCURACY).alias(name) for name, part in PARTS.items()),
                F.max("ms").alias("max"),
                F.avg((F.col("ms") <= 1000 * target_s).cast("double")).alias("within"),
                F.count_if(F.col("times") > 1).alias("again"),
                F.count("acknowledged_us").alias("acknowledged"),
                F.percentile_approx(took("delivered_us", "acknowledged_us"), 0.5, ACCURACY).alias("acknowledged_ms"),
                F.count("dead_us").alias("dead"),
            ).orderBy("day", "subscription").collect()  # fmt: skip
            times, lags = _lags(of_each)
        finally:
            offsets.unpersist()
    return DeliverySlis(
        topic.name,
        1000 * target_s,
        tuple(
            DeliverySli(
                row.day, row.subscription, row.messages, row.p50, row.p95, row.p99, row.max, row.within, row.again,
                row.acknowledged, row.acknowledged_ms, row.dead,
            )
            for row in rows
        ),
        times,
        lags,
    )  # fmt: skip


def _lags(copies: DataFrame) -> tuple[tuple[datetime, ...], tuple[SubscriptionLag, ...]]:
    """What waited over time, from when each copy was published, delivered and acknowledged."""
    from pyspark.sql import functions as F

    kinds = ("published_us", "delivered_us", "acknowledged_us")
    ends: Any = copies.agg(F.min(kinds[0]).alias("first"), F.greatest(*map(F.max, kinds)).alias("last")).first()
    if ends.first is None:
        return (), ()
    step = max(BUCKET_LEAST_US, -(-(ends.last - ends.first + 1) // BUCKETS))
    count = (ends.last - ends.first) // step + 1
    moment = F.explode(F.array(*(F.struct(F.lit(kind).alias("kind"), F.col(kind).alias("us")) for kind in kinds)))
    bucket = F.floor((F.col("moment.us") - ends.first) / step).alias("bucket")
    counted = (
        copies.select("subscription", moment.alias("moment")).where("moment.us IS NOT NULL")
        .groupBy("subscription", "moment.kind", bucket).count().collect()
    )  # fmt: skip
    changes = {name: {kind: [0] * count for kind in kinds} for name in sorted({row.subscription for row in counted})}
    for row in counted:
        changes[row.subscription][row.kind][max(0, row.bucket)] += row["count"]
    lags = []
    for name, of_kind in changes.items():
        published, delivered, acknowledged = (list(accumulate(of_kind[kind])) for kind in kinds)
        lags.append(
            SubscriptionLag(
                name,
                tuple(max(0, one - two) for one, two in zip(published, delivered, strict=True)),
                tuple(max(0, one - two) for one, two in zip(delivered, acknowledged, strict=True)),
            )
        )
    return tuple(utc(ends.first + (i + 1) * step) for i in range(count)), tuple(lags)
