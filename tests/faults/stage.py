"""What scenarios are made of: a cluster that can be broken, a load on it, and how one is played and judged."""

from __future__ import annotations

import argparse
import random
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from syncpoint.programs.clusters.local import Shape
from syncpoint.testing.rigs import checkers
from syncpoint.testing.rigs.history import Outcome
from tests.faults.net_cluster import NetCluster
from tests.kit.clusters import Kit, Load

SHAPE = Shape(clusters=3, disks=3, forwarders=3, routers=1, proxies=2, etcd=3)
SCENARIOS: dict[str, Scenario] = {}
HEAD = f"{'scenario':<24}{'verdict':<8}{'took':>8}{'ok':>8}{'else':>6}{'got':>8}  gap of keyless and keyed publishes, s"


@dataclass
class Stage:
    """What a scenario works with. `seconds` is how long a fault lasts; `notes` are reported beside its line."""

    kit: Kit
    net: NetCluster
    load: Load
    chance: random.Random
    seconds: float
    notes: list[str] = field(default_factory=list)

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
    """`shape`: of the cluster it is played on. `topic`: further fields of the load's topic."""

    name: str
    what: str
    act: Callable[[Stage], None]
    needs: Callable[[], bool] = lambda: True
    shape: Shape = SHAPE
    topic: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Played:
    """What came of a scenario. `line`: what is printed; `unsure`: publishes whose outcome the client does not know."""

    name: str
    what: str
    good: bool
    line: str
    seconds: float
    confirmed: int
    unsure: int
    delivered: int
    gaps: list[float]
    notes: list[str]


def scenario(name: str, **options: Any) -> Callable[[Callable[[Stage], None]], None]:
    """Enter a function as a scenario; its docstring is what the list shows. `options`: see `Scenario`."""

    def add(act: Callable[[Stage], None]) -> None:
        SCENARIOS[name] = Scenario(name, " ".join((act.__doc__ or "").split()), act, **options)

    return add


def play(kit: Kit, net: NetCluster, one: Scenario, options: argparse.Namespace) -> Played:
    """One scenario."""
    kit.stabilize(90.0)
    chance = random.Random(f"{options.seed}-{one.name}")
    problems: list[str] = []
    for faults in net.faults.values():
        faults.unmet.clear()
    load = Load(kit, rate=options.rate, topic=one.topic)
    stage = Stage(kit, net, load, chance, options.seconds)
    begun = time.monotonic()
    try:
        with load:
            try:
                with net.broken():
                    one.act(stage)
            except Exception as error:  # reported; whether anything was lost is judged all the same
                traceback.print_exc()
                problems.append(f"{type(error).__name__}: {error}")
            unmet = [rules for faults in net.faults.values() for rules in faults.unmet]
            problems += [f"no call met the fault {', '.join(rules)}: nothing was tried" for rules in unmet]
            load.flows(1.0, 60.0)
    except Exception as error:
        problems.append(f"{type(error).__name__}: {error}")
    verdicts = [checker(load.history) for checker in checkers.CHECKERS]
    problems += [str(verdict) for verdict in verdicts if not verdict.good]
    counts = load.history.counts()
    unsure = sum(one.outcome is not Outcome.OK for one in load.history.publishes)
    took, confirmed = time.monotonic() - begun, counts.get("publish ok", 0)
    line = (
        f"{one.name:<24}{'good' if not problems else 'BROKEN':<8}{took:6.0f} s"
        f"{confirmed:8}{unsure:6}{counts['deliveries']:8}  {' '.join(f'{gap:5.1f}' for gap in load.gaps)}"
    )
    for text in problems:
        print(text, flush=True)
    return Played(
        one.name,
        one.what,
        not problems,
        "\n    ".join([line, *stage.notes]),
        took,
        confirmed,
        unsure,
        counts["deliveries"],
        list(load.gaps),
        [*stage.notes, *(text.partition("\n")[0] for text in problems)],
    )
