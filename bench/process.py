"""Processes of a measurement: started (pinned to a core, where asked), measured, and always ended by their own id.

Beside every figure, never on a message's path. Promises: a `Child` ends when its `with` block does, first politely,
then by SIGKILL to its process id; no other process is ever touched. Leaves to its users what the process is.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from bench.machine import ROOT, cpu_seconds, memory_bytes

_READY = re.compile(r"ready on (\S+:\d+)")
_POLL_SECONDS = 0.002


class Failed(RuntimeError):
    """A process did not do what the measurement needs; the message holds the end of its output."""


class UnderLoad(Protocol):
    """What a generator's load goes to, be it one process or many."""

    @property
    def address(self) -> str:
        """Where clients connect: HOST:PORT, or several with commas between them."""

    def cpu_seconds(self) -> float:
        """CPU seconds so far of all its processes, all threads."""

    def output(self) -> str:
        """What it printed, or where that is found."""


class Child:
    """One process, its output in a file; with a core, pinned to it."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        core: int | None,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        user: str | None = None,
    ) -> None:
        """Starts `command` at once; its standard output and error go to `log`, which is emptied first."""
        self.command = list(command)
        self.log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                cwd=cwd,
                user=user,
                preexec_fn=None if core is None else lambda: os.sched_setaffinity(0, {core}),
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def cpu_seconds(self) -> float:
        """CPU seconds so far, all threads."""
        return cpu_seconds(self.pid)

    def memory_bytes(self) -> dict[str, int]:
        """Resident memory: rss, anonymous, peak (bytes)."""
        return memory_bytes(self.pid)

    def wait_for(self, pattern: str | re.Pattern[str], timeout: float) -> re.Match[str]:
        """Waits until the output matches; raises Failed when the process ends or `timeout` seconds pass first."""
        give_up = time.monotonic() + timeout
        while True:
            if found := re.search(pattern, self.output()):
                return found
            if not self.running or time.monotonic() > give_up:
                state = "runs" if self.running else f"ended with {self._process.returncode}"
                raise Failed(f"{self.command[0]} {state}, but never said '{pattern}':\n{self.output()[-2000:]}")
            time.sleep(_POLL_SECONDS)

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def kill(self) -> None:
        """SIGKILL, as a crash would; returns when the process is gone."""
        if self.running:
            os.kill(self.pid, signal.SIGKILL)
        self._process.wait(30)

    def stop(self, timeout: float = 20.0) -> None:
        """SIGTERM, and SIGKILL after `timeout` seconds."""
        if self.running:
            self._process.terminate()
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def cli_module(tree: Path) -> str:
    """The command line as a module of these sources, also of those from before there were wings."""
    return "syncpoint.programs.cli" if (tree / "src/syncpoint/programs").is_dir() else "syncpoint.cli"


class Server(Child):
    """`syncpoint serve` on a free port of 127.0.0.1; `address` is set once it is ready."""

    def __init__(
        self,
        data: Path,
        *,
        core: int,
        arguments: Sequence[str] = (),
        command: Sequence[str] = (),
        tree: Path = ROOT,
    ) -> None:
        """Starts the server on `data` and waits until it serves; `command` replaces everything before --port. `tree`:
        whose sources it is.
        """
        begin = time.monotonic()
        base = list(command) or [sys.executable, "-m", cli_module(tree), "serve"]
        source = f"{tree / 'src'}:{os.environ.get('PYTHONPATH', '')}".rstrip(":")
        super().__init__(
            [*base, "--port", "0", "--data", str(data), *arguments],
            core=core,
            log=data.with_name(data.name + ".log"),
            env={"PYTHONPATH": source},
            cwd=data.parent,
        )
        try:
            self.address = self.wait_for(_READY, 120.0)[1]
        except BaseException:
            self.kill()
            raise
        self.start_seconds = time.monotonic() - begin
