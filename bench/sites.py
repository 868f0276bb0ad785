"""Two sites that exchange acknowledgements: how far these lag, and what is delivered again when a site is killed.

Two servers and `syncpoint federation run` with `acks: true`. Messages are published and consumed at A, most at once,
some seconds later; B is watched. Then A is killed with SIGKILL, consumers go on at B, and A comes back. Beside it, of
the same history: what would have been delivered again if a position (everything before the first message that is not
acknowledged) had been copied each 1, 5 and 30 s, as brokers do that replicate positions.

Usage: python -m bench.sites [--seconds 40] [--rate 500] [--in-order]
"""

from __future__ import annotations

import argparse
import contextlib
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import yaml

from syncpoint.base.kernel.acks import decode_runs
from syncpoint.front.client.client import Client
from syncpoint.testing.rigs.official import Api
from syncpoint.testing.server_process import ServerProcess
from syncpoint.wire.protobuf.messages import pipeline

PROJECT, TOPIC, SUBSCRIPTION = "shop", "projects/shop/topics/orders", "projects/shop/subscriptions/billing"
FLOW = "shop.a-b.orders"
SNAPSHOTS_S = (1.0, 5.0, 30.0)
LATER = ((0.94, 0.0), (0.05, 2.0), (0.01, 15.0))  # share of messages, and after how long they are acknowledged
IN_ORDER = ((1.0, 0.0),)


@dataclass
class History:
    """When each message, by its offset at A, was acknowledged there, and when B knew."""

    acked: dict[int, float] = field(default_factory=dict)
    known: dict[int, float] = field(default_factory=dict)

    def again(self, at: float) -> int:
        """Messages that B would deliver again if A were lost then."""
        return sum(then <= at and self.known.get(offset, at + 1) > at for offset, then in self.acked.items())

    def again_by_position(self, at: float, every_s: float) -> int:
        """The same, with a position copied at each multiple of some seconds."""
        copied = at - at % every_s
        prefix = 0
        while self.acked.get(prefix, copied + 1) <= copied:
            prefix += 1
        return sum(then <= at and offset >= prefix for offset, then in self.acked.items())


class Drive:
    """Publishes and consumes at A, and watches B."""

    def __init__(self, servers: Sequence[ServerProcess], rate: int, later: Sequence[tuple[float, float]]) -> None:
        self.servers, self.rate, self.later, self.history = servers, rate, later, History()
        self.stopping = threading.Event()
        self.random = random.Random(1)
        self.threads = [
            threading.Thread(target=self.until_killed, args=(one,), daemon=True)
            for one in (self.publish, self.consume, self.watch)
        ]

    def until_killed(self, work: Callable[[], None]) -> None:
        with contextlib.suppress(grpc.RpcError):  # A is gone
            work()

    def publish(self) -> None:
        api, number = Api(self.servers[0].endpoint), 0
        begun = time.monotonic()
        while not self.stopping.is_set():
            due = int((time.monotonic() - begun) * self.rate)
            if due > number:
                messages = [{"data": b"%d" % one} for one in range(number, min(due, number + 500))]
                api.publish({"topic": TOPIC, "messages": messages})
                number += len(messages)
            self.stopping.wait(0.01)
        api.close()

    def consume(self) -> None:
        api = Api(self.servers[0].endpoint)
        later: list[tuple[float, Any]] = []
        while not self.stopping.is_set():
            answer = api.pull({"subscription": SUBSCRIPTION, "max_messages": 500, "return_immediately": True})
            now = time.monotonic()
            for one in answer.received_messages:
                lot, after = self.random.random(), 0.0
                for share, seconds in self.later:
                    after = seconds
                    lot -= share
                    if lot < 0:
                        break
                later.append((now + after, one))
            due = [one for at, one in later if at <= now]
            later = [(at, one) for at, one in later if at > now]
            if due:
                api.acknowledge({"subscription": SUBSCRIPTION, "ack_ids": [one.ack_id for one in due]})
                confirmed = time.monotonic()
                for one in due:
                    self.history.acked.setdefault(int(one.message.message_id[-12:]), confirmed)
            self.stopping.wait(0.01)
        api.close()

    def watch(self) -> None:
        known: dict[int, Any] = {}
        with Client(self.servers[1].endpoint) as client:
            while not self.stopping.is_set():
                request = pipeline.AckChangesRequest(subscription=SUBSCRIPTION, link=FLOW, known=known.values())
                answer = client.call("AckExchange.AckChanges", request)
                now = time.monotonic()
                for one in answer.sources:
                    known[one.source] = pipeline.KnownAcks(source=one.source, count=one.count, prefix=one.prefix)
                    for begin, length in decode_runs(one.runs):
                        for offset in range(begin, begin + length):
                            self.history.known.setdefault(offset, now)
                self.stopping.wait(0.02)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--rate", type=int, default=500, help="messages per second")
    parser.add_argument("--in-order", action="store_true", help="acknowledge everything at once")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        servers = [ServerProcess(Path(folder) / name).start() for name in "ab"]
        file = Path(folder) / "federation.yaml"
        clusters = {name: {"endpoint": one.endpoint} for name, one in zip("ab", servers, strict=True)}
        namespaces = {PROJECT: {"clusters": ["a", "b"], "acks": True}}
        file.write_text(
            yaml.safe_dump({"version": 1, "clusters": clusters, "namespaces": namespaces, "runtime": {"warm": True}})
        )
        for one in servers:
            api = Api(one.endpoint)
            api.create_topic({"name": TOPIC})
            api.create_subscription({"name": SUBSCRIPTION, "topic": TOPIC, "ack_deadline_seconds": 600})
            api.close()
        run = subprocess.Popen(
            [sys.executable, "-m", "syncpoint.programs.cli", "federation", "run", str(file), "--quiet"]
        )
        try:
            measure(servers, options.seconds, options.rate, IN_ORDER if options.in_order else LATER)
        finally:
            run.terminate()
            run.wait(60)
            for one in servers:
                one.close()


def measure(servers: Sequence[ServerProcess], seconds: float, rate: int, later: Sequence[tuple[float, float]]) -> None:
    """All figures, printed."""
    with Client(servers[1].endpoint) as client:
        api = Api(servers[0].endpoint)
        api.publish({"topic": TOPIC, "messages": [{"data": b"first"}]})
        while not client.call("EpochWriter.ListLinks", pipeline.ListLinksRequest(name=FLOW)).links:
            time.sleep(0.2)
        api.close()
    time.sleep(6.0)  # until the exchange has found the subscriptions
    drive = Drive(servers, rate, later)
    for one in drive.threads:
        one.start()
    time.sleep(seconds)
    servers[0].kill9()
    killed = time.monotonic()
    drive.stopping.set()
    time.sleep(2.0)
    history = drive.history
    measured = {offset: at for offset, at in history.acked.items() if offset in history.known}
    lags = sorted(history.known[offset] - at for offset, at in measured.items())
    print(f"\n{len(history.acked):,} acknowledged at A, {rate} messages/s; B knew {len(measured):,} when A was killed")
    p50, p99 = percentile(lags, 0.5), percentile(lags, 0.99)
    print(f"lag of acknowledgements: p50 {p50:.2f} s, p99 {p99:.2f} s, most {lags[-1]:.2f} s")
    delivered = consume_all(servers[1])
    again = [offset for offset in delivered if history.acked.get(offset, killed + 1) <= killed]
    print(f"A was killed: B delivered {len(delivered):,}, {len(again):,} of them acknowledged at A before")
    begun = min(history.acked.values())
    moments = [begun + 5 + 0.25 * step for step in range(int((killed - begun - 5) * 4))]
    print("delivered again, if A is lost at any moment:      mean       most   at the kill")
    rows = [("exchanged exactly", [history.again(at) for at in moments], history.again(killed))]
    for every_s in SNAPSHOTS_S:
        found = [history.again_by_position(at, every_s) for at in moments]
        rows.append((f"position each {every_s:g} s", found, history.again_by_position(killed, every_s)))
    for name, found, at_kill in rows:
        print(f"  {name:<40}{sum(found) / max(1, len(found)):>14,.0f}{max(found, default=0):>11,}{at_kill:>14,}")
    servers[0].start()
    time.sleep(12.0)
    back = consume_all(servers[0])
    twice = set(back) & (set(delivered) | set(history.acked))
    print(f"A came back: it delivered {len(back):,}, {len(twice):,} of them acknowledged at A or B before")


def consume_all(server: ServerProcess) -> list[int]:
    """Pull and acknowledge until nothing comes for three seconds; offsets at A."""
    api, found, last = Api(server.endpoint), list[int](), time.monotonic()
    while time.monotonic() - last < 3.0:
        answer = api.pull({"subscription": SUBSCRIPTION, "max_messages": 1000, "return_immediately": True})
        if answer.received_messages:
            last = time.monotonic()
            ids = [one.ack_id for one in answer.received_messages]
            api.acknowledge({"subscription": SUBSCRIPTION, "ack_ids": ids})
            found += [int(one.message.message_id[-12:]) for one in answer.received_messages]
        else:
            time.sleep(0.1)
    api.close()
    return found


def percentile(rising: Sequence[float], share: float) -> float:
    return rising[min(len(rising) - 1, int(share * len(rising)))] if rising else 0.0


if __name__ == "__main__":
    main()
