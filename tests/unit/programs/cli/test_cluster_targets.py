"""Where Prometheus finds the processes of a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import yaml
from click.testing import Result

from syncpoint.programs.clusters.local import LocalCluster, Shape

Run = Callable[..., Result]


def made(folder: Path) -> Path:
    LocalCluster(folder).create(Shape(clusters=1, disks=1, forwarders=1, routers=1, proxies=1))
    return folder / "cluster.yaml"


def test_each_process_is_a_target_with_labels(run: Run, tmp_path: Path) -> None:
    path = made(tmp_path)
    processes = yaml.safe_load(path.read_text())["processes"]
    found = run("cluster", "targets", "--config", str(path))
    assert found.exit_code == 0, found.output
    assert {one["labels"]["process"]: one["targets"] for one in json.loads(found.stdout)} == {
        name: [one["metrics"]] for name, one in processes.items()
    }
    (proxy,) = (one["labels"] for one in json.loads(found.stdout) if one["labels"]["roles"] == "proxy")
    assert proxy == {"process": "proxy-1", "roles": "proxy", "region": "r1"}


def test_who_has_no_address_is_named_and_a_wildcard_is_no_target(run: Run, tmp_path: Path) -> None:
    path = made(tmp_path)
    content = yaml.safe_load(path.read_text())
    del content["processes"]["router-1"]["metrics"]
    content["processes"]["proxy-1"] |= {"metrics": "0.0.0.0:9100", "listen": "10.0.2.1:7300", "zone": "eu-a"}
    content["insecure"] = True
    path.write_text(yaml.safe_dump(content))
    found = run("cluster", "targets", "--config", str(path))
    assert found.exit_code == 0, found.output
    (proxy,) = (one for one in json.loads(found.stdout) if one["labels"]["process"] == "proxy-1")
    assert (proxy["targets"], proxy["labels"]["zone"]) == (["10.0.2.1:9100"], "eu-a")
    assert found.stderr == "Without the key `metrics`, and left out: router-1\n"
    for one in content["processes"].values():
        one.pop("metrics", None)
    path.write_text(yaml.safe_dump(content))
    found = run("cluster", "targets", "--config", str(path))
    assert found.exit_code == 1
    assert "has the key `metrics`" in found.output
