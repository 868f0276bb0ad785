"""The table of flows: what fits a narrow terminal, and what `--watch` writes into a pipe."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from syncpoint.programs.cli import federation as command
from syncpoint.programs.cli.main import cli
from syncpoint.programs.federation.flow_status import as_dict, state_of, table
from syncpoint.programs.federation.servers import FlowProgress, Servers
from syncpoint.programs.federation.state import FlowState, StateFolder, SupervisorState

TEXT = """version: 1
clusters:
  eu: {endpoint: "127.0.0.1:1"}
  us: {endpoint: "127.0.0.1:2"}
namespaces:
  shop: {clusters: [eu, us]}
"""


def progress(name: str = "shop.eu-us.orders") -> Any:
    ends = {"source": SimpleNamespace(name="eu"), "target": SimpleNamespace(name="us")}
    link = SimpleNamespace(name=name.rpartition(".")[0], steps=SimpleNamespace(topics=()), **ends)
    flow = SimpleNamespace(name=name, link=link, source_topic="orders", target_topic="orders")
    return FlowProgress(flow, 123_456, 0, rows=1_234_567, bytes=987_654_321)  # type: ignore[arg-type]


def shown(columns: int, name: str = "shop.eu-us.orders") -> list[str]:
    flows = {name: FlowState("running", batches=3, batch_s=1.25)}
    made = table([progress(name)], flows, SupervisorState(1, "f", 0.0, job=2), columns)
    text = io.StringIO()
    Console(file=text, width=columns).print(made)
    return text.getvalue().splitlines()


def test_a_narrow_terminal_shows_states_and_figures_whole() -> None:
    head, _, row, _ = shown(80)
    assert "…" not in head + row
    assert head.split() == ["FLOW", "STATE", "LAG", "COPIED", "MB", "DROPPED", "GAPS", "COMMITTED"]
    assert row.split() == ["shop.eu-us.orders", "running", "123,456", "1,234,567", "987.7", "0", "0", "never"]


def test_a_long_name_is_broken_and_nothing_else() -> None:
    lines = shown(80, "namespace-with-a-long-name.europe-america.topic-with-a-long-name")
    assert "".join(line.split()[0] for line in lines[2:-1]).startswith(
        "namespace-with-a-long-name.europe-america.topic"
    )
    assert {"running", "1,234,567", "never"} <= set(lines[2].split())


def test_what_only_a_target_knows_that_is_away_is_not_known() -> None:
    away = FlowProgress(progress().flow, 5, silent={"us": "us (us:8085) does not answer"})
    text = io.StringIO()
    Console(file=text, width=80).print(table([away], {}, None, 80))
    assert text.getvalue().splitlines()[2].split() == ["shop.eu-us.orders", "unknown", "5", "?", "?", "?", "?", "?"]
    said = as_dict(away, None, running=False)
    assert (said["lagMessages"], said["rows"], said["committedAt"]) == (5, None, None)
    assert as_dict(progress(), None, running=False)["rows"] == 1_234_567


def test_a_wide_terminal_shows_all() -> None:
    head, _, row, _ = shown(120)
    assert head.split()[1:3] == ["FROM", "TO"]
    assert "1250 ms" in row


def test_what_the_last_run_could_not_finish_is_failed_until_the_next_one(tmp_path: Path) -> None:
    state = StateFolder(tmp_path)
    state.take()
    state.release({"shop.eu-us.orders": "no such column", "Spark": "its job ended"})
    failed = state.flows()["shop.eu-us.orders"]
    assert state_of(progress(), failed, running=False) == ("failed", "no such column")
    assert state_of(replace(progress(), lag=0), failed, running=False) == ("idle", "")
    lost = FlowState("failed", error="gone: `syncpoint federation accept-gap shop.eu-us.orders` goes on behind it")
    said = "gone: `syncpoint federation accept-gap shop.eu-us.orders my.yaml` goes on behind it"
    assert state_of(progress(), lost, True, Path("my.yaml")) == ("failed", said)
    text = io.StringIO()
    Console(file=text, width=120).print(table([progress()], state.flows(), None, 120))
    assert "shop.eu-us.orders: no such column" in text.getvalue()
    assert "Spark: its job ended" in text.getvalue()
    state.take()
    assert state.flows() == {}
    state.release()


def test_watching_into_a_pipe_writes_every_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "federation.yaml"
    file.write_text(TEXT)
    monkeypatch.setattr(Servers, "reported_flows", lambda made, links: ([progress().flow], {}))
    monkeypatch.setattr(Servers, "progress_of", lambda made, flows: [progress()])
    looks = iter([None, None])

    def sleep(seconds: float) -> None:
        if next(looks, "enough") == "enough":
            raise KeyboardInterrupt

    monkeypatch.setattr(command.time, "sleep", sleep)
    result = CliRunner().invoke(cli, ["federation", "status", str(file), "--watch"], prog_name="syncpoint")
    assert result.stdout.count("shop.eu-us.orders") == 3
