"""Case `kafka`: the source beside Spark's own Kafka source, which reads the same rows from a Kafka broker here.

Broker and Spark's source come as jars that `pom.xml` pins and Maven brings, under the machine's own settings; every jar
must be in `jars.sha256` with its checksum. Without Maven, or where it does not get them, the case is skipped, and then
nothing is shown. The broker is one process (KRaft, no ZooKeeper) on the servers' core.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import socket
import subprocess
import time
import uuid
from pathlib import Path
from typing import Any

from bench.harness import CACHE, Target
from bench.process import Child, Failed
from bench.spark.spark_harness import PARTITIONS, Skipped, SparkHarness, check, per_row, ratios
from bench.spark.work import RAW_PROFILE
from syncpoint.runtime.ports import free_ports

_HERE = Path(__file__).parent
_JARS = CACHE / "kafka"
_FOR_SPARK = ("spark-sql-kafka-", "spark-token-provider-kafka-", "kafka-clients-", "commons-pool2-")
_RESOLVE_SECONDS = 900.0
_READY_SECONDS = 120.0
_HEADERS = "transform(map_entries(attributes), e -> struct(e.key AS key, CAST(e.value AS binary) AS value)) AS headers"
_COLUMNS = ["nullif(ordering_key, '') AS key", "data AS value", _HEADERS]
"""A message as a record of Kafka: attributes are headers."""
_LOGGING = """\
log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%p %c: %m%n
"""


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
    found = ",".join(str(jar) for jar in jars if jar.name.startswith(_FOR_SPARK))
    with harness.spark({**RAW_PROFILE, "spark.jars": found}) as spark:
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


def resolve(harness: SparkHarness) -> list[Path]:
    """The jars, brought by Maven when they are not there yet. Raises Skipped with the reason."""
    if shutil.which("java") is None:
        raise Skipped("there is no Java")
    if _wrong():
        if shutil.which("mvn") is None:
            raise Skipped("there is no Maven (mvn) to bring the jars")
        harness.say("Maven brings the jars of Kafka")
        shutil.rmtree(_JARS, ignore_errors=True)
        line = ["mvn", "-B", "-q", "-f", str(_HERE / "pom.xml"), f"-Dmaven.repo.local={CACHE / 'maven'}"]
        try:
            done = subprocess.run(
                [*line, f"-DoutputDirectory={_JARS}", "dependency:copy-dependencies"],
                capture_output=True, text=True, timeout=_RESOLVE_SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise Skipped(f"Maven did not bring the jars within {_RESOLVE_SECONDS:.0f} s") from None
        if done.returncode:
            lines = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line]
            raise Skipped("Maven could not bring the jars: " + (lines or ["it did not say why"])[0][:500])
        if wrong := _wrong():
            raise Skipped(f"{wrong}: not what jars.sha256 says")
    return sorted(_JARS.glob("*.jar"))


def _wrong() -> str:
    """The first jar that is missing, not listed, or not as it should be; "": all is well."""
    lines = (_HERE / "jars.sha256").read_text().splitlines()
    listed = {name: checksum for checksum, name in (line.split() for line in lines)}
    there = {path.name: path for path in _JARS.glob("*.jar")}
    for name in sorted(listed.keys() | there.keys()):
        if name not in there or listed.get(name) != hashlib.sha256(there[name].read_bytes()).hexdigest():
            return name
    return ""


class Broker(Child):
    """One Kafka broker that is its own controller; `address` is ready."""

    def __init__(self, folder: Path, jars: list[Path], core: int) -> None:
        port, controller = free_ports(2)
        self.address = f"127.0.0.1:{port}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(folder / "logs"),
            "num.partitions": PARTITIONS,
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
        }
        (folder / "server.properties").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        (folder / "log4j.properties").write_text(_LOGGING)
        path = os.pathsep.join(str(jar) for jar in jars if not jar.name.startswith("spark-"))
        java = ["java", "-Xmx1g", f"-Dlog4j.configuration=file:{folder / 'log4j.properties'}", "-cp", path]
        properties = str(folder / "server.properties")
        made = subprocess.run(
            [*java, "kafka.tools.StorageTool", "format", "-t", _cluster_id(), "-c", properties],
            capture_output=True, text=True, timeout=_READY_SECONDS, check=False,
        )  # fmt: skip
        if made.returncode:
            raise Failed(f"the broker's folder could not be made:\n{made.stdout[-1000:]}{made.stderr[-1000:]}")
        super().__init__([*java, "kafka.Kafka", properties], core=core, log=folder / "broker.log")
        try:
            self._await(port)
        except BaseException:
            self.kill()
            raise

    def _await(self, port: int) -> None:
        end = time.monotonic() + _READY_SECONDS
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            if not self.running or time.monotonic() > end:
                raise Failed(f"the broker does not start:\n{self.output()[-2000:]}")
            time.sleep(0.1)


def _cluster_id() -> str:
    """16 random bytes as Kafka writes them: base 64 without padding."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
