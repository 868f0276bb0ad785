"""What the matrix of clients runs against: a node, a cluster, a gateway; and what is restarted when they ask for it."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from syncpoint.base.runtime.ports import free_ports
from syncpoint.programs.clusters.local import LocalCluster, Shape
from syncpoint.testing.server_process import ServerProcess
from tests.clients.official import CLIENTS
from tests.kit.gateway_rig import GatewayProcess


def project_of(client: str) -> str:
    """Where a client works."""
    return f"clients-{client}"


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


def gateway(stack: contextlib.ExitStack, site: Callable[[contextlib.ExitStack], Target] = node) -> Target:
    """A gateway in front of two sites that both store every topic."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="syncpoint-clients-")))
    sites = {name: site(stack) for name in ("eu", "us")}
    (port,) = free_ports(1)
    dual = [{"topics": f"projects/{project_of(client.key)}/topics/*"} for client in CLIENTS]
    more = {"listen": f"127.0.0.1:{port}", "dual": dual}
    endpoints = {name: one.endpoint for name, one in sites.items()}
    running = [GatewayProcess(folder, endpoints, more)]
    stack.callback(lambda: running[0].end())

    def restart_site(name: str, what: str) -> None:
        sites[name].ask(what)
        end = time.monotonic() + 60
        while "masked" in running[0].states()[name]:
            assert time.monotonic() < end, running[0].states()
            time.sleep(0.2)

    def roll_all() -> None:
        for name in sites:
            restart_site(name, "rolling")
        running[0].end()
        running[0] = GatewayProcess(folder, endpoints, more)

    return Target(running[0].endpoint, {"restart": lambda: restart_site("eu", "restart"), "rolling": roll_all})


def gateway_of_clusters(stack: contextlib.ExitStack) -> Target:
    """A gateway in front of two clusters. Needs etcd."""
    return gateway(stack, cluster)


TARGETS: dict[str, Callable[[contextlib.ExitStack], Target]] = {
    "node": node,
    "cluster": cluster,
    "gateway": gateway,
    "clusters": gateway_of_clusters,
}


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
