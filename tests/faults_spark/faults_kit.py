"""A driver of Spark that can be killed, cases of the matrix, and a server without a guard."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from syncpoint.programs.federation.sparks import python_env
from syncpoint.testing.rigs.log_oracle import LogComparison, judge
from syncpoint.testing.server_process import ServerProcess
from tests.spark.federation_kit import Site, awaited

HERE = Path(__file__).parent
ANSWER_S = 240.0


class Died(Exception):
    """The driver is gone, with whatever it was reported."""


class Failed(Exception):
    """What the driver was notified of has failed."""


class Driver:
    """Spark in a process of its own. `pauses`: the folder of its pause points; `settings`: more of the session's."""

    def __init__(self, folder: Path, master: str = "local[2,4]", settings: Mapping[str, str] | None = None) -> None:
        self.folder, self.master, self._settings = folder, master, dict(settings or {})
        self.pauses = folder / "pauses-0"
        self.starts = 0
        self._process: subprocess.Popen[str] | None = None
        self._reader = threading.Thread()
        self._lines: queue.Queue[str | None] = queue.Queue()

    def start(self) -> None:
        """Start a driver, with pause points that no earlier one waits at."""
        self.starts += 1
        self.pauses = self.folder / f"pauses-{self.starts}"
        self.pauses.mkdir(parents=True)
        env = os.environ | python_env() | {"SYNCPOINT_PAUSES": str(self.pauses)}
        log = (self.folder / f"driver-{self.starts}.log").open("w")
        command = [sys.executable, str(HERE / "driver.py"), self.master, json.dumps(self._settings)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=env,
            start_new_session=True,
        )
        log.close()
        self._lines = queue.Queue()
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout, self._lines), daemon=True)
        self._reader.start()
        self._answer()

    @staticmethod
    def _read(output: Any, lines: queue.Queue[str | None]) -> None:
        for line in output:
            lines.put(line)
        lines.put(None)

    def send(self, code: str) -> None:
        """Let it do something; `answer` waits for the end of it."""
        if self._process is None:
            self.start()
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(code) + "\n")
        self._process.stdin.flush()

    def do(self, code: str) -> Any:
        """The value of what it does. Raises Failed, Died."""
        self.send(code)
        return self._answer()

    def _answer(self) -> Any:
        while True:
            line = self._lines.get(timeout=ANSWER_S)
            if line is None:
                raise Died
            if line.startswith("{"):
                break
        answer = json.loads(line)
        if "error" in answer:
            raise Failed(answer["error"])
        return answer["value"]

    answer = _answer

    # -- faults --------------------------------------------------------------------------------------------------------

    def hold(self, point: str) -> Path:
        """Whoever comes to a point from now on waits there."""
        path = self.pauses / point
        path.touch()
        return path

    def reached(self, point: str) -> int:
        """Wait until somebody waits at a point: its process id."""
        path = self.pauses / f"{point}.reached"
        awaited(path.exists, f"nobody comes to {point}")
        return int(path.read_text())

    def let_go(self, point: str) -> None:
        """Who waits at a point goes on, and has done so when this returns."""
        (self.pauses / point).unlink()
        awaited(lambda: not (self.pauses / f"{point}.reached").exists(), f"somebody stays at {point}")

    def release(self) -> None:
        """Nobody waits anywhere any more, whatever a test has left."""
        for path in self.pauses.glob("*"):
            path.unlink(missing_ok=True)

    def kill(self, *, keep: int = 0) -> None:
        """SIGKILL to the driver, its JVM and its Python workers, except `keep`."""
        if self._process is None:
            return
        tree = [pid for pid in descendants(self._process.pid) if pid != keep]
        for pid in [self._process.pid, *tree]:
            kill_one(pid)
        self._process.wait()
        self._reader.join(10)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process = None

    def stop(self) -> None:
        self.kill()


def descendants(pid: int) -> list[int]:
    """All processes that a process has started, and those they have."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended in the meantime
        children.setdefault(int(fields[1]), []).append(int(path.parent.name))
    found, waiting = [], [pid]
    while waiting:
        for one in children.get(waiting.pop(), []):
            found.append(one)
            waiting.append(one)
    return found


def kill_one(pid: int) -> None:
    """SIGKILL to a process that may be gone already."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


class Unguarded(ServerProcess):
    """A server without one of its guards."""

    def __init__(self, guard: str, data: Path) -> None:
        super().__init__(data)
        self._guard = guard

    def command(self) -> list[str]:
        line = super().command()
        return [line[0], str(HERE / "unguarded.py"), self._guard, *line[3:]]


class Case:
    """One run of the matrix: a topic of its own, copied from `a` to `b`, 50 messages an epoch."""

    def __init__(self, name: str, driver: Driver, source: Site, target: Site, folder: Path, **options: Any) -> None:
        self.driver, self.source, self.target = driver, source, target
        self.topic = source.topic(name)
        target.topic(name)
        self.checkpoint = folder / "checkpoints" / name
        self.options = options
        self.begun = time.monotonic()
        self.what = "copy"
        self.publish(0, 300)

    def publish(self, first: int, end: int) -> None:
        self.source.publish(self.topic, range(first, end), size=200)

    def begin(self, **options: Any) -> None:
        """Start the query; it reads what there is, then ends."""
        given = {**self.options, **options}
        more = "".join(f", {name}={value!r}" for name, value in given.items())
        source, target = self.source.server.endpoint, self.target.server.endpoint
        self.driver.do(
            f"query = {self.what}(spark, {source!r}, {target!r}, {self.topic!r}, {str(self.checkpoint)!r}{more})"
        )

    def run(self, *, tries: int = 6, **options: Any) -> int:
        """Run the query until it has ended well, as an operator would; how often it had to be started again."""
        for again in range(tries):
            try:
                self.begin(**options)
                self.driver.do("query.awaitTermination()")
            except Failed as error:
                last = error
                continue
            return again
        raise last

    def verdict(self) -> LogComparison:
        return judge(self.source.log(self.topic), self.target.log(self.topic))
