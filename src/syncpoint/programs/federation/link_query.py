"""One streaming query of a link, and the flows that share it.

Place: under the job. A query has a folder of its own while it runs: the file of its flows, what the source and the sink
say about them, and Spark's checkpoint, which nobody needs after the query ends: a flow goes on where its target is.
Promise: a flow comes and goes without the query's being started anew; once `has_left` is true, nothing of it is under
way here.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark_pubsub.checkpoint import planned_flows
from pyspark_pubsub.errors import OptionError
from pyspark_pubsub.flows_file import FlowsFile, SharedFlow
from syncpoint.programs.federation.flow_options import reading, writing
from syncpoint.programs.federation.flow_plan import FederationLink, Flow
from syncpoint.programs.federation.flow_starts import FlowStart
from syncpoint.programs.federation.spec import Runtime
from syncpoint.programs.federation.steps.step_counts import StepCounts
from syncpoint.programs.federation.transform import prepared

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

INITIALISING = "Initializing sources"
IDLE_LOOKS = 5  # so seldom is the progress of an idle query read, which is long where it has many flows


class LinkQuery:
    """`only`: the flow that has it for itself; None: it is the one that the flows of the link share. `counts`: of the
    link's steps, over all its runs. `lenient`: gaps are recorded and passed over.
    """

    def __init__(
        self,
        link: FederationLink,
        runtime: Runtime,
        folder: Path,
        counts: StepCounts,
        *,
        only: Flow | None = None,
        lenient: bool = False,
    ) -> None:
        self.link, self.runtime, self.folder, self.only, self.lenient = link, runtime, folder, only, lenient
        self.name = only.name if only is not None else link.name
        self.counts = counts
        self.last: Mapping[str, Any] = {}  # progress of the newest batch
        self._skip = 0  # looks that do not read the progress
        self.query: StreamingQuery | None = None
        self._file = FlowsFile(folder / "flows.json")
        self._members: dict[str, SharedFlow] = {}
        self._left: dict[str, int] = {}  # flows that were taken out, and the version without them

    # -- flows -----------------------------------------------------------------------------------------------------

    @property
    def flows(self) -> frozenset[str]:
        """The names of those it has."""
        return frozenset(self._members)

    def change(self, add: Iterable[tuple[Flow, FlowStart]] = (), remove: Iterable[str] = ()) -> None:
        """Let flows join, where they are to begin, and others leave."""
        gone = [name for name in remove if name in self._members]
        for name in gone:
            del self._members[name]
        for flow, start in add:
            self._left.pop(flow.name, None)
            self._members[flow.name] = shared_flow(flow, start)
        version = self._file.write(list(self._members.values()))
        self._left |= dict.fromkeys(gone, version)

    def has_left(self, name: str) -> bool:
        """Whether nothing of a flow that was taken out is under way any more."""
        version = self._left.get(name)
        return version is None or not self.active or self._file.seen() >= version

    def failures(self) -> dict[str, str]:
        """The flows that stand still, and why, while the others go on."""
        return self._file.failures()

    # -- the query -------------------------------------------------------------------------------------------------

    def start(self, spark: SparkSession) -> None:
        """Begin. Raises `InvalidArgument`, FlowsUnknown, and whatever Spark makes of it."""
        writer = self.written(prepared(self.read(spark), self.link, self.only))
        trigger = f"{round(self.runtime.trigger_s * 1000)} milliseconds"
        self.query = writer.queryName(self.name).outputMode("append").trigger(processingTime=trigger).start()

    def read(self, spark: SparkSession) -> DataFrame:
        """What is copied, as columns of messages."""
        source = reading(self.link, self.runtime, self._file.path, shared=self.only is None)
        frame: DataFrame = spark.readStream.format("pubsub").options(**source).load()
        return frame

    def written(self, frame: DataFrame) -> DataStreamWriter:
        """Where it is copied to."""
        options = writing(self.link, self._file.path, self.checkpoint)
        if self.lenient:
            options["failOnDataLoss"] = "false"
        return frame.writeStream.format("pubsub").options(**options)

    @property
    def checkpoint(self) -> Path:
        """Spark's, of this query."""
        return self.folder / "checkpoint"

    def prepare(self) -> None:
        """An empty folder: whatever an earlier run has left counts for nothing."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)

    def stop(self) -> None:
        """End it after its last commit."""
        if self.query is not None:
            self.query.stop()

    def remove(self) -> None:
        """Forget all of it, after its end."""
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def active(self) -> bool:
        return self.query is not None and bool(self.query.isActive)

    @property
    def initialising(self) -> bool:
        return self.query is not None and self.query.status["message"] == INITIALISING

    def look(self) -> bool:
        """Take in what Spark reports; whether it has come through a batch, or found nothing to do."""
        if self.query is None:
            return False
        if self._skip:
            self._skip -= 1
            return True
        if self.link.steps:
            self.counts.add(self.query.recentProgress)
        progress = self.query.lastProgress
        if progress is None:
            return False
        if progress["numInputRows"]:
            self.last = dict(progress)
        else:
            self._skip = IDLE_LOOKS - 1
        return True

    @property
    def lag(self) -> int | None:
        """Messages that wait, where only Spark can know; None: ask the servers, or not known yet."""
        return None

    @property
    def rows(self) -> int:
        """Rows it has written, where the target keeps no record of it."""
        return 0

    def suspects(self) -> list[str]:
        """The flows that the batch under way was to read. When a task fails, it is one of these."""
        offsets = self.checkpoint / "offsets"
        numbers = [int(path.name) for path in offsets.glob("[0-9]*") if path.name.isdigit()]
        if not numbers or (offsets.parent / "commits" / str(max(numbers))).exists():
            return []
        try:
            return sorted(planned_flows(str(offsets.parent), max(numbers)))
        except OptionError:
            return []  # its last file was not written whole


def shared_flow(flow: Flow, start: FlowStart) -> SharedFlow:
    """A flow as the file has it, under a new run."""
    target = "" if flow.link.steps.topics else flow.target_topic
    return SharedFlow(
        flow.name, flow.source_topic, uuid.uuid4().hex, target, start.position, start.offsets, stream=start.stream
    )
