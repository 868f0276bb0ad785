"""What users install: the wheel in a new environment runs a server on the compiled kernel, without a compiler."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import syncpoint
from syncpoint.base.kernel import MODULES
from syncpoint.testing.server_process import ServerProcess

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.timeout(900), pytest.mark.shows("packages")]  # the whole kernel is compiled
GLIBC_MAX = (2, 36)  # of Debian 12
BARE = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL", "SYNCPOINT"))}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution and the wheel. SYNCPOINT_DIST names one that was built already."""
    if built := os.environ.get("SYNCPOINT_DIST"):
        return Path(built)
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "tools/build_wheel.py", str(folder)], cwd=ROOT, check=True, stdout=subprocess.DEVNULL
    )
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (found,) = dist.glob("syncpoint-*.whl")
    return found


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Python of an environment that has the wheel and what it needs, from wheels alone, by their hashes."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin" / "pip"), "install", "-q", "--disable-pip-version-check", "--only-binary", ":all:"]
    env = BARE | {"CC": "/bin/false", "CXX": "/bin/false"}  # nothing can be compiled
    subprocess.run([*pip, "--require-hashes", "-r", str(ROOT / "requirements.lock")], check=True, env=env)
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True, env=env)
    return str(folder / "bin" / "python")


def test_the_wheel_is_for_many_systems_and_has_the_whole_kernel(wheel: Path) -> None:
    tags = re.findall(r"manylinux_(\d+)_(\d+)_", wheel.name)
    assert tags, wheel.name
    assert min((int(major), int(minor)) for major, minor in tags) <= GLIBC_MAX
    names = zipfile.ZipFile(wheel).namelist()
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    folder = "syncpoint/programs/cli/pages/"
    files = [name for name in names if not name.endswith("/")]
    assert {name.removeprefix(folder) for name in files if name.startswith(folder)} == pages  # for `syncpoint docs`
    for module in MODULES:
        assert any(re.fullmatch(rf"syncpoint/base/kernel/{module}\.cpython-.*\.so", name) for name in names), module
    assert not [name for name in names if name.startswith(("tests/", "bench/", "demo/", "tools/"))]
    kit = {name for name in names if name.startswith("syncpoint/testing/") and name.endswith(".py")}
    for_users = ("__init__", "container", "fixture", "running_server", "server_process", "test_case")
    assert kit == {f"syncpoint/testing/{name}.py" for name in for_users}


def test_the_test_kit_is_a_wheel_of_its_own(dist: Path, python: str) -> None:
    (kit,) = dist.glob("syncpoint_testing-*.whl")
    assert f"-{syncpoint.__version__}-" in kit.name
    names = set(zipfile.ZipFile(kit).namelist())
    folder = ROOT / "src" / "syncpoint"
    parts = [path for part in ("kafka", "rigs", "simulation") for path in (folder / "testing" / part).rglob("*.py")]
    assert {str(path.relative_to(folder.parent)) for path in parts} <= names
    pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--no-index", str(kit)]
    subprocess.run(pip, check=True, env=BARE)
    code = "import syncpoint.testing.rigs.history, syncpoint.testing.server_process"
    subprocess.run([python, "-c", code], check=True, env=BARE, cwd=dist)


def test_the_source_distribution_has_every_source(dist: Path) -> None:
    (made,) = dist.glob("*.tar.gz")
    with tarfile.open(made) as files:
        there = {name.partition("/")[2] for name in files.getnames()}
    wanted = {str(path.relative_to(ROOT)) for end in ("*.py", "*.pxd", "*.binpb") for path in (ROOT / "src").rglob(end)}
    wanted = {name for name in wanted if not name.startswith("src/syncpoint/testing/")}
    assert {"setup.py", "pyproject.toml", "LICENSE", *wanted} <= there


def test_it_carries_messages_on_the_compiled_kernel(python: str, tmp_path: Path) -> None:
    def run(*words: str) -> str:
        done = subprocess.run([python, *words], cwd=tmp_path, env=BARE, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    says = "import syncpoint, syncpoint.base.kernel as kernel; print(kernel.COMPILED, syncpoint.__file__)"
    compiled, where = run("-c", says).split()
    assert compiled == "True"
    assert str(Path(python).parents[1]) in where
    with ServerProcess(tmp_path / "data", python=python, env={"PYTHONPATH": ""}) as server:
        cli = ("-m", "syncpoint.programs.cli", "--endpoint", server.endpoint, "--project", "shop")
        run(*cli, "topics", "create", "orders")
        run(*cli, "subscriptions", "create", "billing", "--topic", "orders")
        run(*cli, "topics", "publish", "orders", "--message", "hello")
        assert "hello" in run(*cli, "subscriptions", "pull", "billing", "--wait", "--auto-ack")
