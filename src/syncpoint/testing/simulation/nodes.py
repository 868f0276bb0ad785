"""Processes of the small simulation: what they know of the metadata, and a publish forwarder with its chains.

Place: made by `simulated_chains`; everything behind the methods of internal.v1.Chains is the shipped code.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING

from syncpoint.base.model.cluster import ChainRecord, Member
from syncpoint.base.model.errors import SyncpointError, Unavailable
from syncpoint.base.runtime.environment import Environment
from syncpoint.base.runtime.files import Files
from syncpoint.base.runtime.trusted import TrustedClock
from syncpoint.broker.publish.chain.chain import ChainContext
from syncpoint.broker.publish.chain.host import ChainHost
from syncpoint.broker.publish.chain.service import ChainsService
from syncpoint.broker.publish.facts.origin import PublishOrigin
from syncpoint.broker.publish.intake.envelope import PublishBatch, write_publish
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import CatalogChange
from syncpoint.cluster.control.barrier import ids_of_chain
from syncpoint.cluster.control.due_publishes import FIRST_BATCH
from syncpoint.cluster.control.registration import Registration
from syncpoint.testing.simulation.accidents import Accident, Accidents
from syncpoint.testing.simulation.deletions import Deletions
from syncpoint.testing.simulation.loop import SimProcess
from syncpoint.testing.simulation.sim_facts import FactsWatched
from syncpoint.testing.simulation.sim_metadata import SimShared
from syncpoint.testing.simulation.sim_workers import SimWorkers, run_blocking
from syncpoint.testing.simulation.simulated_disks import SimFiles
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal

if TYPE_CHECKING:
    from syncpoint.testing.simulation.simulated_chains import SimulatedChains

UNIVERSE = 10**12 + 7


class SimCatalogCopy:
    """One process's copy of the catalog, and of who takes keys. While the metadata is out of reach it
    receives nothing.
    """

    def __init__(self, sim: SimulatedChains, accidents: Accidents) -> None:
        self.catalog = Catalog()
        self.on_change: list[Callable[[CatalogChange], None]] = []
        self.cuts = 0  # how many faults keep it from the metadata
        self._sim, self._moved, self._accidents = sim, asyncio.Event(), accidents
        self.assignment = sim.assignment
        self.catch_up()

    @property
    def cut(self) -> bool:
        """Whether the metadata is out of its reach."""
        return self.cuts > 0

    def catch_up(self) -> None:
        """Take over what has happened."""
        if self.cut:
            return
        for change in self._sim.changes[self.catalog.revision :]:
            self.catalog.apply(change)
            for listener in list(self.on_change):
                try:
                    self._accidents.within(partial(listener, change))
                except Accident as accident:  # as the shipped one does: the others learn of it all the same
                    self._sim.note(f"a listener failed at revision {change.revision}: {accident}")
        self.assignment = self._sim.assignment
        self._moved.set()
        self._moved = asyncio.Event()

    async def at(self, revision: int) -> None:
        while self.catalog.revision < revision:
            await self._moved.wait()


class SimNode(ABC):
    """One life of one process."""

    def __init__(self, sim: SimulatedChains, name: str) -> None:
        self.sim, self.name = sim, name
        self.process = SimProcess(sim.loop, name)
        self.accidents = Accidents(sim.random)
        self.shared = SimCatalogCopy(sim, self.accidents)
        self.clock = TrustedClock(sim.clock_of(name), host=name)
        sim.show_clocks(self)
        self.address = f"{name}:1"

    @abstractmethod
    async def start(self) -> None:
        """In the process."""

    def cut(self, more: int) -> None:
        """Count faults that keep it from the metadata."""
        self.shared.cuts += more

    def follow_soon(self) -> None:
        """The catalog, or something else in the metadata, has changed."""
        sim = self.sim
        sim.loop.call_at(
            sim.loop.time() + sim.random.random() ** 2 * 0.05, self.catch_up, context=self.process.context()
        )

    def catch_up(self) -> None:
        """In its own time."""
        self.shared.catch_up()


class SimPublisher(SimNode):
    """A publish forwarder process: the shipped host of chains behind its methods."""

    host: ChainHost

    def __init__(self, sim: SimulatedChains, name: str) -> None:
        super().__init__(sim, name)
        self.incarnation = sim.next_number()
        self.store = SimShared(sim)
        self._sent = FIRST_BATCH

    _opened: SimFiles  # the newest ones; the workers of the same store are asked for next

    async def start(self) -> None:
        """In the process."""
        sim = self.sim
        me = Member(self.name, (), self.address, self.incarnation)
        self.host = ChainHost(
            ChainContext(
                shared=self.shared,
                registrar=Registration(self.store, self.shared, lambda: me),
                assignments=lambda topic: self.shared.assignment,
                sealed=self._sealed,
                open_files=self._open_files,
                next_log=self._next_log,
                universe=UNIVERSE,
                environment=Environment(
                    self.clock,
                    sim.random,
                    make_workers=self._workers,
                    notify=self._notify,
                    blocking=lambda work: run_blocking(sim.sim_threads, work),
                    outside=lambda work: run_blocking(sim.sim_threads, work),
                ),
                settings=sim.settings,
                ids_of_others=self._ids_of_others,
                publish_by_key=self._publish_by_key,
                registered=lambda topic, chain: (topic, chain) in sim.registered,
                registrations=lambda chain: [topic for topic, one in sorted(sim.registered) if one == chain],
            )
        )
        self.host.on_ended = self._ended
        guard = self.host.rounds.guard
        self.host.rounds.guard = lambda step: guard(partial(self.accidents.within, step))  # type: ignore[method-assign]
        self.host.start()
        await sim.network.serve(ChainsService(self.host).methods(), self.name, 1)

    def cut(self, more: int) -> None:
        super().cut(more)
        self.store.cut = self.shared.cut

    def catch_up(self) -> None:
        before = self.shared.assignment
        super().catch_up()
        if self.shared.assignment is not before:
            for topic in self.shared.catalog.topics():
                self.host.assigned(topic.incarnation)

    def _workers(self) -> SimWorkers:
        sim = self.sim
        return SimWorkers(sim.sim_threads, sim.random, self._opened.calm, stops=sim.stops)

    def _notify(self, act: Callable[[], None]) -> None:
        self.sim.loop.call_soon(act, context=self.process.context())

    def _open_files(self, record: ChainRecord, epoch: int) -> tuple[Files, list[str]]:
        places = {f"/{one.cluster}/{one.disk}": partial(self.sim.address_of, one) for one in record.places}
        self._opened = self.sim.farm.files(places, record.number, epoch, record.durability)
        return self._opened, list(places)

    async def _next_log(self) -> int:
        self.reach_metadata()
        self.sim.logs += 1
        return self.sim.logs

    async def _sealed(self, topic: int, epoch: int, chain: int) -> None:
        """As `control.barrier` does: the epoch is read before the chains, all others have to have sealed."""
        self.reach_metadata()
        if self.sim.assignment.epoch != epoch:
            raise Unavailable(f"The keys are assigned in epoch {self.sim.assignment.epoch}, not in {epoch}.")
        others = [one for of, one in sorted(self.sim.registered) if of == topic and one != chain]
        self.sim.coverage.sometimes("other chains seal before keys are taken", others)
        for other in others:
            asked = internal.ConfirmRequest(chain=other, topic=topic, assignment=epoch)
            if not await self.sim.confirmed(asked):
                raise Unavailable(f"Chain {other} has not sealed what it has.")

    async def _ids_of_others(self, topic: int, chain: int) -> AsyncIterator[tuple[bytes, bytes]]:
        """As `control.barrier` does."""

        async def ask(other: int, path: str, request: bytes) -> bytes:
            return await self.sim.call(other, path, request, 3.0)

        for other in [one for of, one in sorted(self.sim.registered) if of == topic and one != chain]:
            async for found in ids_of_chain(ask, other, topic):
                yield found

    async def _publish_by_key(self, topic: int, key: bytes, request: bytes) -> bytes:
        """As `control.due_publishes` does."""
        known = self.shared.assignment
        self._sent += 1
        batch = PublishBatch(
            known.of(key.decode()), known.epoch, True, self.incarnation, self._sent, False, request, topic,
            origin=PublishOrigin.FIRING,
        )  # fmt: skip
        return await self.sim.call(batch.chain, methods.CHAINS.Publish, write_publish(batch), 1.0)

    def reach_metadata(self) -> None:
        """Raises `Unavailable` while it is out of reach."""
        if self.shared.cut:
            self.sim.coverage.sometimes("the metadata is out of reach when it is needed")
            raise Unavailable("The metadata store does not answer.")

    def _ended(self, number: int, error: Exception) -> None:
        self.sim.note(f"{self.name}: chain {number} has ended: {type(error).__name__}")
        self.sim.coverage.sometimes("a fenced owner stops", "Fenced" in type(error).__name__)
        task = asyncio.get_running_loop().create_task(self.host.close(number))
        self.process.tasks.setdefault(task, None)

    async def take(self, number: int, epoch: int) -> bool:
        """Open a chain here under an epoch; in the process."""
        sim = self.sim
        try:
            if any(chain.number == number for chain in self.host.entered):
                await self.host.close(number)
            self.reach_metadata()
            await self.host.open(sim.records[number], epoch)
        except Exception as error:
            sim.note(f"{self.name}: chain {number} not opened in epoch {epoch}: {type(error).__name__}")
            if not isinstance(error, (OSError, SyncpointError)):
                raise
            sim.refused(number, error)
            return False
        chain = self.host.chains[number]
        Deletions(sim.coverage, sim.farm, sim.records, chain)
        FactsWatched(sim.coverage, chain)
        found = chain.store.recovered
        sim.coverage.sometimes("a tail is cut at recovery", found.cut)
        sim.coverage.sometimes("frames are read at recovery", found.scanned)
        sim.coverage.sometimes("a copy is completed after recovery", found.incomplete)
        if not sim.settings.accept_loss:
            sim.coverage.always("nothing promised is on no disk", not found.lost, f"{found.lost}")
        sim.note(f"{self.name}: chain {number} opened in epoch {epoch}: logs {found.logs}, cut {len(found.cut)}")
        return True
