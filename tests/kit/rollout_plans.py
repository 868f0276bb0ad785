"""A plan over three cluster.yaml files, and environments that do at once what they are asked for: without processes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from syncpoint.base.model.errors import Unavailable
from syncpoint.programs.rollout.counters import CLIENTS, MethodCounts, ProcessCounters
from syncpoint.programs.rollout.fleet import Assigned, Fleet
from syncpoint.programs.rollout.parity import ProcessReport, Reports
from syncpoint.programs.rollout.rollout_file import ENVIRONMENTS, parse
from syncpoint.programs.rollout.rollout_plan import RolloutPlan

BOUNDS = (0.01, 0.1, 1.0)
COMMIT = "0123456789abcdef"


def process(role: str, port: int, **more: Any) -> dict[str, Any]:
    return {"roles": [role], "listen": f"127.0.0.1:{port}", "metrics": f"127.0.0.1:{port + 1}", **more}


def cluster(name: str, count: int) -> dict[str, Any]:
    processes = {"storage-1": process("storage", 7000, cluster="c1", disks={"d1": "d1"}, disks_listen="127.0.0.1:6999")}
    for number in range(1, count + 1):
        processes[f"taker-{number}"] = process("publish-forwarder", 7100 + 10 * number)
        processes[f"giver-{number}"] = process("subscribe-forwarder", 7200 + 10 * number)
        processes[f"proxy-{number}"] = process("proxy", 7300 + 10 * number, public=f"127.0.0.1:{7305 + 10 * number}")
    return {
        "cluster": name,
        "metadata": {"etcd": ["127.0.0.1:2379"]},
        "replication": {"clusters": 1, "disks": 1},
        "processes": processes,
    }


def content(**changes: Any) -> dict[str, Any]:
    """What a rollout.yaml says; two stages over four of each role."""
    return {
        "name": "next",
        "release": {"version": "2.0", "commit": COMMIT},
        "before": {"version": "1.0"},
        "tests": {"result": "result.json"},
        "environments": {name: {"cluster": f"{name}/cluster.yaml", "restart": "local"} for name in ENVIRONMENTS},
        "soak": {"watch": "100s", "calls_min": 50},
        "canary": {"watch": "50s"},
        "stages": [{"share": 0.5, "watch": "20s"}, {"share": 1, "watch": "20s"}],
        "thresholds": {"calls_min": 100},
        "look": "10s",
        "restart_within": "60s",
        **changes,
    }


def write_clusters(folder: Path, count: int = 4) -> None:
    for name in ENVIRONMENTS:
        (folder / name).mkdir(exist_ok=True)
        path = folder / name / "cluster.yaml"
        path.write_text(yaml.safe_dump(cluster(name, count if name == "production" else 1), sort_keys=False))


def planned(folder: Path, count: int = 4, **changes: Any) -> RolloutPlan:
    write_clusters(folder, count)
    manifest = parse(content(**changes), folder)
    return RolloutPlan(manifest, {name: Fleet(manifest.environments[name]) for name in ENVIRONMENTS})


def calls(ok: int, failed: int = 0, slow: int = 0) -> MethodCounts:
    """So many calls; `slow` of them take up to a second, the others up to 10 ms."""
    return MethodCounts({"OK": ok, "UNAVAILABLE": failed}, BOUNDS, (ok + failed - slow, 0.0, slow, 0.0))


def counted(
    number: int, failed: int = 0, slow: int = 0, again: int = 0, damaged: int = 0, started: float = 1.0
) -> ProcessCounters:
    """A process of every role that has done so much."""
    return ProcessCounters(
        started,
        {(CLIENTS, "Publisher.Publish"): calls(number - failed, failed, slow)},
        {"published": number, "delivered": number, "redelivered": again, "damaged": damaged, "unreadable": 0},
    )


class FakeEnvironment:
    """Processes that run what they were given last; `down`: they say nothing; `refused`: versions that do not start."""

    def __init__(self, plan: RolloutPlan, name: str) -> None:
        self.plan, self.name = plan, name
        self.running: dict[str, Assigned] = dict.fromkeys(plan.fleets[name].processes, plan.before(name))
        self.down: set[str] = set()
        self.refused: set[str] = set()
        self.problems: list[str] = []
        self.restarted: list[tuple[str, str]] = []
        self.given: dict[str, Any] = {}  # by version, settings beside the usual ones
        self.work: dict[str, ProcessCounters] = {name: counted(0) for name in self.running}

    def reports(self) -> Reports:
        found: dict[str, ProcessReport | None] = {}
        for name, one in self.running.items():
            given = {"storage": {"cache_bytes": 1}, **self.given.get(one.version, {})}
            roles = self.plan.fleets[self.name].processes[name].roles
            found[name] = None if name in self.down else ProcessReport(name, roles, one.version, one.source, given)
        return found

    async def look(self) -> tuple[Reports, list[str]]:
        return self.reports(), [*self.problems, *(f"{name} is down" for name in self.down)]

    async def counters(self) -> Mapping[str, ProcessCounters | None]:
        for name in self.running:
            self.work[name] = self.work[name].combined(self.does(name), 1)
        return dict(self.work)

    def does(self, name: str) -> ProcessCounters:
        """What a process does from one look to the next."""
        return counted(100)

    async def restart(self, process: str, assigned: Assigned) -> None:
        self.restarted.append((process, assigned.version))
        if assigned.version in self.refused:
            self.down.add(process)
            raise Unavailable(f"{self.name}: {process} could not be restarted: it ended while starting")
        self.down.discard(process)
        self.running[process] = assigned
        self.work[process] = counted(0, started=self.work[process].started + 1)
