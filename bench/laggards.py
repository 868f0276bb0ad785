"""Do readers that are far behind make publishers wait, on disks of limited throughput?

A backlog larger than the cache; every disk does 50 MB a second, reads and writes together (a library preloaded into the
server makes calls wait for each other's bytes, see `tests/faults/shim.c`). One program publishes and receives 200
messages of 1 KB a second, first alone, then while one and four subscriptions read the backlog as fast as they get it.
What these get is counted as the bytes that the server reads from files. At last the same on disks that are not slowed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.harness import Bench, Run, Target, median
from bench.process import Child, Server
from tests.faults.build_shim import Faults

SHARE = 50_000_000  # bytes a second of each disk
BACKLOG = 100_000  # messages
SIZE = 10_000
RATE = 200
SECONDS = 10.0
CALM_MAX = 1.2  # times the p99 without readers
LIVE = {"topic": "projects/bench/topics/live", "subscription": "projects/bench/subscriptions/live"}
OLD = {"topic": "projects/bench/topics/old", "subscription": "projects/bench/subscriptions/old"}
READERS = (0, 1, 4)


def main(argv: Sequence[str] | None = None) -> None:
    with Bench.open("laggards", "publish latency while others read a backlog from slow disks", argv) as b:
        for disks, slow in ((1, True), (3, True), (1, False), (3, False)):
            measure(b, disks, slow=slow)


def measure(b: Bench, disks: int, *, slow: bool) -> None:
    """All figures with so many disks, of a new server for each run."""
    runs: dict[int, list[Run]] = {readers: [] for readers in READERS}
    for _ in range(b.options.runs):
        for readers in READERS:
            runs[readers].append(once(b, disks, readers, slow=slow))
    case = f"{disks} disk{'s' * (disks > 1)}{'' if slow else ', not slowed'}"
    for readers, of_these in runs.items():
        for kind in ("publish", "delivery"):
            b.row(case, f"{kind} p50, {readers} behind", "ms", [run[f"{kind}_p50_ms"] for run in of_these])
        for kind in ("publish", "delivery"):
            b.row(case, f"{kind} p99, {readers} behind", "ms", [run[f"{kind}_p99_ms"] for run in of_these])
    for figure in ("publish_p50_ms", "publish_p99_ms", "delivery_p50_ms", "delivery_p99_ms"):
        calm = median([run[figure] for run in runs[0]])
        for readers in READERS[1:]:
            ratios = [run[figure] / calm for run in runs[readers]]
            name = figure.removesuffix("_ms").replace("_", " ")
            b.row(case, f"{name}, {readers} behind / alone", "x", ratios, Target(CALM_MAX) if slow else None)
    for readers in READERS[1:]:
        b.row(case, f"read from files, {readers} behind", "MB/s", [run["read_mb_s"] for run in runs[readers]])


def once(b: Bench, disks: int, readers: int, *, slow: bool) -> Run:
    """One run of the live load beside that many readers."""
    data, faults = b.data(), Faults(b.data("shim"))
    folders = [data / f"disk-{number}" for number in range(disks)]
    with ExitStack() as stack:
        server = stack.enter_context(started(b, faults, data, folders))
        b.create(server, **LIVE)
        b.create(server, subscriptions=max(1, readers), **OLD)
        b.load(server, "publish", size=SIZE, batch=50, in_flight=8, total=BACKLOG, **OLD)
        calls = ("read", "write", "sync")
        if slow:
            faults.set(*(f"{call} /{folder.name}/ 0 -1 share {SHARE}" for folder in folders for call in calls))
        if readers:
            line = [str(b.loadgen), "drain", server.address, "--seconds", "60", "--total", str(BACKLOG * readers)]
            line += ["--subscriptions", str(readers), "--run", "9", "--ack-every", "1"]
            line += [text for name, value in OLD.items() for text in (f"--{name}", value)]
            stack.enter_context(Child(line, core=b.options.load_core, log=data.with_name("drain.log")))
            time.sleep(1.0)
        read, begin = bytes_read(server), time.monotonic()
        run = b.load(server, "e2e", batch=1, size=1000, rate=RATE, seconds=SECONDS, **LIVE)
        run["read_mb_s"] = (bytes_read(server) - read) / (time.monotonic() - begin) / 1e6
        return run


def bytes_read(server: Server) -> int:
    """What the process got from files so far; bytes of connections do not count."""
    return int(Path(f"/proc/{server.pid}/io").read_text().split()[1])


def started(b: Bench, faults: Faults, data: Path, folders: Sequence[Path]) -> Server:
    """A server with these disks, whose calls wait for each other once the rules say so."""
    os.environ.update(faults.env)
    try:
        return b.server(*(text for folder in folders for text in ("--disk", str(folder))), data=data)
    finally:
        for name in faults.env:
            del os.environ[name]


if __name__ == "__main__":
    main()
