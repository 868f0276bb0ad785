"""The demonstration, with fewer records: it ends well, and it would notice a loss."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.shows("kill")

DISASTER = Path(__file__).resolve().parents[2] / "demo" / "disaster.py"
FLIGHTS = Path(__file__).resolve().parents[2] / "demo" / "flights.py"


@pytest.mark.timeout(180)
def test_nothing_is_lost_over_a_kill(tmp_path: Path) -> None:
    line = [sys.executable, str(FLIGHTS), "--records", "20000", "--data", str(tmp_path / "data")]
    done = subprocess.run(line, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kill -9" in done.stdout
    assert "Nothing was lost." in done.stdout
    assert "20,000" in done.stdout


@pytest.mark.shows("gateway")
@pytest.mark.timeout(120)
def test_a_site_is_lost_with_its_disks_and_then_the_other_one() -> None:
    """What the first one lost is copied to it before it takes calls, or the death of the second one would show. What
    was on its way to the subscriber when a site died may come again, half a second of it on a busy machine.
    """
    steps = "empty:us,kill:eu"
    line = [sys.executable, str(DISASTER), "--each", "1", "--steps", steps, "--rate", "100"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r" 0 lost, (\d+) twice, 0 publishes that failed", done.stdout)
    assert found is not None, done.stdout
    assert int(found[1]) <= 50, done.stdout
    assert "us killed, back with empty disks" in done.stdout
