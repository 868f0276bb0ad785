"""What does a topic cost in memory? 10,000 topics with a subscription each, idle, then used, then after a restart.

A process that just started holds freed memory that the first thousands of topics fill without growing it. So 10,000
topics come first that only warm up, and the next 10,000 are counted. After a restart all 20,000 are, against a server
that started with none.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from bench.harness import Bench, Run, Target
from bench.process import Server

_TOPICS = 10_000
_MESSAGES = 3
_KIB_MAX = 8.0
_STABLE_SECONDS_MAX = 10.0


def main(argv: Sequence[str] | None = None) -> None:
    with Bench.open("topics", f"{_TOPICS:,} topics with a subscription each", argv) as b:
        with b.server() as server:
            empty = stable(server)
        data = b.data()
        with b.server(data=data) as server:
            create(b, server, "warm-up")
            use(b, server, "warm-up")
            before = stable(server)
            made = create(b, server, "load")
            calls = made["topics"] + made["subscriptions"]
            b.row("created", "topics and subscriptions", "calls", calls)
            b.row("created", "at", "calls/s", calls / made["seconds"])
            b.row("created", "call p99", "ms", made["call_p99_ms"])
            b.row("created", "memory per topic", "KiB", (stable(server) - before) / _TOPICS / 1024, Target(_KIB_MAX))
            used = use(b, server, "load")
            case = f"{_MESSAGES} messages in each"
            b.row(case, "publish rate over all topics", "msg/s", used["publish_msgs_per_s"])
            b.row(case, "server CPU per message", "µs", used["server_cpu_us_per_msg"])
            b.row(case, "memory per topic", "KiB", (stable(server) - before) / _TOPICS / 1024, Target(_KIB_MAX))
        with b.server(data=data) as server:
            b.row("restarted", "ready after", "s", server.start_seconds)
            grown = stable(server) - empty
            b.row("restarted", "memory per topic", "KiB", grown / (2 * _TOPICS) / 1024, Target(_KIB_MAX))


def create(b: Bench, server: Server, name: str) -> Run:
    """10,000 topics and subscriptions."""
    return b.create(
        server,
        topics=_TOPICS,
        topic=f"projects/bench/topics/{name}",
        subscription=f"projects/bench/subscriptions/{name}",
    )


def use(b: Bench, server: Server, name: str) -> Run:
    """Publishes to each of them, one message at a time, with nobody consuming."""
    topic, total = f"projects/bench/topics/{name}", _MESSAGES * _TOPICS
    return b.load(server, "publish", topic=topic, topics=_TOPICS, batch=1, in_flight=64, total=total, size=100)


def stable(server: Server) -> int:
    """Resident bytes once they stopped moving for a second."""
    give_up = time.monotonic() + _STABLE_SECONDS_MAX
    now = server.memory_bytes()["rss"]
    while time.monotonic() < give_up:
        time.sleep(1)
        last, now = now, server.memory_bytes()["rss"]
        if abs(now - last) < 200_000:
            break
    return now


if __name__ == "__main__":
    main()
