"""The stored messages of a topic as a data frame, and how far Spark is with it.

Place: under every analysis; `pyspark_pubsub` reads the log by offsets. Nothing is delivered or acknowledged.
Promise: an analysis reads the same stretch of the log however often Spark runs a task again: where the topic ended is
asked once, before it begins.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from syncpoint.programs.federation.flow_options import access
from syncpoint.programs.federation.servers import Servers
from syncpoint.programs.federation.spec import FederatedCluster
from syncpoint.wire.protobuf.messages import pipeline

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

BUCKETS: Final = 60
BUCKET_LEAST_US: Final = 1_000_000  # rates over less mean little
"""Equal stretches of time that rates are given for."""
ROWS_PER_PARTITION: Final = 100_000
ASK_S: Final = 0.2

OnProgress = Callable[[int, int], None]  # tasks done, tasks that are known of


@dataclass(frozen=True, slots=True)
class StoredRange:
    """What is stored of one source: offsets from `begin` to before `end`, of about `mean_bytes` each."""

    source: int
    begin: int
    end: int
    mean_bytes: int


@dataclass(frozen=True, slots=True)
class StoredTopic:
    """What a server had of a topic when it was asked. `universe`: what ids of the server's own messages begin with."""

    server: FederatedCluster
    name: str
    universe: int
    ranges: tuple[StoredRange, ...]

    @property
    def messages(self) -> int:
        """How many messages are stored."""
        return sum(one.end - one.begin for one in self.ranges)

    @property
    def mean_bytes(self) -> int:
        """Mean bytes of a stored message, an estimate; at least 1."""
        stored_bytes = sum((one.end - one.begin) * one.mean_bytes for one in self.ranges)
        return max(1, stored_bytes // max(1, self.messages))

    def frame(self, spark: SparkSession, columns: Sequence[str], *, begin: str = "", **options: str) -> DataFrame:
        """These messages. `begin`: a time as the format `pubsub` takes it; `options`: more of its options."""
        return spark.read.format("pubsub").options(**self.reading(columns, begin), **options).load()

    def reading(self, columns: Sequence[str], begin: str = "") -> dict[str, str]:
        """The options of the format `pubsub` that read these messages."""
        return {
            **access(self.server),
            "topic": self.name,
            "columns": ",".join(columns),
            "startingPosition": begin or json.dumps({str(one.source): one.begin for one in self.ranges}),
            "endingPosition": json.dumps({str(one.source): one.end for one in self.ranges}),
            "maxRowsPerPartition": str(ROWS_PER_PARTITION),
        }


def stored_topic(server: FederatedCluster, topic: str) -> StoredTopic:
    """What `server` has of `topic` now. Raises `SyncpointError`."""
    with Servers(patience_s=30.0) as servers:
        positions = servers.call(server, "LogReader.GetPositions", pipeline.GetPositionsRequest(topic=topic))
    found = (StoredRange(one.source, one.begin, one.end, one.mean_bytes) for one in positions.sources)
    ranges = tuple(one for one in found if one.begin < one.end)
    return StoredTopic(server, positions.topic, int(positions.universe, 16), ranges)


@contextmanager
def watched(spark: SparkSession, on_progress: OnProgress) -> Iterator[None]:
    """Report how many tasks of the jobs that are begun within it are done, until it is left."""
    context, group, over = spark.sparkContext, uuid.uuid4().hex, threading.Event()
    context.setJobGroup(group, "syncpoint analyze")

    def watch() -> None:
        while not over.wait(ASK_S):
            on_progress(*tasks_of(context, group))

    watcher = threading.Thread(target=watch, name="analysis-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    done, _ = tasks_of(context, group)
    on_progress(done, done)


def tasks_of(context: SparkContext, group: str) -> tuple[int, int]:
    """Tasks of a group of jobs that are done, and all that Spark knows of by now."""
    tracker, done, known = context.statusTracker(), 0, 0
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info is not None else ():
            found = tracker.getStageInfo(stage)
            if found is not None:
                done, known = done + found.numCompletedTasks, known + found.numTasks
    return done, max(done, known)


def bucketed(frame: DataFrame, buckets: int) -> tuple[int, int, DataFrame]:
    """Number the stretches of time that a frame's messages were published in, in the column `bucket`: where the first
    begins, in microseconds since 1970, how long each is (a second at least), and the frame.
    """
    from pyspark.sql import functions as F

    ends: Any = frame.agg(
        F.unix_micros(F.min("publish_time")).alias("first"), F.unix_micros(F.max("publish_time")).alias("last")
    ).first()
    begin_us = ends.first or 0
    bucket_us = max(BUCKET_LEAST_US, -(-((ends.last or 0) - begin_us + 1) // buckets))
    number = F.floor((F.unix_micros("publish_time") - begin_us) / bucket_us)
    return begin_us, bucket_us, frame.withColumn("bucket", number)


def utc(micros: int) -> datetime:
    """Microseconds since 1970 as a time."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
