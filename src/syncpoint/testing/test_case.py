"""A base class for tests with unittest: one server for all tests of a class, and a fresh project for each.

Promises and what is left to the test: as `syncpoint.testing.fixture` has it, without pytest.
"""

from __future__ import annotations

import unittest
from typing import ClassVar

from syncpoint.testing.running_server import FOR_TESTS, RunningServer, fresh_project, pointing_to
from syncpoint.testing.server_process import ServerProcess


class SyncpointTestCase(unittest.TestCase):
    """`self.syncpoint` is the server with this test's project; official clients find both by the environment."""

    syncpoint: RunningServer
    _process: ClassVar[ServerProcess]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls._process = ServerProcess(args=FOR_TESTS)
        cls.addClassCleanup(cls._process.close)
        cls._process.start()

    def setUp(self) -> None:
        super().setUp()
        if not self._process.running:
            self._process.start()
        self.syncpoint = self.enterContext(pointing_to(RunningServer(self._process, fresh_project())))
