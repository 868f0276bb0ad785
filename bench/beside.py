"""Clusters of other brokers beside ours, with the same load: three members each, and what ours should be to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from statistics import median

from bench import broker_clusters, brokers
from bench.broker_clusters import BrokerCluster
from bench.harness import Bench, Run, Target, number
from bench.process import Failed

PEERS: dict[str, str] = {
    "nats-always": "NATS JetStream R=3, sync_interval: always",
    "nats": "NATS JetStream R=3, default (no fsync before the confirmation)",
    "rabbitmq": "RabbitMQ quorum queue, three members (fsync)",
}
AIMS = {"nats-always": 5.0, "nats": 1.0, "rabbitmq": 5.0}
"""How many times a peer's throughput ours should be at least."""
_MAKERS: dict[str, Callable[[Path], AbstractContextManager[BrokerCluster]]] = {
    "nats-always": lambda folder: broker_clusters.nats(folder, sync_always=True),
    "nats": lambda folder: broker_clusters.nats(folder, sync_always=False),
    "rabbitmq": broker_clusters.rabbitmq,
}


def start(bench: Bench, names: Sequence[str], stack: ExitStack) -> dict[str, BrokerCluster]:
    """Starts the peers and prints their versions. One that cannot start is named and left out."""
    if not names:
        return {}
    brokers.build_clients()
    peers: dict[str, BrokerCluster] = {}
    for name in names:
        try:
            peer = stack.enter_context(_MAKERS[name](bench.data(name)))
        except Failed as problem:
            bench.console.print(f"[red]{PEERS[name]} is left out:[/red] {problem}")
            continue
        peers[name] = peer
        bench.console.print(f"{peer.system} {peer.version} · {PEERS[name]}")
    return peers


def rows(bench: Bench, ours: Sequence[Run], theirs: Mapping[str, Sequence[Run]], resting: Mapping[str, float]) -> None:
    """The figures of each peer, and ours against them, round by round: above 1 is better for ours."""
    for name, runs in theirs.items():
        case = PEERS[name].partition(" (")[0]
        others = number(median(run["other_cpu_share"] for run in runs))
        client = number(median(run["generator_cpu_us_per_msg"] for run in runs))
        rate = [run["delivery_msgs_per_s"] for run in runs]
        bench.row(case, "published, delivered, acked", "msg/s", rate, None, f"others used {others} cores")
        bench.rows_of(
            case,
            runs,
            {
                "publish_p50_ms": ("publish ack p50", "ms", None),
                "publish_p99_ms": ("publish ack p99", "ms", None),
            },
        )
        bench.row(case, "CPU of all processes per message", "µs", [run["server_cpu_us_per_msg"] for run in runs],
                  note=f"client {client} µs; at rest {number(resting[name])} cores")  # fmt: skip
        pairs = list(zip(ours, runs, strict=True))
        more = [our["delivery_msgs_per_s"] / max(1.0, their["delivery_msgs_per_s"]) for our, their in pairs]
        bench.row(case, "our throughput / theirs", "x", more, Target(AIMS[name], at_least=True))
        dearer = [their["server_cpu_us_per_msg"] / our["server_cpu_us_per_msg"] for our, their in pairs]
        bench.row(case, "their CPU per message / ours", "x", dearer)
        wrong = sum(run["missing"] + run["duplicates"] + run["errors"] for run in runs)
        bench.row(case, "missing, repeated, errors", "msgs", wrong, Target(0))
