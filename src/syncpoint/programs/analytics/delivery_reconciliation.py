"""Reconciliation of deliveries: whether each message of a topic was kept, and got to each subscription as it should.

Place: a batch job over a topic's log and its delivery records; `syncpoint analyze deliveries` prints it. What the log
holds is read, message by message; what was done with it is what forwarders have recorded.
Promise: an anomaly has the message's id, its kind, the hop it happened on, and the subscription. What may be explained
by records that are missing is counted as not known, and never called an anomaly; nor is what a topic does not keep.

Kinds: `lost` (recorded as persisted, and not in the log any more, or in no good order on any disk), `twice` (two
messages in the log have one id), `unrecorded` (in the log, and nobody has recorded it), `never delivered` (later
messages of its source, and of its key where keys are ordered, were delivered long ago), `acknowledged without
delivery`, `delivered after acknowledgement`, `delivered twice` (while its first lease had not ended).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from syncpoint.broker.recording.record_gaps import CLOCKS_US, RecordGap
from syncpoint.broker.recording.record_kinds import ACKNOWLEDGED, DELIVERED, OVER, RETURNED, STORED, VOID
from syncpoint.programs.analytics.recorded_topic import (
    WHOLE_SOURCE,
    RecordedTopic,
    named,
    record_gaps,
    record_messages,
    recorded_offsets,
    recorded_runs,
    stored_rows,
)
from syncpoint.programs.analytics.stored_messages import OnProgress, watched

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

NAMED: Final = 1_000
"""Anomalies of each kind that are named; all are counted."""
HOPS: Final = {
    "lost": "persist",
    "twice": "publish",
    "unrecorded": "publish",
    "never delivered": "deliver",
    "acknowledged without delivery": "acknowledge",
    "delivered after acknowledgement": "deliver",
    "delivered twice": "deliver",
}
"""Where each kind happens, in the order in which they are reported."""
_COPY: Final = ("subscription", "source", "offset", "lane")


@dataclass(frozen=True, slots=True)
class DeliveryAnomaly:
    """One message that was not treated as it should be. `subscription` "": it is about the topic."""

    kind: str
    hop: str
    message_id: str
    subscription: str


@dataclass(frozen=True, slots=True)
class SubscriptionDeliveries:
    """Copies of messages for one subscription: `delivered` at least once, `acknowledged`; `over`: filtered, expired,
    dead-lettered, or before its beginning; `waiting`: none of these yet.
    """

    subscription: str
    delivered: int
    acknowledged: int
    over: int
    waiting: int


@dataclass(frozen=True, slots=True)
class DeliveryReconciliation:
    """Result of checking a topic's log against its delivery records.

    Numbers of messages: `stored` in the log, `recorded` as persisted or found there, `gone` (recorded, and past the
    topic's retention). `unknown`: possible anomalies that missing records may explain.
    """

    topic: str
    stored: int
    recorded: int
    gone: int
    unknown: int
    subscriptions: tuple[SubscriptionDeliveries, ...]
    gaps: tuple[RecordGap, ...]
    counts: dict[str, int]
    anomalies: tuple[DeliveryAnomaly, ...]

    @property
    def clean(self) -> bool:
        """Whether no anomaly was found."""
        return not any(self.counts.values())


def reconcile_deliveries(
    spark: SparkSession, topic: RecordedTopic, on_progress: OnProgress, *, grace_s: float = 60.0, margin_s: float = 1.0
) -> DeliveryReconciliation:
    """Compare what a topic stores with what was recorded of it. `grace_s`: time for which an earlier message may come
    after a later one, and records after what they are of; `margin_s`: a delivery that was recorded so soon after the
    acknowledgement may have been before it, by another clock. Raises `SyncpointError` when a server refuses.
    """
    from pyspark import StorageLevel
    from pyspark.sql import functions as F

    old_us = int((time.time() - grace_s) * 1e6)
    with watched(spark, on_progress):
        rows = stored_rows(spark, topic)
        messages = record_messages(spark, topic).persist(StorageLevel.DISK_ONLY)
        since_us, gaps = record_gaps(messages)
        runs = recorded_runs(messages).persist(StorageLevel.DISK_ONLY)
        offsets = recorded_offsets(runs).persist(StorageLevel.DISK_ONLY)
        found = offsets.where(F.col("kind").isin(*STORED)).groupBy("source", "offset").agg(
            F.min("published").alias("recorded_us"), F.min("at").alias("found_us")
        )  # fmt: skip
        log = rows.join(found, ["source", "offset"], "full").persist(StorageLevel.DISK_ONLY)
        copies = _copies(log, offsets, topic).persist(StorageLevel.DISK_ONLY)
        try:
            judged = _of_log(log, topic, since_us, old_us).unionByName(_of_copies(copies, old_us))
            for one in (_after_acknowledgement(offsets, int(margin_s * 1e6)), _delivered_twice(offsets, runs)):
                judged = judged.unionByName(_with_ids(one, log, topic))
            judged = judged.withColumn("excused", _excused(gaps)).persist(StorageLevel.DISK_ONLY)
            bad = judged.where("kind <> 'gone' AND NOT excused")
            counts = {row.kind: row["count"] for row in bad.groupBy("kind").count().collect()}
            anomalies: list[DeliveryAnomaly] = []
            for kind, hop in HOPS.items():
                if counts.get(kind):
                    shown = bad.where(F.col("kind") == kind).orderBy("message_id", "subscription").limit(NAMED)
                    anomalies += [
                        DeliveryAnomaly(kind, hop, row.message_id, row.subscription) for row in shown.collect()
                    ]
            whole: Any = log.agg(
                F.count("message_id").alias("stored"),
                F.count_if(F.coalesce("recorded_us", "found_us").isNotNull()).alias("recorded"),
            ).first()
            return DeliveryReconciliation(
                topic.name,
                whole.stored,
                whole.recorded,
                judged.where("kind = 'gone'").count(),
                judged.where("kind <> 'gone' AND excused").count(),
                _by_subscription(copies),
                tuple(gaps),
                {kind: counts.get(kind, 0) for kind in HOPS},
                tuple(anomalies),
            )
        finally:
            for frame in (rows, messages, runs, offsets, log, copies):
                frame.unpersist()


def _of_log(log: DataFrame, topic: RecordedTopic, since_us: int, old_us: int) -> DataFrame:
    """What is wrong between the log and the records: kind, message_id, subscription, from_us, to_us."""
    from pyspark.sql import functions as F

    at = F.coalesce("published", "recorded_us", "found_us")
    kept_us = int((time.time() - topic.retention_s) * 1e6) + 2 * CLOCKS_US
    ends = {one.source: one.end for one in topic.stored.ranges}
    # What was published after the log was asked where it ends is not among the rows, and not lost.
    asked = F.lit(False)
    for source, end in ends.items():
        asked = asked | ((F.col("source") == source) & (F.col("offset") < end))
    known = sorted(ends)
    recorded = F.coalesce("recorded_us", "found_us").isNotNull()
    lost = F.col("message_id").isNull() & (asked | (~F.col("source").isin(known) if known else F.lit(True)))
    kept = (at >= kept_us) if topic.retention_s else F.lit(False)
    twice = F.count("message_id").over(_window("message_id")) > 1
    kind = (
        F.when(lost & kept, "lost")
        .when(lost, "gone")
        .when(F.col("message_id").isNotNull() & twice, "twice")
        .when(F.col("message_id").isNotNull() & ~recorded & at.between(since_us + CLOCKS_US, old_us), "unrecorded")
    )
    frame = log.withColumn("kind", kind).where("kind IS NOT NULL")
    return frame.select(
        "kind", named(topic).alias("message_id"), F.lit("").alias("subscription"), at.alias("from_us"),
        F.when(F.col("kind") == "unrecorded", at + CLOCKS_US).otherwise(F.lit(None).cast("bigint")).alias("to_us"),
    )  # fmt: skip


def _copies(log: DataFrame, offsets: DataFrame, topic: RecordedTopic) -> DataFrame:
    """A row for each copy of a stored message that a subscription is to have, or has had, in its newest generation;
    `key`: it comes after others of this key.
    """
    from pyspark.sql import functions as F

    def first(condition: Column) -> Column:
        return F.min(F.when(condition, F.col("at")))

    of_subscription = offsets.where("subscription <> ''")
    newest = of_subscription.groupBy("subscription").agg(F.max("generation").alias("newest"))
    kind = F.col("kind")
    current = of_subscription.join(F.broadcast(newest), "subscription").where(
        (F.col("generation") == F.col("newest")) | (kind == VOID)
    )
    happened = current.groupBy(*_COPY).agg(
        first(kind == DELIVERED).alias("delivered_us"),
        first(kind == ACKNOWLEDGED).alias("acknowledged_us"),
        first(kind.isin(*OVER)).alias("over_us"),
    )
    # Of what was stored when recording began nobody knows since when subscribers had it.
    since_us = F.when(F.col("recorded_us").isNull(), 0).otherwise(F.coalesce("published", "recorded_us"))
    stored = log.where("message_id IS NOT NULL").select(
        "source", "offset", "message_id", "ordering_key", since_us.alias("since_us")
    )
    spark = log.sparkSession
    living = spark.createDataFrame([(one,) for one in topic.subscriptions], "subscription string")
    plain = stored.crossJoin(F.broadcast(living)).withColumn("lane", F.lit(0))
    other = happened.where("lane <> 0").join(stored, ["source", "offset"])
    both = plain.select(*_COPY, "message_id", "ordering_key", "since_us").unionByName(
        other.select(*_COPY, "message_id", "ordering_key", "since_us")
    )
    ordered = F.col("subscription").isin(*topic.ordered) if topic.ordered else F.lit(False)
    both = both.withColumn("key", F.when(ordered, F.coalesce("ordering_key", F.lit(""))).otherwise(""))
    return both.join(happened, list(_COPY), "left").withColumn(
        "lane_known", F.max("lane").over(_window("subscription", "source", "offset")) > 0
    )


def _of_copies(copies: DataFrame, old_us: int) -> DataFrame:
    """What is wrong with a copy: kind, message_id, subscription, from_us, to_us."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    later = (
        Window.partitionBy("subscription", "source", "lane", "key")
        .orderBy("offset")
        .rowsBetween(1, Window.unboundedFollowing)
    )
    nothing = F.col("delivered_us").isNull() & F.col("over_us").isNull()
    passed = F.min("delivered_us").over(later) < old_us
    kind = F.when(nothing & (F.col("acknowledged_us") < old_us), "acknowledged without delivery").when(
        nothing & F.col("acknowledged_us").isNull() & passed & ~F.col("lane_known"), "never delivered"
    )
    to_us = F.coalesce("acknowledged_us", F.lit(int(time.time() * 1e6)))
    return (
        copies.withColumn("kind", kind)
        .where("kind IS NOT NULL")
        .select("kind", "message_id", "subscription", F.col("since_us").alias("from_us"), to_us.alias("to_us"))
    )


def _after_acknowledgement(offsets: DataFrame, margin_us: int) -> DataFrame:
    """Copies that were delivered although their acknowledgement was persisted."""
    from pyspark.sql import functions as F

    key = [*_COPY, "generation"]
    acknowledged = offsets.where(F.col("kind") == ACKNOWLEDGED).groupBy(*key).agg(F.min("at").alias("acknowledged_us"))
    delivered = offsets.where(F.col("kind") == DELIVERED).groupBy(*key).agg(F.max("at").alias("delivered_us"))
    both = acknowledged.join(delivered, key).where(F.col("delivered_us") > F.col("acknowledged_us") + margin_us)
    return both.select(*_COPY, F.lit("delivered after acknowledgement").alias("kind"))


def _delivered_twice(offsets: DataFrame, runs: DataFrame) -> DataFrame:
    """Copies that one forwarder delivered again while they were lent by its own records, and not acknowledged."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    key = [*_COPY, "generation", "writer"]
    order = Window.partitionBy(*key).orderBy("number", "place")
    moves = offsets.where(F.col("kind").isin(DELIVERED, RETURNED))
    before = F.struct(F.lag("kind").over(order).alias("kind"), F.lag("at").over(order).alias("at"))
    again = (
        moves.withColumn("before", before)
        .where((F.col("kind") == DELIVERED) & (F.col("before.kind") == DELIVERED))
        .alias("again")
    )
    revoked = runs.where(F.col("kind") == WHOLE_SOURCE).select(
        "writer", "subscription", "source", "generation", F.col("at").alias("revoked_us")
    )
    on = ["writer", "subscription", "source", "generation"]
    kept = again.join(revoked.alias("revoked"), on, "left").where(
        "revoked_us IS NOT NULL AND revoked_us BETWEEN before.at AND again.at"
    )
    places = [*key, "number", "place"]
    acknowledged = offsets.where(F.col("kind") == ACKNOWLEDGED).groupBy(*_COPY, "generation").agg(
        F.min("at").alias("acknowledged_us")
    )  # fmt: skip
    bad = again.join(kept.select(*places).distinct(), places, "left_anti")
    bad = bad.join(acknowledged, [*_COPY, "generation"], "left").where(
        F.coalesce(F.col("acknowledged_us") > F.col("at"), F.lit(True))
    )
    return bad.select(*_COPY, F.lit("delivered twice").alias("kind")).distinct()


def _with_ids(bad: DataFrame, log: DataFrame, topic: RecordedTopic) -> DataFrame:
    """With the ids of their messages; what was recorded twice is never excused by what was not."""
    from pyspark.sql import functions as F

    found = bad.join(log.select("source", "offset", "message_id"), ["source", "offset"], "left")
    none = F.lit(None).cast("bigint")
    return found.select(
        "kind", named(topic).alias("message_id"), "subscription", none.alias("from_us"), none.alias("to_us")
    )


def _excused(gaps: Sequence[RecordGap]) -> Column:
    """Whether what happened between `from_us` and `to_us` may have been recorded where records are missing. 0 as
    `from_us`: it may have been before recording began.
    """
    from pyspark.sql import functions as F

    found = F.col("from_us") <= 0
    for one in gaps:
        found = found | ((F.col("from_us") <= one.end_us) & (F.col("to_us") >= one.begin_us))
    return F.coalesce(found, F.lit(False))


def _by_subscription(copies: DataFrame) -> tuple[SubscriptionDeliveries, ...]:
    from pyspark.sql import functions as F

    nothing = F.coalesce("delivered_us", "acknowledged_us", "over_us").isNull() & ~F.col("lane_known")
    rows = copies.groupBy("subscription").agg(
        F.count("delivered_us").alias("delivered"),
        F.count("acknowledged_us").alias("acknowledged"),
        F.count("over_us").alias("over"),
        F.count_if(nothing).alias("waiting"),
    )
    return tuple(
        SubscriptionDeliveries(row.subscription, row.delivered, row.acknowledged, row.over, row.waiting)
        for row in rows.orderBy("subscription").collect()
    )


def _window(*columns: str) -> Any:
    from pyspark.sql import Window

    return Window.partitionBy(*columns)
