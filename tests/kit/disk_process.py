"""A disk server in a process of its own, for tests that kill it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from syncpoint.base.runtime.clock import SystemClock
from syncpoint.base.runtime.processes import stand_still
from syncpoint.log.diskserver.remote_files import DiskAddress, Patience, RemoteFiles

SRC = Path(__file__).parents[2] / "src"
CHILD = """
import json, signal, sys, threading
from pathlib import Path
from syncpoint.log.diskserver.disk_server import DiskServer, DiskServerSettings
given = json.loads(sys.argv[1])
disks = {name: Path(path) for name, path in given["disks"].items()}
server = DiskServer(DiskServerSettings(disks, port=given["port"], boot=given["boot"]))
print(server.address, flush=True)
end = threading.Event()
signal.signal(signal.SIGTERM, lambda number, frame: end.set())
end.wait()
server.stop_now()
"""


class DiskProcess:
    """Serves folders below `root`; may live several times at one port."""

    def __init__(self, root: Path, disks: int = 3, env: Mapping[str, str] | None = None) -> None:
        self.folders = {f"d{number}": root / f"d{number}" for number in range(disks)}
        self.boot = "first"
        self._env = dict(env or {})
        with socket.create_server(("127.0.0.1", 0)) as found:
            self.port = found.getsockname()[1]
        self.process: subprocess.Popen[str] | None = None
        self.start()

    def start(self) -> None:
        given = {
            "disks": {name: str(path) for name, path in self.folders.items()},
            "port": self.port,
            "boot": self.boot,
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, json.dumps(given)],
            env={**os.environ, "PYTHONPATH": str(SRC), **self._env},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == f"127.0.0.1:{self.port}"

    def send(self, number: signal.Signals) -> None:
        """A signal; a stopped process has stopped when this returns."""
        assert self.process is not None
        if number == signal.SIGSTOP:
            stand_still(self.process.pid)
        else:
            self.process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Kill, or ask to end; and wait."""
        if self.process is not None:
            process, self.process = self.process, None
            process.send_signal(signal.SIGCONT)
            process.send_signal(number)
            process.wait(20)
            assert process.stdout is not None
            process.stdout.close()


_opened: list[tuple[RemoteFiles, list[str]]] = []
FAST = Patience(connect_s=1.0, silence_s=2.0, give_up_s=3.0, retry_s=0.05, quiet_s=0.1)


def remote(processes: list[DiskProcess], epoch: int = 1, chain: int = 7, **more: object) -> RemoteFiles:
    """All disks of all processes, at /c0/d0 and so on."""
    places = {
        f"/c{number}/{name}": DiskAddress("127.0.0.1", process.port, name)
        for number, process in enumerate(processes)
        for name in process.folders
    }
    settings: dict[str, object] = {"patience": FAST, **more}
    files = RemoteFiles(places, chain, epoch, SystemClock(), **settings)  # type: ignore[arg-type]
    _opened.append((files, list(places)))
    return files


def hang_up() -> None:
    """Leave no connection open."""
    while _opened:
        files, roots = _opened.pop()
        for root in roots:
            files.abandon(root)
