"""What does a cluster cost and how long is it away when a process dies? All roles and the load share this machine.

    python -m bench cluster                 CPU of each role per message, throughput and latency of 3 x 3 with sync
    python -m bench cluster --failover 30   also the gap a client sees when a publish forwarder is killed
    python -m bench cluster --scale         also with twice the forwarders

The generator has a core of its own only by half: the processes of the cluster run on all cores, as they would.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles

from bench import machine
from bench.harness import TOPIC, Bench, Run, Target, arguments
from bench.process import Child, Failed
from syncpoint.model.errors import SyncpointError
from syncpoint.node.cluster.local import LocalCluster, Shape
from syncpoint.transport.network import TcpNetwork
from syncpoint.wire.messages import pubsub

WARM_UP_S = 2.0
ROLES = ("proxy", "publish-forwarder", "storage", "subscribe-forwarder", "router", "etcd")


class ClusterUnderTest(Child):
    """The processes of a running cluster, as one thing with an address and a use of CPU."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.address = next(one.address for one in cluster.states() if "proxy" in one.roles)

    @property
    def pid(self) -> int:
        raise Failed("a cluster has many")

    def role_seconds(self) -> dict[str, float]:
        """CPU seconds so far by role."""
        used: dict[str, float] = defaultdict(float)
        for one in self.cluster.states():
            if one.pid is not None:
                used[one.roles[0]] += machine.cpu_seconds(one.pid)
        return used

    def cpu_seconds(self) -> float:
        return sum(self.role_seconds().values())

    def output(self) -> str:
        return f"see {self.cluster.folder / 'logs'}"


@contextmanager
def running(folder: Path, shape: Shape) -> Iterator[ClusterUnderTest]:
    """A cluster that is up, and is down afterwards."""
    cluster = LocalCluster(folder)
    cluster.create(shape)
    try:
        cluster.up()
        yield ClusterUnderTest(cluster)
    finally:
        cluster.down()


def main(argv: Sequence[str] | None = None) -> None:
    parser = arguments("A cluster of 3 x 3 disks, all roles on this machine, 100 messages of 1 KB per Publish")
    parser.add_argument("--failover", type=int, default=0, help="kills of a publish forwarder")
    parser.add_argument("--scale", action="store_true", help="compare with twice the forwarders")
    options = parser.parse_args(argv)
    bench = Bench("cluster", parser.description or "", options)
    try:
        with running(bench.data("cluster") / "c", Shape()) as cluster:
            throughput(bench, cluster, "3 forwarders", Target(30.0))
            latency(bench, cluster)
            if options.failover:
                failover(bench, cluster, options.failover)
        if options.scale:
            with running(bench.data("cluster") / "c", Shape(forwarders=6)) as cluster:
                throughput(bench, cluster, "6 forwarders", None)
        bench.finish()
    except Failed as problem:
        bench.finish()
        raise SystemExit(f"cluster: {problem}") from None
    finally:
        bench.remove()


def throughput(bench: Bench, cluster: ClusterUnderTest, case: str, target: Target | None) -> None:
    """CPU of every role per message, and the rate."""
    bench.create(cluster)  # type: ignore[arg-type]
    bench.load(cluster, "e2e", size=1024, batch=100, in_flight=16, seconds=WARM_UP_S)  # type: ignore[arg-type]
    runs: list[Run] = []
    roles: dict[str, list[float]] = defaultdict(list)
    for _ in range(bench.options.runs):
        bench.disk.run()
        before = cluster.role_seconds()
        run = bench.load(cluster, "e2e", size=1024, batch=100, in_flight=16, seconds=bench.options.seconds)  # type: ignore[arg-type]
        after = cluster.role_seconds()
        for role in ROLES:
            roles[role].append((after[role] - before[role]) * 1e6 / max(1, run["published"]))
        runs.append(run)
    bench.rows_of(
        case,
        runs,
        {
            "delivery_msgs_per_s": ("published, delivered, acked", "msg/s", None),
            "server_cpu_us_per_msg": ("CPU of all roles per message", "µs", target),
            "publish_p50_ms": ("publish ack p50", "ms", None),
            "publish_p99_ms": ("publish ack p99", "ms", None),
        },
    )
    for role in ROLES:
        bench.row(case, f"of it {role}", "µs", roles[role])
    bench.row(case, "missing or repeated", "msgs", sum(run["missing"] + run["duplicates"] for run in runs), Target(0))


def latency(bench: Bench, cluster: ClusterUnderTest) -> None:
    """Single messages at a rate the machine holds easily."""
    runs = [
        bench.load(cluster, "e2e", size=1024, batch=1, rate=200, seconds=bench.options.seconds)  # type: ignore[arg-type]
        for _ in range(bench.options.runs)
    ]
    bench.rows_of(
        "200 msg/s singly",
        runs,
        {
            "publish_p50_ms": ("publish ack p50", "ms", None),
            "publish_p99_ms": ("publish ack p99", "ms", None),
            "delivery_p50_ms": ("delivery p50", "ms", None),
            "delivery_p99_ms": ("delivery p99", "ms", None),
        },
    )


def failover(bench: Bench, cluster: ClusterUnderTest, kills: int) -> None:
    """The longest time without an acknowledged publish around each kill, without and with an ordering key."""
    for case, key in (("without key", ""), ("with key", "k")):
        gaps = asyncio.run(_gaps(cluster, kills, key))
        bench.row(f"kill -9 of the owner, {case}", "publish gap p50", "s", median(gaps), Target(1.5))
        bench.row(f"kill -9 of the owner, {case}", "publish gap p99", "s", quantiles(gaps, n=100)[-1] if len(gaps) > 1
                  else gaps[0], Target(4.0), f"{len(gaps)} kills, longest {max(gaps):.2f} s")  # fmt: skip


async def _gaps(cluster: ClusterUnderTest, kills: int, key: str) -> list[float]:
    channel = TcpNetwork().channel(cluster.address)
    answered: list[float] = []
    stop = asyncio.Event()
    body = pubsub.PublishRequest(topic=TOPIC, messages=[{"data": b"x" * 1024, "ordering_key": key}])

    async def publish() -> None:
        while not stop.is_set():
            try:
                await channel.unary("/google.pubsub.v1.Publisher/Publish", body.SerializeToString(), timeout=30)
                answered.append(time.monotonic())
            except SyncpointError:
                await asyncio.sleep(0.02)  # as clients do: again
            await asyncio.sleep(0.01)

    publishing = [asyncio.create_task(publish()) for _ in range(4)]
    gaps = []
    names = [one.name for one in cluster.cluster.states() if "publish-forwarder" in one.roles]
    for number in range(kills):
        await asyncio.sleep(2.0)
        victim = names[number % len(names)]
        begun = time.monotonic()
        cluster.cluster.kill(victim)
        await asyncio.sleep(6.0)
        times = [begun, *(t for t in answered if t > begun)]
        gaps.append(max(b - a for a, b in itertools.pairwise(times)))
        await asyncio.to_thread(cluster.cluster.start, victim)
        answered.clear()
    stop.set()
    await asyncio.gather(*publishing)
    await channel.close()
    return gaps


if __name__ == "__main__":
    main()
