"""Commands of a cluster, without one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from syncpoint.base.model.errors import Unavailable
from syncpoint.broker.export.buckets import options_of
from syncpoint.node.cluster.settings import PushSettings, TlsFiles
from syncpoint.programs.clusters import rolling
from syncpoint.programs.clusters.local import LocalCluster, Shape
from syncpoint.programs.clusters.looking import Cluster

pytestmark = pytest.mark.shows("status-command")

Run = Callable[..., Result]

VIEW: dict[str, Any] = {
    "processes": [
        {"name": "proxy-1", "state": "down", "pid": None, "address": "h:1", "region": "r1", "doing": ""},
    ],
    "chains": [
        {
            "number": 1,
            "class": "default",
            "region": "r1",
            "home": "publish-forwarder-1",
            "owner": "",
            "epoch": 0,
            "persisted": "",
            "disks": "?/9",
            "under_replicated": "",
        }
    ],
    "problems": ["proxy-1 is down"],
}


def test_status_is_a_table_or_json(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    LocalCluster(tmp_path).create(Shape(clusters=1, disks=1, forwarders=1, routers=1, proxies=1))
    monkeypatch.setattr(Cluster, "describe", lambda made: VIEW)
    found = run("cluster", "status", "--dir", str(tmp_path))
    assert found.exit_code == 1, found.output
    assert "proxy-1   down" in found.stdout
    assert "(nobody)" in found.stdout
    assert "problem: proxy-1 is down" in found.stdout
    found = run("cluster", "status", "--config", str(tmp_path / "cluster.yaml"), "--format", "json")
    assert (found.exit_code, json.loads(found.stdout)) == (1, VIEW)
    monkeypatch.setattr(Cluster, "describe", lambda made: {**VIEW, "problems": []})
    found = run("cluster", "status", "--metadata", "h:1,h:2")
    assert found.exit_code == 0
    assert found.stdout.endswith("All is well.\n")


def test_status_wants_one_cluster(run: Run, tmp_path: Path) -> None:
    for words in ([], ["--dir", str(tmp_path), "--metadata", "h:1"]):
        found = run("cluster", "status", *words)
        assert found.exit_code == 2
        assert "--config FILE" in found.output


def test_restart_leaves_processes_of_others_alone(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    LocalCluster(tmp_path).create(Shape(clusters=1, disks=1, forwarders=1, routers=1, proxies=1))
    monkeypatch.setattr(rolling, "restart", lambda *_: pytest.fail("it stopped something"))
    found = run("cluster", "restart", "--dir", str(tmp_path), "proxy")
    assert found.exit_code == 1
    assert "proxy-1: not started by" in found.output
    assert "supervisor" in found.output


def test_a_folder_without_a_cluster(run: Run, tmp_path: Path) -> None:
    for words in (["status"], ["backup"], ["finalize"]):
        found = run("cluster", *words, "--dir", str(tmp_path), *(["file"] if words == ["backup"] else []))
        assert found.exit_code == 3
        assert "makes one" in found.output


def test_a_file_that_is_no_backup(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("something else\n")
    found = run("cluster", "restore", "--dir", str(tmp_path), str(tmp_path / "file"))
    assert found.exit_code == 1
    assert "Nothing was changed" in found.output


def test_all_commands_explain_themselves(run: Run) -> None:
    for name in ("up", "down", "status", "kill", "backup", "restore", "import", "finalize", "drain", "undrain"):
        found = run("cluster", name, "--help")
        assert found.exit_code == 0, found.output


def test_workers_must_be_some(run: Run, tmp_path: Path) -> None:
    assert run("serve", "--workers", "0", "--data", str(tmp_path)).exit_code == 2


def test_up_writes_down_where_the_certificates_are(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(LocalCluster, "up", lambda made: ["127.0.0.1:1"])
    words = ["--tls-ca", str(tmp_path / "ca.pem"), "--tls-certificate", str(tmp_path / "{name}.pem")]
    folder = tmp_path / "c"
    assert run("cluster", "up", "--dir", str(folder), *words).exit_code == 2
    assert not folder.exists()
    words += ["--tls-key", str(tmp_path / "{name}.key")]
    found = run("cluster", "up", "--dir", str(folder), "--clusters", "1", "--disks", "1", *words)
    assert found.exit_code == 0, found.output
    tls = LocalCluster(folder).settings().tls
    assert tls is not None
    assert tls.of("proxy-1") == TlsFiles(tmp_path / "proxy-1.pem", tmp_path / "proxy-1.key", tmp_path / "ca.pem")


def test_up_offers_what_serve_offers(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(LocalCluster, "up", lambda made: ["127.0.0.1:1"])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "auth.yaml").write_text("owners: [user:root@example.com]\n")
    (tmp_path / "secret").write_text("s3cret")
    model = "projects/p/locations/l/endpoints/e"
    words = [
        "--push-network",
        "loopback",
        "--push-issuer",
        "https://x.example",
        "--model",
        f"{model}=https://m.example",
    ]
    words += ["--bucket", "archive=files", "--bucket", "lake=s3://b/f?secret=@secret", "--auth", "auth.yaml"]
    up = ["cluster", "up", "--dir", "c", "--clusters", "1", "--disks", "1"]
    found = run(*up, *words)
    assert found.exit_code == 0, found.output
    assert "--credentials" in found.output
    made = LocalCluster(tmp_path / "c").settings()
    assert made.auth == tmp_path / "auth.yaml"
    assert made.push == PushSettings(("loopback",), "https://x.example")
    assert made.models == ((model, "https://m.example"),)
    archive, lake = (place for _, place in made.buckets)
    assert (archive.url, archive.options) == (f"file://{tmp_path}/files", "{}")
    assert (lake.url, options_of(lake)) == ("s3://b/f", {"secret": "s3cret"})
    assert run(*up, *words).exit_code == 0, "the same again"
    assert run(*up).exit_code == 0
    refused = run(*up, "--push-network", "10.0.0.0/8")
    assert (refused.exit_code, "a different `push`" in refused.output) == (2, True), refused.output
    assert run("cluster", "up", "--dir", "d", "--push-network", "here").exit_code == 2
    assert not (tmp_path / "d").exists()


def test_restart_says_how_far_it_came(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    LocalCluster(tmp_path / "c").create(Shape(clusters=1, disks=1, forwarders=1, routers=1, proxies=2))
    done: list[str] = []

    def restart(made: LocalCluster, names: list[str], report: Any) -> None:
        done.extend(names)
        if "proxy-2" in names:
            raise Unavailable("proxy-2 runs again, and not all is as it was")

    monkeypatch.setattr(rolling, "restart", restart)
    monkeypatch.setattr(LocalCluster, "started", lambda made, name: True)
    (tmp_path / "c" / "pids").mkdir()
    assert run("cluster", "restart", "--dir", str(tmp_path / "c"), "waiter").exit_code == 2
    assert not done
    assert "Restarted: router-1." in run("cluster", "restart", "--dir", str(tmp_path / "c"), "router").output
    found = run("cluster", "restart", "--dir", str(tmp_path / "c"), "proxy")
    assert found.exit_code == 1
    assert "were not restarted" in found.output
    assert f"`syncpoint cluster up --dir {tmp_path / 'c'}` starts stopped processes" in found.output
    assert done == ["router-1", "proxy-1", "proxy-2"]
