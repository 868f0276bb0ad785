"""Soak: official clients work for as long as you like while the server is killed and restarted under them.

Work goes round by round. In a round three publishers (one of them with ordering keys) and receivers on three
subscriptions (plain, ordered, exactly once) run without a pause, while the nemesis ends the server with SIGKILL or
SIGTERM at random moments and starts it again. Then publishing stops, everything is received, and the checkers judge the
round. A fresh history per round keeps the memory of this program flat, so that what grows is the server.

    python tests/soak/soak.py --minutes 30

ends with a table, one line per round, and exit code 0 if every promise held and memory stayed flat.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import signal
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from syncpoint.testing.rigs import checkers, official
from syncpoint.testing.rigs.history import History
from syncpoint.testing.rigs.workload import LoadPublisher, Receiver, clean, furnish, rescue
from syncpoint.testing.server_process import ServerProcess

DRAIN_SECONDS = 120.0
MEMORY_GROWTH_MAX = 1.5
"""The highest memory of the last quarter of the rounds, over that of the first quarter, plus `MEMORY_SLACK_BYTES`."""
MEMORY_SLACK_BYTES = 40_000_000


@dataclass
class Row:
    """One line of the table."""

    number: int
    counts: dict[str, int] = field(default_factory=dict)
    kills: int = 0
    stops: int = 0
    hangs: int = 0
    longest_start_s: float = 0.0
    stuck: int = 0
    memory: int = 0
    disk: int = 0
    verdicts: list[checkers.CheckResult] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not self.stuck and all(verdict.good for verdict in self.verdicts)


class Nemesis(threading.Thread):
    """Ends the server at random moments, hard or politely, and starts it again; or lets it hang for a while."""

    def __init__(self, server: ServerProcess, row: Row, every: float, chance: random.Random) -> None:
        super().__init__(name="nemesis", daemon=True)
        self.server, self.row, self.every, self.chance = server, row, every, chance
        self.stop = threading.Event()
        self.failure: Exception | None = None

    def run(self) -> None:
        while not self.stop.wait(self.chance.uniform(0.3, 1.7) * self.every):
            action = self.chance.choices(["kill", "stop", "hang"], [6, 3, 2])[0]
            setattr(self.row, action + "s", getattr(self.row, action + "s") + 1)
            try:
                if action == "hang":
                    self.hang()
                    continue
                if action == "kill":
                    self.server.kill9()
                else:
                    self.server.terminate()
                begun = time.monotonic()
                self.server.start()
                self.row.longest_start_s = max(self.row.longest_start_s, time.monotonic() - begun)
            except Exception as error:
                self.failure = error
                return

    def hang(self) -> None:
        assert self.server.pid is not None
        os.kill(self.server.pid, signal.SIGSTOP)
        self.stop.wait(self.chance.uniform(0.5, 3.0))
        os.kill(self.server.pid, signal.SIGCONT)

    def end(self) -> None:
        self.stop.set()
        if self.ident is not None:
            self.join()
        if self.failure is not None:
            raise self.failure


def memory_of(pid: int | None) -> int:
    """Resident bytes of a process, 0 if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS")), 0)


def size_of(folder: Path) -> int:
    """Bytes of the files below a folder; files that vanish in the meantime count nothing."""
    total = 0
    for file in folder.rglob("*"):
        try:
            total += file.stat().st_size
        except FileNotFoundError:
            continue
    return total


def run_round(server: ServerProcess, row: Row, seconds: float, options: argparse.Namespace) -> None:
    """One round; fills `row`."""
    history = History()
    api = official.Api(server.endpoint)
    topic, names = furnish(api, history, row.number)
    publishers = [
        LoadPublisher(server.endpoint, history, topic, f"p{number}", options.rate / 3, keys=20 if number == 2 else 0)
        for number in range(3)
    ]
    receivers = [
        Receiver(server.endpoint, history, name, f"r-{kind}-{number}", confirm=kind == "once")
        for kind, name in names.items()
        for number in range(2 if kind != "ordered" else 1)
    ]
    nemesis = Nemesis(server, row, options.every, random.Random(f"{options.seed}-{row.number}"))
    end = time.monotonic() + seconds
    for publisher in publishers:
        publisher.start()
    if options.every > 0:
        nemesis.start()
    while time.monotonic() < end and nemesis.failure is None:
        time.sleep(0.5)
        row.memory = max(row.memory, memory_of(server.pid))
    nemesis.end()
    for publisher in publishers:
        publisher.end()
    drained = time.monotonic() + DRAIN_SECONDS
    while any(history.missing(name, topic) for name in names.values()) and time.monotonic() < drained:
        time.sleep(0.2)
    row.stuck = sum(len(history.missing(name, topic)) for name in names.values())
    for receiver in receivers:
        receiver.end()
    if row.stuck:
        rescue(api, history, topic, names)
    row.memory = max(row.memory, memory_of(server.pid))
    row.disk = size_of(server.data)
    row.counts = history.counts()
    row.verdicts = [checker(history) for checker in checkers.CHECKERS if checker is not checkers.sync_point]
    clean(api, topic, names)
    api.close()


HEAD = "round  published  unknown  deliveries    acks  kill  stop  hang  start s  memory MB  disk MB  verdict"


def line(row: Row) -> str:
    counts = row.counts
    acks = counts.get("ack ok", 0) + counts.get("ack unknown", 0)
    broken = [one.name for one in row.verdicts if not one.good]
    if row.stuck:
        broken.append(f"{row.stuck} messages did not come within {DRAIN_SECONDS:g} s")
    verdict = "; ".join(broken) or "good"
    return (
        f"{row.number:5}  {counts.get('publish ok', 0):9}  {counts.get('publish unknown', 0):7}"
        f"  {counts.get('deliveries', 0):10}  {acks:6}  {row.kills:4}  {row.stops:4}  {row.hangs:4}"
        f"  {row.longest_start_s:7.1f}  {row.memory / 1e6:9.0f}  {row.disk / 1e6:7.0f}  {verdict}"
    )


def flat(rows: list[Row]) -> bool:
    """Whether the server's memory in the last quarter of the rounds is about that of the first."""
    quarter = max(1, len(rows) // 4)
    before = max(row.memory for row in rows[:quarter])
    after = max(row.memory for row in rows[-quarter:])
    return after <= before * MEMORY_GROWTH_MAX + MEMORY_SLACK_BYTES


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long to run, without the drains")
    parser.add_argument("--round-seconds", type=float, default=60.0, help="length of one round")
    parser.add_argument("--rate", type=float, default=600.0, help="messages published per second in all")
    parser.add_argument("--every", type=float, default=8.0, help="seconds between restarts on average; 0: none")
    parser.add_argument("--seed", type=int, default=1, help="of the nemesis")
    parser.add_argument("--disks", type=int, default=1, help="folders the server writes to (odd)")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    for noisy in ("google", "grpc"):  # what they say about lost connections and expired leases is what is tested here
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    server = ServerProcess()
    server.disks = [server.data / f"soak-disk-{number}" for number in range(options.disks)] if options.disks > 1 else []
    rows: list[Row] = []
    rounds = max(1, round(options.minutes * 60 / options.round_seconds))
    seconds = options.minutes * 60 / rounds
    try:
        server.start()
        print(HEAD, flush=True)
        for number in range(1, rounds + 1):
            rows.append(Row(number))
            run_round(server, rows[-1], seconds, options)
            print(line(rows[-1]), flush=True)
            for verdict in rows[-1].verdicts:
                if not verdict.good:
                    print(verdict, flush=True)
    finally:
        server.close()
    steady = flat(rows)
    good = all(row.good for row in rows)
    published = sum(row.counts.get("publish ok", 0) for row in rows)
    faults = sum(row.kills + row.stops + row.hangs for row in rows)
    outcome = "every promise held" if good else "PROMISES BROKEN"
    print(f"{published} messages over {faults} crashes, stops and hangs: {outcome}")
    print(f"memory: {'flat' if steady else 'GROWING'}")
    return 0 if good and steady and published else 1


if __name__ == "__main__":
    sys.exit(main())
