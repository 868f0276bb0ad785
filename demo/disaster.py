"""Demonstration: two sites, a gateway, and Google's client, which knows the gateway alone; sites are lost, no message.

    make demo-disaster                     about three minutes
    make demo-disaster DEMO=--short        about one
    make demo-disaster DEMO=--links        a topic of one site, copied by links that exchange acknowledgements (Spark)

Two servers (sites) are started, and `syncpoint gateway run` with one dual topic: each message is stored at both. While
Google's client publishes and receives, one site is ended with SIGKILL and brought back with its disks, one hangs
(SIGSTOP), the other one is killed, one is killed and brought back with empty disks, and then the other one is killed,
so that only what was copied is left. At the end every confirmed message is accounted for. Exit code 1 when one is lost.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from syncpoint.base.runtime.ports import free_ports
from syncpoint.testing.server_process import ServerProcess

TOPIC, SUBSCRIPTION = "projects/demo/topics/orders", "projects/demo/subscriptions/billing"
SITES = ("eu", "us")
PATIENCE_S = 90.0
STEPS = "kill:eu,hang:eu,kill:us,empty:eu,empty:us,kill:eu"
"""One after the other; the last one leaves what was copied to the site that had lost everything."""
LINKED = "kill:eu,hang:eu,kill:us"
"""With links what was not copied yet would be lost with a site's disks; where it comes back with them, nothing is."""


class GatewayRun:
    """`syncpoint gateway run` in front of the sites."""

    def __init__(self, folder: Path, servers: dict[str, ServerProcess], more: dict[str, Any]) -> None:
        clients, operators = free_ports(2)
        sites = {name: {"endpoint": one.endpoint, "weight": 200 - n} for n, (name, one) in enumerate(servers.items())}
        file = {
            "version": 1,
            "listen": f"127.0.0.1:{clients}",
            "admin": {"listen": f"127.0.0.1:{operators}"},
            "sites": sites,
            "drain": "2s",
            "health": {"successes": 4},
            "budget": {"changes": 1000},
            **more,
        }
        path = folder / "gateway.yaml"
        path.write_text(json.dumps(file, indent=2))
        self.log = (folder / "gateway.log").open("a")
        self.line = [sys.executable, "-m", "syncpoint.programs.cli", "gateway", "run", "--config", str(path)]
        self.endpoint, self.admin = f"127.0.0.1:{clients}", f"127.0.0.1:{operators}"
        self.start()

    def start(self) -> None:
        """Return once it takes calls."""
        self.process = subprocess.Popen(self.line, stderr=self.log, text=True)
        if wait_for(self.answers, 30) is None:
            raise RuntimeError(Path(self.log.name).read_text())

    def answers(self) -> bool:
        """Whether it takes calls."""
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{self.endpoint}/readyz", timeout=5):
            return True
        return False

    def status(self) -> dict[str, Any]:
        """What operators read."""
        with urllib.request.urlopen(f"http://{self.admin}/gateway.json", timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def states(self) -> dict[str, str]:
        """What each site is."""
        return {one["site"]: one["state"] for one in self.status()["sites"]}

    def close(self) -> None:
        """SIGTERM, and wait."""
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        if self.process.poll() is None:
            self.process.kill()
        self.log.close()


class Links:
    """`syncpoint federation run` between the sites, with acknowledgements."""

    def __init__(self, folder: Path, servers: dict[str, ServerProcess]) -> None:
        self.metrics = f"127.0.0.1:{free_ports(1)[0]}"
        file = {
            "version": 1,
            "clusters": {name: {"endpoint": one.endpoint} for name, one in servers.items()},
            "namespaces": {"demo": {"clusters": list(servers), "acks": True}},
            "runtime": {"master": "local[2]", "warm": True, "metrics": self.metrics, "state": str(folder / "state")},
        }
        path = folder / "federation.yaml"
        path.write_text(json.dumps(file, indent=2))
        self.log = (folder / "federation.log").open("w")
        line = [sys.executable, "-m", "syncpoint.programs.cli", "federation", "run", str(path)]
        self.process = subprocess.Popen(line, stdout=self.log, stderr=self.log)

    def lag(self) -> float | None:
        """Messages that are not copied; None while not all links report."""
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=5) as answer:
                found = re.findall(
                    r"^syncpoint_federation_lag_messages{.*} (\S+)$", answer.read().decode(), re.MULTILINE
                )
            if len(found) == 2:
                return sum(map(float, found))
        return None

    def close(self) -> None:
        """SIGTERM, and wait."""
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(30)
        if self.process.poll() is None:
            self.process.kill()
        self.log.close()


@dataclass
class Phase:
    """What was seen while one thing was wrong."""

    name: str
    confirmed: int = 0
    received: int = 0
    twice: int = 0
    longest_s: float = 0.0
    gap_s: float = 0.0
    back_s: float | None = None


@dataclass
class Tally:
    """Everything that clients saw; one lock, since callbacks come from many threads."""

    phases: list[Phase] = field(default_factory=lambda: [Phase("all well")])
    confirmed: set[int] = field(default_factory=set)
    failed: list[str] = field(default_factory=list)
    received: Counter[int] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)
    newest: float = field(default_factory=time.monotonic)

    @property
    def now(self) -> Phase:
        """The phase of now."""
        return self.phases[-1]

    def publish_done(self, number: int, began: float, outcome: Any) -> None:
        with self.lock:
            error = outcome.exception()
            if error is not None:
                self.failed.append(f"{number}: {error}")
                return
            self.confirmed.add(number)
            self.now.confirmed += 1
            self.now.longest_s = max(self.now.longest_s, time.monotonic() - began)

    def receive(self, message: Any) -> None:
        with self.lock:
            number, now = int(message.data.partition(b" ")[0]), time.monotonic()
            self.received[number] += 1
            self.now.received += 1
            self.now.twice += self.received[number] > 1
            self.now.gap_s = max(self.now.gap_s, now - self.newest)
            self.newest = now
        message.ack()


class Load:
    """Google's publisher and subscriber, at the gateway's address."""

    def __init__(self, endpoint: str, tally: Tally, rate: int) -> None:
        os.environ["PUBSUB_EMULATOR_HOST"] = endpoint
        from google.cloud import pubsub_v1

        self.tally, self.rate = tally, rate
        self.publisher, self.subscriber = pubsub_v1.PublisherClient(), pubsub_v1.SubscriberClient()
        self.publisher.create_topic(name=TOPIC)
        self.subscriber.create_subscription(name=SUBSCRIPTION, topic=TOPIC, ack_deadline_seconds=10)
        self.streaming = self.subscriber.subscribe(SUBSCRIPTION, tally.receive)
        self._over = threading.Event()
        self.sent = 0
        self._thread = threading.Thread(target=self._publish, daemon=True)
        self._thread.start()

    def _publish(self) -> None:
        while not self._over.wait(1 / self.rate):
            number, began = self.sent, time.monotonic()
            self.sent += 1
            outcome = self.publisher.publish(TOPIC, b"%d " % number + b"x" * 500)
            outcome.add_done_callback(lambda done, n=number, at=began: self.tally.publish_done(n, at, done))

    def end(self) -> None:
        """Publish nothing more, and wait until all are answered."""
        self._over.set()
        self._thread.join()
        until = time.monotonic() + PATIENCE_S
        while len(self.tally.confirmed) + len(self.tally.failed) < self.sent and time.monotonic() < until:
            time.sleep(0.1)

    def close(self) -> None:
        self.streaming.cancel()
        with contextlib.suppress(Exception):
            self.streaming.result(timeout=10)
        self.subscriber.close()


def wait_for(what: Callable[[], bool], patience_s: float = PATIENCE_S) -> float | None:
    """How long it took; None: it did not happen."""
    began = time.monotonic()
    while not what():
        if time.monotonic() > began + patience_s:
            return None
        time.sleep(0.1)
    return time.monotonic() - began


class Disaster:
    """The whole of it."""

    def __init__(self, console: Console, folder: Path, answer: str, rate: int, each_s: float, *, links: bool) -> None:
        self.console, self.folder, self.each_s = console, folder, each_s
        self.servers = {name: ServerProcess(folder / name) for name in SITES}
        for one in self.servers.values():
            one.start()
        self.links = Links(folder, self.servers) if links else None
        more: dict[str, Any] = {"dual": [{"topics": TOPIC, "answer": answer}]}
        if self.links is not None:
            more = {"recover": {"federation": self.links.metrics, "lag": 200}}
        self.gateway = GatewayRun(folder, self.servers, more)
        self.tally = Tally()
        self.load = Load(self.gateway.endpoint, self.tally, rate)
        if self.links is not None:
            console.print("waiting for the links")
            lag = self.links.lag
            if wait_for(lambda: lag() is not None and (lag() or 0) < 200, 180) is None:
                raise RuntimeError(f"the links do not run: {self.links.lag()}")

    def phase(self, name: str) -> Phase:
        """From now on something else is wrong."""
        self.console.print(f"[bold]{name}[/bold]" if self.console.is_terminal else name)
        with self.tally.lock:
            self.tally.phases.append(Phase(name))
        return self.tally.now

    def back(self, phase: Phase, name: str) -> None:
        """Wait until the gateway has taken a site back by itself."""
        phase.back_s = wait_for(lambda: not self.gateway.states()[name].startswith("masked"))
        if phase.back_s is None:
            raise RuntimeError(f"{name} did not come back: {self.gateway.status()}")
        time.sleep(self.each_s / 4)

    def kill(self, name: str, *, empty: bool = False) -> None:
        """SIGKILL, and the same server again after a while."""
        phase = self.phase(f"{name} killed, back with {'empty' if empty else 'its'} disks")
        server = self.servers[name]
        server.kill9()
        time.sleep(self.each_s)
        if empty:
            shutil.rmtree(self.folder / name)
        server.start()
        self.back(phase, name)

    def hang(self, name: str) -> None:
        """SIGSTOP, and SIGCONT after a while."""
        phase = self.phase(f"{name} hangs")
        pid = self.servers[name].pid or 0
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(self.each_s)
        finally:
            os.kill(pid, signal.SIGCONT)
        self.back(phase, name)

    def run(self, steps: Sequence[str]) -> None:
        """One disaster after the other."""
        time.sleep(self.each_s)
        for step in steps:
            what, _, name = step.partition(":")
            if what == "gateway":
                self.phase("the gateway killed and started again")
                self.gateway.process.kill()
                self.gateway.process.wait()
                self.gateway.start()
                time.sleep(self.each_s)
            elif what == "hang":
                self.hang(name)
            else:
                self.kill(name, empty=what == "empty")
        self.load.end()
        self.phase("at the end")
        wait_for(lambda: len(self.tally.received) >= len(self.tally.confirmed), 30)
        time.sleep(2)

    def close(self) -> None:
        self.load.close()
        self.gateway.close()
        if self.links is not None:
            self.links.close()
        for one in self.servers.values():
            one.close()


def report(console: Console, disaster: Disaster, status: dict[str, Any]) -> int:
    """The table, and the exit code."""
    tally = disaster.tally
    table = Table(box=SIMPLE_HEAD)
    for heading in (
        "what was wrong",
        "confirmed",
        "received",
        "again",
        "longest publish",
        "longest gap",
        "back by itself",
    ):
        table.add_column(heading, justify="left" if heading.startswith("what") else "right")
    for one in tally.phases:
        back = "" if one.back_s is None else f"{one.back_s:.1f} s"
        table.add_row(
            one.name, f"{one.confirmed:,}", f"{one.received:,}", f"{one.twice:,}", f"{one.longest_s:.2f} s",
            f"{one.gap_s:.2f} s", back,
        )  # fmt: skip
    console.print(table)
    lost = sorted(tally.confirmed - tally.received.keys())
    twice = sum(count > 1 for count in tally.received.values())
    dual = status["dual"]
    console.print(
        f"{len(tally.confirmed):,} confirmed, {len(tally.received):,} received, {len(lost):,} lost, {twice:,} twice,"
        f" {len(tally.failed):,} publishes that failed."
    )
    console.print(
        f"The gateway copied {dual['copied']:,} messages to a site that lacked them, and kept back {dual['dropped']:,}"
        " that had been acknowledged before."
    )
    if twice:
        console.print("Twice: on their way, or unacknowledged, when the site that had lent or stored them was lost.")
    console.print("Nothing was lost." if not lost else f"LOST: {lost[:20]}")
    return 1 if lost or not tally.confirmed else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demonstration; the exit code."""
    parser = argparse.ArgumentParser(description="Two sites are lost in turn; no message is.")
    parser.add_argument("--short", action="store_true", help="about one minute")
    parser.add_argument("--rate", type=int, default=200, metavar="N", help="messages a second")
    parser.add_argument("--answer", choices=["degrade", "available", "strict"], default="degrade")
    parser.add_argument("--each", type=float, metavar="S", help="seconds that a site is away")
    parser.add_argument("--links", action="store_true", help="links with acknowledgements in place of a dual topic")
    parser.add_argument("--steps", help=f"what happens (default: {STEPS})")
    parser.add_argument("--keep", action="store_true", help="keep the folder with logs")
    options = parser.parse_args(arguments)
    console = Console() if sys.stdout.isatty() else Console(width=120)
    folder = Path(tempfile.mkdtemp(prefix="syncpoint-disaster-"))
    disaster: Disaster | None = None
    try:
        away_s = options.each or (4.0 if options.short else 15.0)
        disaster = Disaster(console, folder, options.answer, options.rate, away_s, links=options.links)
        steps = options.steps or (LINKED if options.links else STEPS)
        disaster.run(steps.split(","))
        return report(console, disaster, disaster.gateway.status())
    finally:
        if disaster is not None:
            disaster.close()
        if options.keep:
            console.print(f"Logs are in {folder}.")
        else:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
