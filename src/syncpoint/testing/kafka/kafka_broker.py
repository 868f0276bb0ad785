"""One Kafka broker that is its own controller (KRaft, no ZooKeeper), in a process of its own, on the loopback.

Promises: `address` is ready when `start` returns; a restart uses the same data and the same port; `close` ends the
process by the id it was given when it was started, and no other.
"""

from __future__ import annotations

import base64
import contextlib
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from syncpoint.base.runtime.ports import free_ports
from syncpoint.testing.kafka.kafka_jars import broker_classpath

READY_S = 120.0
QUICK = ("-Xmx512m", "-XX:TieredStopAtLevel=1")  # starts in half the time, and is slower then
_STOP_S = 20.0
_LOGGING = """\
log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%p %c: %m%n
"""


class KafkaFailed(RuntimeError):
    """The broker did not start; the message holds its last output."""


class KafkaFolder:
    """A broker's folder, made ready; `command` runs it at `address`."""

    def __init__(
        self,
        folder: Path,
        jars: list[Path],
        *,
        partitions: int,
        java: Sequence[str] = QUICK,
        more: Mapping[str, object] | None = None,
    ) -> None:
        """`java`: flags of its JVM; `more`: settings of the broker. With those of SASL_SSL among them it also listens
        at `secure_address`. Raises `KafkaFailed`.
        """
        self.port, secure, controller = free_ports(3)
        self.address, self.secure_address = f"127.0.0.1:{self.port}", f"127.0.0.1:{secure}"
        listeners = f"PLAINTEXT://{self.address}"
        if more and "sasl.enabled.mechanisms" in more:
            listeners += f",SASL_SSL://{self.secure_address}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": listeners,
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL",
            "log.dirs": str(folder / "logs"),
            "num.partitions": partitions,
            "offsets.topic.num.partitions": 1,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            **(more or {}),
        }
        folder.mkdir(parents=True, exist_ok=True)
        properties = folder / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        (folder / "log4j.properties").write_text(_LOGGING)
        logging = f"-Dlog4j.configuration=file:{folder / 'log4j.properties'}"
        line = ["java", *java, logging, "-cp", broker_classpath(jars)]
        made = subprocess.run(
            [*line, "kafka.tools.StorageTool", "format", "-t", _cluster_id(), "-c", str(properties)],
            capture_output=True, text=True, timeout=READY_S, check=False,
        )  # fmt: skip
        if made.returncode:
            raise KafkaFailed(f"the broker's folder could not be made:\n{made.stdout[-1000:]}{made.stderr[-1000:]}")
        self.log = folder / "broker.log"
        self.command = [*line, "kafka.Kafka", str(properties)]

    def answers(self) -> bool:
        """Whether somebody listens there."""
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


class KafkaBroker:
    """Run one Kafka broker (KRaft, no ZooKeeper) in a child process on loopback."""

    def __init__(
        self, folder: Path, jars: list[Path], *, partitions: int = 1, more: Mapping[str, object] | None = None
    ) -> None:
        """`more`: settings of the broker. Raises `KafkaFailed`."""
        self._folder = KafkaFolder(folder, jars, partitions=partitions, more=more)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """HOST:PORT for clients."""
        return self._folder.address

    @property
    def secure_address(self) -> str:
        """Return the TLS address, for accounts."""
        return self._folder.secure_address

    def start(self) -> Self:
        """Start it and wait until it listens. Raises `KafkaFailed`."""
        with self._folder.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._folder.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        end = time.monotonic() + READY_S
        while not self._folder.answers():
            if self._process.poll() is not None or time.monotonic() > end:
                self.close()
                raise KafkaFailed(f"the broker does not start:\n{self._folder.log.read_text()[-2000:]}")
            time.sleep(0.1)
        return self

    def close(self) -> None:
        """End it, politely first."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_S)
        if process.poll() is None:
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _cluster_id() -> str:
    """16 random bytes as Kafka writes them: base 64 without padding."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
