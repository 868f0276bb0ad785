"""The pytest fixture `syncpoint_server`: a real server for one test, as the official clients see it.

Installed with the package as a pytest plugin, so a test only has to name the fixture; `from syncpoint.testing.fixture
import syncpoint_server` works too. The server runs in a process of its own with a temporary data folder and a free
port, and PUBSUB_EMULATOR_HOST points to it while the test runs.
Promises: after the test no process and no folder is left, and the environment is as before.
Leaves to the test: topics and subscriptions; to `syncpoint.testing.server_process` the life of the process.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from syncpoint.testing.server_process import ServerProcess

PROJECT = "test-project"


@dataclass(frozen=True, slots=True)
class RunningServer:
    """What a test gets: where the server is, and how to end it."""

    process: ServerProcess
    project: str = PROJECT

    @property
    def endpoint(self) -> str:
        """host:port, for client options; PUBSUB_EMULATOR_HOST is set to it already."""
        return self.process.endpoint

    def topic(self, short: str) -> str:
        """The full name of a topic of this project."""
        return f"projects/{self.project}/topics/{short}"

    def subscription(self, short: str) -> str:
        """The full name of a subscription of this project."""
        return f"projects/{self.project}/subscriptions/{short}"

    def stop(self) -> int:
        """End the server politely; returns its exit code."""
        return self.process.terminate()

    def kill(self) -> None:
        """End the server as a crash does (SIGKILL)."""
        self.process.kill9()

    def restart(self) -> None:
        """Start the server again on the same data and port, ending it politely first if it runs."""
        if self.process.running:
            self.process.restart()
        else:
            self.process.start()

    def logs(self) -> str:
        """What the server has printed so far."""
        return self.process.logs()


@pytest.fixture
def syncpoint_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningServer]:
    """A running server of its own for this test."""
    process = ServerProcess(tmp_path / "syncpoint-data")
    try:
        process.start()
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", process.endpoint)
        monkeypatch.setenv("PUBSUB_PROJECT_ID", PROJECT)
        yield RunningServer(process)
    finally:
        process.close()
