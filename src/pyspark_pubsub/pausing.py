"""Points at which tests of faults hold a process, to kill it just there. Without its variable this costs nothing.

SYNCPOINT_PAUSE=POINT:FILE names a point of `POINTS` and a file. Whoever comes there makes FILE.reached, and goes on as
soon as FILE exists. The variable is read once for each process.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

POINTS = ("staging", "staged", "commit", "committed")
"""In a task: behind the first frame, behind all. On the driver: before and behind the commit at the server."""

_POINT, _, _FILE = os.environ.get("SYNCPOINT_PAUSE", "").partition(":")


def pause(point: str) -> None:
    """Wait here, if this is the point that is named."""
    if point != _POINT or os.path.exists(_FILE):
        return
    Path(f"{_FILE}.reached").write_text(str(os.getpid()))
    while not os.path.exists(_FILE):
        time.sleep(0.02)
