"""What runs in a task of a sink of many flows: the rows of each are staged by themselves.

Place: in Spark's Python workers, like `staging`, whose frames these are.
Promise: what the server refuses of one flow stops that one, and is reported to the driver; the others are staged.
Rows of a flow that the file does not name (any more) are left out: nothing of it is committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pyarrow as pa

from pyspark_pubsub.errors import SERVER_IS_GONE, CallError, SchemaError
from pyspark_pubsub.fault_points import pause
from pyspark_pubsub.flows_file import SharedFlow, StagedFlow
from pyspark_pubsub.rpc import BlockingChannel, Upload
from pyspark_pubsub.staging import SinkTarget, StagedPart, by_column, header, requests
from syncpoint.wire.protobuf import methods

FLOW = "flow"


class _Stage:
    """The stage of one flow in one task."""

    def __init__(self, target: SinkTarget, part: StagedPart) -> None:
        self._target, self._part = target, part
        self._upload: Upload | None = None
        self.error = ""

    def add(self, rows: pa.RecordBatch) -> None:
        """Stage more rows, none after an error."""
        if self.error:
            return
        try:
            for request in requests(self._target, rows):
                if self._upload is None:
                    self._upload = BlockingChannel(self._target.access).upload(methods.EPOCH_WRITER.Stage)
                    self._upload.send([header(self._target, self._part)])
                self._upload.send(request)
                pause("staging")
        except (CallError, SchemaError) as error:
            self._note(error)

    def finish(self) -> bool:
        """Whether anything is staged."""
        if self._upload is None or self.error:
            return False
        try:
            self._upload.finish()
        except CallError as error:
            self._note(error)
            return False
        pause("staged")
        return True

    def close(self) -> None:
        if self._upload is not None:
            self._upload.close()

    def _note(self, error: CallError | SchemaError) -> None:
        if isinstance(error, CallError) and error.code in SERVER_IS_GONE:
            raise error
        self.error = f"{type(error).__module__}.{type(error).__qualname__}: {error}"


def stage_flows(
    target: SinkTarget, part: StagedPart, flows: Mapping[str, SharedFlow], batches: Iterator[pa.RecordBatch]
) -> list[StagedFlow]:
    """Stage all rows; where they have no column of flows there is one flow alone. Raises CallError when the server is
    gone.
    """
    stages: dict[str, _Stage] = {}
    try:
        for batch in batches:
            for name, rows in _by_flow(batch, flows):
                flow = flows.get(name)
                if flow is None:
                    continue
                if name not in stages:
                    own = replace(part, query=flow.epochs, run=flow.run)
                    stages[name] = _Stage(replace(target, topic=flow.target, link=flow.name), own)
                stages[name].add(rows)
        return [StagedFlow(name, flows[name].run, one.finish(), one.error) for name, one in stages.items()]
    finally:
        for one in stages.values():
            one.close()


def _by_flow(batch: pa.RecordBatch, flows: Mapping[str, SharedFlow]) -> Iterator[tuple[str, pa.RecordBatch]]:
    if not batch.num_rows:
        return
    if FLOW not in batch.schema.names:
        if len(flows) > 1:
            raise SchemaError(f"Rows of {len(flows)} flows need the column {FLOW}, as it was read.")
        yield next(iter(flows), ""), batch
        return
    for name, rows in by_column(batch, FLOW):
        if name is None:
            raise SchemaError(f"A row has no flow: the column {FLOW} is null.")
        yield name, rows.drop_columns([FLOW])
