"""Follow one message through the running code, and write the files it passes into roads.md.

Usage: tools/life (renew the page's lists) | tools/life --check (exit code 1 when they differ from the code).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
EVERYTHING_SHOWS = {"SYNCPOINT_PURE_KERNEL": "1", "PYTHONHASHSEED": "0"}  # calls of the compiled kernel would not
if any(os.environ.get(name) != value for name, value in EVERYTHING_SHOWS.items()):
    os.execve(sys.executable, [sys.executable, str(HERE), *sys.argv[1:]], os.environ | EVERYTHING_SHOWS)
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "src")]

import page  # noqa: E402

sys.exit(page.main(sys.argv[1:]))
