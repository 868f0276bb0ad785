"""The page of crossings is the table that the tests run."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_page_is_written_from_the_table() -> None:
    done = subprocess.run([sys.executable, ROOT / "tools" / "crossings.py", "--check"], check=False, timeout=60)
    assert done.returncode == 0, "tests/integration/crossings.md differs from the table: run `make crossings`"
