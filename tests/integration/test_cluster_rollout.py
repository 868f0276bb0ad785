"""Rollouts over three environments of real processes, with customers at work in production: one that is worse and goes
back by itself, and one that gets to the end although its controller is killed.

They share the environments: the one that gets to the end comes last. `tests/faults/rollout_drill` has more of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from syncpoint.programs.clusters.local import LocalCluster
from syncpoint.testing.rigs.etcd import why_not
from tests.kit.customers import ContinuousTest, Customers
from tests.kit.rollouts import FAILING, ThreeEnvironments, program

pytestmark = [
    pytest.mark.skipif(why_not() is not None, reason=why_not() or ""),
    pytest.mark.timeout(900),
    pytest.mark.shows("rollouts"),
]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = ThreeEnvironments(tmp_path_factory.mktemp("rollouts"))
    test: ContinuousTest | None = None
    try:
        made.up()
        test = ContinuousTest(made.addresses["staging"][0])
        test.start()
        yield made
    finally:
        if test is not None:
            test.close()
        made.down()


@pytest.fixture
def customers(three: ThreeEnvironments) -> Any:
    made = Customers(three.addresses["production"], many=8)
    try:
        yield made.start()
    finally:
        made.close()


def rollout(*words: str | Path, code: int = 0) -> tuple[str, str]:
    """What a command prints, and what it says on standard error."""
    command = [sys.executable, "-m", "syncpoint.programs.cli", "rollout", *(str(word) for word in words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=800)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout, done.stderr


def state_of(manifest: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(rollout("status", manifest, "--format", "json")[0])
    return found


def versions(three: ThreeEnvironments) -> list[str]:
    from syncpoint.programs.clusters.looking import Cluster

    found = [Cluster.of_file(one.settings_path).describe()["processes"] for one in three.clusters.values()]
    return sorted({process["version"] for processes in found for process in processes if process["version"]})


def test_a_canary_that_fails_goes_back_by_itself_and_customers_get_what_they_sent(
    three: ThreeEnvironments, customers: Customers
) -> None:
    before = versions(three)
    manifest = three.manifest({"version": "9.9", "program": program(FAILING)}, name="spoiled")
    said = rollout("start", manifest, code=1)[1]
    state = state_of(manifest)
    assert state["state"] == "rolled back"
    assert state["step"] == "canary"
    assert "Publisher.Publish fails" in state["reason"] or "calls fail" in state["reason"], said
    assert versions(three) == before
    customers.end()
    assert customers.failed() == []


@pytest.mark.long
def test_a_good_release_gets_everywhere_whoever_drives_it(three: ThreeEnvironments, customers: Customers) -> None:
    manifest = three.manifest({"version": "9.9", "program": program()}, name="good")
    assert "canary" in rollout("plan", manifest)[0]
    assert "are the same" in rollout("check", manifest)[1]
    command = [sys.executable, "-m", "syncpoint.programs.cli", "rollout", "start", str(manifest)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as first:
        assert first.stderr is not None
        for line in first.stderr:
            if "canary: started" in line:
                break
        assert "already controls a rollout of this cluster" in rollout("resume", manifest, code=1)[1]
        first.kill()
    said = resumed(manifest)
    state = state_of(manifest)
    assert state["state"] == "done", said
    assert versions(three) == ["9.9"]
    assert sum("proxy-2 gets version 9.9" in text for _, text in state["history"]) == 1
    assert 0 < state["shares"].get("proxy", 1) <= 1
    customers.end()
    assert customers.failed() == []
    restarted: LocalCluster = three.clusters["production"]
    restarted.stop("proxy-1")
    restarted.start("proxy-1")  # by whichever command: it keeps what the rollout gave it
    assert versions(three) == ["9.9"]


def resumed(manifest: Path) -> str:
    """The lease of a controller that was killed ends after some seconds."""
    for _ in range(60):
        command = [sys.executable, "-m", "syncpoint.programs.cli", "rollout", "resume", str(manifest)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=800)
        if "already controls a rollout of this cluster" not in done.stderr:
            assert done.returncode == 0, done.stderr
            return done.stderr
    raise AssertionError("nobody could go on")
