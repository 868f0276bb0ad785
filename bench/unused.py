"""What do features cost that nobody uses? The server's CPU per message, of two source trees in turns.

    git worktree add ../before COMMIT && (cd ../before && PYTHONPATH=src python -m syncpoint.base.kernel.build)
    python -m bench unused --before ../before --runs 9

Sources from before there were wings have `syncpoint.kernel.build`. Both servers are up all the time, on the same
core; who is first changes from pair to pair. What counts is the median of the pairs' quotients: what disturbs one of
a pair mostly disturbs the other, too. The load is of this package's own client, so it needs no compiler; it is slower
than the generator of other questions, which both trees bear alike.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from selectors import SelectSelector
from statistics import median, quantiles
from typing import Any

from bench.harness import Bench, Run, Target
from bench.machine import ROOT
from bench.process import Failed, Server
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pubsub
from syncpoint.wire.transport.client import Channel

CASES: dict[str, tuple[int, int, int, int]] = {  # bytes, messages per Publish, in flight, requests a second (0: any)
    "100 B by 100": (100, 100, 8, 0),
    "1 KB by 100": (1024, 100, 8, 0),
    "1 KB singly": (1024, 1, 64, 0),
    "1 KB singly, 1,000 a second": (1024, 1, 1, 1000),
    "1 KB singly, 100 a second": (1024, 1, 1, 100),
}
MORE_MAX = 1.03
TOPIC, SUBSCRIPTION = "projects/bench/topics/unused", "projects/bench/subscriptions/unused"


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print the table."""
    title = "unused features: server CPU per message published, delivered and acknowledged, two source trees in turns"
    with Bench.open("unused", title, argv) as b:
        if not b.options.before:
            raise Failed("--before names the source tree to compare with")
        before = Path(b.options.before).resolve()
        if not list((before / "src/syncpoint").glob("**/kernel/*.so")):
            raise Failed(f"the kernel in {before} is not built: python -m syncpoint.base.kernel.build with its sources")
        names = f"{_commit(before)} before, {_commit(ROOT)} now"
        with b.server(tree=before) as old, b.server() as new:
            for server in (old, new):
                asyncio.run(make(server.address))
                for case in CASES:
                    _run(b, server, case, 1.0)
            for case in CASES:
                pairs = [_pair(b, old, new, case, turn % 2 == 1) for turn in range(b.options.runs)]
                figures = [[run["server_cpu_us_per_msg"] for run in runs] for runs in zip(*pairs, strict=True)]
                b.row(case, "CPU per message, before", "µs", figures[0])
                b.row(case, "CPU per message, now", "µs", figures[1])
                quotients = [now / then for then, now in zip(*figures, strict=True)]
                lowest, middle = min(figures[1]) / min(figures[0]), median(figures[1]) / median(figures[0])
                if CASES[case][3]:
                    for then, runs in zip(("before", "now"), zip(*pairs, strict=True), strict=True):
                        b.row(case, f"publish p50, {then}", "ms", [run["publish_p50_ms"] for run in runs])
                note = f"of the lowest {lowest:.3f}, of the medians {middle:.3f}; {names}"
                b.row(case, "now / before, by pairs", "", quotients, Target(MORE_MAX), note)


def _pair(b: Bench, old: Server, new: Server, case: str, turned: bool) -> tuple[Run, Run]:
    """A run of each, `turned`: the new one first."""
    b.disk.run()
    runs = [_run(b, one, case, b.options.seconds) for one in ((new, old) if turned else (old, new))]
    return (runs[1], runs[0]) if turned else (runs[0], runs[1])


def _run(b: Bench, server: Server, case: str, seconds: float) -> Run:
    return b.measured(load_line(server.address, *CASES[case], seconds), server, seconds + 60.0)


def _commit(tree: Path) -> str:
    asked = ["git", "-C", str(tree), "describe", "--always", "--dirty", "--exclude=*"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return done.stdout.strip() or tree.name


# -- the load ----------------------------------------------------------------------------------------------------------


def load_line(address: str, size: int, messages: int, in_flight: int, rate: int, seconds: float) -> list[str]:
    """The command that runs `load` in a process of its own."""
    numbers = map(str, (size, messages, in_flight, rate, seconds))
    return [sys.executable, "-m", "bench.unused", "load", address, *numbers]


async def make(address: str) -> None:
    """A topic and a subscription."""
    channel = _channel(address)
    subscription = pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC, ack_deadline_seconds=60)
    made: tuple[tuple[methods.Method, Any], ...] = (
        (methods.PUBLISHER.CreateTopic, pubsub.Topic(name=TOPIC)),
        (methods.SUBSCRIBER.CreateSubscription, subscription),
    )
    for path, request in made:
        await channel.unary(path, request.SerializeToString())
    await channel.close()


async def load(address: str, size: int, messages: int, in_flight: int, rate: int, seconds: float) -> Run:
    """Publish for so long, receive and acknowledge all of it; what a load generator reports. With a `rate` each request
    begins when it is due, however many are under way.
    """
    publisher, subscriber = _channel(address), _channel(address)
    stream = subscriber.stream(methods.SUBSCRIBER.StreamingPull)
    first = pubsub.StreamingPullRequest(subscription=SUBSCRIPTION, stream_ack_deadline_seconds=60)
    await stream.send(first.SerializeToString())
    body = pubsub.PubsubMessage(data=bytes(size))
    request = pubsub.PublishRequest(topic=TOPIC, messages=[body] * messages).SerializeToString()
    begin, published, received = time.monotonic(), 0, set[str]()
    end, latencies = begin + seconds, list[float]()
    over = asyncio.Event()

    async def publish_one(due: float) -> None:
        nonlocal published
        await publisher.unary(methods.PUBLISHER.Publish, request, timeout=60.0)
        published += messages
        latencies.append(time.monotonic() - due)

    async def publish() -> None:
        while (now := time.monotonic()) < end:
            await publish_one(now)

    async def publish_when_due() -> None:
        async with asyncio.TaskGroup() as under_way:
            for number in range(int(seconds * rate)):
                due = begin + number / rate
                await asyncio.sleep(due - time.monotonic())
                under_way.create_task(publish_one(due))

    async def receive() -> None:
        while not (over.is_set() and len(received) >= published):
            found = pubsub.StreamingPullResponse.FromString(await stream.receive() or b"").received_messages
            received.update(one.message.message_id for one in found)
            acknowledged = pubsub.StreamingPullRequest(ack_ids=[one.ack_id for one in found])
            await stream.send(acknowledged.SerializeToString())

    receiving = asyncio.ensure_future(receive())
    await (publish_when_due() if rate else asyncio.gather(*(publish() for _ in range(in_flight))))
    over.set()
    if len(received) < published:
        async with asyncio.timeout(60):
            await receiving
    receiving.cancel()
    await asyncio.sleep(0.05)  # the last acknowledgements leave
    stream.cancel()
    await asyncio.gather(publisher.close(), subscriber.close())
    missing, cpu = published - len(received), time.process_time()
    slowest = quantiles(latencies, n=100)
    return {
        "published": published, "received": len(received), "missing": missing, "errors": 0,
        "generator_cpu_seconds": cpu, "publish_p50_ms": 1000 * slowest[49], "publish_p99_ms": 1000 * slowest[98],
    }  # fmt: skip


def _channel(address: str) -> Channel:
    host, _, port = address.rpartition(":")
    return Channel(host, int(port))


if __name__ == "__main__":
    if sys.argv[1:2] == ["load"]:
        numbers = sys.argv[3:7]
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(SelectSelector())) as runner:  # exact sleeps
            print(json.dumps(runner.run(load(sys.argv[2], *map(int, numbers), float(sys.argv[7])))))
    else:
        main()
