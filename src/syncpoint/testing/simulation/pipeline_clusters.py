"""One seed of a cluster that serves pipelines: jobs read and write through proxies while owners and metadata fail.

Place: jobs and what is judged of them are in `pipeline_jobs`, the cluster is the one of `simulated_cluster`, whose
faults are in `cluster_faults`; beside them somebody strikes just when a commit is asked for, because epochs are short.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.broker.pipeline.homes import link_key, query_key
from syncpoint.broker.pipeline.mounting import ChainPipelines
from syncpoint.broker.pipeline.writing import EpochWriter
from syncpoint.broker.publish.chain.chain import Chain
from syncpoint.catalog.metadata.layout import LINK_HOMES, QUERY_HOMES
from syncpoint.testing.rigs.checkers import CheckResult
from syncpoint.testing.simulation.base import Trace
from syncpoint.testing.simulation.cluster_faults import FAULTS, IN_A_COMMIT, ClusterFaults
from syncpoint.testing.simulation.invariants import leftovers
from syncpoint.testing.simulation.loop import ProcessLoop
from syncpoint.testing.simulation.pipeline_jobs import JobsRun, small_steps
from syncpoint.testing.simulation.sim_runs import RunResult, simulate
from syncpoint.testing.simulation.simulated_cluster import SimulatedCluster
from syncpoint.testing.simulation.simulated_jobs import ALONE, LINK, PLAIN, PipelineShape, SimulatedJobs

CLUSTER_PIPELINE_FAULTS = (*FAULTS, *IN_A_COMMIT)
QUERIES = ((LINK,), (PLAIN,), (LINK, PLAIN), (ALONE,), (PLAIN, ALONE))


def run_cluster_pipelines(
    seed: int, *, shape: PipelineShape | None = None, kinds: tuple[str, ...] = (), trace: Trace | None = None
) -> RunResult:
    """Run one seed. `topology` and `kinds` of faults are drawn from it unless given."""
    drawn = shape or _draw(SeededRandom(seed * 3 + 7))

    def make(loop: ProcessLoop, clock: ManualClock) -> ClusterPipelineRun:
        return ClusterPipelineRun(SimulatedPipelineCluster(loop, clock, seed, drawn, trace), seed, kinds)

    with ExitStack() as stack:
        stack.enter_context(small_steps(drawn))
        return simulate(seed, make, trace)


def _draw(random: SeededRandom) -> PipelineShape:
    return PipelineShape(
        queries=QUERIES[random.randrange(0, len(QUERIES))],
        small=random.random() < 0.7,
        kept=random.random() < 0.3,
        pulled=random.random() < 0.2,
    )


class SimulatedPipelineCluster(SimulatedCluster, SimulatedJobs):
    """Simulate a cluster that serves pipelines. Each disk is a cluster of its own."""

    def __init__(
        self, loop: ProcessLoop, clock: ManualClock, seed: int, shape: PipelineShape, trace: Trace | None
    ) -> None:
        publishers = 2 + (seed % 3 == 0)
        super().__init__(loop, clock, seed, trace, 1, publishers=publishers, subscribers=1, sealed=seed % 5 == 0)
        self.of_jobs(shape)

    def homes(self) -> dict[str, int]:
        """Where queries and links are at home, by the metadata's key."""
        prefixes = (QUERY_HOMES, LINK_HOMES)
        return {item.key: int(item.value) for prefix in prefixes for item in self.store.range(prefix).items}


class JobFaults(ClusterFaults):
    """Those of a cluster, and what hits those who have to do with a commit."""

    def __init__(self, sim: SimulatedPipelineCluster, random: SeededRandom, kinds: tuple[str, ...]) -> None:
        drawn = kinds or tuple(kind for kind in CLUSTER_PIPELINE_FAULTS if random.random() < 0.4) or ("crash",)
        super().__init__(sim, random, drawn)
        self.jobs = sim

    def heal(self) -> None:
        self.jobs.on_commit = None
        super().heal()

    def _begin(self, kind: str) -> Callable[[], None] | None:
        return self._in_a_commit(kind) if kind in IN_A_COMMIT else super()._begin(kind)

    def _in_a_commit(self, kind: str) -> Callable[[], None]:
        """Some time after the next commit was asked for."""
        sim, after_s = self.jobs, self.random.random() ** 2 * 0.03
        struck: list[str] = []
        over = False

        def strike() -> None:
            if over:
                return
            homes = set(sim.homes().values())
            names = [name for name, chain in sim.owners() if chain.number in homes]
            if kind == "proxies killed in a commit":
                names = ["proxy0", "proxy1"]
            for name in names:
                process = sim.members[name].process
                if not process.alive or process.hung:
                    continue
                sim.note(f"fault: {kind} {name}")
                struck.append(name)
                if "hangs" in kind:
                    process.hang()
                else:
                    sim.crash(name)

        def armed() -> None:
            sim.on_commit = None
            sim.loop.call_later(after_s, strike)

        def heal() -> None:
            nonlocal over
            over, sim.on_commit = True, None
            for name in struck:
                process = sim.members[name].process
                if process.hung:
                    process.go_on()
                elif not process.alive:
                    sim.begin(name)
            struck.clear()

        sim.on_commit = armed
        return heal


class ClusterPipelineRun(JobsRun[SimulatedPipelineCluster]):
    """Run one seed of a cluster that serves pipelines."""

    patience_s = 8.0
    drain_s, quiesce_s, last_s = 90.0, 40.0, 90.0

    def __init__(self, sim: SimulatedPipelineCluster, seed: int, kinds: tuple[str, ...]) -> None:
        super().__init__(sim, seed, SeededRandom(seed * 5 + 2))
        self.faults = JobFaults(sim, SeededRandom(seed * 2), kinds)
        sim.note(f"seed {seed}: {sim.shape}, {self.seconds:.1f} s, faults: {', '.join(self.faults.kinds)}")

    async def begin(self) -> None:
        await self.sim.begin_all()

    async def go_wrong(self) -> None:
        await self.faults.go_wrong(self.seconds)

    def heal(self) -> None:
        self.faults.heal()

    async def strike(self) -> None:
        names = [name for name in self.sim.members if name not in self.sim.farm.servers]
        for name in names:
            self.sim.crash(name)
        for name in names:
            self.sim.begin(name)

    # -- the end -----------------------------------------------------------------------------------------------------

    def writers(self) -> list[EpochWriter]:
        return [_mounted(chain).writer for chain in self.sim.chains()]

    def unfinished(self) -> list[str]:
        sim = self.sim
        found = [*super().unfinished(), *sim.not_up()]
        for chain in sim.chains():
            found += self.unfinished_of(chain)
            found += leftovers(chain, sim.registered()) if self.quiescing else []
        return found + (self.staged() if self.quiescing else [])

    def further_verdicts(self) -> list[CheckResult]:
        return [self._homes()]

    def _homes(self) -> CheckResult:
        """What is in a chain's log is at home there, so that it is in no other one."""
        known, bad, looked = self.sim.homes(), [], 0
        for chain in self.sim.chains():
            state = _mounted(chain).writer.state
            for key in (*map(query_key, state.queries), *map(link_key, state.links)):
                looked += 1
                if known.get(key) != chain.number:
                    bad.append(f"{key} is in the log of chain {chain.number}, and at home in {known.get(key)}")
        return CheckResult("queries have one home", looked, tuple(bad))


def _mounted(chain: Chain) -> ChainPipelines:
    assert isinstance(chain.mounted, ChainPipelines)
    return chain.mounted
