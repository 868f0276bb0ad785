"""One seed of a whole cluster: clients work through proxies, faults happen, all is healed, drained and judged."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any

from syncpoint.runtime.clock import ManualClock
from syncpoint.runtime.random import SeededRandom
from syncpoint.testing.checkers import Verdict
from syncpoint.testing.history import Outcome
from syncpoint.testing.simulation.api_clients import TOPIC
from syncpoint.testing.simulation.base import Trace
from syncpoint.testing.simulation.disk_faults import forget
from syncpoint.testing.simulation.disks import DiskServer
from syncpoint.testing.simulation.faults import duration
from syncpoint.testing.simulation.invariants import leftovers
from syncpoint.testing.simulation.judges import (
    confirmed_once,
    first_comes_first,
    letters_arrive,
    nobody_else_acknowledges,
)
from syncpoint.testing.simulation.loop import ProcessLoop
from syncpoint.testing.simulation.runs import Lasting, Result, SimRun, simulate
from syncpoint.testing.simulation.shape import BRIEF, DEAD, LETTERS
from syncpoint.testing.simulation.world import ClusterWorld

DOOMED = "doomed"
FAULTS = (
    "subscribe forwarder parted",
    "island",
    "crash",
    "restart",
    "hang",
    "partition",
    "metadata outage",
    "indeterminate",
    "power cut",
    "disk server hung",
    "disk slow",
    "disk fails",
    "disk full",
    "clock jump",
)
FULL_BYTES = 64 * 1024
DRAIN_S = 90.0
SETTLE_S = 40.0
PROMPT_S = 40.0


def run_cluster(seed: int, *, trace: Trace | None = None) -> Result:
    """Run one seed."""

    def make(loop: ProcessLoop, clock: ManualClock) -> ClusterRun:
        world = ClusterWorld(
            loop, clock, seed, trace, 1 if seed % 3 else 3, subscribers=2 + (seed % 4 == 0), sealed=seed % 5 == 0
        )
        return ClusterRun(world, seed)

    return simulate(seed, make, trace)


class ClusterRun(SimRun[ClusterWorld]):
    """See the module."""

    look_s = 0.5

    def __init__(self, world: ClusterWorld, seed: int) -> None:
        super().__init__(world, seed, SeededRandom(seed * 2))
        self.kinds = [kind for kind in FAULTS if self.random.random() < 0.6] or ["crash"]
        self.lasting = Lasting(world.loop)
        self.seeking = self.random.random() < 0.4
        self.refusing = self.random.random() < 0.5
        self.settling = False
        self.seeks: list[tuple[str, int]] = []
        self.flying: list[asyncio.Task[None]] = []  # publishes that nobody waits for
        world.note(f"seed {seed}: faults: {', '.join(self.kinds)}")

    async def run(self) -> None:
        """All of it."""
        world = self.world
        for name in world.settings.processes:
            world.begin(name)
            await asyncio.sleep(0.01)
        await self.within([world.create_topic(retention_s=86_400 if self.seeking else 0)], 60)
        early: list[tuple[str, dict[str, Any]]] = [
            ("plain", {}),
            ("ordered", {"ordered": True}),
            ("once", {"exactly_once": True}),
        ]
        await self.within([world.subscribe(name, **options) for name, options in early], 60)
        for name, _ in early:
            self.start(world.consume(name, f"{name}-a"))
        if self.refusing:
            await self.within([self._refuse()], 60)
        self.start(world.consume("plain", "plain-b"))
        living = [self.start(self._publish(f"p{n}", key)) for n, key in enumerate(("", "k1", "k2"))]
        living.append(self.start(self._late()))
        if self.random.random() < 0.4:
            living.append(self.start(self._recreate()))
        if world.settings.sealing_key_file is not None:
            living.append(self.start(self._rotate()))
        longer = 20 * self.random.random() if self.random.random() < 0.1 else 0.0
        await self._nemesis(4 + 6 * self.random.random() + longer)
        self._heal()
        self.healed()
        await self.within(living, 90)
        complaints = await self.drain(DRAIN_S)
        if not complaints:
            self.settling = True
            complaints = await self.drain(SETTLE_S)
        history = world.history
        world.coverage.sometimes(
            "a dead letter arrives", any(one.subscription == LETTERS for one in history.deliveries)
        )
        self.judge(
            complaints,
            PROMPT_S,
            self._sought(),
            confirmed_once(history),
            first_comes_first(history),
            letters_arrive(history, DOOMED, LETTERS),
            nobody_else_acknowledges(history, (DOOMED, *(name for name, _ in self.seeks))),
        )
        await world.close()

    async def _refuse(self) -> None:
        """A subscription of whose messages some are refused until they are dead letters."""
        world = self.world
        await world.create_topic(DEAD)
        await world.subscribe(LETTERS, topic=DEAD, judged_as=DEAD)
        await world.subscribe(DOOMED, dead_letters=(DEAD, LETTERS))
        self.start(world.consume(LETTERS, f"{LETTERS}-a"))
        self.start(world.consume(DOOMED, f"{DOOMED}-a", refuse=True))

    async def _late(self) -> None:
        await asyncio.sleep(1 + 3 * self.random.random())
        await self.world.subscribe("late")
        self.start(self.world.consume("late", "late-a"))
        if self.seeking:
            await asyncio.sleep(4 * self.random.random())
            self.seeks.append(await self.world.seek_to_the_beginning("late"))

    async def _recreate(self) -> None:
        """A topic comes, is published to, goes, and comes again by the same name."""
        world, number, lives = self.world, 0, 1 + self.random.randrange(0, 3)
        for life in range(lives):
            name, judged_as = f"brief{life}", f"{BRIEF}#{life}"
            await world.create_topic(BRIEF)
            creation = await world.subscribe(name, topic=BRIEF, judged_as=judged_as)
            self.start(world.consume(name, f"{name}-a"))
            for _ in range(1 + self.random.randrange(0, 5)):
                await world.publish("pb", number, "", topic=BRIEF, judged_as=judged_as, tries=8)
                number += 1
                await asyncio.sleep(self.random.random() ** 2 * 0.3)
            if life < lives - 1:
                # One that is under way when the topic goes may end up in the next one, or nowhere.
                flying = self.start(world.publish("pb", number, "", topic=BRIEF, judged_as=judged_as + "?", tries=8))
                number += 1
                await world.unsubscribe(name, creation)
                await world.delete_topic(BRIEF)
                self.flying.append(flying)

    async def _rotate(self) -> None:
        for _ in range(1 + self.random.randrange(0, 2)):
            await asyncio.sleep(0.5 + 3 * self.random.random())
            await self.world.rotate_keys()

    def _sought(self) -> Verdict:
        """After a seek to the beginning everything comes that the topic keeps, also what is older than itself."""
        history, bad, looked = self.world.history, [], 0
        for name, begun in self.seeks:
            owed = {
                one.message_id
                for one in history.publishes
                if one.topic == TOPIC and one.outcome is Outcome.OK and one.ended < begun
            }
            seen = {one.message_id for one in history.deliveries if one.subscription == name and one.at > begun}
            looked += len(owed)
            bad += [f"{name} did not get {one} after its seek" for one in sorted(owed - seen)]
        return Verdict("sought is delivered again", looked, tuple(bad))

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
            lasts = 0.1 + duration(self.random)
            heal = self._begin(kind)
            if heal is not None:
                world.coverage.sometimes(f"fault: {kind}")
                self.lasting.began(heal, lasts)

    def _heal(self) -> None:
        self.lasting.heal()
        self.world.network.heal()
        self.world.doubt = 0.0
        for clock in self.world.clocks.values():
            clock.off_ns = 0
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
            case "restart" if member.up and member.process.alive and not member.process.hung:
                world.restart(name)
                return lambda: None
            case "partition":
                return world.network.part([name], [one for one in names if self.random.random() < 0.5])
            case "subscribe forwarder parted":
                return world.network.part([self._of("s")], [one for one in names if one[0] == "p"])
            case "island":
                return self._island()
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
            case "disk slow" if server.alive:
                disk = server.disks[self.random.randrange(0, len(server.disks))]
                server.slow[disk] = 0.05 + 0.3 * self.random.random()
                return lambda: forget(server.slow, disk)
            case "disk fails" | "disk full" if self._minority.alive:
                return self._disk_fault(kind)
            case "clock jump":
                return self._clock_jump(name)
        return None

    @property
    def _minority(self) -> DiskServer:
        """Whose disks may lose what they have: the others are a write set without it."""
        return self.world.farm.servers["d0"]

    def _disk_fault(self, kind: str) -> Callable[[], None]:
        """A disk of the minority errs, or has no room."""
        server = self._minority
        disk = server.disks[self.random.randrange(0, len(server.disks))]
        if kind == "disk full":
            server.files.capacity[f"/{disk}"] = FULL_BYTES
            return lambda: forget(server.files.capacity, f"/{disk}")
        operations = ((), ("fdatasync",), ("pwritev",), ("pread",))[self.random.randrange(0, 4)]
        server.fail(disk, errno.EIO, operations, (None, 1)[self.random.randrange(0, 2)])
        fault = server.files.faults[-1]
        return lambda: server.files.faults.remove(fault) if fault in server.files.faults else None

    def _of(self, role: str) -> str:
        names = [name for name in self.world.members if name[0] == role and name[:2] != "pr"]
        return names[self.random.randrange(0, len(names))]

    def _island(self) -> Callable[[], None]:
        """A publish forwarder and a subscribe forwarder with each other, and away from everything else."""
        world, here = self.world, [self._of("p"), self._of("s")]
        back = world.network.part(here, [one for one in world.members if one not in here])
        world.cut_metadata(True, here)

        def heal() -> None:
            back()
            world.cut_metadata(False, here)

        return heal

    def _clock_jump(self, name: str) -> Callable[[], None]:
        """One machine's clock is set wrong, by an hour or by weeks, and right again; one at a time is far off."""
        clocks, hour_ns = self.world.clocks, 3_600 * 10**9
        far = self.random.random() < 0.5 and not any(abs(one.off_ns) > hour_ns for one in clocks.values())
        clock = self.world.clock_of(name)
        clock.off_ns = round((self.random.random() - 0.5) * 2 * hour_ns * (40 * 24 if far else 1))
        return lambda: setattr(clock, "off_ns", 0)

    # -- afterwards --------------------------------------------------------------------------------------------------

    def unfinished(self) -> list[str]:
        world = self.world
        found = [f"{name} is not up" for name, member in world.members.items() if not member.up]
        chains = world.chains()
        if len(chains) < 2:
            found.append(f"{len(chains)} of 2 chains are served")
        for chain in chains:
            found += self.unfinished_of(chain)
            found += leftovers(chain, world.registered()) if self.settling else []
        return found + self.owed()
