"""Faults of the small simulation: which there are, when they happen and how long they last.

Promise: what destroys only ever hits one minority of the disks (see `disk_faults`). Everything else hits anybody (see
`process_faults` and `storage_faults`). All of it is healed at the end. How long a fault lasts has a heavy tail: most
are over before anybody gives anything up, some outlast grants, heartbeats and patience, and a few last longer than all
of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from syncpoint.base.runtime.random import Random, SeededRandom
from syncpoint.testing.simulation.healing import Heal
from syncpoint.testing.simulation.simulated_chains import SimulatedChains, servers_of
from syncpoint.testing.simulation.storage_faults import LONG_S, StorageFaults

FAULTS = (
    "crash", "crash of a subscribe forwarder", "hang", "takeover", "partition of processes", "partition from disks",
    "split of disks",
    "commands cut in the middle", "connections broken", "disk server killed", "disk server killed in a command",
    "disk server hung", "power cut", "power cut in a command", "power cut everywhere", "disk fails", "disk full",
    "disk slow", "disk hung", "disk lies", "disk rots", "disk wiped", "metadata outage", "clock jump", "close",
    "hang of a subscribe forwarder", "subscribe forwarder cut from metadata", "subscribe forwarder parted", "island",
    "accident", "metadata in doubt", "disks lost in an opening",
)  # fmt: skip

AWAY = (
    "partition from disks", "split of disks", "disk server killed", "disk server killed in a command",
    "disk server hung", "power cut", "power cut in a command", "power cut everywhere", "disk hung", "island",
    "disks lost in an opening",
)  # fmt: skip
"""Disks that are away for a while. A disk that lied, and one that was away when it mattered, say "no such entry" of the
same one, which no quorum of so few survives; so lies come without these, and so does a loss of power where what counts
is not synced."""

OUTLAST_S = 9.0  # longer than a grant, and than it takes until somebody else has delivered


def duration(random: Random) -> float:
    """How long a fault lasts, in seconds."""
    kind = random.random()
    if kind < 0.6:
        return random.random() ** 2 * 2.5
    if kind < 0.97:
        return 1.0 + random.random() ** 2 * 9.0
    return 10.0 + random.random() * 30.0


class Nemesis(StorageFaults):
    """Lets faults happen, a choice of kinds for each seed."""

    def __init__(self, sim: SimulatedChains, seed: int, kinds: tuple[str, ...] = (), *, beyond: bool = False) -> None:
        """`beyond`: destroy also what the others cannot make good; the best that can come of it is a refusal."""
        super().__init__(sim, SeededRandom(seed * 2), beyond=beyond)
        self.pause_s = 0.7  # between two faults, at most
        self.kinds = list(kinds) or [kind for kind in FAULTS if self.random.random() < 0.4] or ["crash", "takeover"]
        if "disk lies" in self.kinds and not kinds:
            self.kinds = [kind for kind in self.kinds if kind not in AWAY]
        elif sim.shape.durability != "sync" and "power cut" in self.kinds and not kinds:
            self.kinds = [kind for kind in self.kinds if kind not in AWAY or kind == "power cut"]

    async def run(self, seconds: float) -> None:
        """Let faults happen for this time, then heal them."""
        sim, end = self.sim, self.sim.loop.time() + seconds
        while sim.loop.time() < end:
            await asyncio.sleep(0.02 + self.random.random() ** 2 * self.pause_s)
            kind = self.kinds[self.random.randrange(0, len(self.kinds))]
            lasts = duration(self.random) + (OUTLAST_S if sim.shape.lasting else 0.0)
            lasts = max(lasts, LONG_S.get(kind, 0.0))
            heal = self._begin(kind)
            if heal is None:
                continue
            sim.coverage.sometimes(f"fault: {kind}")
            sim.note(f"fault: {kind}, {lasts:.3f} s")
            self.lasting.began(heal, lasts)

    def heal(self) -> None:
        """Everything is well again."""
        self.over = True
        self.lasting.heal()
        self.sim.network.heal()
        self.sim.network.break_chance = self.sim.farm.cut_chance = self.sim.farm.farewell_chance = 0.0
        self.sim.doubt = 0.0
        for clock in self.sim.clocks.values():
            clock.off_ns = 0
        for node in self.sim.nodes.values():
            node.accidents.armed = 0
        for server in servers_of(self.sim):
            server.heal()

    def _begin(self, kind: str) -> Heal | None:
        method: Callable[[], Heal | None] = getattr(self, "_" + kind.replace(" ", "_"))
        return method()
