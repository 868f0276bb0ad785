"""The delivery records of a topic as data frames, beside what the topic stores, and what the records do not say.

Place: under `delivery_reconciliation` and `delivery_slis`; records are messages of the topic's records topic.
Promise: a record that was published twice counts once. What records do not say is known as gaps in time. A part of the
topic that no disk can read in good order is left out of what is stored, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Final

from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.base.model.identity import OFFSET_DIGITS, OFFSET_END, UNIVERSE_MIN, format_message_id
from syncpoint.base.model.names import short_id
from syncpoint.broker.recording.record_gaps import RecordGap, RecordsMessage, gaps_of
from syncpoint.broker.recording.record_kinds import RETURNED, STORED
from syncpoint.programs.analytics.stored_messages import StoredRange, StoredTopic, stored_topic
from syncpoint.programs.federation.servers import Servers
from syncpoint.programs.federation.spec import FederatedCluster
from syncpoint.wire.protobuf.messages import admin, pubsub

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_SCHEMA: Final = (
    "writer string, number bigint, lost bigint, ended boolean, records array<struct<kind string, at bigint,"
    " source bigint, subscription string, lane int, generation bigint, published bigint, why string,"
    " `to` string, runs array<array<bigint>>>>"
)
WHOLE_SOURCE: Final = "whole source"
"""Here the kind of a record that is about all that is lent of a source."""


@dataclass(frozen=True, slots=True)
class RecordedTopic:
    """What is known of a topic. `retention_s`: time for which it keeps all messages; `ordered`: those of its
    subscriptions that get messages of a key one after the other.
    """

    server: FederatedCluster
    name: str
    records: str
    retention_s: int
    subscriptions: tuple[str, ...]
    ordered: tuple[str, ...]
    stored: StoredTopic


def recorded_topic(server: FederatedCluster, topic: str) -> RecordedTopic:
    """Ask the server. Raises `FailedPrecondition` for a topic that is not recorded, and `SyncpointError`."""
    with Servers(patience_s=30.0) as servers:
        found = servers.call(server, "Publisher.GetTopic", pubsub.GetTopicRequest(topic=topic))
        options = servers.call(server, "Admin.GetTopicOptions", admin.GetTopicOptionsRequest(topic=topic))
        if not options.records_topic:
            raise FailedPrecondition(
                f"{topic} has no delivery records. To turn them on, run `syncpoint topics update {short_id(topic)}"
                " --records-topic RECORDS`, a topic with a message retention."
            )
        asked = pubsub.ListTopicSubscriptionsRequest(topic=topic, page_size=1000)
        names = servers.call(server, "Publisher.ListTopicSubscriptions", asked).subscriptions
        ordered = [
            name
            for name in names
            if servers.call(
                server, "Subscriber.GetSubscription", pubsub.GetSubscriptionRequest(subscription=name)
            ).enable_message_ordering
        ]
    retention_s = found.message_retention_duration.seconds
    # Before the topic itself: what is recorded of later messages must not pass for messages that are not stored.
    stored = stored_topic(server, topic)
    return RecordedTopic(server, topic, options.records_topic, retention_s, tuple(names), tuple(ordered), stored)


def record_messages(spark: SparkSession, topic: RecordedTopic) -> DataFrame:
    """The messages of the records topic that are about it, each once."""
    from pyspark.sql import functions as F

    stored = stored_topic(topic.server, topic.records)
    frame = stored.frame(spark, ("data",), filter=f'attributes.topic = "{topic.name}"')
    parsed = frame.select(F.from_json(F.col("data").cast("string"), _SCHEMA).alias("content"))
    return parsed.select("content.*").dropDuplicates(["writer", "number"])


def recorded_runs(messages: DataFrame) -> DataFrame:
    """A row for each run of each record: writer, number, place (within the message), kind, at, source, subscription,
    lane, generation, published, why, begin, length.
    """
    from pyspark.sql import functions as F

    rows = messages.select("writer", "number", F.posexplode("records").alias("place", "record"))
    rows = rows.select("writer", "number", "place", "record.*", F.explode("record.runs").alias("run"))
    whole = (F.col("kind") == RETURNED) & (F.col("run")[1] == OFFSET_END)
    return (
        rows.withColumn("begin", F.col("run")[0])
        .withColumn("length", F.col("run")[1])
        .withColumn("kind", F.when(whole, WHOLE_SOURCE).otherwise(F.col("kind")))
        .fillna(0, ["lane", "generation"])
        .fillna("", ["subscription"])
        .drop("run", "runs")
    )


def recorded_offsets(runs: DataFrame) -> DataFrame:
    """A row for each message of each record, without those about a whole source. Runs end where the source is known to
    end: what counts as acknowledged may reach further.
    """
    from pyspark.sql import functions as F

    known = F.col("kind").isin(*STORED)
    bounds = (
        runs.where(known)
        .groupBy("source")
        .agg(F.min("begin").alias("first"), F.max(F.col("begin") + F.col("length")).alias("stop"))
    )
    cut = (
        runs.where(F.col("kind") != WHOLE_SOURCE)
        .join(F.broadcast(bounds), "source")
        .withColumn("from", F.greatest("begin", "first"))
        .withColumn("last", F.least(F.col("begin") + F.col("length"), F.col("stop")) - 1)
        .where("last >= from")
    )
    return cut.withColumn("offset", F.explode(F.sequence("from", "last"))).drop(
        "begin", "length", "first", "stop", "from", "last"
    )


def record_gaps(messages: DataFrame) -> tuple[int, list[RecordGap]]:
    """Since when records tell anything, in microseconds since 1970, and what they do not."""
    from pyspark.sql import functions as F

    times = F.transform("records", lambda one: one["at"])
    rows = messages.select(
        "writer", "number", "lost", F.coalesce("ended", F.lit(False)), F.array_min(times), F.array_max(times)
    ).collect()  # fmt: skip
    parsed = [RecordsMessage(*row) for row in rows]
    since_us = min((one.first_us for one in parsed if one.first_us is not None), default=0)
    return since_us, list(gaps_of(parsed, since_us=since_us))


def named(topic: RecordedTopic) -> Column:
    """The id of a message, by its place where nothing else has it any more."""
    from pyspark.sql import functions as F

    offset = F.lpad(F.col("offset").cast("string"), OFFSET_DIGITS, "0")
    return F.coalesce("message_id", F.concat(F.lit(str(topic.stored.universe)), F.col("source").cast("string"), offset))


# -- what is stored ----------------------------------------------------------------------------------------------------


def stored_rows(spark: SparkSession, topic: RecordedTopic) -> DataFrame:
    """source, offset, message_id, ordering_key and published (microseconds) of all that is stored and can be read; kept
    on disk.
    """
    from pyspark import StorageLevel
    from pyspark.sql import DataFrame

    frame = _rows(spark, topic.stored).persist(StorageLevel.DISK_ONLY)
    try:
        frame.count()
    except Exception:  # some part of it may be damaged on all disks
        frame.unpersist()
        whole = list(readable_ranges(topic))
        if sum(one.end - one.begin for one in whole) == topic.stored.messages:
            raise
        parts = [_rows(spark, replace(topic.stored, ranges=(one,))) for one in whole]
        frame = reduce(DataFrame.unionByName, parts, _rows(spark, replace(topic.stored, ranges=())))
        frame = frame.persist(StorageLevel.DISK_ONLY)
    return frame


def _rows(spark: SparkSession, stored: StoredTopic) -> DataFrame:
    from pyspark.sql import functions as F

    if not stored.ranges:
        return spark.createDataFrame(
            [], "source bigint, offset bigint, message_id string, ordering_key string, published bigint"
        )
    frame = stored.frame(spark, ("source", "offset", "message_id", "ordering_key", "publish_time"))
    return frame.withColumn("published", F.unix_micros("publish_time")).drop("publish_time")


def readable_ranges(topic: RecordedTopic) -> Iterator[StoredRange]:
    """What is stored without the parts that no disk has in good order, found by looking at each message."""
    with Servers(patience_s=30.0) as servers:
        for one in topic.stored.ranges:
            begin = at = one.begin
            place = format_message_id(UNIVERSE_MIN, one.source, one.begin)
            asked = admin.PeekTopicRequest(topic=topic.name, message_id=place, page_size=1000)
            more = True
            while more:
                answer = servers.call(topic.server, "Admin.PeekTopic", asked)
                for offset in (shown.offset for shown in answer.messages if shown.offset < one.end):
                    if offset > at:
                        if at > begin:
                            yield replace(one, begin=begin, end=at)
                        begin = offset
                    at = offset + 1
                asked.page_token, more = answer.next_page_token, bool(answer.next_page_token) and at < one.end
            if at > begin:
                yield replace(one, begin=begin, end=at)
