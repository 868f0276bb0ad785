"""Soak of a cluster: official clients work while its processes are killed, paused, stopped and started again.

Rounds as in tests/soak: a steady load over a plain, an ordered and an exactly-once subscription, a nemesis that breaks
processes of the chosen roles one after the other, then everything is received and the checkers judge.

    python -m tests.faults.soak --minutes 5 --roles publish-forwarder,storage,subscribe-forwarder,proxy,router,etcd

ends with a table, one line per round, and exit code 0 if every promise held.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from syncpoint.programs.clusters.local import LocalCluster, Shape
from tests.kit.soaking import Nemesis, quiet_clients, soak_round

PAUSE_S = (0.5, 9.0)


class ClusterNemesis(Nemesis):
    weights = {"kill": 6, "stop": 2, "pause": 3}

    def __init__(self, cluster: LocalCluster, roles: list[str], every: float, seed: str) -> None:
        super().__init__(every, seed)
        self.cluster = cluster
        self.victims = [one.name for one in cluster.states() if set(one.roles) & set(roles)]

    def break_one(self, action: str) -> None:
        name = self.chance.choice(self.victims)
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


def run_round(cluster: LocalCluster, number: int, seconds: float, options: argparse.Namespace) -> bool:
    """One round; whether every promise held."""
    proxies = [one.address for one in cluster.states() if "proxy" in one.roles]
    nemesis = ClusterNemesis(cluster, options.roles.split(","), options.every, f"{options.seed}-{number}")
    outcome = soak_round(proxies, number, seconds, options.rate, nemesis)
    result = "good" if outcome.good else "BROKEN"
    print(f"round {number}: {dict(nemesis.done)} {outcome.counts} stuck {outcome.stuck} {result}", flush=True)
    for verdict in outcome.verdicts:
        if not verdict.good:
            print(verdict, flush=True)
    return outcome.good


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
    quiet_clients()
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
