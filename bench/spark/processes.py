"""Spark as processes of its own beside the measurement: a driver that does what it is asked, and what it all costs.

A `Spark` is one session in one Python process (`bench.spark.driver`) with its JVM and its Python workers. They are a
session of the kernel too, so their CPU is counted together, whoever started whom. Promises: it ends with its `with`
block, and nothing of it stays behind; only processes of that session are ever ended.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench import machine
from bench.process import Failed, UnderLoad

_TICK = os.sysconf("SC_CLK_TCK")
_END_SECONDS = 30.0


@dataclass(frozen=True)
class Member:
    """A process of a kernel session: CPU seconds of its own, in ticks, and of those of its children that ended."""

    pid: int
    own: float
    of_ended: float


def members(session: int, *, living: bool = False) -> list[Member]:
    """The processes of a kernel session; those that have ended, but whose parent has not asked yet, are among them."""
    found = []
    for path in Path("/proc").iterdir():
        if not path.name.isdigit():
            continue
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended in the meantime
        if int(fields[3]) == session and not (living and fields[0] == "Z"):
            own, of_ended = (sum(map(int, fields[at : at + 2])) / _TICK for at in (11, 13))
            found.append(Member(int(path.name), own, of_ended))
    return found


def session_cpu_seconds(session: int) -> float:
    """CPU seconds so far of all processes of a session, ended ones too."""
    total = 0.0
    for one in members(session):
        try:
            total += machine.cpu_seconds(one.pid) + one.of_ended
        except OSError:
            total += one.own + one.of_ended  # it has ended, and has no clock any more
    return total


class Spark:
    """A session: `settings` are Spark's; `core` pins all of it (None: wherever the machine likes)."""

    def __init__(
        self, folder: Path, settings: Mapping[str, str], *, master: str = "local[2]", core: int | None = None
    ) -> None:
        self.log = folder / "spark.log"
        source = os.pathsep.join((str(machine.ROOT / "src"), str(machine.ROOT)))
        begin = time.monotonic()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.spark.driver", master],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=folder,
                env={
                    **os.environ,
                    "PYTHONPATH": source,
                    "PYSPARK_PYTHON": sys.executable,
                    "PYSPARK_DRIVER_PYTHON": sys.executable,
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "SPARK_LOCAL_DIRS": str(folder / "local"),
                },
                start_new_session=True,
                preexec_fn=None if core is None else lambda: os.sched_setaffinity(0, {core}),
            )
        try:
            self._ask("start", dict(settings))
        except BaseException:
            self.stop()
            raise
        self.start_seconds = time.monotonic() - begin

    @property
    def session(self) -> int:
        """The kernel session of all its processes."""
        return self._process.pid

    def cpu_seconds(self) -> float:
        """CPU seconds so far: driver, JVM, Python workers."""
        return session_cpu_seconds(self._process.pid)

    def do(self, work: str, **arguments: Any) -> Any:
        """Call a function of `bench.spark.work` with the session. Raises Failed with what went wrong in there."""
        return self._ask(work, arguments)

    def _ask(self, work: str, arguments: Mapping[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps([work, arguments]).encode() + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            raise Failed(f"the process of Spark has ended during {work}:\n{self.output()[-3000:]}")
        answer = json.loads(line)
        if "error" in answer:
            raise Failed(f"{work} on Spark: {answer['error']}")
        return answer["result"]

    def output(self) -> str:
        """What Spark wrote."""
        return self.log.read_text(errors="replace")

    def stop(self) -> None:
        """End it; returns when no process of it is left."""
        session = self._process.pid
        assert self._process.stdin is not None
        self._process.stdin.close()
        end = time.monotonic() + _END_SECONDS
        while self._process.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        while left := members(session, living=True):
            for one in left:
                try:
                    os.kill(one.pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue  # it was faster
            self._process.poll()
            time.sleep(0.05)
        self._process.wait(_END_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class Meter:
    """What a stretch of work cost: `with Meter(spark, servers) as meter: ...`, then its attributes.

    `spark`, `servers`: CPU seconds of Spark and of each server; `wall`: seconds; `other`: cores used by everybody else.
    """

    def __init__(self, spark: Spark, servers: Sequence[UnderLoad] = ()) -> None:
        self._spark, self._servers = spark, servers
        self.spark = self.wall = self.other = 0.0
        self.servers: list[float] = []

    def __enter__(self) -> Self:
        self._before = self._look()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        wall, busy, spark, servers = self._look()
        self.wall, self.spark = wall - self._before[0], spark - self._before[2]
        self.servers = [after - before for after, before in zip(servers, self._before[3], strict=True)]
        used = self.spark + sum(self.servers)
        self.other = max(0.0, (busy - self._before[1] - used) / self.wall)

    def _look(self) -> tuple[float, float, float, list[float]]:
        servers = [server.cpu_seconds() for server in self._servers]
        return time.monotonic(), machine.busy_seconds(), self._spark.cpu_seconds(), servers
