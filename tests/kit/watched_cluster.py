"""A cluster that is watched as an operator would have it: a monitor with people on call, and probers at every proxy.

`WatchedCluster` is a `Kit` with both beside it. The program of the probers is a process of its own; only processes that
were started here are ended.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

import yaml

from syncpoint.base.runtime.ports import free_ports
from syncpoint.programs.clusters.local import Shape
from syncpoint.testing.rigs import official
from syncpoint.testing.rigs.official import eventually
from tests.kit.clusters import Kit

PROBED: Final = 15.0
"""Seconds between the runs of a prober."""

PATIENCE: Final = 20.0
"""By which the limits of probers are multiplied: a machine that runs tests is busy."""

PEOPLE: Final = {name: {"command": ["/bin/true"]} for name in ("ana", "ben", "eve")}
ON_CALL: Final = {
    "sites": [
        {"name": "zurich", "timezone": "Europe/Zurich", "hours": "06:00-18:00", "people": ["ana", "ben"]},
        {"name": "denver", "timezone": "America/Denver", "hours": "08:00-23:30", "people": ["ben"]},
    ],
    "last": ["eve"],
}


def _apart(work: Callable[..., Any], *values: Any) -> Any:
    """In a thread of its own: the one that drives a browser has a loop that runs, and blocking clients need theirs."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(work, *values).result()


class WatchedCluster:
    """See the module. `zones`: the machines of each rack are said to be a zone of their own."""

    def __init__(self, folder: Path, shape: Shape, *, zones: bool = False, probed: float = PROBED) -> None:
        self.folder, self._probed = folder, probed
        folder.mkdir(parents=True, exist_ok=True)
        self.targets = folder / "targets.json"
        self.targets.write_text("[]")
        settings = {"people": PEOPLE, "on_call": ON_CALL, "target_files": [str(self.targets)]}
        (folder / "monitor.yaml").write_text(yaml.safe_dump(settings))
        place = {"process": "proxy-1", "data": str(folder / "monitor"), "file": str(folder / "monitor.yaml")}
        self.kit = Kit(folder / "cluster", shape, {"monitor": place})
        if zones:
            content = yaml.safe_load(self.kit.local.settings_path.read_text())
            for one in content["processes"].values():
                if "rack" in one:
                    one["zone"] = one["rack"].replace("k", "zone-")
            self.kit.local.settings_path.write_text(yaml.safe_dump(content, sort_keys=False))
        self._probers: subprocess.Popen[bytes] | None = None
        (self._port,) = free_ports(1)

    def up(self) -> WatchedCluster:
        """All of it; returns when the first runs of the probers were judged."""
        _apart(self.kit.up)
        command = [sys.executable, "-m", "syncpoint.programs.cli", "probers", "run", "--without", "P7"]
        for proxy in self.kit.proxies:
            command += ["--endpoint", proxy]
        command += ["--metrics", f"127.0.0.1:{self._port}", "--interval", f"{self._probed:g}"]
        with (self.folder / "probers.log").open("ab") as log:
            self._probers = subprocess.Popen(
                [*command, "--patience", f"{PATIENCE:g}", "--timeout", "60"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | {"PYTHONUNBUFFERED": "1"},
            )
        target = {"targets": [f"127.0.0.1:{self._port}"], "labels": {"process": "prober-1"}}
        self.targets.write_text(json.dumps([target]))
        eventually(lambda: self.board().get("probers"), 120, "the board of the probers is there")
        return self

    def down(self) -> None:
        """End everything."""
        if self._probers is not None:
            self._probers.terminate()
            try:
                self._probers.wait(30)
            except subprocess.TimeoutExpired:
                self._probers.kill()
                self._probers.wait()
        self.kit.down()

    def board(self) -> dict[str, Any]:
        """What the prober program shows; empty while it does not answer."""
        try:
            with urlopen(f"http://127.0.0.1:{self._port}/probers.json", timeout=5) as answer:
                found: dict[str, Any] = json.loads(answer.read())
                return found
        except OSError:
            return {}

    def ask(self, method: str, request: Any) -> Any:
        """One call of syncpoint.admin.v1."""
        return _apart(self.kit.admin, method, request, len(self.kit.proxies) - 1)

    @property
    def console(self) -> str:
        """The address of the console, at the proxy that does not watch."""
        return f"http://{self.kit.proxies[-1]}/console"


class SomeTraffic:
    """Messages to a few topics, and most of them acknowledged, until it is ended."""

    def __init__(self, endpoint: str, *topics: str, pause_s: float = 0.1) -> None:
        self._api, self._pause_s = official.Api(endpoint), pause_s
        self._ended = threading.Event()
        self._names = [f"projects/shop/topics/{one}" for one in topics]
        for one in self._names:
            self._api.create_topic({"name": one})
            self._api.create_subscription({"name": one.replace("/topics/", "/subscriptions/"), "topic": one})
        self._thread = threading.Thread(target=self._flow, name="traffic", daemon=True)
        self._thread.start()

    def _flow(self) -> None:
        number = 0
        while not self._ended.wait(self._pause_s):
            number += 1
            for weight, topic in enumerate(self._names, 1):
                data = [b"x" * 100 * weight] * weight
                self._api.publish({"topic": topic, "messages": [{"data": one} for one in data]}, timeout=60)
                name = topic.replace("/topics/", "/subscriptions/")
                got = self._api.pull({"subscription": name, "max_messages": 20, "return_immediately": True}, timeout=60)
                if got.received_messages:
                    ids = [one.ack_id for one in got.received_messages]
                    self._api.acknowledge({"subscription": name, "ack_ids": ids}, timeout=60)

    def end(self) -> None:
        """Stop it."""
        self._ended.set()
        self._thread.join()
        self._api.close()
