"""One seed of the small simulation: clients work, faults happen, all is healed, drained and judged.

Beside publishing and receiving, things happen that are no faults: see `lives`.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext

from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.testing.simulation.base import Trace
from syncpoint.testing.simulation.clients import Clients
from syncpoint.testing.simulation.consuming import Consuming
from syncpoint.testing.simulation.faults import Nemesis
from syncpoint.testing.simulation.invariants import leftovers
from syncpoint.testing.simulation.lives import DOOMED, Lives
from syncpoint.testing.simulation.loop import ProcessLoop
from syncpoint.testing.simulation.nodes import SimPublisher
from syncpoint.testing.simulation.run_checkers import (
    confirmed_once,
    failed_means_failed,
    first_comes_first,
    letters_arrive,
    messages_run_out,
    nobody_else_acknowledges,
    nothing_comes_while_it_is_acknowledged,
    resets_deliver_again,
    sealed_for_its_topic,
    snapshots_keep_acknowledgements,
)
from syncpoint.testing.simulation.scaled import quick_checkpoints
from syncpoint.testing.simulation.sets import Sets
from syncpoint.testing.simulation.sim_runs import RunResult, SimRun, simulate
from syncpoint.testing.simulation.simulated_chains import SimulatedChains
from syncpoint.testing.simulation.topology import LETTERS, PATIENT, TOPIC, Topology

PROMPT = ("crash", "takeover", "close", "crash of a subscribe forwarder")  # faults that delay no answer on its way
DRAIN_S = 60.0
QUIESCE_S = 30.0
PROMPT_S = 20.0


def run_chains(
    seed: int,
    *,
    shape: Topology | None = None,
    kinds: tuple[str, ...] = (),
    beyond: bool = False,
    trace: Trace | None = None,
) -> RunResult:
    """Run one seed. `topology` and `kinds` of faults are drawn from it unless given. `beyond`: more is destroyed than
    the others can make good; then a chain that refuses to be opened breaks no promise.
    """
    drawn = shape or Topology.draw(SeededRandom(seed * 3 + 7))

    def make(loop: ProcessLoop, clock: ManualClock) -> ChainsRun:
        return ChainsRun(SimulatedChains(loop, clock, seed, drawn, trace), seed, kinds, beyond)

    return simulate(seed, make, trace)


class ChainsRun(SimRun[SimulatedChains]):
    """Run one seed of the small simulation."""

    def __init__(self, sim: SimulatedChains, seed: int, kinds: tuple[str, ...], beyond: bool) -> None:
        super().__init__(sim, seed, SeededRandom(seed * 5 + 1))
        self.nemesis = Nemesis(sim, seed, kinds, beyond=beyond)
        self.beyond = beyond
        self.clients = Clients(sim)
        self.seconds = 3.0 if beyond else self._length()
        if self.random.random() < 0.15 and not beyond:
            self.seconds += 12.0
        if sim.shape.emptying or sim.shape.lasting:
            self.seconds = max(self.seconds, 14.0)
        slow = max(1.0, self.seconds / 4.5)
        self.nemesis.pause_s *= slow**0.5 * (4.0 if sim.shape.emptying or sim.shape.lasting else 1.0)
        self.lives = Lives(sim, self.clients, self.random, slow, sane="clock jump" not in self.nemesis.kinds)
        self.lives.publishing = lambda: self.publishing
        sim.note(f"seed {seed}: {sim.shape}, {self.seconds:.1f} s, faults: {', '.join(self.nemesis.kinds)}")

    def _length(self) -> float:
        """How long things go wrong: mostly for some seconds, now and then longer than anything in the protocol."""
        kind = self.random.random()
        if kind < 0.55:
            return 1.5 + 3 * self.random.random()
        if kind < 0.95:
            return 4.5 + 10 * self.random.random()
        return 20 + 30 * self.random.random()

    async def run(self) -> None:
        with quick_checkpoints() if self.sim.shape.emptying else nullcontext():
            await self._run()

    async def _run(self) -> None:
        sim, loop, lives = self.sim, self.sim.loop, self.lives
        for number in range(sim.shape.forwarders):
            await sim.begin(SimPublisher, f"f{number}")
        for number in range(sim.shape.subscribers):
            await sim.begin(Consuming, f"s{number}")
        supervising = loop.create_task(sim.supervise())
        await self.within([lives.begin()], 30)
        await self.within([self.clients.subscribe(name, **options) for name, options in lives.subscriptions()], 30)
        living = [self.start(work) for work in lives.all()]
        await self.nemesis.run(self.seconds)
        self.nemesis.heal()
        if sim.shape.racks:
            self.nemesis.burn_a_rack()
        self.healed()
        await self.within(living, 10 if self.beyond else 60)
        await self._all_is_delivered()
        sim.draining = True
        complaints = await self.drain(40 if self.beyond else DRAIN_S)
        if self.clients.snapshots and not complaints:
            complaints = await self._go_back()
        if not complaints and not self.beyond:
            sim.quiescing = True  # all is drained; what is done by the clock comes round
            complaints = await self.drain(QUIESCE_S)
        supervising.cancel()
        sim.coverage.sometimes("a command is lost on the way", sim.farm.lost_before)
        sim.coverage.sometimes("an answer of a disk is lost on the way", sim.farm.lost_after)
        history, seeks = sim.history, self.clients.seeks
        prompt = set(self.nemesis.kinds) <= set(PROMPT)
        self.judge(
            complaints,
            PROMPT_S,
            resets_deliver_again(history, TOPIC, seeks, sim.times),
            snapshots_keep_acknowledgements(history, TOPIC, seeks, sim.times),
            confirmed_once(history),
            nothing_comes_while_it_is_acknowledged(history),
            nobody_else_acknowledges(history, (DOOMED,)),
            failed_means_failed(history),
            letters_arrive(history, DOOMED, LETTERS),
            first_comes_first(history),
            *([sealed_for_its_topic(history, LETTERS)] if sim.shape.sealing else []),
            *([messages_run_out(history, sim.moments, prompt=prompt)] if sim.shape.expiring else []),
        )
        if self.beyond and not all(sim.served(number) for number in sim.records):
            self.violations = []
        await sim.close()

    # -- the end -----------------------------------------------------------------------------------------------------

    async def _all_is_delivered(self) -> None:
        """Nothing that is new waits for acknowledgements of anything else."""
        sim, end = self.sim, self.sim.loop.time() + PROMPT_S
        if sim.master.subscription(PATIENT) is not None and not self.beyond:
            while sim.history.missing(PATIENT, TOPIC) and sim.loop.time() <= end + 1:
                await asyncio.sleep(self.look_s)
            sim.coverage.sometimes("a client keeps its acknowledgements to the end", sim.held)

    async def _go_back(self) -> list[str]:
        """All is quiet: seek to a snapshot, and wait until what it owes has come and is acknowledged again."""
        sim, snapshots = self.sim, self.clients.snapshots
        taken = snapshots[self.random.randrange(0, len(snapshots))]
        name = taken.subscription
        if sim.master.subscription(name) is None:
            return []
        await self.within([self.clients.seek(name, taken)], 20)
        seek = self.clients.seeks[-1]
        seek.quiet = True
        owed = Sets(sim.history, TOPIC, self.clients.seeks, sim.times).owed(seek)
        sim.coverage.sometimes("a snapshot owes messages when all is quiet", owed)
        return await self.drain(DRAIN_S)

    def unfinished(self) -> list[str]:
        sim, found = self.sim, []
        for number in sim.records:
            if not sim.served(number):
                found.append(f"chain {number} is not served: {sim.refusals.get(number)!r}")
            else:
                chain = sim.owners_of[number][0].host.chains[number]
                found += self.unfinished_of(chain)
                if sim.quiescing:
                    found += leftovers(chain, sim.registered)
                    found += [] if sim.is_owned(number) else [f"chain {number} is not served by its owner"]
        return found + self.owed()
