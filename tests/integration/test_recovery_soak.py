"""Half a minute of the soak in the suite. The long one is run by hand: `python -m tests.soak.soak --minutes 30`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.shows("kill")

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.long
@pytest.mark.timeout(400)
def test_half_a_minute_of_restarts_under_load():
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.soak.soak",
            "--minutes",
            "0.5",
            "--round-seconds",
            "10",
            "--every",
            "3",
            "--disks",
            "3",
        ],
        capture_output=True,
        text=True,
        timeout=380,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "every promise held" in done.stdout
    assert "memory: flat" in done.stdout
