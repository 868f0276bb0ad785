"""The shape of one seed's run, alike for all simulations: live, heal, drain, judge.

Place: under `chain_runs` and `scenario`, which say how clients live and which faults there are.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.broker.publish.chain.chain import Chain
from syncpoint.broker.publish.keep.backlog import unacknowledged
from syncpoint.testing.rigs.checkers import CheckResult
from syncpoint.testing.simulation.base import Simulation, Trace
from syncpoint.testing.simulation.loop import ProcessLoop, own_turns, run_in_loop
from syncpoint.testing.simulation.run_checkers import converged, judge, one_writer_per_log, progress
from syncpoint.testing.simulation.scaled import patched, scaled
from syncpoint.wire.transport import fair

W = TypeVar("W", bound=Simulation)


@dataclass
class RunResult:
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
    drained_s: float = 0.0  # from the healing until everything was delivered and acknowledged

    @property
    def good(self) -> bool:
        return not self.violations


class SimRun(Generic[W]):
    """Base of one seed's run.

    `prompt_s`: seconds after healing within which a message must be delivered for the first time.
    """

    look_s = 0.25  # between two looks at what is not drained yet
    keeping: frozenset[str] = frozenset()  # subscriptions that keep messages, and nobody acknowledges any

    def __init__(self, sim: W, seed: int, random: SeededRandom) -> None:
        self.sim, self.random = sim, random
        self.violations: list[str] = []
        self.looked: dict[str, int] = {}
        self.publishing = True
        self.drained_s = 0.0
        sim.loop.set_exception_handler(self._failed)

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.sim.note(f"{context.get('message')}: {error!r}")
        self.sim.coverage.always("nothing fails unexpectedly", False, f"{context.get('message')}: {error!r}")

    async def run(self) -> None:
        """All of it."""
        raise NotImplementedError

    def start(self, work: Any) -> asyncio.Task[None]:
        """Let a client do something."""
        task: asyncio.Task[None] = self.sim.client.start(work)
        return task

    async def within(self, works: Iterable[Any], seconds: float) -> None:
        """Wait for clients; they must make progress within these seconds."""
        tasks = [one if isinstance(one, asyncio.Task) else self.start(one) for one in works]
        done, pending = await asyncio.wait(tasks, timeout=seconds) if tasks else (set(), set())
        for task in pending:
            task.cancel()
        self.sim.coverage.always("clients get on once all is well", not pending, f"{len(pending)} still wait")
        for task in done:
            task.result()

    def healed(self) -> None:
        """From now on nothing is broken, and nobody publishes anything new."""
        self.publishing = False
        self.sim.moments.healed = self.sim.now
        self.sim.note("all is healed")

    async def drain(self, seconds: float) -> list[str]:
        """Wait until everything is delivered, acknowledged and on all disks; what is not, in words."""
        sim = self.sim
        end = sim.loop.time() + seconds
        while True:
            await asyncio.sleep(self.look_s)
            complaints = self.unfinished()
            if not complaints or sim.loop.time() > end:
                self.drained_s = sim.now - sim.moments.healed
                return complaints

    def unfinished(self) -> list[str]:
        """What there is to wait for."""
        raise NotImplementedError

    def unfinished_of(self, chain: Chain) -> list[str]:
        """Return the unfinished work of one chain."""
        found = []
        for record in chain.follower.catalog.subscriptions():
            if record.name in self.keeping:
                continue
            left = unacknowledged(chain.forwarder, record)
            if left:
                found.append(f"{record.name} has not acknowledged {left} messages of chain {chain.number}")
        status = chain.store.status()
        if status.under_replicated or status.failure:
            number = chain.number
            found.append(f"chain {number} has {status.under_replicated} entries on too few disks {status.failure}")
        for disk in status.disks:
            if disk.state != "ok":
                found.append(f"disk {disk.path} of chain {chain.number} is {disk.state}: {disk.reason}")
        return found

    def owed(self) -> list[str]:
        """Subscriptions that lack messages."""
        history, found = self.sim.history, []
        for creation in history.creations:
            if creation.until:
                continue
            lacking = history.missing(creation.subscription, creation.topic)
            owed = {one.identity for one in history.publishes if one.begun > creation.ended} & lacking
            if owed:
                found.append(f"{creation.subscription} has not got {len(owed)} messages, {min(owed)} for one")
        return found

    def judge(self, complaints: list[str], prompt_s: float, *further: CheckResult) -> None:
        """The end: every promise is checked."""
        sim = self.sim
        self.violations, self.looked = judge(
            sim.history,
            [
                one_writer_per_log(sim.farm.intruders, sim.farm.commands),
                progress(sim.history, sim.moments, prompt_s),
                converged(complaints, 1),
                *further,
            ],
        )
        self.violations += sim.coverage.violations
        sim.note(f"end: {sim.history.counts()}")


def simulate(seed: int, make: Callable[[ProcessLoop, ManualClock], SimRun[Any]], trace: Trace | None) -> RunResult:
    """Run one seed on a loop of its own. Without a trace the product's own log is silent."""
    begun, clock = time.monotonic(), ManualClock()
    made: list[SimRun[Any]] = []

    async def work(loop: ProcessLoop) -> None:
        made.append(make(loop, clock))
        await made[0].run()

    if trace is None:
        logging.disable(logging.CRITICAL)
    try:
        with scaled(), patched(fair, turns=own_turns):
            run_in_loop(clock, work)
    finally:
        if trace is None:
            logging.disable(logging.NOTSET)
    run = made[0]
    sim = run.sim
    return RunResult(
        seed, run.violations, sim.coverage.happened, run.looked, sim.digest.hexdigest(), sim.loop.steps,
        sim.now, time.monotonic() - begun, sim.history.counts(), run.drained_s,
    )  # fmt: skip
