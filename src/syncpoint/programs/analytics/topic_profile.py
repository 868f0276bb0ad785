"""The profile of a topic: its rate, sizes, keys, attributes, and how its payloads change.

Place: one batch job over `stored_messages`; `syncpoint analyze profile` prints it.
Promise: the topic is read once. Counts, sums and sizes at the ends are exact; percentiles are within 1/1,000 of their
rank, and JSON fields are those of a sample of bounded size. Everything is worked out by Spark's own expressions, but
for the sample, which the driver looks at.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from syncpoint.programs.analytics.json_drift import JsonDrift, json_drift
from syncpoint.programs.analytics.stored_messages import BUCKETS, OnProgress, StoredTopic, bucketed, utc, watched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOP: Final = 10
"""Keys that are named."""
ATTRIBUTES_MAX: Final = 50
VALUES: Final = 3
"""Values of an attribute that are named."""
SAMPLE: Final = 20_000
SAMPLE_BYTES: Final = 64 << 20
PAYLOAD_BYTES_MAX: Final = 64 << 10
"""Larger payloads are not part of the sample."""
PERCENTILES: Final = (0.5, 0.95, 0.99)
REVISION: Final = "googclient_schemarevisionid"


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of data."""

    total: int
    least: int
    p50: int
    p95: int
    p99: int
    most: int


@dataclass(frozen=True, slots=True)
class ValueCount:
    """A value, and how many messages have it."""

    value: str
    messages: int


@dataclass(frozen=True, slots=True)
class Keys:
    """`messages`: those that have one; `top`: the busiest keys."""

    messages: int
    distinct: int
    top: tuple[ValueCount, ...]


@dataclass(frozen=True, slots=True)
class Attribute:
    """`longest` in characters; `top`: its most frequent values."""

    name: str
    messages: int
    distinct: int
    longest: int
    top: tuple[ValueCount, ...]


@dataclass(frozen=True, slots=True)
class SeenRevision:
    """A schema's revision, and the messages that were checked against it."""

    revision: str
    messages: int
    first: datetime
    last: datetime


@dataclass(frozen=True, slots=True)
class Bucket:
    """What was published from `begin` on, for as long as a bucket is."""

    begin: datetime
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class TopicProfile:
    """Profile of the stored messages of a topic, optionally since a time. Times are UTC."""

    topic: str
    messages: int
    first: datetime | None
    last: datetime | None
    sizes: Sizes
    keys: Keys
    attributes: tuple[Attribute, ...]
    revisions: tuple[SeenRevision, ...]
    buckets: tuple[Bucket, ...]
    bucket_s: float
    payloads: JsonDrift


def topic_profile(
    spark: SparkSession, stored: StoredTopic, on_progress: OnProgress, *, since: str = ""
) -> TopicProfile:
    """Read what is stored, or what was published since a time, and describe it."""
    from pyspark import StorageLevel

    with watched(spark, on_progress):
        frame = _frame(spark, stored, since).persist(StorageLevel.DISK_ONLY)
        try:
            return _profile(stored.name, frame)
        finally:
            frame.unpersist()


def _frame(spark: SparkSession, stored: StoredTopic, since: str) -> DataFrame:
    """What is needed of every message; the data of a sample."""
    from pyspark.sql import functions as F

    wanted = max(1, min(SAMPLE, SAMPLE_BYTES // stored.mean_bytes))
    every = max(1, -(-stored.messages // wanted))
    columns = ("offset", "publish_time", "data", "attributes", "ordering_key")
    size = F.octet_length("data")
    sampled = (F.col("offset") % every == 0) & (size <= PAYLOAD_BYTES_MAX)
    return stored.frame(spark, columns, begin=since).select(
        "publish_time",
        "attributes",
        F.coalesce("ordering_key", F.lit("")).alias("key"),
        F.coalesce(size, F.lit(0)).alias("bytes"),
        F.when(sampled, F.col("data")).alias("sample"),
    )


def _profile(topic: str, frame: DataFrame) -> TopicProfile:
    from pyspark.sql import functions as F

    keyed = F.col("key") != ""
    whole: Any = frame.agg(
        F.count("*").alias("messages"),
        F.unix_micros(F.min("publish_time")).alias("first_us"),
        F.unix_micros(F.max("publish_time")).alias("last_us"),
        F.sum("bytes").alias("bytes"),
        F.min("bytes").alias("least"),
        F.percentile_approx("bytes", list(PERCENTILES), 1_000).alias("percentiles"),
        F.max("bytes").alias("most"),
        F.count_if(keyed).alias("keyed"),
    ).first()
    p50, p95, p99 = whole.percentiles or (0, 0, 0)
    sizes = Sizes(whole.bytes or 0, whole.least or 0, p50, p95, p99, whole.most or 0)
    by_key = frame.where(keyed).groupBy("key").count()
    busiest = by_key.orderBy(F.desc("count"), "key").limit(TOP).collect()
    keys = Keys(whole.keyed, by_key.count(), tuple(ValueCount(row.key, row["count"]) for row in busiest))
    bucket_s, buckets = _buckets(frame)
    return TopicProfile(
        topic,
        whole.messages,
        None if whole.first_us is None else utc(whole.first_us),
        None if whole.last_us is None else utc(whole.last_us),
        sizes,
        keys,
        _attributes(frame),
        _revisions(frame),
        buckets,
        bucket_s,
        json_drift(_sample(frame)),
    )


def _attributes(frame: DataFrame) -> tuple[Attribute, ...]:
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    pairs = frame.select(F.explode("attributes").alias("name", "value"))
    counted = pairs.groupBy("name", "value").count()
    found = (
        counted.groupBy("name")
        .agg(
            F.sum("count").alias("messages"),
            F.count("*").alias("distinct"),
            F.max(F.char_length("value")).alias("longest"),
        )
        .orderBy(F.desc("messages"), "name")
        .limit(ATTRIBUTES_MAX)
        .collect()
    )
    place = F.row_number().over(Window.partitionBy("name").orderBy(F.desc("count"), "value"))
    top: dict[str, list[ValueCount]] = {}
    for row in counted.withColumn("place", place).where(F.col("place") <= VALUES).orderBy("name", "place").collect():
        top.setdefault(row.name, []).append(ValueCount(row.value, row["count"]))
    return tuple(
        Attribute(row.name, row.messages, row.distinct, row.longest, tuple(top.get(row.name, ()))) for row in found
    )


def _revisions(frame: DataFrame) -> tuple[SeenRevision, ...]:
    from pyspark.sql import functions as F

    revision = F.col("attributes")[REVISION]
    found = (
        frame.where(revision.isNotNull())
        .groupBy(revision.alias("revision"))
        .agg(
            F.count("*").alias("messages"),
            F.unix_micros(F.min("publish_time")).alias("first_us"),
            F.unix_micros(F.max("publish_time")).alias("last_us"),
        )
        .orderBy("first_us", "revision")
        .collect()
    )
    return tuple(SeenRevision(row.revision, row.messages, utc(row.first_us), utc(row.last_us)) for row in found)


def _buckets(frame: DataFrame) -> tuple[float, tuple[Bucket, ...]]:
    """How long a bucket is, in seconds, and all of them."""
    from pyspark.sql import functions as F

    begin_us, bucket_us, numbered = bucketed(frame, BUCKETS)
    found = numbered.groupBy("bucket").agg(F.count("*").alias("messages"), F.sum("bytes").alias("bytes"))
    rows = {row.bucket: row for row in found.collect()}
    return bucket_us / 1e6, tuple(
        Bucket(
            utc(begin_us + number * bucket_us),
            rows[number].messages if number in rows else 0,
            rows[number]["bytes"] if number in rows else 0,
        )
        for number in range(max(rows, default=-1) + 1)
    )


def _sample(frame: DataFrame) -> list[tuple[int, bytes]]:
    from pyspark.sql import functions as F

    rows = frame.where(F.col("sample").isNotNull()).select(F.unix_micros("publish_time").alias("us"), "sample")
    return [(row.us * 1_000, bytes(row.sample)) for row in rows.toLocalIterator()]
