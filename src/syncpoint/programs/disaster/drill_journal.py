"""What a drill has to undo, on disk before it is done, and the process that undoes it when the drill is gone.

Place: under `drill_driver`. The watcher is a child in a session of its own, which waits for the end of a pipe: it ends
with the drill's program, however that came to be, or the drill's time does.
Promise: every act stands in the journal before it happens, so what is undone may never have been done, and an undoing
may be repeated. A signal goes only to a process that was started at the time in the journal.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shlex
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

from syncpoint.base.model.errors import FailedPrecondition, SyncpointError

TRIES: Final = 20
RETRY_S: Final = 1.0
Undo = Callable[[Mapping[str, Any]], None]
"""Undoes what an entry is about; raises `SyncpointError` where it has to be tried again."""


class DrillJournal:
    """The entries of one drill, one JSON object a line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def note(self, what: str, **more: Any) -> None:
        """Something is about to be done, or was undone; on disk when this returns."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"what": what, **more}) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def left(self) -> list[dict[str, Any]]:
        """What is to be undone, the latest first."""
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        entries = []
        for line in lines:
            with contextlib.suppress(ValueError):  # the last one may be cut: what it is about was not done
                entries.append(json.loads(line))
        undone = {one["number"] for one in entries if one["what"] == "undone"}
        open_ = [{**one, "number": number} for number, one in enumerate(entries) if one["what"] != "undone"]
        return [one for one in reversed(open_) if one["number"] not in undone]

    def roll_back(self, undo: Undo, without: Collection[str] = ()) -> list[str]:
        """Undo everything that is left, but for these kinds; returns what could not be, in words."""
        failed = []
        for entry in [one for one in self.left() if one["what"] not in without]:
            for attempt in range(TRIES):
                try:
                    undo(entry)
                except (SyncpointError, OSError) as error:
                    if attempt == TRIES - 1:
                        failed.append(f"{entry['what']}: {error}")
                    else:
                        time.sleep(RETRY_S)
                    continue
                self.note("undone", number=entry["number"])
                break
        return failed


def watch(journal: DrillJournal, limit_s: float, undo: Undo) -> Callable[[], None]:
    """Start the watcher; returns what ends it, after the drill has rolled back itself. To be called before threads."""
    read, write = os.pipe()
    child = os.fork()
    if child:
        os.close(read)

        def end() -> None:
            os.close(write)
            os.waitpid(child, 0)

        return end
    os.close(write)
    os.setsid()
    try:
        select.select([read], [], [], limit_s)
        for line in journal.roll_back(undo):
            sys.stderr.write(f"The drill is not rolled back: {line}\n")
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(0)


def started_at(pid: int) -> int:
    """When the kernel started a process, in ticks since the machine did; 0: there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return 0
    fields = text.rpartition(")")[2].split()
    return 0 if fields[0] in ("Z", "X") else int(fields[19])


def signal_process(pid: int, started: int, number: signal.Signals) -> None:
    """Send a signal to this very process. Raises `FailedPrecondition` where it is gone."""
    if not started or started_at(pid) != started:
        raise FailedPrecondition(f"Process {pid} does not run, or is another one by now.")
    os.kill(pid, number)


def run_again(command: str, log: Path) -> None:
    """Start a command that goes on when this program ends."""
    with log.open("ab") as file:
        subprocess.Popen(
            shlex.split(command), stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
        )
