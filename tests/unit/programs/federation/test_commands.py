"""`syncpoint federation` and `syncpoint archive` where no server and no Spark is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from syncpoint.base.model.errors import Unavailable
from syncpoint.programs.cli.main import cli
from syncpoint.programs.federation.servers import Servers
from syncpoint.programs.federation.spec import FederatedCluster
from syncpoint.programs.federation.state import StateFolder, SupervisorState

FILE = """\
version: 1
clusters:
  eu: {endpoint: "eu:8085"}
  us: {endpoint: "us:8085", token: {env: US_TOKEN}}
namespaces:
  shop: {clusters: [eu, us]}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "federation.yaml"
    path.write_text(FILE)
    return path


def said(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words), prog_name="syncpoint")


def test_a_right_file(file: Path) -> None:
    result = said("federation", "validate", str(file))
    assert result.exit_code == 0
    assert "2 clusters, 2 links" in result.output


@pytest.mark.parametrize(
    ("wrong", "reported"),
    [
        ("clusters: [eu, us]", "clusters: [eu, uss]"),
        ("token: {env: US_TOKEN}", "token: secret"),
        ("version: 1", "version: 2"),
        ("namespaces:", "namespace:"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(file: Path, wrong: str, reported: str) -> None:
    file.write_text(FILE.replace(wrong, reported))
    result = said("federation", "validate", str(file))
    assert result.exit_code == 1
    place = {"[eu, uss]": "uss", "secret": "clusters.us.token", "2": "version", "namespace:": "namespace"}
    assert place[reported.partition(": ")[2] or reported] in result.output


def test_stop_needs_somebody_who_runs(file: Path) -> None:
    result = said("federation", "stop", str(file))
    assert result.exit_code == 1
    assert "not running here" in result.output


def test_who_is_gone_does_not_run(file: Path, tmp_path: Path) -> None:
    StateFolder(tmp_path / "federation-state").say(SupervisorState(pid=2**22 + 1, file=str(file), started=0.0))
    assert "not running here" in said("federation", "stop", str(file)).output


def away(servers: Servers, cluster: FederatedCluster, method: str, request: Any) -> Any:
    raise Unavailable(f"{cluster.name} ({cluster.endpoint}) does not answer")


@pytest.mark.parametrize(
    ("named", "typed"), [("federation.yaml", ""), ("other.yaml", " other.yaml"), ("a b.yaml", " 'a b.yaml'")]
)
def test_what_is_advised_acts_on_the_same_file(
    named: str, typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Servers, "topics", lambda servers, cluster, project: ["projects/shop/topics/orders"])
    monkeypatch.setattr(Servers, "call", away)
    monkeypatch.chdir(tmp_path)
    Path(named).write_text(FILE)
    resumes = f"`syncpoint federation resume shop.eu-us.orders{typed}`"
    paused = said("federation", "pause", "shop.eu-us.orders", named)
    assert f"{resumes} resumes it" in paused.output
    status = said("federation", "status", named).output
    assert f"until {resumes}" in status
    assert f"`syncpoint federation run{typed}` starts it" in status
    assert f"until {resumes}" in said("federation", "status", named, "--format", "json").output


def test_a_backfill_says_which_server_of_the_file_is_away(file: Path) -> None:
    file.write_text(FILE.replace("eu:8085", "127.0.0.1:1"))
    result = said("federation", "backfill", "shop.eu-us.orders", str(file), "--from", "earliest", "--dry-run")
    assert result.exit_code == 5
    assert "eu (127.0.0.1:1) does not answer" in result.output
    assert f"under `clusters` in {file}" in result.output
    assert "syncpoint serve" not in result.output
    assert "8085" not in result.output


def test_an_archive_that_is_none(tmp_path: Path) -> None:
    for command in ("verify", "describe"):
        result = said("archive", command, str(tmp_path))
        assert result.exit_code == 1
        assert "There is no archive" in result.output


def test_the_exchange_of_acknowledgements_is_shown(file: Path) -> None:
    result = said("federation", "acks", str(file))
    assert result.exit_code == 1
    assert "acks: true" in result.output
    file.write_text(FILE.replace("clusters: [eu, us]}", "clusters: [eu, us], acks: true}"))
    state = StateFolder(file.parent / "federation-state")
    one = {"flow": "shop.eu-us.orders", "subscription": "billing", "source": "eu", "target": "us"}
    state.say_acks([{**one, "brought": 1204, "seeks": 1, "at": 0.0, "why": "eu does not answer"}])
    result = said("federation", "acks", str(file))
    assert "does not run here" in result.output
    for word in ("shop.eu-us.orders", "billing", "1,204", "never", "eu does not answer"):
        assert word in result.output
    shown = said("federation", "acks", str(file), "--format", "json")
    assert '"brought": 1204' in shown.output


def test_a_home_must_be_a_site_that_exchanges(file: Path) -> None:
    result = said("federation", "home", "billing", "us", str(file))
    assert result.exit_code == 1
    assert "No task with `acks: true` has a site 'us'" in result.output
