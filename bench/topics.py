"""What does a topic cost in memory? 10,000 topics with a subscription each, idle, then used, then after a restart."""

from __future__ import annotations

from collections.abc import Sequence

from bench.harness import Bench, Target

_TOPICS = 10_000
_BYTES_MAX = 8.0


def main(argv: Sequence[str] | None = None) -> None:
    with Bench.open("topics", f"{_TOPICS:,} topics with a subscription each", argv) as b:
        data = b.data()
        with b.server(data=data) as server:
            b.create(server, topic="projects/bench/topics/warm-up", subscription="projects/bench/subscriptions/warm-up")
            before = server.memory_bytes()["rss"]
            made = b.create(server, topics=_TOPICS)
            b.row("created", "topics and subscriptions made", "", made["topics"] + made["subscriptions"])
            b.row("created", "at", "calls/s", (made["topics"] + made["subscriptions"]) / made["seconds"])
            b.row("created", "call p99", "ms", made["call_p99_ms"])

            def per_topic() -> float:
                return (server.memory_bytes()["rss"] - before) / _TOPICS / 1024

            b.row("created", "memory per topic with subscription", "KiB", per_topic(), Target(_BYTES_MAX))
            used = b.load(server, "publish", topics=_TOPICS, batch=1, in_flight=64, total=3 * _TOPICS, size=100)
            b.row("published to each", "publish rate over all topics", "msg/s", used["publish_msgs_per_s"])
            b.row("published to each", "server CPU per message", "µs", used["server_cpu_us_per_msg"])
            b.row("published to each", "memory per topic, 3 messages waiting", "KiB", per_topic(), Target(_BYTES_MAX))
        with b.server(data=data) as server:
            b.row("restarted", "ready after", "s", server.start_seconds)
            b.row("restarted", "memory per topic, 3 messages waiting", "KiB",
                  (server.memory_bytes()["rss"] - before) / _TOPICS / 1024, Target(_BYTES_MAX))  # fmt: skip


if __name__ == "__main__":
    main()
