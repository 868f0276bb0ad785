"""The prober program, as a process: run once and read, or held while faults come and go."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

Verdicts = Mapping[tuple[str, str], str]
"""By metric and endpoint: expected, unexpected or unknown."""


def command(endpoints: Sequence[str], *more: str) -> list[str]:
    line = [sys.executable, "-m", "syncpoint.programs.cli", "probers", "run"]
    for one in endpoints:
        line += ["--endpoint", one]
    return [*line, *more]


def verdicts(status: str | bytes) -> Verdicts:
    """What the program's JSON says."""
    return {
        (metric["name"], entry["endpoint"]): metric["verdict"]
        for entry in json.loads(status)["probers"]
        for metric in entry["metrics"]
    }


def unexpected(found: Verdicts) -> set[str]:
    """The metrics that are not as expected at some endpoint."""
    return {metric for (metric, _), verdict in found.items() if verdict == "unexpected"}


def probed_once(endpoints: Sequence[str], *more: str) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON of one round."""
    done = subprocess.run(
        command(endpoints, "--once", "--format", "json", *more), capture_output=True, text=True, timeout=110
    )
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, found


class HeldProbers:
    """A prober program that goes on; its log is kept, its status read from a file."""

    def __init__(self, folder: Path, endpoints: Sequence[str], *more: str) -> None:
        self.status = folder / "probers.json"
        line = command(endpoints, "--status", str(self.status), *more)
        self._process = subprocess.Popen(
            line, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"}
        )
        self.log: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                self.log.append(line.rstrip())

    def until(self, so: Callable[[Verdicts], bool], what: str, within_s: float = 60.0) -> Verdicts:
        """Wait until what the status says is so."""
        end = time.monotonic() + within_s
        while True:
            found = verdicts(self.status.read_text()) if self.status.exists() else {}
            if so(found):
                return found
            assert self._process.poll() is None, "\n".join(self.log[-30:])
            assert time.monotonic() < end, (what, found, self.log[-30:])
            time.sleep(0.1)

    def end(self) -> int:
        """Ask it to end; its exit code."""
        return self._ended(signal.SIGTERM)

    def kill9(self) -> None:
        """End it as a crash does."""
        self._ended(signal.SIGKILL)

    def _ended(self, how: signal.Signals) -> int:
        if self._process.poll() is None:
            self._process.send_signal(how)
        code = self._process.wait(30)
        self._reader.join(10)
        return code


@contextlib.contextmanager
def held_probers(folder: Path, endpoints: Sequence[str], *more: str) -> Iterator[HeldProbers]:
    """The program, ended at last."""
    held = HeldProbers(folder, endpoints, *more)
    try:
        yield held
    finally:
        held.kill9()
