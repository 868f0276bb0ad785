"""One seed of a whole cluster: clients work through proxies, faults happen, all is healed, drained and judged."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.testing.rigs.checkers import CheckResult
from syncpoint.testing.rigs.history import MessageIdentity, Outcome
from syncpoint.testing.simulation.acted_changes import ActedChanges
from syncpoint.testing.simulation.api_clients import TOPIC
from syncpoint.testing.simulation.base import Trace
from syncpoint.testing.simulation.cluster_faults import ClusterFaults
from syncpoint.testing.simulation.consumed import FORWARDED, PULLED, Consumed
from syncpoint.testing.simulation.forwarded import Forwarded
from syncpoint.testing.simulation.invariants import leftovers
from syncpoint.testing.simulation.loop import ProcessLoop
from syncpoint.testing.simulation.push_endpoint import URL
from syncpoint.testing.simulation.redriven import RedrivenLetters
from syncpoint.testing.simulation.repeated import RepeatedIds
from syncpoint.testing.simulation.restored import RestoredMetadata
from syncpoint.testing.simulation.ruled import RULED, Ruled
from syncpoint.testing.simulation.run_checkers import (
    confirmed_once,
    first_comes_first,
    letters_arrive,
    nobody_else_acknowledges,
)
from syncpoint.testing.simulation.sim_runs import RunResult, SimRun, simulate
from syncpoint.testing.simulation.simulated_cluster import SimulatedCluster
from syncpoint.testing.simulation.topology import BRIEF, DEAD, LETTERS

DOOMED = "doomed"
DRAIN_S = 90.0
QUIESCE_S = 40.0
PROMPT_S = 40.0


def run_cluster(
    seed: int, *, trace: Trace | None = None, kinds: tuple[str, ...] = (), consumed: bool = False
) -> RunResult:
    """Run one seed. `kinds` of faults: only those. `consumed`: with a subscription that is moved back (`consumed`)."""

    def make(loop: ProcessLoop, clock: ManualClock) -> ClusterRun:
        sim = SimulatedCluster(
            loop, clock, seed, trace, 1 if seed % 3 else 3, subscribers=2 + (seed % 4 == 0), sealed=seed % 5 == 0
        )
        return ClusterRun(sim, seed, kinds, consumed=consumed)

    return simulate(seed, make, trace)


class ClusterRun(SimRun[SimulatedCluster]):
    """Run one seed of a whole cluster."""

    look_s = 0.5

    def __init__(
        self, sim: SimulatedCluster, seed: int, kinds: tuple[str, ...] = (), *, consumed: bool = False
    ) -> None:
        super().__init__(sim, seed, SeededRandom(seed * 2))
        self.faults = ClusterFaults(sim, self.random, kinds)
        self.seeking = self.random.random() < 0.4
        self.refusing = self.random.random() < 0.5
        self.pushing = seed % 4 == 1
        self.ruled = Ruled(sim, seed) if seed % 4 >= 2 else None
        clocks_set = "clock jump" in self.faults.kinds
        self.forwarded = Forwarded(sim, seed, clocks_set) if seed % 4 == 0 else None
        self.repeated = RepeatedIds(sim, seed, clocks_set) if seed % 4 == 0 else None
        self.redriven = RedrivenLetters(sim, seed, clocks_set) if self.pushing else None
        self.acted = ActedChanges(sim, seed) if seed % 4 == 3 else None
        self.restored = RestoredMetadata(sim, seed) if seed % 8 == 1 else None
        self.consumed = None
        if consumed:
            kind = FORWARDED if seed % 3 else PULLED
            self.consumed = Consumed(sim, kind, seed, life=object, one_clock=not clocks_set)
        self.quiescing = False
        self.seeks: list[tuple[str, int]] = []
        self.flying: list[asyncio.Task[None]] = []  # publishes that nobody waits for
        sim.note(f"seed {seed}: faults: {', '.join(self.faults.kinds)}")

    async def run(self) -> None:
        """All of it."""
        sim = self.sim
        await sim.begin_all()
        await self.within([sim.create_topic(retention_s=86_400 if self.seeking or self.consumed else 0)], 60)
        early: list[tuple[str, dict[str, Any]]] = [
            ("plain", {}),
            ("ordered", {"ordered": True}),
            ("once", {"exactly_once": True}),
        ]
        await self.within([sim.subscribe(name, **options) for name, options in early], 60)
        for name, _ in early:
            self.start(sim.consume(name, f"{name}-a"))
        if self.pushing:
            await self.within([sim.subscribe("pushed", ordered=True, pushed_to=URL)], 60)
        if self.refusing:
            await self.within([self._refuse()], 60)
        if self.ruled is not None:
            await self.within([self.ruled.begin()], 60)
            self.start(self.ruled.consume())
        if self.forwarded is not None:
            await self.within([self.forwarded.begin()], 60)
            self.start(self.forwarded.consume())
        if self.repeated is not None:
            await self.within([self.repeated.begin()], 60)
            self.start(self.repeated.consume())
        if self.redriven is not None:
            await self.within([self.redriven.begin()], 60)
            self.start(self.redriven.consume())
        if self.consumed is not None:
            await self.within([self.consumed.begin()], 60)
            self.start(self.consumed.consume())
        self.start(sim.consume("plain", "plain-b"))
        living = [self.start(self._publish(f"p{n}", key)) for n, key in enumerate(("", "k1", "k2"))]
        changing = [self.start(self._late())]
        if self.ruled is not None:
            living.append(self.start(self.ruled.live(lambda: self.publishing)))
        if self.repeated is not None:
            living.append(self.start(self.repeated.live(lambda: self.publishing)))
        if self.consumed is not None:
            living.append(self.start(self.consumed.live(lambda: self.publishing)))
        if self.acted is not None:
            living.append(self.start(self.acted.live(lambda: self.publishing)))
        if self.random.random() < 0.4:
            changing.append(self.start(self._recreate()))
        if sim.settings.sealing_key_file is not None:
            changing.append(self.start(self._rotate()))
        longer = 20 * self.random.random() if self.random.random() < 0.1 else 0.0
        await self.faults.go_wrong(4 + 6 * self.random.random() + longer)
        self.faults.heal()
        if self.restored is not None:
            await self.within(changing, 90)
            await self.restored.live()
        self.healed()
        await self.within([*living, *changing], 90)
        complaints = await self.drain(DRAIN_S)
        if not complaints:
            self.quiescing = True
            complaints = await self.drain(QUIESCE_S)
        history = sim.history
        for chain in sim.chains() if self.ruled is not None else ():
            known = chain.follower.catalog.subscription(f"projects/p/subscriptions/{RULED}")
            removed = known is not None and bool(known.options.drained)
            sim.coverage.sometimes("what earlier rules were for is let go of", removed)
        sim.coverage.sometimes("a dead letter arrives", any(one.subscription == LETTERS for one in history.deliveries))
        self.judge(
            complaints,
            PROMPT_S,
            self._resets(),
            confirmed_once(history),
            first_comes_first(history),
            letters_arrive(history, DOOMED, LETTERS),
            nobody_else_acknowledges(history, (DOOMED, *(name for name, _ in self.seeks))),
            *(self.ruled.judged() if self.ruled is not None else ()),
            *(self.forwarded.judged() if self.forwarded is not None else ()),
            *(self.repeated.judged() if self.repeated is not None else ()),
            *(self.redriven.judged() if self.redriven is not None else ()),
            *(self.consumed.judged(self._stored()) if self.consumed is not None else ()),
        )
        await sim.close()

    async def _refuse(self) -> None:
        """A subscription of whose messages some are refused until they are dead letters."""
        sim = self.sim
        await sim.create_topic(DEAD)
        await sim.subscribe(LETTERS, topic=DEAD, judged_as=DEAD)
        await sim.subscribe(DOOMED, dead_letters=(DEAD, LETTERS))
        self.start(sim.consume(LETTERS, f"{LETTERS}-a"))
        self.start(sim.consume(DOOMED, f"{DOOMED}-a", refuse=True))

    async def _late(self) -> None:
        await asyncio.sleep(1 + 3 * self.random.random())
        await self.sim.subscribe("late")
        self.start(self.sim.consume("late", "late-a"))
        if self.seeking:
            await asyncio.sleep(4 * self.random.random())
            self.seeks.append(await self.sim.seek_to_the_beginning("late"))

    async def _recreate(self) -> None:
        """A topic comes, is published to, goes, and comes again by the same name."""
        sim, number, lives = self.sim, 0, 1 + self.random.randrange(0, 3)
        for life in range(lives):
            name, judged_as = f"brief{life}", f"{BRIEF}#{life}"
            await sim.create_topic(BRIEF)
            creation = await sim.subscribe(name, topic=BRIEF, judged_as=judged_as)
            self.start(sim.consume(name, f"{name}-a"))
            for _ in range(1 + self.random.randrange(0, 5)):
                await sim.publish("pb", number, "", topic=BRIEF, judged_as=judged_as, tries=8)
                number += 1
                await asyncio.sleep(self.random.random() ** 2 * 0.3)
            if life < lives - 1:
                # One that is under way when the topic goes may end up in the next one, or nowhere.
                flying = self.start(sim.publish("pb", number, "", topic=BRIEF, judged_as=judged_as + "?", tries=8))
                number += 1
                await sim.unsubscribe(name, creation)
                await sim.delete_topic(BRIEF)
                self.flying.append(flying)

    async def _rotate(self) -> None:
        for _ in range(1 + self.random.randrange(0, 2)):
            await asyncio.sleep(0.5 + 3 * self.random.random())
            await self.sim.rotate_keys()

    def _resets(self) -> CheckResult:
        """After a seek to the beginning everything comes that the topic keeps, also what is older than itself."""
        history, bad, looked = self.sim.history, [], 0
        for name, begun in self.seeks:
            owed = {
                one.message_id
                for one in history.publishes
                if one.topic == TOPIC and one.outcome is Outcome.OK and one.ended < begun
            }
            seen = {one.message_id for one in history.deliveries if one.subscription == name and one.at > begun}
            looked += len(owed)
            bad += [f"{name} did not get {one} after its seek" for one in sorted(owed - seen)]
        return CheckResult("resets are delivered again", looked, tuple(bad))

    def _stored(self) -> dict[MessageIdentity, set[str]]:
        """The ids of each message in the first topic, as a subscription of it saw them."""
        stored: dict[MessageIdentity, set[str]] = defaultdict(set)
        for one in self.sim.history.deliveries:
            if one.subscription == "ordered" and one.identity is not None:
                stored[one.identity].add(one.message_id)
        return stored

    async def _publish(self, client: str, key: str) -> None:
        number = 0
        while self.publishing:
            await self.sim.publish(client, number, key)
            number += 1
            await asyncio.sleep(self.random.random() ** 2 * 0.3)

    # -- afterwards --------------------------------------------------------------------------------------------------

    def unfinished(self) -> list[str]:
        sim = self.sim
        found = sim.not_up()
        for chain in sim.chains():
            found += self.unfinished_of(chain)
            found += leftovers(chain, sim.registered()) if self.quiescing else []
        found += self.owed()
        for one in (self.ruled, self.forwarded, self.repeated, self.redriven, self.consumed):
            if one is not None and not found:
                found += one.lacks()
        return found
