"""What does a row of 1 KB cost that is read by ranges, on one node and through the proxy of a cluster? Without Spark.

    python -m bench ranges                  one node, then a cluster of 3 x 3 on this machine
    python -m bench ranges --cluster-only   one of them, or --node-only
    python -m bench ranges --messages 400000

The reader is the one of Spark's tasks: its windows, frames of 4 MiB, all columns of a batch. It runs in this process,
and only servers count: of a cluster all publish forwarders and proxies. What they use at rest is measured for as long
before each reading, and taken off; the figure with it stands beside. The first rest is longer, because a server that
took many messages makes room for the next ones afterwards.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from contextlib import closing

from bench import machine
from bench.clusters import ClusterUnderTest, running
from bench.harness import Bench, Target, arguments
from bench.process import Failed, Server
from bench.spark.topics import Topics
from pyspark_pubsub.options import ServerAccess
from pyspark_pubsub.rpc import BlockingChannel, pb
from syncpoint.base.model.errors import SyncpointError
from syncpoint.broker.pipeline.columns import ATTRIBUTES, DATA, MESSAGE_ID, OFFSET, ORDERING_KEY, PUBLISH_TIME
from syncpoint.programs.clusters.local import Shape
from syncpoint.wire.protobuf import methods

ROWS = 200_000
FIRST_REST_S = 15.0
COLUMNS = (MESSAGE_ID, OFFSET, PUBLISH_TIME, DATA, ATTRIBUTES, ORDERING_KEY)
NODE, CLUSTER = "one node", "cluster"
TARGETS = {NODE: 0.6, CLUSTER: 1.0}


def main(argv: Sequence[str] | None = None) -> None:
    parser = arguments("CPU of servers per row of 1 KB read by ranges, from disk and from memory as it comes")
    parser.add_argument("--node-only", action="store_true", help="no cluster")
    parser.add_argument("--cluster-only", action="store_true", help="no single node")
    options = parser.parse_args(argv)
    bench = Bench("ranges", parser.description or "", options)
    try:
        if not options.cluster_only:
            with bench.server() as server:
                measure(bench, NODE, server.address, server)
        if not options.node_only:
            with running(bench.data("cluster") / "c", Shape()) as cluster:
                measure(bench, CLUSTER, cluster.address, cluster)
        bench.finish()
    except (Failed, SyncpointError) as problem:
        bench.finish()
        raise SystemExit(f"ranges: {problem}") from None
    finally:
        bench.remove()


def measure(bench: Bench, case: str, address: str, servers: Server | ClusterUnderTest) -> None:
    """Fill a topic, and read it again and again; the first time does not count."""
    rows = bench.options.messages or ROWS
    with Topics(address) as topics:
        topic = topics.create(f"ranges-{rows}")
        topics.fill(topic, rows)
    wall = FIRST_REST_S
    gross: list[dict[str, float]] = []
    net: list[dict[str, float]] = []
    for turn in range(bench.options.runs + 1):
        idle, rested = _during(servers, lambda: time.sleep(wall))  # noqa: B023 - called at once
        busy = machine.busy_seconds()
        used, wall = _during(servers, lambda: _check(read(address, topic), rows))
        others = machine.busy_seconds() - busy - sum(used.values())
        if turn:
            gross.append({name: seconds * 1e6 / rows for name, seconds in used.items()})
            net.append({name: (used[name] - idle[name] / rested * wall) * 1e6 / rows for name in used})
            bench.runs.append({"other_cpu_share": max(0.0, others / wall)})
    # Storage processes, routers and the metadata are not counted.
    parts = [name for name in ("server", "proxy", "publish-forwarder") if name in net[0]]
    whole = [sum(run[name] for name in parts) for run in net]
    bench.row(case, "CPU per row read", "µs", whole, Target(TARGETS[case]), " + ".join(parts))
    for name in parts if len(parts) > 1 else ():
        bench.row(case, f"of it {name}", "µs", [run[name] for run in net])
    bench.row(case, "with what is used at rest", "µs", [sum(run[name] for name in parts) for run in gross])


def _during(servers: Server | ClusterUnderTest, work: Callable[[], None]) -> tuple[dict[str, float], float]:
    """CPU that the servers use while `work` is done, by role, and how long that took."""
    before, begin = _seconds(servers), time.monotonic()
    work()
    wall = time.monotonic() - begin
    return {name: seconds - before[name] for name, seconds in _seconds(servers).items()}, wall


def _check(found: int, rows: int) -> None:
    if found != rows:
        raise Failed(f"{found} rows were read of {rows}")


def read(address: str, topic: str) -> int:
    """Every row of the topic; how many there were."""
    channel = BlockingChannel(ServerAccess((address,)))
    request = pb.GetPositionsRequest(topic=topic)
    listing = pb.Positions.FromString(channel.call(methods.LOG_READER.GetPositions, request))
    rows = 0
    for one in listing.sources:
        asked = pb.ReadRangeRequest(
            topic=topic, source=one.source, chain=one.chain, begin=one.begin, end=one.end, columns=COLUMNS,
            frame_bytes=4 << 20,
        )  # fmt: skip
        with closing(channel.frames(methods.LOG_READER.ReadRange, asked, _room)) as frames:
            for frame in frames:
                rows += pb.ReadFrame.FromString(bytes(frame)).rows
    gc.collect()
    return rows


def _room(size: int) -> memoryview:
    return memoryview(bytearray(size))


def _seconds(servers: Server | ClusterUnderTest) -> dict[str, float]:
    """CPU so far; of a cluster by role."""
    if isinstance(servers, Server):
        return {"server": servers.cpu_seconds()}
    found: dict[str, float] = {}
    for role, seconds in servers.process_seconds().values():
        found[role] = found.get(role, 0.0) + seconds
    return found


if __name__ == "__main__":
    main()
