"""The official clients of the matrix: what each needs, how that is prepared, and what is run."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = HERE / ".cache"
NODE = HERE.parent / "node" / "official"
PREPARE_SECONDS = 1200


@dataclasses.dataclass(frozen=True)
class Client:
    """One column of the table: what to run and how to get what it needs."""

    key: str
    title: str
    needs: tuple[str, ...]
    prepare: Callable[[], None]
    command: Callable[[], list[str]]
    version: Callable[[], str]
    env: dict[str, str] = dataclasses.field(default_factory=dict)


def done(command: list[str], cwd: Path, **env: str) -> str:
    """Run a command of preparation; what it prints. Its output is in the error when it fails."""
    try:
        return subprocess.run(
            command, cwd=cwd, env=os.environ | env, check=True, timeout=PREPARE_SECONDS,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        ).stdout  # fmt: skip
    except subprocess.CalledProcessError as error:
        raise RuntimeError(f"{' '.join(command)}: {error.output[-2000:]}") from error


GO_ENV = {
    "GOMODCACHE": str(CACHE / "go"),
    "GOCACHE": str(CACHE / "go-build"),
    "GOFLAGS": "-modcacherw -buildvcs=false",
}


def go() -> str:
    """Go's command, which is often installed where PATH does not lead."""
    return shutil.which("go") or "/usr/local/go/bin/go"


def prepare_go() -> None:
    done([go(), "build", "-o", str(CACHE / "go-client"), "."], HERE / "go", **GO_ENV)


def prepare_java() -> None:
    libraries = HERE / "java" / "target" / "lib"
    goals = ["compile", "dependency:copy-dependencies", f"-DoutputDirectory={libraries}"]
    done(["mvn", "-B", "-q", f"-Dmaven.repo.local={CACHE / 'm2'}", *goals], HERE / "java")


def prepare_node() -> None:
    installed = NODE / "node_modules" / ".package-lock.json"
    if not installed.exists() or installed.stat().st_mtime < (NODE / "package-lock.json").stat().st_mtime:
        done(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], NODE)


def prepare_python_old() -> None:
    python = CACHE / "python-old" / "bin" / "python"
    if not python.exists():
        done([sys.executable, "-m", "venv", str(CACHE / "python-old")], HERE)
    done([str(python), "-m", "pip", "install", "-q", "-r", "requirements-old.txt"], HERE / "python")


def nothing() -> None:
    """Everything is there."""


def matched(pattern: str, file: Path) -> str:
    found = re.search(pattern, file.read_text())
    return found[1] if found else "?"


def node_version(package: str) -> str:
    return str(json.loads((NODE / "node_modules" / package / "package.json").read_text())["version"])


def python_version(python: str) -> str:
    script = "import importlib.metadata as m; print(m.version('google-cloud-pubsub'))"
    return done([python, "-c", script], HERE).strip()


def node_client(key: str, package: str) -> Client:
    return Client(
        key, "Node", ("node", "npm"), prepare_node,
        lambda: ["node", str(HERE / "node" / "main.mjs")],
        lambda: node_version(package), {"PUBSUB_CLIENT": package, "METADATA_SERVER_DETECTION": "none"},
    )  # fmt: skip


def python_client(key: str, python: str, prepare: Callable[[], None], title: str = "Python", **env: str) -> Client:
    program = str(HERE / "python" / "main.py")
    return Client(key, title, (), prepare, lambda: [python, program], lambda: python_version(python), env)


CLIENTS = (
    Client(
        "go", "Go", (go(),), prepare_go, lambda: [str(CACHE / "go-client")],
        lambda: matched(r"go/pubsub/v2 v(\S+)", HERE / "go" / "go.mod"),
    ),
    Client(
        "java", "Java", ("java", "mvn"), prepare_java,
        lambda: ["java", "-cp", f"{HERE}/java/target/classes:{HERE}/java/target/lib/*", "syncpoint.Clients"],
        lambda: matched(r"<pubsub.version>(.*?)<", HERE / "java" / "pom.xml"),
    ),
    python_client("python", sys.executable, nothing),
    python_client("python-old", str(CACHE / "python-old" / "bin" / "python"), prepare_python_old),
    python_client("python-rest", sys.executable, nothing, "Python by REST", PUBSUB_TRANSPORT="rest"),
    node_client("node", "@google-cloud/pubsub"),
    node_client("node-five", "pubsub-five"),
    Client("rest", "REST", (), nothing, lambda: [sys.executable, str(HERE / "rest" / "main.py")], lambda: "v1"),
)  # fmt: skip


def prepare(client: Client) -> str:
    """Download and build what the client needs; why that failed, or nothing."""
    lacking = [need for need in client.needs if shutil.which(need) is None]
    if lacking:
        return f"{', '.join(lacking)} not installed"
    print(f"  {client.key}: preparing", flush=True)
    try:
        client.prepare()
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        print(f"  {client.key}: {error}", flush=True)
        return f"could not be built: {error}"
    return ""
