"""The streaming queries of links with a stream at one end, and where they begin.

Place: beside `link_query`, whose queries these are with another source or another sink; under the job, which alone has
a JVM and so alone sees what a stream has.
Promise: from Kafka and from files each row is in the target's log once, since the target knows what it has
(`pyspark_pubsub.stream_plans`); a checkpoint that is not the one by which files were copied stops the flow. To Kafka a
row is written at least once.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark_pubsub.offsets import Offsets
from pyspark_pubsub.stream_plans import (
    FILES,
    KAFKA,
    checkpoint_id,
    epochs_planned,
    files_copied,
    kafka_at,
    partitions_of,
)
from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.programs.federation.flow_plan import FederationLink, Flow
from syncpoint.programs.federation.flow_starts import FlowStart
from syncpoint.programs.federation.link_query import LinkQuery
from syncpoint.programs.federation.servers import Servers
from syncpoint.programs.federation.state import StateFolder
from syncpoint.programs.federation.streams import file_columns, kafka_columns
from syncpoint.programs.federation.streams.kafka_topics import KafkaTopics, begin_of, check_source
from syncpoint.programs.federation.streams.stream_ends import FileStream, KafkaStream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

NOTHING_WAITS = "Waiting for data to arrive"  # Spark's status of a query that found no new data


def stream_query(link: FederationLink) -> type[LinkQuery] | None:
    """What a link with a stream runs as; None: it has none."""
    if isinstance(link.source.stream, KafkaStream):
        return FromKafka
    if isinstance(link.source.stream, FileStream):
        return FromFiles
    return ToKafka if link.target.stream is not None else None


def stream_start(spark: SparkSession, servers: Servers, flow: Flow, state: StateFolder, *, accepted: bool) -> FlowStart:
    """Where a flow that reads a stream begins, or goes on: where its target is. Raises `SyncpointError`."""
    link, known = flow.link, servers.link_of(flow)
    if isinstance(link.source.stream, FileStream):
        check_files(state.files(flow.name), known, flow)
        return FlowStart(link.change.start, stream=FILES)
    assert isinstance(link.source.stream, KafkaStream)
    topic = KafkaTopics(spark, link.source.stream).topic(flow.source_topic, link.change.start)
    accepted = accepted or link.change.loss == "accept"
    at = kafka_at(
        topic.name,
        topic.cluster,
        topic.topic_id,
        begin_of(topic, link.partitions, known, flow.name, accepted=accepted),
    )
    return FlowStart(link.change.start, json.dumps(at.to_json()), KAFKA)


def check_files(checkpoint: Path, known: Any, flow: Flow) -> None:
    """Raise `FailedPrecondition` when a target has copied by another checkpoint, or by more of this one."""
    if known is None:
        return
    mine = f"{FILES}:{checkpoint_id(checkpoint)}/0"
    copied = files_copied(one.source for one in known.committed)
    if known.source_topic == mine and epochs_planned(checkpoint) >= copied:
        return
    wrong = "older than the state of the target" if known.source_topic == mine else "changed"
    raise FailedPrecondition(
        f"{checkpoint}, which records the files that {flow.name} has copied, is {wrong}: restore it; or remove the"
        " copied files from the folder and rename the task to start over"
    )


class FromStream(LinkQuery):
    """What both sources have in common: the flow has the query for itself."""

    def suspects(self) -> list[str]:
        return sorted(self.flows)


class FromKafka(FromStream):
    """A topic of Kafka, by Spark's own source."""

    def read(self, spark: SparkSession) -> DataFrame:
        stream, topic = self.link.source.stream, self.link.topics[0]
        assert isinstance(stream, KafkaStream)
        (flow,) = self._members.values()
        at = partitions_of(Offsets.from_json(json.loads(flow.at)).sources)
        options = {
            **stream.spark_options,
            "startingOffsets": json.dumps({topic: at}),
            "includeHeaders": "true",
            # With `loss: accept`, too: restarted after what is gone, the target records the gap; Spark would not.
            "failOnDataLoss": str(not self.lenient).lower(),
            "maxOffsetsPerTrigger": str(self.runtime.max_rows),
        }
        if self.link.partitions:
            options["assign"] = json.dumps({topic: list(self.link.partitions)})
        else:
            options["subscribe"] = topic
        frame = spark.readStream.format("kafka").options(**options).load()
        return kafka_columns.messages(frame, self.link.source.name, topic)

    @property
    def lag(self) -> int | None:
        progress = self.query.lastProgress if self.query is not None else None
        if progress is None:
            return None
        (source,) = progress["sources"]
        return remaining(source["endOffset"], source["latestOffset"])


class FromFiles(FromStream):
    """A folder of files, by Spark's own source. Its checkpoint outlives the query."""

    _waits: int | None = None

    @property
    def checkpoint(self) -> Path:
        return StateFolder(self.runtime.state).files(self.name)

    def read(self, spark: SparkSession) -> DataFrame:
        stream = self.link.source.stream
        assert isinstance(stream, FileStream)
        return file_columns.messages(file_columns.rows(spark, stream), stream.format)

    def look(self) -> bool:
        if self.query is not None:
            status = self.query.status
            if status["isDataAvailable"]:
                self._waits = 1
            elif status["message"] == NOTHING_WAITS:
                self._waits = 0
        return super().look()

    @property
    def lag(self) -> int | None:
        """1 while a batch of files is under way: how many rows files have is not known before they are read."""
        return self._waits


class ToKafka(LinkQuery):
    """Messages of a topic to Kafka, by Spark's own sink."""

    _rows = 0
    _counted: tuple[str, int] = ("", -1)  # run of the query, batch

    def read(self, spark: SparkSession) -> DataFrame:
        check_source(spark)
        return super().read(spark)

    def written(self, frame: DataFrame) -> DataStreamWriter:
        stream = self.link.target.stream
        assert isinstance(stream, KafkaStream)
        options, cluster = {**stream.spark_options, "topic": self.link.rename}, self.link.source.name

        def write(batch: DataFrame, number: int) -> None:
            # A stream cannot be sorted, a batch of it can.
            kafka_columns.records(batch, cluster).write.format("kafka").options(**options).save()

        return frame.writeStream.foreachBatch(write).option("checkpointLocation", str(self.checkpoint))

    def look(self) -> bool:
        for report in self.query.recentProgress if self.query is not None else ():
            batch = str(report["runId"]), int(report["batchId"])
            if report["numInputRows"] and (batch[0] != self._counted[0] or batch[1] > self._counted[1]):
                self._counted = batch
                self._rows += int(report["numInputRows"])
        return super().look()

    @property
    def rows(self) -> int:
        return self._rows


def remaining(at: Any, latest: Any) -> int | None:
    """Offsets of Kafka between two places, as Spark's progress has them; None: not known."""
    if not at or not latest:
        return None
    found, ends = (json.loads(one) if isinstance(one, str) else one for one in (at, latest))
    return sum(
        max(0, int(end) - int(found.get(topic, {}).get(number, 0)))
        for topic, partitions in ends.items()
        for number, end in partitions.items()
    )
