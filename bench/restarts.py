"""Does anything grow with restarts? Many starts of one server with 10,000 topics, every second one after kill -9.

Each life takes a message on some topics and acknowledges it, so every log has something to leave behind. Memory, files
and bytes are checked once the server serves; the figures are those of the first, the middle and the last tenth.

    python -m bench.restarts [--restarts 1000] [--topics 10000] [--idle 1] [--minutes 1000]
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from bench.harness import Bench
from bench.harness import number as rounded
from bench.process import Server

_RESTARTS = 1_000
_TOPICS = 10_000
_TOPIC = "projects/bench/topics/load"
_SUBSCRIPTION = "projects/bench/subscriptions/load"
_USED = 50  # topics of every life
_FIGURES = {"start": "s", "server RSS": "MB", "files": "files", "on disk": "MB", "allocated": "MB"}
_IDLE_SECONDS = 1  # of every life after its load: what upkeep does belongs to the figures
_MINUTES = 1_000  # after which it ends, whatever it has come to
_SHOWN = 20  # lives between two lines of how it goes


def main(argv: Sequence[str] | None = None) -> None:
    left, restarts = taken(list(sys.argv[1:] if argv is None else argv), "--restarts", _RESTARTS)
    left, topics = taken(left, "--topics", _TOPICS)
    left, idle = taken(left, "--idle", _IDLE_SECONDS)
    left, minutes = taken(left, "--minutes", _MINUTES)
    end = time.monotonic() + 60 * minutes
    with Bench.open("restarts", f"{restarts:,} restarts with {topics:,} topics", left) as b:
        data, lives = b.data(), list[dict[str, float]]()
        with b.server(data=data) as server:
            b.create(server, topics=topics, topic=_TOPIC, subscription=_SUBSCRIPTION)
            total = topics  # they are kept: every topic has a source in the first log
            b.load(server, "publish", topic=_TOPIC, topics=topics, batch=1, in_flight=64, total=total, size=100)
        for number in range(restarts):
            with b.server(data=data) as server:
                use(b, server, min(topics, _USED))
                time.sleep(idle)
                lives.append(seen(server, data))
                if number % _SHOWN == _SHOWN - 1:
                    b.console.print(f"{number + 1} lives:", shown(lives[-_SHOWN:]))
                if number % 2:
                    server.kill()
            if time.monotonic() > end:
                break
        tenth = max(1, len(lives) // 10)
        middle = (len(lives) - tenth) // 2
        for case, part in (
            (f"first {tenth}", lives[:tenth]),
            (f"middle {tenth}", lives[middle : middle + tenth]),
            (f"last {tenth}", lives[-tenth:]),
        ):
            for figure, unit in _FIGURES.items():
                b.row(case, figure, unit, [life[figure] for life in part])


def shown(lives: list[dict[str, float]]) -> str:
    """The medians of some lives, in one line."""
    return ", ".join(
        f"{figure} {rounded(median(life[figure] for life in lives))} {unit}" for figure, unit in _FIGURES.items()
    )


def taken(arguments: list[str], option: str, default: int) -> tuple[list[str], int]:
    """Takes a number option of this question alone out of the arguments."""
    if option not in arguments:
        return arguments, default
    at = arguments.index(option)
    return arguments[:at] + arguments[at + 2 :], int(arguments[at + 1])


def use(b: Bench, server: Server, topics: int) -> None:
    """A message on each of the first topics, received and acknowledged."""
    b.load(server, "e2e", topic=_TOPIC, subscription=_SUBSCRIPTION, topics=topics, batch=1, total=topics, size=100)


def seen(server: Server, data: Path) -> dict[str, float]:
    """What a life costs."""
    files = []
    for folder, _, names in os.walk(data):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # the server deletes in the meantime
                files.append(os.stat(os.path.join(folder, name)))
    return {
        "start": server.start_seconds,
        "server RSS": server.memory_bytes()["rss"] / 1e6,
        "files": float(len(files)),
        "on disk": sum(found.st_blocks * 512 for found in files) / 1e6,
        "allocated": sum(found.st_size for found in files) / 1e6,
    }


if __name__ == "__main__":
    main()
