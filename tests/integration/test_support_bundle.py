"""A support bundle of a server full of secrets has none of them, and has what helps."""

from __future__ import annotations

import base64
import json
import os
import stat
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from syncpoint.programs.cli.main import cli
from syncpoint.testing.server_process import ServerProcess

pytestmark = pytest.mark.shows("cli")

PLANTED = "PL4NTED"


def called(server: ServerProcess, *words: str) -> Result:
    done = CliRunner().invoke(cli, [*words, "--endpoint", server.endpoint, "--project", "p"], prog_name="syncpoint")
    assert done.exit_code == 0, done.output
    return done


def plant(server: ServerProcess, tmp_path: Path) -> None:
    """A secret wherever a user can write."""
    udf = tmp_path / "transforms.yaml"
    code = f"function f(m, x) {{ return m; }} // {PLANTED}"
    udf.write_text(json.dumps([{"javascriptUdf": {"functionName": "f", "code": code}}]))
    schema = json.dumps({"type": "record", "name": "R", "doc": PLANTED, "fields": [{"name": "n", "type": "int"}]})
    where = f"http://127.0.0.1:9/hook/{PLANTED}?token={PLANTED}"
    for words in (
        ["topics", "create", "orders", "--labels", f"team={PLANTED.lower()}", "--message-transforms-file", str(udf)],
        ["topics", "create", "failed"],
        ["schemas", "create", "order", "--type", "avro", "--definition", schema],
        ["subscriptions", "create", "billing", "--topic", "orders", "--message-filter", f'attributes.a != "{PLANTED}"'],
        ["subscriptions", "create", "pushed", "--topic", "orders", "--push-endpoint", where],
        ["rules", "create", "large", "--subscription", "pulled", "--filter", f"region = '{PLANTED}'"],
        ["snapshots", "create", "before", "--subscription", "billing", "--labels", f"why={PLANTED.lower()}"],
        ["topics", "publish", "orders", PLANTED, "--attribute", f"a={PLANTED},secret={PLANTED}"],
        ["alerts", "silence", "Disk*", "--for", "1h", "--comment", PLANTED],
    ):
        if words[0] == "rules":
            called(server, "subscriptions", "create", "pulled", "--topic", "failed")
        called(server, *words)


def test_a_bundle_has_no_secret_and_no_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = tmp_path / "token"
    token.write_text(f"opaque-{PLANTED}")
    log = tmp_path / "server.log"
    log.write_text(f"key opaque-{PLANTED}\n-----BEGIN PRIVATE KEY-----\n{PLANTED}\n-----END PRIVATE KEY-----\nready\n")
    monkeypatch.setenv("SHOP_API_TOKEN", f"env-{PLANTED}")
    monkeypatch.chdir(tmp_path)
    with ServerProcess(args=["--dev"]) as server:
        plant(server, tmp_path)
        (tmp_path / "own.log").write_text(server.logs() + f"\nwith env-{PLANTED} it was started\n")
        done = called(
            server,
            *("support-bundle", "-o", "bundle.zip", "--log", "server.log", "--log", "own.log"),
            *("--credentials", str(token)),
        )
    assert "Wrote bundle.zip" in done.stderr
    made = tmp_path / "bundle.zip"
    assert stat.S_IMODE(os.stat(made).st_mode) == 0o600
    with zipfile.ZipFile(made) as file:
        texts = {name: file.read(name).decode() for name in file.namelist()}
    coded = base64.b64encode(PLANTED.encode()).decode().rstrip("=")
    for name, text in texts.items():
        assert PLANTED.lower() not in text.lower(), name
        assert coded[:9] not in text, name
    assert json.loads(texts["state/GetServer.json"])["version"]
    assert {one["name"] for one in json.loads(texts["project/topics.json"])} >= {"projects/p/topics/orders"}
    states = json.loads(texts["project/subscriptions-states.json"])
    assert any(one["subscription"].endswith("/billing") and "backlogMessages" in one for one in states)
    (metrics,) = [text for name, text in texts.items() if name.startswith("metrics/")]
    assert "syncpoint_" in metrics
    assert "ready" in texts["logs/01-server.log"]
    assert "syncpoint ready on" in texts["logs/02-own.log"]
    assert set(json.loads(texts.get("missing.json", "{}"))) <= {
        "state/ListMembers", "state/ListChains", "state/ListDurabilityClasses", "state/ListDrains",
        "state/GetMitigation", "state/GetHeadroom",
    }  # fmt: skip


def test_a_server_that_is_gone_and_a_cluster_that_was_never_started_still_make_a_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "c"
    (folder / "logs").mkdir(parents=True)
    (folder / "logs" / "proxy-1.log").write_text(f"password={PLANTED}\nproxy-1 ready on 127.0.0.1:7001\n")
    (folder / "cluster.yaml").write_text(
        f"cluster: dev\nmetadata: {{etcd: ['http://root:{PLANTED}@127.0.0.1:1']}}\n"
        "processes:\n  proxy-1: {roles: [proxy], listen: '127.0.0.1:7001', public: '127.0.0.1:1'}\n"
    )
    words = ["support-bundle", "--dir", str(folder), "--endpoint", "127.0.0.1:1", "-o", "b.zip"]
    done = CliRunner().invoke(cli, words, prog_name="syncpoint")
    assert done.exit_code == 0, done.output
    with zipfile.ZipFile("b.zip") as file:
        texts = {name: file.read(name).decode() for name in file.namelist()}
    assert not [name for name, text in texts.items() if PLANTED in text]
    assert "proxy-1 ready on 127.0.0.1:7001" in texts["logs/01-proxy-1.log"]
    assert json.loads(texts["settings.json"])["processes"]["proxy-1"]["roles"] == ["proxy"]
    assert {"state/GetServer", "metrics"} <= set(json.loads(texts["missing.json"]))
    again = CliRunner().invoke(cli, words, prog_name="syncpoint")
    assert again.exit_code == 1
    assert "b.zip exists already" in again.output
