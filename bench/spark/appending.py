"""What exactly-once is compared with: sinks that append, from their tasks, without staging for an epoch.

`pubsub-unfenced`: the sink `pubsub` itself (frames, connection, all columns but `offset`), but each task commits what
it sent by itself, under a name of its own. So the server stores the rows in the same way, and Spark's side does
without what makes it once: no commit on the driver, no checkpoint read, no run, no planned ranges. A task that Spark
runs again publishes again.

`pubsub-publishing`: the rows by one official Publish request of the task: one call, no stage, no commit. Encoding is by
row, so it is a yardstick for the time of an epoch of few rows, not for CPU.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_pubsub.options import WRITE, Options
from pyspark_pubsub.rpc import BlockingChannel, pb
from syncpoint.wire.protobuf import methods

if TYPE_CHECKING:
    import pyarrow

_COLUMNS = ("message_id", "publish_time", "data", "attributes", "ordering_key", "origin", "visited")


class UnfencedSource(DataSource):
    """See the module."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "pubsub-unfenced"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Appends rows from tasks."""
        return _Unfenced(Options(self.options, WRITE))


class PublishingSource(DataSource):
    """See the module."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "pubsub-publishing"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Publishes rows from tasks."""
        return _Publishing(Options(self.options, WRITE))


class _Appending(DataSourceStreamArrowWriter):
    def __init__(self, options: Options) -> None:
        self._options = options

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing: the tasks have done it."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing can be taken back."""


class _Unfenced(_Appending):
    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        from pyspark_pubsub.staging import SinkTarget, StagedPart, stage

        options = self._options
        name = uuid.uuid4().hex
        target = SinkTarget(
            access=options.access,
            topic=options["topic"],
            columns=_COLUMNS,
            via=options["via"],
            here=options["here"],
            keep_identity=True,
            frame_bytes=options["stageBytes"],
        )
        if stage(target, StagedPart(name, name, 0, 0, name), iterator).staged:
            request = pb.CommitEpochRequest(run=pb.Run(query=name, run=name), epoch=0)
            request.stages.add(partition=0, attempt=name)
            BlockingChannel(options.access).call(methods.EPOCH_WRITER.CommitEpoch, request)
        return WriterCommitMessage()


class _Publishing(_Appending):
    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        from syncpoint.wire.protobuf.messages import pubsub

        request: Any = pubsub.PublishRequest(topic=self._options["topic"])
        for batch in iterator:
            for row in batch.select(["data", "attributes", "ordering_key"]).to_pylist():
                request.messages.add(
                    data=row["data"], attributes=dict(row["attributes"] or ()), ordering_key=row["ordering_key"] or ""
                )
        if request.messages:
            BlockingChannel(self._options.access).call("/google.pubsub.v1.Publisher/Publish", request, idempotent=False)
        return WriterCommitMessage()
