"""A drill of upgrades on this machine, between an older commit of this repository and what is checked out.

Usage: python -m tests.faults.upgrade_drill COMMIT [cluster|server]...; without words, both. `cluster`: every process of
every role becomes the newer version, then the older one again, then the newer one, while official clients publish and
receive (plain, in order, exactly once). `server`: one server on one folder is killed under load and started as the
other version, in turns. Each prints what came of it as a row of a table; the program ends with 1 when a promise was
broken.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.guard import commit_of, older_tree
from bench.process import cli_module
from syncpoint.programs.clusters.local import Shape
from syncpoint.testing.rigs import checkers
from syncpoint.testing.server_process import ServerProcess
from tests.kit.clusters import Kit, Load

ROOT = Path(__file__).resolve().parents[2]
ROLES = ("router", "storage", "publish-forwarder", "subscribe-forwarder", "proxy")  # in the order of the documentation
CALM_S = 5.0
MUST_HAVE_WORK = (checkers.order_per_key, checkers.exactly_once)


def program(tree: Path) -> list[str]:
    """The command line of a source tree."""
    return ["/usr/bin/env", f"PYTHONPATH={tree / 'src'}", sys.executable, "-m", cli_module(tree)]


def cluster(older: Path) -> str:
    """Forwards, back and forwards again, process by process."""
    with tempfile.TemporaryDirectory() as folder:
        kit = Kit(Path(folder) / "c", Shape(clusters=3, disks=1, forwarders=2, routers=2, proxies=2))
        names = [name for role in ROLES for name in kit.names(role)]
        for name in names:
            kit.local.assign(name, program(older))
        kit.up()
        restarts = 0
        try:
            with Load(kit, rate=100.0) as load:
                for tree in (ROOT, older, ROOT):
                    for name in names:
                        kit.local.assign(name, program(tree))
                        kit.restart(name)
                        kit.stabilize()
                        restarts += 1
                    load.flows(CALM_S)
            history = load.judge(*MUST_HAVE_WORK)
        finally:
            kit.down()
    return f"{restarts} restarts; {history.counts()}; longest time without an answered publish {load.gaps} s"


class _Server(ServerProcess):
    """A server of the version that `tree` has at its next start."""

    def __init__(self, data: Path, tree: Path) -> None:
        super().__init__(data)
        self.tree = tree

    def command(self) -> list[str]:
        self.env["PYTHONPATH"] = str(self.tree / "src")
        line = super().command()
        line[line.index("-m") + 1] = cli_module(self.tree)
        return line


class _OneServer:
    """A server of changing version in the place of a cluster: `Load` asks only for its address."""

    def __init__(self, server: ServerProcess) -> None:
        self.proxies = [server.endpoint]


def server(older: Path) -> str:
    """Killed, and started as the other version, eight times."""
    with tempfile.TemporaryDirectory() as folder:
        one = _Server(Path(folder) / "data", older)
        one.start()
        begun, kills = time.monotonic(), 0
        try:
            with Load(_OneServer(one), rate=100.0) as load:  # type: ignore[arg-type]
                for number in range(8):
                    one.kill9()
                    one.tree = older if number % 2 else ROOT
                    one.start()
                    kills += 1
                    load.flows(CALM_S)
            history = load.judge(*MUST_HAVE_WORK)
        finally:
            one.close()
    return f"{kills} kills in {time.monotonic() - begun:.0f} s; {history.counts()}"


PARTS: dict[str, Callable[[Path], str]] = {"cluster": cluster, "server": server}


def main(words: list[str]) -> int:
    """Run parts, and print their rows."""
    if not words:
        print(__doc__, file=sys.stderr)
        return 2
    good = True
    with tempfile.TemporaryDirectory() as scratch, older_tree(words[0], Path(scratch)) as older:
        for name in words[1:] or list(PARTS):
            try:
                row = PARTS[name](older)
            except AssertionError as error:
                good, row = False, f"**{error}**"
            print(f"| {name} | {commit_of(older)} and {commit_of(ROOT)} | {row} |", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
