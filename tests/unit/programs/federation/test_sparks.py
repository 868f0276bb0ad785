"""Processes of Spark, played by small programs: begun, seen to die, ended with all they started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from syncpoint.programs.federation import tied
from syncpoint.programs.federation.spark_home import installed_home, quick_home
from syncpoint.programs.federation.sparks import JobSpark, Processes, python_env
from syncpoint.programs.federation.spec import parse
from syncpoint.programs.federation.state import StateFolder
from syncpoint.testing.rigs.official import eventually

HAS_A_CHILD = [
    sys.executable,
    "-c",
    "import subprocess, sys, time\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    "print(child.pid, flush=True)\n"
    "time.sleep(600)",
]


@pytest.fixture
def state(tmp_path: Path) -> StateFolder:
    made = StateFolder(tmp_path / "state")
    (made.path / "logs").mkdir(parents=True)
    return made


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_what_is_stopped_leaves_nothing_behind(state: StateFolder) -> None:
    processes = Processes(state)
    processes.start("job", HAS_A_CHILD, {})
    child = int(eventually(lambda: state.log("job").read_text().strip(), what="the child's id"))
    (job,) = processes.pids().values()
    processes.stop("job", 5.0)
    assert processes.pids() == {}
    eventually(lambda: not lives(job) and not lives(child), what="both ended")


def test_what_dies_is_seen_and_its_children_are_ended(state: StateFolder) -> None:
    processes = Processes(state)
    processes.start("job", HAS_A_CHILD, {})
    child = int(eventually(lambda: state.log("job").read_text().strip(), what="the child's id"))
    os.kill(processes.pids()["job"], 9)
    eventually(lambda: not processes.pids(), what="the death seen")
    eventually(lambda: not lives(child), what="the child ended")


def test_when_the_supervisor_is_killed_its_processes_end(state: StateFolder) -> None:
    """They end in their own time: a job commits what it is about."""
    program = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(print('in order', flush=True)))\n"
        "print('runs', flush=True)\n"
        "time.sleep(600)"
    )
    command = [sys.executable, "-c", program]
    starts = (
        "import pathlib, sys, time\n"
        "from syncpoint.programs.federation.sparks import Processes\n"
        "from syncpoint.programs.federation.state import StateFolder\n"
        "processes = Processes(StateFolder(pathlib.Path(sys.argv[1])))\n"
        "processes.start('job', sys.argv[2:], {})\n"
        "print(processes.pids()['job'], flush=True)\n"
        "time.sleep(600)"
    )
    supervisor = subprocess.Popen(
        [sys.executable, "-c", starts, str(state.path), *command], stdout=subprocess.PIPE, env=python_env()
    )
    assert supervisor.stdout is not None
    job = int(supervisor.stdout.readline())
    eventually(lambda: state.log("job").read_text() == "runs\n", what="the job's start")
    supervisor.kill()
    supervisor.wait()
    supervisor.stdout.close()
    eventually(lambda: not lives(job), what="the end of the job")
    assert state.log("job").read_text() == "runs\nin order\n"


def test_a_process_whose_supervisor_is_gone_does_not_even_begin() -> None:
    begun = subprocess.run([sys.executable, tied.__file__, "1", "/bin/echo", "begun"], capture_output=True, check=False)
    assert (begun.returncode, begun.stdout) == (1, b"")


def test_a_job_is_one_executor(state: StateFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    content = {"version": 1, "clusters": {"a": {"endpoint": "a:1"}}}
    runtime = parse(content, state.path).runtime
    spark = JobSpark(Path("federation.yaml"), runtime, state, "local[1]")
    monkeypatch.setattr(sys, "executable", "/bin/cat")  # ends at once, since it is given options it does not know
    spark.resize(1)
    eventually(lambda: not spark.job, what="the end of the job")
    assert spark.executors == 0


def test_the_environment_names_this_python_and_the_folders_of_functions(tmp_path: Path) -> None:
    env = python_env((tmp_path,))
    assert env["PYSPARK_PYTHON"] == sys.executable
    assert env["PYTHONPATH"].split(os.pathsep)[0] == str(tmp_path)


def test_a_home_whose_python_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    home = quick_home(tmp_path)
    assert home == quick_home(tmp_path)
    assert (home / "bin" / "spark-class").exists()
    assert (home / "jars").resolve() == (installed_home() / "jars").resolve()
    assert (home / "python" / "lib" / "pyspark.zip" / "pyspark" / "__init__.py").exists()
    (py4j,) = (home / "python" / "lib").glob("py4j*.zip")
    assert (py4j / "py4j" / "__init__.py").exists()
    assert "level = error" in (home / "conf" / "log4j2.properties").read_text()


def test_a_spark_of_the_users_choice_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert quick_home(tmp_path) == Path("/opt/spark")
    assert not list(tmp_path.iterdir())


def test_where_it_can_not_be_made_the_installed_home_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    (tmp_path / "syncpoint").write_text("in the way")
    assert quick_home(tmp_path) == installed_home()
