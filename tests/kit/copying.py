"""Copies of a flow without Spark: what the job, the source and the sink call for one batch."""

from __future__ import annotations

import uuid

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pyspark_pubsub.offsets import Offsets
from pyspark_pubsub.options import READ, WRITE, Options
from pyspark_pubsub.reading import read
from pyspark_pubsub.rpc import BlockingChannel, pb
from pyspark_pubsub.schema import source_schema
from pyspark_pubsub.source import StreamReader
from pyspark_pubsub.staging import SinkTarget, StagedPart, stage
from syncpoint.programs.federation.flow_options import reading, writing
from syncpoint.programs.federation.flow_plan import Flow
from syncpoint.programs.federation.flow_starts import begin_at
from syncpoint.programs.federation.servers import Servers
from syncpoint.programs.federation.spec import Federation
from syncpoint.wire.protobuf import methods

COLUMNS = ("offset", "data", "message_id", "publish_time", "attributes", "ordering_key", "origin", "visited")


class Copier:
    """One flow; each batch is planned anew from what its cursor has."""

    def __init__(self, federation: Federation, flow: Flow) -> None:
        self.federation, self.flow, self.epoch, self.query = federation, flow, 0, uuid.uuid4().hex

    def copy(self, servers: Servers) -> list[bytes]:
        """Copy what is there; returns the data of these messages."""
        flow = self.flow
        servers.ensure_target(flow)
        options = {**reading(flow.link, self.federation.runtime, ""), "columns": ",".join(("source", *COLUMNS))}
        options |= {"topic": flow.source_topic, "cursor": flow.name, "patienceSeconds": "5"}
        options = {name: value for name, value in options.items() if name != "flows"}
        made = Options({**options, "startingPosition": begin_at(servers, flow)}, READ)
        reader = StreamReader(made, source_schema(made["columns"]))
        begin = reader.initialOffset()
        end = Offsets.from_json(reader.latestOffset(begin, ReadAllAvailable()))
        batches = [batch for part in reader.partitions(begin, end.to_json()) for batch in read(part)]
        self._commit(end, batches)
        return [one for batch in batches for one in batch.column("data").to_pylist()]

    def _commit(self, end: Offsets, batches: list[pa.RecordBatch]) -> None:
        flow = self.flow
        options = Options(writing(flow.link, "", "unused"), WRITE)
        here = flow.link.target.name
        target = SinkTarget(
            options.access, flow.target_topic, COLUMNS, split_source=True, via=flow.link.source.name, here=here,
            keep_identity=True, link=flow.name,
        )  # fmt: skip
        part = StagedPart(self.query, "run", self.epoch, 0, "attempt")
        staged = stage(target, part, iter(batches)).staged
        request = pb.CommitEpochRequest(run=pb.Run(query=self.query, run="run"), epoch=self.epoch, link=flow.name)
        request.topic, request.source_topic = flow.target_topic, f"{end.universe}/{end.incarnation}"
        for number, begin in end.begins.items():
            request.planned.add(source=number, begin=begin, end=end.sources[number], chain=end.places[number][1])
        if staged:
            request.stages.add(partition=0, attempt="attempt")
        BlockingChannel(options.access).call(methods.EPOCH_WRITER.CommitEpoch, request)
        self.epoch += 1
