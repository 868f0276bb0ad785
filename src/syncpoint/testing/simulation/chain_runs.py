"""One seed of the small world: clients work, faults happen, all is healed, drained and judged."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from syncpoint.metadata.records import Change
from syncpoint.publish.backlog import unacknowledged
from syncpoint.runtime.clock import ManualClock
from syncpoint.runtime.random import SeededRandom
from syncpoint.testing.simulation.chains import ChainsWorld, Consuming, Publisher, Shape
from syncpoint.testing.simulation.faults import Nemesis
from syncpoint.testing.simulation.judges import converged, judge, one_writer_per_log, sought_is_delivered_again
from syncpoint.testing.simulation.loop import ProcessLoop, run_world

DRAIN_S = 60.0


@dataclass
class Result:
    """What came of one seed."""

    seed: int
    violations: list[str]
    happened: Counter[str]
    looked: dict[str, int]
    digest: str
    steps: int
    virtual_s: float
    real_s: float
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        return not self.violations


def run_chains(
    seed: int,
    *,
    shape: Shape | None = None,
    kinds: tuple[str, ...] = (),
    beyond: bool = False,
    trace: Callable[[str], None] | None = None,
) -> Result:
    """Run one seed. `shape` and `kinds` of faults are drawn from it unless given. `beyond`: more is destroyed than the
    others can make good; then a chain that refuses to be opened breaks no promise.
    """
    begun = time.monotonic()
    clock = ManualClock()
    drawn = shape or Shape.draw(SeededRandom(seed * 3 + 7))
    if trace is None:
        logging.disable(logging.CRITICAL)
    made: list[_Run] = []

    async def work(loop: ProcessLoop) -> None:
        made.append(_Run(loop, clock, seed, drawn, kinds, trace, beyond))
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
    def __init__(
        self, loop: ProcessLoop, clock: ManualClock, seed: int, shape: Shape, kinds: tuple[str, ...],
        trace: Callable[[str], None] | None, beyond: bool,
    ) -> None:  # fmt: skip
        self.random = SeededRandom(seed * 5 + 1)
        self.world = ChainsWorld(loop, clock, seed, shape, trace)
        self.nemesis = Nemesis(self.world, seed, kinds, beyond=beyond)
        self.beyond = beyond
        self.world.note(f"seed {seed}: {shape}, faults: {', '.join(self.nemesis.kinds)}")
        self.violations: list[str] = []
        self.looked: dict[str, int] = {}
        self.seeks: list[tuple[str, int, int]] = []
        self.publishing = True
        self.seeking = self.random.random() < 0.4
        loop.set_exception_handler(self._failed)

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        error = context.get("exception")
        self.world.note(f"{context.get('message')}: {error!r}")
        self.world.coverage.always("nothing fails unexpectedly", False, f"{context.get('message')}: {error!r}")

    async def run(self) -> None:
        world, loop = self.world, self.world.loop
        if not self.seeking:  # then what is acknowledged is deleted
            topic = world.master.topic("projects/p/topics/orders")
            assert topic is not None
            world.commit(Change.put(replace(topic, retention_s=0)))
        for number in range(world.shape.forwarders):
            await world.begin(Publisher, f"f{number}")
        for number in range(world.shape.subscribers):
            await world.begin(Consuming, f"s{number}")
        supervising = loop.create_task(world.supervise())
        work = [self._start(self._create(name, 0.0, **options)) for name, options in self._subscriptions()]
        await self._wait(work, 30)
        publishers = [
            self._start(self._publish(f"p{number}", key, number))
            for number, key in enumerate(["", "k1", "k2"][: 2 + (self.random.random() < 0.5)])
        ]
        late = [self._start(self._create("late", self.random.random() * 2, **self._late_options()))]
        if self.seeking:
            late.append(self._start(self._seek()))
        await self.nemesis.run(1.5 + 3 * self.random.random())
        self.publishing = False
        self.nemesis.heal()
        world.note("all is healed")
        await self._wait([*publishers, *late], 10 if self.beyond else 60)
        world.draining = True
        complaints = await self._drain()
        supervising.cancel()
        world.coverage.sometimes("a command is lost on the way", world.farm.lost_before)
        world.coverage.sometimes("an answer of a disk is lost on the way", world.farm.lost_after)
        self.violations, self.looked = judge(
            world.history,
            [
                one_writer_per_log(world.farm.intruders, world.farm.commands),
                sought_is_delivered_again(world.history, self.seeks),
                converged(complaints, 1),
            ],
        )
        self.violations += world.coverage.violations
        if self.beyond and not all(world.served(number) for number in world.records):
            self.violations = []
        world.note(f"end: {world.history.counts()}")
        await world.close()

    def _start(self, work: object) -> asyncio.Task[None]:
        return self.world.client.start(work)  # type: ignore[arg-type]

    async def _wait(self, tasks: list[asyncio.Task[None]], seconds: float) -> None:
        done, pending = await asyncio.wait(tasks, timeout=seconds)
        for task in pending:
            task.cancel()
        self.world.coverage.always("clients get on once all is well", not pending, f"{len(pending)} still wait")
        for task in done:
            task.result()

    def _subscriptions(self) -> list[tuple[str, dict[str, bool]]]:
        kinds = [("plain", {}), ("ordered", {"ordered": True}), ("once", {"exactly_once": True})]
        if self.seeking:
            return [("sought", {}), kinds[self.random.randrange(0, 3)]]
        return kinds if self.random.random() < 0.4 else kinds[self.random.randrange(0, 3) :][:2]

    def _late_options(self) -> dict[str, bool]:
        return {"ordered": self.random.random() < 0.3, "exactly_once": self.random.random() < 0.3}

    async def _create(self, name: str, after: float, **options: bool) -> None:
        await asyncio.sleep(after)
        await self.world.subscribe(name, **options)

    async def _seek(self) -> None:
        for _ in range(1 + (self.random.random() < 0.5)):
            await asyncio.sleep(0.3 + 2 * self.random.random())
            begun, ended = await self.world.seek("sought")
            self.seeks.append(("sought", begun, ended))

    async def _publish(self, client: str, key: str, sender: int) -> None:
        number = 0
        while self.publishing:
            size = 40 if self.random.random() < 0.8 else self.random.randrange(0, 6000)
            if self.world.shape.heavy:
                size = self.random.randrange(0, 40_000)
            await self.world.publish(client, number, key, sender + 1, size, 20.0)
            number += 1
            await asyncio.sleep(self.random.random() ** 3 * 0.15)

    async def _drain(self) -> list[str]:
        """Wait until everything is delivered, acknowledged and on all disks; what is not, in words."""
        world = self.world
        end = world.loop.time() + (40 if self.beyond else DRAIN_S)
        while True:
            await asyncio.sleep(0.25)
            complaints = self._unfinished()
            if not complaints or world.loop.time() > end:
                return complaints

    def _unfinished(self) -> list[str]:
        world, history = self.world, self.world.history
        found = []
        for number in world.records:
            if not world.served(number):
                found.append(f"chain {number} is not served: {world.refusals.get(number)!r}")
                continue
            chain = world.owners_of[number][0].host.chains[number]
            for record in world.master.subscriptions():
                left = unacknowledged(chain.forwarder, record)
                if left:
                    found.append(f"{record.name} has not acknowledged {left} messages of chain {number}")
            status = chain.store.status()
            if status.under_replicated or status.failure:
                found.append(f"chain {number} has {status.under_replicated} entries on too few disks {status.failure}")
            for disk in status.disks:
                if disk.state != "ok":
                    found.append(f"disk {disk.path} of chain {number} is {disk.state}: {disk.reason}")
        for creation in history.creations:
            lacking = history.missing(creation.subscription, creation.topic)
            owed = {one.identity for one in history.publishes if one.begun > creation.ended} & lacking
            if owed:
                found.append(f"{creation.subscription} has not got {len(owed)} messages, {min(owed)} for one")
        return found
