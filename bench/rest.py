"""What does a server cost while nobody calls it? CPU, wake-ups and memory of a node and of each process of a cluster.

    python -m bench rest                     a node, and a cluster of 3 x 3 disks by role
    python -m bench rest --before ../before  also a node of another source tree, at the same time

Wake-ups are times that a thread went to sleep by itself, of all threads; memory is what a process has for itself alone.
A run takes ten seconds at least, since the monitor reads all metrics once in ten.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from bench.clusters import running
from bench.harness import Bench, Target
from bench.machine import cpu_seconds, private_bytes, wake_ups
from syncpoint.programs.clusters.local import Shape

STILL_S = 20.0  # after a start: checkpoints are written, and what is deleted then is gone
RUN_S = 10.0
NODE_MAX, CLUSTER_MAX = 0.3, 4.0  # % of a core


class RestingRate(NamedTuple):
    """Of a process at rest: % of a core, and wake-ups a second."""

    cpu: float
    wakes: float


def main(argv: Sequence[str] | None = None) -> None:
    with Bench.open("rest", "a server at rest", argv) as b:
        with ExitStack() as stack:
            before = {"before": Path(b.options.before).resolve()} if b.options.before else {}
            servers = {name: stack.enter_context(b.server(tree=tree)) for name, tree in before.items()}
            servers["node"] = stack.enter_context(b.server())
            pids = {name: server.pid for name, server in servers.items()}
            rates = observe(b, pids)
            for name in servers:
                _rows(b, name, rates, {name: pids[name]}, Target(NODE_MAX) if name == "node" else None)
        with running(b.data("cluster") / "c", Shape()) as cluster:
            by_role: dict[str, dict[str, int]] = defaultdict(dict)
            for name, (role, pid) in cluster.processes().items():
                by_role[role][name] = pid
            everything = {name: pid for group in by_role.values() for name, pid in group.items()}
            rates = observe(b, everything)
            _rows(b, f"cluster, {len(everything)} processes", rates, everything, Target(CLUSTER_MAX))
            for role, group in by_role.items():
                _rows(b, f"of it {len(group)} x {role}", rates, group, None)


def observe(b: Bench, pids: Mapping[str, int]) -> list[dict[str, RestingRate]]:
    """Each process in some runs, after a while of rest."""
    time.sleep(STILL_S)
    runs = []
    for _ in range(b.options.runs):
        begin, before = time.monotonic(), {name: (cpu_seconds(pid), wake_ups(pid)) for name, pid in pids.items()}
        time.sleep(max(RUN_S, b.options.seconds))
        wall = time.monotonic() - begin
        runs.append(
            {
                name: RestingRate(100 * (cpu_seconds(pid) - cpu) / wall, (wake_ups(pid) - wakes) / wall)
                for (name, pid), (cpu, wakes) in zip(pids.items(), before.values(), strict=True)
            }
        )
    return runs


def _rows(
    b: Bench, case: str, runs: Sequence[Mapping[str, RestingRate]], pids: Mapping[str, int], target: Target | None
) -> None:
    b.row(case, "CPU", "% of a core", [sum(run[name].cpu for name in pids) for run in runs], target)
    b.row(case, "wake-ups", "1/s", [sum(run[name].wakes for name in pids) for run in runs])
    b.row(case, "memory of its own, per process", "MB", mean(map(private_bytes, pids.values())) / 1e6)


if __name__ == "__main__":
    main()
