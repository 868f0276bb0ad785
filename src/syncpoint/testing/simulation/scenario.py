"""One seed of a whole cluster: clients work through proxies, faults happen, all is healed, drained and judged."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from syncpoint.publish.backlog import unacknowledged
from syncpoint.runtime.clock import ManualClock
from syncpoint.runtime.random import SeededRandom
from syncpoint.testing.simulation.chain_runs import Result
from syncpoint.testing.simulation.judges import converged, judge, one_writer_per_log
from syncpoint.testing.simulation.loop import ProcessLoop, run_world
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


def run_cluster(seed: int, *, trace: Callable[[str], None] | None = None) -> Result:
    """Run one seed."""
    begun, clock = time.monotonic(), ManualClock()
    if trace is None:
        logging.disable(logging.CRITICAL)
    made: list[_Run] = []

    async def work(loop: ProcessLoop) -> None:
        made.append(_Run(ClusterWorld(loop, clock, seed, trace, 1 if seed % 3 else 3), seed))
        await made[0].run()

    try:
        run_world(clock, work)
    finally:
        if trace is None:
            logging.disable(logging.NOTSET)
    run = made[0]
    world = run.world
    return Result(
        seed, run.violations, world.coverage.happened, run.looked, world.digest.hexdigest(), world.loop.steps,
        clock.monotonic() - world.begun_at, time.monotonic() - begun, world.history.counts(),
    )  # fmt: skip


class _Run:
    def __init__(self, world: ClusterWorld, seed: int) -> None:
        self.world, self.random = world, SeededRandom(seed * 2)
        self.kinds = [kind for kind in FAULTS if self.random.random() < 0.6] or ["crash"]
        self.violations: list[str] = []
        self.looked: dict[str, int] = {}
        self.publishing = True
        self._healing: list[Callable[[], None]] = []
        world.note(f"seed {seed}: faults: {', '.join(self.kinds)}")
        world.loop.set_exception_handler(self._failed)

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.world.note(f"{context.get('message')}: {error!r}")
        self.world.coverage.violations.append(f"nothing fails unexpectedly: {context.get('message')}: {error!r}")

    async def run(self) -> None:
        """All of it."""
        world = self.world
        for name in world.settings.processes:
            world.begin(name)
            await asyncio.sleep(0.01)
        await self._within([world.create_topic()], 60)
        early = [("plain", {}), ("ordered", {"ordered": True}), ("once", {"exactly_once": True})]
        await self._within([world.subscribe(name, **options) for name, options in early], 60)
        for name, _ in early:
            world.client.start(world.consume(name, f"{name}-a"))
        world.client.start(world.consume("plain", "plain-b"))
        publishers = [world.client.start(self._publish(f"p{n}", key)) for n, key in enumerate(("", "k1", "k2"))]
        late = world.client.start(self._late())
        await self._nemesis(4 + 6 * self.random.random())
        self.publishing = False
        self._heal()
        world.note("all is healed")
        await self._within([*publishers, late], 90)
        complaints = await self._drain()
        self.violations, self.looked = judge(
            world.history,
            [one_writer_per_log(world.farm.intruders, world.farm.commands), converged(complaints, 1)],
        )
        self.violations += world.coverage.violations
        world.note(f"end: {world.history.counts()}")
        await world.close()

    async def _within(self, works: list[Any], seconds: float) -> None:
        tasks = [one if isinstance(one, asyncio.Task) else self.world.client.start(one) for one in works]
        done, pending = await asyncio.wait(tasks, timeout=seconds)
        for task in pending:
            task.cancel()
        self.world.coverage.always("clients get on once all is well", not pending, f"{len(pending)} still wait")
        for task in done:
            task.result()

    async def _late(self) -> None:
        await asyncio.sleep(1 + 3 * self.random.random())
        await self.world.subscribe("late")
        self.world.client.start(self.world.consume("late", "late-a"))

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
                self._healing.append(heal)
                world.loop.call_later(lasts, self._over, heal)

    def _heal(self) -> None:
        for heal in list(self._healing):
            self._over(heal)
        self.world.network.heal()
        self.world.doubt = 0.0
        for server in self.world.farm.servers.values():
            if server.alive:
                server.heal()

    def _over(self, heal: Callable[[], None]) -> None:
        if heal in self._healing:
            self._healing.remove(heal)
            heal()

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

    async def _drain(self) -> list[str]:
        world = self.world
        end = world.loop.time() + DRAIN_S
        while True:
            await asyncio.sleep(0.5)
            complaints = self._unfinished()
            if not complaints or world.loop.time() > end:
                return complaints

    def _unfinished(self) -> list[str]:
        world, history = self.world, self.world.history
        found = [f"{name} is not up" for name, member in world.members.items() if not member.up]
        chains = world.chains()
        if len(chains) < 2:
            found.append(f"{len(chains)} of 2 chains are served")
        for chain in chains:
            catalog = chain.follower.catalog
            for record in catalog.subscriptions():
                left = unacknowledged(chain.forwarder, record)
                if left:
                    found.append(f"{record.name} has not acknowledged {left} messages of chain {chain.number}")
            status = chain.store.status()
            if status.under_replicated or status.failure:
                found.append(f"chain {chain.number}: {status.under_replicated} on too few disks {status.failure}")
            found += [f"{disk.path}: {disk.state} {disk.reason}" for disk in status.disks if disk.state != "ok"]
        for creation in history.creations:
            lacking = history.missing(creation.subscription, creation.topic)
            owed = {one.identity for one in history.publishes if one.begun > creation.ended} & lacking
            if owed:
                found.append(f"{creation.subscription} has not got {len(owed)} messages, {min(owed)} for one")
        return found
