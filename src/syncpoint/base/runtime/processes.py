"""Other processes of this machine, in the hands of tools and tests: made to stand still as one that hangs.

Place: under `cluster pause` and the tests that pause what they started.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

_LOOK_S = 0.002
_STILL = "TtZX"  # stopped, or ended


def stand_still(pid: int, within_s: float = 10.0) -> None:
    """Stop a process (SIGSTOP); returns when none of its threads runs any more.

    The signal is sent at once and heeded later: until the thread that gets it has its turn on a busy machine, others go
    on, and what was believed to be paused answers. Raises `ProcessLookupError` and `TimeoutError`.
    """
    os.kill(pid, signal.SIGSTOP)
    end = time.monotonic() + within_s
    while not stands_still(pid):
        if time.monotonic() > end:
            raise TimeoutError(f"process {pid} did not stop within {within_s:g} s")
        time.sleep(_LOOK_S)


def stands_still(pid: int) -> bool:
    """Whether no thread of a process runs. Raises `ProcessLookupError` when there is no such process."""
    folder = Path(f"/proc/{pid}/task")
    try:
        threads = list(folder.iterdir())
    except FileNotFoundError:
        raise ProcessLookupError(pid) from None
    for thread in threads:
        try:
            text = (thread / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended in the meantime
        if text.rpartition(")")[2].split()[0] not in _STILL:
            return False
    return True
