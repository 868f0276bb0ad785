"""What a test gets: where a server is, a project of its own there, and how to end the server.

Place: under the pytest fixtures and the base class for unittest.
Promises: every project has another name, also in processes that run at the same time; the environment is as before once
`pointing_to` ends.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from syncpoint.testing.server_process import ServerProcess

PROJECT = "test-project"
FOR_TESTS = ("--dev",)
"""Options of servers for tests: pushes may go to a web server of the test."""


def fresh_project() -> str:
    """The name of a project that nobody has used; projects need not be created."""
    return f"test-{uuid.uuid4().hex[:16]}"


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server and a project for one test."""

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


@contextmanager
def pointing_to(server: RunningServer) -> Iterator[RunningServer]:
    """Have official clients find the server and its project by the environment, for as long as this lasts."""
    wanted = {"PUBSUB_EMULATOR_HOST": server.endpoint, "PUBSUB_PROJECT_ID": server.project}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield server
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
