"""What a server counts is what was done to it: the publishes that were made to fail, the delay of its disks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from syncpoint.testing.rigs import official
from syncpoint.testing.server_process import ServerProcess
from tests.faults.build_shim import Faults, compiler
from tests.kit.probing import probed_once
from tests.kit.scraping import Row, scraped, soon

pytestmark = pytest.mark.shows("injected")

TOPIC = "projects/p/topics/orders"
SLOW_S = 1.3
needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C compiler")


@needs_compiler
def test_the_error_rate_of_publish_is_the_injected_one(tmp_path: Path, boot: Callable[..., ServerProcess]) -> None:
    """Requests of which a known share is refused, by the caller's fault and by that of a disk that dies in the end."""
    faults = Faults(tmp_path)
    server = boot(env=faults.env)
    api = official.Api(server.endpoint)
    api.create_topic({"name": TOPIC})
    seen: dict[str, int] = {}

    def publish(topic: str, data: bytes = b"x") -> None:
        try:
            api.publish({"topic": topic, "messages": [{"data": data}]}, timeout=20)
            code = "OK"
        except grpc.RpcError as error:
            code = error.code().name
        seen[code] = seen.get(code, 0) + 1

    for number in range(100):
        publish(TOPIC + "-missing" if number % 5 == 0 else TOPIC, b"" if number % 10 == 1 else b"x")
    assert seen == {"OK": 70, "NOT_FOUND": 20, "INVALID_ARGUMENT": 10}
    faults.set("sync * 0 -1 eio", "write * 0 -1 eio")
    for _ in range(25):
        publish(TOPIC)
    assert seen["OK"] == 70
    assert seen["UNAVAILABLE"] == 25, seen

    def counted() -> dict[str, float]:
        calls = scraped(server.endpoint, "syncpoint_calls_total")
        return {code: count for (code, listener, method), count in calls.items() if (listener, method) == PUBLISH}

    soon(counted, seen)
    failed = sum(count for code, count in counted().items() if code != "OK")
    assert failed / sum(counted().values()) == (20 + 10 + 25) / 125
    api.close()


PUBLISH = ("clients", "Publisher.Publish")


@needs_compiler
def test_the_histogram_of_syncs_shows_the_injected_delay(tmp_path: Path, boot: Callable[..., ServerProcess]) -> None:
    """And the prober that publishes says that publishing is slow, and nothing else."""
    faults = Faults(tmp_path)
    server = boot(env=faults.env)
    code, found = probed_once([server.endpoint], "--only", "P2", "--timeout", "60", "--patience", "30")
    assert code == 0, found

    def texts() -> float:
        return sum(scraped(server.endpoint, "syncpoint_metrics_texts_total").values())

    def buckets() -> dict[float, float]:
        rows: dict[Row, float] = scraped(server.endpoint, "syncpoint_disk_sync_seconds_bucket")
        by_bound: dict[float, float] = {}
        for (_chain, _disk, bound), count in rows.items():
            by_bound[float(bound)] = by_bound.get(float(bound), 0) + count
        return by_bound

    faults.set(f"sync * 0 -1 slow {int(SLOW_S * 1000)}")
    made = texts()
    soon(lambda: texts() > made + 1, True)  # what was counted before the fault is in the text
    before = buckets()
    code, found = probed_once([server.endpoint], "--only", "P2", "--timeout", "60", "--patience", "1")
    assert code == 1
    assert {one["verdict"]: one["name"] for one in found["probers"][0]["metrics"]}["unexpected"] == "P2.duration"
    assert faults.hits() >= 10
    soon(lambda: buckets()[float("inf")] - before[float("inf")] >= 10, True)
    after = buckets()
    noted = {bound: after[bound] - before[bound] for bound in after}
    total = noted[float("inf")]
    assert noted[1.0] == 0, "none was faster than the fault lets it be"
    assert noted[2.5] > total / 2, "most took as long as the fault, and the time to notice"
