"""Faults of networks, disks, metadata, clocks and processes, one scenario after the other, under load, judged.

    python -m tests.faults.scenarios [--seed 1] [--only cut-owner flapping] [--seconds 10 | --minutes 10] [--list]

Every scenario begins with a whole cluster and a fresh load of official clients (plain, ordered and exactly-once
subscriptions), breaks something in a way the seed decides, mends it, waits until everything confirmed has arrived, and
has the checkers judge the history. Ends with a table. Exit code 0: every scenario asked for ran and every promise held;
1: a promise was broken; 2: something could not run. Needs root, see `net_cluster`. With SYNCPOINT_FAULTS_TABLE=FILE the
rows of what ran replace those of the same names in that file.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from syncpoint.programs.clusters.local import Shape
from tests.faults import (
    on_disks,  # noqa: F401  (imported for the scenarios in them)
    on_metadata,  # noqa: F401
    on_networks,  # noqa: F401
    on_processes,  # noqa: F401
    on_regions,  # noqa: F401
    on_storage,  # noqa: F401
)
from tests.faults.net_cluster import NetCluster, why_not
from tests.faults.results import enter
from tests.faults.stage import HEAD, SCENARIOS, Kit, Played, Scenario, play

TABLE = "SYNCPOINT_FAULTS_TABLE"
BROKEN, NOT_RUN = 1, 2  # exit codes


def play_on(shape: Shape, chosen: list[Scenario], folder: Path, options: argparse.Namespace) -> list[Played]:
    """All of these on one cluster."""
    net = NetCluster(folder)
    done = []
    try:
        kit = Kit(folder, shape, local=net).up()
        print(HEAD, flush=True)
        for one in chosen:
            done.append(play(kit, net, one, options))
            print(done[-1].line, flush=True)
            if os.environ.get(TABLE):
                enter(Path(os.environ[TABLE]), done[-1:], options.seed, datetime.now(UTC))
    finally:
        net.close()
    return done


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long a fault lasts")
    parser.add_argument("--minutes", type=float, help="the same in minutes")
    parser.add_argument("--rate", type=float, default=150.0, help="messages per second")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--dir", type=Path, help="keep the clusters' folders here")
    options = parser.parse_args(argv)
    if options.minutes is not None:
        options.seconds = options.minutes * 60
    if options.list:
        for one in SCENARIOS.values():
            print(f"{one.name:<24}{one.what}")
        return 0
    unknown = set(options.only) - SCENARIOS.keys()
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; --list names them all")
    if why_not():
        print(f"not run: {why_not()}")
        return NOT_RUN
    wanted = [one for one in SCENARIOS.values() if one.name in options.only or not options.only]
    chosen = [one for one in wanted if one.needs()]
    folder = options.dir or Path(tempfile.mkdtemp(prefix="syncpoint-faults-"))
    done: list[Played] = []
    for number, shape in enumerate(dict.fromkeys(one.shape for one in chosen)):
        done += play_on(shape, [one for one in chosen if one.shape == shape], folder / f"{number}", options)
    logging.disable()  # clients that are being stopped complain
    good = all(one.good for one in done)
    print("", HEAD, *(one.line for one in done), sep="\n")
    if good and options.dir is None:
        shutil.rmtree(folder)
    else:
        print(f"the logs are in {folder}")
    print("every promise held" if good else "PROMISES BROKEN")
    left_out = [one.name for one in wanted if one not in chosen]
    if left_out:
        print(f"not run: {', '.join(left_out)} (what they need is not installed)")
    return BROKEN if not good else NOT_RUN if left_out else 0


if __name__ == "__main__":
    sys.exit(main())
