"""Cases `kafka`: the source beside Spark's own Kafka source, which reads the same rows from a Kafka broker here; and
`streams`: what a row of Kafka or of a file costs on its way to a topic, and back.

Broker and Spark's source are those of `syncpoint.testing.kafka`. Without Maven, or where it does not get the jars, the
case is skipped, and then nothing is shown. The broker is one process (KRaft, no ZooKeeper) on the servers' core.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from bench.harness import Target
from bench.process import Child, Failed
from bench.spark.processes import Meter
from bench.spark.spark_harness import PARTITIONS, WARM_UPS, Skipped, SparkHarness, check, per_row, ratios, rotated
from bench.spark.work import RAW_PROFILE
from syncpoint.testing.kafka.kafka_broker import READY_S, KafkaFailed, KafkaFolder
from syncpoint.testing.kafka.kafka_jars import KafkaMissing, kafka_jars, spark_jars

_HEADERS = "transform(map_entries(attributes), e -> struct(e.key AS key, CAST(e.value AS binary) AS value)) AS headers"
_COLUMNS = ["nullif(ordering_key, '') AS key", "data AS value", _HEADERS]
"""A message as a record of Kafka: attributes are headers."""
_FILES = 5
"""Files, and batches of a flow."""


def beside_kafka(harness: SparkHarness) -> None:
    """Both sources into nothing, in one session, with all that a message has."""
    bench, rows = harness.bench, harness.rows
    jars = resolve(harness)
    server, topics = harness.server()
    topic = topics.create("rows")
    topics.fill(topic, rows)
    broker = harness.stack.enter_context(Broker(bench.data("kafka"), jars, bench.options.server_core))
    ours = {"endpoint": server.address, "topic": topic, "minPartitions": PARTITIONS}
    theirs = {"kafka.bootstrap.servers": broker.address, "subscribe": "rows", "startingOffsets": "earliest"}
    sides: dict[str, dict[str, Any]] = {
        "pubsub": {"format": "pubsub", "options": ours},
        "kafka": {"format": "kafka", "options": {**theirs, "includeHeaders": "true"}},
        "kafka without headers": {"format": "kafka", "options": theirs},
    }
    with harness.spark({**RAW_PROFILE, "spark.jars": spark_jars(jars)}) as spark:
        target = {"kafka.bootstrap.servers": broker.address, "topic": "rows"}
        spark.do("store", options=ours, format="kafka", target=target, columns=_COLUMNS)
        for name, side in sides.items():
            check(f"rows read by {name}", spark.do("count", **side), rows)
        meters = harness.turns(spark, [server, broker], sides, "noop")
    for name, spent in meters.items():
        bench.row("kafka", f"{name} -> noop, per CPU second of Spark", "rows", [rows / one.spark for one in spent])
    cost = {name: per_row(spent, rows) for name, spent in meters.items()}
    bench.row("kafka", "pubsub / kafka, rows per CPU second", "x", ratios(cost["kafka"], cost["pubsub"]),
              Target(0.9, at_least=True))  # fmt: skip
    bench.row("kafka", "pubsub / kafka without headers", "x", ratios(cost["kafka without headers"], cost["pubsub"]))
    bench.row("kafka", "CPU of our server per row", "µs", per_row(meters["pubsub"], rows, 0))
    bench.row("kafka", "CPU of the broker per row", "µs", per_row(meters["kafka"], rows, 1))


def streams(harness: SparkHarness) -> None:
    """Flows of `stream-to-queue` from a topic of Kafka and from files, and of `queue-to-stream` to Kafka."""
    bench, rows = harness.bench, harness.rows
    jars = resolve(harness)
    server, topics = harness.server()
    topic = topics.create("rows")
    topics.fill(topic, rows, json_rows=True)
    broker = harness.stack.enter_context(Broker(bench.data("kafka"), jars, bench.options.server_core))
    folder, given = bench.data("streams"), {"endpoint": server.address, "topic": topic, "minPartitions": PARTITIONS}
    ends = {
        "kafka": {"kafka": {"bootstrap": broker.address}},
        "files": {"files": {"path": str(folder / "lines"), "format": "json", "options": {"maxFilesPerTrigger": "1"}}},
    }
    steady: dict[str, list[float]] = {"from Kafka": [], "from files": [], "to Kafka": []}
    spent: dict[str, list[Meter]] = {name: [] for name in steady}
    with harness.spark({**RAW_PROFILE, "spark.jars": spark_jars(jars)}) as spark:
        target = {"kafka.bootstrap.servers": broker.address, "topic": "rows"}
        spark.do("store", options=given, format="kafka", target=target, columns=_COLUMNS)
        spark.do("lines", options=given, path=str(folder / "lines"), files=_FILES)
        for turn in range(harness.runs + WARM_UPS):
            for name in rotated(tuple(steady), turn):
                if back := name == "to Kafka":
                    task = {"pattern": "queue-to-stream", "from": {"cluster": "here", "topic": topic},
                            "to": {"stream": "kafka", "topic": f"back-{turn}"}}  # fmt: skip
                else:
                    stored = topics.create(f"stream-{turn}")
                    source = {"stream": "files"} if "files" in name else {"stream": "kafka", "topic": "rows"}
                    task = {"pattern": "stream-to-queue", "from": source, "to": {"cluster": "here", "topic": stored}}
                label = f"{name.replace(' ', '-').lower()}-{turn}"
                content = {"version": 1, "clusters": {"here": {"endpoint": server.address}}, "streams": ends,
                           "tasks": {label: task},
                           "runtime": {"max_rows": max(5, rows // _FILES), "state": f"state-{label}"}}  # fmt: skip
                file = folder / f"{label}.yaml"
                file.write_text(json.dumps(content))  # JSON is YAML
                meter, shown = harness.metered(spark, [server, broker], "pattern", file=str(file), topics=[topic])
                if back:
                    read = {"kafka.bootstrap.servers": broker.address, "subscribe": f"back-{turn}"}
                    check(f"rows {name}", spark.do("count", format="kafka", options=read), rows)
                else:
                    check(f"rows {name}", topics.rows(stored), rows)
                    topics.delete(stored)
                harness.noted(turn, name, meter, shown, spent, steady)
    for name, found in steady.items():
        bench.row("streams", f"{name}, behind the first batch, per CPU second of Spark", "rows", found)
    for name, meters in spent.items():
        bench.row("streams", f"{name}: CPU of our server per row", "µs", per_row(meters, rows, 0))


def resolve(harness: SparkHarness) -> list[Path]:
    """The jars, brought by Maven when they are not there yet. Raises Skipped with the reason."""
    try:
        return kafka_jars(say=harness.say)
    except KafkaMissing as error:
        raise Skipped(str(error)) from None


class Broker(Child):
    """One Kafka broker that is its own controller; `address` is ready."""

    def __init__(self, folder: Path, jars: list[Path], core: int) -> None:
        try:
            made = KafkaFolder(folder, jars, partitions=int(PARTITIONS), java=("-Xmx1g",))
        except KafkaFailed as error:
            raise Failed(str(error)) from None
        self.address = made.address
        super().__init__(made.command, core=core, log=made.log)
        try:
            self._await(made)
        except BaseException:
            self.kill()
            raise

    def _await(self, made: KafkaFolder) -> None:
        end = time.monotonic() + READY_S
        while not made.answers():
            if not self.running or time.monotonic() > end:
                raise Failed(f"the broker does not start:\n{self.output()[-2000:]}")
            time.sleep(0.1)
