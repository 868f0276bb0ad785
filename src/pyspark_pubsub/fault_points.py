"""Points at which tests of faults hold a process, to kill it just there. Without the variable this costs nothing.

SYNCPOINT_PAUSES names a folder. A process that comes to a point of `POINTS` while the folder has a file of its name
makes POINT.reached, with its process id, and goes on when the file is gone; POINT.reached is gone then, too. The
variable is read once for each process.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

POINTS = ("staging", "staged", "commit", "between", "committed")
"""In a task: after the first frame, after all. On the driver: before and after the commit at the server; where
several flows are committed, after the first of them."""

_FOLDER = os.environ.get("SYNCPOINT_PAUSES", "")


def pause(point: str) -> None:
    """Wait here for as long as a test wants it."""
    if not _FOLDER:
        return
    held, reached = Path(_FOLDER, point), Path(_FOLDER, f"{point}.reached")
    if not held.exists():
        return
    reached.with_suffix(".new").write_text(str(os.getpid()))
    reached.with_suffix(".new").replace(reached)
    while held.exists():
        time.sleep(0.02)
    reached.unlink(missing_ok=True)
