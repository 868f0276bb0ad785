"""The stream writer of many flows: each is committed by itself, with a record of its own at the target.

Place: made by `DefaultSource` for the option `flows`; Spark makes one anew for every micro-batch, as of the writer in
`sink`, whose promises hold for each flow: an epoch is committed once, what overlaps is dropped, a gap is refused.
Promise: what stops one flow is noted beside the file before the batch ends, so that the source does not take it for
processed; the others are committed. A flow that reads a stream fails its batch instead, which is its own. A batch that
fails may be committed of some flows and not of others: who begins again begins each where its target is.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_pubsub import stream_plans
from pyspark_pubsub.checkpoint import FlowPlan, planned_flows
from pyspark_pubsub.errors import OUT_OF_RANGE, SERVER_IS_GONE, CallError, FlowRefused, OptionError
from pyspark_pubsub.fault_points import pause
from pyspark_pubsub.flows_file import FlowsFile, SharedFlow, StagedFlow
from pyspark_pubsub.gc_pause import spare_collections
from pyspark_pubsub.options import Options
from pyspark_pubsub.rpc import BlockingChannel, pb
from pyspark_pubsub.sink import Writer, add_planned, epoch_of_task, gap_error, part_of_task
from syncpoint.wire.protobuf import methods

if TYPE_CHECKING:
    import pyarrow

COMMITS = 8  # at a time: each waits for a disk, and those that wait together are written together


@dataclass
class FlowsStaged(WriterCommitMessage):
    """What one task has staged, flow by flow."""

    epoch: int
    partition: int
    attempt: str
    flows: list[StagedFlow]


class FlowsWriter(Writer, DataSourceStreamArrowWriter):
    """Write the rows of many flows to their targets in one query."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite)
        if not options["checkpointLocation"]:
            raise OptionError("Flows need the option checkpointLocation of their stream.")
        file = FlowsFile(options["flows"])
        file.read()
        self._flows = file.flows  # tasks have no file

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a task."""
        from pyspark_pubsub.flows_staging import stage_flows

        query, run, epoch = epoch_of_task()
        part = part_of_task(query, run, epoch)
        if any(flow.stream == stream_plans.FILES for flow in self._flows.values()):
            iterator = stream_plans.numbered(iterator, epoch, part.partition)
        staged = stage_flows(self._target(link=True), part, self._flows, iterator)
        spare_collections()
        return FlowsStaged(epoch, part.partition, part.attempt, staged)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Make what was planned of each flow visible. Raises CallError when the server is gone."""
        file = FlowsFile(self._options["flows"])
        file.read()
        planned = self._planned(file.flows, batchId)
        stages = _by_name(messages)
        flows = [
            (flow, plan)
            for name, plan in planned.items()
            if (flow := file.flows.get(name)) is not None and flow.run == plan.run
        ]
        pause("commit")
        done = threading.Event()

        def commit(one: tuple[SharedFlow, FlowPlan]) -> None:
            flow, plan = one
            error = self._commit_flow(flow, plan, batchId, stages.get(flow.name, []))
            if error and flow.stream:
                raise FlowRefused(error)  # Spark's own sources do not read the file, and would take it for processed
            if error:
                file.fail(flow, error)
            if not done.is_set():
                done.set()
                pause("between")

        if len(flows) <= 1:
            for one in flows:
                commit(one)
        else:
            commit(flows[0])
            with ThreadPoolExecutor(COMMITS) as pool:
                list(pool.map(commit, flows[1:]))
        pause("committed")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Drop what was staged, where a task came to its end; else the next run of a flow does."""
        channel = BlockingChannel(self._options.access)
        known = {(one.name, one.run) for found in messages if isinstance(found, FlowsStaged) for one in found.flows}
        for name, run in known:
            flow = self._flows.get(name)
            if flow is not None:
                request = pb.AbortEpochRequest(run=pb.Run(query=flow.epochs, run=run), epoch=batchId)
                channel.call(methods.EPOCH_WRITER.AbortEpoch, request)

    def _planned(self, flows: Mapping[str, SharedFlow], epoch: int) -> Mapping[str, FlowPlan]:
        """What an epoch was planned to read of each flow. One that reads a stream is alone."""
        location = self._options["checkpointLocation"]
        streams = [flow for flow in flows.values() if flow.stream]
        if streams:
            return {flow.name: FlowPlan(flow.run, stream_plans.planned(flow, location, epoch)) for flow in streams}
        return planned_flows(location, epoch)

    def _commit_flow(
        self, flow: SharedFlow, plan: FlowPlan, epoch: int, stages: list[tuple[int, str, StagedFlow]]
    ) -> str:
        """What stops the flow; "": it is committed."""
        request = pb.CommitEpochRequest(run=pb.Run(query=flow.epochs, run=flow.run), epoch=epoch, topic=flow.target)
        request.link = flow.name
        request.accept_gaps = not self._options["failOnDataLoss"]
        add_planned(request, plan.at)
        known = self._flows.get(flow.name)
        if known is None or known.run != flow.run:
            return "tasks did not know it yet"  # nor have they staged its rows
        for partition, attempt, staged in sorted(stages, key=lambda one: one[0]):
            if staged.error:
                return staged.error
            if staged.staged:
                request.stages.add(partition=partition, attempt=attempt)
        try:
            BlockingChannel(self._options.access).call(methods.EPOCH_WRITER.CommitEpoch, request)
        except CallError as error:
            if error.code in SERVER_IS_GONE:
                raise
            shown = gap_error(flow.name, error, epoch) if error.code == OUT_OF_RANGE else error
            return f"{type(shown).__module__}.{type(shown).__qualname__}: {shown}"
        return ""


def _by_name(messages: list[WriterCommitMessage | None]) -> Mapping[str, list[tuple[int, str, StagedFlow]]]:
    """What tasks have staged of each flow: partition, attempt, and what it came to."""
    found: dict[str, list[tuple[int, str, StagedFlow]]] = {}
    for one in messages:
        if isinstance(one, FlowsStaged):
            for staged in one.flows:
                found.setdefault(staged.name, []).append((one.partition, one.attempt, staged))
    return found
