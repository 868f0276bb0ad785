"""A real `syncpoint serve` in a process of its own, held by a test or a demonstration.

Place on the message's path: outside of it. The process is the whole service; this module only starts it, ends it
(politely or with SIGKILL) and reads what it prints.
Promises: `start` returns once the server has said that it is ready and raises `ServerFailed` with its output otherwise;
a restart uses the same data and the same port, so that clients which retry find it again; `close` leaves neither a
process nor a temporary folder behind. A process is only ever ended by the id this object got when starting it.
Leaves to its user: what is sent to the server, and the choice of when to kill it.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from syncpoint.base.runtime.ports import free_ports

READY = re.compile(r"syncpoint ready on (?P<host>\S+):(?P<port>\d+)")
LOG_LINES_MAX = 10_000
"""Lines of output kept for `logs()`; older ones are dropped."""


class ServerFailed(RuntimeError):
    """The server did not become ready, or did not end when asked; the message holds its last output."""


class ServerProcess:
    """One server, which may live several times on the same data and port."""

    def __init__(
        self,
        data: Path | str | None = None,
        *,
        disks: Sequence[Path | str] = (),
        durability: str | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        python: str = sys.executable,
    ) -> None:
        """`data` None means a temporary folder that `close` removes; `port` 0 means a free one, kept over restarts.

        `disks` are the folders given with --disk (none: one disk inside the data folder); `args` are added to the
        command line as they are, `env` to the environment.
        """
        self._owned = Path(tempfile.mkdtemp(prefix="syncpoint-")) if data is None else None
        self.data = self._owned if self._owned is not None else Path(data or ".")
        self.disks = [Path(disk) for disk in disks]
        self.durability = durability
        self.host = host
        self.port = port
        self._port_chosen = port != 0
        self._args = list(args)
        self.env = dict(env or {})
        self._python = python
        self._process: subprocess.Popen[str] | None = None
        self._lines: deque[str] = deque(maxlen=LOG_LINES_MAX)
        self._ready = threading.Event()
        self._reader: threading.Thread | None = None
        self.starts = 0

    def __repr__(self) -> str:
        state = "running" if self.running else "down"
        return f"<ServerProcess {self.endpoint} {state} pid={self.pid} starts={self.starts} data={self.data}>"

    @property
    def endpoint(self) -> str:
        """host:port, the value for PUBSUB_EMULATOR_HOST."""
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int | None:
        """The id of the newest process, also after it ended; None before the first start."""
        return self._process.pid if self._process else None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def returncode(self) -> int | None:
        """How the newest process ended (negative: the signal); None while it runs."""
        return self._process.poll() if self._process else None

    def command(self) -> list[str]:
        """The command line of the next start."""
        line = [self._python, "-m", "syncpoint.programs.cli", "serve", "--host", self.host, "--port", str(self.port)]
        line += ["--data", str(self.data)]
        for disk in self.disks:
            line += ["--disk", str(disk)]
        if self.durability:
            line += ["--durability", self.durability]
        return line + self._args

    def start(self, timeout: float = 60.0) -> Self:
        """Start and wait until the server is ready, at most `timeout` seconds. Raises ServerFailed."""
        if self.running:
            raise ServerFailed(f"the server already runs: {self!r}")
        attempts = 1 if self._port_chosen else 5
        for attempt in range(1, attempts + 1):
            if not self._port_chosen:
                (self.port,) = free_ports(1, self.host)
            self._launch()
            try:
                self._wait_ready(timeout)
            except ServerFailed:
                taken = "in use" in self.logs().lower()
                if attempt == attempts or not taken:
                    raise
                continue
            self._port_chosen = True
            return self
        raise AssertionError("unreachable")

    def kill9(self) -> None:
        """End the process as a crash does: SIGKILL, nothing flushed. Returns when it is gone."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self._reap(10.0)

    def terminate(self, timeout: float = 30.0) -> int:
        """End the process politely (SIGTERM: it drains); its exit code. Raises ServerFailed after `timeout` s."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        return self._reap(timeout)

    def restart(self, timeout: float = 60.0, *, hard: bool = False) -> Self:
        """End the process (`hard`: with SIGKILL) and start it again on the same data and port."""
        if hard:
            self.kill9()
        else:
            self.terminate()
        return self.start(timeout)

    def logs(self) -> str:
        """What all processes of this object have printed so far."""
        return "\n".join(self._lines)

    def close(self) -> None:
        """End the process, forcibly if it does not listen, and remove the temporary folder. Safe to call twice."""
        if self.running:
            try:
                self.terminate(10.0)
            except ServerFailed:
                self.kill9()
        if self._owned is not None:
            shutil.rmtree(self._owned, ignore_errors=True)

    def __enter__(self) -> Self:
        return self if self.running else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _launch(self) -> None:
        self._ready = threading.Event()
        self._process = subprocess.Popen(
            self.command(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            env=os.environ | {"PYTHONUNBUFFERED": "1"} | self.env,
        )
        self.starts += 1
        assert self._process.stdout is not None
        self._reader = threading.Thread(
            target=self._read, args=(self._process.stdout, self._ready), name="server-output", daemon=True
        )
        self._reader.start()

    def _read(self, output: IO[str], ready: threading.Event) -> None:
        """Drain the output for as long as the process lives, so that it never blocks on a full pipe."""
        with output:
            for line in output:
                self._lines.append(line.rstrip("\n"))
                found = READY.search(line)
                if found and not ready.is_set():
                    self.port = int(found["port"])
                    ready.set()

    def _wait_ready(self, timeout: float) -> None:
        assert self._process is not None
        end = time.monotonic() + timeout
        while not self._ready.wait(0.05):
            if self._process.poll() is not None:
                self._reap(5.0)
                if self._ready.is_set():  # it was ready and ended at once; the caller learns it from its first call
                    return
                raise ServerFailed(f"the server ended with code {self._process.returncode}:\n{self._tail()}")
            if time.monotonic() > end:
                self.kill9()
                raise ServerFailed(f"the server was not ready within {timeout:g} s:\n{self._tail()}")

    def _reap(self, timeout: float) -> int:
        if self._process is None:
            raise ServerFailed("the server was never started")
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise ServerFailed(f"the server did not end within {timeout:g} s:\n{self._tail()}") from None
        if self._reader is not None:
            self._reader.join(5.0)
        return code

    def _tail(self, lines: int = 40) -> str:
        return "\n".join(list(self._lines)[-lines:]) or "(it printed nothing)"
