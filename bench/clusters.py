"""Clusters under load on this machine, ours and others': who takes the next turn, and what a turn used.

Beside every figure, never on a message's path. Promises: all systems of a comparison stay up and take turns, in another
order each round, so that a busy minute of the machine hits all of them; of a cluster all processes count. The processes
run on all cores, the generator on one of them. Leaves the figures made of it to its users.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench import machine
from bench.broker_clusters import MEMBERS, BrokerCluster
from bench.harness import Bench, Run
from bench.process import UnderLoad
from syncpoint.programs.clusters.local import LocalCluster, Shape

ROLES = ("proxy", "publish-forwarder", "storage", "subscribe-forwarder", "router", "etcd")
SIZE, BATCH, IN_FLIGHT = 1024, 100, 16
GRACE_S = 30.0  # a message that has not come by then, with none coming, counts as missing
_PAUSE_S = 1.0  # what a turn leaves to be done is done by then
_REST_S = 3.0


class ClusterUnderTest:
    """The processes of a running cluster, as one thing with an address and a use of CPU."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.look()

    def look(self) -> None:
        """Finds the processes anew: some have been started since."""
        states = self.cluster.states()
        self.address = next(one.address for one in states if "proxy" in one.roles)
        self._pids = {one.name: (one.roles[0], one.pid) for one in states if one.pid is not None}

    def processes(self) -> dict[str, tuple[str, int]]:
        """Of each process its role and its process id."""
        return dict(self._pids)

    def process_seconds(self) -> dict[str, tuple[str, float]]:
        """Of each process its role and its CPU seconds so far."""
        return {name: (role, machine.cpu_seconds(pid)) for name, (role, pid) in self._pids.items()}

    def cpu_seconds(self) -> float:
        return sum(used for _, used in self.process_seconds().values())

    def output(self) -> str:
        return f"see {self.cluster.folder / 'logs'}"


@contextmanager
def running(folder: Path, shape: Shape, split_at: int | None = None) -> Iterator[ClusterUnderTest]:
    """A cluster that is up, and is down afterwards. `split_at`: as in cluster.yaml, where not the usual."""
    cluster = LocalCluster(folder)
    cluster.create(shape)
    if split_at is not None:
        with cluster.settings_path.open("a") as file:
            file.write(f"split_at: {split_at}\n")
    try:
        cluster.up()
        yield ClusterUnderTest(cluster)
    finally:
        cluster.down()


def once(bench: Bench, system: UnderLoad, seconds: float) -> Run:
    """One run: 1 KB, published, delivered, acknowledged; 1,600 messages under way.

    Of our clusters the run also says `by_process`: {name: (role, CPU seconds)}.
    """
    if isinstance(system, BrokerCluster):
        line = [str(machine.ROOT / ".cache" / "bench" / "peers"), system.system, system.address]
        line += ["-seconds", str(seconds), "-size", str(SIZE), "-window", str(BATCH * IN_FLIGHT)]
        run = bench.measured([*line, "-replicas", str(MEMBERS)], system, seconds + 90)
        system.confirm_members()
        return run
    before = system.process_seconds() if isinstance(system, ClusterUnderTest) else {}
    run = bench.load(system, "e2e", size=SIZE, batch=BATCH, in_flight=IN_FLIGHT, seconds=seconds, grace=GRACE_S)
    if isinstance(system, ClusterUnderTest):
        after = system.process_seconds()
        run["by_process"] = {name: (role, used - before[name][1]) for name, (role, used) in after.items()}
    return run


def take_turns(bench: Bench, systems: Mapping[str, UnderLoad], warm_up_s: float) -> dict[str, list[Run]]:
    """The runs of all systems, round by round; the n-th runs of all belong together."""
    names = list(systems)
    for name in names:
        lost = once(bench, systems[name], warm_up_s)["missing"]
        if lost:
            bench.console.print(f"[red]{name} lacked {lost} messages of the warm-up[/red]")
    runs: dict[str, list[Run]] = {name: [] for name in names}
    for turn in range(bench.options.runs):
        bench.disk.run()
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            time.sleep(_PAUSE_S)
            runs[name].append(once(bench, systems[name], bench.options.seconds))
    return runs


def at_rest(systems: Mapping[str, UnderLoad]) -> dict[str, float]:
    """What each system uses while nobody publishes, in cores: it takes that from whoever has its turn."""
    begin, before = time.monotonic(), {name: system.cpu_seconds() for name, system in systems.items()}
    time.sleep(_REST_S)
    wall = time.monotonic() - begin
    return {name: (system.cpu_seconds() - before[name]) / wall for name, system in systems.items()}


def role_us(run: Run, *roles: str) -> float:
    """CPU of some roles per published message, in µs."""
    used: dict[str, float] = defaultdict(float)
    for role, seconds in run["by_process"].values():
        used[role] += seconds
    return sum(used[role] for role in roles) * 1e6 / max(1, int(run["published"]))


def at_work(run: Run, role: str) -> int:
    """How many processes of a role carried the load: a tenth of the busiest's CPU or more."""
    used = [seconds for name_role, seconds in run["by_process"].values() if name_role == role]
    return sum(one >= max(used) / 10 for one in used)
