"""Many seeds on all cores: what `tools/sim.py` and the tests call.

Promise: a run fails for a seed whose simulation broke a promise, and, when it is long enough, for anything that should
have happened sometimes and never did. What one seed does depends on nothing but the seed.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing.pool import Pool

from syncpoint.testing.simulation.chain_runs import run_chains
from syncpoint.testing.simulation.cluster_faults import FAULTS as CLUSTER_FAULTS
from syncpoint.testing.simulation.cluster_faults import IN_A_COMMIT
from syncpoint.testing.simulation.consumed import KINDS
from syncpoint.testing.simulation.consumer_ends import ENDS, MOODS
from syncpoint.testing.simulation.consumer_runs import CONSUMER_FAULTS, run_consumers
from syncpoint.testing.simulation.coverage import missing
from syncpoint.testing.simulation.delivery_runs import FURTHER, LIES, run_delivery
from syncpoint.testing.simulation.faults import FAULTS
from syncpoint.testing.simulation.gateway_runs import GATEWAY_FAULTS, run_gateways
from syncpoint.testing.simulation.imported_runs import STRIKES, run_imported
from syncpoint.testing.simulation.loop import SimulationStuck
from syncpoint.testing.simulation.pipeline_faults import PIPELINE_FAULTS
from syncpoint.testing.simulation.scenario import run_cluster
from syncpoint.testing.simulation.scheduled_runs import run_scheduled
from syncpoint.testing.simulation.sim_runs import RunResult

CHAINS_WANTED = frozenset(
    {
        *(f"fault: {kind}" for kind in FAULTS),
        "a chain is taken over from a living owner",
        "a chain is taken over from one that hangs",
        "a command is lost on the way",
        "a client keeps its acknowledgements to the end",
        "a disk server dies in a command",
        "a fenced owner stops",
        "a key is refused for its epoch",
        "a message is left to its deadline",
        "a publish is answered after it was sent again",
        "a snapshot owes messages when all is quiet",
        "a subscription is created while messages are published",
        "a dead letter is published",
        "a subscription is deleted",
        "a subscription is moved back",
        "a subscription is moved to a snapshot of another one",
        "a subscription is moved to a time",
        "a subscription is updated",
        "a topic is deleted",
        "a transaction was applied long after it was given up",
        "a subscription is moved to a snapshot",
        "a subscription stays creating",
        "an acknowledgement fails",
        "an answer of a disk is lost on the way",
        "frames are read at recovery",
        "keys move to other chains",
        "opening is refused: DisksMissing",
        "other chains seal before keys are taken",
        "the metadata is out of reach when it is needed",
    }
)
"""What has to come up in the small simulation. Not among it, because some hundred short lives seldom have it: a tail
cut at recovery (an entry lost on every disk with a later one kept), and an acknowledgement unknown for the five seconds
after which its sender receives an error.
"""

SCHEDULED_WANTED = frozenset(
    {
        "a scheduled message is cancelled",
        "a chain is taken over from a living owner",
        "a publish is answered after it was sent again",
        "an owner is killed when something is due",
    }
)
"""The same of scheduled messages."""

Runner = Callable[[int], RunResult]


@dataclass
class Report:
    """What came of many seeds."""

    seeds: int = 0
    real_s: float = 0.0
    virtual_s: float = 0.0
    bad: list[tuple[int, list[str]]] = field(default_factory=list)
    happened: Counter[str] = field(default_factory=Counter)
    looked: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    lacking: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not self.bad and not self.lacking

    def add(self, result: RunResult) -> None:
        """One more."""
        self.seeds += 1
        self.virtual_s += result.virtual_s
        self.happened.update(dict.fromkeys(result.happened, 1))
        self.looked.update(result.looked)
        self.counts.update(result.counts)
        if not result.good:
            self.bad.append((result.seed, result.violations))

    def close(self, wanted: frozenset[str], enough: int) -> None:
        """No more come. Of `enough` seeds everything `wanted` must have happened in one."""
        self.bad.sort()
        if self.seeds >= enough:
            self.lacking = missing(wanted, self.happened)

    def tally(self) -> dict[str, list[int]]:
        """Which promise was broken by which seeds."""
        found: dict[str, list[int]] = defaultdict(list)
        for seed, violations in self.bad:
            for name in sorted({one.partition(":")[0] for one in violations}):
                found[name].append(seed)
        return dict(found)

    def __str__(self) -> str:
        lines = [f"{self.seeds} seeds in {self.real_s:.1f} s, {self.virtual_s:.0f} s of simulated time"]
        lines.append("checked: " + ", ".join(f"{name} {count}" for name, count in sorted(self.looked.items())))
        lines.append("happened: " + ", ".join(f"{name} ({n})" for name, n in sorted(self.happened.items())))
        for seed, violations in self.bad:
            lines += [f"seed {seed}:", *(f"  {one}" for one in violations[:6])]
        lines.append(f"failed: {len(self.bad)} of {self.seeds}")
        lines += [f"  {name}: {len(seeds)}: {_some(seeds)}" for name, seeds in sorted(self.tally().items())]
        if self.lacking:
            lines.append("never happened: " + ", ".join(self.lacking))
        return "\n".join(lines)


def _some(seeds: list[int]) -> str:
    return ", ".join(map(str, seeds[:12])) + (", ..." if len(seeds) > 12 else "")


def run_one(seed: int, run: Runner = run_chains) -> RunResult:
    """One seed; what it raises is a violation, too."""
    try:
        return run(seed)
    except (Exception, SimulationStuck):
        text = traceback.format_exc(limit=-6)
        return RunResult(seed, [f"the simulation broke: {text}"], Counter(), {}, "", 0, 0.0, 0.0)


def run_many(
    seeds: Iterator[int],
    *,
    run: Runner = run_chains,
    wanted: frozenset[str] = CHAINS_WANTED,
    enough: int = 400,
    jobs: int = 0,
    seconds: float = 1e9,
    on_result: Callable[[RunResult], None] = lambda result: None,
) -> Report:
    """Run seeds until there are no more, or for so long. `jobs` 0: on all cores."""
    report, begun = Report(), time.monotonic()
    jobs = jobs or os.cpu_count() or 1

    def within_time() -> Iterator[int]:
        for seed in seeds:
            if time.monotonic() - begun > seconds:
                return
            yield seed

    if jobs == 1:
        for seed in within_time():
            result = run_one(seed, run)
            report.add(result)
            on_result(result)
    else:
        _run_on_cores(report, within_time(), run, jobs, on_result)
    report.real_s = time.monotonic() - begun
    report.close(wanted, enough)
    return report


def _cores(jobs: int) -> Pool:
    return multiprocessing.get_context("spawn").Pool(jobs, initializer=_begin, maxtasksperchild=200)


def _begin() -> None:
    """What has been imported by now stays, so that collecting garbage does not walk through it again and again."""
    gc.freeze()


def _run_on_cores(
    report: Report, seeds: Iterator[int], run: Runner, jobs: int, on_result: Callable[[RunResult], None]
) -> None:
    with _cores(jobs) as pool:
        waiting = [pool.apply_async(run_one, (seed, run)) for seed in islice(seeds, 2 * jobs)]
        while waiting:
            result = waiting.pop(0).get()
            report.add(result)
            on_result(result)
            waiting += [pool.apply_async(run_one, (seed, run)) for seed in islice(seeds, 1)]


@dataclass(frozen=True)
class SimulationKind:
    """A kind of simulation, for those who name it."""

    run: Callable[..., RunResult]
    wanted: frozenset[str]
    tested: int  # seeds that belong to `make test`
    enough: int  # from so many seeds on everything wanted must have happened

    def replay(self, seed: int) -> RunResult:
        """Run one seed, and print everything that happens in it."""
        return self.run(seed, trace=print)


CLUSTER_WANTED = frozenset(
    {
        *(f"fault: {kind}" for kind in CLUSTER_FAULTS),
        "a client's stream ends",
        "a dead letter arrives",
        "a process stops",
        "a subscription is moved back",
        "a topic is deleted",
        "keys are rotated",
        "rules change for all",
        "rules change for what is new",
        "the metadata are restored",
        "what earlier rules were for is let go of",
        "a publish succeeds after a failure",
        "a transaction of unknown outcome was applied",
        "a transaction of unknown outcome was not applied",
        "an acknowledgement is not confirmed",
    }
)
"""What has to come up in whole clusters."""


def _run_pipelines(seed: int, trace: Callable[[str], None] | None = None) -> RunResult:
    from syncpoint.testing.simulation.pipeline_runs import run_pipelines  # needs pyspark

    return run_pipelines(seed, trace=trace)


PIPELINES_WANTED = frozenset(
    {
        *(f"fault: {kind}" for kind in PIPELINE_FAULTS),
        "a batch is committed",
        "a checkpoint is lost",
        "a checkpoint loses a commit",
        "a checkpoint loses a plan",
        "a commit stays unknown",
        "a driver goes on as a zombie",
        "a driver is killed",
        "a gap is accepted",
        "a gap is refused",
        "a log fails",
        "a reader is notified of a seek",
        "a reader waits until a subscription is free",
        "a run is fenced",
        "a subscription is reset while it is read alone",
        "a task dies in the middle",
        "acknowledged messages are left out",
        "an epoch is aborted",
        "an epoch is reported as repeated",
        "an executor is lost with what it staged",
        "rows of a link are dropped as duplicates",
        "what everybody has read is deleted",
    }
)
"""What has to come up where pipelines are served."""

DELIVERY_WANTED = frozenset(
    {
        *(f"fault: {kind}" for kind in (*FAULTS, *FURTHER) if kind != LIES),
        "a client keeps its acknowledgements to the end",
        "a key is refused for its epoch",
        "a message is left to its deadline",
        "a topic is deleted",
        "a topic is reset of which nothing is stored",
        "an acknowledgement fails",
        "an acknowledgement of unknown outcome is tried again",
        "keys move to other chains",
        "the outcome of an acknowledgement is unknown",
    }
)
"""What has to come up in the shapes that are hard on delivery."""

CLUSTER_PIPELINES_WANTED = frozenset(
    {
        *(f"fault: {kind}" for kind in (*CLUSTER_FAULTS, *IN_A_COMMIT)),
        "a batch is committed",
        "a commit stays unknown",
        "a driver goes on as a zombie",
        "a driver is killed",
        "a run is fenced",
        "a task dies in the middle",
        "a topic lies in several chains",
        "an epoch is reported as repeated",
        "what everybody has read is deleted",
    }
)
"""What has to come up where clusters serve pipelines."""


def _run_cluster_pipelines(seed: int, trace: Callable[[str], None] | None = None) -> RunResult:
    from syncpoint.testing.simulation.pipeline_clusters import run_cluster_pipelines  # needs pyspark

    return run_cluster_pipelines(seed, trace=trace)


CONSUMERS_WANTED = frozenset(
    {
        *(f"fault: {kind}" for kind in CONSUMER_FAULTS),
        *(f"what is {kind} is moved {where}" for kind in KINDS for where in ("back", "ahead")),
        *(f"{end}: {mood}" for end in ENDS for mood in MOODS),
        "a publish succeeds after a failure",
        "an id that was cancelled is scheduled again",
        "letters are brought back",
        "letters are redriven",
        "what is forwarded to is suspended",
    }
)
"""What has to come up where a node pushes, forwards, exports and redrives."""

IMPORTED_WANTED = frozenset(
    {
        *(f"an import is killed before {strike}" for strike in STRIKES if strike != "doubt"),
        "a node goes on after an import that was broken off",
        "a publish succeeds after a failure",
        "a transaction of unknown outcome was applied",
        "a transaction of unknown outcome was not applied",
        "an import is broken off before its note",
        "an import is broken off after its note",
    }
)
"""What has to come up where a node's folder becomes a cluster."""

SITES_WANTED = frozenset(
    {
        "a home moves",
        "a late call counts",
        "a power cut",
        "a round is refused",
        "a round stands still",
        "a seek",
        "a seek is followed",
        "a site is parted",
        "a snapshot is copied",
        "a snapshot is deleted",
        "deletion",
        "keys move",
    }
)
"""What has to come up where two sites exchange acknowledgements."""


def _run_sites(seed: int, trace: Callable[[str], None] | None = None) -> RunResult:
    from syncpoint.testing.simulation.moving_keys import run_keys  # needs pyarrow
    from syncpoint.testing.simulation.site_runs import run_sites

    return run_keys(seed, trace=trace) if seed % 15 == 14 else run_sites(seed, trace=trace)


GATEWAYS_WANTED = frozenset(
    {
        *(f"fault: {kind}" for kind in GATEWAY_FAULTS),
        "a message comes again",
        "a message is refused",
        "a publish is not confirmed",
        "an acknowledgement is not confirmed",
        "some acknowledgements of a request are confirmed",
    }
)
"""What has to come up where gateways stand in front of two sites."""

SIMULATIONS = {  # those with the longest lives first
    "cluster": SimulationKind(run_cluster, CLUSTER_WANTED, 12, 30),
    "imported": SimulationKind(run_imported, IMPORTED_WANTED, 6, 60),
    "cluster-pipelines": SimulationKind(_run_cluster_pipelines, CLUSTER_PIPELINES_WANTED, 8, 60),
    "delivery": SimulationKind(run_delivery, DELIVERY_WANTED, 40, 80),
    "scheduled": SimulationKind(run_scheduled, SCHEDULED_WANTED, 20, 20),
    "chains": SimulationKind(run_chains, CHAINS_WANTED, 100, 200),
    "consumers": SimulationKind(run_consumers, CONSUMERS_WANTED, 40, 120),
    "pipelines": SimulationKind(_run_pipelines, PIPELINES_WANTED, 50, 100),
    "sites": SimulationKind(_run_sites, SITES_WANTED, tested=180, enough=60),
    "gateways": SimulationKind(run_gateways, GATEWAYS_WANTED, tested=120, enough=60),
}


def run_tested(jobs: int, on_result: Callable[[RunResult], None]) -> dict[str, Report]:
    """What belongs to `make test`, by simulation, with the seconds that its seeds took, one after the other. All seeds
    share the cores, the longest lives first: nobody waits for the last ones of each simulation.
    """
    reports = {name: Report() for name in SIMULATIONS}
    lives = [(name, seed) for name, kind in SIMULATIONS.items() for seed in range(kind.tested)]
    with _cores(jobs or os.cpu_count() or 1) as pool:
        for name, result in pool.imap_unordered(_run_named, lives):
            reports[name].add(result)
            reports[name].real_s += result.real_s
            on_result(result)
    for name, report in reports.items():
        report.close(SIMULATIONS[name].wanted, SIMULATIONS[name].enough)
    return reports


def _run_named(life: tuple[str, int]) -> tuple[str, RunResult]:
    name, seed = life
    return name, run_one(seed, SIMULATIONS[name].run)
