"""Owners of chains in the small simulation: who serves a chain and who owns it in the metadata come to agree."""

from __future__ import annotations

import asyncio

from syncpoint.base.runtime.clock import ManualClock
from syncpoint.testing.simulation.loop import ProcessLoop, run_in_loop
from syncpoint.testing.simulation.nodes import SimPublisher
from syncpoint.testing.simulation.simulated_chains import SimulatedChains
from syncpoint.testing.simulation.topology import TOPIC_NUMBER, Topology

UNKNOWN = TOPIC_NUMBER + 76  # a topic of which nothing is left
SOON_S = 1.0


def test_a_takeover_that_failed_is_followed_by_one_that_shuts_the_former_owner_out() -> None:
    """Else the former owner goes on for ever, and none of its removals of registrations is taken."""
    clock, seen = ManualClock(), []

    async def work(loop: ProcessLoop) -> None:
        sim = SimulatedChains(loop, clock, 1, Topology(clusters=1, disks=1), None)
        for name in ("f0", "f1"):
            await sim.begin(SimPublisher, name)
        first, other = sim.publishers
        sim.take_over(1, first)
        await sim.opening[1]
        supervising = loop.create_task(sim.supervise())
        other.cut(1)
        sim.take_over(1, other)
        await sim.opening[1]
        other.cut(-1)
        await asyncio.sleep(SOON_S)
        seen.append((sim.served(1), sim.is_owned(1)))
        registrar = first.host.context.registrar
        await registrar.register(UNKNOWN, 1)
        seen.append(await registrar.unregister(UNKNOWN, 1, sim.owners_of[1][1]))
        sim.quiescing = True
        await asyncio.sleep(SOON_S)
        seen.append((sim.served(1), sim.is_owned(1)))
        owner, epoch = sim.owners_of[1]
        seen.append(await owner.host.context.registrar.unregister(UNKNOWN, 1, epoch))
        supervising.cancel()
        await sim.close()

    run_in_loop(clock, work)
    assert seen == [(True, False), False, (True, True), True]
