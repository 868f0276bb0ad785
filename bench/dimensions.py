"""Where does it bend? Each of the eight dimensions of load swept alone, the others at their usual value.

Usual: one topic, one subscription, one publisher and one subscriber, 100 messages of 1 KB per Publish, 16 in flight, no
backlog. One run per point: this is a map, not a measurement; what looks odd deserves a question of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bench.harness import Bench, Run
from bench.process import Server

_SWEEPS: dict[str, tuple[int, ...]] = {
    "topics": (1, 10, 100, 1000),
    "publishers": (1, 4, 16, 64),
    "subscriptions": (1, 2, 4, 8),
    "subscribers": (1, 4, 16, 64),
    "messages per publish": (1, 10, 100, 1000),
    "message size": (16, 100, 1024, 10_240, 102_400, 1_048_576),
    "rate": (1_000, 5_000, 20_000, 50_000, 100_000),
    "backlog": (0, 100_000, 1_000_000, 5_000_000),
}
_REQUEST_BYTES_MAX = 4_000_000


def main(argv: Sequence[str] | None = None) -> None:
    with Bench.open("dimensions", "eight dimensions of load, each swept alone", argv) as b:
        seconds = min(b.options.seconds, 2.0)
        for dimension, values in _SWEEPS.items():
            for value in values:
                with b.server() as server:
                    state(b, f"{dimension} {value:,}", POINTS[dimension](b, server, value, seconds))


def state(b: Bench, case: str, run: Run) -> None:
    """One line of the map: CPU per delivery, then deliveries a second, latencies as p50/p99."""
    deliveries = max(1, run["received"])
    publish, delivery = (f"{run[f'{kind}_p50_ms']:.2f}/{run[f'{kind}_p99_ms']:.2f}" for kind in ("publish", "delivery"))
    note = f"{run['delivery_msgs_per_s']:,.0f}/s · publish {publish} · delivery {delivery} ms"
    b.row(case, "server CPU per delivery", "µs", run["server_cpu_seconds"] * 1e6 / deliveries, note=note)


def end_to_end(b: Bench, server: Server, seconds: float, **options: Any) -> Run:
    """Creates what the load needs and runs it."""
    b.create(server, topics=options.get("topics", 1), subscriptions=options.get("subscriptions", 1))
    return b.load(server, "e2e", seconds=seconds, **options)


def topics(b: Bench, server: Server, value: int, seconds: float) -> Run:
    return end_to_end(b, server, seconds, topics=value)


def publishers(b: Bench, server: Server, value: int, seconds: float) -> Run:
    return end_to_end(b, server, seconds, connections=value, in_flight=max(16, value))


def subscriptions(b: Bench, server: Server, value: int, seconds: float) -> Run:
    return end_to_end(b, server, seconds, subscriptions=value)


def subscribers(b: Bench, server: Server, value: int, seconds: float) -> Run:
    return end_to_end(b, server, seconds, streams=value, stream_connections=value)


def batch(b: Bench, server: Server, value: int, seconds: float) -> Run:
    return end_to_end(b, server, seconds, batch=value)


def size(b: Bench, server: Server, value: int, seconds: float) -> Run:
    return end_to_end(b, server, seconds, size=value, batch=max(1, min(100, _REQUEST_BYTES_MAX // value)), in_flight=8)


def rate(b: Bench, server: Server, value: int, seconds: float) -> Run:
    return end_to_end(b, server, seconds, batch=max(1, value // 1000), rate=value)


def backlog(b: Bench, server: Server, value: int, seconds: float) -> Run:
    """A second subscription holds the backlog; the load passes by it on the first."""
    b.create(server)
    b.create(server, subscription="projects/bench/subscriptions/waiting")
    if value:
        b.load(server, "e2e", total=value, size=100, batch=1000, timeout=120)
    return b.load(server, "e2e", seconds=seconds)


POINTS: dict[str, Callable[[Bench, Server, int, float], Run]] = {
    "topics": topics,
    "publishers": publishers,
    "subscriptions": subscriptions,
    "subscribers": subscribers,
    "messages per publish": batch,
    "message size": size,
    "rate": rate,
    "backlog": backlog,
}


if __name__ == "__main__":
    main()
