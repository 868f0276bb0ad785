"""What the matrix of clients runs against: one node, or a cluster; and what is restarted when clients ask for it."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from syncpoint.programs.clusters.local import LocalCluster, Shape
from syncpoint.testing.server_process import ServerProcess


@dataclasses.dataclass
class Target:
    """Where clients connect to, and what is done when they ask for it."""

    endpoint: str
    actions: dict[str, Callable[[], None]]

    def ask(self, what: str) -> None:
        self.actions[what]()


def node(stack: contextlib.ExitStack) -> Target:
    """A server on one node."""
    server = stack.enter_context(ServerProcess())

    def restart(*, hard: bool) -> None:
        server.restart(hard=hard)

    return Target(server.endpoint, {"restart": lambda: restart(hard=True), "rolling": lambda: restart(hard=False)})


def cluster(stack: contextlib.ExitStack) -> Target:
    """A cluster of three storage clusters. Needs etcd."""
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="syncpoint-clients-"))
    local = LocalCluster(Path(folder))
    local.create(Shape(clusters=3, disks=1, forwarders=1, routers=1, proxies=1))
    stack.callback(local.down)
    (endpoint,) = local.up()
    return of_cluster(local, endpoint)


def of_cluster(local: LocalCluster, endpoint: str) -> Target:
    """A cluster that runs, by one of its proxies."""
    return Target(endpoint, {"restart": lambda: kill_proxies(local), "rolling": lambda: roll(local)})


def kill_proxies(local: LocalCluster) -> None:
    """Kill what clients are connected to, and start it again."""
    proxies = [one.name for one in local.states() if "proxy" in one.roles]
    for name in proxies:
        local.kill(name)
    for name in proxies:
        local.start(name)


def roll(local: LocalCluster) -> None:
    """Restart all processes of a cluster in turn, first those that clients are connected to, at last etcd."""
    for one in reversed(local.states()):
        local.stop(one.name)
        local.start(one.name)


TARGETS: dict[str, Callable[[contextlib.ExitStack], Target]] = {"node": node, "cluster": cluster}


class Together:
    """Does what several clients ask for once all that still run have asked for something."""

    def __init__(self, target: Target, clients: Iterable[str]) -> None:
        self._target = target
        self._running = set(clients)
        self._asked: dict[str, str] = {}
        self._changed = threading.Condition()
        self.took: list[str] = []

    def ask(self, client: str, what: str) -> None:
        with self._changed:
            self._asked[client] = what
            self._go()
            while client in self._asked:
                self._changed.wait()

    def left(self, client: str) -> None:
        with self._changed:
            self._running.discard(client)
            self._go()

    def _go(self) -> None:
        if not self._asked or self._asked.keys() < self._running:
            return
        try:
            for what in sorted(set(self._asked.values())):
                begun = time.monotonic()
                self._target.ask(what)
                took = f"{what} took {time.monotonic() - begun:.0f} s"
                print(f"  {', '.join(sorted(self._running))}: {took}", flush=True)
                self.took.append(took)
        finally:
            self._asked.clear()
            self._changed.notify_all()
