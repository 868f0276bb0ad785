"""Deterministic simulation: one seed with its trace, or many.

Usage: sim.py SEED                     replay one seed and print everything that happens in it
       sim.py --seeds N [--first SEED] run many, on all cores
       sim.py --seconds S              run as many as fit into that time
       sim.py ... --world chains|cluster
       sim.py --test                   what belongs to `make test`: at least 500 seeds of chains, dozens of clusters
"""

from __future__ import annotations

import argparse
import itertools
import sys

from syncpoint.testing.simulation.runner import WORLDS, Report, Result, run_many


def replay(world: str, seed: int) -> bool:
    """One seed, told in full."""
    result = WORLDS[world].replay(seed)
    for violation in result.violations:
        print(f"VIOLATION {violation}")
    print(f"seed {seed}: trace {result.digest}, {result.steps} steps, {result.virtual_s:.1f} s of simulated time")
    return result.good


def many(world: str, first: int, count: int | None, seconds: float, jobs: int) -> bool:
    """Many seeds; what is bad is told at once."""
    seeds = iter(range(first, first + count)) if count is not None else itertools.count(first)
    kind = WORLDS[world]

    def show(result: Result) -> None:
        for violation in result.violations[:3]:
            print(f"seed {result.seed}: {violation}", flush=True)

    report: Report = run_many(
        seeds, run=kind.run, wanted=kind.wanted, enough=kind.enough, jobs=jobs, seconds=seconds, on_result=show
    )
    print(report)
    return report.good


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description="Deterministic simulation.")
    parser.add_argument("seed", type=int, nargs="?")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--world", choices=sorted(WORLDS), default="chains")
    parser.add_argument("--test", action="store_true")
    asked = parser.parse_args()
    if asked.test:
        good = [many(name, 0, kind.tested, 1e9, asked.jobs) for name, kind in WORLDS.items()]
        return 0 if all(good) else 1
    if asked.seed is not None:
        return 0 if replay(asked.world, asked.seed) else 1
    if asked.seeds is None and asked.seconds >= 1e9:
        parser.error("a seed, --seeds or --seconds")
    return 0 if many(asked.world, asked.first, asked.seeds, asked.seconds, asked.jobs) else 1


if __name__ == "__main__":
    sys.exit(main())
