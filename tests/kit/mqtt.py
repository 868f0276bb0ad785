"""A real MQTT broker, a device that publishes to it, and the bridge as a process."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml
from paho.mqtt.client import Client, MQTTMessageInfo, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from syncpoint.base.runtime.ports import free_ports

MOSQUITTO = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
MISSING = "mosquitto is not installed: make mosquitto"
PERSISTENT = ("persistence true", "autosave_on_changes true", "autosave_interval 1", "max_queued_messages 0")


def until(holds: Callable[[], Any], what: Callable[[], Any], within_s: float = 60.0) -> None:
    """Wait until something holds."""
    end = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < end, what()
        time.sleep(0.02)


class Mosquitto:
    """A broker that may live several times on the same data and port."""

    def __init__(self, folder: Path, *settings: str, listener: tuple[str, ...] = ("allow_anonymous true",)) -> None:
        assert MOSQUITTO is not None, MISSING
        folder.mkdir()
        (self.port,) = free_ports(1)
        self._config, self.log = folder / "mosquitto.conf", folder / "log"
        lines = [f"user {os.environ.get('USER', 'root')}", *settings, f"persistence_location {folder}/"]
        lines += [f"log_dest file {self.log}", "log_type all", f"listener {self.port} 127.0.0.1", *listener]
        self._config.write_text("\n".join(lines) + "\n")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        assert MOSQUITTO is not None
        self._process = subprocess.Popen([MOSQUITTO, "-c", str(self._config)], stderr=subprocess.DEVNULL)
        until(self._answers, self.text)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.text()
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(30)

    def text(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def acknowledged(self, client_id: str) -> set[str]:
        """The MQTT topics of the messages that a client has acknowledged, by the broker's log."""
        sent, found = dict[str, str](), set[str]()
        sending = re.compile(rf"Sending PUBLISH to {client_id} \(d\d, q1, r\d, m(\d+), '([^']+)'")
        taken = re.compile(rf"Received PUBACK from {client_id} \(Mid: (\d+)")
        for line in self.text().splitlines():
            if one := sending.search(line):
                sent[one[1]] = one[2]
            elif (one := taken.search(line)) and one[1] in sent:
                found.add(sent[one[1]])
        return found

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


class Device:
    """Publishes to a broker; what the broker has not acknowledged is sent again over a new connection."""

    def __init__(self, broker: Mosquitto) -> None:
        self._client = Client(CallbackAPIVersion.VERSION2, client_id="device", protocol=MQTTv5)
        self._client.reconnect_delay_set(1, 1)
        self._client.max_inflight_messages_set(0)  # as many as it likes
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = 3600
        self._client.connect("127.0.0.1", broker.port, clean_start=False, properties=properties)
        self._client.loop_start()

    def send(self, topic: str, data: bytes, *, qos: int = 1, retain: bool = False, **given: Any) -> MQTTMessageInfo:
        """`given`: properties of MQTT by their names; UserProperty: a list of pairs."""
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        for name, value in given.items():
            setattr(properties, name, value)
        return self._client.publish(topic, data, qos, retain, properties)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


class BridgeProcess:
    """`syncpoint bridge run`, which may live several times."""

    def __init__(self, folder: Path, endpoint: str, project: str, content: Mapping[str, Any]) -> None:
        folder.mkdir(exist_ok=True)
        self._file, self.status_file, self._output = folder / "bridge.yaml", folder / "status.json", folder / "output"
        self._file.write_text(yaml.safe_dump(dict(content)))
        line = [sys.executable, "-m", "syncpoint.programs.cli", "bridge", "run", str(self._file)]
        self._line = [*line, "--endpoint", endpoint, "--project", project, "--status", str(self.status_file)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *, connected: bool = True) -> None:
        self.status_file.unlink(missing_ok=True)
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(self._line, stdout=output, stderr=output)
        if connected:
            self.until("connects", 1)  # it may be gone again already

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.status_file.read_text()) if self.status_file.exists() else {}
        return found

    def until(self, key: str, at_least: int, within_s: float = 60.0) -> None:
        """Wait until a number of the status is that large."""
        until(lambda: self.status().get(key, 0) >= at_least, lambda: (key, self.status(), self.output()), within_s)

    def output(self) -> str:
        return self._output.read_text()

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(30)

    def stop(self) -> int:
        """End it politely; the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(30)

    def ended(self) -> int:
        """Wait until it has ended by itself; the exit code."""
        assert self._process is not None
        return self._process.wait(30)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()
