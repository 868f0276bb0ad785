"""Drills on a real server: certified, guarded, aborted, and rolled back when their program is killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from syncpoint.front.client.client import Client
from syncpoint.programs.cli.main import cli
from syncpoint.programs.disaster import drill_driver, drill_failures
from syncpoint.programs.disaster.drill_driver import DrillRun
from syncpoint.programs.disaster.drill_plan import parse_plan
from syncpoint.programs.federation.acks.home_move import HomeMove
from syncpoint.programs.federation.patterns.registry import links_of
from syncpoint.programs.federation.servers import Servers
from syncpoint.programs.federation.spec import load
from syncpoint.programs.federation.state import StateFolder
from syncpoint.testing.rigs.official import eventually
from syncpoint.testing.server_process import ServerProcess
from tests.integration.test_disaster_classes import P, Sites

pytestmark = pytest.mark.shows("drills")


class Range:
    """A server and the command line."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = ServerProcess(folder / "data", durability="sync").start()

    @property
    def pid(self) -> int:
        return self.server.pid or 0

    def words(self, *words: str) -> list[str]:
        state = ("--state", str(self.folder / "state"), "--yes") if words[1] == "start" else ()
        return [*words, *state, "--endpoint", self.server.endpoint, "--project", "shop"]

    def cli(self, *words: str) -> Any:
        return CliRunner().invoke(cli, self.words(*words))

    def program(self, *words: str) -> subprocess.Popen[bytes]:
        """The command line as a process, for what forks and is killed."""
        return subprocess.Popen(
            [sys.executable, "-m", "syncpoint.programs.cli", *self.words(*words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def state(self) -> str:
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]

    def left(self) -> list[str]:
        found = [json.loads(self.cli(one, "list", "--format", "json").stdout) for one in ("topics", "subscriptions")]
        return [one["name"] for some in found for one in some]


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Range]:
    made = Range(tmp_path_factory.mktemp("ground"))
    try:
        yield made
    finally:
        made.server.close()


def test_a_hang_is_certified_and_nothing_of_the_drill_is_left(ground: Range) -> None:
    hang = ("--kind", "hang", "--pid", str(ground.pid), "--for", "2s", "--limit", "60s")
    assert ground.cli("drill", "plan", *hang).exit_code == 0
    program = ground.program("drill", "start", *hang, "--id", "hang-1")
    output = program.communicate(timeout=60)[0].decode()
    assert program.returncode == 0, output
    found = json.loads((ground.folder / "state" / "hang-1.json").read_text())
    certificate = {key: int(value) for key, value in found["certificate"].items()}
    assert certificate["confirmed"] == certificate["received"] > 0
    assert "lost" not in certificate
    assert 1_900 <= certificate["publishGapMs"] < 15_000
    assert 1_900 <= certificate["receiveGapMs"] < 15_000
    assert "RTO: longest time without" in (ground.folder / "state" / "hang-1.md").read_text()
    assert found["state"] == "DONE"
    assert ground.left() == []
    assert "hang-1" in ground.cli("drill", "list").output
    assert "hang-1, hang: 0 lost" in ground.cli("projects", "describe", "shop").output
    assert "RPO" in ground.cli("drill", "status", "hang-1").output


def test_a_drill_whose_program_is_killed_is_rolled_back_all_the_same(ground: Range) -> None:
    hang = ("--kind", "hang", "--pid", str(ground.pid), "--for", "50s")
    program = ground.program("drill", "start", *hang, "--id", "dies")
    eventually(lambda: ground.state() == "T" or None)
    program.send_signal(signal.SIGKILL)
    program.communicate()
    eventually(lambda: ground.state() != "T" or None)
    eventually(lambda: ground.left() == [] or None)
    eventually(lambda: "its watcher rolled back" in ground.cli("drill", "status", "dies").output or None)


def test_an_abort_rolls_back_a_drill_on_a_real_topic_and_leaves_the_topic(ground: Range) -> None:
    assert ground.cli("topics", "create", "real").exit_code == 0
    other = subprocess.Popen(["sleep", "60"])
    try:
        words = ("--kind", "hang", "--pid", str(other.pid), "--for", "50s", "--topic", "real", "--id", "stops")
        program = ground.program("drill", "start", *words)
        eventually(lambda: stat(other.pid) == "T" or None)
        assert ground.cli("drill", "start", *words[:-2], "--id", "second").exit_code != 0
        assert ground.cli("drill", "abort", "stops").exit_code == 0
        output = program.communicate(timeout=60)[0].decode()
        assert program.returncode == 1
        assert "aborted" in output
        assert stat(other.pid) != "T"
    finally:
        other.kill()
        other.wait()
    assert ground.left() == ["projects/shop/topics/real"]


def stat(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_drill_is_refused_and_stopped_while_something_is_at_risk(
    ground: Range, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = subprocess.Popen(["sleep", "600"])
    looks: list[list[str]] = [["Burning: too fast"]]
    monkeypatch.setattr(drill_driver, "at_risk", lambda client: looks.pop(0) if looks else ["Burning: too fast"])
    monkeypatch.setattr(drill_driver, "watch", lambda journal, limit_s, undo: lambda: None)
    plan = parse_plan({"kind": "hang", "pid": str(other.pid), "for": "200s", "limit": "300s"})

    def run(name: str) -> Any:
        connect = lambda: Client(ground.server.endpoint, patience_s=0.0)  # noqa: E731
        return DrillRun(name, "projects/shop", plan, connect, ground.folder / "state").run()

    try:
        with pytest.raises(Exception, match="No drill now: Burning: too fast"):
            run("refused")
        assert stat(other.pid) != "T"
        looks += [[] for _ in range(6)]  # and then it burns
        began = time.monotonic()
        found = run("burns")
        assert time.monotonic() - began < 100
        assert found.reason == "Burning: too fast"
        assert stat(other.pid) != "T"
    finally:
        other.kill()
        other.wait()


def test_links_and_homes_fail_and_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link is paused and goes on; a subscription is delivered elsewhere, and at home again."""
    monkeypatch.setattr(drill_driver, "watch", lambda journal, limit_s, undo: lambda: None)
    monkeypatch.setattr(drill_failures, "DRAIN_S", 0.5)
    sites = Sites(tmp_path, "sync")
    try:
        sites.file.write_text(sites.file.read_text().replace("  shop:\n", "  shop:\n    acks: true\n"))
        for site in ("eu", "us"):
            sites.done(site, "topics", "create", "orders")
            sites.done(site, "subscriptions", "create", "pay", "--topic", "orders")
        state = StateFolder(tmp_path / "federation-state")
        during: list[Any] = []

        def run(**target: str) -> Any:
            keys = {"kind": target.pop("kind"), "federation": str(sites.file), "for": "1s", "limit": "60s", **target}

            def look() -> int:
                with Servers() as servers:
                    homes, _ = HomeMove(links_of(load(sites.file)), servers, "pay", "us").homes()
                during.append((state.paused(), {home for home, _ in homes.values()}))
                return 4

            connect = lambda: Client(sites.servers["eu"].endpoint, patience_s=0.0)  # noqa: E731
            drill = DrillRun(keys["kind"], P, parse_plan(keys), connect, tmp_path / "state", not_copied=look)
            drill.show = lambda text: text == "rolling back" and look()
            found = drill.run()
            look()
            assert (found.state, found.reason) == (found.DONE, "")
            assert (found.certificate.not_copied, found.certificate.lost) == (4, 0)
            return found

        run(kind="pause-link", flow="shop.eu-us.orders")
        paused = [one[0] for one in during if one]
        assert paused == [frozenset(), frozenset({"shop.eu-us.orders"}), frozenset()]
        refused = CliRunner().invoke(
            cli,
            ["drill", "start", "--yes", "--kind", "move-home", "--federation", str(sites.file), "--subscription", "pay",
             "--site", "us", "--endpoint", sites.servers["eu"].endpoint],
        )  # fmt: skip
        assert "cannot be restored" in refused.output
        sites.done("eu", "federation", "home", "pay", "eu", str(sites.file), "--drain", "0s")
        during.clear()
        run(kind="move-home", subscription="pay", site="us")
        assert [one[1] for one in during if one] == [{"eu"}, {"us"}, {"eu"}]
    finally:
        sites.close()
