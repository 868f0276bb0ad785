"""Deterministic simulation: one seed with its trace, or many.

Usage: sim.py SEED                              replay one seed and print everything that happens in it
       sim.py --first SEED --count N            run many, on all cores; --jobs 1 on one
       sim.py --seconds S [--first SEED]        run as many as fit into that time
       sim.py ... --kind chains|delivery|scheduled|cluster|imported|consumers|pipelines|cluster-pipelines|sites|gateways
       sim.py --test                            what belongs to `make test`: the `tested` seeds of each simulation
       sim.py --planted [NAME]                  the first seed that notices each planted bug, or that one

A run of many ends with a tally: which promise was broken by which seeds. Long runs are cut into pieces by --first and
--count; what a seed does depends on nothing but the seed, so pieces add up.
"""

from __future__ import annotations

import argparse
import itertools
import sys

from syncpoint.testing.simulation.planted_bugs import PLANTED, first_caught
from syncpoint.testing.simulation.runner import SIMULATIONS, Report, RunResult, run_many, run_tested

PLANTED_SEEDS = 200
# Seeds of `--test` whose complaints are open. They are run and reported, and do not fail the test; any other one does.
UNSOLVED: dict[str, frozenset[int]] = {}
SHOW_EVERY = 250


def replay(kind_name: str, seed: int) -> bool:
    """One seed, reported in full."""
    result = SIMULATIONS[kind_name].replay(seed)
    for violation in result.violations:
        print(f"VIOLATION {violation}")
    print(f"seed {seed}: trace {result.digest}, {result.steps} steps, {result.virtual_s:.1f} s of simulated time")
    return result.good


def many(kind_name: str, first: int, count: int | None, seconds: float, jobs: int) -> bool:
    """Many seeds; what is bad is reported at once. True when none is."""
    seeds = iter(range(first, first + count)) if count is not None else itertools.count(first)
    kind = SIMULATIONS[kind_name]
    done = itertools.count(1)

    def show(result: RunResult) -> None:
        number = next(done)
        show_bad(result)
        if number % SHOW_EVERY == 0:
            print(f"{number} seeds of {kind_name} so far", file=sys.stderr, flush=True)

    report: Report = run_many(
        seeds, run=kind.run, wanted=kind.wanted, enough=kind.enough, jobs=jobs, seconds=seconds, on_result=show
    )
    print(f"simulation {kind_name}, seeds from {first} on: {report}")
    return report.good


def show_bad(result: RunResult) -> None:
    """What one seed broke."""
    for violation in result.violations[:3]:
        print(f"seed {result.seed}: {violation}", flush=True)


def tested(jobs: int) -> bool:
    """The seeds of `make test`. True when none but those of `UNSOLVED` are bad."""
    good = True
    for name, report in run_tested(jobs, show_bad).items():
        print(f"simulation {name}, seeds from 0 on: {report}")
        bad, unsolved = {seed for seed, _ in report.bad}, UNSOLVED.get(name, frozenset())
        for seed in sorted(unsolved - bad):
            print(f"seed {seed} is good again: take it out of UNSOLVED")
        good = good and not report.lacking and bad <= unsolved
    return good


def planted(names: list[str]) -> bool:
    """Where bugs are noticed first; for `Planted.seed`, when the simulation draws other lots than before."""
    found = {name: first_caught(name, PLANTED_SEEDS) for name in names}
    for name, first in found.items():
        print(f"{name}: {f'seed {first[0]}, {first[1]}' if first else f'not noticed in {PLANTED_SEEDS} seeds'}")
    return all(found.values())


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description="Deterministic simulation.")
    parser.add_argument("seed", type=int, nargs="?")
    parser.add_argument("--count", "--seeds", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--kind", choices=sorted(SIMULATIONS), default="chains")
    parser.add_argument("--test", action="store_true")
    parser.add_argument("--planted", nargs="*", metavar="NAME", choices=sorted(PLANTED))
    asked = parser.parse_args()
    if asked.planted is not None:
        return 0 if planted(asked.planted or list(PLANTED)) else 1
    if asked.test:
        return 0 if tested(asked.jobs) else 1
    if asked.seed is not None:
        return 0 if replay(asked.kind, asked.seed) else 1
    if asked.count is None and asked.seconds >= 1e9:
        parser.error("a seed, --count or --seconds")
    return 0 if many(asked.kind, asked.first, asked.count, asked.seconds, asked.jobs) else 1


if __name__ == "__main__":
    sys.exit(main())
