"""The pods of the Helm chart, run without Kubernetes from the manifests that Helm renders (`pods`): they find each
other by the pods' names, become ready by the probes, carry messages over the stop of one that stores, and end in order.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from syncpoint.testing.rigs import etcd

ROOT = Path(__file__).parents[2]
pytest.importorskip("helm_python", reason="Helm has no wheel for this machine: the chart is not rendered")
pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        os.geteuid() != 0 or not shutil.which("unshare"),
        reason="pods get a network and a file tree of their own, which needs root and unshare",
    ),
]


def run(example: str) -> dict[str, Any]:
    command = ["unshare", "--mount", "--net", sys.executable, "-m", "tests.packages.pods", example]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_one_server() -> None:
    found = run("node-production")
    assert (found["received"], found["stopped"], found["codes"]) == (50, 0, [0])


@pytest.mark.skipif(etcd.why_not() is not None, reason=str(etcd.why_not()))
def test_a_cluster_whose_processes_speak_tls() -> None:
    found = run("cluster")
    assert (found["received"], found["stopped"], found["codes"]) == (50, 0, [0])
    assert found["pods"] == 15
    assert "sp-syncpoint-storage-2" in found["status"]
