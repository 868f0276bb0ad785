"""Spark as processes: started, made larger and smaller, stopped. No JVM lives in the supervisor itself.

`local[N]`, and the masters of other clusters: one process, the job; its executors are the master's affair. `managed`: a
standalone Spark on this machine, a master and one worker for each executor, so that executors come and go while the
job runs. All of them end when the supervisor is gone, also when it was killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

from syncpoint.base.model.errors import Unavailable
from syncpoint.base.runtime.ports import free_ports
from syncpoint.programs.federation import tied
from syncpoint.programs.federation.spark_home import installed_home, quick_home
from syncpoint.programs.federation.spec import Runtime
from syncpoint.programs.federation.state import StateFolder

STOP_S = 40.0  # a job stops its queries, which finish a batch each
MASTER_UP_S = 60.0
WORKER_MEMORY = "1g"
EXECUTOR_MEMORY = "700m"


class Spark(Protocol):
    """What runs the links."""

    @property
    def job(self) -> int:
        """Process id of the job; 0: it does not run."""

    @property
    def executors(self) -> int:
        """How many there are now."""

    def resize(self, executors: int) -> None:
        """Start, enlarge, shrink or, at 0, stop. Raises `Unavailable` when Spark does not start."""

    def pids(self) -> dict[str, int]:
        """All processes by name."""


def make_spark(file: Path, runtime: Runtime, state: StateFolder) -> Spark:
    """What the file asks for. Raises `FailedPrecondition` when Spark is not installed."""
    installed_home()
    if runtime.master == "managed":
        return ManagedSpark(file, runtime, state)
    return JobSpark(file, runtime, state, runtime.master)


class Processes:
    """Children by name; each leads a process group, so that nothing of it remains, and receives SIGTERM when
    this process is gone, or the thread of it that has started the child.
    """

    def __init__(self, state: StateFolder) -> None:
        self._state = state
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._logs: dict[str, IO[bytes]] = {}

    def start(self, name: str, command: Sequence[str], env: Mapping[str, str]) -> None:
        log = self._logs[name] = self._state.log(name).open("ab")
        tie = [sys.executable, "-I", "-S", tied.__file__, str(os.getpid())]
        self._running[name] = subprocess.Popen(
            [*tie, *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **env},
            start_new_session=True,
        )

    def pids(self) -> dict[str, int]:
        """Those that live."""
        for name, process in list(self._running.items()):
            if process.poll() is not None:
                self._forget(name)
        return {name: process.pid for name, process in self._running.items()}

    def stop(self, name: str, patience_s: float) -> None:
        """End one and what it started; politely first."""
        process = self._running.get(name)
        if process is None:
            return
        _signal(process.pid, signal.SIGTERM, group=False)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
        _signal(process.pid, signal.SIGKILL, group=True)
        process.wait()
        self._forget(name)

    def _forget(self, name: str) -> None:
        process = self._running.pop(name)
        _signal(process.pid, signal.SIGKILL, group=True)  # a JVM whose Python has died
        self._logs.pop(name).close()


class JobSpark:
    """The job alone: on `local[N]`, or as the driver of an application on a cluster elsewhere."""

    def __init__(self, file: Path, runtime: Runtime, state: StateFolder, master: str) -> None:
        self._file, self._runtime, self._master = file, runtime, master
        self._processes = Processes(state)

    @property
    def job(self) -> int:
        return self._processes.pids().get("job", 0)

    @property
    def executors(self) -> int:
        return 1 if self.job else 0

    def resize(self, executors: int) -> None:
        if executors and not self.job:
            start_job(self._processes, self._file, self._runtime, self._master, {})
        elif not executors:
            self._processes.stop("job", STOP_S)

    def pids(self) -> dict[str, int]:
        return self._processes.pids()


class ManagedSpark:
    """A standalone Spark on this machine's loopback."""

    def __init__(self, file: Path, runtime: Runtime, state: StateFolder) -> None:
        self._file, self._runtime, self._state = file, runtime, state
        self._processes = Processes(state)
        self._port = 0

    @property
    def job(self) -> int:
        return self._processes.pids().get("job", 0)

    @property
    def executors(self) -> int:
        return len(self._workers())

    def pids(self) -> dict[str, int]:
        return self._processes.pids()

    def resize(self, executors: int) -> None:
        if not executors:
            self._processes.stop("job", STOP_S)
            for name in [*self._workers(), "master"]:
                self._processes.stop(name, 5.0)
            return
        if "master" not in self._processes.pids():
            self._start_master()
        workers = self._workers()
        for number in range(1, executors + 1):
            if f"worker-{number}" not in workers:
                self._start_worker(f"worker-{number}")
        if not self.job:
            settings = {"spark.executor.memory": EXECUTOR_MEMORY, "spark.executor.cores": "1"}
            start_job(self._processes, self._file, self._runtime, f"spark://127.0.0.1:{self._port}", settings)
        for name in workers:
            if int(name.rpartition("-")[2]) > executors:
                self._processes.stop(name, 5.0)  # its tasks run again elsewhere, and are committed once

    def _workers(self) -> list[str]:
        return [name for name in self._processes.pids() if name.startswith("worker-")]

    def _start_master(self) -> None:
        (self._port,) = free_ports(1)
        command = [spark_class(), "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1"]
        self._processes.start("master", [*command, "--port", str(self._port), "--webui-port", "0"], python_env())
        end = time.monotonic() + MASTER_UP_S
        while not _answers(self._port):
            if "master" not in self._processes.pids() or time.monotonic() >= end:
                raise Unavailable(f"Spark's master did not start; see {self._state.log('master')}")
            time.sleep(0.1)

    def _start_worker(self, name: str) -> None:
        folder = self._state.path / "workers" / name
        folder.mkdir(parents=True, exist_ok=True)
        command = [spark_class(), "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1"]
        command += ["--cores", "1", "--memory", WORKER_MEMORY, "--work-dir", str(folder), "--webui-port", "0"]
        self._processes.start(name, [*command, f"spark://127.0.0.1:{self._port}"], python_env())


def start_job(processes: Processes, file: Path, runtime: Runtime, master: str, settings: Mapping[str, str]) -> None:
    """Start the job that runs all links."""
    command = [sys.executable, "-m", "syncpoint.programs.federation.job", str(file), "--master", master]
    for key, value in settings.items():
        command += ["--conf", f"{key}={value}"]
    processes.start("job", command, python_env(runtime.python_path))


def spark_class() -> str:
    """The program of the installed Spark that starts its Java classes. Raises `FailedPrecondition`."""
    return str(quick_home() / "bin" / "spark-class")


def python_env(python_path: Sequence[Path] = ()) -> dict[str, str]:
    """What the processes of Spark have in their environment: the same Python, and what it finds here."""
    paths = [*map(str, python_path), *(one for one in sys.path if one and Path(one).is_dir())]
    return {
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_HOME": str(quick_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
    }


def _signal(pid: int, number: int, *, group: bool) -> None:
    try:
        if group:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)
    except ProcessLookupError:
        pass  # it is gone already


def _answers(port: int) -> bool:
    with socket.socket() as one:
        one.settimeout(1.0)
        return one.connect_ex(("127.0.0.1", port)) == 0
