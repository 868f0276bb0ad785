"""A whole cluster on one machine, for development and tests: real processes, a real etcd, loopback only.

Place: used by `syncpoint cluster` and by tests. A folder holds everything: cluster.yaml, the disks, etcd's data, the
logs and one file per process with its id, so that any later command finds the processes again.
Promise: a signal goes only to a process this module started: the id is believed only together with the time the kernel
says the process was started at.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from syncpoint.base.model.errors import FailedPrecondition, InvalidArgument, NotFound, Unavailable
from syncpoint.base.runtime.ports import free_ports
from syncpoint.base.runtime.private_files import private_folder, tighten, write_private
from syncpoint.base.runtime.processes import stand_still
from syncpoint.node.cluster.settings import ClusterSettings, load
from syncpoint.programs.clusters import etcd_users

READY_S = 60.0
SETTINGS_FILE = "cluster.yaml"
PASSWORD_FILE = "etcd-password"
IMPORTING_FILE = "importing"  # which folder is being taken over


@dataclass(frozen=True, slots=True)
class Shape:
    """How many of what; the disks are per cluster, everything else but etcd per region."""

    clusters: int = 3
    disks: int = 3
    forwarders: int = 3
    routers: int = 2
    proxies: int = 2
    regions: int = 1
    etcd: int = 1
    durability: str = "sync"


@dataclass(frozen=True, slots=True)
class ProcessState:
    """One process as the operating system sees it: running, paused or down."""

    name: str
    roles: tuple[str, ...]
    pid: int | None
    state: str
    address: str


class LocalCluster:
    """The processes of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.program = [sys.executable, "-m", "syncpoint.programs.cli"]
        self._host = "127.0.0.1"
        self._children: list[subprocess.Popen[bytes]] = []  # kept, so that none is given up as forgotten

    # -- making one --------------------------------------------------------------------------------------------------

    @property
    def settings_path(self) -> Path:
        return self.folder / SETTINGS_FILE

    @property
    def importing(self) -> Path:
        """There from the first step of a `cluster import` to its last one."""
        return self.folder / IMPORTING_FILE

    def settings(self) -> ClusterSettings:
        """The cluster's file. Raises `NotFound` when there is none."""
        try:
            return load(self.settings_path)
        except FileNotFoundError:
            raise NotFound(f"{self.settings_path}; `syncpoint cluster up --dir {self.folder}` makes one") from None

    def create(self, shape: Shape, changes: dict[str, Any] | None = None) -> None:
        """Write cluster.yaml for a new folder; an existing file is kept. `changes`: further top-level keys,
        and further keys of `metadata`. With `tls` and a `ca_file` there, etcd speaks TLS, too, with certificates as
        the processes have: etcd-1 and so on."""
        if self.settings_path.exists():
            return
        if shape.clusters % 2 == 0 or shape.disks % 2 == 0:
            raise InvalidArgument("clusters", "clusters and disks must be odd, so that a majority can decide")
        private_folder(self.folder)
        each = 3 * shape.clusters + 4 * shape.forwarders + 2 * shape.routers + 3 * shape.proxies
        ports = iter(free_ports(2 * shape.etcd + shape.regions * each, self._host))
        content: dict[str, Any] = {
            "cluster": self.folder.name or "dev",
            "metadata": {"etcd": [f"{self._host}:{next(ports)}" for _ in range(shape.etcd)]},
            "replication": {"clusters": shape.clusters, "disks": shape.disks, "durability": shape.durability},
            "storage": {
                "segment_bytes": 16 << 20,
                "cache_bytes": 48 << 20,
                "pool_segments": 1,
                "scrub_bytes_s": 128 << 10,
            },
            "processes": (processes := self._processes(shape, ports)),
            "monitor": {"process": next(name for name in processes if "proxy-1" in name), "data": "monitor"},
        }
        more = dict(changes or {})
        content["metadata"] |= more.pop("metadata", {})
        content.update(more)
        peers = [f"{self._host}:{next(ports)}" for _ in range(shape.etcd)]
        content["metadata"]["peers"] = peers
        if "ca_file" not in content["metadata"]:  # else etcd asks for a client certificate
            write_private(self.folder / PASSWORD_FILE, secrets.token_hex(32).encode())
            content["metadata"] |= {"user": etcd_users.USER, "password_file": PASSWORD_FILE}
        (self.folder / "etcd.json").write_text(json.dumps({"peers": peers, "shape": asdict(shape)}))
        self.settings_path.write_text(yaml.safe_dump(content, sort_keys=False))

    def shape(self) -> dict[str, Any] | None:
        """The numbers this cluster was made with; None where they are not known."""
        try:
            found: dict[str, Any] | None = json.loads((self.folder / "etcd.json").read_text()).get("shape")
        except (FileNotFoundError, ValueError):
            return None
        return found

    def _processes(self, shape: Shape, ports: Iterator[int]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for region in range(1, shape.regions + 1):
            place = f"r{region}"
            prefix = "" if shape.regions == 1 else f"{place}-"

            def add(name: str, role: str, place: str = place, prefix: str = prefix, **more: Any) -> None:
                listen, metrics = (f"{self._host}:{next(ports)}" for _ in range(2))
                made[prefix + name] = {"roles": [role], "region": place, "listen": listen, "metrics": metrics, **more}

            for number in range(1, shape.clusters + 1):
                cluster = f"{prefix}c{number}"
                folders = {f"d{disk}": str(Path("disks", f"{cluster}-d{disk}")) for disk in range(1, shape.disks + 1)}
                disks_listen = f"{self._host}:{next(ports)}"
                add(
                    f"storage-c{number}",
                    "storage",
                    cluster=cluster,
                    rack=f"{prefix}k{number}",
                    disks=folders,
                    disks_listen=disks_listen,
                )
            for number in range(1, shape.forwarders + 1):
                add(f"publish-forwarder-{number}", "publish-forwarder", rack=f"{prefix}k{number}")
            for number in range(1, shape.forwarders + 1):
                add(f"subscribe-forwarder-{number}", "subscribe-forwarder", rack=f"{prefix}k{number}")
            for number in range(1, shape.routers + 1):
                add(f"router-{number}", "router")
            for number in range(1, shape.proxies + 1):
                add(f"proxy-{number}", "proxy", public=f"{self._host}:{next(ports)}")
        return made

    # -- running it --------------------------------------------------------------------------------------------------

    def up(self) -> list[str]:
        """Start whatever does not run and wait until all of it is ready; returns the addresses for clients."""
        settings = self.settings()
        private_folder(self.folder)
        self._refuse_half_imported()
        self.up_metadata()
        starting = [name for name in settings.processes if self.state(name).state == "down"]
        for name in starting:
            self._launch(name)
        for name in starting:
            self._await_ready(name)
        tighten(self.folder)
        return [one.public for one in settings.processes.values() if "proxy" in one.roles]

    def up_metadata(self) -> list[str]:
        """Start the members of etcd that do not run; returns their names. An etcd of somebody else's is left alone."""
        settings = self.settings()
        if not (self.folder / "etcd.json").exists():
            return []
        starting = [name for name in self._etcd_names(settings) if self.state(name).state == "down"]
        for name in starting:
            self._start_etcd(settings, name)
        self._await_etcd(settings)
        self._close_etcd(settings)
        return starting

    def start(self, name: str) -> None:
        """Start one process and wait until it is ready."""
        settings = self.settings()
        if self._known(name).state != "down":
            raise FailedPrecondition(f"{name} runs already")
        if name in self._etcd_names(settings):
            self._start_etcd(settings, name)
            self._await_etcd(settings)
        else:
            self._refuse_half_imported()
            self._launch(name)
            self._await_ready(name)

    def _refuse_half_imported(self) -> None:
        if self.importing.exists():
            data = self.importing.read_text().strip()
            raise FailedPrecondition(
                f"taking over {data} was broken off: give `syncpoint cluster import --dir {self.folder} {data}` again"
            )

    def send(self, name: str, number: signal.Signals) -> None:
        """Send a signal to one process of this cluster. Raises `FailedPrecondition` when it does not run."""
        os.kill(self._running(name), number)

    def _running(self, name: str) -> int:
        found = self._known(name)
        if found.pid is None:
            raise FailedPrecondition(f"{name} does not run")
        return found.pid

    def kill(self, name: str) -> None:
        """End one process as a crash does, and wait until it is gone."""
        self.send(name, signal.SIGKILL)
        self._await_end(name, 10.0)

    def stop(self, name: str, timeout_s: float = 30.0) -> None:
        """End one process politely; it drains first."""
        self.send(name, signal.SIGTERM)
        with contextlib.suppress(FailedPrecondition):
            self.send(name, signal.SIGCONT)
        self._await_end(name, timeout_s)

    def pause(self, name: str) -> None:
        """Stop one process in its tracks, as a hung machine does; returns when it stands still."""
        try:
            stand_still(self._running(name))
        except TimeoutError as error:
            raise Unavailable(f"{name} is not paused: {error}") from error

    def resume(self, name: str) -> None:
        self.send(name, signal.SIGCONT)

    def down(self, *, remove: bool = False) -> list[str]:
        """End all processes, those in front first, and return their names; `remove` deletes the folder."""
        settings, ended = self.settings(), list[str]()
        disks = [one.name for one in settings.processes.values() if one.roles == ("storage",)]
        others = [name for name in reversed(list(settings.processes)) if name not in disks]
        for group in (others, disks, self._etcd_names(settings)):  # logs are sealed before their disks are gone
            running = [name for name in group if self.state(name).state != "down"]
            for name in running:
                with contextlib.suppress(FailedPrecondition, ProcessLookupError):
                    self.send(name, signal.SIGCONT)
                    self.send(name, signal.SIGTERM)
            for name in running:
                try:
                    self._await_end(name, 20.0)
                except Unavailable:
                    self.kill(name)
            ended += running
        if remove:
            shutil.rmtree(self.folder)
        return ended

    # -- looking at it -----------------------------------------------------------------------------------------------

    def states(self) -> list[ProcessState]:
        """All processes, etcd first."""
        settings = self.settings()
        return [self.state(name) for name in (*self._etcd_names(settings), *settings.processes)]

    def state(self, name: str) -> ProcessState:
        settings = self.settings()
        known = settings.processes.get(name)
        roles = known.roles if known else ("etcd",)
        address = (known.public or known.listen) if known else self._etcd_address(settings, name)
        pid = self._pid(name)
        return ProcessState(name, roles, pid, _state_of(pid), address)

    def called_at(self, name: str) -> str:
        """Where other processes call this one, as far as the folder shows; empty when it does not."""
        known = self.settings().processes.get(name)
        if known is not None and known.public:
            return "" if known.listen.endswith(":0") else known.listen
        try:
            return self._ready_file(name).read_text().strip()
        except FileNotFoundError:
            return ""

    def started(self, name: str) -> bool:
        """Whether this process was started from this folder once; if not, the folder knows nothing of it."""
        return (self.folder / "pids" / f"{name}.json").exists()

    def log(self, name: str) -> Path:
        """The file with everything a process printed."""
        return self.folder / "logs" / f"{name}.log"

    def _known(self, name: str) -> ProcessState:
        settings = self.settings()
        names = [*self._etcd_names(settings), *settings.processes]
        if name not in names:
            raise NotFound(f"process {name}; there are {', '.join(names)}")
        return self.state(name)

    def _pid(self, name: str) -> int | None:
        try:
            noted = json.loads((self.folder / "pids" / f"{name}.json").read_text())
        except (FileNotFoundError, ValueError):
            return None
        pid = int(noted["pid"])
        return pid if _started_at(pid) == noted["started"] else None

    # -- starting ----------------------------------------------------------------------------------------------------

    def _spawn(self, name: str, command: Sequence[str]) -> None:
        for folder in ("logs", "pids"):
            (self.folder / folder).mkdir(parents=True, exist_ok=True)
        with self.log(name).open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                start_new_session=True,
                umask=0o077,
                env=os.environ | {"PYTHONUNBUFFERED": "1"},
            )
        self._children = [one for one in self._children if one.poll() is None] + [process]
        noted = {"pid": process.pid, "started": _started_at(process.pid)}
        (self.folder / "pids" / f"{name}.json").write_text(json.dumps(noted))

    def assign(self, name: str, program: Sequence[str], settings_path: Path | None = None) -> None:
        """From its next start on, by whichever command, a process runs this program with this file; no program: what
        all run, and no file: the cluster's."""
        self._known(name)
        folder = self.folder / "assigned"
        folder.mkdir(parents=True, exist_ok=True)
        noted = {"program": list(program), "settings": str(settings_path or "")}
        fresh = folder / f".{name}.json"
        fresh.write_text(json.dumps(noted))
        fresh.replace(folder / f"{name}.json")

    def _assigned(self, name: str) -> tuple[list[str], Path]:
        try:
            noted = json.loads((self.folder / "assigned" / f"{name}.json").read_text())
        except FileNotFoundError:
            return self.program, self.settings_path
        return noted["program"] or self.program, Path(noted["settings"] or self.settings_path)

    def _launch(self, name: str) -> None:
        self._ready_file(name).unlink(missing_ok=True)
        program, settings_path = self._assigned(name)
        self._spawn(
            name,
            [
                *(*program, "run"),
                *("--config", str(settings_path), "--name", name),
                *("--ready-file", str(self._ready_file(name))),
            ],
        )

    def _ready_file(self, name: str) -> Path:
        return self.folder / "pids" / f"{name}.ready"

    def _await_ready(self, name: str) -> None:
        end = time.monotonic() + READY_S
        while not self._ready_file(name).exists():
            if self._pid(name) is None or _state_of(self._pid(name)) == "down":
                raise Unavailable(f"{name} ended while starting; {self.log(name)} says:\n{self._tail(name)}")
            if time.monotonic() > end:
                raise Unavailable(
                    f"{name} was not ready within {READY_S:g} s; {self.log(name)} says:\n{self._tail(name)}"
                )
            time.sleep(0.05)

    def _tail(self, name: str, lines: int = 15) -> str:
        return "\n".join(self.log(name).read_text(errors="replace").splitlines()[-lines:])

    def _await_end(self, name: str, timeout_s: float) -> None:
        end = time.monotonic() + timeout_s
        while _state_of(self._pid(name)) != "down":
            if time.monotonic() > end:
                raise Unavailable(f"{name} did not end within {timeout_s:g} s")
            time.sleep(0.02)
        for child in self._children:
            if _state_of(child.pid) == "down":  # of its threads the first may be gone a moment before the others
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(5.0)

    # -- etcd --------------------------------------------------------------------------------------------------------

    def _etcd_names(self, settings: ClusterSettings) -> list[str]:
        return [f"etcd-{number}" for number in range(1, len(settings.etcd) + 1)]

    def _etcd_address(self, settings: ClusterSettings, name: str) -> str:
        return settings.etcd[int(name.removeprefix("etcd-")) - 1]

    def _start_etcd(self, settings: ClusterSettings, name: str) -> None:
        program = self.etcd_program()
        peers = json.loads((self.folder / "etcd.json").read_text())["peers"]
        names = self._etcd_names(settings)
        mine = names.index(name)
        tls = settings.tls.of(name) if settings.tls is not None and settings.etcd_ca is not None else None
        scheme = "http" if tls is None else "https"
        client, peer = f"{scheme}://{settings.etcd[mine]}", f"{scheme}://{peers[mine]}"
        together = ",".join(f"{one}={scheme}://{where}" for one, where in zip(names, peers, strict=True))
        command = [program, "--name", name, "--data-dir", str(self.folder / "etcd" / name)]
        command += ["--listen-client-urls", client, "--advertise-client-urls", client]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        command += ["--initial-cluster", together, "--initial-cluster-state", "new", "--log-level", "warn"]
        command += ["--initial-cluster-token", self.folder.name, "--auto-compaction-mode", "revision"]
        command += ["--auto-compaction-retention", "100000"]
        if settings.etcd_user:  # the password is random and long, so that hashing it slowly protects nothing
            command += ["--bcrypt-cost", "4"]
        if tls is not None:
            for kind in ("", "peer-"):  # of clients and of each other
                command += [f"--{kind}cert-file", str(tls.certificate), f"--{kind}key-file", str(tls.key)]
                command += [f"--{kind}trusted-ca-file", str(tls.ca), f"--{kind}client-cert-auth"]
        self._spawn(name, command)

    def _close_etcd(self, settings: ClusterSettings) -> None:
        """Have an etcd of ours ask for the password that this folder keeps; one that asks already goes on as it is."""
        if settings.etcd_password_file == self.folder / PASSWORD_FILE:
            try:
                etcd_users.require_password(settings.etcd[0], settings.etcd_password_file.read_text().strip(), READY_S)
            except OSError as error:
                raise Unavailable(f"etcd at {settings.etcd[0]} does not take its password: {error}") from None

    def etcd_program(self) -> str:
        """Where etcd is. Raises `FailedPrecondition`."""
        program = shutil.which("etcd")
        if program is None:
            raise FailedPrecondition("etcd is not installed (`make etcd`, or on Debian apt-get install etcd-server)")
        return program

    def _await_etcd(self, settings: ClusterSettings) -> None:
        end = time.monotonic() + READY_S
        for address in settings.etcd:
            host, _, port = address.rpartition(":")
            while True:
                with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 0.5):
                    break
                if time.monotonic() > end:
                    raise Unavailable(f"etcd at {address} does not answer")
                time.sleep(0.05)


def _started_at(pid: int) -> int:
    """When the kernel says a process began, in clock ticks since the machine's start; 0 when there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    fields = text.rpartition(")")[2].split()
    return 0 if fields[0] in ("Z", "X") else int(fields[19])


def _state_of(pid: int | None) -> str:
    if pid is None:
        return "down"
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)  # one of ours that ended leaves the list of processes now
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "down"
    letter = text.rpartition(")")[2].split()[0]
    return {"T": "paused", "t": "paused", "Z": "down", "X": "down"}.get(letter, "running")
