"""Cases `replicate` and `exactly-once`: from server to server, and what it costs that nothing comes twice."""

from __future__ import annotations

from statistics import median
from typing import Any

from bench.harness import Target
from bench.process import Server
from bench.spark.processes import Meter, Spark
from bench.spark.spark_harness import (
    EPOCH_ROWS,
    PARTITIONS,
    WARM_UPS,
    SparkHarness,
    check,
    differences,
    per_row,
    ratios,
    rotated,
)
from bench.spark.topics import Topics, subscription_name
from bench.spark.waiting import WARM_UP_BATCHES
from syncpoint.programs.federation.spec import MAX_ROWS

_FEWER = 2
"""The path by rows gets one in so many rows: it is slow."""
RULE = "kind LIKE '%r' OR priority * 2 > 7 OR sys.To IS NULL"
"""Selects all messages, so that the flow by rule copies as many as the others; all of its parts are evaluated."""
_ROWS_A_CPU_SECOND = {"as they are": 150_000, "by row": 100_000, "by rule": 80_000}


def replicate(harness: SparkHarness) -> None:
    """Flows of federation, exactly once: one that copies messages as they are, by blocks, and one that may change them,
    by row, and one with a SQL rule; beside a path by protobuf messages and rows.
    """
    bench, rows = harness.bench, harness.rows
    few = max(1000, rows // _FEWER)
    (here, sources), (there, targets) = harness.server(), harness.server()
    topic = sources.create("rows")
    sources.fill(topic, rows)
    pulls = tuple(f"few-{turn}" for turn in range(harness.runs + WARM_UPS))
    sources.fill(sources.create("few", pulls), few)
    flows = ("as they are", "by row", "by rule")
    spent: dict[str, list[Meter]] = {name: [] for name in (*flows, "pulled")}
    steady: dict[str, list[float]] = {name: [] for name in flows}

    def flow(spark: Spark, name: str, turn: int) -> None:
        target = targets.create(f"{name.replace(' ', '-')}-{turn}")
        read, write = harness.flow_options(here, there, topic, target, by_row=name != "as they are")
        rule = RULE if name == "by rule" else ""
        meter, shown = harness.metered(spark, [here, there], "copy", reading=read, writing=write, rule=rule)
        check(f"rows copied {name}", targets.rows(target), rows)
        targets.delete(target)
        harness.noted(turn, name, meter, shown, spent, steady)

    def pulled(spark: Spark, turn: int) -> None:
        target = targets.create(f"few-{turn}")
        read = {"endpoint": here.address, "subscription": subscription_name(pulls[turn]), "rows": str(few)}
        read["partitions"] = PARTITIONS
        write = {"endpoint": there.address, "topic": target}
        meter, _ = harness.metered(spark, [here, there], "rowwise", reading=read, writing=write)
        check("rows pulled and published", targets.rows(target), few)
        targets.delete(target)
        if turn >= WARM_UPS:
            spent["pulled"].append(meter)

    with harness.spark() as spark:
        for turn in range(len(pulls)):
            for name in rotated((*flows, "pulled"), turn):
                if name == "pulled":
                    pulled(spark, turn)
                else:
                    flow(spark, name, turn)
            harness.say(f"{turn} of {len(pulls) - 1}")
    case = "replicate"
    slow = [few / one.spark for one in spent["pulled"]]
    for name in flows:
        target = Target(_ROWS_A_CPU_SECOND[name], at_least=True)
        bench.row(case, f"{name}, behind the first batch, per CPU second of Spark", "rows", steady[name], target)
    for name in flows:
        rates = [rows / one.spark for one in spent[name]]
        bench.row(case, f"{name}, with the start of the query", "rows", rates)
        bench.row(case, f"{name} / pulled, both with their start", "x", ratios(rates, slow), Target(5, at_least=True))
    bench.row(case, "pulled and published by protobuf and rows, with the start of the job", "rows", slow,
              note=f"{few:,} rows, at least once")  # fmt: skip
    for index, side in enumerate(("reads", "stores")):
        bench.row(case, f"CPU per row of the server that {side}", "µs", per_row(spent[flows[0]], rows, index))
    for name in flows:
        bench.row(case, f"{name}, with the start of the query", "rows/s", [rows / one.wall for one in spent[name]])


def exactly_once(harness: SparkHarness) -> None:
    """The sink beside two that append from their tasks (`bench.spark.appending` says what they are)."""
    bench, rows = harness.bench, harness.rows
    (here, sources), (there, targets) = harness.server(), harness.server()
    topic = sources.create("rows")
    sources.fill(topic, rows)
    once, unfenced, publishing = sinks = ("pubsub", "pubsub-unfenced", "pubsub-publishing")
    spent: dict[str, list[Meter]] = {once: [], unfenced: []}
    cost: dict[str, list[float]] = {once: [], unfenced: []}
    large: dict[str, list[float]] = {once: [], unfenced: []}
    small: dict[str, list[float]] = {sink: [] for sink in sinks}
    with harness.spark() as spark:
        for turn in range(harness.runs + WARM_UPS):
            for sink in rotated((once, unfenced), turn):
                target = targets.create(f"{sink}-{turn}")
                read, write = harness.flow_options(here, there, topic, target, linked=sink == once)
                meter, shown = harness.metered(spark, [here, there], "copy", reading=read, writing=write, sink=sink)
                check(f"rows copied by {sink}", targets.rows(target), rows)
                targets.delete(target)
                if turn >= WARM_UPS:
                    spent[sink].append(meter)
                    cost[sink].append(shown["steady_cpu_seconds"] * 1e6 / shown["steady_rows"])
                    large[sink].append(median(shown["batch_ms"][1:] or shown["batch_ms"]))
            for sink in rotated(sinks, turn):
                found = _epoch_ms(harness, spark, (here, there), targets, topic, f"{sink}-small-{turn}", sink)
                if turn >= WARM_UPS:
                    small[sink].append(found)
                harness.say(f"{turn}: {sink}: {found:.0f} ms for an epoch of {EPOCH_ROWS} rows")
    case = "exactly-once"
    bench.row(case, "CPU of Spark per row behind the first batch: once", "µs", cost[once])
    bench.row(case, "CPU of Spark per row behind the first batch: unfenced", "µs", cost[unfenced])
    bench.row(case, "once / unfenced, CPU of Spark", "x", ratios(cost[once], cost[unfenced]), Target(1.15))
    for sink, name in ((once, "once"), (unfenced, "unfenced")):
        bench.row(case, f"CPU of the target per row: {name}", "µs", per_row(spent[sink], rows, 1))
    bench.row(case, "full batches, p50: once - unfenced", "ms", differences(large[once], large[unfenced]),
              note=f"of {min(rows // 5, MAX_ROWS):,} rows")  # fmt: skip
    for sink, name in ((once, "once"), (unfenced, "unfenced"), (publishing, "published")):
        bench.row(case, f"epochs of {EPOCH_ROWS} rows, p50: {name}", "ms", small[sink])
    for sink, name in ((unfenced, "unfenced"), (publishing, "published")):
        bench.row(case, f"epochs of {EPOCH_ROWS} rows: once - {name}", "ms", differences(small[once], small[sink]),
                  Target(20))  # fmt: skip


def _epoch_ms(
    harness: SparkHarness,
    spark: Spark,
    servers: tuple[Server, Server],
    targets: Topics,
    topic: str,
    name: str,
    sink: str,
) -> float:
    """The median time of epochs of few rows."""
    target = targets.create(name)
    read, write = harness.flow_options(
        *servers, topic, target, linked=sink == "pubsub", by_row=sink == "pubsub-publishing"
    )
    read["maxRowsPerTrigger"] = str(EPOCH_ROWS)
    shown: dict[str, Any] = spark.do(
        "batches", source="pubsub", reading=read, sink=sink, writing=write, least=harness.small_batches
    )  # fmt: skip
    targets.delete(target)
    return float(median(shown["batch_ms"][WARM_UP_BATCHES:]))
