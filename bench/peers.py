"""How does Syncpoint compare with other brokers on the same machine, doing the same work?

    python -m bench.peers [--only NAME ...] [--case throughput latency single] [--rounds 5] [--seconds 3]

Every system runs on the same one core, its client on the other; payloads, outstanding publishes and acknowledgement of
every message are the same. The systems take turns within each round, and a ratio compares runs of the same round, so
that a busy minute on the machine hits all of them. Ours is durable before each confirmation, as always; what the others
promise stands beside their names.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from statistics import median
from typing import Any

if __package__ in (None, ""):  # as a plain script, too
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import brokers, machine
from bench.harness import Bench, Run, Target, arguments, number
from bench.process import Failed, Server

OURS = "syncpoint"
PEERS: dict[str, str] = {
    "nats": "NATS JetStream, default (no fsync before the confirmation)",
    "nats-always": "NATS JetStream, sync_interval: always",
    "redis-everysec": "Redis Streams, AOF everysec (no fsync before the reply)",
    "redis-always": "Redis Streams, AOF always",
    "rabbitmq": "RabbitMQ quorum queue, one member (fsync)",
}
TARGETS = {"nats": 2.0, "nats-always": 20.0, "redis-always": 3.0, "rabbitmq": 8.0}
"""How many times a peer's throughput ours should be."""
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    # ours (options of bench/loadgen), theirs (options of bench/peers)
    "throughput": ({"batch": 100, "in_flight": 16}, {"window": 1600}),
    "single": ({"batch": 1, "in_flight": 64}, {"window": 64}),
    "latency": ({"batch": 1, "rate": 1000}, {"rate": 1000}),
}
_WARM_UP_SECONDS = 1.0
_PAUSE_SECONDS = 0.5


def main(argv: Sequence[str] | None = None) -> int:
    parser = arguments("Syncpoint beside other brokers, one core each, round by round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--case", nargs="*", default=["throughput", "latency"], choices=list(CASES))
    parser.add_argument("--only", nargs="*", default=list(PEERS), choices=list(PEERS), help="these peers")
    parser.add_argument("--without-ours", action="store_true", help="the peers alone")
    options = parser.parse_args(argv)
    bench = Bench("peers", f"one producer, one consumer, {options.size:,} bytes a message", options)
    try:
        with ExitStack() as stack:
            systems = start(bench, options, stack)
            for case in options.case:
                compare(bench, case, systems)
        bench.finish()
    except Failed as problem:
        print(problem, file=sys.stderr)
        return 1
    finally:
        bench.remove()
    return 0


def start(bench: Bench, options: argparse.Namespace, stack: ExitStack) -> dict[str, Server | brokers.Broker]:
    """Starts ours and the peers; prints their versions. A peer that cannot start is named and left out."""
    core = options.server_core
    makers: dict[str, Callable[[Path], AbstractContextManager[brokers.Broker]]] = {
        "nats": lambda folder: brokers.nats(folder, core, sync_always=False),
        "nats-always": lambda folder: brokers.nats(folder, core, sync_always=True),
        "redis-everysec": lambda folder: brokers.redis(folder, core, fsync="everysec"),
        "redis-always": lambda folder: brokers.redis(folder, core, fsync="always"),
        "rabbitmq": lambda folder: brokers.rabbitmq(folder, core),
    }
    brokers.build_clients()
    systems: dict[str, Server | brokers.Broker] = {}
    if not options.without_ours:
        ours = systems[OURS] = stack.enter_context(bench.server())
        bench.create(ours)
        bench.console.print(f"{OURS}: {bench.machine['commit']}")
    for name in options.only:
        try:
            peer = stack.enter_context(makers[name](bench.data(name)))
        except Failed as problem:
            bench.console.print(f"[red]{name} is left out:[/red] {problem}")
            continue
        systems[name] = peer
        bench.console.print(f"{name}: {peer.version} · {PEERS[name]}")
    return systems


def compare(bench: Bench, case: str, systems: dict[str, Server | brokers.Broker]) -> None:
    """All rounds of one case, and its rows."""
    runs: dict[str, list[Run]] = {name: [] for name in systems}
    for name in systems:
        once(bench, case, name, systems[name], _WARM_UP_SECONDS)
    names = list(systems)
    for turn in range(bench.options.rounds):
        bench.disk.run()
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            time.sleep(_PAUSE_SECONDS)
            runs[name].append(once(bench, case, name, systems[name], bench.options.seconds))
    for name, measured in runs.items():
        label = f"{case}: {name}"
        if case == "latency":
            for figure in ("publish_p50_ms", "publish_p99_ms", "delivery_p50_ms", "delivery_p99_ms"):
                bench.row(label, figure.removesuffix("_ms").replace("_", " "), "ms", [run[figure] for run in measured])
        else:
            bench.row(label, "published, delivered, acked", "msg/s", [run["delivery_msgs_per_s"] for run in measured],
                      note=f"server busy {number(median(run['server_busy'] for run in measured))}")  # fmt: skip
        bench.row(label, "server CPU per message", "µs", [run["server_cpu_us_per_msg"] for run in measured],
                  note=f"client {number(median(run['generator_cpu_us_per_msg'] for run in measured))} µs")  # fmt: skip
        if OURS in runs and name != OURS:
            ratios(bench, case, label, runs[OURS], measured, TARGETS.get(name) if case == "throughput" else None)
        wrong = sum(run["missing"] + run["duplicates"] + run["errors"] for run in measured)
        if wrong:
            bench.row(label, "missing, repeated, errors", "msgs", wrong)


def ratios(
    bench: Bench, case: str, label: str, ours: Sequence[Run], theirs: Sequence[Run], target: float | None
) -> None:
    """Ours against theirs, round by round: above 1 is better for ours."""
    pairs = list(zip(ours, theirs, strict=True))
    if case == "latency":
        faster = [their["publish_p50_ms"] / our["publish_p50_ms"] for our, their in pairs]
        bench.row(label, "their publish p50 / ours", "x", faster)
    else:
        more = [our["delivery_msgs_per_s"] / their["delivery_msgs_per_s"] for our, their in pairs]
        bench.row(label, "our throughput / theirs", "x", more, Target(target, at_least=True) if target else None)
    cheaper = [their["server_cpu_us_per_msg"] / our["server_cpu_us_per_msg"] for our, their in pairs]
    bench.row(label, "their CPU per message / ours", "x", cheaper)


def once(bench: Bench, case: str, name: str, server: Server | brokers.Broker, seconds: float) -> Run:
    """One run of one system."""
    ours, theirs = CASES[case]
    if isinstance(server, Server):
        return bench.load(server, "e2e", size=bench.options.size, seconds=seconds, **ours)
    client = machine.ROOT / ".cache" / "bench" / "peers"
    line = [str(client), server.system, server.address, "-seconds", str(seconds), "-size", str(bench.options.size)]
    line += [text for key, value in theirs.items() for text in (f"-{key}", str(value))]
    return bench.measured(line, server, seconds + 60)


if __name__ == "__main__":
    sys.exit(main())
