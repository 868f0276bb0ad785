"""What the cases share: servers and sessions of one case, turns, ratios within one run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from bench.harness import Bench
from bench.process import Failed, Server, UnderLoad
from bench.spark.processes import Meter, Spark
from bench.spark.topics import Topics
from bench.spark.work import RAW_PROFILE
from pyspark_pubsub.flows_file import FlowsFile
from syncpoint.programs.federation.flow_options import reading, writing
from syncpoint.programs.federation.flow_plan import FederationLink, Flow
from syncpoint.programs.federation.flow_starts import FlowStart
from syncpoint.programs.federation.link_query import shared_flow
from syncpoint.programs.federation.spec import FederatedCluster, FieldChange, Runtime

PARTITIONS = "4"
"""Into how many tasks a batch read is split, ours and others'; two run at a time."""
EPOCH_ROWS = 5
"""Rows of a small batch."""
WARM_UPS = 2
"""Runs at first that do not count: the JVM still compiles."""


class Skipped(Exception):
    """A case cannot be measured on this machine; the text says why."""


@dataclass
class SparkHarness:
    """One case being measured."""

    bench: Bench
    stack: ExitStack

    @property
    def rows(self) -> int:
        found: int = self.bench.options.rows
        return found

    @property
    def runs(self) -> int:
        found: int = self.bench.options.runs
        return found

    @property
    def small_batches(self) -> int:
        """Small batches of one run; fewer in a trial with few rows."""
        return max(20, min(70, self.rows // 2000))

    def server(self) -> tuple[Server, Topics]:
        """A server on the servers' core, until the case ends."""
        server = self.stack.enter_context(self.bench.server())
        return server, self.stack.enter_context(Topics(server.address))

    def spark(self, settings: Mapping[str, str] = RAW_PROFILE) -> Spark:
        """A session, with the settings of federation or others; use it in a `with`."""
        folder = self.bench.data("spark")
        common = {
            "spark.driver.memory": "2g",
            "spark.python.daemon.module": "bench.spark.counted_daemon",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.sql.streaming.numRecentProgressUpdates": "1000",
        }
        spark = Spark(folder, {**common, **settings}, master=self.bench.options.master)
        self.say(f"Spark has started in {spark.start_seconds:.0f} s")
        return spark

    def metered(self, spark: Spark, servers: Sequence[UnderLoad], work: str, **given: Any) -> tuple[Meter, Any]:
        """What a piece of work on Spark cost, and its result."""
        with Meter(spark, servers) as meter:
            result = spark.do(work, **given)
        self.bench.runs.append({"other_cpu_share": meter.other})
        return meter, result

    def noted(
        self, turn: int, name: str, meter: Meter, shown: Mapping[str, Any],
        spent: Mapping[str, list[Meter]], steady: Mapping[str, list[float]],
    ) -> None:  # fmt: skip
        """Say what a flow has cost behind its first batch, and keep it, unless it was to warm up. `shown`: as
        `bench.spark.work.copy` gives it; `steady`: rows per CPU second.
        """
        rate = shown["steady_rows"] / shown["steady_cpu_seconds"]
        self.say(f"{turn}: {name} {rate:,.0f} rows per CPU second")
        if turn >= WARM_UPS:
            spent[name].append(meter)
            steady[name].append(rate)

    def turns(
        self, spark: Spark, servers: Sequence[UnderLoad], sides: Mapping[str, Mapping[str, Any]], work: str
    ) -> dict[str, list[Meter]]:
        """The same work for every side in every run, the order changing; without the first runs, which warm up."""
        found: dict[str, list[Meter]] = {name: [] for name in sides}
        for turn in range(self.runs + WARM_UPS):
            for name in rotated(tuple(sides), turn):
                meter, _ = self.metered(spark, servers, work, **sides[name])
                self.say(f"{turn}: {name} {meter.spark:.2f} s of CPU, {meter.wall:.2f} s")
                if turn >= WARM_UPS:
                    found[name].append(meter)
        return found

    def flow_options(
        self, here: Server, there: Server, topic: str, target: str, *, linked: bool = True, by_row: bool = False
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Options of source and sink as federation gives them to a flow; or, not linked, of a sink that appends.
        `by_row`: as for a flow that changes messages, though nothing is changed.
        """
        name = target.rpartition("/")[2]
        change = FieldChange(where="true" if by_row else "")
        a, b = FederatedCluster("a", here.address), FederatedCluster("b", there.address)
        link = FederationLink(name, "replicate", a, b, "bench", "bench", change=change)
        flow = Flow(name, link, topic, target)
        folder = self.bench.data("checkpoint")
        runtime = Runtime(state=folder)
        runtime = replace(runtime, max_rows=min(runtime.max_rows, max(EPOCH_ROWS, self.rows // 5)))
        file = FlowsFile(folder / f"{name}-flows" / "flows.json")
        file.write([shared_flow(flow, FlowStart("earliest"))])
        read, write = reading(link, runtime, file.path), writing(link, file.path, folder / name)
        if linked:
            return read, write
        del read["flows"], write["flows"]
        return {**read, "topic": topic, "cursor": name}, {**write, "topic": target}

    def say(self, text: str) -> None:
        self.bench.console.print(f"  {text}", style="dim", highlight=False, markup=False)


def rotated(names: tuple[str, ...], turn: int) -> tuple[str, ...]:
    """The names in another order in every turn."""
    at = turn % len(names)
    return names[at:] + names[:at]


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Run by run."""
    return [one / other for one, other in zip(ours, theirs, strict=True)]


def differences(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Run by run."""
    return [one - other for one, other in zip(ours, theirs, strict=True)]


def per_row(meters: Sequence[Meter], rows: int, server: int | None = None) -> list[float]:
    """Microseconds of CPU per row: of Spark, or of a server."""
    return [(one.spark if server is None else one.servers[server]) * 1e6 / rows for one in meters]


def check(what: str, found: int, wanted: int) -> None:
    """Raise Failed: a figure of the wrong number of rows is none."""
    if found != wanted:
        raise Failed(f"{what}: {found:,} instead of {wanted:,}")


Case = Callable[[SparkHarness], None]
