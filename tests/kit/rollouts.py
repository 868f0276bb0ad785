"""Three small environments on this machine, and releases for them: the same code under another number, or spoiled.

test and staging: one process with every role; production: one that stores, two workers that forward and route, two
proxies. Each has an etcd of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from syncpoint.node.cluster import formats
from syncpoint.programs.clusters.local import LocalCluster, Shape
from syncpoint.programs.clusters.looking import Cluster
from syncpoint.testing.rigs.official import eventually

NEWER = """
import sys
from syncpoint.node.cluster import formats
formats.THIS = formats.THIS._replace(version="9.9")
{more}
from syncpoint.programs.cli.main import main
main()
"""
FAILING = """
from itertools import count
from syncpoint.base.model.errors import Unavailable
from syncpoint.front.proxy import publisher
whole, calls = publisher.ClusterPublisher.publish, count()
def publish(self, call, request, *, origin=publisher.PublishOrigin.CLIENT):
    if "proxy-2" in sys.argv and next(calls) % 5 == 0:
        raise Unavailable("spoiled on purpose; nothing was stored")
    return whole(self, call, request, origin=origin)
publisher.ClusterPublisher.publish = publish
"""
"""What fails only in production, in the canary's proxy: each fifth publish. Clients try UNAVAILABLE again."""

SLOW = """
import asyncio
from itertools import count
from syncpoint.base.model.errors import SyncpointError
from syncpoint.front.proxy import publisher
whole, calls = publisher.ClusterPublisher.publish, count()
def publish(self, call, request, *, origin=publisher.PublishOrigin.CLIENT):
    if "proxy-2" in sys.argv and next(calls) % 10 == 0:
        asyncio.get_running_loop().call_later(2.0, lambda: whole(self, call, request, origin=origin))
        return
    return whole(self, call, request, origin=origin)
publisher.ClusterPublisher.publish = publish
"""
"""Each tenth publish through the canary's proxy waits two seconds."""

COMMIT = "0123456789abcdef0123456789abcdef01234567"
QUICK = {
    "soak": {"watch": "2s", "calls_min": 20},
    "canary": {"watch": "4s", "share_max": 1.0},
    "stages": [{"share": 1, "watch": "2s"}],
    "thresholds": {
        "calls_min": 40,
        "window": "30s",
        "p99_ratio_max": 3,
        "p99_above": "500ms",
        "redeliveries_ratio_max": 0.2,
    },
    "look": "1s",
    "restart_within": "60s",
}


def program(more: str = "") -> list[str]:
    """How a release is called."""
    return [sys.executable, "-c", NEWER.replace("{more}", more)]


def opened_to_all(endpoint: str, project: str) -> None:
    """From now on everybody may do everything with the topics and subscriptions of a project, under access control."""
    words = ["policy", "add", "project", "--member", "allUsers", "--role", "roles/pubsub.admin"]
    where = ["--project", project.removeprefix("projects/"), "--endpoint", endpoint]
    subprocess.run(
        [sys.executable, "-m", "syncpoint.programs.cli", "iam", *words, *where], check=True, capture_output=True
    )


class ThreeEnvironments:
    """They run from `up` to `down`; `manifest` writes a rollout.yaml for them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clusters = {name: LocalCluster(folder / name) for name in ("test", "staging", "production")}
        for name, local in self.clusters.items():
            many = 2 if name == "production" else 1
            local.create(
                Shape(clusters=1, disks=1, forwarders=many, routers=1, proxies=many), {"cluster": f"shop-{name}"}
            )
            content = yaml.safe_load(local.settings_path.read_text())
            content["processes"] = (_workers if many > 1 else _together)(content["processes"])
            del content["monitor"]  # of a process that may not be there any more
            local.settings_path.write_text(yaml.safe_dump(content, sort_keys=False))

    def up(self) -> ThreeEnvironments:
        self.addresses = {name: local.up() for name, local in self.clusters.items()}
        for name, local in self.clusters.items():
            cluster = Cluster.of_file(local.settings_path)
            eventually(lambda cluster=cluster: not cluster.describe()["problems"], 60, f"{name} is well")
        return self

    def down(self) -> None:
        for local in self.clusters.values():
            local.down()

    def manifest(self, release: dict[str, Any], *, name: str = "next", **changes: Any) -> Path:
        """A rollout.yaml, beside a result of tests that passed."""
        version = release.get("version", formats.THIS.version)
        result = self.folder / "test-result.json"
        passed = {"version": version, "commit": COMMIT, "changed": False, "whole": True, "outcome": "passed"}
        result.write_text(json.dumps({**passed, "parts": {"unit": "passed"}}))
        content = {
            "name": name,
            "release": {"version": version, "commit": COMMIT, **release},
            "before": {"version": formats.THIS.version},
            "tests": {"result": result.name},
            "environments": {
                one: {"cluster": f"{one}/cluster.yaml", "restart": "local"} for one in ("test", "staging", "production")
            },
            **QUICK,
            **changes,
        }
        path = self.folder / "rollout.yaml"
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        return path


def _together(processes: dict[str, Any]) -> dict[str, Any]:
    """One process for all roles, where the one that stores is."""
    all_of = {**processes["storage-c1"], "public": processes["proxy-1"]["public"]}
    all_of["roles"] = [role for one in processes.values() for role in one["roles"]]
    return {"all": all_of}


def _workers(processes: dict[str, Any]) -> dict[str, Any]:
    """Both kinds of forwarders and a router share a process."""
    made = {"storage-c1": processes["storage-c1"]}
    for number in (1, 2):
        worker = processes[f"publish-forwarder-{number}"]
        made[f"worker-{number}"] = {**worker, "roles": ["publish-forwarder", "subscribe-forwarder", "router"]}
    return made | {name: one for name, one in processes.items() if name.startswith("proxy")}
