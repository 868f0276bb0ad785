"""`syncpoint top` against a real server: one look in both formats, and the screen in a terminal of its own."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import termios
import time
from collections.abc import Iterator

import pytest

from syncpoint.testing.server_process import ServerProcess

pytestmark = pytest.mark.shows("top")

COMMAND = [sys.executable, "-m", "syncpoint.programs.cli", "top"]


class Terminal:
    """A program at a terminal of 120 x 40, whose keys are pressed here."""

    def __init__(self, *arguments: str) -> None:
        self._outer, self.inner = pty.openpty()
        termios.tcsetwinsize(self.inner, (40, 120))
        env = {**os.environ, "TERM": "xterm", "COLUMNS": "", "LINES": ""}
        self.before = termios.tcgetattr(self.inner)
        self.process = subprocess.Popen([*COMMAND, *arguments], stdin=self.inner, stdout=self.inner, env=env)
        self.shown = ""

    def press(self, keys: str) -> None:
        self.shown = ""
        os.write(self._outer, keys.encode())

    def until(self, wanted: str) -> None:
        end = time.monotonic() + 40
        while wanted not in self.shown:
            assert time.monotonic() < end, self.shown[-3_000:]
            if select.select([self._outer], [], [], 0.5)[0]:
                self.shown += os.read(self._outer, 65_536).decode(errors="replace")

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        os.close(self._outer)
        os.close(self.inner)


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a server of its own: of the one that all tests share only what is busiest would be shown."""
    with ServerProcess(tmp_path_factory.mktemp("top") / "data") as server:
        yield server.endpoint


@pytest.fixture
def terminal(endpoint: str, request: pytest.FixtureRequest) -> Iterator[Terminal]:
    made = Terminal("--endpoint", endpoint, "--interval", "1")
    yield made
    made.close()


def test_one_look_shows_what_waits(space):
    topic = space.topic("orders")
    space.subscription(topic, "billing")
    space.publish(topic, *[b"x"] * 7)
    asked = ["--endpoint", space.endpoint, "--once", "--interval", "2.5"]
    end = time.monotonic() + 30
    while True:  # backlogs are counted every few seconds
        found = json.loads(subprocess.run([*COMMAND, *asked, "--format", "json"], check=True, stdout=-1).stdout)
        waiting = {one["subscription"]: one for one in found["subscriptions"] if one["project"] == space.project}
        if waiting and waiting["billing"]["backlogMessages"] == 7:
            break
        assert time.monotonic() < end, found["subscriptions"]
    assert {one["topic"]: one["published"] for one in found["topics"] if one["project"] == space.project} == {
        "orders": 7
    }
    assert [one["state"] for one in found["disks"]] == ["ok"]
    assert found["processes"][0]["memoryBytes"] > 10_000_000
    assert found["silent"] == {}
    piped = subprocess.run([*COMMAND, "--endpoint", space.endpoint, "--filter", space.project], check=True, stdout=-1)
    assert b"billing" in piped.stdout
    assert b"\x1b" not in piped.stdout


def test_keys_choose_filter_and_end_and_the_terminal_is_as_before(space, terminal):
    topic = space.topic("orders")
    space.subscription(topic, "billing")
    space.publish(topic, b"x")
    terminal.until("q quit")
    terminal.press(f"u/{space.project}\r")
    terminal.until("billing")
    terminal.press("d")
    terminal.until("SYNC P99")
    terminal.press("q")
    assert terminal.process.wait(20) == 0
    assert termios.tcgetattr(terminal.inner) == terminal.before


def test_nobody_there_is_said(tmp_path):
    asked = subprocess.run([*COMMAND, "--endpoint", "127.0.0.1:1", "--once"], capture_output=True, text=True)
    assert asked.returncode == 5
    assert "no metrics at 127.0.0.1:1" in asked.stderr


def test_a_cluster_is_shown_process_by_process(cluster):
    asked = [*COMMAND, "--config", str(cluster.local.settings_path), "--once", "--format", "json"]
    found = json.loads(subprocess.run(asked, check=True, stdout=-1).stdout)
    assert {one["process"] for one in found["processes"]} == set(cluster.local.settings().processes)
    assert {one["state"] for one in found["disks"]} == {"ok", "served"}
