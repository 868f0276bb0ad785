"""The demonstration, with fewer records: it ends well, and it would notice a loss."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.shows("kill")

FLIGHTS = Path(__file__).resolve().parents[2] / "demo" / "flights.py"


@pytest.mark.timeout(180)
def test_nothing_is_lost_over_a_kill(tmp_path: Path) -> None:
    line = [sys.executable, str(FLIGHTS), "--records", "20000", "--data", str(tmp_path / "data")]
    done = subprocess.run(line, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kill -9" in done.stdout
    assert "Nothing was lost." in done.stdout
    assert "20,000" in done.stdout
