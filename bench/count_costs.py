"""What each kind of counting takes, timed alone: CPU of the very statements that the rooms run, the lowest of many.

Beside `counting`: times how often each happened in a run they say what counting costs there, also on a machine too busy
to tell two servers apart by so little.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, Final

from syncpoint.broker.publish.commit.admission import PublishCounts
from syncpoint.broker.subscribe.delivery_counts import DeliveryCounts
from syncpoint.log.storage.disk_counts import DiskCounts
from syncpoint.wire.transport.call_counts import CallCounts

TIMES: Final = 2_000
LOOPS: Final = 200

KINDS: Final[Mapping[str, str]] = {  # what is timed, and the sample of /metrics that says how often it happened
    "call": 'syncpoint_calls_total{listener="clients",method="Publisher.Publish",code="OK"}',
    "entry": "syncpoint_publish_persist_seconds_count",
    "commit": "syncpoint_disk_commit_seconds_count",
    "response": "syncpoint_subscription_responses_total",
    "acknowledgement": "syncpoint_subscription_ack_requests_total",
}


def costs() -> dict[str, float]:
    """Seconds that one of each kind takes."""
    now_ns = time.time_ns()
    calls, publish, disk = CallCounts(), PublishCounts(), DiskCounts()
    delivery = DeliveryCounts(lambda: now_ns)
    counts = delivery.of_subscription(1)
    entry: Any = SimpleNamespace(
        time_ns=now_ns - 3_000_000, source=SimpleNamespace(topic=77), count=100, bytes=10_000, callers=[None]
    )
    parts = [b"x" * 1000] * 3

    def call() -> None:
        calls.begun += 1
        calls.ended(0, 0.003)

    def persisted() -> None:
        publish.persisted(entry, now_ns)

    def commit() -> None:
        disk.commit.note(0.003)
        disk.sync.note(0.003)
        disk.commits += 1
        disk.entries += 3
        disk.bytes += 10_000

    def response() -> None:
        delivery.first_delivery(now_ns - 5_000_000, 100)
        counts.responses += 1
        counts.messages += 100
        counts.bytes += sum(map(len, parts))

    def acknowledgement() -> None:
        counts.ack_requests += 1
        counts.acknowledged += 100

    works = (call, persisted, commit, response, acknowledgement)
    empty = _lowest(lambda: None)
    return {kind: max(0.0, _lowest(work) - empty) for kind, work in zip(KINDS, works, strict=True)}


def _lowest(work: Callable[[], None]) -> float:
    found = []
    for _ in range(LOOPS):
        began = time.thread_time()
        for _ in range(TIMES):
            work()
        found.append(time.thread_time() - began)
    return min(found) / TIMES


if __name__ == "__main__":
    for kind, seconds in costs().items():
        print(f"{kind:<16} {seconds * 1e9:6.0f} ns")
