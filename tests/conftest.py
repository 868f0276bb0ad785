"""For all tests: what is there once they are collected stays, so no search for garbage walks through it again. And each
process that runs tests has ports of its own.
"""

from __future__ import annotations

import contextlib
import gc
import os
import socket

import pytest

PORTS = 1_500


def pytest_configure(config: pytest.Config) -> None:
    """Take a block of ports that no other run on this machine has: what is stopped here finds its ports free again."""
    if getattr(config.option, "dist", "no") != "no" and "PYTEST_XDIST_WORKER" not in os.environ:
        return  # its workers would inherit them
    ours = socket.socket()  # bound to the first port of a block while tests run
    config.add_cleanup(ours.close)
    for first in range(10_240, 32_768 - PORTS, PORTS):
        with contextlib.suppress(OSError):
            ours.bind(("127.0.0.1", first))
            os.environ["SYNCPOINT_PORTS"] = f"{first}-{first + PORTS - 1}"
            return


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
