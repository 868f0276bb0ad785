"""The matrix of official Google Cloud Pub/Sub clients: runs each against a server, writes docs/compatibility.md.

    run.py [--only go,java] [--scenarios filter,iam] [--no-prepare] [--jobs 3] [--cluster] [--output FILE]

Each client is a program in a folder beside this file that prints a JSON line per scenario. What a client needs is
downloaded into tests/clients/.cache, which git ignores. Every client has a server of its own; on a line
{"ask": "restart"} the server is killed and started again on its data and port, and the client is answered with a line.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import dataclasses
import datetime
import json
import os
import platform
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from syncpoint.node.cluster.local import LocalCluster, Shape
from syncpoint.testing.server_process import ServerProcess

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CACHE = HERE / ".cache"
NODE = ROOT / "tests" / "node" / "official"
PREPARE_SECONDS = 1200
RUN_SECONDS = 420

SCENARIOS = {
    "topics": "create, get, update, list, delete topic",
    "subscriptions": "create, get, update, list, delete subscription",
    "publish": "publish with attributes and ordering key, received in order",
    "pull": "pull",
    "streaming_pull": "streaming pull with flow control",
    "ack": "acknowledge",
    "nack": "negative acknowledgement",
    "modack": "modify ack deadline",
    "exactly_once": "exactly-once with confirmed acks",
    "dead_letter": "dead-letter topic, delivery attempts",
    "filter": "filter",
    "snapshot_seek": "snapshot and seek",
    "schema": "schema: create, publish, refuse",
    "iam": "IAM: get, set, test policy",
    "push_config": "modify push config",
    "transforms": "message transforms: set, read back, run",
    "restart": "server killed and restarted under an open stream: nothing lost",
}


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


def python_client(key: str, python: str, prepare: Callable[[], None]) -> Client:
    program = str(HERE / "python" / "main.py")
    return Client(key, "Python", (), prepare, lambda: [python, program], lambda: python_version(python))


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
    node_client("node", "@google-cloud/pubsub"),
    node_client("node-five", "pubsub-five"),
    Client("rest", "REST", (), nothing, lambda: [sys.executable, str(HERE / "rest" / "main.py")], lambda: "v1"),
)  # fmt: skip


@dataclasses.dataclass
class Column:
    """What one client's run showed."""

    client: Client
    version: str = "?"
    results: dict[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    missing: tuple[str, str] = ("skip", "not run")

    def of(self, scenario: str) -> tuple[str, str]:
        return self.results.get(scenario, self.missing)


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


Target = tuple[str, Callable[[], None]]
"""Where clients connect to, and what kills and restarts it."""


def single(stack: contextlib.ExitStack) -> Target:
    """A server on one node."""
    server = stack.enter_context(ServerProcess())

    def restart() -> None:
        server.kill9()
        server.start()

    return server.endpoint, restart


def small_cluster(stack: contextlib.ExitStack) -> Target:
    """A cluster of three storage clusters; the proxy that clients are connected to is what is killed. Needs etcd."""
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="syncpoint-clients-"))
    local = LocalCluster(Path(folder))
    local.create(Shape(clusters=3, disks=1, forwarders=1, routers=1, proxies=1))
    stack.callback(local.down)
    (endpoint,) = local.up()
    (proxy,) = [name for name, process in local.settings().processes.items() if "proxy" in process.roles]

    def restart() -> None:
        local.kill(proxy)
        local.start(proxy)

    return endpoint, restart


def run(client: Client, unbuilt: str, only: list[str], cluster: Target | None) -> Column:
    """One client against the cluster or a server of its own, within RUN_SECONDS."""
    column = Column(client)
    if unbuilt:
        column.missing = ("skip", unbuilt)
        return column
    column.version = client.version()
    with contextlib.ExitStack() as stack:
        endpoint, restart = cluster or single(stack)
        env = os.environ | client.env | {"PUBSUB_EMULATOR_HOST": endpoint, "SCENARIOS": ",".join(only)}
        errors = CACHE / f"{client.key}.stderr"
        stderr = stack.enter_context(errors.open("w"))
        process = subprocess.Popen(
            client.command(),
            env=env,
            cwd=HERE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
        try:
            follow(process, restart, column)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
    column.missing = ("fail", f"the client ended with exit code {process.returncode} before it ({errors.name})")
    if only:
        column.missing = ("skip", "not asked for")
    return column


def follow(process: subprocess.Popen[str], restart: Callable[[], None], column: Column) -> None:
    """Take the client's lines as they come, and do what they ask for."""
    assert process.stdin is not None
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    end = time.monotonic() + RUN_SECONDS
    while True:
        try:
            line = lines.get(timeout=max(0.0, end - time.monotonic()))
        except queue.Empty:
            print(f"  {column.client.key}: not done within {RUN_SECONDS} s", flush=True)
            return
        if line is None:
            process.wait(timeout=20)
            return
        if not line.startswith("{"):
            continue
        seen = json.loads(line)
        if seen.get("ask") == "restart":
            restart()
            process.stdin.write("restarted\n")
            process.stdin.flush()
        else:
            column.results[seen["scenario"]] = (seen["result"], seen["detail"])
            print(f"  {column.client.key}: {seen['scenario']}: {seen['result']} {seen['detail'][:300]}", flush=True)


def page(columns: list[Column]) -> str:
    """docs/compatibility.md."""
    head = "| Feature | " + " | ".join(f"{one.client.title} {one.version}" for one in columns) + " |"
    rows = [head, "|---" * (len(columns) + 1) + "|"]
    notes: list[str] = []
    counts = {"pass": 0, "fail": 0, "skip": 0}
    for scenario, what in SCENARIOS.items():
        cells = []
        for column in columns:
            result, detail = column.of(scenario)
            counts[result] += 1
            note = ""
            if result != "pass":
                text = " ".join(detail.split())[:300]
                line = f"{column.client.title} {column.version}: {text}"
                if line not in notes:
                    notes.append(line)
                note = f" ({notes.index(line) + 1})"
            cells.append(result + note)
        rows.append(f"| {what} | " + " | ".join(cells) + " |")
    lines = [
        "# Compatibility with the official clients",
        "",
        "`make test-clients` writes this page: each client runs each scenario against a server of its own.",
        f"Run on {datetime.datetime.now(datetime.UTC):%Y-%m-%d} with Python {platform.python_version()}: "
        f"{counts['pass']} passed, {counts['fail']} failed, {counts['skip']} skipped.",
        "",
        *rows,
        "",
    ]
    if notes:
        lines += ["What did not pass:", "", *(f"{number}. {note}" for number, note in enumerate(notes, 1)), ""]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="", help="keys of clients, with commas: " + ", ".join(c.key for c in CLIENTS))
    parser.add_argument("--scenarios", default="", help="names of scenarios, with commas")
    parser.add_argument("--no-prepare", action="store_true", help="download and build nothing")
    parser.add_argument(
        "--cluster", action="store_true", help="run against a small cluster; the result is printed only"
    )
    parser.add_argument("--jobs", type=int, default=3, help="clients that run at a time")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "compatibility.md")
    given = parser.parse_args()
    CACHE.mkdir(exist_ok=True)
    keys = [key for key in given.only.split(",") if key]
    scenarios = [name for name in given.scenarios.split(",") if name]
    if set(keys) - {client.key for client in CLIENTS} or set(scenarios) - set(SCENARIOS):
        parser.error("no such client or scenario")
    chosen = [client for client in CLIENTS if not keys or client.key in keys]
    if not given.no_prepare:
        unbuilt = {client.key: why for client in chosen if (why := prepare(client))}
    else:
        unbuilt = {}
    with contextlib.ExitStack() as stack:
        cluster = small_cluster(stack) if given.cluster else None
        pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(1 if cluster else given.jobs))
        columns = list(pool.map(lambda client: run(client, unbuilt.get(client.key, ""), scenarios, cluster), chosen))
    if not keys and not scenarios and not given.cluster:
        given.output.write_text(page(columns))
    else:
        print(page(columns))
    results = [column.of(scenario)[0] for column in columns for scenario in SCENARIOS]
    return 1 if "fail" in results or unbuilt else 0


if __name__ == "__main__":
    sys.exit(main())
