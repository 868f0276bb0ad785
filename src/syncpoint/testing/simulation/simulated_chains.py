"""A small simulation for many seeds: disks, publish forwarders that compete for chains, subscribe forwarders, clients.

Place: everything between the methods of internal.v1.Chains and the disks is the shipped code, and so is the subscribe
side. The catalog is plain values, which every process learns in its own time; what is registered for a topic lies in a
metadata store, under the shipped code. Who owns a chain is decided by a supervisor that often errs: it lets another
process take a chain over while the old owner lives, hangs, or is cut off.
Processes are in `nodes` and `consuming`, what clients ask for in `clients`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from syncpoint.base.model.cluster import ChainOwner, ChainRecord, DiskPlace
from syncpoint.base.model.errors import SyncpointError, Unavailable
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.broker.publish.chain.chain import Chain
from syncpoint.broker.publish.facts.source import INNER_TOPICS
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.contract import Put
from syncpoint.catalog.metadata.layout import HEAD, OPEN, OWNERS
from syncpoint.catalog.metadata.memory import MemoryStore
from syncpoint.catalog.metadata.records import CatalogChange, ChangeOp, Subscription, Topic
from syncpoint.log.diskserver.remote_disk import DiskAddress
from syncpoint.log.storage.disk.disk_writer import DiskWriter
from syncpoint.log.storage.errors import StorageDamaged
from syncpoint.log.storage.quorum import AckRule
from syncpoint.log.storage.settings import StorageSettings
from syncpoint.testing.simulation.base import Simulation, Trace
from syncpoint.testing.simulation.loop import ProcessLoop
from syncpoint.testing.simulation.nodes import SimNode, SimPublisher
from syncpoint.testing.simulation.simulated_disks import SimDiskServer
from syncpoint.testing.simulation.topology import TOPIC, TOPIC_NUMBER, Topology
from syncpoint.wire.protobuf import methods

CONFIRM_S = 3.0
LAG_BYTES_MAX = 96 * 1024


@dataclass(frozen=True)
class SimAssignment:
    """Which chains take keys."""

    epoch: int
    chains: tuple[int, ...]

    def of(self, key: str) -> int:
        """The chain that takes a key."""
        return self.chains[sum(key.encode()) % len(self.chains)]


class SimulatedChains(Simulation):
    """A small simulation for many seeds."""

    def __init__(self, loop: ProcessLoop, clock: ManualClock, seed: int, shape: Topology, trace: Trace | None) -> None:
        super().__init__(loop, clock, seed, trace)
        self.shape = shape
        self.stops = 0.01 + 0.05 * self.random.random()
        self.settings = StorageSettings(
            segment_bytes=64 * 1024, pool_segments=2 if shape.room else 1, pool_segments_max=2,
            segment_entries_max=shape.entries, reserve_bytes=None if shape.room else 0,
            scrub_bytes_s=0 if self.random.random() < 0.7 else 256 * 1024, cache_bytes=20_000,
            index_cache_bytes=16_384 if self.random.random() < 0.2 else 1 << 20, read_ahead_bytes=8_192,
            commit_bytes_max=20_000, hung_s=1.5, probe_interval_s=0.5, lag_bytes_max=LAG_BYTES_MAX,
            collect_entries_step=60,
        )  # fmt: skip
        self.master = Catalog()
        self.changes: list[CatalogChange] = []
        self.store = MemoryStore(clock=clock, random=self.random)
        self.doubt = 0.0  # that the outcome of a transaction stays unknown
        self.registered: frozenset[tuple[int, int]] = frozenset()
        self._missed: frozenset[tuple[int, int]] = frozenset()  # not registered, and that was reported
        self._opened = self.store.watch(OPEN, from_revision=1, notify=self._registered)
        self.assignment = self.before = SimAssignment(1, tuple(range(1, shape.chains + 1)))
        self.logs = self._numbers = 0
        self.draining = False
        self.turn = 0  # whose turn it is to have clients, where not everybody has
        self.held_up = False  # what an owner decides does not reach its disks
        self.quiescing = False  # what the metadata says of owners has to be true now
        self.keeps = True  # whether the topic keeps what is acknowledged
        self.times: dict[str, int] = {}  # message -> when it was published, as it says itself
        self.bury: Callable[[str, bytes], Awaitable[bytes | None]]
        self.held = 0  # acknowledgements that clients keep
        self.refusals: dict[int, Exception] = {}
        self._far: set[DiskWriter] = set()  # lagged too much at the last look
        self.lapsed: set[str] = set()  # servers of disks whose leases have ended
        self.nodes: dict[str, SimNode] = {}
        self.owners_of: dict[int, tuple[SimPublisher, int]] = {}
        self.epochs: dict[int, int] = {}
        self.opening: dict[int, asyncio.Task[Any]] = {}
        self.records = self._place()
        self.commit(CatalogChange.put(Topic(TOPIC_NUMBER, TOPIC, retention_s=31 * 86_400)))

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _place(self) -> dict[int, ChainRecord]:
        """Disks for all chains: as many servers as there are clusters, or one per disk where there is one cluster."""
        shape = self.shape
        places = []
        for cluster in range(shape.clusters):
            names = tuple(f"d{cluster}{number}" for number in range(shape.disks))
            if shape.clusters == 1 or shape.spread:
                for name in names:
                    self.farm.serve(f"disk-{name}", (name,))
                    places.append(DiskPlace(f"c{cluster}", name, f"disk-{name}"))
            else:
                self.farm.serve(f"disk-{cluster}", names)
                places += [DiskPlace(f"c{cluster}", name, f"disk-{cluster}") for name in names]
        for place in places:
            self.farm.servers[place.process].limit(shape.room)
        grid = AckRule.grid(shape.clusters, shape.disks)
        racks = tuple(int(cluster == shape.clusters - 1) for cluster in grid.clusters)
        rule = (replace(grid, racks=racks, racks_min=2) if shape.racks else grid).to_values()
        return {
            number: ChainRecord(number, f"chain{number}", "default", "", "", tuple(places), rule, shape.durability)
            for number in range(1, shape.chains + 1)
        }

    def address_of(self, place: DiskPlace) -> DiskAddress | None:
        """Where a disk is served; None once that is known no more."""
        return None if place.process in self.lapsed else DiskAddress(place.process, 1, place.disk)

    # -- metadata ----------------------------------------------------------------------------------------------------

    def commit(self, *changes: CatalogChange) -> int:
        """Change the catalog; processes learn of it in their own time."""
        for change in self.master.assign(changes):
            record = change.record
            if isinstance(record, Subscription) and change.op is ChangeOp.PUT and not record.created_revision:
                change = CatalogChange(change.revision, change.op, replace(record, created_revision=change.revision))
            self.master.apply(change)
            self.changes.append(change)
        self.store.txn([], [Put(HEAD, b"%d 0" % self.master.revision)])
        self.notify_all()
        return self.master.revision

    def _registered(self) -> None:
        """Something is registered for a topic, or is no more; whoever looks sees it now, others learn of it."""
        self._opened.poll()
        items = self.store.range(OPEN).items
        places = (OPEN.numbers(item.key) for item in items)
        self.registered = frozenset((int(topic), int(chain)) for topic, chain in places)
        self.notify_all()

    def subscription(self, name: str) -> Subscription:
        """As it is now."""
        found = self.master.subscription(name)
        assert found is not None, name
        return found

    def topic(self, name: str) -> Topic:
        """As it is now."""
        found = self.master.topic(name)
        assert found is not None, name
        return found

    def stored(self, name: str) -> bool:
        """Whether a chain that is served knows anything of a topic that may still be needed."""
        topic = self.topic(name).incarnation
        owners = (owner for number, (owner, _) in self.owners_of.items() if self.served(number))
        return any(chain.forwarder.sources.of_topic(topic) for one in owners for chain in one.host.chains.values())

    def received(self, subscription: str, receiver: str, message: Any) -> None:
        self.times.setdefault(message.message_id, message.publish_time.ToNanoseconds())
        super().received(subscription, receiver, message)

    def assign(self, chains: tuple[int, ...]) -> None:
        """The topic's keys move to these chains."""
        self.before, self.assignment = self.assignment, SimAssignment(self.assignment.epoch + 1, chains)
        self.note(f"keys are taken by {chains} in epoch {self.assignment.epoch}")
        self.notify_all()

    def notify_all(self) -> None:
        """Every process learns of what has changed, sooner or later."""
        for node in self.nodes.values():
            node.follow_soon()

    def owners(self) -> Mapping[int, str]:
        return {number: owner.address for number, (owner, _) in self.owners_of.items()}

    def chains_of(self, topic: int) -> Collection[int]:
        return sorted(chain for of, chain in self.registered if of == topic)

    def read_chains(self, topic: int, reply: Callable[[Collection[int] | None], None]) -> None:
        self.loop.call_later(0.01, lambda: reply(self.chains_of(topic)))

    # -- processes ---------------------------------------------------------------------------------------------------

    def begin(self, kind: Callable[[SimulatedChains, str], SimNode], name: str) -> asyncio.Task[None]:
        """Start a process, or start it again."""
        node = self.nodes[name] = kind(self, name)
        return node.process.start(node.start())

    def crash(self, name: str) -> None:
        """kill -9."""
        node = self.nodes[name]
        node.process.crash()
        self.network.ended(node.process)

    @property
    def publishers(self) -> list[SimPublisher]:
        return [node for node in self.nodes.values() if isinstance(node, SimPublisher)]

    def refused(self, number: int, error: Exception) -> None:
        """A chain could not be opened."""
        self.coverage.sometimes(f"opening is refused: {type(error).__name__}")
        self.refusals[number] = error
        self.coverage.always("what was promised can be opened", not isinstance(error, StorageDamaged), str(error)[:300])

    def served(self, number: int) -> bool:
        """Whether the owner of a chain, as far as is known, serves it."""
        found = self.owners_of.get(number)
        return found is not None and found[0].process.alive and number in found[0].host.chains

    def is_owned(self, number: int) -> bool:
        """Whether the metadata, too, has who serves a chain as its owner. Somebody who was let take it over and could
        not open it has not shut the other one out, but is its owner there: removals of registrations are refused then.
        """
        return self.served(number) and self.owners_of[number][1] == self.epochs[number]

    def take_over(self, number: int, owner: SimPublisher) -> None:
        """Let a process open a chain, no matter who owns it now."""
        before = self.owners_of.get(number)
        if before is not None and self.served(number) and before[0] is not owner:
            self.coverage.sometimes("a chain is taken over from a living owner")
            self.coverage.sometimes("a chain is taken over from one that hangs", before[0].process.hung)
        epoch = self.epochs[number] = self.epochs.get(number, 0) + 1

        held = ChainOwner(owner.name, owner.incarnation, epoch, owner.address).encode()
        self.store.txn([], [Put(OWNERS.key(number), held)])

        async def take() -> None:
            if await owner.take(number, epoch) and epoch >= self.owners_of.get(number, (owner, 0))[1]:
                self.owners_of[number] = (owner, epoch)
                self.refusals.pop(number, None)
                self.notify_all()

        self.note(f"{owner.name} takes chain {number} in epoch {epoch}")
        self.opening[number] = owner.process.start(take())

    def is_opening(self, number: int) -> bool:
        """Whether somebody is about to."""
        task = self.opening.get(number)
        return (
            task is not None
            and not task.done()
            and any(node.process.alive and task in node.process.tasks for node in self.nodes.values())
        )

    async def supervise(self) -> None:
        """Find an owner for what has none. While things go wrong, who serves a chain may go on although another one,
        that could not open it, is owner in the metadata; members of a cluster would learn of that and close it.
        """
        for turn in count():
            await asyncio.sleep(0.1)
            for node in self.nodes.values() if turn % 10 == 0 else ():
                self.show_clocks(node)
            before, self._far = self._far, set()
            for one in self.publishers:
                at_work = one.process.alive and not one.process.hung and not one.process.held
                for chain in one.host.chains.values() if at_work else ():
                    self._watch_lag(chain, before)
                    self._watch_registration(chain)
            for number in self.records:
                well = self.is_owned(number) if self.quiescing else self.served(number)
                if not well and not self.is_opening(number):
                    living = [one for one in self.publishers if one.process.alive and not one.process.hung]
                    if living:
                        self.take_over(number, living[self.random.randrange(0, len(living))])

    def show_clocks(self, node: SimNode) -> None:
        """What the clocks of other machines show, as members of a cluster report it to each other."""
        if not node.process.alive or node.process.hung or node.shared.cut:
            return
        for name in ("metadata", "router", *self.nodes):
            if name != node.name:
                node.clock.observe(name, name, self.clock_of(name).time_ns())

    def _watch_lag(self, chain: Chain, before: Collection[DiskWriter]) -> None:
        """A disk that lags too much leaves the live stream where the others suffice (rule 8), by the next look at the
        latest: what was appended, or written by the others, since its owner's last turn is not dealt with yet.
        """
        log = chain.store._disks.log
        for writer in log.live:
            others = [one.slot for one in log.live if one is not writer and one.lag_bytes < LAG_BYTES_MAX // 4]
            far = writer.ok and writer.lag_bytes > LAG_BYTES_MAX and log.goes_on(others)
            if far:
                self._far.add(writer)
            stays = far and writer in before
            self.coverage.always("no disk is far behind", not stays, f"{writer.root}: {writer.lag_bytes}")
            self.coverage.sometimes("a disk lags behind", writer.lag_bytes > LAG_BYTES_MAX // 2)

    def _watch_registration(self, chain: Chain) -> None:
        """What a chain is published to it is registered for, as long as anything is left (rule 16)."""
        if (
            not self.is_owned(chain.number)
            or self.owners_of[chain.number][0].host.chains.get(chain.number) is not chain
        ):
            return  # somebody else decides what is registered
        sources = chain.forwarder.sources
        for topic in set(sources.topics()) - INNER_TOPICS:
            if sources.open_of(topic) is not None and (topic, chain.number) not in self.registered | self._missed:
                self._missed |= {(topic, chain.number)}
                text = f"topic {topic} in chain {chain.number}"
                self.coverage.always("a chain is registered for what is published to it", False, text)

    async def close(self) -> None:
        """End everything."""
        for node in self.nodes.values():
            if node.process.alive:
                node.process.crash()
        await super().close()

    # -- asking chains -----------------------------------------------------------------------------------------------

    async def call(self, chain: int, path: str, message: Any, timeout_s: float) -> bytes:
        """Ask the owner of a chain, as far as it is known. Raises `Unavailable`, and what it says."""
        owner = self.owners_of.get(chain)
        if owner is None:
            raise Unavailable("it has no owner")
        channel = self.network.channel(owner[0].address)
        return await channel.unary(path, message, timeout=timeout_s)

    async def confirmed(self, asked: Any) -> bool:
        """Whether a chain has persisted what an internal.ConfirmRequest asks for, within three seconds."""
        end, request = self.loop.time() + CONFIRM_S, asked.SerializeToString()
        while True:
            try:
                await self.call(asked.chain, methods.CHAINS.Confirm, request, max(0.1, end - self.loop.time()))
                return True
            except SyncpointError:
                if self.loop.time() >= end:
                    return False
                await asyncio.sleep(0.1)


def servers_of(sim: SimulatedChains) -> list[SimDiskServer]:
    """All servers of disks, in order."""
    return [sim.farm.servers[name] for name in sorted(sim.farm.servers)]
