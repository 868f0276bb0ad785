"""What outlives the drivers of a simulated Spark: jobs, and the checkpoints of their queries.

Place: under `spark`. A checkpoint is as Spark keeps it: the plan of a batch is written before the batch is run, and
that it is over afterwards; a batch that is planned and not over is run again, as planned.
"""

from __future__ import annotations

from pyspark_pubsub.offsets import Offsets
from syncpoint.testing.simulation.pipeline_calls import PipelineCalls
from syncpoint.testing.simulation.simulated_jobs import ALONE, SimulatedJobs

SOURCE = "projects/p/topics/source"
SUBSCRIPTION = "projects/p/subscriptions/alone"
TARGETS = ("projects/p/topics/one", "projects/p/topics/two")


class Concurrent(Exception):
    """Another driver has written this file of the checkpoint."""


class SimCheckpoint:
    """The folder of one query, shared by all its drivers."""

    def __init__(self, query: str) -> None:
        self.query = query
        self.initial: Offsets | None = None
        self.began = 0  # stamp of the history, from after it learned where it begins
        self.offsets: dict[int, Offsets] = {}
        self.commits: set[int] = set()
        self.planned: dict[int, int] = {}  # batch -> stamp of the history, from before its positions were asked for

    @property
    def next(self) -> int:
        """The batch to run."""
        last = max(self.offsets, default=-1)
        return last if last >= 0 and last not in self.commits else last + 1

    def plan(self, number: int, offsets: Offsets, stamp: int) -> None:
        if number in self.offsets or number != len(self.offsets):
            raise Concurrent
        self.offsets[number], self.planned[number] = offsets, stamp

    def over(self, number: int, planned: Offsets) -> None:
        """A batch was run as planned. After a power cut took its plan, somebody else may have planned it anew: Spark
        would take that plan for run, and its link would refuse the gap.
        """
        if number in self.commits or self.offsets.get(number) is not planned:
            raise Concurrent
        self.commits.add(number)

    def lose(self, plan: bool) -> None:
        """A power cut takes the newest files: that the last batch was over, and with `plan` its plan, too."""
        last = max(self.offsets, default=-1)
        if last >= 0:
            self.commits.discard(last)
            if plan:
                del self.offsets[last]


class QueryFenced(Exception):
    """A later run has taken over."""


class JobFailed(Exception):
    """The query fails and is restarted by its supervisor."""


class SimJob:
    """One job over all its lives: a query, its checkpoints and its drivers."""

    def __init__(self, sim: SimulatedJobs, kind: str, patience_s: float = 4.0) -> None:
        self.sim, self.kind, self.calls = sim, kind, PipelineCalls(sim, patience_s)
        self.random = sim.random
        self.checkpoints = 0
        self.idle_since: float | None = None
        self._processed: dict[str, dict[int, int]] = {}
        self.latest = False  # the next reader begins at the end, which leaves a gap to what its link has
        self.fresh()

    def fresh(self) -> None:
        """A new checkpoint: to Spark another query."""
        self.checkpoints += 1
        self.checkpoint = SimCheckpoint(f"{self.kind}{self.checkpoints}")

    def processed(self, checkpoint: SimCheckpoint) -> dict[int, int]:
        """Up to where the server was notified that each source was read: it need not keep what lies before. All
        checkpoints of the job share its cursor; each that reads the subscription alone acknowledges in a generation of
        its own.
        """
        return self._processed.setdefault(checkpoint.query if self.kind == ALONE else self.kind, {})

    def note(self, text: str) -> None:
        self.sim.note(f"{self.checkpoint.query}: {text}")
