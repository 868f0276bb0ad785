"""`cluster status` and `restart` of processes that nobody here started: from another folder, by the file or by etcd."""

from __future__ import annotations

import json
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from syncpoint.programs.cli.main import cli
from syncpoint.programs.clusters.local import LocalCluster, Shape
from syncpoint.testing.rigs.etcd import why_not
from syncpoint.testing.rigs.official import eventually

pytestmark = [pytest.mark.skipif(bool(why_not()), reason=why_not() or ""), pytest.mark.shows("status-command")]
SMALL = Shape(clusters=1, disks=1, forwarders=1, routers=1, proxies=1)


def run(*words: Any) -> Result:
    return CliRunner().invoke(cli, [str(word) for word in words])


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalCluster]:
    made = LocalCluster(tmp_path / "machine")
    made.create(SMALL)
    made.up()
    try:
        yield made
    finally:
        made.down()


def test_a_cluster_of_others_is_seen_from_any_machine(local: LocalCluster, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    file = Path(shutil.copy(local.settings_path, elsewhere))
    shutil.copy(local.folder / "etcd-password", elsewhere)

    def view(*words: Any) -> tuple[int, dict[str, Any]]:
        found = run("cluster", "status", *words, "--format", "json")
        return found.exit_code, json.loads(found.stdout)

    eventually(lambda: view("--config", file)[0] == 0)
    code, found = view("--config", file)
    assert (code, found["problems"]) == (0, [])
    assert {one["state"] for one in found["processes"]} == {"running"}
    assert [one["pid"] for one in found["processes"]] == [None] * len(found["processes"])
    (chain,) = found["chains"]
    assert (chain["owner"], chain["home"], chain["disks"]) == ("publish-forwarder-1", "publish-forwarder-1", "1/1")

    etcd = ",".join(local.settings().etcd)
    password = str(local.folder / "etcd-password")
    by_etcd = view("--metadata", etcd, "--metadata-user", "root", "--metadata-password-file", password)
    assert by_etcd[0] == 0
    assert {one["name"] for one in by_etcd[1]["processes"]} == {one["name"] for one in found["processes"]}

    refused = run("cluster", "restart", "--config", file, "router")
    assert refused.exit_code == 1
    assert "router-1: not started by" in refused.output

    endpoint = ("--endpoint", local.settings().processes["proxy-1"].public, "--project", "p")
    added = run("cluster", "classes", "add", "fast", "--durability", "async", *endpoint)
    assert (added.exit_code, "Topics can use it" in added.output) == (0, True), added.output
    local.stop("publish-forwarder-1")
    local.start("publish-forwarder-1")  # the file does not name the class
    for words in (
        ("topics", "create", "orders", "--durability-class", "fast"),
        ("subscriptions", "create", "billing", "--topic", "orders"),
        ("topics", "publish", "orders", "--message", "through the new class"),
    ):
        done = run(*words, *endpoint)
        assert done.exit_code == 0, done.output
    assert "through the new class" in run("subscriptions", "pull", "billing", "--wait", *endpoint).output
    sources = json.loads(run("topics", "state", "orders", *endpoint, "--format", "json").stdout)["sources"]
    classes = {one["number"]: one["class"] for one in view("--config", file)[1]["chains"]}
    assert {classes[one["chain"]] for one in sources} == {"fast"}

    local.kill("router-1")
    code, found = view("--config", file)
    assert code == 1
    assert any(one.startswith("router-1 is") for one in found["problems"])

    local.kill("etcd-1")
    code, found = view("--config", file)
    assert code == 1
    assert "etcd-1 is down" in found["problems"]
    assert found["problems"][0].startswith("the metadata do not answer")
    assert not any("no proxy answers" in one for one in found["problems"])
    assert [one["owner"] for one in found["chains"]] == ["publish-forwarder-1"] * 2  # a proxy remembers


def test_the_etcd_of_a_cluster_lets_nobody_in_without_its_password(local: LocalCluster) -> None:
    secret = local.folder / "etcd-password"
    assert secret.stat().st_mode & 0o777 == 0o600
    assert {one.stat().st_mode & 0o077 for one in local.folder.rglob("*")} == {0}
    (etcd,) = local.settings().etcd

    def answer(path: str, content: dict[str, str], **headers: str) -> tuple[int, dict[str, Any]]:
        request = urllib.request.Request(f"http://{etcd}/v3/{path}", json.dumps(content).encode(), headers)
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as found:
                return found.status, json.load(found)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    key = {"key": "YXR0YWNr", "value": "eA=="}
    status, refused = answer("kv/put", key)
    assert status != 200
    assert "user name is empty" in refused["error"]
    assert answer("auth/authenticate", {"name": "root", "password": "guessed"})[0] != 200
    _, known = answer("auth/authenticate", {"name": "root", "password": secret.read_text()})
    assert answer("kv/put", key, Authorization=known["token"])[0] == 200
    local.stop("etcd-1")
    local.up()  # it asks for the same password again
    assert answer("kv/put", key)[0] != 200


def test_a_cluster_made_without_a_password_goes_on(tmp_path: Path) -> None:
    made = LocalCluster(tmp_path / "machine")
    made.create(SMALL)
    content = yaml.safe_load(made.settings_path.read_text())
    for key in ("user", "password_file", "peers"):  # as earlier versions wrote it
        del content["metadata"][key]
    made.settings_path.write_text(yaml.safe_dump(content))
    (made.folder / "etcd-password").unlink()
    made.folder.chmod(0o755)
    try:
        made.up()
        assert made.folder.stat().st_mode & 0o777 == 0o700
        peers = json.loads((made.folder / "etcd.json").read_text())["peers"]
        assert list(made.settings().etcd_peers) == peers
    finally:
        made.down()
