"""Pytest fixtures: real servers, as the official clients see them.

    syncpoint_project    a fresh project for one test, on one server for all tests: what most tests want
    syncpoint_server     a server of its own for one test, which the test may kill and restart

Installed with the package as a pytest plugin, so a test only has to name a fixture; `from syncpoint.testing.fixture
import syncpoint_server` works too. Servers run in processes of their own with temporary data and a free port, and
PUBSUB_EMULATOR_HOST and PUBSUB_PROJECT_ID point there while the test runs.
Promises: after the tests no process and no folder is left, and the environment is as before.
Leaves to the test: topics and subscriptions; to `syncpoint.testing.server_process` the life of the process.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from syncpoint.testing.running_server import FOR_TESTS, PROJECT, RunningServer, fresh_project, pointing_to
from syncpoint.testing.server_process import ServerProcess

__all__ = ["PROJECT", "RunningServer", "syncpoint_project", "syncpoint_server", "syncpoint_session"]


@pytest.fixture
def syncpoint_server(tmp_path: Path) -> Iterator[RunningServer]:
    """A running server of its own for this test."""
    process = ServerProcess(tmp_path / "syncpoint-data", args=FOR_TESTS)
    try:
        process.start()
        with pointing_to(RunningServer(process)) as server:
            yield server
    finally:
        process.close()


@pytest.fixture(scope="session")
def syncpoint_session() -> Iterator[ServerProcess]:
    """One server for all tests of this process."""
    process = ServerProcess(args=FOR_TESTS)
    try:
        yield process.start()
    finally:
        process.close()


@pytest.fixture
def syncpoint_project(syncpoint_session: ServerProcess) -> Iterator[RunningServer]:
    """A fresh project for this test, on the server that all tests share; one that a test ended is started again."""
    if not syncpoint_session.running:
        syncpoint_session.start()
    with pointing_to(RunningServer(syncpoint_session, fresh_project())) as server:
        yield server
