"""`syncpoint federation run` as a user has it: nothing, one executor, two, nothing again, by process ids; a job killed;
stopped from elsewhere; and nobody sees the secret.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from syncpoint.programs.federation.sparks import python_env
from syncpoint.testing.rigs.log_oracle import LogComparison, judge
from tests.faults_spark.faults_kit import descendants, kill_one
from tests.spark.federation_kit import Site, awaited, name_of, sites

pytestmark = [pytest.mark.timeout(900), pytest.mark.shows("spark-faults")]

SECRET = "a-token-that-nobody-may-see-88213"
EXECUTOR = "CoarseGrainedExecutorBackend"
TOPIC = name_of("scaled")


class Federation:
    """A process of `federation run`, and its command line beside it."""

    def __init__(self, folder: Path, content: dict[str, Any]) -> None:
        self.folder = folder
        self.file = folder / "federation.yaml"
        self.file.write_text(yaml.safe_dump(content))
        self.env = os.environ | {"PYTHONPATH": python_env()["PYTHONPATH"], "TOKEN_OF_B": SECRET}
        self.said = ""
        self.lines: set[str] = set()
        self.log = (folder / "run.log").open("w")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "syncpoint.programs.cli", "federation", "run", str(self.file), "--quiet"],
            stdout=self.log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=self.env,
        )

    def cli(self, *words: str) -> str:
        """What a command of `syncpoint federation` prints."""
        command = [sys.executable, "-m", "syncpoint.programs.cli", "federation", *words]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=120, check=False)
        self.said += done.stdout + done.stderr
        assert done.returncode == 0, done.stderr
        return done.stdout

    def processes(self) -> dict[int, str]:
        """Command lines of all that it has started, as `ps` shows them."""
        found = {}
        for pid in descendants(self.process.pid):
            try:
                found[pid] = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
            except OSError:
                continue  # it has ended in the meantime
        self.lines |= set(found.values())
        return {pid: line for pid, line in found.items() if line}

    def javas(self) -> set[int]:
        return {pid for pid, line in self.processes().items() if "java" in line.split(" ")[0]}

    def executors(self) -> set[int]:
        return {pid for pid, line in self.processes().items() if EXECUTOR in line}

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "state" / "supervisor.json").read_text())
        return found

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(90)
            except subprocess.TimeoutExpired:
                for pid in [*descendants(self.process.pid), self.process.pid]:
                    kill_one(pid)
                self.process.wait()
        self.log.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[dict[str, Site]]:
    with sites("ab", tmp_path) as made:
        yield made


@pytest.fixture
def federation(pair: dict[str, Site], tmp_path: Path) -> Iterator[Federation]:
    pair["a"].topic("scaled")
    content = {
        "version": 1,
        "clusters": {
            "a": {"endpoint": pair["a"].server.endpoint},
            "b": {"endpoint": pair["b"].server.endpoint, "token": {"env": "TOKEN_OF_B"}},
        },
        "tasks": {"copy": {"pattern": "replicate", "from": {"cluster": "a", "topic": TOPIC}, "to": {"cluster": "b"}}},
        "runtime": {
            "master": "managed",
            "state": "state",
            "idle": "8s",
            "max_rows": 400,
            "executors": {"min": 0, "max": 2, "rows_each": 1000},
            "metrics": "127.0.0.1:0",
        },
    }
    made = Federation(tmp_path, content)
    yield made
    made.close()


def test_nothing_one_two_nothing(
    federation: Federation, pair: dict[str, Site], record: Callable[..., None], figure: Callable[[str], None]
) -> None:
    begun = time.monotonic()

    def copied() -> int:
        try:
            return len(pair["b"].log(TOPIC))
        except Exception as error:
            if "NOT_FOUND" in str(error):  # the topic is made with the first flow
                return 0
            raise

    awaited((federation.folder / "state" / "supervisor.json").exists, "the supervisor's state")
    assert not federation.javas()
    assert federation.state()["wanted"] == 0

    published_at = time.monotonic()
    pair["a"].publish(TOPIC, range(100))
    awaited(lambda: copied() == 100, "the first hundred")
    figure(f"from zero, managed: {time.monotonic() - published_at:.1f} s from publishing to the copy at the target")
    assert len(federation.executors()) == 1

    pair["a"].publish(TOPIC, range(100, 12_000), size=100)
    awaited(lambda: len(federation.executors()) == 2, "two executors")
    job = federation.state()["job"]
    kill_one(job)
    awaited(lambda: federation.state()["job"] not in (0, job), "the job started again")
    assert federation.state()["failures"] == 1
    status = awaited(lambda: federation.cli("status", str(federation.file)), "a status")
    assert "copy.scaled" in status
    awaited(lambda: copied() >= 12_000, "all of it", within=400)

    awaited(lambda: not federation.javas(), "no process of Spark")
    awaited(lambda: federation.state()["executors"] == 0, "the supervisor says so")
    verdict = judge(pair["a"].log(TOPIC), pair["b"].log(TOPIC))
    record("0, 1, 2, 0 executors; the job killed with two", begun, verdict, "by process ids")
    assert verdict == LogComparison(12_000, 12_000, 0, 0, 0, 0, 0)

    woken_at = time.monotonic()
    pair["a"].publish(TOPIC, [12_000])
    awaited(lambda: copied() == 12_001, "one more")
    figure(f"from zero again: {time.monotonic() - woken_at:.1f} s; Spark itself said {federation.state()['woke_s']} s")

    plan = federation.cli("plan", str(federation.file), "--format", "json")
    assert json.loads(plan)["flows"][0]["name"] == "copy.scaled"
    federation.cli("stop", str(federation.file))
    assert federation.process.wait(60) == 0
    federation.log.flush()
    files = [path for path in (federation.folder / "state").rglob("*") if path.is_file()]
    files += [federation.file, federation.folder / "run.log"]
    assert len(files) > 10
    assert len(federation.lines) > 5
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]
    assert SECRET not in federation.said
    assert not [line for line in federation.lines if SECRET in line]
