"""Case `source`: reading a topic beside reading the same rows from Parquet, both into nothing."""

from __future__ import annotations

from typing import Any

from bench.harness import Target
from bench.spark.spark_harness import PARTITIONS, SparkHarness, check, per_row, ratios


def source(harness: SparkHarness) -> None:
    """The Parquet files are written by Spark in its default way, from the topic, with all columns of a batch read."""
    bench, rows = harness.bench, harness.rows
    server, topics = harness.server()
    topic = topics.create("rows")
    topics.fill(topic, rows)
    path = str(bench.data("parquet") / "rows")
    ours = {"endpoint": server.address, "topic": topic, "minPartitions": PARTITIONS}
    sides: dict[str, dict[str, Any]] = {
        "pubsub": {"format": "pubsub", "options": ours},
        "parquet": {"format": "parquet", "options": {}, "path": path},
    }
    with harness.spark() as spark:
        spark.do("store", options=ours, format="parquet", target={"path": path})
        for name, side in sides.items():
            check(f"rows read by {name}", spark.do("count", **side), rows)
        meters = harness.turns(spark, [server], sides, "noop")
    cost = {name: per_row(found, rows) for name, found in meters.items()}
    bench.row("source", "pubsub -> noop, CPU of Spark per row", "µs", cost["pubsub"])
    bench.row("source", "parquet -> noop, CPU of Spark per row", "µs", cost["parquet"])
    bench.row("source", "pubsub / parquet, CPU of Spark", "x", ratios(cost["pubsub"], cost["parquet"]), Target(1.35))
    bench.row("source", "CPU of the server per row read", "µs", per_row(meters["pubsub"], rows, 0), Target(0.5))
    for name, found in meters.items():
        bench.row("source", f"{name} -> noop", "rows/s", [rows / one.wall for one in found])
