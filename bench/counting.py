"""What do counting and tracing cost? The server's CPU per message, of servers that differ in this alone, in turns.

    python -m bench counting --runs 8

One server counts (as every server does) and traces nothing; it is compared with one whose counters were taken out
(`uncounted`), and with servers that trace to a collector on this machine: at ratio 0 (only what a client traces, and
nobody here does), 0.01 and 1. All are up all the time, on the same core; who is first changes from round to round. What
counts is the median of the rounds' quotients: what disturbs one of a round mostly disturbs the others, too. A busy
machine disturbs all of them by far more than counting costs; so that is also worked out from its parts: what each kind
of counting takes alone (`count_costs`), times how often `/metrics` says that it happened, beside the lowest CPU of a
run.

Then the text of `/metrics` at 10,000 topics with a subscription each, all of them with messages, read each 5 seconds:
CPU of the server beside that of as many seconds without anybody who reads.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import urllib.request
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Any

from bench import uncounted
from bench.count_costs import KINDS, costs
from bench.harness import Bench, Run, Target
from bench.process import Failed, Server
from bench.unused import TOPIC, load_line, make
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pubsub
from syncpoint.wire.transport.client import Channel

CASES: dict[str, tuple[int, int, int]] = {  # bytes, messages per Publish, in flight
    "100 B by 100": (100, 100, 8),
    "100 B singly": (100, 1, 64),
}
COUNTED, UNCOUNTED = "counted, not traced", "not counted"
RATIOS = (0.0, 0.01, 1.0)
COUNTING_MAX, PARTS_MAX = 1.02, 0.02
TOPICS, READ_EACH_S, READS, TEXT_MAX = 10_000, 5.0, 6, 0.01
BUSY_CORES = 0.2  # of others: more than that is said to have been a busy machine


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print the table."""
    title = "counting and tracing: server CPU per message published, delivered and acknowledged, in turns"
    with Bench.open("counting", title, argv) as b, Collector() as collector:
        servers = {COUNTED: _server(b), UNCOUNTED: _server(b, program=[str(Path(uncounted.__file__))])}
        for ratio in RATIOS:
            servers[f"traced at ratio {ratio:g}"] = _server(b, "--otlp", collector.url, "--trace-ratio", str(ratio))
        try:
            _per_message(b, servers)
        finally:
            for server in servers.values():
                server.stop()
        _texts(b)


def _server(b: Bench, *arguments: str, program: Sequence[str] = ("-m", "syncpoint.programs.cli")) -> Server:
    command = [sys.executable, *program, "serve"]
    return Server(b.data(), core=b.options.server_core, arguments=arguments, command=command)


def _per_message(b: Bench, servers: dict[str, Server]) -> None:
    for server in servers.values():
        asyncio.run(make(server.address))
        for case in CASES:
            _run(b, server, case, 1.0)
    for name, server in servers.items():
        counted = _number(server.address, "syncpoint_publish_messages_total")
        if bool(counted) == (name == UNCOUNTED):
            raise Failed(f"the server {name!r} says that it published {counted:g} messages")
    names = list(servers)
    for case in CASES:
        figures: dict[str, list[float]] = {name: [] for name in names}
        before, messages = _happened(servers[COUNTED].address), 0
        for turn in range(b.options.runs):
            first = turn % len(names)
            for name in names[first:] + names[:first]:
                run = _run(b, servers[name], case, b.options.seconds)
                figures[name].append(run["server_cpu_us_per_msg"])
                messages += run["published"] * (name == COUNTED)
        after = _happened(servers[COUNTED].address)
        each = {kind: seconds * (after[kind] - before[kind]) / messages * 1e6 for kind, seconds in costs().items()}
        for name, values in figures.items():
            b.row(case, f"CPU per message, {name}", "µs", values)
        pairs = [("counting", COUNTED, UNCOUNTED), *((name, name, COUNTED) for name in names[2:])]
        for what, more, less in pairs:
            quotients = [one / other for one, other in zip(figures[more], figures[less], strict=True)]
            note = f"of the lowest {min(figures[more]) / min(figures[less]):.3f}"
            target = Target(COUNTING_MAX) if what == "counting" else None
            b.row(case, f"{what}: {more} / {less}", "", quotients, target, note)
        parts = ", ".join(f"{kind} {part * 1e3:.1f} ns" for kind, part in each.items())
        b.row(case, "counting, by its parts", "µs", sum(each.values()), None, parts)
        share = sum(each.values()) / min(figures[COUNTED])
        b.row(case, "the same, of the lowest CPU per message", "", share, Target(PARTS_MAX))
    others = median(run["other_cpu_share"] for run in b.runs)
    b.row("all", "cores used by others", "", others, None, "busy" if others > BUSY_CORES else "quiet")


def _run(b: Bench, server: Server, case: str, seconds: float) -> Run:
    return b.measured(load_line(server.address, *CASES[case], 0, seconds), server, seconds + 120.0)


def _texts(b: Bench) -> None:
    """The text at many topics, by turns with as long a time in which nobody reads."""
    with _server(b) as server:
        asyncio.run(_topics(server.address))
        time.sleep(2 * READ_EACH_S)
        read: list[float] = []
        idle: list[float] = []
        for _ in range(READS):
            for shares, reads in ((idle, False), (read, True)):
                before, began = server.cpu_seconds(), time.monotonic()
                if reads:
                    size = len(_text(server.address))
                time.sleep(READ_EACH_S)
                shares.append((server.cpu_seconds() - before) / (time.monotonic() - began))
        case = f"/metrics, {TOPICS:,} topics and subscriptions"
        b.row(case, "core used, read each 5 s", "", read)
        b.row(case, "core used, not read", "", idle)
        costs = [one - other for one, other in zip(read, idle, strict=True)]
        b.row(case, "core that reading costs", "", costs, Target(TEXT_MAX), f"a text of {size:,} bytes")


async def _topics(address: str) -> None:
    host, _, port = address.rpartition(":")
    channel, limit = Channel(host, int(port)), asyncio.Semaphore(64)

    async def one(number: int) -> None:
        topic = f"{TOPIC}-{number}"
        subscription = pubsub.Subscription(name=f"projects/bench/subscriptions/s-{number}", topic=topic)
        published = pubsub.PublishRequest(topic=topic, messages=[pubsub.PubsubMessage(data=bytes(100))])
        calls: tuple[tuple[methods.Method, Any], ...] = (
            (methods.PUBLISHER.CreateTopic, pubsub.Topic(name=topic)),
            (methods.SUBSCRIBER.CreateSubscription, subscription),
            (methods.PUBLISHER.Publish, published),
        )
        async with limit:
            for path, request in calls:
                await channel.unary(path, request.SerializeToString(), timeout=120.0)

    await asyncio.gather(*map(one, range(TOPICS)))
    await channel.close()


def _text(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
        text: str = answer.read().decode()
    return text


def _number(address: str, name: str) -> float:
    """The sum of a name's samples; with labels in the name, of those that have exactly these."""
    begin = (f"{name} ", f"{name}{{")
    return sum(float(line.rpartition(" ")[2]) for line in _text(address).splitlines() if line.startswith(begin))


def _happened(address: str) -> dict[str, float]:
    return {kind: _number(address, sample) for kind, sample in KINDS.items()}


class Collector:
    """Takes what servers export, and forgets it. `url`: where it listens."""

    def __init__(self) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> Collector:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


if __name__ == "__main__":
    main()
