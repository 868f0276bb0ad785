"""Cases `micro-batch`, `end-to-end` and `wake-up`: how long a message waits in a pipeline, whatever it costs."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from bench import machine
from bench.harness import SUBSCRIPTION, Run, Target
from bench.process import Child, Failed, Server
from bench.spark.processes import Spark
from bench.spark.spark_harness import EPOCH_ROWS, WARM_UPS, SparkHarness, ratios
from bench.spark.topics import Topics
from bench.spark.work import DEFAULT_PROFILE, RAW_PROFILE

WARM_UP_BATCHES = 10
"""The first batches of a query, which do not count."""
_SESSIONS_MAX = 3
"""Runs that need sessions of their own are fewer: each costs half a minute."""
_RATE = 1000
_TRIGGER = "200 milliseconds"
_AWAKE_SECONDS = 180.0


def micro_batch(harness: SparkHarness) -> None:
    """Streams without pauses: `pubsub -> pubsub` beside Spark's `rate-micro-batch -> noop`, in two profiles.

    The session's way to write checkpoints makes most of the difference, so each profile has sessions of its own; in
    each, both streams run twice, and the first time warms up.
    """
    bench = harness.bench
    (here, sources), (there, targets) = harness.server(), harness.server()
    topic = sources.create("rows")
    sources.fill(topic, EPOCH_ROWS * harness.small_batches * 4)
    profiles = {"default": DEFAULT_PROFILE, "raw": RAW_PROFILE}
    found: dict[tuple[str, str], list[float]] = {(p, kind): [] for p in profiles for kind in ("rate", "pubsub")}
    parts: dict[str, list[dict[str, float]]] = {"rate": [], "pubsub": []}
    for turn in range(min(harness.runs, _SESSIONS_MAX)):
        for profile, settings in profiles.items():
            with harness.spark(settings) as spark:
                for warm in (False, True):
                    for kind in ("rate", "pubsub"):
                        name = f"copy-{turn}-{profile}-{warm}".lower()
                        shown = _rate(harness, spark) if kind == "rate" else _copy(
                            harness, spark, (here, there), targets, topic, name)  # fmt: skip
                        if warm:
                            found[profile, kind].append(median(shown["batch_ms"][WARM_UP_BATCHES:]))
                            if profile == "raw":
                                parts[kind] = shown["parts_ms"][WARM_UP_BATCHES:]
            harness.say(", ".join(f"{p} {kind} {values[-1]:.0f} ms" for (p, kind), values in found.items() if values))
    names = {"rate": "rate -> noop", "pubsub": "pubsub -> pubsub"}
    for (profile, kind), values in found.items():
        bench.row("micro-batch", f"{names[kind]}, {profile}, p50", "ms", values)
    ours = found["raw", "pubsub"]
    bench.row("micro-batch", "pubsub -> pubsub raw / rate -> noop default", "x", ratios(ours, found["default", "rate"]),
              Target(1.3), note=f"{EPOCH_ROWS} rows a batch; raw is federation's session")  # fmt: skip
    bench.row("micro-batch", "both raw", "x", ratios(ours, found["raw", "rate"]))
    bench.row("micro-batch", "both default", "x", ratios(found["default", "pubsub"], found["default", "rate"]))
    for kind, of in parts.items():
        for part in ("latestOffset", "walCommit", "queryPlanning", "addBatch", "commitOffsets"):
            bench.row("micro-batch", f"{names[kind]}, raw: {part}", "ms", median(one.get(part, 0) for one in of))


def _rate(harness: SparkHarness, spark: Spark) -> Any:
    folder = harness.bench.data("checkpoint")
    read = {"rowsPerBatch": str(EPOCH_ROWS), "numPartitions": "1"}
    return spark.do("batches", source="rate-micro-batch", reading=read, sink="noop",
                    writing={"checkpointLocation": str(folder / "rate")}, least=harness.small_batches)  # fmt: skip


def _copy(
    harness: SparkHarness, spark: Spark, servers: tuple[Server, Server], targets: Topics, topic: str, name: str
) -> dict[str, Any]:
    target = targets.create(name)
    read, write = harness.flow_options(*servers, topic, target)
    read["maxRowsPerTrigger"] = str(EPOCH_ROWS)
    shown: dict[str, Any] = spark.do(
        "batches", source="pubsub", reading=read, sink="pubsub", writing=write, least=harness.small_batches
    )  # fmt: skip
    targets.delete(target)
    return shown


def end_to_end(harness: SparkHarness) -> None:
    """Published at one server, one message per Publish, and delivered by the other's StreamingPull: from when a message
    was due until it came. The flow runs as federation runs it: every 200 ms.
    """
    bench = harness.bench
    (here, sources), (there, targets) = harness.server(), harness.server()
    topic = sources.create("load")
    target = targets.create("load", (SUBSCRIPTION.rpartition("/")[2],))
    read, write = harness.flow_options(here, there, topic, target)
    runs: list[Run] = []
    with harness.spark() as spark:
        spark.do("begin", reading=read, writing=write, trigger=_TRIGGER)
        for turn in range(harness.runs + WARM_UPS):
            run = bench.load(here, "e2e", batch=1, rate=_RATE, seconds=bench.options.seconds, grace=30,
                             subscribe_at=there.address, timeout=bench.options.seconds + 180)  # fmt: skip
            harness.say(f"{turn}: p50 {run['delivery_p50_ms']:.0f} ms, p99 {run['delivery_p99_ms']:.0f} ms")
            if turn >= WARM_UPS:
                runs.append(run)
        shown = spark.do("end")
    half = shown["batch_ms"][len(shown["batch_ms"]) // 2 :]
    bench.rows_of(
        "end-to-end",
        runs,
        {
            "delivery_p50_ms": ("published at one, delivered by the other, p50", "ms", Target(400)),
            "delivery_p99_ms": ("p99", "ms", Target(1500)),
            "missing": ("missing", "msgs", Target(0)),
            "duplicates": ("came twice", "msgs", Target(0)),
        },
    )
    bench.row("end-to-end", "batches, later half, p50", "ms", median(half), note=f"{_RATE:,} messages a second")


def wake_up(harness: SparkHarness) -> None:
    """From a message's publish until it is at the other server, when Spark does not run (`warm: false`), and when it
    does but has nothing to do (`warm: true`).
    """
    bench = harness.bench
    (here, sources), (there, targets) = harness.server(), harness.server()
    folder = bench.data("federation")
    clusters = {"a": {"endpoint": here.address}, "b": {"endpoint": there.address}}
    cold, woke, warm = [], [], []
    for kind in ("cold", "warm"):
        topic = sources.create(kind)
        targets.create(kind, (kind,))
        task = {"pattern": "replicate", "from": {"cluster": "a", "topic": topic}, "to": {"cluster": "b"}}
        runtime = {"master": bench.options.master, "warm": kind == "warm", "state": f"state-{kind}"}
        content = {"version": 1, "clusters": clusters, "tasks": {kind: task}, "runtime": runtime}
        (folder / f"{kind}.yaml").write_text(json.dumps(content))  # JSON is YAML
    for turn in range(min(harness.runs, _SESSIONS_MAX)):
        with _federation(folder, "cold") as federation:
            _said(federation, folder / "state-cold" / "supervisor.json", "pid")
            cold.append(_passed(sources, targets, "cold"))
            end = time.monotonic() + _AWAKE_SECONDS
            while not (shown := _said(federation, folder / "state-cold" / "supervisor.json", "woke_s")):
                if time.monotonic() > end:
                    raise Failed("the supervisor never said how long waking took")
                time.sleep(0.1)
            woke.append(shown)
        harness.say(f"{turn}: {cold[-1]:.1f} s from zero; the supervisor counts {woke[-1]:.1f} s")
    with _federation(folder, "warm"):
        _passed(sources, targets, "warm")
        for _ in range(harness.runs):
            time.sleep(1.0)  # nothing to do, for a while
            warm.append(_passed(sources, targets, "warm"))
    bench.row("wake-up", "from zero: publish to delivery at the other server", "s", cold)
    bench.row("wake-up", "from zero: as the supervisor counts it", "s", woke, note="sight of a message to first batch")
    bench.row("wake-up", "warm: publish to delivery at the other server", "s", warm)


class _Federation(Child):
    """`syncpoint federation run`; it ends Spark before it ends."""

    def stop(self, timeout: float = 120.0) -> None:
        super().stop(timeout)


def _federation(folder: Path, name: str) -> _Federation:
    source = f"{machine.ROOT / 'src'}:{os.environ.get('PYTHONPATH', '')}".rstrip(":")
    line = [
        sys.executable,
        "-m",
        "syncpoint.programs.cli",
        "federation",
        "run",
        str(folder / f"{name}.yaml"),
        "--quiet",
    ]
    return _Federation(line, core=None, log=folder / f"{name}.log", env={"PYTHONPATH": source})


def _said(federation: Child, path: Path, key: str) -> Any:
    """What the supervisor says of itself, once it has looked for the first time."""
    end = time.monotonic() + _AWAKE_SECONDS
    while not path.exists():
        if not federation.running or time.monotonic() > end:
            raise Failed(f"the federation does not run:\n{federation.output()[-2000:]}")
        time.sleep(0.05)
    return json.loads(path.read_text())[key]


def _passed(sources: Topics, targets: Topics, name: str) -> float:
    """Seconds from the publish of a message until the other server gives it."""
    begin = time.monotonic()
    data = str(begin).encode()
    sources.publish(f"projects/bench/topics/{name}", data)
    while time.monotonic() < begin + _AWAKE_SECONDS:
        if targets.take(name, _AWAKE_SECONDS) == data:
            return time.monotonic() - begin
    raise Failed(f"a message did not reach the other server within {_AWAKE_SECONDS:.0f} s")
