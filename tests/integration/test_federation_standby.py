"""Two programs share a federation: one runs, the other takes over, and both know what people decided about it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from syncpoint.front.client.client import Client
from syncpoint.testing.rigs.official import eventually
from syncpoint.testing.server_process import ServerProcess
from syncpoint.wire.protobuf.messages import admin, well_known
from tests.integration.conftest import Space

pytestmark = pytest.mark.shows("federation")

NAME = "projects/shop/federations/main"
FLOW = "shop.eu-us.orders"
TAKEN_S = 90.0  # 15 until a term is up, 8 for a round, and a busy machine
SYNCPOINT = [sys.executable, "-m", "syncpoint.programs.cli"]


class Program:
    """`syncpoint federation run` on a machine of its own: its file, its state folder, its log."""

    def __init__(self, folder: Path, clusters: dict[str, str]) -> None:
        folder.mkdir()
        self.file, self.state, self.log = folder / "federation.yaml", folder / "state", folder / "log"
        content: dict[str, Any] = {
            "version": 1,
            "clusters": {name: {"endpoint": endpoint} for name, endpoint in clusters.items()},
            "namespaces": {"shop": {"clusters": list(clusters)}},
            "tasks": {
                "safe": {
                    "pattern": "active-passive", "project": "safe", "primary": "eu", "secondary": "us", "failover": "1h"
                }
            },
            "runtime": {"state": str(self.state), "shared": NAME},
        }  # fmt: skip
        self.file.write_text(json.dumps(content))
        with self.log.open("w") as log:
            self.process = subprocess.Popen([*SYNCPOINT, "federation", "run", str(self.file), "--quiet"], stderr=log)

    def says(self, text: str) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        return text in self.log.read_text()

    def asked(self, *arguments: str) -> str:
        """What a command of `syncpoint federation` on this machine prints."""
        done = subprocess.run(
            [*SYNCPOINT, "federation", *arguments, str(self.file)], capture_output=True, text=True, timeout=60
        )
        return done.stdout + done.stderr

    def end(self) -> None:
        self.process.kill()
        self.process.wait(30)


@pytest.fixture
def programs(tmp_path: Path, boot: Callable[..., ServerProcess]) -> Iterator[Callable[[], Program]]:
    """`programs()` starts another one, over the same two servers."""
    clusters = {name: boot(tmp_path / name).endpoint for name in ("eu", "us")}
    for endpoint in clusters.values():
        space = Space(endpoint)
        space.api.create_topic({"name": "projects/shop/topics/orders"})
        space.close()
    started: list[Program] = []

    def start() -> Program:
        started.append(Program(tmp_path / f"machine-{len(started)}", clusters))
        return started[-1]

    yield start
    for one in started:
        one.end()


def test_another_program_takes_over_and_keeps_what_was_decided(programs: Callable[[], Program]) -> None:
    first = programs()
    eventually(lambda: first.says(f"runs {NAME} in term 1"), TAKEN_S)
    second = programs()
    eventually(lambda: second.says(f"runs {NAME}") and second.says("stands by"), TAKEN_S)
    assert "stands by" in second.asked("status")
    assert "Spark is idle" in first.asked("status")
    assert "is paused" in second.asked("pause", FLOW)
    assert "publishers: us; consumers: us" in second.asked("failover", "safe", "--planned")
    eventually(lambda: (first.state / "paused" / FLOW).exists(), TAKEN_S)
    assert "is not the next step" in first.asked("failover", "safe", "--planned"), "it has learned of the stage"
    assert "runs the federation" in second.asked("accept-gap", FLOW)

    first.process.kill()
    first.process.wait(30)
    eventually(lambda: second.says(f"runs {NAME} in term 2"), TAKEN_S)
    assert "paused" in second.asked("status")
    third = programs()
    eventually(lambda: third.says("stands by"), TAKEN_S)
    second.process.send_signal(signal.SIGTERM)
    assert second.process.wait(60) == 0
    eventually(lambda: third.says(f"runs {NAME} in term 3"), TAKEN_S)
    assert "is running again" in third.asked("resume", FLOW)
    assert not (third.state / "paused" / FLOW).exists()


def test_each_house_keeps_who_runs_one(house: str) -> None:
    with Client(house) as client:

        def hold(holder: str, term: int) -> str:
            request = admin.HoldFederationRequest(project="projects/shop", federation="main", holder=holder, term=term)
            request.ttl.CopyFrom(well_known.Duration(seconds=30))
            return str(client.call("Admin.HoldFederation", request).holder)

        assert hold("p", 1) == "p"
        assert hold("o", 1) == "p"
        assert hold("q", 2) == "q"
        put = admin.PutFederationStateRequest(project="projects/shop", federation="main", version=1, state="{}")
        assert client.call("Admin.PutFederationState", put).state == "{}"
        found = client.call(
            "Admin.GetFederation", admin.GetFederationRequest(project="projects/shop", federation="main")
        )
        assert (found.holder, found.term, found.state) == ("q", 2, "{}")
