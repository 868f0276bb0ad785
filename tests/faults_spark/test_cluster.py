"""The same task by spark-submit, on a standalone master with two workers, all from the pip package."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from syncpoint.base.runtime.ports import free_ports
from syncpoint.programs.federation.sparks import Processes, python_env, spark_class
from syncpoint.programs.federation.state import StateFolder
from syncpoint.testing.rigs.log_oracle import judge
from tests.faults_spark.faults_kit import descendants
from tests.spark.federation_kit import Site, awaited, name_of, sites

pytestmark = pytest.mark.timeout(900)

EXECUTOR = "CoarseGrainedExecutorBackend"


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[dict[str, Site]]:
    with sites("ab", tmp_path) as made:
        yield made


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    state = StateFolder(tmp_path / "spark")
    (state.path / "logs").mkdir(parents=True)
    made = Processes(state)
    yield made
    for name in list(made.pids()):
        made.stop(name, 20.0)


@pytest.fixture
def master(processes: Processes, tmp_path: Path) -> str:
    (port,) = free_ports(1, "127.0.0.1")
    command = [spark_class(), "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1"]
    processes.start("master", [*command, "--port", str(port), "--webui-port", "0"], python_env())
    log = tmp_path / "spark" / "logs" / "master.log"
    awaited(lambda: log.exists() and "ALIVE" in log.read_text(), "the master")
    for number in (1, 2):
        command = [spark_class(), "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--cores", "1"]
        command += ["--memory", "1g", "--work-dir", str(tmp_path / f"work-{number}"), "--webui-port", "0"]
        processes.start(f"worker-{number}", [*command, f"spark://127.0.0.1:{port}"], python_env())
    awaited(lambda: log.read_text().count("Registering worker") == 2, "two workers")
    return f"spark://127.0.0.1:{port}"


def test_a_file_runs_by_spark_submit(
    master: str, processes: Processes, pair: dict[str, Site], tmp_path: Path, record: Callable[..., None]
) -> None:
    begun = time.monotonic()
    topic = name_of("submitted")
    for site in pair.values():
        site.topic("submitted")
        site.publish(topic, range(500), size=200)
    file = tmp_path / "federation.yaml"
    content = {
        "version": 1,
        "clusters": {name: {"endpoint": site.server.endpoint} for name, site in pair.items()},
        "namespaces": {"fed": {"clusters": ["a", "b"]}},
        "runtime": {"max_rows": 100},
    }
    file.write_text(yaml.safe_dump(content))
    found = importlib.util.find_spec("syncpoint.programs.federation.job")
    assert found is not None
    submit = [str(Path(spark_class()).parent / "spark-submit"), "--master", master]
    submit += ["--conf", "spark.executor.memory=600m", "--conf", "spark.executor.cores=1", str(found.origin), str(file)]
    processes.start("submit", submit, python_env())

    def executors() -> int:
        lines = []
        for name in ("worker-1", "worker-2"):
            for pid in descendants(processes.pids()[name]):
                path = Path(f"/proc/{pid}/cmdline")
                lines += [path.read_text()] if path.exists() else []
        return sum(EXECUTOR in line for line in lines)

    awaited(lambda: all(len(site.log(topic)) >= 1000 for site in pair.values()), "the union on both", within=400)
    assert executors() == 2
    for one, other in (("a", "b"), ("b", "a")):
        published = [message for message in pair[one].log(topic) if not message.origin]
        copied = [message for message in pair[other].log(topic) if message.origin == one]
        verdict = judge(published, copied)
        record(f"spark-submit, a master and two workers: {one} to {other}", begun, verdict, "two executors")
        assert verdict.exact
        assert verdict.stored == 500
