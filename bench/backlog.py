"""What does a backlog cost: memory, publish latency, and how fast does it drain?

10 million messages of 100 bytes nobody consumed (100 million with --huge). Then the harder shape: every second message
acknowledged, so that no prefix can be forgotten; and a restart on top of it. The other half is outstanding till then,
shared by several streams, as a server bounds what one may hold. 100 million are acknowledged one and all.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.harness import Bench, Run, Target
from bench.process import Server

_SIZE = 100
_RSS_MAX = 600.0
_LATENCY_RATIO_MAX = 1.3
_PER_REQUEST = 1000
_TIMEOUT = 900.0
_HELD_PER_STREAM = 500_000
"""Messages one stream is asked to hold unacknowledged; the server's default bound is a million."""
_HOLES_MAX = 20_000_000
"""Larger backlogs are drained without holes."""


def main(argv: Sequence[str] | None = None) -> None:
    with Bench.open("backlog", "a backlog of 100-byte messages that nobody consumed", argv) as b:
        measure(b, b.options.messages or 10_000_000)
        if b.options.huge:
            measure(b, 100_000_000)


def measure(b: Bench, messages: int) -> None:
    """All figures for one size of backlog, on a fresh server; a second one stays empty, to compare latencies with."""
    case = f"{messages:,} msgs"
    data = b.data()
    with b.server(data=data) as server, b.server() as empty:
        b.create(server)
        b.create(empty)
        live = b.load(server, "e2e", size=_SIZE, seconds=b.options.seconds)
        b.row(case, "server RSS before", "MB", rss(server))
        fill = b.load(
            server, "publish", size=_SIZE, batch=_PER_REQUEST, in_flight=8, total=messages, run=1, timeout=_TIMEOUT
        )
        held = int(fill["published"])
        b.row(case, "filled at", "msg/s", fill["publish_msgs_per_s"])
        b.row(case, "server RSS with the backlog", "MB", rss(server), Target(_RSS_MAX))
        latencies(b, case, empty, server)
        holes = held <= _HOLES_MAX
        drained = drain(b, server, held, ack_every=2 if holes else 1)
        rate, live_rate = drained["delivery_msgs_per_s"], live["delivery_msgs_per_s"]
        b.row(case, "drained, every second one acked, at" if holes else "drained at", "msg/s", rate)
        at_least_live = Target(1.0, at_least=True)
        b.row(case, "drained / delivered live", "x", rate / live_rate, at_least_live, f"live {live_rate:,.0f} msg/s")
        b.row(case, "server CPU per drained message", "µs", drained["server_cpu_us_per_msg"])
        b.row(case, "messages of the backlog not delivered", "msgs", held - drained["distinct"], Target(0))
        b.row(
            case,
            "server RSS, every second acked" if holes else "server RSS, drained",
            "MB",
            rss(server),
            Target(_RSS_MAX),
        )
        b.row(case, "server RSS at its peak", "MB", server.memory_bytes()["peak"] / 1e6)
    after_restart(b, case, data, held // 2 if holes else 0)


def after_restart(b: Bench, case: str, data: Path, left: int) -> None:
    """The same backlog in a new process, with the `left` messages that make the holes' other half."""
    with b.server(data=data) as server:
        b.row(case, "restarted in", "s", server.start_seconds)
        b.row(case, "server RSS after the restart", "MB", rss(server), Target(_RSS_MAX))
        if left:
            rest = drain(b, server, left, ack_every=1)
            b.row(case, "drained the other half at", "msg/s", rest["delivery_msgs_per_s"])
            b.row(case, "of the other half not delivered", "msgs", left - rest["distinct"], Target(0))
        b.row(
            case,
            "server RSS at its peak since the restart",
            "MB",
            server.memory_bytes()["peak"] / 1e6,
            Target(_RSS_MAX),
        )


def latencies(b: Bench, case: str, empty: Server, full: Server) -> None:
    """Single publishes at 1,000 a second, on either server in turn."""
    p50: dict[str, list[float]] = {"with none": [], "with the backlog": []}
    for _ in range(b.options.runs):
        for label, server in zip(p50, (empty, full), strict=True):
            b.disk.run(0.2)
            run = b.load(server, "publish", size=_SIZE, batch=1, rate=1000, seconds=2)
            p50[label].append(run["publish_p50_ms"])
    for label, values in p50.items():
        b.row(case, f"publish ack p50 {label}", "ms", values)
    ratios = [full_ms / empty_ms for empty_ms, full_ms in zip(*p50.values(), strict=True)]
    b.row(case, "with the backlog / with none", "x", ratios, Target(_LATENCY_RATIO_MAX))


def drain(b: Bench, server: Server, expected: int, *, ack_every: int) -> Run:
    """Consumes until `expected` messages of the backlog were seen; the unacknowledged stay leased till then."""
    held = expected - expected // ack_every
    return b.load(
        server, "drain", total=expected, ack_every=ack_every, ack_deadline=600, run=1, seconds=_TIMEOUT / 2, grace=15,
        streams=1 + held // _HELD_PER_STREAM, timeout=_TIMEOUT,
    )  # fmt: skip


def rss(server: Server) -> float:
    """Resident memory in MB."""
    return server.memory_bytes()["rss"] / 1e6


if __name__ == "__main__":
    main()
