"""Runs the parts of `make check` and `make test`, each with a budget in seconds.

Usage: test_parts.py check | all | NAME [NAME...] | list, with --result FILE, and --long or --seed N. `--long` is what
`make test-long` adds: the tests marked `long`, and a random order whose seed is printed; `--seed` repeats that order.
All takes twice as long then. A part that fails fails the run, which still goes through the other parts, so that one
look shows everything. A part that takes twice its budget is ended and has failed. The result file says which commit was
tested, and how; `syncpoint rollout` reads it.

Parts run one after the other in two lanes: tests of servers mostly wait, so what only computes runs behind them at low
priority, in the time of the processors that they leave. What that prints is shown once it has ended.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
PYTEST = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"]  # it says what was skipped, and why
# Servers are waited for most of the time: more files than cores run at once, in the order in which they are named.
BY_FILE = ["--dist", "loadfile", "--no-loadscope-reorder", "--durations=30", "--durations-min=8"]
FOUR, THREE, TWO = (["-n", str(workers), *BY_FILE] for workers in (4, 3, 2))

# Tests start hundreds of processes, each of which would compile the sources where compiled modules are not kept.
KEPT_BYTECODE = {"PYTHONDONTWRITEBYTECODE": ""}

BEHIND = 15
BROKEN_OFF = threading.Event()
STARTED_BY = "SYNCPOINT_TEST_PART"  # in the environment of all that a part starts

# Rooms whose unit tests take seconds and need neither a compiler nor a socket.
QUICK_ROOMS = ("model", "runtime", "rules", "protobuf", "metadata", "cli", "client", "docs", "access", "test_words.py")


@dataclass(frozen=True)
class Part:
    """One command of the project's checks. `budget_s` is what it may take on two cores; `marked`: of its tests, those
    for which this is true of their markers. `nice`: it mostly computes, and runs behind the others at this priority.
    """

    name: str
    what: str
    budget_s: int
    command: Sequence[str]
    env: dict[str, str] = field(default_factory=dict)
    marked: str = ""
    nice: int = 0


def unit_paths(*, quick: bool) -> list[str]:
    """The rooms with unit tests, the quick ones or all others; a test outside of rooms belongs to the others."""
    unit = ROOT / "tests" / "unit"
    wings = {path.parent.parent for path in unit.glob("*/*/test_*.py") if not any(path.parent.parent.glob("test_*.py"))}
    found = [path for folder in (unit, *wings) for path in folder.iterdir() if path not in wings]
    rooms = sorted(path for path in found if (path.is_dir() and path.name[0] not in "._") or path.match("test_*.py"))
    return [str(path.relative_to(ROOT)) for path in rooms if (path.name in QUICK_ROOMS) == quick]


CHECK = (
    Part("lint", "ruff: style and likely mistakes", 5, [str(BIN / "ruff"), "check", "."]),
    Part("format", "ruff: layout of the sources", 5, [str(BIN / "ruff"), "format", "--check", "."]),
    Part("types", "mypy --strict on src", 120, [str(BIN / "mypy")], nice=BEHIND),
    Part("layers", "import-linter: a room imports only rooms below it", 10, [str(BIN / "lint-imports")], nice=BEHIND),
    Part(
        "console",
        "the console was built from the sources that are here",
        3,
        [sys.executable, "tools/console.py", "check"],
    ),
    Part(
        "quick", "unit tests of the quick rooms, and of the pages", 180, [*PYTEST, "-n", "2", *unit_paths(quick=True)]
    ),
)

# Integration tests by the beginning of their file's name; what no group names belongs to the first one. `make test`
# runs them as two parts; a group can be run alone, by its name.
INTEGRATION = {
    "official": ("the official Python client, the command line, the demonstration", 180, ()),
    "semantics": ("what subscriptions promise, over a real server", 120, ("test_semantics_",)),
    "recovery": ("servers killed, disks lost, full and spoiled", 240, ("test_recovery_",)),
    "pipeline": ("topics read and written by data pipelines", 120, ("test_pipeline_",)),
    "transport": ("other implementations of gRPC and HTTP/2", 75, ("test_transport_",)),
    "metadata": ("metadata stores over the network and over etcd", 120, ("test_metadata_",)),
    "cluster": ("many processes: failover, copies, drains, regions", 300, ("test_cluster_",)),
    "operate": ("backup, import, upgrades, workers, owners of chains", 180, ("test_operate_", "test_control_")),
    "browser": ("the console in a browser", 90, ("test_console_",)),
    "node": ("the official Node client", 60, ("test_official_node", "test_node_")),
}


# Files that take longest and compute most. They begin early, so that nobody waits for them in the end, and in turns
# with the others, most of which wait for servers.
LONGEST = """
    official_python_access one_house_changes fair_turns semantics_redelivery one_house_service_bus
    recovery_catalog cluster_access ack_exchange cluster_rollout console_operations tests_of_users
    kept_data publishes_at_once operate_workers crossings cluster_operators one_house tour demo probers
    recovery_soak recovery_acks pipeline_cluster recovery_disks cluster_failover pipeline_writing
    operate_import operate_backup operate_upgrade cluster_resends cluster_restarts patterns sink
    analytics delivery_records transport_abuse console_browser cluster_takeover console_desk
    scheduled_restarts recovery_kill recovery_rot mitigation metrics_injected rest_fuzz
"""


def test_files(folder: str) -> list[Path]:
    """The test files of a folder of `tests`: those that take longest and the others in turns."""
    files = {path.stem.removeprefix("test_"): path for path in sorted((ROOT / "tests" / folder).glob("test_*.py"))}
    longest = LONGEST.split()
    others = [path for name, path in files.items() if name not in longest]
    turns = zip_longest((files[name] for name in longest if name in files), others)
    return [path for turn in turns for path in turn if path is not None]


def integration_paths(*groups: str) -> list[str]:
    """The test files of these groups; every file belongs to exactly one."""

    def group_of(name: str) -> str:
        found = (other for other, (_, _, starts) in INTEGRATION.items() if starts and name.startswith(starts))
        return next(found, next(iter(INTEGRATION)))

    return [str(path.relative_to(ROOT)) for path in test_files("integration") if group_of(path.name) in groups]


GROUPS = [
    Part(name, f"integration: {what}", budget_s, [*PYTEST, *THREE, *integration_paths(name)])
    for name, (what, budget_s, _) in INTEGRATION.items()
]

TEST = (
    Part(
        "unit",
        "unit and property tests of the other rooms, kernel compiled",
        600,
        [*PYTEST, "-n", "3", *unit_paths(quick=False)],
        nice=5,  # some of it waits for sockets and disks
    ),
    Part(
        "simulation",
        "simulations: 100 seeds of chains, fewer of shapes hard on delivery, of whole clusters and pipelines",
        600,
        [sys.executable, "tools/sim.py", "--test"],
        nice=BEHIND,
    ),
    Part(
        "planted",
        "simulation catches planted bugs: every fourth one",
        300,
        [*PYTEST, "-n", "2", "tests/simulation"],
        nice=BEHIND,
    ),
    Part(
        "kernel-uncompiled",
        "kernel tests on the uncompiled sources",
        60,
        [*PYTEST, "-n", "2", "tests/unit/base/kernel"],
        {"SYNCPOINT_PURE_KERNEL": "1"},
        nice=BEHIND,
    ),
    Part(
        "console-build",
        "the console, built again from its locked packages, byte by byte",
        90,
        [sys.executable, "tools/console.py", "verify"],
    ),
    Part(
        "integration",
        "real servers, official clients, faults",
        1200,
        [*PYTEST, *FOUR, *integration_paths(*INTEGRATION)],
        marked="not shared_cluster",
    ),
    Part(
        "clusters",
        "on one cluster: failover, copies, drains, regions",  # apart: a cluster that only waits costs a fifth of a core
        480,
        [*PYTEST, *THREE, *integration_paths(*INTEGRATION)],
        marked="shared_cluster",
    ),
    Part("packages", "the wheel, in a new environment; the pods of the chart", 460, [*PYTEST, *TWO, "tests/packages"]),
    Part(
        "spark",
        "the data source for Spark and federation, two sessions",
        480,
        [*PYTEST, *TWO, *(str(path.relative_to(ROOT)) for path in test_files("spark"))],
    ),
)

ALL = (*CHECK, *TEST)


def run(part: Part, seed: int | None = None, *, behind: bool = False) -> bool:
    """One part, in a process group of its own; True when it went well. `seed`: with long tests, in the order that this
    seed gives; it may take four times as long then. `behind` others it has low priority and time as for long tests.
    """
    long = seed is not None
    said = f"\n== {part.name}: {part.what} (budget {part.budget_s} s)"
    begun, budget_s = time.monotonic(), part.budget_s * (4 if long or behind else 1)
    command = ["nice", "-n", str(part.nice), *part.command] if behind else list(part.command)
    if list(part.command[: len(PYTEST)]) == PYTEST:
        wanted = [part.marked] if part.marked else []
        wanted += [] if long else ["not long"]
        command += ["-m", " and ".join(wanted)]
        if long:  # names that tests draw at random stay different ones
            command += ["-p", "randomly", f"--randomly-seed={seed}", "--randomly-dont-reset-seed"]
    started = {STARTED_BY: f"{os.getpid()}-{part.name}"}
    env = os.environ | KEPT_BYTECODE | part.env | started
    if not behind:
        print(said, flush=True)
    with tempfile.TemporaryFile("w+") if behind else nullcontext() as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=env, start_new_session=True, stdout=output, stderr=output and subprocess.STDOUT
        )
        try:
            code = wait(process, budget_s * 2)
            verdict = "ok" if code == 0 else f"FAILED (exit code {code})"
        except subprocess.TimeoutExpired:
            code, verdict = -1, "FAILED, ended after twice its budget"
        finally:
            end_group(process)
            end_rest(started)
        if output is not None:
            output.seek(0)
            said = f"{said}\n{output.read()}"
    took = time.monotonic() - begun
    over = "" if took <= budget_s else f", over its budget of {budget_s} s"
    print(f"{said}\n" if behind else "", f"-- {part.name}: {verdict}, {took:.1f} s{over}", sep="", flush=True)
    return code == 0


def run_all(parts: Sequence[Part], seed: int | None) -> list[tuple[Part, bool]]:
    """These parts in their two lanes; how each went, in their order."""
    passed: dict[str, bool] = {}

    def lane(behind: bool) -> None:
        for part in parts:
            if bool(part.nice) == behind and not BROKEN_OFF.is_set():
                passed[part.name] = run(part, seed, behind=behind and len(lanes) > 1)

    lanes = {bool(part.nice) for part in parts}
    with ThreadPoolExecutor(len(lanes)) as threads:
        try:
            for running in [threads.submit(lane, behind) for behind in lanes]:
                running.result()
        except BaseException:
            BROKEN_OFF.set()  # nothing else is to begin, and what runs ends
            raise
    return [(part, passed[part.name]) for part in parts]


def wait(process: subprocess.Popen[bytes], most_s: float) -> int:
    """The exit code; raises TimeoutExpired, also when all is broken off."""
    end = time.monotonic() + most_s
    while True:
        try:
            return process.wait(1.0)
        except subprocess.TimeoutExpired:
            if BROKEN_OFF.is_set() or time.monotonic() > end:
                raise


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a part with everything it started, politely first."""
    for how, patience_s in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
        try:
            os.killpg(process.pid, how)
            process.wait(patience_s)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def end_rest(started: dict[str, str]) -> None:
    """End what a part has left in sessions of their own: clusters of tests that were ended themselves."""
    wanted = {f"{name}={value}".encode() for name, value in started.items()}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if wanted <= set((folder / "environ").read_bytes().split(b"\0")):
                os.kill(int(folder.name), signal.SIGKILL)
        except OSError:
            continue  # it has ended, or is not ours


def tree() -> tuple[str, bool]:
    """The commit that lies here, and whether something has been changed since; unknown outside of a repository."""
    said = []
    for words in (["rev-parse", "HEAD"], ["status", "--porcelain"]):
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            return "", True
        said.append(done.stdout.strip())
    return said[0], bool(said[1])


def write_result(path: Path, results: list[tuple[Part, bool]], begun: tuple[str, bool]) -> None:
    """What a rollout asks for. A tree that became another one while it was tested counts as changed."""
    (version,) = re.findall(r'^__version__ = "(.+)"$', (ROOT / "src/syncpoint/__init__.py").read_text(), re.MULTILINE)
    found = {
        "version": version,
        "commit": begun[0],
        "changed": begun[1] or tree() != begun,
        "whole": {part.name for part, _ in results} == {part.name for part in ALL},
        "outcome": "passed" if results and all(ok for _, ok in results) else "failed",
        "parts": {part.name: "passed" if ok else "failed" for part, ok in results},
        "ended": round(time.time()),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=2) + "\n")


def main(arguments: list[str]) -> int:
    """Run what is asked for and print a table of what it took."""
    result = seed = None
    if "--long" in arguments:
        arguments, seed = [one for one in arguments if one != "--long"], random.randrange(1 << 16)
    if "--seed" in arguments[:-1]:
        at = arguments.index("--seed")
        seed, arguments = int(arguments[at + 1]), arguments[:at] + arguments[at + 2 :]
    if "--result" in arguments[:-1]:
        at = arguments.index("--result")
        result, arguments = Path(arguments[at + 1]), arguments[:at] + arguments[at + 2 :]
    groups = {"check": CHECK, "all": ALL}
    named = {part.name: part for part in (*ALL, *GROUPS)}
    if arguments == ["list"]:
        for part in (*ALL, *GROUPS):
            print(f"{part.name:<20}{part.budget_s:>5} s  {part.what}")
        return 0
    unknown = [name for name in arguments if name not in groups and name not in named]
    if unknown or not arguments:
        print(f"usage: test_parts.py {' | '.join([*groups, *named, 'list'])} [--long] [--result FILE]", file=sys.stderr)
        return 2
    parts = [part for name in arguments for part in groups.get(name) or (named[name],)]
    if result is not None:
        result.unlink(missing_ok=True)  # a run that is broken off leaves none
    begun, tested = time.monotonic(), tree()
    if seed is not None:
        print(f"tests in random order: --seed {seed} repeats it")
    results = run_all(parts, seed)
    if result is not None:
        write_result(result, results, tested)
    failed = [part.name for part, ok in results if not ok]
    print(f"\n{len(results) - len(failed)} of {len(results)} parts passed in {time.monotonic() - begun:.1f} s", end="")
    print(f"; failed: {', '.join(failed)}" if failed else "")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
