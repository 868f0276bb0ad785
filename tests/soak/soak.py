"""Soak: official clients work for as long as you like while the server is killed and restarted under them.

Work goes round by round. In a round three publishers (one of them with ordering keys) and receivers on three
subscriptions (plain, ordered, exactly once) run without a pause, while the nemesis ends the server with SIGKILL or
SIGTERM at random moments and starts it again. Then publishing stops, everything is received, and the checkers judge the
round. A fresh history per round keeps the memory of this program flat, so that what grows is the server.

    python -m tests.soak.soak --minutes 30

ends with a table, one line per round, and exit code 0 if every promise held and memory stayed flat.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path

from syncpoint.testing.server_process import ServerProcess
from tests.kit.soaking import DRAIN_SECONDS, Nemesis, RoundOutcome, quiet_clients, soak_round

MEMORY_GROWTH_MAX = 1.5
"""The highest memory of the last quarter of the rounds, over that of the first quarter, plus `MEMORY_SLACK_BYTES`."""
MEMORY_SLACK_BYTES = 40_000_000


class ServerNemesis(Nemesis):
    """Ends the server at random moments, hard or politely, and starts it again; or lets it hang for a while."""

    weights = {"kill": 6, "stop": 3, "hang": 2}

    def __init__(self, server: ServerProcess, every: float, seed: str) -> None:
        super().__init__(every, seed)
        self.server, self.longest_start_s = server, 0.0

    def break_one(self, action: str) -> None:
        if action == "hang":
            assert self.server.pid is not None
            os.kill(self.server.pid, signal.SIGSTOP)
            self.stop.wait(self.chance.uniform(0.5, 3.0))
            os.kill(self.server.pid, signal.SIGCONT)
            return
        if action == "kill":
            self.server.kill9()
        else:
            self.server.terminate()
        begun = time.monotonic()
        self.server.start()
        self.longest_start_s = max(self.longest_start_s, time.monotonic() - begun)


class Row:
    """One round, and its line of the table."""

    outcome: RoundOutcome
    disk: int

    def __init__(self, server: ServerProcess, number: int, options: argparse.Namespace) -> None:
        self.server, self.number, self.rate, self.memory = server, number, options.rate, 0
        self.nemesis = ServerNemesis(server, options.every, f"{options.seed}-{number}")

    def run(self, seconds: float) -> None:
        self.outcome = soak_round([self.server.endpoint], self.number, seconds, self.rate, self.nemesis, self.look)
        self.disk = size_of(self.server.data)

    def look(self) -> None:
        self.memory = max(self.memory, memory_of(self.server.pid))


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


HEAD = "round  published  unknown  deliveries    acks  kill  stop  hang  start s  memory MB  disk MB  verdict"


def line(row: Row) -> str:
    counts, done = row.outcome.counts, row.nemesis.done
    acks = counts.get("ack ok", 0) + counts.get("ack unknown", 0)
    broken = [one.name for one in row.outcome.verdicts if not one.good]
    if stuck := sum(row.outcome.stuck.values()):
        broken.append(f"{stuck} messages did not come within {DRAIN_SECONDS:g} s")
    verdict = "; ".join(broken) or "good"
    return (
        f"{row.number:5}  {counts.get('publish ok', 0):9}  {counts.get('publish unknown', 0):7}"
        f"  {counts.get('deliveries', 0):10}  {acks:6}  {done['kill']:4}  {done['stop']:4}  {done['hang']:4}"
        f"  {row.nemesis.longest_start_s:7.1f}  {row.memory / 1e6:9.0f}  {row.disk / 1e6:7.0f}  {verdict}"
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
    quiet_clients()
    server = ServerProcess()
    server.disks = [server.data / f"soak-disk-{number}" for number in range(options.disks)] if options.disks > 1 else []
    rows: list[Row] = []
    rounds = max(1, round(options.minutes * 60 / options.round_seconds))
    seconds = options.minutes * 60 / rounds
    try:
        server.start()
        print(HEAD, flush=True)
        for number in range(1, rounds + 1):
            rows.append(Row(server, number, options))
            rows[-1].run(seconds)
            print(line(rows[-1]), flush=True)
            for verdict in rows[-1].outcome.verdicts:
                if not verdict.good:
                    print(verdict, flush=True)
    finally:
        server.close()
    steady = flat(rows)
    good = all(row.outcome.good for row in rows)
    published = sum(row.outcome.counts.get("publish ok", 0) for row in rows)
    faults = sum(row.nemesis.done.total() for row in rows)
    outcome = "every promise held" if good else "PROMISES BROKEN"
    print(f"{published} messages over {faults} crashes, stops and hangs: {outcome}")
    print(f"memory: {'flat' if steady else 'GROWING'}")
    return 0 if good and steady and published else 1


if __name__ == "__main__":
    sys.exit(main())
