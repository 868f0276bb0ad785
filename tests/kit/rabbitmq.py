"""A real RabbitMQ node, and a client that publishes to it and reads from it."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pika
from pika.adapters.blocking_connection import BlockingChannel

from syncpoint.base.runtime.ports import free_ports
from tests.kit.mqtt import until

logging.getLogger("pika").setLevel(logging.CRITICAL)  # a node that does not answer yet is no news
FOLDERS = f"{os.environ.get('PATH', '')}:/usr/sbin"
RABBITMQ = shutil.which("rabbitmq-server", path=FOLDERS)
MISSING = "rabbitmq-server is not installed: make rabbitmq"
ERLANG_ARGUMENTS = "+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none"  # one core, and no waiting that burns it


class RabbitNode:
    """A node that may live several times on the same data and port; without a port mapper and without plugins."""

    def __init__(self, folder: Path) -> None:
        assert RABBITMQ is not None, MISSING
        folder.mkdir()
        self.port, distribution = free_ports(2)
        self._folder, self._log = folder, folder / "output"
        (folder / "rabbitmq.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{self.port}\nlog.console = true\n")
        (folder / "plugins").write_text("[].\n")
        # The script of the package starts the node as another user, whom this folder does not know.
        self._script = Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmq-server")
        script = next(self._script, None)
        # It ends with the thread that started it, whatever becomes of that one: the script becomes the node, so that it
        # is the node that learns of it.
        self._line = ["setpriv", "--pdeathsig", "KILL", str(script or RABBITMQ)]
        self._environment = os.environ | {
            "HOME": str(folder),
            "RABBITMQ_NODENAME": f"bridge{self.port}@localhost",
            "RABBITMQ_BASE": str(folder),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_ALLOW_INPUT": "true",
            "RABBITMQ_SERVER_START_ARGS": f"-noinput -start_epmd false -erl_epmd_port {distribution}",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": ERLANG_ARGUMENTS,
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                self._line, env=self._environment, stdout=output, stderr=output, start_new_session=True
            )
        until(self._answers, self.text, 120.0)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.text()
        try:
            self.connect().close()
        except pika.exceptions.AMQPError:
            return False
        return True

    def kill(self) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)

    def text(self) -> str:
        return self._log.read_text(errors="replace")[-5000:]

    def connect(self) -> pika.BlockingConnection:
        return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", self.port, connection_attempts=1))

    @contextmanager
    def channel(self) -> Iterator[BlockingChannel]:
        """A channel with publisher confirms."""
        connection = self.connect()
        try:
            channel = connection.channel()
            channel.confirm_delivery()
            yield channel
        finally:
            connection.close()

    def declare(self, name: str, kind: str = "classic", **arguments: Any) -> str:
        with self.channel() as channel:
            channel.queue_declare(name, durable=True, arguments={"x-queue-type": kind} | arguments)
        return name

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
