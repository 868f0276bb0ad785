"""One seed of a whole cluster: clients work through proxies, faults happen, all is healed, drained and judged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from syncpoint.runtime.clock import ManualClock
from syncpoint.runtime.random import SeededRandom
from syncpoint.testing.simulation.base import Trace
from syncpoint.testing.simulation.loop import ProcessLoop
from syncpoint.testing.simulation.runs import Lasting, Result, SimRun, simulate
from syncpoint.testing.simulation.world import ClusterWorld

FAULTS = (
    "crash",
    "hang",
    "partition",
    "metadata outage",
    "indeterminate",
    "power cut",
    "disk server hung",
    "clock jump",
)
DRAIN_S = 90.0
PROMPT_S = 40.0


def run_cluster(seed: int, *, trace: Trace | None = None) -> Result:
    """Run one seed."""

    def make(loop: ProcessLoop, clock: ManualClock) -> ClusterRun:
        return ClusterRun(ClusterWorld(loop, clock, seed, trace, 1 if seed % 3 else 3), seed)

    return simulate(seed, make, trace)


class ClusterRun(SimRun[ClusterWorld]):
    """See the module."""

    look_s = 0.5

    def __init__(self, world: ClusterWorld, seed: int) -> None:
        super().__init__(world, seed, SeededRandom(seed * 2))
        self.kinds = [kind for kind in FAULTS if self.random.random() < 0.6] or ["crash"]
        self.lasting = Lasting(world.loop)
        world.note(f"seed {seed}: faults: {', '.join(self.kinds)}")

    async def run(self) -> None:
        """All of it."""
        world = self.world
        for name in world.settings.processes:
            world.begin(name)
            await asyncio.sleep(0.01)
        await self.within([world.create_topic()], 60)
        early = [("plain", {}), ("ordered", {"ordered": True}), ("once", {"exactly_once": True})]
        await self.within([world.subscribe(name, **options) for name, options in early], 60)
        for name, _ in early:
            self.start(world.consume(name, f"{name}-a"))
        self.start(world.consume("plain", "plain-b"))
        living = [self.start(self._publish(f"p{n}", key)) for n, key in enumerate(("", "k1", "k2"))]
        living.append(self.start(self._late()))
        await self._nemesis(4 + 6 * self.random.random())
        self._heal()
        self.healed()
        await self.within(living, 90)
        self.judge(await self.drain(DRAIN_S), PROMPT_S)
        await world.close()

    async def _late(self) -> None:
        await asyncio.sleep(1 + 3 * self.random.random())
        await self.world.subscribe("late")
        self.start(self.world.consume("late", "late-a"))

    async def _publish(self, client: str, key: str) -> None:
        number = 0
        while self.publishing:
            await self.world.publish(client, number, key)
            number += 1
            await asyncio.sleep(self.random.random() ** 2 * 0.3)

    # -- faults ------------------------------------------------------------------------------------------------------

    async def _nemesis(self, seconds: float) -> None:
        world, end = self.world, self.world.loop.time() + seconds
        while world.loop.time() < end:
            await asyncio.sleep(0.1 + self.random.random() * 1.2)
            kind = self.kinds[self.random.randrange(0, len(self.kinds))]
            lasts = 0.2 + self.random.random() ** 2 * 6
            heal = self._begin(kind)
            if heal is not None:
                world.coverage.sometimes(f"fault: {kind}")
                self.lasting.began(heal, lasts)

    def _heal(self) -> None:
        self.lasting.heal()
        self.world.network.heal()
        self.world.doubt = 0.0
        for server in self.world.farm.servers.values():
            if server.alive:
                server.heal()

    def _begin(self, kind: str) -> Callable[[], None] | None:
        world = self.world
        names = list(world.members)
        name = names[self.random.randrange(0, len(names))]
        member = world.members[name]
        server = list(world.farm.servers.values())[self.random.randrange(0, len(world.farm.servers))]
        world.note(f"fault: {kind} {server.name if kind in ('power cut', 'disk server hung') else name}")
        match kind:
            case "crash" if member.process.alive:
                world.crash(name)
                return lambda: world.begin(name) if not world.members[name].process.alive else None
            case "hang" if member.process.alive and not member.process.hung and name not in world.farm.servers:
                member.process.hang()
                return member.process.go_on
            case "partition":
                world.network.part([name], [one for one in names if self.random.random() < 0.5])
                return world.network.heal
            case "metadata outage" if not world.outage:
                some = names if self.random.random() < 0.5 else [one for one in names if self.random.random() < 0.5]
                world.outage = some is names
                world.cut_metadata(True, some)

                def back() -> None:
                    world.outage = False
                    world.cut_metadata(False, some)

                return back
            case "indeterminate":
                world.doubt = 0.3
                return lambda: setattr(world, "doubt", 0.0)
            case "power cut" if server.alive:
                world.crash(server.name)
                server.power_cut()
                return lambda: world.begin(server.name) if not server.alive else None
            case "disk server hung" if server.alive and not server.hung:
                server.hung = True
                return lambda: setattr(server, "hung", False)
            case "clock jump":
                world.clock.set_time_ns(world.clock.time_ns() + round((self.random.random() - 0.5) * 7200e9))
                return lambda: None
        return None

    # -- afterwards --------------------------------------------------------------------------------------------------

    def unfinished(self) -> list[str]:
        world = self.world
        found = [f"{name} is not up" for name, member in world.members.items() if not member.up]
        chains = world.chains()
        if len(chains) < 2:
            found.append(f"{len(chains)} of 2 chains are served")
        for chain in chains:
            found += self.unfinished_of(chain)
        return found + self.owed()
