"""Clusters of other brokers on this machine: three servers each, every one with its own ports and folder.

Beside every figure, never on a message's path. Promises as in `brokers`: own configuration, own folders, 127.0.0.1
only, every process ended by its id. The processes run on all cores, as ours do. Leaves the load to bench/peers/.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench import brokers
from bench.process import Child, Failed

MEMBERS = 3
_RABBITMQ_TOOL = Path("/usr/lib/rabbitmq/bin/rabbitmqctl")
_READY_SECONDS = 90.0


class BrokerCluster:
    """Servers that have found one another. `system` is their name in bench/peers, `version` what they say of it."""

    def __init__(self, system: str, address: str, version: str, processes: Sequence[Child]) -> None:
        self.system, self.address, self.version = system, address, version
        self.processes = list(processes)

    def cpu_seconds(self) -> float:
        """CPU seconds so far of all its processes, helpers too."""
        return sum(process.cpu_seconds() for process in self.processes)

    def output(self) -> str:
        """The ends of all their outputs."""
        return "\n".join(process.output()[-700:] for process in self.processes)

    def confirm_members(self) -> None:
        """Raises Failed when what the last run used was not kept by all members.

        NATS: its client waits for all members to be in step before it starts, and fails otherwise.
        """


class RabbitCluster(BrokerCluster):
    """Nodes of RabbitMQ, with the settings their command line tool needs."""

    env: Mapping[str, str]

    def confirm_members(self) -> None:
        shown = _rabbitmqctl(self.env, 1, "list_queues", "name", "members", "online", "--formatter=json", "--quiet")
        queues = json.loads(shown)
        if len(queues) != 1 or not len(queues[0]["members"]) == len(queues[0]["online"]) == MEMBERS:
            raise Failed(f"the queue is not on {MEMBERS} nodes: {shown}")


@contextmanager
def nats(folder: Path, *, sync_always: bool) -> Iterator[BrokerCluster]:
    """JetStream on three servers with routes to one another; what `sync_always` is says `brokers.nats`."""
    program = str(brokers.build_nats())
    ports = brokers.free_ports(2 * MEMBERS)
    clients, routed = ports[:MEMBERS], ports[MEMBERS:]
    routes = ", ".join(f"nats-route://127.0.0.1:{port}" for port in routed)
    sync = "  sync_interval: always\n" if sync_always else ""
    with ExitStack() as stack:
        servers = []
        for number, (client, route) in enumerate(zip(clients, routed, strict=True), 1):
            config = folder / f"n{number}.conf"
            config.write_text(
                f"server_name: n{number}\nlisten: 127.0.0.1:{client}\n"
                f"jetstream {{\n  store_dir: {folder / f'n{number}'}\n  max_file_store: 20GB\n{sync}}}\n"
                f"cluster {{\n  name: bench\n  listen: 127.0.0.1:{route}\n  routes: [{routes}]\n}}\n"
            )
            log = folder / f"n{number}.log"
            servers.append(stack.enter_context(Child([program, "-c", str(config)], core=None, log=log)))
        for server in servers:
            server.wait_for(r"Server is ready", _READY_SECONDS)
            server.wait_for(r"cluster metadata leader|new metadata leader", _READY_SECONDS)
        address = ",".join(f"127.0.0.1:{port}" for port in clients)
        yield BrokerCluster("nats", address, _version(r"Version:\s+(\S+)", servers[0]), servers)


@contextmanager
def rabbitmq(folder: Path) -> Iterator[RabbitCluster]:
    """Three nodes without plugins, joined by `rabbitmqctl join_cluster`; clients use the first, the queue's leader."""
    if not brokers.RABBITMQ.exists():
        raise Failed("rabbitmq-server is missing: bench/setup.sh peers")
    mapper, *ports = brokers.free_ports(1 + 2 * MEMBERS)
    cookie = folder / ".erlang.cookie"
    cookie.write_text(secrets.token_hex(16))
    cookie.chmod(0o400)
    env = brokers.rabbitmq_environment(folder, mapper)
    with ExitStack() as stack:
        line = ["epmd", "-port", str(mapper), "-address", "127.0.0.1"]
        processes = [stack.enter_context(Child(line, core=None, log=folder / "epmd.log", env=env))]
        for number, (port, distribution) in enumerate(zip(ports[:MEMBERS], ports[MEMBERS:], strict=True), 1):
            own = {
                **env,
                "RABBITMQ_NODENAME": _node(number),
                "RABBITMQ_NODE_PORT": str(port),
                "RABBITMQ_DIST_PORT": str(distribution),
            }
            log = folder / f"{_node(number)}.log"
            processes.append(stack.enter_context(Child([str(brokers.RABBITMQ)], core=None, log=log, env=own)))
        for node in processes[1:]:
            node.wait_for(r"Server startup complete", _READY_SECONDS)
        for number in range(2, MEMBERS + 1):
            for command in (["stop_app"], ["join_cluster", _node(1)], ["start_app"]):
                _rabbitmqctl(env, number, *command)
        version = _version(r"Starting RabbitMQ (\S+)", processes[1])
        cluster = RabbitCluster("rabbitmq", f"127.0.0.1:{ports[0]}", version, processes)
        cluster.env = env
        yield cluster


def _node(number: int) -> str:
    return f"bench{number}@localhost"


def _rabbitmqctl(env: Mapping[str, str], number: int, *words: str) -> str:
    line = [str(_RABBITMQ_TOOL), "-n", _node(number), *words]
    done = subprocess.run(
        line, env={**os.environ, **env}, capture_output=True, text=True, timeout=_READY_SECONDS, check=False
    )
    if done.returncode:
        raise Failed(f"{' '.join(line)}\n{done.stdout[-1000:]}{done.stderr[-1000:]}")
    return done.stdout


def _version(pattern: str, process: Child) -> str:
    found = re.search(pattern, process.output())
    return found[1] if found else "?"
