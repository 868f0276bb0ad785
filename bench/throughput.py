"""How much CPU does a message cost, published, delivered and acknowledged, at 100 messages per Publish?

1 KB is the main case; 100 B shows the cost per message alone, 10 KB the cost per byte, there also against
`--durability async` (acknowledged from the page cache), interleaved run by run, to see what waiting for the disk costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from statistics import median

from bench.harness import Bench, Run, Target

_SECONDS_OF_10_KB = 2.0


def main(argv: Sequence[str] | None = None) -> None:
    with Bench.open("throughput", "100 messages per Publish, 16 in flight, acknowledged on the stream", argv) as b:
        for case, size, limit in (("1 KB", 1024, 5.0), ("100 B", 100, 2.0)):
            with b.server() as server:
                b.create(server)
                b.load(server, "e2e", size=size, seconds=1)
                runs = []
                for _ in range(b.options.runs):
                    b.disk.run()
                    runs.append(b.load(server, "e2e", size=size, seconds=b.options.seconds))
            state(b, case, runs, Target(limit))
        against_async(b)


def state(b: Bench, case: str, runs: Sequence[Run], cpu: Target | None) -> None:
    """The figures of end-to-end runs."""
    b.rows_of(
        case,
        runs,
        {
            "server_cpu_us_per_msg": ("server CPU per message", "µs", cpu),
            "delivery_msgs_per_s": ("published, delivered, acked", "msg/s", None),
            "publish_p50_ms": ("publish ack p50", "ms", None),
            "publish_p99_ms": ("publish ack p99", "ms", None),
            "server_busy": ("server core busy", "share", None),
            "generator_cpu_us_per_msg": ("generator CPU per message", "µs", None),
        },
    )
    b.row(case, "missing or repeated", "msgs", sum(run["missing"] + run["duplicates"] for run in runs), Target(0))


def against_async(b: Bench) -> None:
    """10 KB: durable (the default) beside async, run by run."""
    size, seconds = 10 * 1024, min(b.options.seconds, _SECONDS_OF_10_KB)
    with ExitStack() as stack:
        servers = {name: stack.enter_context(b.server(*args)) for name, args in
                   (("sync", ()), ("async", ("--durability", "async")))}  # fmt: skip
        runs: dict[str, list[Run]] = {name: [] for name in servers}
        for server in servers.values():
            b.create(server)
            b.load(server, "e2e", size=size, batch=50, seconds=1)
        for _ in range(b.options.runs):
            b.disk.run()
            for name, server in servers.items():
                runs[name].append(b.load(server, "e2e", size=size, seconds=seconds))
    state(b, "10 KB", runs["sync"], Target(22.0))
    pairs = zip(runs["sync"], runs["async"], strict=True)
    shares = [sync["delivery_msgs_per_s"] / other["delivery_msgs_per_s"] for sync, other in pairs]
    b.row("10 KB", "of the rate without fdatasync", "share", shares, Target(0.85, at_least=True),
          f"async: {median(run['delivery_msgs_per_s'] for run in runs['async']):,.0f} msg/s")  # fmt: skip


if __name__ == "__main__":
    main()
