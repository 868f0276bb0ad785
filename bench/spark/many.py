"""Cases `many-flows` and `patterns`: what topics cost that share a link, and what each pattern costs for a row."""

from __future__ import annotations

import json
import time
from typing import Any

from bench.harness import Target
from bench.process import Failed, Server
from bench.spark.processes import Meter, members
from bench.spark.spark_harness import WARM_UPS, SparkHarness, check, per_row, rotated
from bench.spark.topics import Topics, topic_name
from pyspark_pubsub.flows_source import IDLE_S

FEW, MANY = 10, 300
_COPIED_SECONDS, _IDLE_SECONDS = 300.0, 20.0
_SETTLE_SECONDS = max(IDLE_S, 60.0) + 15  # Spark ends Python workers that had nothing to do for a minute
_ENRICHED = 80_000
PATTERNS: dict[str, dict[str, Any]] = {
    "replicate": {"where": "true"},  # by row, to compare with
    "validate": {"schema": {"type": "json-schema", "file": "row.schema.json"}, "invalid": "drop"},
    "reduce": {"omit": ["note"], "invalid": "drop"},
    "enrich": {
        "lookups": [{"table": "kinds", "format": "json", "match_attributes": {"kind": "kind"}, "take": {"name": "kn"}}],
        "invalid": "drop",
    },
    "route": {"routes": [{"when": "attributes['kind'] = 'order'", "topic": topic_name("routed")}]},
    "normalise": {
        "schema": "row.avsc", "by": "format", "inputs": {"json": {"format": "json"}}, "output": {"format": "json"},
        "invalid": "drop",
    },
}  # fmt: skip


def many_flows(harness: SparkHarness) -> None:
    """Ten topics of one link, then three hundred: memory of all of Spark's processes once every topic has copied, and
    CPU while nothing comes: of Spark, and what both servers use more than without it.
    """
    bench, memory, idle, rest = harness.bench, dict[int, list[float]](), list[float](), list[float]()
    for turn in range(bench.options.runs):
        for count in (FEW, MANY) if turn % 2 == 0 else (MANY, FEW):
            (here, sources), (there, targets) = harness.server(), harness.server()
            names = [f"many-{number}" for number in range(count)]
            for name in names:
                sources.publish(sources.create(name), b"x" * 1024)
                targets.create(name)
            folder = bench.data("federation")
            ends = {"from": {"cluster": "a", "project": "bench", "topics": ["many-*"]}, "to": {"cluster": "b"}}
            content = {
                "version": 1,
                "clusters": {"a": {"endpoint": here.address}, "b": {"endpoint": there.address}},
                "tasks": {"copy": {"pattern": "replicate", **ends}},
                "runtime": {"state": f"state-{turn}-{count}"},
            }
            file = folder / f"many-{turn}-{count}.yaml"
            file.write_text(json.dumps(content))  # JSON is YAML
            at_rest = _share_at_rest([here, there])
            with harness.spark() as spark:
                spark.do("federate", file=str(file))
                _copied(targets, names)
                for name in names:  # a second batch, as those that come later are like it
                    sources.publish(topic_name(name), b"x" * 1024)
                _copied(targets, names, 2)
                time.sleep(_SETTLE_SECONDS)  # cursors have moved, and the JVM has compiled
                spark.do("collect_garbage")
                memory.setdefault(count, []).append(_memory_mib(spark.session))
                with Meter(spark, [here, there]) as meter:
                    time.sleep(_IDLE_SECONDS)
                share = (meter.spark + sum(meter.servers)) / meter.wall * 100
                harness.say(f"{count}: {memory[count][-1]:.0f} MiB, {share:.1f} % of a core: Spark {meter.spark:.2f} s,"
                            f" servers {', '.join(f'{one:.2f}' for one in meter.servers)} s; they alone"
                            f" {at_rest:.1f} %")  # fmt: skip
                if count == MANY:
                    idle.append(share - at_rest)
                    rest.append(at_rest)
    case = "many-flows"
    for count in (FEW, MANY):
        bench.row(case, f"memory of Spark's processes, {count} topics on one link", "MiB", memory[count])
    bench.row(case, f"{MANY} / {FEW} topics, memory", "x",
              [a / b for a, b in zip(memory[MANY], memory[FEW], strict=True)], Target(1.5))  # fmt: skip
    bench.row(case, f"{MANY} idle flows: Spark, and what both servers use more than at rest", "% of a core", idle,
              Target(5))  # fmt: skip
    bench.row(case, "both servers at rest", "% of a core", rest)


def _share_at_rest(servers: list[Server]) -> float:
    """Percent of a core that servers use while nothing comes and nobody asks."""
    time.sleep(3)  # what came last is on the disks
    before, begun = sum(one.cpu_seconds() for one in servers), time.monotonic()
    time.sleep(_IDLE_SECONDS)
    return (sum(one.cpu_seconds() for one in servers) - before) / (time.monotonic() - begun) * 100


def _copied(targets: Topics, names: list[str], each: int = 1) -> None:
    end = time.monotonic() + _COPIED_SECONDS
    waiting = set(names)
    while waiting:
        waiting = {name for name in waiting if targets.rows(topic_name(name)) < each}
        if time.monotonic() > end:
            raise Failed(f"{len(waiting)} of {len(names)} topics were not copied in {_COPIED_SECONDS:.0f} s")
        time.sleep(0.5)


def _memory_mib(session: int) -> float:
    """What the processes of a kernel session have for themselves, and their shares of what they have in common."""
    total = 0
    for one in members(session, living=True):
        try:
            with open(f"/proc/{one.pid}/smaps_rollup", encoding="ascii") as file:
                total += sum(int(line.split()[1]) for line in file if line.startswith("Pss:"))
        except OSError:
            continue  # it ended in the meantime
    return total / 1024


def patterns(harness: SparkHarness) -> None:
    """Every pattern that reads messages, from server to server, on the same rows: JSON of about a KiB."""
    bench, rows = harness.bench, harness.rows
    (here, sources), (there, targets) = harness.server(), harness.server()
    topic = sources.create("json")
    sources.fill(topic, rows, json_rows=True)
    folder = bench.data("patterns")
    schema = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}
    (folder / "row.schema.json").write_text(json.dumps(schema))
    fields = [{"name": "id", "type": "long"}, {"name": "text", "type": "string"}, {"name": "note", "type": "string"}]
    (folder / "row.avsc").write_text(json.dumps({"type": "record", "name": "Row", "fields": fields}))
    (folder / "kinds").mkdir(exist_ok=True)
    kinds = ("order", "refund", "invoice", "parcel")
    (folder / "kinds" / "kinds.json").write_text("".join(f'{{"kind": "{one}", "name": "{one}s"}}\n' for one in kinds))
    spent: dict[str, list[Meter]] = {name: [] for name in PATTERNS}
    steady: dict[str, list[float]] = {name: [] for name in PATTERNS}
    targets.create("routed")
    with harness.spark() as spark:
        for turn in range(harness.runs + WARM_UPS):
            for name in rotated(tuple(PATTERNS), turn):
                target = targets.create(f"{name}-{turn}")
                content = {
                    "version": 1,
                    "clusters": {"a": {"endpoint": here.address}, "b": {"endpoint": there.address}},
                    "tasks": {
                        f"{name}-{turn}": {
                            "pattern": name,
                            "from": {"cluster": "a", "topic": topic},
                            "to": {"cluster": "b", "topic": target},
                            **PATTERNS[name],
                        }
                    },
                    "runtime": {"max_rows": max(5, rows // 5), "state": f"state-{name}-{turn}"},
                }
                file = folder / f"{name}-{turn}.yaml"
                file.write_text(json.dumps(content))
                begun = targets.rows(topic_name("routed"))
                meter, shown = harness.metered(spark, [here, there], "pattern", file=str(file), topics=[topic])
                stored = targets.rows(target) + targets.rows(topic_name("routed")) - begun
                check(f"rows of {name}", stored, rows)
                targets.delete(target)
                harness.noted(turn, name, meter, shown, spent, steady)
    for name in PATTERNS:
        target_rate = Target(_ENRICHED, at_least=True) if name == "enrich" else None
        bench.row("patterns", f"{name}, behind the first batch, per CPU second of Spark", "rows", steady[name],
                  target_rate)  # fmt: skip
    for name in PATTERNS:
        for index, side in enumerate(("reads", "stores")):
            bench.row("patterns", f"{name}: CPU per row of the server that {side}", "µs",
                      per_row(spent[name], rows, index))  # fmt: skip
