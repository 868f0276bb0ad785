"""How long does a message take at 1,000 messages a second, one per Publish?

Open loop: each request has its due time, and latency counts from there. The disk's own fdatasync is probed at the same
pace between the runs, because the tail of a durable publish is the disk's tail first of all.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.harness import Bench, Target

_RATE = 1000
_SECONDS = 6.0


def main(argv: Sequence[str] | None = None) -> None:
    with Bench.open("latency", "1,000 messages of 1 KB a second, one per Publish", argv) as b, b.server() as server:
        b.create(server)
        seconds = max(b.options.seconds, _SECONDS)
        b.load(server, "e2e", batch=1, rate=_RATE, seconds=1)
        runs = []
        for _ in range(b.options.runs):
            b.disk.run(1.0, per_second=_RATE)
            runs.append(b.load(server, "e2e", batch=1, rate=_RATE, seconds=seconds))
        b.disk.run(1.0, per_second=_RATE)
        raw = b.disk.percentile(0.99)
        b.rows_of(
            "1,000 msg/s",
            runs,
            {
                "publish_p50_ms": ("publish ack p50", "ms", Target(0.8)),
                "publish_p99_ms": ("publish ack p99", "ms", Target(max(4.0, 1.5 * raw))),
                "publish_p999_ms": ("publish ack p99.9", "ms", None),
                "delivery_p50_ms": ("delivery p50", "ms", None),
                "delivery_p99_ms": ("delivery p99", "ms", None),
                "delivery_p999_ms": ("delivery p99.9", "ms", None),
                "generator_behind_max_ms": ("generator late at worst", "ms", None),
                "server_cpu_us_per_msg": ("server CPU per message", "µs", None),
            },
        )
        later = [run["delivery_p50_ms"] - run["publish_p50_ms"] for run in runs]
        b.row("1,000 msg/s", "delivery after publish ack, p50", "ms", later, Target(0.2))
        wrong = sum(run["missing"] + run["duplicates"] for run in runs)
        b.row("1,000 msg/s", "missing or repeated", "msgs", wrong, Target(0))


if __name__ == "__main__":
    main()
