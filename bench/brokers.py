"""Other brokers, each an own process with own configuration, data folder and port on 127.0.0.1.

Beside every figure, never on a message's path. Promises: what the distribution or another user runs is not touched;
everything started here ends by its process id, and listens on 127.0.0.1 only. Leaves the load to bench/peers/.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from bench.machine import ROOT
from bench.process import Child, Failed

NATS_VERSION = "v2.15.2"
_TOOLS = ROOT / ".cache" / "go-bin"
RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
_BUILD_SECONDS = 900
_PORTS_FROM, _PORTS_TO = 20_000, 32_000


class Broker(Child):
    """A broker that is ready: `system` is its name in bench/peers, `version` what it says of itself."""

    system: str
    address: str
    version: str


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 nobody listens on now, all different, below those the system gives to outgoing connections."""
    with ExitStack() as stack:
        found: list[int] = []
        while len(found) < count:
            probe = stack.enter_context(socket.socket())
            port = random.randrange(_PORTS_FROM, _PORTS_TO)
            with suppress(OSError):
                probe.bind(("127.0.0.1", port))
                found.append(port)
        return found


def build_nats() -> Path:
    """Builds the NATS server from the Go module proxy, once. Raises Failed."""
    return _go(["install", f"github.com/nats-io/nats-server/v2@{NATS_VERSION}"], ROOT, _TOOLS / "nats-server")


def build_clients() -> Path:
    """Builds bench/peers, the load on other brokers. Raises Failed."""
    target = ROOT / ".cache" / "bench" / "peers"
    return _go(["build", "-o", str(target), "."], ROOT / "bench" / "peers", target, always=True)


def _go(words: list[str], folder: Path, target: Path, *, always: bool = False) -> Path:
    if always or not target.exists():
        if not shutil.which("go"):
            raise Failed("Go is needed to build the NATS server and the brokers' clients")
        env = {**os.environ, "GOBIN": str(_TOOLS), "GOTOOLCHAIN": "local"}
        done = subprocess.run(
            ["go", *words], cwd=folder, env=env, capture_output=True, text=True, timeout=_BUILD_SECONDS, check=False
        )
        if done.returncode:
            raise Failed(f"go {' '.join(words)}:\n{done.stderr[-3000:]}")
    return target


def nats(folder: Path, core: int, *, sync_always: bool) -> Broker:
    """JetStream with file storage; it syncs every two minutes, or with `sync_always` before each confirmation."""
    (port,) = free_ports(1)
    sync = "  sync_interval: always\n" if sync_always else ""
    (folder / "nats.conf").write_text(
        f"listen: 127.0.0.1:{port}\njetstream {{\n  store_dir: {folder / 'data'}\n  max_file_store: 40GB\n{sync}}}\n"
    )
    broker = Broker([str(build_nats()), "-c", str(folder / "nats.conf")], core=core, log=folder / "log")
    return _ready(broker, "nats", port, r"Server is ready", r"Version:\s+(\S+)")


def redis(folder: Path, core: int, *, fsync: str) -> Broker:
    """Streams in an append-only file; `fsync` is everysec or always. Rewriting the file is off, to its advantage."""
    (port,) = free_ports(1)
    if not shutil.which("redis-server"):
        raise Failed("redis-server is missing: bench/setup.sh peers")
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
    command += ["--appendonly", "yes", "--appendfsync", fsync, "--auto-aof-rewrite-percentage", "0"]
    return _ready(Broker(command, core=core, log=folder / "log"), "redis", port, r"Ready to accept connections",
                  r"Redis version=([^,\s]+)")  # fmt: skip


@contextmanager
def rabbitmq(folder: Path, core: int) -> Iterator[Broker]:
    """One node without plugins, with an Erlang port mapper of its own beside it."""
    if not RABBITMQ.exists():
        raise Failed("rabbitmq-server is missing: bench/setup.sh peers")
    port, distribution, mapper = free_ports(3)
    env = {
        **rabbitmq_environment(folder, mapper),
        "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(distribution),
    }
    with Child(["epmd", "-port", str(mapper), "-address", "127.0.0.1"], core=core, log=folder / "epmd.log", env=env):
        broker = Broker([str(RABBITMQ)], core=core, log=folder / "log", env=env)
        with _ready(broker, "rabbitmq", port, r"Server startup complete", r"Starting RabbitMQ (\S+)") as ready:
            yield ready


def rabbitmq_environment(folder: Path, mapper: int) -> dict[str, str]:
    """What nodes and their command line tool need: all data in `folder`, the port mapper at its own port.

    Writes the configuration into the folder. A node's name and ports are left to the caller.
    """
    (folder / "plugins").write_text("[].\n")
    (folder / "rabbitmq.conf").write_text("loopback_users = none\ndisk_free_limit.absolute = 1GB\n")
    loopback = "-kernel inet_dist_use_interface {127,0,0,1}"
    return {
        "HOME": str(folder),
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder),
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": loopback,
        "RABBITMQ_CTL_ERL_ARGS": loopback,
        "RUNNING_UNDER_SYSTEMD": "true",  # no shell process around the broker: its pid is the one we start
        "ERL_EPMD_PORT": str(mapper),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
    }


def _ready(broker: Broker, system: str, port: int, ready: str, version: str) -> Broker:
    broker.system, broker.address = system, f"127.0.0.1:{port}"
    try:
        broker.wait_for(ready, 60.0)
    except BaseException:
        broker.kill()
        raise
    found = re.search(version, broker.output())
    broker.version = found[1] if found else "?"
    return broker
