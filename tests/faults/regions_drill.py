"""A drill of two regions and a branch between them: deadlines of messages with and without federation, and a hub.

Usage: python -m tests.faults.regions_drill [faults|partitions|hub]... [--seconds 5,30]; without words, all of them.
Rows of tables are printed as they come; the program ends with 1 when one is not as it is to be. It needs Java, and
takes some 15 minutes; --seconds 300 adds long faults.

The branch publishes a message each 0.2 s, and each has 3 s to be stored and handled by a processor. Without federation
there is one region and its processor. With it, the branch has both regions' endpoints (`EdgePublisher`), each region
has a processor, and topics are copied to and fro (all-active); processors share what they have handled by identity.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import grpc
import yaml

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.client.edge_publisher import EdgePublisher
from syncpoint.front.client.switching_receiver import MESSAGE_ID
from syncpoint.testing.rigs.official import Api, eventually
from syncpoint.testing.server_process import ServerProcess
from syncpoint.wire.protobuf import methods
from tests.kit.relay import FaultyRelay, RelayFault
from tests.kit.wire import BLACK_HOLE, PASS, REFUSE, Wire

TOPIC, SUBSCRIPTION = "projects/branch/topics/gate", "projects/branch/subscriptions/gate"
WIDE = "projects/wide/topics/news"
CONSUMERS, MESSAGES, SIZE, WIDE_S = 4, 1000, 1024, 0.05
SINGLY = 20  # messages taken one by one
DEADLINE_S, PAUSE_S, CALM_S = 3.0, 0.2, 3.0
PARTED_S = 15.0
BUSY_MISSED = 2  # deadlines that a busy machine misses without any fault
NAMES = ("eu", "us")
STOPPED = "stopped processor"
UNNAMED = "name that is not found"
FAULTS = (UNNAMED, "black hole", "errors (5xx)", STOPPED)
PROBE_S = 0.1


def consumer(number: int) -> str:
    """A subscription of the topic that goes over the wide wire."""
    return f"projects/wide/subscriptions/consumer-{number}"


class Processor(threading.Thread):
    """Handles what a region's subscription has, each identity once over all processors that share `handled`."""

    def __init__(self, endpoint: str, handled: dict[str, float], again: Counter[str]) -> None:
        super().__init__(daemon=True)
        self.api, self.handled, self.again = Api(endpoint), handled, again
        self.stopped, self.ends = threading.Event(), threading.Event()

    def run(self) -> None:
        while not self.ends.is_set():
            if self.stopped.is_set():
                time.sleep(PROBE_S)
                continue
            with contextlib.suppress(grpc.RpcError):
                found = self.api.pull({"subscription": SUBSCRIPTION, "max_messages": 100}, timeout=2).received_messages
                for one in found:
                    identity = one.message.attributes[MESSAGE_ID]
                    if identity in self.handled:
                        self.again[identity] += 1
                    self.handled.setdefault(identity, time.monotonic())
                if found:
                    ack_ids = [one.ack_id for one in found]
                    self.api.acknowledge({"subscription": SUBSCRIPTION, "ack_ids": ack_ids}, timeout=5)

    def close(self) -> None:
        self.ends.set()
        self.join()
        self.api.close()


@dataclass
class Outcome:
    """Of one run."""

    sent: int = 0
    missed: int = 0
    refused: int = 0  # of these: no place said that it is stored
    again: int = 0
    left: int = 0  # stored, and handled by nobody in the end

    @property
    def text(self) -> str:
        return f"{self.missed} of {self.sent} ({self.refused} not stored in time)"


@dataclass
class Branch:
    """Two regions, and the wires between them and the branch."""

    servers: dict[str, ServerProcess]
    relays: dict[str, FaultyRelay]
    wires: dict[str, Wire]
    between: Wire
    unnamed: set[str] = field(default_factory=set)  # ports whose names are not found

    @contextlib.contextmanager
    def names(self) -> Iterator[None]:
        """Names of places are looked up as always, until they are among `unnamed`."""
        known = socket.getaddrinfo

        def looked_up(host: Any, port: Any, *others: Any, **named: Any) -> Any:
            if str(port) in self.unnamed:
                raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
            return known(host, port, *others, **named)

        with mock.patch("socket.getaddrinfo", looked_up):
            yield

    def run(self, seconds: float, fault: Callable[[dict[str, Processor]], Callable[[], None]], both: bool) -> Outcome:
        """Publish before, while and after a fault; `fault` brings it about and returns what ends it."""
        handled: dict[str, float] = {}
        again: Counter[str] = Counter()
        used = NAMES if both else NAMES[:1]
        processors = {name: Processor(self.servers[name].endpoint, handled, again) for name in used}
        places = {name: f"localhost:{self.wires[name].endpoint.rpartition(':')[2]}" for name in used}
        sent: dict[str, float] = {}
        stored: set[str] = set()

        def publish(number: int) -> None:
            identity = f"{id(sent)}-{number}"
            sent[identity] = time.monotonic()
            with contextlib.suppress(SyncpointError):
                edge.publish(b"paid", attributes={MESSAGE_ID: identity})
                stored.add(identity)

        for one in processors.values():
            one.start()
        with (
            self.names(),
            EdgePublisher(places, TOPIC, deadline_s=DEADLINE_S) as edge,
            ThreadPoolExecutor(64) as pool,
        ):
            numbers = itertools.count()

            def load(for_s: float) -> None:
                end = time.monotonic() + for_s
                while time.monotonic() < end:
                    pool.submit(publish, next(numbers))
                    time.sleep(PAUSE_S)

            load(CALM_S)
            heal = fault(processors)
            load(seconds)
            heal()
            load(CALM_S)
        with contextlib.suppress(AssertionError):
            eventually(lambda: stored <= handled.keys(), 60.0)
        for one in processors.values():
            one.close()
        late = [one for one, at in sent.items() if handled.get(one, at + 2 * DEADLINE_S) - at > DEADLINE_S]
        return Outcome(
            len(sent),
            len(late),
            len(sent.keys() - stored),
            sum(again.values()),
            len(stored - handled.keys()),
        )

    def fault(self, kind: str) -> Callable[[dict[str, Processor]], Callable[[], None]]:
        """One that hits the first region alone."""
        wire, relay = self.wires["eu"], self.relays["eu"]

        def begin(processors: dict[str, Processor]) -> Callable[[], None]:
            if kind == STOPPED:
                processors["eu"].stopped.set()
                return processors["eu"].stopped.clear
            if kind == UNNAMED:
                self.unnamed.add(wire.endpoint.rpartition(":")[2])
                wire.set(REFUSE)
                wire.set(PASS)  # connections are gone, and a new one needs the name
                return self.unnamed.clear
            if kind == "black hole":
                wire.set(BLACK_HOLE)
                return lambda: wire.set(PASS)
            relay.faults.append(RelayFault(methods.PUBLISHER.Publish, error=Code.INTERNAL))
            return relay.faults.clear

        return begin

    def parted(self, cuts: tuple[bool, bool, bool]) -> Callable[[dict[str, Processor]], Callable[[], None]]:
        """The branch from each region, and the regions from each other."""
        wires = [wire for wire, cut in zip((*self.wires.values(), self.between), cuts, strict=True) if cut]

        def begin(_: dict[str, Processor]) -> Callable[[], None]:
            for wire in wires:
                wire.set(REFUSE)
            return lambda: [wire.set(PASS) for wire in wires] and None

        return begin


@contextlib.contextmanager
def branch(folder: Path) -> Iterator[Branch]:
    """Everything up, copies under way."""
    with contextlib.ExitStack() as stack:
        servers = {name: stack.enter_context(ServerProcess(folder / name)) for name in NAMES}
        for server in servers.values():
            api = Api(server.endpoint)
            api.create_topic({"name": TOPIC, "message_retention_duration": {"seconds": 86_400}})
            api.create_subscription({"name": SUBSCRIPTION, "topic": TOPIC, "ack_deadline_seconds": 60})
            api.create_topic({"name": WIDE, "message_retention_duration": {"seconds": 86_400}})
            for number in range(CONSUMERS):
                api.create_subscription({"name": consumer(number), "topic": WIDE, "ack_deadline_seconds": 600})
            api.close()
        relays = {name: stack.enter_context(FaultyRelay(server.endpoint)) for name, server in servers.items()}
        wires = {name: stack.enter_context(Wire(relay.endpoint)) for name, relay in relays.items()}
        between = stack.enter_context(Wire(servers["eu"].endpoint))
        file = folder / "federation.yaml"
        endpoints = {"eu": between.endpoint, "us": servers["us"].endpoint}
        content = {
            "version": 1,
            "clusters": {name: {"endpoint": endpoint} for name, endpoint in endpoints.items()},
            "tasks": {
                "gates": {"pattern": "all-active", "project": "branch", "clusters": list(NAMES), "topics": ["gate"]},
                "hub": {"pattern": "replicate", "from": {"cluster": "eu", "topic": WIDE}, "to": {"cluster": "us"}},
            },
        }
        file.write_text(yaml.safe_dump(content))
        with (folder / "federation.out").open("w") as out:
            command = [sys.executable, "-m", "syncpoint.programs.cli", "federation", "run", "--quiet", str(file)]
            program = subprocess.Popen(command, stdout=out, stderr=out)
        try:
            made = Branch(servers, relays, wires, between)
            copied = made.run(0.0, lambda _: lambda: None, both=True)  # the first copies take long: Spark begins
            eventually(lambda: made.run(0.0, lambda _: lambda: None, both=True).missed == 0, 300.0, "copies under way")
            assert copied.left == 0
            yield made
        finally:
            program.terminate()
            program.wait(120)


def header(*columns: str) -> None:
    """The first lines of a table."""
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)


def few(both: Outcome, alone: Outcome) -> bool:
    """Whether with both regions hardly any deadline is missed, also where one alone misses many."""
    return both.missed <= max(BUSY_MISSED, alone.missed // 10)


def faults(made: Branch, seconds: list[float]) -> bool:
    """One region is ill in four ways."""
    header("fault of one region", "for", "missed with that region alone", "missed with both", "seen twice")
    good = True
    for kind, for_s in itertools.product(FAULTS, seconds):
        alone = made.run(for_s, made.fault(kind), both=False)
        both = made.run(for_s, made.fault(kind), both=True)
        good &= alone.missed > 0 and few(both, alone) and both.left == alone.left == 0
        print(f"| {kind} | {for_s:g} s | {alone.text} | {both.text} | {both.again} |", flush=True)
    return good


def partitions(made: Branch) -> bool:
    """The matrix of three wires."""
    header("branch-eu", "branch-us", "eu-us", "missed with eu alone", "missed with both", "seen twice")
    good = True
    for cuts in itertools.product((False, True), repeat=3):
        alone = made.run(PARTED_S, made.parted(cuts), both=False)
        both = made.run(PARTED_S, made.parted(cuts), both=True)
        reached = not (cuts[0] and cuts[1])
        good &= both.left == alone.left == 0 and (not reached or few(both, alone))
        wires = " | ".join("cut" if cut else "whole" for cut in cuts)
        print(f"| {wires} | {alone.text} | {both.text} | {both.again} |", flush=True)
    return good


def beside_consumers(made: Branch) -> bool:
    """Consumers far from the publisher: each over the wide wire, or all from a copy beside them."""
    text = b"n" * SIZE
    made.between.delay_s = WIDE_S
    far, near = Api(made.servers["eu"].endpoint), Api(made.servers["us"].endpoint)
    with Wire(made.servers["eu"].endpoint, delay_s=WIDE_S) as wide:
        remote = Api(wide.endpoint)
        before = made.between.bytes_back
        for _ in range(MESSAGES // 100):
            far.publish({"topic": WIDE, "messages": [{"data": text}] * 100})
        taken = {
            name: [received(api, one) for one in range(CONSUMERS)] for name, api in (("hub", near), ("wide", remote))
        }
        carried = {"hub": made.between.bytes_back - before, "wide": wide.bytes_back}
        paid = {}
        for name, api in (("hub", near), ("wide", remote)):
            far.publish({"topic": WIDE, "messages": [{"data": text}] * SINGLY})
            time.sleep(CALM_S)  # copied by now, or the first one pays for it
            begun = time.monotonic()
            for _ in range(SINGLY):
                assert received(api, 0, 1) == 1
            paid[name] = (time.monotonic() - begun) / SINGLY
            for number in range(1, CONSUMERS):
                received(api, number, SINGLY)
        for api in (far, near, remote):
            api.close()
    made.between.delay_s = 0.0
    whole = MESSAGES * SIZE
    header("consumers", "bytes over the wide wire, of those published", "a message taken and acknowledged singly")
    for name, what in (("wide", f"{CONSUMERS} over the wide wire"), ("hub", f"{CONSUMERS} at the hub")):
        print(f"| {what} | {carried[name] / whole:.2f} | {1000 * paid[name]:.0f} ms |", flush=True)
    all_there = all(count == MESSAGES for counts in taken.values() for count in counts)
    less = carried["hub"] < 1.5 * whole and carried["wide"] > CONSUMERS * whole
    return all_there and less and paid["hub"] < 2 * WIDE_S < 4 * WIDE_S <= paid["wide"]  # one round trip, two


def received(api: Api, number: int, count: int = MESSAGES) -> int:
    """Take and acknowledge so many messages of a consumer's subscription."""
    found, end = 0, time.monotonic() + 120
    while found < count and time.monotonic() < end:
        request = {"subscription": consumer(number), "max_messages": count - found}
        with contextlib.suppress(grpc.RpcError):
            messages = api.pull(request, timeout=5).received_messages
            if messages:
                ack_ids = [one.ack_id for one in messages]
                api.acknowledge({"subscription": consumer(number), "ack_ids": ack_ids}, timeout=30)
            found += len(messages)
    return found


def main() -> int:
    """The program. Returns the exit code."""
    parts: dict[str, Callable[[Branch], bool]] = {"partitions": partitions, "hub": beside_consumers}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="|".join(["faults", *parts]))
    parser.add_argument("--seconds", default="5,30", help="how long faults last")
    given = parser.parse_args()
    seconds = [float(one) for one in given.seconds.split(",")]
    with tempfile.TemporaryDirectory() as folder, branch(Path(folder)) as made:
        good = True
        for name in given.parts or ["faults", *parts]:
            print(f"\n{name}", flush=True)
            good &= faults(made, seconds) if name == "faults" else parts[name](made)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
