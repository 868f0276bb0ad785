"""Races of CreateSubscription against publishers over many forwarders, while more of these come and go.

    python -m tests.faults.races --races 2000 --minutes 8

Publishers send one message after the other to a few topics, each message by one plain call. Creators make one
subscription after the other. Whatever a Publish began to send after CreateSubscription had returned must arrive at
that subscription: of every race the next messages of its topic are waited for, one by one. In the meantime publish
forwarders are added and drained, so that chains open sources of a topic while its subscriptions are being created.
Ends with a table; exit code 0 if nothing was missed.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import grpc

from syncpoint.base.model.identity import log_of, parse_message_id
from syncpoint.programs.clusters.local import LocalCluster, Shape
from syncpoint.testing.rigs import official
from syncpoint.testing.rigs.history import History, MessageIdentity, Outcome, Publish, unseal
from syncpoint.testing.rigs.history import seal as sealed
from syncpoint.testing.rigs.official import eventually
from tests.kit.clusters import Kit

SHAPE = Shape(clusters=1, disks=1, forwarders=2, routers=1, proxies=2)
FURTHER = ("publish-forwarder-3", "publish-forwarder-4", "publish-forwarder-5")
TOPICS = 6
PROJECT = "projects/races"


class Races:
    """All that goes on at once. `missed` has a sentence for every broken promise."""

    def __init__(self, kit: Kit, owed: int) -> None:
        self.kit, self.owed = kit, owed
        self.history = History()
        self.published: dict[str, list[Publish]] = {}  # by topic, in about the order they began
        self.logs: set[int] = set()
        self.done = self.checked = 0
        self.refused: Counter[str] = Counter()
        self.missed: list[str] = []
        self.started = 0
        self.stop = threading.Event()
        self.quiet = threading.Event()  # no more races; those that run need publishers still
        self.errors: list[Exception] = []
        self._lock, self._numbers = threading.Lock(), itertools.count()

    def furnish(self) -> None:
        """The topics."""
        api = official.Api(self.kit.proxies[0])
        for number in range(TOPICS):
            self.published[api.create_topic({"name": f"{PROJECT}/topics/topic-{number}"}).name] = []
        api.close()

    def publish(self, number: int) -> None:
        """One publisher: one message at a time, a topic after the other, until asked to stop."""
        api = official.Api(self.kit.proxies[number % len(self.kit.proxies)])
        topics, client, count = list(self.published), f"p{number}", 0
        while not self.stop.wait(0.01):
            topic, identity = topics[(number + count) % TOPICS], MessageIdentity(client, count)
            count += 1
            operation = self.history.publishing(topic, identity)
            self.published[topic].append(operation)
            try:
                answer = api.publish({"topic": topic, "messages": [{"data": sealed(identity)}]}, timeout=15)
            except grpc.RpcError as error:
                self.refused[f"publish {error.code().name}"] += 1
                self.history.end(operation, Outcome.UNKNOWN)
            else:
                self.history.published(operation, answer.message_ids[0])
                self.logs.add(log_of(parse_message_id(answer.message_ids[0]).source))
        api.close()

    def create(self, number: int) -> None:
        """One creator: one race after the other."""
        api = official.Api(self.kit.proxies[number % len(self.kit.proxies)])
        topics = list(self.published)
        while not self.quiet.is_set():
            serial = next(self._numbers)
            self._race(api, f"{PROJECT}/subscriptions/sub-{serial}", topics[serial % TOPICS])
        api.close()

    def _race(self, api: official.Api, name: str, topic: str) -> None:
        operation = self.history.creating(name, topic)
        begin = len(self.published[topic])
        try:
            api.create_subscription({"name": name, "topic": topic}, timeout=30)
        except grpc.RpcError as error:  # it promised nothing; asked again under the same name it might have existed
            self.refused[f"create {error.code().name}"] += 1
            return
        self.history.end(operation, Outcome.OK)
        due: set[MessageIdentity] = set()

        def confirmed() -> bool:
            ours = [one for one in self.published[topic][begin:] if one.begun > operation.ended][: self.owed]
            due.update(one.identity for one in ours if one.outcome is Outcome.OK)
            return len(ours) == self.owed and all(one.ended for one in ours)

        eventually(confirmed, 60.0, f"{self.owed} messages are published after {name}")
        seen: set[MessageIdentity | None] = set()
        end = time.monotonic() + 60.0
        while due - seen and time.monotonic() < end:
            try:
                got = api.pull({"subscription": name, "max_messages": 500}, timeout=5).received_messages
            except grpc.RpcError as error:
                self.refused[f"pull {error.code().name}"] += 1
                continue
            seen |= {unseal(one.message.data) for one in got}
        with self._lock:
            self.done += 1
            self.checked += len(due)
            self.missed += [f"{name} of {topic} never got {one}" for one in sorted(due - seen)]
        if not due - seen:
            api.delete_subscription({"subscription": name}, timeout=30)

    def grow(self) -> None:
        """Further publish forwarders come, get chains, and are drained again."""
        for name in FURTHER:
            self.kit.add_process(name, "publish-forwarder", rack="k9")
        while not self.quiet.is_set():
            for name in FURTHER:
                self.kit.local.start(name)
                self.started += 1
                self._until(lambda name=name: any(one.owner == name for one in self.kit.chains()), 60)
                self.quiet.wait(2.0)
            for name in FURTHER:
                self.kit.local.stop(name)
                self.quiet.wait(1.0)

    def _until(self, holds: Callable[[], bool], seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self.quiet.is_set() and not holds() and time.monotonic() < end:
            self.quiet.wait(0.2)

    def guarded(self, work: Callable[[], None]) -> Callable[[], None]:
        """What goes wrong with the scenario itself ends it."""

        def run() -> None:
            try:
                work()
            except Exception as error:
                self.errors.append(error)
                self.quiet.set()

        return run


def play(races: Races, options: argparse.Namespace) -> None:
    """All of it, until there were enough races or the time is over."""
    races.furnish()
    publishing = [threading.Thread(target=races.guarded(lambda n=n: races.publish(n))) for n in range(options.clients)]
    creating = [threading.Thread(target=races.guarded(lambda n=n: races.create(n))) for n in range(options.creators)]
    growing = threading.Thread(target=races.guarded(races.grow))
    begun = time.monotonic()
    for thread in (*publishing, *creating, growing):
        thread.start()
    reported = begun
    while races.done < options.races and time.monotonic() - begun < options.minutes * 60 and not races.quiet.is_set():
        time.sleep(0.2)
        if time.monotonic() - reported > 30:
            reported = time.monotonic()
            print(f"    {time.strftime('%H:%M:%S')} {races.done} races, {races.started} starts", flush=True)
    races.quiet.set()
    for thread in (*creating, growing):
        thread.join()
    races.stop.set()
    for thread in publishing:
        thread.join()
    print(
        f"{races.done} races in {time.monotonic() - begun:.0f} s against {len(races.history.publishes)} publishes into"
        f" {len(races.logs)} logs; {races.started} starts of publish forwarders; {races.checked} messages waited for;"
        f" refused {dict(races.refused)}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--races", type=int, default=2000)
    parser.add_argument("--minutes", type=float, default=15.0, help="end after so long, whatever was reached")
    parser.add_argument("--creators", type=int, default=12)
    parser.add_argument("--clients", type=int, default=6, help="publishers")
    parser.add_argument("--owed", type=int, default=8, help="messages after each creation that are waited for")
    options = parser.parse_args()
    logging.getLogger("grpc").setLevel(logging.CRITICAL)
    folder = Path(tempfile.mkdtemp(prefix="syncpoint-races-"))
    cluster = LocalCluster(folder)
    races: Races | None = None
    good = False
    try:
        races = Races(Kit(folder, SHAPE, local=cluster).up(), options.owed)
        play(races, options)
        good = not races.missed and not races.errors and races.done > 0
    finally:
        cluster.down(remove=good)
    for text in (*races.missed[:20], *map(repr, races.errors)):
        print(text)
    print("nothing was missed" if good else f"BROKEN; the logs are in {folder / 'logs'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
