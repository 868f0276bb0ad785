"""Faults of the small world: what may happen to processes, to what lies between them, and to disks.

Promise: what destroys only ever hits one minority of the disks (see `disk_faults`). Everything else hits anybody. All
of it is healed at the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from syncpoint.runtime.random import SeededRandom
from syncpoint.testing.simulation.chains import ChainsWorld, servers_of
from syncpoint.testing.simulation.consuming import Consuming
from syncpoint.testing.simulation.disk_faults import DiskFaults, Heal
from syncpoint.testing.simulation.nodes import Publisher

FAULTS = (
    "crash", "crash of a subscribe forwarder", "hang", "takeover", "partition of processes", "partition from disks",
    "split of disks",
    "commands cut in the middle", "connections broken", "disk server killed", "disk server killed in a command",
    "disk server hung", "power cut", "power cut in a command", "power cut everywhere", "disk fails", "disk full",
    "disk slow", "disk hung", "disk lies", "disk rots", "disk wiped", "metadata outage", "clock jump", "close",
)  # fmt: skip

AWAY = (
    "partition from disks", "split of disks", "disk server killed", "disk server killed in a command",
    "disk server hung", "power cut", "power cut in a command", "power cut everywhere", "disk hung",
)  # fmt: skip
"""Disks that are away for a while. A disk that lied, and one that was away when it mattered, say "no such entry" of the
same one, which no quorum of so few survives; so lies come without these."""

SPLIT_S = 3.0


class Nemesis(DiskFaults):
    """Lets faults happen, a choice of kinds for each seed."""

    def __init__(self, world: ChainsWorld, seed: int, kinds: tuple[str, ...] = (), *, beyond: bool = False) -> None:
        """`beyond`: destroy also what the others can not make good; the best that can come of it is a refusal."""
        super().__init__(world, SeededRandom(seed * 2), beyond=beyond)
        self.kinds = list(kinds) or [kind for kind in FAULTS if self.random.random() < 0.4] or ["crash", "takeover"]
        if "disk lies" in self.kinds and not kinds:
            self.kinds = [kind for kind in self.kinds if kind not in AWAY]

    async def run(self, seconds: float) -> None:
        """Let faults happen for so long, and heal them."""
        world, end = self.world, self.world.loop.time() + seconds
        while world.loop.time() < end:
            await asyncio.sleep(0.02 + self.random.random() ** 2 * 0.7)
            kind = self.kinds[self.random.randrange(0, len(self.kinds))]
            lasts = self.random.random() ** 2 * 2.5
            heal = self._begin(kind)
            if heal is None:
                continue
            world.coverage.sometimes(f"fault: {kind}")
            world.note(f"fault: {kind}, {lasts:.3f} s")
            self.lasting.began(heal, lasts)

    def heal(self) -> None:
        """Everything is well again."""
        self.lasting.heal()
        self.world.network.heal()
        self.world.network.break_chance = self.world.farm.cut_chance = 0.0
        for server in servers_of(self.world):
            server.heal()

    def _begin(self, kind: str) -> Heal | None:
        method: Callable[[], Heal | None] = getattr(self, "_" + kind.replace(" ", "_"))
        return method()

    def _publisher(self) -> Publisher | None:
        living = [one for one in self.world.publishers if one.process.alive]
        return living[self.random.randrange(0, len(living))] if living else None

    # -- processes ---------------------------------------------------------------------------------------------------

    def _crash(self) -> Heal | None:
        found = self._publisher()
        if found is None:
            return None
        name = found.name
        self.world.crash(name)
        return lambda: self._again(name)

    def _crash_of_a_subscribe_forwarder(self) -> Heal | None:
        living = [node for node in self.world.nodes.values() if isinstance(node, Consuming) and node.process.alive]
        if not living:
            return None
        name = living[self.random.randrange(0, len(living))].name
        self.world.crash(name)
        return lambda: self._again(name)

    def _hang(self) -> Heal | None:
        found = self._publisher()
        if found is None or found.process.hung:
            return None
        process = found.process
        process.hang()
        return process.go_on

    def _takeover(self) -> Heal | None:
        found = self._publisher()
        numbers = [one for one in self.world.records if not self.world.is_opening(one)]
        if found is None or found.process.hung or not numbers:
            return None
        self.world.take_over(numbers[self.random.randrange(0, len(numbers))], found)
        return lambda: None

    def _close(self) -> Heal | None:
        found = self._publisher()
        if found is None or not found.host.chains:
            return None
        number = min(found.host.chains)
        found.process.start(found.host.close(number))
        return lambda: None

    # -- what lies between -------------------------------------------------------------------------------------------

    def _partition_of_processes(self) -> Heal | None:
        found = self._publisher()
        if found is None:
            return None
        others = ["client", *(name for name in self.world.nodes if name != found.name)]
        self.world.network.part([found.name], [one for one in others if self.random.random() < 0.6])
        return self.world.network.heal

    def _partition_from_disks(self) -> Heal | None:
        found = self._publisher()
        if found is None:
            return None
        servers = [server.name for server in servers_of(self.world)]
        self.world.network.part([found.name], [one for one in servers if self.random.random() < 0.5])
        return self.world.network.heal

    def _split_of_disks(self) -> Heal | None:
        """One forwarder reaches some disks, the others the rest, and one of those takes a chain over."""
        found = self._publisher()
        numbers = [one for one in self.world.records if not self.world.is_opening(one)]
        others = [one for one in self.world.publishers if one is not found and one.process.alive]
        if found is None or not others or not numbers:
            return None
        near: list[str] = []
        far: list[str] = []
        for server in servers_of(self.world):
            (near if self.random.random() < 0.5 else far).append(server.name)
        self.world.network.part([found.name], far)
        self.world.network.part([one.name for one in others], near)
        heir = others[self.random.randrange(0, len(others))]
        number = numbers[self.random.randrange(0, len(numbers))]

        def take() -> None:
            if heir.process.alive and not heir.process.hung and not self.world.is_opening(number):
                self.world.take_over(number, heir)

        self.world.loop.call_later(0.3, take)
        # Whoever opens a chain waits for each disk it cannot reach, one after the other.
        return self._heal_later

    def _replaced_at_the_worst_time(self) -> Heal | None:
        """While one disk is cut off, another one is wiped, and the third one and all owners die; the first comes back.

        Who knows what was acknowledged is then away. Not among `FAULTS`: the best that can come of it is a refusal.
        """
        wiped, dead, late = servers_of(self.world)[:3]
        names = [one.name for one in self.world.publishers if one.process.alive]
        if not (wiped.alive and dead.alive and late.alive and names):
            return None
        self.world.network.part(names, [late.name])

        def strike() -> None:
            self.world.network.heal()
            for server in (wiped, dead):
                if server.alive:
                    server.kill()
            for disk in wiped.disks:
                wiped.files.wipe(f"/{disk}")
            self._starting(wiped)()
            for name in names:
                if self.world.nodes[name].process.alive:
                    self.world.crash(name)
                    self._again(name)

        self.world.loop.call_later(0.4, strike)

        def heal() -> None:
            self.world.loop.call_later(SPLIT_S, self._starting(dead))

        return heal

    def _heal_later(self) -> None:
        self.world.loop.call_later(SPLIT_S, self.world.network.heal)

    def _commands_cut_in_the_middle(self) -> Heal:
        self.world.farm.cut_chance = 0.02 + 0.1 * self.random.random()
        return lambda: setattr(self.world.farm, "cut_chance", 0.0)

    def _connections_broken(self) -> Heal:
        self.world.network.break_chance = 0.05
        return lambda: setattr(self.world.network, "break_chance", 0.0)

    def _metadata_outage(self) -> Heal:
        nodes = [node for node in self.world.nodes.values() if self.random.random() < 0.6]
        for node in nodes:
            node.shared.cut = True

        def heal() -> None:
            for node in nodes:
                node.shared.cut = False
                node.hear()

        return heal

    def _clock_jump(self) -> Heal:
        clock = self.world.clock
        clock.set_time_ns(clock.time_ns() + round((self.random.random() - 0.5) * 7200e9))
        return lambda: None
