"""The official client for Node.js, versions 6 and 5: runs the files of tests/node/official against the shared server.

Version 5 opens five streams per subscription and speaks without a protocol version; version 6 is today's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "node" / "official"

pytestmark = [
    pytest.mark.node,
    pytest.mark.skipif(shutil.which("npm") is None, reason="needs node and npm"),
    pytest.mark.timeout(300),
    pytest.mark.shows("clients-node"),
]


@pytest.fixture(scope="session")
def packages():
    """The packages of the lock file, installed where they are not yet."""
    installed = FOLDER / "node_modules" / ".package-lock.json"
    lock = FOLDER / "package-lock.json"
    if not installed.exists() or installed.stat().st_mtime < lock.stat().st_mtime:
        done = subprocess.run(
            ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
            cwd=FOLDER,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    return FOLDER


@pytest.mark.parametrize("client", ["@google-cloud/pubsub", "pubsub-five"])
@pytest.mark.parametrize(
    ("file", "tests"), [("messages.test.mjs", 7), ("guarantees.test.mjs", 7), ("order.test.mjs", 1)]
)
def test_the_node_client(endpoint, packages, file, tests, client):
    done = subprocess.run(
        ["node", "--test", "--test-force-exit", "--test-reporter=spec", file],
        cwd=packages,
        env=os.environ
        | {"PUBSUB_EMULATOR_HOST": endpoint, "PUBSUB_CLIENT": client, "METADATA_SERVER_DETECTION": "none"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "fail 0" in done.stdout
    assert f"pass {tests}\n" in done.stdout
