"""`syncpoint probers` without a server: the list, what is refused, and what a dead endpoint looks like."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from syncpoint.base.runtime.ports import free_ports
from syncpoint.programs.cli.main import cli
from syncpoint.programs.probers.prober_table import METRICS


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["probers", *words])


def test_the_list_has_ten_probers_and_thirty_metrics() -> None:
    found = json.loads(run("list", "--format", "json").stdout)
    assert [metric for one in found for metric in one["metrics"]] == list(METRICS)
    assert {plane for one in found for plane in one["planes"]} == {"data", "control"}
    table = run("list").stdout
    assert "create 5 s, receive 2 s" in table
    assert sum(line.startswith("P") for line in table.splitlines()) == 1 + 10


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--only", "P11"], "--only: unknown prober P11"),
        (["--only", "P2", "--without", "p2"], "No probers left to run"),
        (["--metrics", "9180"], "--metrics: '9180' is not of the form HOST:PORT"),
        (["--endpoint", "a:b"], "'a:b' is not an address"),
        (["--push-listen", "x"], "--push-listen: 'x' is not of the form HOST:PORT"),
        (["--tls-key", __file__], "--tls-key needs --tls-cert"),
    ],
)
def test_what_cannot_be_run_is_refused(words: list[str], text: str) -> None:
    found = run("run", "--once", *words)
    assert found.exit_code == 2
    assert text in found.output


def test_where_nobody_is_success_is_bad_and_the_rest_unknown(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    place, status = f"127.0.0.1:{port}", tmp_path / "status.json"
    found = run("run", "--once", "--endpoint", place, "--only", "P2", "--timeout", "2", "--status", str(status))
    assert found.exit_code == 1
    assert f"failed: P2.success at {place}" in found.output
    assert "CreateTopic: UNAVAILABLE" in found.output
    (entry,) = json.loads(status.read_text())["probers"]
    assert [one["verdict"] for one in entry["metrics"]] == ["unexpected", "unknown", "unknown"]
