"""What every question shares: options, runs of the load generator against a server, medians, the table, the record.

A question makes a `Bench`, starts servers with `bench.server()`, loads them with `bench.load()`, and states its figures
with `bench.row()`; `bench.finish()` prints the table and appends one JSON line per row to bench/results/NAME.jsonl.
Promises: the server runs on one core and the generator on another; every process ends by its own id; every run is
bounded in time; data goes below one scratch folder, removed at the end. A figure is the median of its runs, shown with
their range. Leaves the choice of load and of targets to the questions.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import machine
from bench.machine import ROOT
from bench.process import Failed, Server, UnderLoad

RESULTS = machine.ROOT / "bench" / "results"
CACHE = machine.ROOT / ".cache" / "bench"
TOPIC = "projects/bench/topics/load"
SUBSCRIPTION = "projects/bench/subscriptions/load"
Run = dict[str, Any]
"""What one run measured: the load generator's report plus `server_*` and `other_cpu_share`."""


@dataclass(frozen=True)
class Target:
    """What a figure should be: `limit` at most, or with `at_least` at least."""

    limit: float
    at_least: bool = False

    def met(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {number(self.limit)}"


@dataclass
class Row:
    case: str
    figure: str
    unit: str
    values: list[float]
    target: Target | None = None
    note: str = ""


def number(value: float) -> str:
    """A figure with about three significant digits, thousands apart."""
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    return f"{value:.{0 if size == 0 else 1 if size >= 10 else 2 if size >= 0.1 else 4}f}"


def spread(values: Sequence[float]) -> str:
    """Median and range, the range only when there are several values."""
    middle = number(median(values))
    return middle if len(values) < 2 else f"{middle} ({number(min(values))}–{number(max(values))})"


def build_loadgen() -> Path:
    """Builds the load generator when its sources changed; returns its path. Raises Failed with the compiler's words."""
    done = subprocess.run(
        ["make", "-s", "-C", str(machine.ROOT / "bench" / "loadgen"), f"BUILD={CACHE}"],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    if done.returncode:
        raise Failed(f"the load generator does not build (bench/setup.sh brings what it needs):\n{done.stderr[-3000:]}")
    return CACHE / "loadgen"


@dataclass
class Bench:
    """One question being measured."""

    name: str
    title: str
    options: argparse.Namespace
    rows: list[Row] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)

    def __post_init__(self) -> None:
        scratch = Path(self.options.scratch or CACHE / "scratch")
        scratch.mkdir(parents=True, exist_ok=True)
        self.scratch = Path(tempfile.mkdtemp(prefix=f"{self.name}-", dir=scratch))
        self.console = Console(width=max(160, Console().width))
        self.disk = machine.DiskProbe(self.scratch)
        self.machine = machine.describe(self.scratch)
        self._tag = int(time.time()) % 1_000_000 * 1000
        if (os.cpu_count() or 1) < 2:
            raise Failed("two cores are needed: one for the server, one for the load")

    @classmethod
    @contextlib.contextmanager
    def open(cls, name: str, title: str, argv: Sequence[str] | None = None) -> Iterator[Bench]:
        """The bench of a question run from the command line; prints and records at the end, removes its data always.

        A measurement that fails ends the program with its reason, after the figures it got so far.
        """
        try:
            bench = cls(name, title, arguments(title).parse_args(argv))
        except Failed as problem:
            raise SystemExit(f"{name}: {problem}") from None
        try:
            yield bench
            bench.finish()
        except Failed as problem:
            bench.finish()
            raise SystemExit(f"{name}: {problem}") from None
        finally:
            bench.remove()

    @functools.cached_property
    def loadgen(self) -> Path:
        """The load generator, built when first wanted. Raises Failed."""
        return build_loadgen()

    def remove(self) -> None:
        """Removes the data of all servers."""
        shutil.rmtree(self.scratch, ignore_errors=True)

    # -------------------------------------------------------------------------------------------- servers and loads

    def data(self, label: str = "data") -> Path:
        """A new empty data folder."""
        return Path(tempfile.mkdtemp(prefix=f"{label}-", dir=self.scratch))

    def server(self, *arguments: str, data: Path | None = None, tree: Path = ROOT) -> Server:
        """A server on the server's core, ready, of the sources in `tree`; use it in a `with`."""
        return Server(
            data or self.data(),
            core=self.options.server_core,
            arguments=arguments,
            command=shlex.split(self.options.server),
            tree=tree,
        )

    def create(self, server: UnderLoad, *, topics: int = 1, subscriptions: int = 1, **more: Any) -> Run:
        """Creates the topics and subscriptions that `load` uses."""
        if self.options.no_create:
            return {}
        return self.load(server, "create", topics=topics, subscriptions=subscriptions, **{"in_flight": 32, **more})

    def load(self, server: UnderLoad, mode: str, *, timeout: float = 0.0, **options: Any) -> Run:
        """One run of the load generator: `options` are its options with _ for -. Raises Failed when it does."""
        self._tag += 1
        merged = {"topic": TOPIC, "subscription": SUBSCRIPTION, "run": self._tag, **options}
        line = [str(self.loadgen), mode, server.address]
        line += [text for key, value in merged.items() for text in ("--" + key.replace("_", "-"), str(value))]
        return self.measured(line, server, timeout or float(options.get("seconds", 5)) + 60.0)

    def measured(self, line: Sequence[str], server: UnderLoad, limit: float) -> Run:
        """Runs a generator's command line for at most `limit` seconds and reads its JSON. Raises Failed.

        Adds what the server did in the meantime: server_cpu_seconds, server_cpu_us_per_msg, server_busy (share of its
        core), and other_cpu_share (CPU spent by everybody else on this machine, in cores: how quiet it was).
        """
        busy, cpu, begin = machine.busy_seconds(), server.cpu_seconds(), time.monotonic()
        try:
            done = subprocess.run(
                line, capture_output=True, text=True, timeout=limit, check=False,
                preexec_fn=lambda: os.sched_setaffinity(0, {self.options.load_core}),
            )  # fmt: skip
        except subprocess.TimeoutExpired as late:
            raise Failed(f"the load generator did not end within {limit:.0f} s: {shlex.join(line)}") from late
        wall = time.monotonic() - begin
        if done.returncode:
            raise Failed(f"{shlex.join(line)}\n{done.stderr}\nserver: {server.output()[-2000:]}")
        run: Run = json.loads(done.stdout)
        used = server.cpu_seconds() - cpu
        others = machine.busy_seconds() - busy - used - run["generator_cpu_seconds"]
        messages = max(run.get("published", 0), run.get("received", 0))
        run.update(
            server_cpu_seconds=used,
            server_busy=used / wall,
            server_cpu_us_per_msg=used * 1e6 / messages if messages else 0.0,
            other_cpu_share=max(0.0, others / wall),
        )
        self.runs.append(run)
        if run["errors"]:
            self.console.print(f"[red]{run['errors']} errors[/red], mostly {run.get('error', '?')}")
        if run.get("missing"):
            self.console.print(f"[red]{run['missing']} messages missing[/red]")
        return run

    # ------------------------------------------------------------------------------------------------------ figures

    def row(
        self, case: str, figure: str, unit: str, values: float | Sequence[float], target: Target | None = None,
        note: str = "",
    ) -> None:  # fmt: skip
        """States a figure: one value, or one per run."""
        listed = [float(values)] if isinstance(values, int | float) else [float(value) for value in values]
        self.rows.append(Row(case, figure, unit, listed, target, note))

    def rows_of(
        self, case: str, runs: Sequence[Mapping[str, Any]], figures: Mapping[str, tuple[str, str, Target | None]]
    ) -> None:
        """States several figures of the same runs: {key in the run: (figure, unit, target)}."""
        for key, (figure, unit, target) in figures.items():
            self.row(case, figure, unit, [run[key] for run in runs], target)

    def finish(self) -> None:
        """Prints the table and appends the rows to bench/results."""
        aimed = any(row.target for row in self.rows)
        table = Table(title=self.title, title_justify="left", caption_justify="left", caption=self._caption())
        for column in ("case", "figure"):
            table.add_column(column, no_wrap=True)
        for column in ("median (range)", "unit", *(("target", "") if aimed else ())):
            table.add_column(column, justify="right", no_wrap=True)
        table.add_column("note")
        last = ""
        for row in self.rows:
            if last and row.case != last and len(self.rows) > len({row.case for row in self.rows}):
                table.add_section()
            met = ""
            if row.target is not None:
                met = "[green]met[/]" if row.target.met(median(row.values)) else "[red]missed[/]"
            goal = (str(row.target) if row.target else "", met) if aimed else ()
            table.add_row(
                "" if row.case == last else row.case, row.figure, spread(row.values), row.unit, *goal, row.note
            )
            last = row.case
        self.console.print(table)
        if not self.options.no_record:
            self._record()

    def _caption(self) -> str:
        facts = " · ".join(f"{key} {value}" for key, value in self.machine.items())
        shares = [run["other_cpu_share"] for run in self.runs if "other_cpu_share" in run]
        quiet = f"CPU used by others in the meantime: {spread(shares)} cores" if shares else ""
        disk = self.disk.report()
        probe = ""
        if disk["fdatasync_samples"]:
            probe = (
                f"raw fdatasync of 4 KiB: p50 {number(disk['fdatasync_p50_ms'])} ms, "
                f"p99 {number(disk['fdatasync_p99_ms'])} ms ({disk['fdatasync_samples']:.0f} samples)"
            )
        return "\n".join(line for line in (facts, probe, quiet) if line)

    def _record(self) -> None:
        RESULTS.mkdir(parents=True, exist_ok=True)
        shares = [run["other_cpu_share"] for run in self.runs if "other_cpu_share" in run]
        common = {
            "question": self.name,
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": self.machine,
            "disk": self.disk.report(),
            "other_cpu_share_max": max(shares, default=0.0),
        }
        with (RESULTS / f"{self.name}.jsonl").open("a") as out:
            for row in self.rows:
                fields = {
                    **common, "case": row.case, "figure": row.figure, "unit": row.unit, "median": median(row.values),
                    "values": row.values, "note": row.note,
                    "target": str(row.target) if row.target else None,
                    "met": row.target.met(median(row.values)) if row.target else None,
                }  # fmt: skip
                out.write(json.dumps(fields) + "\n")


def arguments(title: str) -> argparse.ArgumentParser:
    """The options every question has; a question may add its own before parsing."""
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--runs", type=int, default=5, help="runs per figure (default: 5)")
    parser.add_argument("--seconds", type=float, default=3.0, help="seconds of load per run (default: 3)")
    parser.add_argument("--server-core", type=int, default=0)
    parser.add_argument("--load-core", type=int, default=1)
    parser.add_argument("--scratch", help="folder for data (default: .cache/bench/scratch)")
    parser.add_argument("--server", default=os.environ.get("SYNCPOINT_BENCH_SERVER", ""), help="server command line")
    parser.add_argument("--no-create", action="store_true", help="the server has its topic already")
    parser.add_argument("--no-record", action="store_true", help="do not append to bench/results")
    parser.add_argument("--messages", type=int, default=0, help="backlog, restart: how many (default: the usual)")
    parser.add_argument("--huge", action="store_true", help="the largest sizes too (100 million messages)")
    parser.add_argument("--before", help="unused: another source tree, its kernel built; a worktree of an older commit")
    return parser
