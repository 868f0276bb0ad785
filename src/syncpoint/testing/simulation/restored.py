"""Metadata that are lost and restored from a backup, in some lives of a whole cluster.

Place: beside the clients of `scenario`, which publish and receive all the time. From the backup on nothing is changed
in the catalog, so it is judged by the same history as without a restore: what was confirmed before the loss, after the
backup too, arrives; no id is given twice; what was acknowledged does not come again to an exactly-once subscription.
"""

from __future__ import annotations

import asyncio

from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.catalog.metadata.backup import read_backup, restore, take_backup
from syncpoint.catalog.metadata.memory import MemoryStore
from syncpoint.testing.simulation.sim_metadata import SimShared
from syncpoint.testing.simulation.simulated_cluster import SimulatedCluster

UP_S = 60.0  # until everything has started, at most


class RestoredMetadata:
    """Lose a cluster's metadata and restore them from a backup while messages are published and delivered."""

    def __init__(self, sim: SimulatedCluster, seed: int) -> None:
        self.sim, self.random = sim, SeededRandom(seed * 41 + 6)

    async def live(self) -> None:
        """Take a backup; let owners change; kill everything; restore the metadata; start everything."""
        sim, random = self.sim, self.random
        await self._all_is_up()
        shared = SimShared(sim)
        data = await take_backup(shared, sim.clock)
        await shared.close()
        sim.note("the metadata are backed up")
        for _ in range(random.randrange(0, 4)):
            await asyncio.sleep(random.random())
            name = f"p{random.randrange(0, sim.publishers)}"
            sim.crash(name)
            sim.begin(name)
        await asyncio.sleep(3 * random.random())
        for name in list(sim.members):
            sim.crash(name)
        sim.note("everything is killed")
        lost = sim.settings.sealing_key_file is None and random.random() < 0.5  # keys that are lost open nothing
        sim.coverage.sometimes("the metadata are lost with their store", lost)
        if lost:
            sim.store = MemoryStore(clock=sim.clock, random=sim.random)
        shared = SimShared(sim)
        while True:
            try:
                await restore(shared, read_backup(data), sim.random, sim.clock)
                break
            except FailedPrecondition:  # members are known until their leases end
                await asyncio.sleep(1.0)
        await shared.close()
        sim.coverage.sometimes("the metadata are restored")
        sim.note("the metadata are restored")
        await sim.begin_all()
        await self._all_is_up()

    async def _all_is_up(self) -> None:
        sim = self.sim
        end = sim.loop.time() + UP_S
        while (complaints := sim.not_up()) and sim.loop.time() < end:
            await asyncio.sleep(0.2)
        sim.coverage.always("everything starts", not complaints, "; ".join(complaints))
