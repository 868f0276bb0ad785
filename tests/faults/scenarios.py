"""Faults of networks, disks, metadata and clocks, one scenario after the other on one cluster, under load, judged.

    python tests/faults/scenarios.py [--seed 1] [--only cut-owner flapping] [--seconds 10] [--list]

Every scenario begins with a whole cluster and a fresh load of official clients (plain, ordered and exactly-once
subscriptions), breaks something in a way the seed decides, mends it, waits until everything confirmed has arrived, and
has the checkers judge the history. Ends with a table; exit code 0 if every promise held. Needs root, see `net_cluster`.
"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))
from cluster_kit import Kit, Load  # helpers beside the tests; they are imported by path
from net_cluster import FAKETIME, NetCluster, why_not

from syncpoint.node.cluster.local import Shape
from syncpoint.testing import checkers
from syncpoint.testing.history import Outcome

SHAPE = Shape(clusters=3, disks=3, forwarders=3, routers=1, proxies=2, etcd=3)
SCENARIOS: dict[str, Scenario] = {}


@dataclass
class Stage:
    """What a scenario works with. `seconds` is how long a fault lasts."""

    kit: Kit
    net: NetCluster
    load: Load
    chance: random.Random
    seconds: float

    def one(self, role: str) -> str:
        """A process of a role, by lot."""
        return self.chance.choice(self.kit.names(role))

    def owner(self) -> str:
        """A publish forwarder that has a chain of the load's topic open, as far as can be asked."""
        return self.chance.choice([one.owner for one in self.kit.chains() if one.owner])

    def wait(self, share: float = 1.0) -> None:
        time.sleep(self.seconds * share)

    def flowing(self) -> None:
        """Messages are confirmed and delivered although something is broken."""
        self.load.flows(0.0, 30.0)


@dataclass(frozen=True)
class Scenario:
    name: str
    what: str
    act: Callable[[Stage], None]
    needs: Callable[[], bool] = lambda: True


def scenario(name: str, needs: Callable[[], bool] = lambda: True) -> Callable[[Callable[[Stage], None]], None]:
    def add(act: Callable[[Stage], None]) -> None:
        SCENARIOS[name] = Scenario(name, (act.__doc__ or "").strip(), act, needs)

    return add


# -- networks ----------------------------------------------------------------------------------------------------------


@scenario("cut-storage")
def _(stage: Stage) -> None:
    """one cluster's storage is cut off: acknowledgements go on"""
    stage.net.cut_off(stage.one("storage"))
    stage.flowing()
    stage.wait()


@scenario("cut-two-storages")
def _(stage: Stage) -> None:
    """two clusters are cut off: acknowledgements wait, and come when one is back"""
    names = stage.chance.sample(stage.kit.names("storage"), 2)
    for name in names:
        stage.net.cut_off(name)
    time.sleep(1.0)
    before = stage.load.confirmed()
    stage.wait(0.5)
    assert stage.load.confirmed() <= before + 30, "confirmed without a majority of clusters"
    stage.net.mend(names[0])
    stage.flowing()


@scenario("cut-owner")
def _(stage: Stage) -> None:
    """a publish forwarder is cut off from everything, replaced, and comes back as a zombie"""
    stage.net.cut_off(stage.owner())
    stage.flowing()
    stage.wait()


@scenario("owner-without-metadata")
def _(stage: Stage) -> None:
    """a bridge: an owner reaches its disks but no longer etcd, so its lease ends while it writes"""
    etcd = stage.kit.names("etcd")
    stage.net.part([stage.owner()], etcd)
    stage.flowing()
    stage.wait()


@scenario("owner-without-disks")
def _(stage: Stage) -> None:
    """a bridge: an owner reaches etcd but only one cluster's disks"""
    stage.net.part([stage.owner()], stage.chance.sample(stage.kit.names("storage"), 2))
    stage.wait()


@scenario("deaf-owner")
def _(stage: Stage) -> None:
    """asymmetric: what an owner sends arrives, it hears nothing"""
    stage.net.cut(stage.owner())
    stage.flowing()
    stage.wait()


@scenario("halves")
def _(stage: Stage) -> None:
    """one proxy and one subscribe forwarder are parted from one publish forwarder"""
    those = [stage.one("proxy"), stage.one("subscribe-forwarder")]
    stage.net.part([stage.owner()], those)
    stage.wait()


@scenario("cut-subscribe-forwarder")
def _(stage: Stage) -> None:
    """a subscribe forwarder is cut off: its messages are redelivered by others"""
    stage.net.cut_off(stage.one("subscribe-forwarder"))
    stage.flowing()
    stage.wait()


@scenario("flapping")
def _(stage: Stage) -> None:
    """somebody's network goes and comes every second"""
    names = [name for role in ("storage", "publish-forwarder", "subscribe-forwarder") for name in stage.kit.names(role)]
    name = stage.chance.choice(names)
    for _ in range(max(3, int(stage.seconds / 2))):
        stage.net.cut_off(name)
        time.sleep(1.0)
        stage.net.mend(name)
        time.sleep(1.0)


@scenario("packet-loss")
def _(stage: Stage) -> None:
    """every fifth packet into two storage processes and one forwarder is lost"""
    for name in (*stage.chance.sample(stage.kit.names("storage"), 2), stage.one("publish-forwarder")):
        stage.net.lose(name, 0.2)
    stage.wait()


@scenario("resets")
def _(stage: Stage) -> None:
    """connections of a storage process and of a subscribe forwarder are reset again and again"""
    for _ in range(3):
        names = [stage.one("storage"), stage.one("subscribe-forwarder")]
        for name in names:
            stage.net.tables(name, "-A", "INPUT", "-p", "tcp", "-j", "REJECT", "--reject-with", "tcp-reset")
        stage.wait(0.15)
        for name in names:
            stage.net.mend(name)
        stage.wait(0.15)


# -- disks -------------------------------------------------------------------------------------------------------------


def disk_of(stage: Stage, storage: str) -> str:
    return f"/{storage.removeprefix('storage-')}-d{stage.chance.randint(1, 3)}/"


@scenario("write-errors")
def _(stage: Stage) -> None:
    """writes to one disk of each cluster give EIO"""
    for storage, faults in stage.net.faults.items():
        faults.set(f"write {disk_of(stage, storage)} 3 -1 eio")
    stage.flowing()
    stage.wait()


@scenario("one-sync-error")
def _(stage: Stage) -> None:
    """one sync gives EIO and all later ones pretend that nothing was"""
    for storage, faults in stage.net.faults.items():
        faults.set(f"sync {disk_of(stage, storage)} 5 1 eio")
    stage.flowing()
    stage.wait(0.7)


@scenario("full-disks")
def _(stage: Stage) -> None:
    """one cluster's disks are full, and one disk of another"""
    first, second = stage.chance.sample(stage.kit.names("storage"), 2)
    stage.net.faults[first].set("write /disks/ 0 -1 enospc", "allocate /disks/ 0 -1 enospc")
    stage.net.faults[second].set(f"write {disk_of(stage, second)} 0 -1 enospc")
    stage.flowing()
    stage.wait()


@scenario("slow-disks")
def _(stage: Stage) -> None:
    """every sync of one cluster takes 400 ms, of one disk of another 3 s"""
    first, second = stage.chance.sample(stage.kit.names("storage"), 2)
    stage.net.faults[first].set("sync /disks/ 0 -1 slow 400")
    stage.net.faults[second].set(f"sync {disk_of(stage, second)} 0 -1 slow 3000")
    stage.flowing()
    stage.wait()


@scenario("lying-disk-and-crash")
def _(stage: Stage) -> None:
    """one disk of each cluster lies about syncing; owners and a storage process are killed"""
    for storage, faults in stage.net.faults.items():
        faults.set(f"sync {disk_of(stage, storage)} 0 -1 lie")
    stage.wait(0.3)
    for name in (stage.owner(), stage.one("storage")):
        stage.kit.local.kill(name)
        stage.wait(0.2)
    stage.flowing()


@scenario("torn-writes")
def _(stage: Stage) -> None:
    """a storage process dies in the middle of a write, another one at a sync"""
    first, second = stage.chance.sample(stage.kit.names("storage"), 2)
    stage.net.faults[first].set(f"write /disks/ {stage.chance.randint(5, 60)} 1 torn")
    stage.wait(0.4)
    stage.net.faults[first].set()
    if stage.kit.local.state(first).state == "down":
        stage.kit.local.start(first)
    stage.net.faults[second].set(f"sync /disks/ {stage.chance.randint(5, 60)} 1 die")
    stage.wait(0.4)


# -- metadata ----------------------------------------------------------------------------------------------------------


def etcd_leader(stage: Stage) -> str:
    """The member that leads, by its own word."""
    import json
    import urllib.request

    for one in stage.net.states():
        if one.name.startswith("etcd") and one.state == "running":
            request = urllib.request.Request(f"http://{one.address}/v3/maintenance/status", b"{}")
            status = json.load(urllib.request.urlopen(request, timeout=2))
            if status["leader"] == status["header"]["member_id"]:
                return one.name
    return stage.one("etcd")


@scenario("etcd-leader-killed")
def _(stage: Stage) -> None:
    """the leader of etcd dies; a publish forwarder dies while there is none"""
    stage.kit.local.kill(etcd_leader(stage))
    stage.kit.local.kill(stage.one("publish-forwarder"))
    stage.flowing()
    stage.wait(0.5)


@scenario("etcd-leader-paused")
def _(stage: Stage) -> None:
    """the leader of etcd hangs, and comes back"""
    leader = etcd_leader(stage)
    stage.kit.local.pause(leader)
    stage.flowing()
    stage.wait()
    stage.kit.local.resume(leader)
    stage.wait(0.3)


@scenario("etcd-quorum-lost")
def _(stage: Stage) -> None:
    """two of three members hang: what is open goes on"""
    names = stage.chance.sample(stage.kit.names("etcd"), 2)
    for name in names:
        stage.kit.local.pause(name)
    stage.flowing()
    stage.wait(1.5)
    stage.flowing()


@scenario("etcd-gone")
def _(stage: Stage) -> None:
    """all of etcd is killed: what is open goes on"""
    for name in stage.kit.names("etcd"):
        stage.kit.local.kill(name)
    stage.flowing()
    stage.wait(1.5)
    stage.flowing()


# -- clocks ------------------------------------------------------------------------------------------------------------


@scenario("clocks", needs=FAKETIME.exists)
def _(stage: Stage) -> None:
    """wall clocks jump by up to an hour, forwards and back, everywhere"""
    names = [name for name in stage.net.addresses if not name.startswith("etcd")]
    for _ in range(4):
        for name in stage.chance.sample(names, 5):
            stage.net.shift(name, stage.chance.choice([-3600, -600, -30, 30, 600, 3600]))
        stage.wait(0.25)


# -- processes ---------------------------------------------------------------------------------------------------------


@scenario("pairs")
def _(stage: Stage) -> None:
    """two processes at once are killed, again and again"""
    for _ in range(2):
        victims = stage.chance.sample([name for name in stage.net.addresses if not name.startswith("etcd")], 2)
        for name in victims:
            stage.kit.local.kill(name)
        stage.wait(0.3)
        for name in victims:
            stage.kit.local.start(name)
        stage.wait(0.1)


@scenario("long-pauses")
def _(stage: Stage) -> None:
    """an owner and a subscribe forwarder hang for longer than any lease, and wake up"""
    names = [stage.owner(), stage.one("subscribe-forwarder")]
    for name in names:
        stage.kit.local.pause(name)
    stage.wait()
    for name in names:
        stage.kit.local.resume(name)
    stage.wait(0.5)


def play(kit: Kit, net: NetCluster, one: Scenario, options: argparse.Namespace) -> tuple[bool, str]:
    """One scenario; whether every promise held, and its line of the table."""
    kit.settle(90.0)
    chance = random.Random(f"{options.seed}-{one.name}")
    problems: list[str] = []
    load = Load(kit, rate=options.rate)
    begun = time.monotonic()
    try:
        with load:
            stage = Stage(kit, net, load, chance, options.seconds)
            with net.broken():
                one.act(stage)
            load.flows(1.0, 60.0)
    except Exception as error:
        problems.append(f"{type(error).__name__}: {error}")
    verdicts = [checker(load.history) for checker in checkers.CHECKERS]
    problems += [str(verdict) for verdict in verdicts if not verdict.good]
    counts = load.history.counts()
    unsure = sum(one.outcome is not Outcome.OK for one in load.history.publishes)
    gaps = " ".join(f"{gap:5.1f}" for gap in load.gaps)
    line = (
        f"{one.name:<24}{'good' if not problems else 'BROKEN':<8}{time.monotonic() - begun:6.0f} s"
        f"{counts.get('publish ok', 0):8}{unsure:6}{counts['deliveries']:8}  {gaps}"
    )
    for text in problems:
        print(text, flush=True)
    return not problems, line


HEAD = f"{'scenario':<24}{'verdict':<8}{'took':>8}{'ok':>8}{'else':>6}{'got':>8}  gap of keyless and keyed publishes, s"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long a fault lasts")
    parser.add_argument("--rate", type=float, default=150.0, help="messages per second")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--dir", type=Path, help="keep the cluster's folder here")
    options = parser.parse_args()
    if options.list:
        for one in SCENARIOS.values():
            print(f"{one.name:<24}{one.what}")
        return 0
    unknown = set(options.only) - SCENARIOS.keys()
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; --list names them all")
    if why_not():
        print(f"not run: {why_not()}")
        return 0
    chosen = [one for one in SCENARIOS.values() if (one.name in options.only or not options.only) and one.needs()]
    folder = options.dir or Path(tempfile.mkdtemp(prefix="syncpoint-faults-"))
    net = NetCluster(folder)
    lines, good = [], True
    try:
        kit = Kit(folder, SHAPE, local=net).up()
        print(HEAD, flush=True)
        for one in chosen:
            held, line = play(kit, net, one, options)
            lines.append(line)
            good &= held
            print(line, flush=True)
    finally:
        net.close()
    logging.disable()  # clients that are being stopped complain
    print("", HEAD, *lines, sep="\n")
    if good and options.dir is None:
        shutil.rmtree(folder)
    else:
        print(f"the logs are in {folder / 'logs'}")
    print("every promise held" if good else "PROMISES BROKEN")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
