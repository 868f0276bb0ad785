"""etcd on this machine, one member or three, in a folder: started, killed, paused and stopped by a test.

Place: beside `server_process`; the metadata store of clusters is tested against it. Loopback only.
Promise: a member keeps its ports and its data over its lives; a process is only ever signalled by the id it got when it
was started here; `close` leaves none. Without durability on purpose: a killed process loses nothing, and what a power
cut does to etcd is etcd's matter.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from syncpoint.base.runtime.ports import free_ports
from syncpoint.base.runtime.processes import stand_still

PROGRAM = "etcd"
_ANSWER_S = 1.0


class EtcdFailed(RuntimeError):
    """etcd did not start; the message holds the end of its output."""


def why_not() -> str | None:
    """Why there can be no etcd here; None when there can."""
    return None if shutil.which(PROGRAM) else "etcd is not installed (Debian: apt-get install etcd-server)"


class EtcdCluster:
    """`members`: 1 or 3 (or any other number). `certificate`: files of a certificate and its key, to serve by TLS.
    `arguments` are added to every member's command line."""

    def __init__(
        self,
        folder: Path,
        members: int = 1,
        *,
        host: str = "127.0.0.1",
        certificate: tuple[Path, Path] | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        self._folder, self._host, self._certificate = folder, host, certificate
        self._arguments = list(arguments)
        ports = free_ports(2 * members, host)
        self._ports = list(zip(ports[:members], ports[members:], strict=True))
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * members
        self._lives = 0

    @property
    def endpoints(self) -> list[str]:
        """HOST:PORT of every member."""
        return [f"{self._host}:{client}" for client, _ in self._ports]

    def start(self, timeout_s: float = 30.0) -> Self:
        """Start every member that does not run; returns when they have a leader. Raises `EtcdFailed`."""
        for number, process in enumerate(self._processes):
            if process is None:
                self._launch(number)
        self.wait(timeout_s)
        return self

    def wait(self, timeout_s: float = 30.0) -> None:
        """Return when every member that runs is well. Raises `EtcdFailed`."""
        end = time.monotonic() + timeout_s
        for number, process in enumerate(self._processes):
            while process is not None and not self._well(number):
                if process.poll() is not None or time.monotonic() > end:
                    raise EtcdFailed(f"member {number} does not answer:\n{self._tail(number)}")
                time.sleep(0.05)

    def leader(self) -> int:
        """The number of the member that leads. Raises `EtcdFailed` when none says so."""
        for number, process in enumerate(self._processes):
            if process is not None:
                with contextlib.suppress(OSError, ValueError):
                    found = self.ask(number, "/v3/maintenance/status", b"{}")
                    if found["header"]["member_id"] == found["leader"]:
                        return number
        raise EtcdFailed("no member leads")

    def kill(self, number: int) -> None:
        """End a member as a crash does. Nothing happens when it does not run."""
        process, self._processes[number] = self._processes[number], None
        if process is not None:
            process.kill()
            process.wait()

    def pause(self, number: int) -> None:
        """Let a member stand still: its connections stay open and nobody answers, from now on."""
        process = self._processes[number]
        if process is not None:
            stand_still(process.pid)

    def resume(self, number: int) -> None:
        """Let it go on."""
        self._signal(number, signal.SIGCONT)

    def close(self) -> None:
        """End all members."""
        for number in range(len(self._processes)):
            self.kill(number)

    def ask(self, number: int, path: str, body: bytes | None = None) -> Any:
        """A call over etcd's JSON interface, so that the harness does not rest on what it tests. Raises `OSError`."""
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        if self._certificate is not None:
            tls.load_cert_chain(*self._certificate)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls))
        with opener.open(f"{self._scheme}://{self.endpoints[number]}{path}", body, _ANSWER_S) as answer:
            return json.load(answer)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _signal(self, number: int, what: signal.Signals) -> None:
        process = self._processes[number]
        if process is not None:
            process.send_signal(what)

    def _launch(self, number: int) -> None:
        client, peer = f"{self._scheme}://{self.endpoints[number]}", f"http://{self._host}:{self._ports[number][1]}"
        members = [f"m{other}=http://{self._host}:{port}" for other, (_, port) in enumerate(self._ports)]
        command = [PROGRAM, "--name", f"m{number}", "--data-dir", str(self._folder / f"m{number}")]
        command += ["--listen-client-urls", client, "--advertise-client-urls", client]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        command += ["--initial-cluster", ",".join(members), "--initial-cluster-token", self._folder.name]
        command += ["--heartbeat-interval", "50", "--election-timeout", "500", "--unsafe-no-fsync", "--logger", "zap"]
        if self._certificate is not None:
            command += ["--cert-file", str(self._certificate[0]), "--key-file", str(self._certificate[1])]
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._output(number).open("ab") as output:
            self._processes[number] = subprocess.Popen(
                [*command, *self._arguments], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )

    def _output(self, number: int) -> Path:
        return self._folder / f"m{number}.log"

    def _tail(self, number: int) -> str:
        return self._output(number).read_text(errors="replace")[-2_000:]

    def _well(self, number: int) -> bool:
        try:
            return str(self.ask(number, "/health").get("health")) == "true"
        except (OSError, ValueError):
            return False

    @property
    def _scheme(self) -> str:
        return "http" if self._certificate is None else "https"
