"""Is any of eight figures worse than in the last release? Both source trees in turns, on the same core.

    make bench-gate                      beside the newest tag
    make bench-gate BEFORE=8385d918      beside a commit, or the folder of a tree whose kernel is built

Both systems are up all the time; who is first changes from pair to pair, and what counts is the median of the pairs'
quotients. A figure fails when even the better half of its pairs is worse than allowed, so a busy minute does not fail
it. The table on the performance page is written from the figures, and the exit code is 1 where one fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

from bench.clusters import running
from bench.harness import Bench, Run, Target, arguments, number
from bench.machine import ROOT
from bench.process import Failed, UnderLoad
from syncpoint.programs.clusters.local import Shape

PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- guard: written by `make bench-gate` -->", "<!-- end -->"
MORE_MAX = 1.05
TAILS_MORE_MAX = 1.25  # of a latency at p99, which the disk decides


class Figure(NamedTuple):
    """One of the eight. `load`: options of the load generator; `key`: what is read of a run."""

    name: str
    unit: str
    key: str
    load: Mapping[str, Any]
    more_max: float = MORE_MAX


CPU = "server_cpu_us_per_msg"
SLOWLY = {"batch": 1, "size": 1024, "rate": 1000}
NODE = (
    Figure("100 B, 100 per Publish", "µs", CPU, {"batch": 100, "size": 100, "in_flight": 8}),
    Figure("1 KB, 100 per Publish", "µs", CPU, {"batch": 100, "size": 1024, "in_flight": 8}),
    Figure("10 KB, 100 per Publish", "µs", CPU, {"batch": 100, "size": 10_240, "in_flight": 8}),
    Figure("1 KB singly, 64 in flight", "µs", CPU, {"batch": 1, "size": 1024, "in_flight": 64}),
    Figure("1 KB singly, 512 in flight", "µs", CPU, {"batch": 1, "size": 1024, "in_flight": 512}),
    Figure("1 KB singly, 1,000 a second", "µs", CPU, SLOWLY),
    Figure("1,000 a second: publish p99", "ms", "publish_p99_ms", SLOWLY, TAILS_MORE_MAX),
)
CLUSTER = (Figure("cluster: 1 KB singly, 512 in flight", "µs", CPU, {"batch": 1, "size": 1024, "in_flight": 512}),)
WARM_UP_S = 1.0


class Outcome(NamedTuple):
    """A figure in both trees, pair by pair."""

    figure: Figure
    pairs: list[tuple[float, float]]

    @property
    def quotients(self) -> list[float]:
        """Now divided by before."""
        return [now / before for before, now in self.pairs]

    @property
    def failed(self) -> bool:
        """Whether the better half of the pairs is worse than allowed."""
        better = quantiles(self.quotients, n=4)[0] if len(self.pairs) > 1 else self.quotients[0]
        return better > self.figure.more_max


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print, write the page. Exits with 1 where a figure fails."""
    parser = arguments("CPU per message published, delivered and acknowledged, of two source trees in turns")
    parser.set_defaults(runs=7)
    parser.add_argument("--node-only", action="store_true", help="leave the cluster out")
    parser.add_argument("--write", action="store_true", help="write the table of docs/performance.md")
    options = parser.parse_args(argv)
    try:
        b = Bench("guard", parser.description or "", options)
    except Failed as problem:
        raise SystemExit(f"guard: {problem}") from None
    try:
        with older_tree(options.before or newest_tag(), b.scratch) as before:
            outcomes = measured(b, before, NODE, servers)
            if not options.node_only:
                outcomes += measured(b, before, CLUSTER, clusters)
            names = f"{commit_of(before)} before, {commit_of(ROOT)} now"
        for one in outcomes:
            _state(b, one, names)
        b.finish()
        if options.write:
            write_page(outcomes, names)
    except Failed as problem:
        raise SystemExit(f"guard: {problem}") from None
    finally:
        b.remove()
    worse = [one.figure.name for one in outcomes if one.failed]
    if worse:
        raise SystemExit(f"guard: worse than before: {'; '.join(worse)}")


# -- the two trees -----------------------------------------------------------------------------------------------------


def newest_tag() -> str:
    """The last release. Raises Failed where there is none."""
    found = _git("describe", "--tags", "--abbrev=0", "--match", "v*")
    if not found:
        raise Failed("there is no tag v*; name a commit or a tree: --before COMMIT")
    return found


@contextmanager
def older_tree(named: str, scratch: Path) -> Iterator[Path]:
    """The folder of a tree with its kernel built: the one named, or a worktree of the commit named. Raises Failed."""
    if Path(named).is_dir():
        yield Path(named).resolve()
        return
    if not _git("rev-parse", "--verify", "--quiet", f"{named}^{{commit}}"):
        raise Failed(f"{named} is neither a folder nor a commit of this repository")
    tree = Path(tempfile.mkdtemp(prefix="before-", dir=scratch)) / "tree"
    _git("worktree", "add", "--detach", str(tree), named)
    try:
        env = {**os.environ, "PYTHONPATH": str(tree / "src")}
        kernel = "base.kernel" if (tree / "src/syncpoint/base/kernel").is_dir() else "kernel"
        built = subprocess.run(
            [sys.executable, "-m", f"syncpoint.{kernel}.build"],
            cwd=tree, env=env, capture_output=True, text=True, timeout=900, check=False,
        )  # fmt: skip
        if built.returncode:
            raise Failed(f"the kernel of {named} does not build:\n{built.stderr[-2000:]}")
        yield tree
    finally:
        _git("worktree", "remove", "--force", str(tree))


def commit_of(tree: Path) -> str:
    """A short name of what is checked out there."""
    return _git("-C", str(tree), "describe", "--always", "--dirty", "--exclude=*") or tree.name


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


# -- the runs ----------------------------------------------------------------------------------------------------------

Started = Callable[[Bench, ExitStack, Path], UnderLoad]


def servers(b: Bench, stack: ExitStack, tree: Path) -> UnderLoad:
    """A server of a tree, until the stack is closed."""
    return stack.enter_context(b.server(tree=tree))


def clusters(b: Bench, stack: ExitStack, tree: Path) -> UnderLoad:
    """A cluster of a tree, until the stack is closed."""
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = f"{tree / 'src'}:{before}".rstrip(":")
    try:
        return stack.enter_context(running(b.data("cluster") / "c", Shape()))
    finally:
        os.environ["PYTHONPATH"] = before


def measured(b: Bench, before: Path, figures: Sequence[Figure], start: Started) -> list[Outcome]:
    """All figures of two systems that are up together, in turns. Raises Failed where a message is lost."""
    with ExitStack() as stack:
        systems = [start(b, stack, tree) for tree in (before, ROOT)]
        for system in systems:
            b.create(system)
        loads = {id(one.load): one.load for one in figures}
        runs: dict[int, list[list[Run]]] = {}
        for key, load in loads.items():
            for system in systems:
                _run(b, system, load, WARM_UP_S)
            runs[key] = [_pair(b, systems, load, turned=turn % 2 == 1) for turn in range(b.options.runs)]
    return [Outcome(one, [(old[one.key], new[one.key]) for old, new in runs[id(one.load)]]) for one in figures]


def _pair(b: Bench, systems: Sequence[UnderLoad], load: Mapping[str, Any], *, turned: bool) -> list[Run]:
    b.disk.run()
    runs = [_run(b, one, load, b.options.seconds) for one in (reversed(systems) if turned else systems)]
    return runs[::-1] if turned else runs


def _run(b: Bench, system: UnderLoad, load: Mapping[str, Any], seconds: float) -> Run:
    run = b.load(system, "e2e", seconds=seconds, **load)
    if run["missing"] or run["duplicates"]:
        raise Failed(f"{run['missing']} messages missing, {run['duplicates']} repeated: {dict(load)}")
    return run


# -- the figures -------------------------------------------------------------------------------------------------------


def _state(b: Bench, outcome: Outcome, names: str) -> None:
    figure = outcome.figure
    for name, values in zip(("before", "now"), zip(*outcome.pairs, strict=True), strict=True):
        b.row(figure.name, name, figure.unit, values)
    b.row(figure.name, "now / before, by pairs", "", outcome.quotients, Target(figure.more_max), names)


def write_page(outcomes: Sequence[Outcome], names: str) -> None:
    """Put the table on the performance page, between its marks."""
    lines = [
        f"Measured {datetime.now(UTC):%Y-%m-%d}, {names}; medians of {len(outcomes[0].pairs)} pairs of runs.",
        "",
        "| CPU per message, all server threads | before | now | now / before (range) |",
        "|---|---|---|---|",
    ]
    for one in outcomes:
        before, now = (f"{number(median(values))} {one.figure.unit}" for values in zip(*one.pairs, strict=True))
        spread = f"{median(one.quotients):.2f} ({min(one.quotients):.2f}–{max(one.quotients):.2f})"
        lines.append(f"| {one.figure.name} | {before} | {now} | {spread} |")
    text = PAGE.read_text()
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    if not tail:
        raise Failed(f"{PAGE.name} has no place for the table: {BEGIN} and {END}")
    PAGE.write_text("\n".join((head + BEGIN, *lines, END)) + tail)


if __name__ == "__main__":
    main()
