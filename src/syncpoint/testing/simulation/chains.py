"""A small world for many seeds: disks, publish forwarders that compete for chains, subscribe forwarders, clients.

Place: everything between the methods of internal.v1.Chains and the disks is the shipped code, and so is the subscribe
side. The metadata is plain values, which every process learns in its own time; who owns a chain is decided by a
supervisor that often errs: it lets another process take a chain over while the old owner lives, hangs, or is cut off.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from syncpoint.metadata.catalog import Catalog
from syncpoint.metadata.records import ACTIVE, CREATING, Change, Op, SeekTarget, Subscription, Topic
from syncpoint.model.cluster import ChainRecord, DiskPlace
from syncpoint.model.errors import FailedPrecondition, SyncpointError, Unavailable
from syncpoint.publish.chain import Chain, Surroundings
from syncpoint.publish.envelope import PUBLISH, PublishBatch, write_publish
from syncpoint.publish.host import ChainHost
from syncpoint.publish.service import ChainsService
from syncpoint.runtime.clock import ManualClock
from syncpoint.runtime.files import Files
from syncpoint.runtime.random import Random, SeededRandom
from syncpoint.storage.errors import StorageDamaged
from syncpoint.storage.quorum import AckRule
from syncpoint.storage.remote.disk import DiskAddress
from syncpoint.storage.settings import StorageSettings
from syncpoint.subscribe.forwarder import SubscribeForwarder
from syncpoint.subscribe.gather import Gatherer
from syncpoint.subscribe.lenders import lender_of
from syncpoint.subscribe.link import ServeLink
from syncpoint.subscribe.peers import Peer
from syncpoint.testing.history import History, Identity, Outcome, seal
from syncpoint.testing.simulation.coverage import Coverage
from syncpoint.testing.simulation.disks import DiskFarm, DiskServer, SimFiles
from syncpoint.testing.simulation.loop import ProcessLoop, SimProcess
from syncpoint.testing.simulation.network import SimNetwork
from syncpoint.testing.simulation.strands import Strands
from syncpoint.testing.simulation.workers import SimWorkers, run_blocking
from syncpoint.wire.messages import internal, pubsub

TOPIC, TOPIC_NUMBER = "projects/p/topics/orders", 1
CONFIRM = "/syncpoint.internal.v1.Chains/Confirm"
UNIVERSE = 10**12 + 7
LAG_BYTES_MAX = 96 * 1024
LAG_SLACK_BYTES = 64 * 1024  # one turn's entries, before anybody looks


@dataclass(frozen=True)
class Shape:
    """What a seed's world consists of."""

    clusters: int = 3
    disks: int = 3
    forwarders: int = 2
    subscribers: int = 1
    chains: int = 1
    durability: str = "sync"
    spread: bool = False  # every disk is served by a process of its own
    heavy: bool = False  # large messages, many of them

    @staticmethod
    def draw(random: Random) -> Shape:
        """Mostly small ones: they run faster, and most of what can go wrong goes wrong in them."""
        clusters, disks = ((1, 1), (1, 3), (3, 1), (3, 1), (3, 3))[random.randrange(0, 5)]
        async_ = (clusters, disks) != (1, 1) and random.random() < 0.25
        return Shape(
            clusters,
            disks,
            forwarders=2 + (random.random() < 0.3),
            subscribers=1 + (random.random() < 0.3),
            chains=1 + (random.random() < 0.3),
            durability="async" if async_ else "sync",
            spread=random.random() < 0.2,
            heavy=random.random() < 0.1,
        )


class Copy:
    """One process's copy of the catalog. While the metadata is out of reach it hears nothing."""

    def __init__(self, world: ChainsWorld) -> None:
        self.catalog = Catalog()
        self.on_change: list[Callable[[Change], None]] = []
        self.cut = False
        self._world, self._moved = world, asyncio.Event()
        self.catch_up()

    def catch_up(self) -> None:
        """Take over what has happened."""
        if self.cut:
            return
        for change in self._world.changes[self.catalog.revision :]:
            self.catalog.apply(change)
            for listener in list(self.on_change):
                listener(change)
        self._moved.set()
        self._moved = asyncio.Event()

    async def at(self, revision: int) -> None:
        """See `publish.chain.CatalogCopy`."""
        while self.catalog.revision < revision:
            await self._moved.wait()


class Node:
    """One life of one process."""

    def __init__(self, world: ChainsWorld, name: str) -> None:
        self.world, self.name = world, name
        self.process = SimProcess(world.loop, name)
        self.shared = Copy(world)
        self.address = f"{name}:1"

    def hear(self) -> None:
        """The catalog, or something else in the metadata, has changed."""
        world = self.world
        world.loop.call_at(
            world.loop.time() + world.random.random() ** 2 * 0.05, self.catch_up, context=self.process.context()
        )

    def catch_up(self) -> None:
        """In its own time."""
        self.shared.catch_up()


class Publisher(Node):
    """A publish forwarder process: the shipped host of chains behind its methods."""

    host: ChainHost
    _opened: SimFiles  # the newest ones; the workers of the same store are asked for next

    async def start(self) -> None:
        """In the process."""
        world = self.world
        self.host = ChainHost(
            Surroundings(
                shared=self.shared,
                registrar=self,
                assignments=lambda topic: world.assignment,
                sealed=self._sealed,
                open_files=self._open_files,
                next_log=self._next_log,
                universe=UNIVERSE,
                clock=world.clock,
                random=world.random,
                settings=world.settings,
                workers=self._workers,
                blocking=lambda work: run_blocking(world.strands, work),
                notify=self._notify,
            )
        )
        self.host.on_ended = self._ended
        self.host.start()
        await world.network.serve(ChainsService(self.host).methods(), self.name, 1)

    def _workers(self) -> SimWorkers:
        world = self.world
        return SimWorkers(world.strands, world.random, self._opened.calm, stops=world.stops)

    def _notify(self, act: Callable[[], None]) -> None:
        self.world.loop.call_soon(act, context=self.process.context())

    def _open_files(self, record: ChainRecord, epoch: int) -> tuple[Files, list[str]]:
        places = {f"/{one.cluster}/{one.disk}": DiskAddress(one.process, 1, one.disk) for one in record.places}
        self._opened = self.world.farm.files(places, record.number, epoch, record.durability)
        return self._opened, list(places)

    async def _next_log(self) -> int:
        self.reach_metadata()
        self.world.logs += 1
        return self.world.logs

    async def _sealed(self, topic: int, epoch: int, chain: int) -> None:
        if self.world.assignment.epoch != epoch:
            raise FailedPrecondition("epoch: it is another one now")

    def reach_metadata(self) -> None:
        """Raises `Unavailable` while it is out of reach."""
        if self.shared.cut:
            self.world.coverage.sometimes("the metadata is out of reach when it is needed")
            raise Unavailable("The metadata does not answer.")

    async def register(self, topic: int, chain: int) -> int:
        """See `entrance.Registrar`."""
        await asyncio.sleep(self.world.random.random() * 0.02)
        self.reach_metadata()
        self.world.registered.add((topic, chain))
        self.world.tell()
        revision = self.world.master.revision
        await asyncio.sleep(self.world.random.random() * 0.02)
        await self.shared.at(revision)
        return revision

    async def unregister(self, topic: int, chain: int, epoch: int) -> bool:
        """See `entrance.Registrar`: nobody unregisters here."""
        return False

    def _ended(self, number: int, error: Exception) -> None:
        self.world.note(f"{self.name}: chain {number} has ended: {type(error).__name__}")
        self.world.coverage.sometimes("a fenced owner stops", "Fenced" in type(error).__name__)
        task = asyncio.get_running_loop().create_task(self.host.close(number))
        self.process.tasks.setdefault(task, None)

    async def take(self, number: int, epoch: int) -> bool:
        """Open a chain here under an epoch; in the process."""
        world = self.world
        try:
            if number in self.host._entered:
                await self.host.close(number)
            self.reach_metadata()
            await self.host.open(world.records[number], epoch)
        except Exception as error:
            world.note(f"{self.name}: chain {number} not opened in epoch {epoch}: {type(error).__name__}")
            if not isinstance(error, (OSError, SyncpointError)):
                raise
            world.refused(number, error)
            return False
        chain = self.host.chains[number]
        found = chain.store.recovered
        world.coverage.sometimes("a tail is cut at recovery", found.cut)
        world.coverage.sometimes("frames are read at recovery", found.scanned)
        world.coverage.sometimes("a copy is completed after recovery", found.incomplete)
        world.coverage.always("nothing promised is on no disk", not found.lost, f"{found.lost}")
        world.note(f"{self.name}: chain {number} opened in epoch {epoch}: logs {found.logs}, cut {len(found.cut)}")
        return True


class Consuming(Node):
    """A subscribe forwarder process with clients of its own."""

    gatherer: Gatherer

    async def start(self) -> None:
        """In the process."""
        world = self.world
        incarnation = world.next_number()
        self.gatherer = Gatherer(
            self.name,
            incarnation,
            self.shared.catalog,
            world,
            world.clock,
            connect=self._connect,
            publish=lambda *_: None,
        )
        self.subscribe = SubscribeForwarder(
            self.gatherer,
            self.shared.catalog,
            world.clock,
            key=bytes(32),
            random=world.random,
            soon=world.loop.call_soon,
            lender=lender_of(self.name, incarnation),
            linger_s=10.0,
        )
        self.clients: dict[str, Client] = {}
        self._ticking = asyncio.get_running_loop().create_task(self._tick())

    def _connect(self, address: str, peer: Peer) -> ServeLink:
        return ServeLink(self.world.network, address, peer)

    def catch_up(self) -> None:
        super().catch_up()
        if not self.shared.cut:
            self.gatherer.changed()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            for record in self.shared.catalog.subscriptions():
                if record.state == ACTIVE and record.name not in self.clients:
                    self.clients[record.name] = Client(self, record)
            self.gatherer.tick()
            self.subscribe.tick()


class Client:
    """A client of one subscription: acknowledges most of what it gets, sooner or later."""

    def __init__(self, node: Consuming, record: Subscription) -> None:
        self.node, self.world, self.record = node, node.world, record
        self.name = f"{node.name}.{self.world.next_number()}"
        self.consumer = node.subscribe.join(
            record, self._send, max_messages=50, max_bytes=1 << 20, deadline_s=2, gone=lambda: None
        )

    def _send(self, parts: Any, serials: Any) -> None:
        world, random = self.world, self.world.random
        loop = asyncio.get_running_loop()
        for one in pubsub.PullResponse.FromString(b"".join(parts)).received_messages:
            message = one.message
            found = world.history.delivered(
                self.record.name, self.name, message.message_id, message.data, message.ordering_key
            )
            world.note(f"{self.name}: {self.record.name} {found.identity} as {message.message_id}")
            chance = random.random()
            if chance < 0.85 or world.draining:
                loop.call_later(random.random() ** 3, self._ack, one.ack_id, message.message_id)
            elif chance < 0.92:
                loop.call_later(random.random() * 0.1, self._nack, one.ack_id)
            else:
                world.coverage.sometimes("a message is left to its deadline")

    def _ack(self, ack_id: str, message_id: str) -> None:
        world = self.world
        operation = world.history.acking(self.record.name, message_id)

        def confirmed(failed: list[bytes], unknown: list[bytes]) -> None:
            world.coverage.sometimes("an acknowledgement fails", failed)
            world.coverage.sometimes("the outcome of an acknowledgement is unknown", unknown)
            outcome = Outcome.FAILED if failed else Outcome.UNKNOWN if unknown else Outcome.OK
            world.history.end(operation, outcome)
            world.note(f"{self.name}: {self.record.name} {message_id} acknowledged: {outcome.value}")

        request = pubsub.AcknowledgeRequest(subscription=self.record.name, ack_ids=[ack_id]).SerializeToString()
        try:
            lending = self.node.subscribe.delivery(self.record).lending
            lending.acknowledge(request, 2, world.clock.monotonic(), confirmed)
        except SyncpointError:
            world.history.end(operation, Outcome.UNKNOWN)

    def _nack(self, ack_id: str) -> None:
        request = pubsub.ModifyAckDeadlineRequest(subscription=self.record.name, ack_ids=[ack_id]).SerializeToString()
        self.node.subscribe.delivery(self.record).lending.modify(request, 4, 0, self.world.clock.monotonic())


@dataclass(frozen=True)
class Assignment:
    """Which chains take keys."""

    epoch: int
    chains: tuple[int, ...]


class ChainsWorld:
    """See the module. `trace(text)` hears of everything that happens."""

    def __init__(
        self, loop: ProcessLoop, clock: ManualClock, seed: int, shape: Shape, trace: Callable[[str], None] | None
    ) -> None:
        self.loop, self.clock, self.shape, self._trace = loop, clock, shape, trace
        self.random = SeededRandom(seed * 2 + 1)
        self.begun_at = clock.monotonic()
        self.digest = hashlib.blake2b(digest_size=8)
        self.coverage = Coverage()
        self.history = History()
        self.network = SimNetwork(self.random)
        self.farm = DiskFarm(self.random, clock, self.network.parted)
        self.strands = Strands(loop)
        self.stops = 0.01 + 0.05 * self.random.random()
        self.settings = StorageSettings(
            segment_bytes=64 * 1024, pool_segments=1, pool_segments_max=2, segment_entries_max=40, reserve_bytes=0,
            scrub_bytes_s=0 if self.random.random() < 0.5 else 256 * 1024, cache_bytes=20_000, index_cache_bytes=16_384,
            read_ahead_bytes=8_192, commit_bytes_max=20_000, hung_s=1.5, probe_interval_s=0.5,
            lag_bytes_max=LAG_BYTES_MAX,
        )  # fmt: skip
        self.master = Catalog()
        self.changes: list[Change] = []
        self.registered: set[tuple[int, int]] = set()
        self.assignment = Assignment(1, tuple(range(1, shape.chains + 1)))
        self.logs = self._numbers = 0
        self.draining = False
        self.refusals: dict[int, Exception] = {}
        self.nodes: dict[str, Node] = {}
        self.owners_of: dict[int, tuple[Publisher, int]] = {}
        self.epochs: dict[int, int] = {}
        self.opening: dict[int, asyncio.Task[Any]] = {}
        self.client = SimProcess(loop, "client")
        self.records = self._place()
        self.commit(Change.put(Topic(TOPIC_NUMBER, TOPIC, retention_s=31 * 86_400)))

    def note(self, text: str) -> None:
        """Something happened: part of the trace, by which two runs are compared."""
        line = f"{self.clock.monotonic() - self.begun_at:10.6f} {text}"
        self.digest.update(line.encode())
        if self._trace is not None:
            self._trace(line)

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
        rule = AckRule.grid(shape.clusters, shape.disks).to_values()
        return {
            number: ChainRecord(number, f"chain{number}", "default", "", "", tuple(places), rule, shape.durability)
            for number in range(1, shape.chains + 1)
        }

    # -- metadata ----------------------------------------------------------------------------------------------------

    def commit(self, *changes: Change) -> int:
        """Change the catalog; processes hear of it in their own time."""
        for change in self.master.assign(changes):
            record = change.record
            if isinstance(record, Subscription) and change.op is Op.PUT and not record.created_revision:
                change = Change(change.revision, change.op, replace(record, created_revision=change.revision))
            self.master.apply(change)
            self.changes.append(change)
        self.tell()
        return self.master.revision

    def tell(self) -> None:
        """Every process hears of what has changed, sooner or later."""
        for node in self.nodes.values():
            node.hear()

    def owners(self) -> Mapping[int, str]:
        """See `gather.Directory`."""
        return {number: owner.address for number, (owner, _) in self.owners_of.items()}

    def chains_of(self, topic: int) -> Collection[int]:
        """See `gather.Directory`."""
        return sorted(chain for of, chain in self.registered if of == topic)

    def look(self, topic: int, reply: Callable[[Collection[int] | None], None]) -> None:
        """See `gather.Directory`."""
        self.loop.call_later(0.01, lambda: reply(self.chains_of(topic)))

    # -- processes ---------------------------------------------------------------------------------------------------

    def begin(self, kind: type[Publisher] | type[Consuming], name: str) -> asyncio.Task[None]:
        """Start a process, or start it again."""
        node = self.nodes[name] = kind(self, name)
        return node.process.start(node.start())

    def crash(self, name: str) -> None:
        """kill -9."""
        node = self.nodes[name]
        node.process.crash()
        self.network.ended(node.process)

    @property
    def publishers(self) -> list[Publisher]:
        return [node for node in self.nodes.values() if isinstance(node, Publisher)]

    def refused(self, number: int, error: Exception) -> None:
        """A chain could not be opened."""
        self.coverage.sometimes(f"opening is refused: {type(error).__name__}")
        self.refusals[number] = error
        self.coverage.always("what was promised can be opened", not isinstance(error, StorageDamaged), str(error)[:300])

    def served(self, number: int) -> bool:
        """Whether the owner of a chain, as far as is known, serves it."""
        found = self.owners_of.get(number)
        return found is not None and found[0].process.alive and number in found[0].host.chains

    def take_over(self, number: int, owner: Publisher) -> None:
        """Let a process open a chain, whoever has it now."""
        before = self.owners_of.get(number)
        if before is not None and self.served(number) and before[0] is not owner:
            self.coverage.sometimes("a chain is taken over from a living owner")
            self.coverage.sometimes("a chain is taken over from one that hangs", before[0].process.hung)
        epoch = self.epochs[number] = self.epochs.get(number, 0) + 1

        async def take() -> None:
            if await owner.take(number, epoch) and epoch >= self.owners_of.get(number, (owner, 0))[1]:
                self.owners_of[number] = (owner, epoch)
                self.refusals.pop(number, None)
                self.tell()

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
        """Find an owner for what has none."""
        while True:
            await asyncio.sleep(0.1)
            for one in self.publishers:
                for chain in one.host.chains.values() if one.process.alive and not one.process.hung else ():
                    self._watch_lag(chain)
            for number in self.records:
                if not self.served(number) and not self.is_opening(number):
                    living = [one for one in self.publishers if one.process.alive and not one.process.hung]
                    if living:
                        self.take_over(number, living[self.random.randrange(0, len(living))])

    def _watch_lag(self, chain: Chain) -> None:
        """A disk far behind leaves the live stream, where the others suffice (rule 8)."""
        log = chain.store._disks.log
        for writer in log.live:
            others = [one.slot for one in log.live if one is not writer and one.lag_bytes < LAG_BYTES_MAX // 4]
            far = writer.lag_bytes > LAG_BYTES_MAX + LAG_SLACK_BYTES and log.goes_on(others)
            self.coverage.always("no disk is far behind", not far, f"{writer.root}: {writer.lag_bytes}")
            self.coverage.sometimes("a disk lags behind", writer.lag_bytes > LAG_BYTES_MAX // 2)

    async def close(self) -> None:
        """End everything."""
        for node in self.nodes.values():
            if node.process.alive:
                node.process.crash()
        self.client.crash()
        self.strands.close()

    # -- clients -----------------------------------------------------------------------------------------------------

    async def call(self, chain: int, path: str, message: Any, timeout_s: float) -> bytes:
        """Ask the owner of a chain, as far as it is known."""
        owner = self.owners_of.get(chain)
        if owner is None:
            raise Unavailable("nobody owns it")
        channel = self.network.channel(owner[0].address)
        return await channel.unary(path, message, timeout=timeout_s)

    async def publish(self, client: str, number: int, key: str, sender: int, size: int, give_up_s: float) -> None:
        """Publish one message, again until it is known to be stored, or nobody knows for too long."""
        identity = Identity(client, number)
        operation = self.history.publishing(TOPIC, identity, key)
        body = pubsub.PubsubMessage(data=seal(identity, bytes(size)), ordering_key=key)
        request = pubsub.PublishRequest(topic=TOPIC, messages=[body]).SerializeToString()
        chains = self.assignment.chains
        chain = chains[sum(key.encode()) % len(chains)] if key else chains[self.random.randrange(0, len(chains))]
        end, resent, again = self.loop.time() + give_up_s, False, 0
        while self.loop.time() < end:
            batch = PublishBatch(chain, self.assignment.epoch, bool(key), sender, number + 1, resent, request)
            try:
                answer = await self.call(chain, PUBLISH, write_publish(batch), 1.0)
            except SyncpointError:
                resent = resent or chain in self.owners_of
                again += 1
                await asyncio.sleep(0.02 + 0.2 * self.random.random())
                continue
            (message_id,) = pubsub.PublishResponse.FromString(answer).message_ids
            self.history.published(operation, message_id)
            self.coverage.sometimes("a publish is answered after it was sent again", again)
            self.note(f"{client}: {number} published as {message_id}")
            return
        self.history.end(operation, Outcome.UNKNOWN)
        self.coverage.sometimes("the outcome of a publish stays unknown")
        self.note(f"{client}: {number} unknown")

    async def confirm(self, revision: int) -> bool:
        """Whether all registered chains have persisted what follows from the catalog, within three seconds."""
        for topic, chain in sorted(self.registered):
            asked = internal.ConfirmRequest(chain=chain, topic=topic, revision=revision).SerializeToString()
            end = self.loop.time() + 3.0
            while True:
                try:
                    await self.call(chain, CONFIRM, asked, max(0.1, end - self.loop.time()))
                    break
                except SyncpointError:
                    if self.loop.time() >= end:
                        return False
                    await asyncio.sleep(0.1)
        return True

    async def subscribe(self, name: str, **options: Any) -> None:
        """Create a subscription, again until it is there."""
        ordered, once = bool(options.get("ordered")), bool(options.get("exactly_once"))
        operation = self.history.creating(name, TOPIC, ordered=ordered, exactly_once=once)
        self.coverage.sometimes("a subscription is created while messages are published", self.history.publishes)
        number = self.master.next_incarnation()
        revision = self.commit(Change.put(Subscription(number, name, TOPIC_NUMBER, TOPIC, state=CREATING, **options)))
        while not await self.confirm(revision):
            self.coverage.sometimes("a subscription stays creating")
            await asyncio.sleep(0.2)
        made = self.master.subscription_by_incarnation(number)
        assert made is not None
        self.commit(Change.put(replace(made, state=ACTIVE)))
        self.history.end(operation, Outcome.OK)
        self.note(f"client: {name} created")

    async def seek(self, name: str) -> tuple[int, int]:
        """Seek a subscription back to the beginning; returns when that began and when it was confirmed, as stamps."""
        made = self.master.subscription(name)
        assert made is not None
        begun = self.history.acking("", "")  # for the stamp
        target = SeekTarget(time_ns=0)
        revision = self.commit(Change.put(replace(made, generation=made.generation + 1, target=target)))
        while not await self.confirm(revision):
            await asyncio.sleep(0.2)
        self.history.end(begun, Outcome.UNKNOWN)
        self.coverage.sometimes("a subscription is sought back")
        self.note(f"client: {name} sought")
        return begun.begun, begun.ended


def servers_of(world: ChainsWorld) -> list[DiskServer]:
    """All servers of disks, in order."""
    return [world.farm.servers[name] for name in sorted(world.farm.servers)]
