"""Rules, drains and the simulation on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from syncpoint.base.model.errors import FailedPrecondition, NotFound
from syncpoint.wire.protobuf.messages import admin

Run = Callable[..., Result]


def test_create_a_rule(server: Any, run: Run) -> None:
    server.answers["Admin.CreateConstraint"] = lambda request: request.constraint
    found = run("constraints", "create", "eu-only", "--topics", "name=in-*", "--forwarders", "region=us")
    assert found.exit_code == 0, found.output
    made = server.request("Admin.CreateConstraint").constraint
    assert (made.name, made.topics, made.forwarders, made.clients) == ("eu-only", "name=in-*", "region=us", "")
    assert made.action == 2
    run("constraints", "create", "but", "--allow", "--priority", "7", "--comment", "why")
    made = server.calls[-1][1].constraint
    assert (made.action, made.priority, made.comment) == (1, 7, "why")


def test_a_refused_rule_says_what_to_do(server: Any, run: Run) -> None:
    server.answers["Admin.CreateConstraint"] = FailedPrecondition("t would be left without a publish-forwarder.")
    found = run("constraints", "create", "all")
    assert found.exit_code == 1
    assert "would be left" in found.output
    assert "Nothing was changed" in found.output


def test_list_and_delete(server: Any, run: Run) -> None:
    server.answers["Admin.ListConstraints"] = admin.ListConstraintsResponse(
        constraints=[
            admin.Constraint(name="a", action=1),
            admin.Constraint(name="b", action=2, clients="region=eu"),
            admin.Constraint(name="c", action=1, priority=5, forwarders="rack=r1"),
        ]
    )
    found = run("constraints", "list")
    rows = [line.split()[0] for line in found.output.splitlines()[2:]]
    assert rows == ["c", "b", "a"]
    assert "region=eu" in found.output
    assert [one["name"] for one in json.loads(run("--format", "json", "constraints", "list").stdout)] == ["c", "b", "a"]
    server.answers["Admin.DeleteConstraint"] = NotFound("constraints/x")
    assert run("constraints", "delete", "x").exit_code == 3


def test_test(server: Any, run: Run) -> None:
    server.answers["Admin.TestConstraint"] = admin.TestConstraintResponse(
        clients=["proxy-1"], topics=[f"projects/p/topics/t{number}" for number in range(12)]
    )
    found = run("constraints", "test", "--clients", "name=proxy-1")
    assert found.exit_code == 0
    assert "and 2 more" in found.output
    server.answers["Admin.TestConstraint"] = admin.TestConstraintResponse(refusal="nowhere to go")
    found = run("constraints", "test")
    assert found.exit_code == 1
    assert "nowhere to go" in found.output


def test_drain_waits_until_the_target_is_empty(server: Any, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncpoint.programs.cli.drain.POLL_S", 0.0)
    states = [
        admin.DrainState(target="region/us", draining=True, connections=number, chains=number // 2)
        for number in (2, 1, 0)
    ]
    server.answers["Admin.Drain"] = admin.DrainState(
        target="region/us", draining=True, members=["a", "b"], connections=4, chains=2
    )
    server.answers["Admin.GetDrain"] = lambda request: states.pop(0)
    found = run("drain", "region/us", "--comment", "power")
    assert found.exit_code == 0, found.output
    assert server.request("Admin.Drain").comment == "power"
    assert "4 connections, 2 chains left" in found.output
    assert "Drained [region/us] in " in found.output
    assert not states


def test_drain_that_takes_too_long_or_is_ended(server: Any, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncpoint.programs.cli.drain.POLL_S", 0.0)
    server.answers["Admin.Drain"] = admin.DrainState(target="a", draining=True, members=["a"], connections=4)
    found = run("drain", "a", "--within", "0s")
    assert found.exit_code == 1
    assert "undrain a" in found.output
    assert run("drain", "a", "--no-wait").exit_code == 0
    server.answers["Admin.GetDrain"] = admin.DrainState(target="a", connections=4)
    found = run("drain", "a")
    assert found.exit_code == 1
    assert "ended" in found.output
    server.answers["Admin.Drain"] = FailedPrecondition("No publish-forwarder would be left.")
    assert "Nothing was changed" in run("drain", "a").output


def test_list_drains_and_undrain(server: Any, run: Run) -> None:
    server.answers["Admin.ListDrains"] = admin.ListDrainsResponse(
        drains=[admin.DrainState(target="region/us", draining=True, members=["a", "b"], comment="power")]
    )
    found = run("drain")
    assert "region/us" in found.output
    assert "power" in found.output
    server.answers["Admin.Undrain"] = admin.DrainState(target="region/us")
    assert "Back in service" in run("undrain", "region/us").output
    assert server.request("Admin.Undrain").target == "region/us"


def test_simulate(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    plot = tmp_path / "routing.svg"
    found = run("simulate", "routing", "--forwarders", "10", "--clients", "500", "--plot", str(plot))
    assert found.exit_code == 0, found.output
    assert plot.read_text().startswith("<svg")
    assert "unbounded" in found.output
    rows = json.loads(run("--format", "json", "simulate", "routing", "--forwarders", "10", "--clients", "500").stdout)
    assert rows[-1]["e"] is None
    assert all(row["highest"] <= 1 + row["e"] + 1e-6 for row in rows[:-1])
