"""One seed of the small world: clients work, faults happen, all is healed, drained and judged.

Beside publishing and receiving, things happen that are no faults: subscriptions are created and sought, snapshots are
taken, the keys of the topic move to other chains.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from syncpoint.metadata.records import Change
from syncpoint.runtime.clock import ManualClock
from syncpoint.runtime.random import SeededRandom
from syncpoint.testing.simulation.base import Trace
from syncpoint.testing.simulation.chains import ChainsWorld
from syncpoint.testing.simulation.clients import Clients, Message
from syncpoint.testing.simulation.consuming import Consuming
from syncpoint.testing.simulation.faults import Nemesis
from syncpoint.testing.simulation.judges import Sets, Taken, snapshots_keep_acknowledgements, sought_is_delivered_again
from syncpoint.testing.simulation.loop import ProcessLoop
from syncpoint.testing.simulation.nodes import Publisher
from syncpoint.testing.simulation.runs import Result, SimRun, simulate
from syncpoint.testing.simulation.shape import PATIENT, SNAPPED, TOPIC, Shape

DRAIN_S = 60.0
PROMPT_S = 20.0


def run_chains(
    seed: int,
    *,
    shape: Shape | None = None,
    kinds: tuple[str, ...] = (),
    beyond: bool = False,
    trace: Trace | None = None,
) -> Result:
    """Run one seed. `shape` and `kinds` of faults are drawn from it unless given. `beyond`: more is destroyed than the
    others can make good; then a chain that refuses to be opened breaks no promise.
    """
    drawn = shape or Shape.draw(SeededRandom(seed * 3 + 7))

    def make(loop: ProcessLoop, clock: ManualClock) -> ChainsRun:
        return ChainsRun(ChainsWorld(loop, clock, seed, drawn, trace), seed, kinds, beyond)

    return simulate(seed, make, trace)


class ChainsRun(SimRun[ChainsWorld]):
    """See the module."""

    def __init__(self, world: ChainsWorld, seed: int, kinds: tuple[str, ...], beyond: bool) -> None:
        super().__init__(world, seed, SeededRandom(seed * 5 + 1))
        self.nemesis = Nemesis(world, seed, kinds, beyond=beyond)
        self.beyond = beyond
        self.clients = Clients(world)
        world.note(f"seed {seed}: {world.shape}, faults: {', '.join(self.nemesis.kinds)}")
        self.seeking = self.random.random() < 0.4  # to the beginning: then what is acknowledged is kept
        self.snapping = self.random.random() < 0.3
        self.moving = self.random.random() < (0.7 if world.shape.chains > 1 else 0.3)

    async def run(self) -> None:
        world, loop = self.world, self.world.loop
        if not self.seeking:  # then what is acknowledged is deleted
            topic = world.master.topic(TOPIC)
            assert topic is not None
            world.commit(Change.put(replace(topic, retention_s=0)))
        for number in range(world.shape.forwarders):
            await world.begin(Publisher, f"f{number}")
        for number in range(world.shape.subscribers):
            await world.begin(Consuming, f"s{number}")
        supervising = loop.create_task(world.supervise())
        await self.within([self.clients.subscribe(name, **options) for name, options in self._subscriptions()], 30)
        living = [self.start(work) for work in self._lives()]
        await self.nemesis.run(1.5 + 3 * self.random.random())
        self.nemesis.heal()
        self.healed()
        await self.within(living, 10 if self.beyond else 60)
        await self._all_is_delivered()
        world.draining = True
        complaints = await self.drain(40 if self.beyond else DRAIN_S)
        if self.clients.snapshots and not complaints:
            complaints = await self._go_back()
        supervising.cancel()
        world.coverage.sometimes("a command is lost on the way", world.farm.lost_before)
        world.coverage.sometimes("an answer of a disk is lost on the way", world.farm.lost_after)
        self.judge(
            complaints,
            PROMPT_S,
            sought_is_delivered_again(world.history, self.clients.seeks),
            snapshots_keep_acknowledgements(world.history, self.clients.seeks),
        )
        if self.beyond and not all(world.served(number) for number in world.records):
            self.violations = []
        await world.close()

    # -- lives -------------------------------------------------------------------------------------------------------

    def _subscriptions(self) -> list[tuple[str, dict[str, bool]]]:
        """Two or three, so that lives stay cheap."""
        kinds = [("plain", {}), ("ordered", {"ordered": True}), ("once", {"exactly_once": True})]
        found: list[tuple[str, dict[str, bool]]] = []
        if self.seeking:
            found.append(("sought", {}))
        if self.snapping:
            found.append((SNAPPED, {"ordered": self.random.random() < 0.3}))
        # Where two forwarders share chains, keys that moved wait for what the other one has lent of the epoch before.
        alone = self.world.shape.subscribers == 1 or self.world.shape.chains == 1
        if self.random.random() < 0.25 and alone:
            found.append((PATIENT, {"ordered": True}))
        if not found and self.random.random() < 0.4:
            return kinds
        first = self.random.randrange(0, 3)
        return found + [kinds[first], kinds[(first + 1) % 3]][: max(1, 2 - len(found))]

    def _lives(self) -> list[object]:
        keys = ["", "k1", "k2"][: 2 + (self.random.random() < 0.5)]
        lives: list[object] = [self._publish(f"p{number}", key, number) for number, key in enumerate(keys)]
        options = {"ordered": self.random.random() < 0.3, "exactly_once": self.random.random() < 0.3}
        lives.append(self._create("late", self.random.random() * 2, **options))
        if self.seeking:
            lives.append(self._seek())
        if self.snapping:
            lives.append(self._snap())
        if self.moving:
            lives.append(self._move())
        return lives

    async def _publish(self, client: str, key: str, sender: int) -> None:
        number = 0
        while self.publishing:
            size = 40 if self.random.random() < 0.8 else self.random.randrange(0, 6000)
            if self.world.shape.heavy:
                size = self.random.randrange(0, 40_000)
            await self.clients.publish(Message(client, number, key, sender + 1, size), 20.0)
            number += 1
            await asyncio.sleep(self.random.random() ** 3 * 0.18)

    async def _create(self, name: str, after: float, **options: bool) -> None:
        await asyncio.sleep(after)
        await self.clients.subscribe(name, **options)

    async def _seek(self) -> None:
        for _ in range(1 + (self.random.random() < 0.5)):
            await asyncio.sleep(0.3 + 2 * self.random.random())
            await self.clients.seek("sought")

    async def _snap(self) -> None:
        """Take one or two snapshots, and go back to one now and then."""
        for _ in range(1 + (self.random.random() < 0.5)):
            await asyncio.sleep(0.2 + 1.2 * self.random.random())
            await self.clients.snapshot(SNAPPED)
            if self.random.random() < 0.5:
                await asyncio.sleep(self.random.random())
                await self.clients.seek(SNAPPED, self._some_snapshot())

    def _some_snapshot(self) -> Taken:
        taken = self.clients.snapshots
        return taken[self.random.randrange(0, len(taken))]

    async def _move(self) -> None:
        """The keys go to other chains, or a new epoch begins with the same ones."""
        chains = sorted(self.world.records)
        for _ in range(1 + self.random.randrange(0, 3)):
            await asyncio.sleep(0.2 + self.random.random())
            if not self.publishing:
                return
            chosen = tuple(one for one in chains if self.random.random() < 0.6) or (chains[-1],)
            self.world.coverage.sometimes("keys move to other chains", chosen != self.world.assignment.chains)
            self.world.assign(chosen)

    # -- the end -----------------------------------------------------------------------------------------------------

    async def _all_is_delivered(self) -> None:
        """Nothing that is new waits for acknowledgements of anything else."""
        world, end = self.world, self.world.loop.time() + PROMPT_S
        if world.master.subscription(PATIENT) is not None and not self.beyond:
            while world.history.missing(PATIENT, TOPIC) and world.loop.time() <= end + 1:
                await asyncio.sleep(self.look_s)
            world.coverage.sometimes("a client keeps its acknowledgements to the end", world.held)

    async def _go_back(self) -> list[str]:
        """All is quiet: seek to a snapshot, and wait until what it owes has come and is acknowledged again."""
        taken = self._some_snapshot()
        await self.within([self.clients.seek(SNAPPED, taken)], 20)
        seek = self.clients.seeks[-1]
        seek.quiet = True
        owed = Sets(self.world.history, SNAPPED, self.clients.seeks).owed(seek)
        self.world.coverage.sometimes("a snapshot owes messages when all is quiet", owed)
        return await self.drain(DRAIN_S)

    def unfinished(self) -> list[str]:
        world, found = self.world, []
        for number in world.records:
            if not world.served(number):
                found.append(f"chain {number} is not served: {world.refusals.get(number)!r}")
            else:
                found += self.unfinished_of(world.owners_of[number][0].host.chains[number])
        return found + self.owed()
