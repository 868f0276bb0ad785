"""The writers that Spark asks on the driver: what was staged by tasks becomes visible, once, by one commit.

Place: made by `DefaultSource`; Spark makes one anew for every micro-batch and copies it to tasks, so nothing is kept
between calls but what the tasks' messages carry.
Promise: a stream's epoch is (query, batch id); the server commits it once, however often Spark runs it. With `link` the
server compares what the epoch was planned to read with what it has.
Leaves to `staging`: rows.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_pubsub.checkpoint import planned_offsets
from pyspark_pubsub.errors import OUT_OF_RANGE, CallError, DataLossError, OptionError, SchemaError
from pyspark_pubsub.fault_points import pause
from pyspark_pubsub.gc_pause import spare_collections
from pyspark_pubsub.options import Options
from pyspark_pubsub.reporting import explained, explaining
from pyspark_pubsub.rpc import BlockingChannel, pb
from pyspark_pubsub.schema import VALUE, check_sink_schema
from pyspark_pubsub.suggestions import topic_of
from syncpoint.wire.protobuf import methods

if TYPE_CHECKING:
    import pyarrow

    from pyspark_pubsub.chosen_schemas import Typed
    from pyspark_pubsub.offsets import Offsets
    from pyspark_pubsub.staging import SinkTarget, StagedPart


@dataclass
class Staged(WriterCommitMessage):
    """What one task has staged; `attempt` "": no rows."""

    query: str
    run: str
    epoch: int
    partition: int
    attempt: str
    rows: int
    bytes: int
    dropped: int


class Writer:
    """What all kinds of writers share."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise OptionError(
                "The pubsub format cannot overwrite: messages are published and stay. Use mode('append'), or for a"
                " stream outputMode('append') or ('update')."
            )
        flows = bool(options["flows"])
        check_sink_schema(
            schema,
            topic=flows or bool(options["topic"]),
            link=flows or bool(options["link"]),
            encode=bool(options["encode"]),
        )
        self._options = options
        self._columns = tuple(field.name for field in schema.fields)
        if options["topic"] and not _has_committed(options["checkpointLocation"]):
            self._check_topic(topic_of(BlockingChannel(options.access), options["topic"]))
        self._typed = self._encoding(schema) if options["encode"] else None
        spare_collections()

    def _check_topic(self, topic: Any) -> None:
        """Refuse what the server would, before any task runs. `topic`: as it is described; None: that is not known."""
        if topic is None:
            return
        if any(not one.disabled for one in topic.message_transforms):
            raise OptionError(
                f"{topic.name} has message transforms, which are applied to what clients publish and not to rows. Write"
                " to a topic without them."
            )
        schema = topic.schema_settings.schema
        if schema and not self._options["encode"] and not {"attributes", "block"} & set(self._columns):
            raise SchemaError(
                f"{topic.name} has the schema {schema}, so rows need a column value to encode by it:"
                " .selectExpr('struct(*) AS value') and the option encode=topic."
            )

    def _encoding(self, schema: StructType) -> Typed:
        """By what the column `value` is encoded; the rows can be. Raises OptionError, SchemaError, CallError."""
        from pyspark_pubsub.chosen_schemas import OF_TOPIC, encoding
        from pyspark_pubsub.typed_values import check_writable, schema_of

        if self._options["encode"] == OF_TOPIC and "target_topic" in self._columns:
            raise OptionError(
                "encode=topic is for rows that all go to the option topic: leave out target_topic, or name the schema."
            )
        if "block" in self._columns:
            raise OptionError("The option encode is for rows, not for blocks of messages.")
        typed = encoding(self._options)
        try:
            check_writable(schema[VALUE].dataType, schema_of(typed.revision).kind.type, VALUE)
        except SchemaError as error:
            raise SchemaError(
                f"The rows do not fit {typed.revision.full_name}: {error} Nothing was written; change the columns, or"
                " commit a revision of the schema that has them."
            ) from None
        names = tuple(name for name in self._columns if name not in (VALUE, "attributes"))
        self._columns = (*names, "data", "attributes")
        return typed

    def _target(self, *, link: bool) -> SinkTarget:
        """What tasks need to know. `link`: rows are those of a link, or of several."""
        from pyspark_pubsub.staging import STANDARD, SinkTarget

        options = self._options
        keep = options["keepIdentity"] if options.given("keepIdentity") else link
        left_out = {"message_id", "publish_time"} - ({"message_id", "publish_time"} if keep else set())
        if not link:
            left_out = left_out | {"offset"}
        if not (link or options["via"] or options["here"]):
            left_out = left_out | {"origin", "visited"}
        return SinkTarget(
            access=options.access,
            topic=options["topic"],
            columns=tuple(name for name in self._columns if name in STANDARD and name not in left_out),
            split_source=link,
            via=options["via"],
            here=options["here"],
            keep_identity=keep,
            frame_bytes=options["stageBytes"],
            link=options["link"],
        )

    def _stage(self, part: StagedPart, iterator: Iterator[pyarrow.RecordBatch]) -> Staged:
        from pyspark_pubsub.staging import stage

        if self._typed is not None:
            from pyspark_pubsub.typed_writing import encoded  # few writers want it

            iterator = encoded(self._typed, iterator)
        with explained():
            counts = stage(self._target(link=bool(self._options["link"])), part, iterator)
        spare_collections()
        attempt = part.attempt if counts.staged else ""
        return Staged(
            part.query, part.run, part.epoch, part.partition, attempt, counts.rows, counts.bytes, counts.dropped
        )

    def _commit(self, messages: list[Any], request: Any) -> None:
        request.topic = self._options["topic"]
        staged = sorted((found for found in messages if found is not None), key=lambda found: found.partition)
        for found in staged:
            if found.attempt:
                request.stages.add(partition=found.partition, attempt=found.attempt)
        pause("commit")
        BlockingChannel(self._options.access).call(methods.EPOCH_WRITER.CommitEpoch, request)
        pause("committed")

    def _abort(self, messages: list[Any], epoch: int) -> None:
        """Notify the server what is not wanted; when no task came to its end, the next run's first call does."""
        found = next((message for message in messages if message is not None), None)
        if found is not None:
            request = pb.AbortEpochRequest(run=pb.Run(query=found.query, run=found.run), epoch=epoch)
            BlockingChannel(self._options.access).call(methods.EPOCH_WRITER.AbortEpoch, request)


class BatchWriter(Writer, DataSourceArrowWriter):
    """`df.write.format("pubsub").mode("append")`: all rows become visible by one commit, or none; with `batchQuery`,
    once, also when the same batch is written again.
    """

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        if options["link"]:
            raise OptionError("The option link is for streams, whose offsets say what was planned.")
        super().__init__(options, schema, overwrite)
        if options.given("batchEpoch") != options.given("batchQuery"):
            raise OptionError("Give batchQuery and batchEpoch together.")
        self._run = uuid.uuid4().hex
        self._query = options["batchQuery"] or f"batch-{self._run}"
        self._epoch = options["batchEpoch"]

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a task."""
        return self._stage(part_of_task(self._query, self._run, self._epoch), iterator)

    @explaining
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make what was staged visible."""
        request = pb.CommitEpochRequest(run=pb.Run(query=self._query, run=self._run), epoch=self._epoch)
        self._commit(messages, request)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Drop what was staged."""
        self._abort(messages, self._epoch)


class StreamWriter(Writer, DataSourceStreamArrowWriter):
    """`df.writeStream.format("pubsub")`: each micro-batch is one epoch, committed exactly once."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite)
        if options.given("batchQuery") or options.given("batchEpoch"):
            raise OptionError("The options batchQuery and batchEpoch are for batches; a stream has epochs of its own.")
        if options["link"] and not options["checkpointLocation"]:
            raise OptionError(
                "A link reads the planned offsets from the checkpoint: set the option checkpointLocation of this stream"
                " (a default for the whole session is not seen by the sink)."
            )

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a task for the epoch that the task belongs to."""
        query, run, epoch = epoch_of_task()
        return self._stage(part_of_task(query, run, epoch), iterator)

    @explaining
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Make the epoch visible. Raises CallError, DataLossError for a gap before a link's planned range."""
        staged = next((found for found in messages if isinstance(found, Staged)), None)
        if staged is None:
            raise RuntimeError("Spark named no task of the epoch; nothing can be committed.")
        request = pb.CommitEpochRequest(run=pb.Run(query=staged.query, run=staged.run), epoch=batchId)
        link = self._options["link"]
        if link:
            planned = planned_offsets(self._options["checkpointLocation"], batchId)
            request.link = link
            request.accept_gaps = not self._options["failOnDataLoss"]
            add_planned(request, planned)
        try:
            self._commit(messages, request)
        except CallError as error:
            if link and error.code == OUT_OF_RANGE:
                raise gap_error(link, error, batchId) from error
            raise

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Drop what was staged."""
        self._abort(messages, batchId)


def _has_committed(checkpoint: str) -> bool:
    """Whether a stream has written before: a writer is made for each of its batches, and need not look again."""
    return bool(checkpoint) and Path(checkpoint.removeprefix("file:"), "commits", "0").exists()


def add_planned(request: Any, planned: Offsets) -> None:
    """What the epoch of a link was planned to copy."""
    request.source_topic = f"{planned.universe}/{planned.incarnation}"
    for number, begin in planned.begins.items():
        _, chain = planned.places[number]
        request.planned.add(source=number, begin=begin, end=planned.sources[number], chain=chain)


def gap_error(link: str, error: CallError, epoch: int) -> DataLossError:
    """What a refused gap means to who runs the stream."""
    return DataLossError(
        f"The link {link} would leave a gap: {error.text} Nothing of batch {epoch} was stored. Read from"
        f" the gap's beginning again, or take it as lost: `syncpoint federation accept-gap {link}`."
    )


def part_of_task(query: str, run: str, epoch: int) -> StagedPart:
    """This task's attempt."""
    from pyspark import TaskContext

    from pyspark_pubsub.staging import StagedPart

    context = TaskContext.get()
    if context is None:
        raise RuntimeError("The sink's write runs in Spark's tasks only.")
    attempt = f"{context.taskAttemptId()}-{uuid.uuid4().hex[:12]}"
    return StagedPart(query, run, epoch, context.partitionId(), attempt)


def epoch_of_task() -> tuple[str, str, int]:
    """Query, run and epoch of a streaming task: Spark reports them as local properties, and in no other way."""
    from pyspark import TaskContext

    context = TaskContext.get()
    names = ("sql.streaming.queryId", "spark.jobGroup.id", "streaming.sql.batchId")
    found = [context.getLocalProperty(name) if context is not None else None for name in names]
    if not all(found):
        missing = ", ".join(name for name, value in zip(names, found, strict=True) if not value)
        raise RuntimeError(f"This version of Spark does not give tasks their epoch ({missing}); 4.3.0 does.")
    query, run, epoch = found
    return str(query), str(run), int(epoch or 0)
