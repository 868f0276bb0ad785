"""What does a cluster cost and how long is it away when a process dies? All roles and the load share this machine.

    python -m bench cluster                 CPU of each role per message, throughput and latency of 3 x 3 with sync
    python -m bench cluster --beside        also three-member clusters of other brokers, turn by turn (or: those named)
    python -m bench cluster --failover 30   also the gap a client sees when a publish forwarder is killed
    python -m bench cluster --scale         also with twice the forwarders, turn by turn

The generator has a core of its own only by half: the processes of a cluster run on all cores, as they would.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from statistics import median

from bench import beside
from bench.clusters import ROLES, ClusterUnderTest, at_rest, at_work, role_us, running, take_turns
from bench.failover import failover
from bench.harness import Bench, Run, Target, arguments, number
from bench.process import Failed, UnderLoad
from syncpoint.base.model.errors import SyncpointError
from syncpoint.programs.clusters.local import Shape

OURS = "3 forwarders"
WARM_UP_S = 10.0  # the routers have spread the load over the forwarders by then
SPLIT_AT = 5_000  # so that all forwarders have a part of the load, which one of them would take
FORWARDERS = ("publish-forwarder", "subscribe-forwarder")


def main(argv: Sequence[str] | None = None) -> None:
    parser = arguments("A cluster of 3 x 3 disks, all roles on this machine, 100 messages of 1 KB per Publish")
    peers = f"compare with clusters of other brokers: {', '.join(beside.PEERS)} (no name: all)"
    parser.add_argument("--beside", nargs="*", choices=list(beside.PEERS), metavar="NAME", help=peers)
    parser.add_argument("--failover", type=int, default=0, help="kills of a publish forwarder")
    parser.add_argument("--scale", action="store_true", help="compare with twice the forwarders")
    parser.add_argument("--warm-up", type=float, default=WARM_UP_S, help="seconds of load before the first round")
    options = parser.parse_args(argv)
    names = [] if options.beside is None else options.beside or list(beside.PEERS)
    bench = Bench("cluster", parser.description or "", options)
    try:
        with running(bench.data("cluster") / "c", Shape()) as cluster:
            bench.create(cluster)
            throughput(bench, cluster, names)
            latency(bench, cluster)
            if options.failover:
                failover(bench, cluster, options.failover)
        if options.scale:
            scale(bench)
        bench.finish()
    except (Failed, SyncpointError) as problem:
        bench.finish()
        raise SystemExit(f"cluster: {problem}") from None
    finally:
        bench.remove()


def throughput(bench: Bench, cluster: ClusterUnderTest, names: Sequence[str]) -> None:
    """CPU of every role per message, and the rate; beside the peers named."""
    with ExitStack() as stack:
        peers = beside.start(bench, names, stack)
        systems: dict[str, UnderLoad] = {OURS: cluster, **peers}
        runs = take_turns(bench, systems, bench.options.warm_up)
        resting = at_rest(systems)
        ours = runs.pop(OURS)
        by_role(bench, OURS, ours, Target(30.0), f"at rest {number(resting[OURS])} cores")
        beside.rows(bench, ours, runs, resting)


def by_role(bench: Bench, case: str, runs: Sequence[Run], target: Target | None, note: str) -> None:
    """The rows of one shape of our cluster."""
    others = number(median(run["other_cpu_share"] for run in runs))
    rate = [run["delivery_msgs_per_s"] for run in runs]
    bench.row(case, "published, delivered, acked", "msg/s", rate, None, f"others used {others} cores")
    whole = [run["server_cpu_us_per_msg"] for run in runs]
    bench.row(case, "CPU of all roles per message", "µs", whole, target, note)
    for role in ROLES:
        working = f"{at_work(runs[-1], role)} at work" if role in FORWARDERS else ""
        bench.row(case, f"of it {role}", "µs", [role_us(run, role) for run in runs], None, working)
    for figure in ("publish_p50_ms", "publish_p99_ms"):
        bench.row(case, f"publish ack {figure.split('_')[1]}", "ms", [run[figure] for run in runs])
    bench.row(case, "missing or repeated", "msgs", sum(run["missing"] + run["duplicates"] for run in runs), Target(0))


def latency(bench: Bench, cluster: ClusterUnderTest) -> None:
    """Single messages at a rate the machine holds easily."""
    runs = [
        bench.load(cluster, "e2e", size=1024, batch=1, rate=200, seconds=bench.options.seconds)
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


def scale(bench: Bench) -> None:
    """What a message costs with 3 and with 6 forwarders of each kind that share a topic; efficiency 1 is: the same."""
    shapes = {"scale: 3 + 3 forwarders": Shape(), "scale: 6 + 6 forwarders": Shape(forwarders=6)}
    with ExitStack() as stack:
        systems: dict[str, UnderLoad] = {}
        for name, shape in shapes.items():
            cluster = stack.enter_context(running(bench.data("scale") / "c", shape, split_at=SPLIT_AT))
            bench.create(cluster)
            systems[name] = cluster
        runs = take_turns(bench, systems, bench.options.warm_up)
        resting = at_rest(systems)
    for name in shapes:
        by_role(bench, name, runs[name], None, f"at rest {number(resting[name])} cores")
    pairs = list(zip(*runs.values(), strict=True))
    case = "efficiency of 6 beside 3"
    forwarders = [role_us(three, *FORWARDERS) / role_us(six, *FORWARDERS) for three, six in pairs]
    bench.row(case, "CPU per message of forwarders, 3 / 6", "x", forwarders, None, "1: doubling costs nothing")
    whole = [three["server_cpu_us_per_msg"] / six["server_cpu_us_per_msg"] for three, six in pairs]
    bench.row(case, "CPU per message of all roles, 3 / 6", "x", whole)
    rate = [six["delivery_msgs_per_s"] / three["delivery_msgs_per_s"] for three, six in pairs]
    bench.row(case, "throughput, 6 / 3", "x", rate, None, "the same two cores")


if __name__ == "__main__":
    main()
