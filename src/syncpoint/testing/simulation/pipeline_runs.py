"""One seed of a node that serves pipelines: jobs come and go, faults happen, all is healed, drained and judged."""

from __future__ import annotations

import asyncio

from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.broker.pipeline.writing import EpochWriter
from syncpoint.broker.publish.keep.backlog import unacknowledged
from syncpoint.testing.simulation.base import Trace
from syncpoint.testing.simulation.invariants import stored_for_nobody
from syncpoint.testing.simulation.loop import ProcessLoop
from syncpoint.testing.simulation.pipeline_faults import PipelineFaults
from syncpoint.testing.simulation.pipeline_jobs import PULLED, JobsRun, small_steps
from syncpoint.testing.simulation.sim_runs import RunResult, simulate
from syncpoint.testing.simulation.simulated_jobs import PipelineShape
from syncpoint.testing.simulation.simulated_node import NODE, SimulatedNode


def run_pipelines(
    seed: int, *, shape: PipelineShape | None = None, kinds: tuple[str, ...] = (), trace: Trace | None = None
) -> RunResult:
    """Run one seed. `topology` and `kinds` of faults are drawn from it unless given."""
    drawn = shape or PipelineShape.draw(SeededRandom(seed * 3 + 7))

    def make(loop: ProcessLoop, clock: ManualClock) -> PipelineRun:
        return PipelineRun(SimulatedNode(loop, clock, seed, drawn, trace), seed, kinds)

    with small_steps(drawn):
        return simulate(seed, make, trace)


class PipelineRun(JobsRun[SimulatedNode]):
    """Run one seed of a node that serves pipelines."""

    def __init__(self, sim: SimulatedNode, seed: int, kinds: tuple[str, ...]) -> None:
        super().__init__(sim, seed, SeededRandom(seed * 5 + 1))
        self.faults = PipelineFaults(sim, seed, kinds)
        sim.note(f"seed {seed}: {sim.shape}, {self.seconds:.1f} s, faults: {', '.join(self.faults.kinds)}")

    async def run(self) -> None:
        supervising = self.sim.loop.create_task(self.sim.supervise())
        await super().run()
        supervising.cancel()

    async def begin(self) -> None:
        self.sim.begin()

    def now_ns(self) -> int:
        return self.sim.clock_of(NODE).time_ns()

    async def go_wrong(self) -> None:
        sim, end = self.sim, self.sim.loop.time() + self.seconds
        while sim.loop.time() < end:
            await asyncio.sleep(0.1 + self.random.random() ** 2 * self.faults.pause_s)
            self.faults.strike(self.random)

    def heal(self) -> None:
        self.faults.heal()

    async def strike(self) -> None:
        self.sim.crash()
        self.sim.again()

    # -- the end -----------------------------------------------------------------------------------------------------

    def writers(self) -> list[EpochWriter]:
        return [self.sim.life.node.log.pipelines.writer] if self.sim.serving else []

    def unfinished(self) -> list[str]:
        sim = self.sim
        if not sim.serving:
            return [f"the node does not serve: {sim.refusal!r}"]
        node = sim.life.node
        status = node.log.store.status()
        found = super().unfinished()
        if status.under_replicated or status.failure:
            found.append(f"{status.under_replicated} entries are on too few disks {status.failure}")
        found += [f"disk {disk.path} is {disk.state}: {disk.reason}" for disk in status.disks if disk.state != "ok"]
        record = node.log.publish.catalog.subscription(f"projects/p/subscriptions/{PULLED}")
        left = unacknowledged(node.log.publish, record) if record is not None else 0
        found += [f"{left} messages are not acknowledged"] if left else []
        if self.quiescing:
            found += self.staged()
            found += [f"the node {text}" for text in stored_for_nobody(node.log.store, node.log.publish)]
        return found
