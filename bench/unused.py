"""What do features cost that nobody uses? The server's CPU per message, of two source trees in turns.

    git worktree add ../before COMMIT && (cd ../before && PYTHONPATH=src python -m syncpoint.kernel.build)
    python -m bench unused --before ../before --runs 7

Both servers are up all the time, on the same core; who is first changes from pair to pair. What counts is the median of
the pairs' quotients: what disturbs one of a pair mostly disturbs the other, too.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.harness import Bench, Run, Target
from bench.machine import ROOT
from bench.process import Failed, Server

CASES: dict[str, dict[str, Any]] = {
    "100 B by 100": {"size": 100},
    "1 KB by 100": {"size": 1024},
    "1 KB singly": {"size": 1024, "batch": 1, "in_flight": 64},
}
MORE_MAX = 1.03


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print the table."""
    title = "unused features: server CPU per message published, delivered and acknowledged, two source trees in turns"
    with Bench.open("unused", title, argv) as b:
        if not b.options.before:
            raise Failed("--before names the source tree to compare with")
        before = Path(b.options.before).resolve()
        if not list((before / "src/syncpoint/kernel").glob("*.so")):
            raise Failed(f"the kernel in {before} is not built: PYTHONPATH=src python -m syncpoint.kernel.build there")
        names = f"{_commit(before)} before, {_commit(ROOT)} now"
        with b.server(tree=before) as old, b.server() as new:
            for server in (old, new):
                b.create(server)
                for options in CASES.values():
                    b.load(server, "e2e", seconds=1, **options)
            for case, options in CASES.items():
                pairs = [_pair(b, old, new, turn % 2 == 1, options) for turn in range(b.options.runs)]
                figures = [[run["server_cpu_us_per_msg"] for run in runs] for runs in zip(*pairs, strict=True)]
                b.row(case, "CPU per message, before", "µs", figures[0])
                b.row(case, "CPU per message, now", "µs", figures[1])
                quotients = [now / then for then, now in zip(*figures, strict=True)]
                lowest = min(figures[1]) / min(figures[0])
                note = (
                    f"of the lowest {lowest:.3f}, of the medians {median(figures[1]) / median(figures[0]):.3f}; {names}"
                )
                b.row(case, "now / before, by pairs", "", quotients, Target(MORE_MAX), note)


def _pair(b: Bench, old: Server, new: Server, turned: bool, options: dict[str, Any]) -> tuple[Run, Run]:
    """A run of each, `turned`: the new one first."""
    b.disk.run()
    runs = [b.load(one, "e2e", seconds=b.options.seconds, **options) for one in ((new, old) if turned else (old, new))]
    return (runs[1], runs[0]) if turned else (runs[0], runs[1])


def _commit(tree: Path) -> str:
    asked = ["git", "-C", str(tree), "describe", "--always", "--dirty", "--exclude=*"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return done.stdout.strip() or tree.name


if __name__ == "__main__":
    main()
