"""Soak of a cluster: official clients work while its processes are killed, paused, stopped and started again.

Rounds as in tests/soak: a steady load over a plain, an ordered and an exactly-once subscription, a nemesis that breaks
processes of the chosen roles one after the other, then everything is received and the checkers judge.

    python -m tests.faults.soak --minutes 5 --roles publish-forwarder,storage,subscribe-forwarder,proxy,router,etcd

ends with a table, one line per round, and exit code 0 if every promise held.
"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from syncpoint.programs.clusters.local import LocalCluster, Shape
from syncpoint.testing.rigs import checkers, official
from syncpoint.testing.rigs.history import History
from syncpoint.testing.rigs.workload import LoadPublisher, Receiver, clean, furnish, rescue

DRAIN_SECONDS = 120.0
PAUSE_S = (0.5, 9.0)


class Nemesis(threading.Thread):
    """Breaks one process at a time; what it broke is whole again before it ends."""

    def __init__(self, cluster: LocalCluster, roles: list[str], every: float, chance: random.Random) -> None:
        super().__init__(name="nemesis", daemon=True)
        self.cluster, self.every, self.chance = cluster, every, chance
        self.victims = [one.name for one in cluster.states() if set(one.roles) & set(roles)]
        self.done: Counter[str] = Counter()
        self.stop = threading.Event()
        self.failure: Exception | None = None

    def run(self) -> None:
        while not self.stop.wait(self.chance.uniform(0.3, 1.7) * self.every):
            action = self.chance.choices(["kill", "stop", "pause"], [6, 2, 3])[0]
            name = self.chance.choice(self.victims)
            try:
                self.break_one(action, name)
            except Exception as error:
                self.failure = error
                return

    def break_one(self, action: str, name: str) -> None:
        self.done[action] += 1
        print(f"    {time.strftime('%H:%M:%S')} {action} {name}", flush=True)
        if action == "pause":
            self.cluster.pause(name)
            self.stop.wait(self.chance.uniform(*PAUSE_S))
            self.cluster.resume(name)
            return
        if action == "kill":
            self.cluster.kill(name)
        else:
            self.cluster.stop(name)
        self.stop.wait(self.chance.uniform(0.0, 4.0))
        self.cluster.start(name)

    def end(self) -> None:
        self.stop.set()
        if self.ident is not None:
            self.join()
        if self.failure is not None:
            raise self.failure


def run_round(cluster: LocalCluster, number: int, seconds: float, options: argparse.Namespace) -> bool:
    """One round; whether every promise held."""
    history = History()
    proxies = [one.address for one in cluster.states() if "proxy" in one.roles]
    api = official.Api(proxies[0])
    topic, names = furnish(api, history, number)
    publishers = [
        LoadPublisher(proxies[n % len(proxies)], history, topic, f"p{n}", options.rate / 3, keys=20 if n == 2 else 0)
        for n in range(3)
    ]
    receivers = [
        Receiver(proxies[n % len(proxies)], history, name, f"r-{kind}-{n}", confirm=kind == "once")
        for kind, name in names.items()
        for n in range(2 if kind != "ordered" else 1)
    ]
    nemesis = Nemesis(cluster, options.roles.split(","), options.every, random.Random(f"{options.seed}-{number}"))
    end = time.monotonic() + seconds
    for publisher in publishers:
        publisher.start()
    if options.every > 0:
        nemesis.start()
    while time.monotonic() < end and nemesis.failure is None:
        time.sleep(0.2)
    nemesis.end()
    for publisher in publishers:
        publisher.end()
    drained = time.monotonic() + DRAIN_SECONDS
    while any(history.missing(name, topic) for name in names.values()) and time.monotonic() < drained:
        time.sleep(0.2)
    stuck = {kind: len(history.missing(name, topic)) for kind, name in names.items()}
    for receiver in receivers:
        receiver.end()
    if any(stuck.values()):
        rescue(api, history, topic, names)
    verdicts = [checker(history) for checker in checkers.CHECKERS if checker is not checkers.sync_point]
    clean(api, topic, names)
    api.close()
    bad = [str(verdict) for verdict in verdicts if not verdict.good]
    counts = history.counts()
    print(f"round {number}: {dict(nemesis.done)} {counts} stuck {stuck} {'BROKEN' if bad else 'good'}", flush=True)
    for text in bad:
        print(text, flush=True)
    return not bad and not any(stuck.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--round-seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=300.0, help="messages per second in all")
    parser.add_argument("--every", type=float, default=6.0, help="seconds between faults on average; 0: none")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--roles", default="publish-forwarder,subscribe-forwarder,storage,proxy,router")
    parser.add_argument("--dir", type=Path, help="use this cluster's folder, and keep it")
    parser.add_argument("--forwarders", type=int, default=3)
    options = parser.parse_args()
    for noisy in ("google", "grpc"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    folder = options.dir or Path(tempfile.mkdtemp(prefix="syncpoint-cluster-"))
    cluster = LocalCluster(folder)
    good = True
    try:
        cluster.create(Shape(forwarders=options.forwarders))
        cluster.up()
        rounds = max(1, round(options.minutes * 60 / options.round_seconds))
        for number in range(1, rounds + 1):
            good &= run_round(cluster, number, options.minutes * 60 / rounds, options)
    finally:
        if good and options.dir is None:
            cluster.down()
            shutil.rmtree(folder, ignore_errors=True)
        else:
            cluster.down()
            print(f"the logs are in {folder / 'logs'}")
    print("every promise held" if good else "PROMISES BROKEN")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
