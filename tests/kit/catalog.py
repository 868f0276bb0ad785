"""A control plane over imagined chain owners: what they persist is a dictionary, everything between is real."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from syncpoint.base.model.cluster import PUBLISH, SUBSCRIBE, ChainOwner, Member
from syncpoint.base.model.errors import Unavailable
from syncpoint.base.model.flow import FlowLimits
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.broker.push.addresses import Vetting
from syncpoint.catalog.metadata.catalog_replica import SharedCatalog
from syncpoint.catalog.metadata.contract import Delete, Put
from syncpoint.catalog.metadata.layout import MEMBERS, OWNERS
from syncpoint.catalog.metadata.local import LocalShared
from syncpoint.catalog.metadata.memory import MemoryStore
from syncpoint.catalog.metadata.view import ClusterView
from syncpoint.cluster.control.barrier import Barrier
from syncpoint.cluster.control.head_commit import HeadCommit
from syncpoint.cluster.control.peer_channels import PeerChannels
from syncpoint.cluster.control.plane import ControlPlane
from syncpoint.cluster.control.registration import Registration
from syncpoint.front.api.admin_handlers import CatalogService
from syncpoint.front.api.options_admin import OptionsAdmin
from syncpoint.front.api.rule_admin import RuleAdmin
from syncpoint.front.api.schema_handlers import SchemaService
from syncpoint.front.api.seek_request import seek_methods
from syncpoint.testing.rigs.plain_tests import Work, plain_test
from syncpoint.testing.simulation.loop import ProcessLoop, SimProcess, run_in_loop
from syncpoint.testing.simulation.sim_network import SimNetwork
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal
from syncpoint.wire.transport.calls import Call
from syncpoint.wire.transport.memory import MemoryChannel
from syncpoint.wire.transport.tasks import unary_async

DESCRIBE, CONFIRM, LENT = methods.CHAINS.Describe, methods.CHAINS.Confirm, methods.DELIVERIES.Describe
TOPIC = "projects/p/topics/topic"
SUB = "projects/p/subscriptions/sub"
SNAP = "projects/p/snapshots/snap"


class SlowShared(LocalShared):
    """A store with a way to it: others act between any two calls."""

    def __init__(self, harness: PlaneHarness) -> None:
        super().__init__(harness.store, harness.clock)
        self._random = harness.random

    async def turn(self) -> None:
        await asyncio.sleep(self._random.random() * 0.02)
        await super().turn()


class FakeOwner:
    """A process that owns one chain. `starts`: START facts, (subscription, topic) -> offset."""

    def __init__(self, harness: PlaneHarness, chain: int) -> None:
        self.harness, self.chain, self.name = harness, chain, f"f{chain}"
        self.process = SimProcess(harness.loop, self.name)
        self.store = SlowShared(harness)
        self.ends: dict[int, int] = {}  # topic -> messages so far
        self.opened_at: dict[int, int] = {}  # topic -> catalog revision of its source
        self.starts: dict[tuple[int, int], int] = {}
        self.confirmed: list[tuple[int, int]] = []
        self.sealed: list[tuple[int, int]] = []
        self.deaf = False
        self.described = internal.DescribedChain(chain=chain)
        self.reading: Callable[[], Coroutine[Any, Any, None]] = _at_once
        self.started = self.process.start(self._start())

    async def _start(self) -> None:
        self.address = f"10.0.0.1:{4000 + self.chain}"
        methods = {
            CONFIRM.encode(): unary_async(self._confirm),
            DESCRIBE.encode(): unary_async(self._describe),
        }
        await self.harness.network.serve(methods, "10.0.0.1", 4000 + self.chain)
        self.shared = SharedCatalog(self.store)
        await self.shared.start()
        self.me = Member(self.name, (PUBLISH,), self.address, self.chain)
        self.registration = Registration(self.store, self.shared, lambda: self.me)
        self.own()

    def own(self, chain: int | None = None) -> None:
        """Be the owner of a chain."""
        owner = ChainOwner(self.name, self.chain, 1, self.address)
        self.harness.store.txn([], [Put(OWNERS.key(chain or self.chain), owner.encode())])

    async def _confirm(self, call: Call, request: bytes) -> bytes:
        asked = internal.ConfirmRequest.FromString(request)
        while self.deaf:
            await asyncio.sleep(0.05)
        await self.shared.at(asked.revision)
        await asyncio.sleep(self.harness.random.random() * 0.01)
        self.confirmed.append((asked.topic, asked.revision))
        if asked.assignment:
            self.sealed.append((asked.topic, asked.assignment))
        if asked.topic in self.opened_at:
            for record in self.shared.catalog.subscriptions_of(asked.topic):
                if record.created_revision > self.opened_at[asked.topic]:
                    self.starts.setdefault((record.incarnation, asked.topic), self.ends.get(asked.topic, 0))
        return internal.ConfirmResponse(revision=asked.revision).SerializeToString()

    async def _describe(self, call: Call, request: bytes) -> bytes:
        await self.reading()
        return internal.DescribeResponse(chains=[self.described]).SerializeToString()

    async def publish(self, topic: int) -> tuple[int, int]:
        """(chain, offset) of one more message."""
        if topic not in self.opened_at:
            revision = await self.registration.register(topic, self.chain)
            self.opened_at.setdefault(topic, revision)
        await asyncio.sleep(self.harness.random.random() * 0.01)
        self.ends[topic] = self.ends.get(topic, 0) + 1
        return self.chain, self.ends[topic] - 1

    def start_of(self, subscription: Any) -> int:
        """Where a subscription begins. Raises `KeyError` where it would not have been reported."""
        topic = subscription.topic_incarnation
        if subscription.created_revision <= self.opened_at[topic]:
            return 0
        return self.starts[subscription.incarnation, topic]


class FakeLender:
    """A subscribe forwarder. `asked`: the revisions of the catalog that it was asked to act by, once it does."""

    def __init__(self, harness: PlaneHarness) -> None:
        self.harness, self.deaf = harness, False
        self.asked: list[int] = []
        process = SimProcess(harness.loop, "s1")
        self.started = process.start(self._start())

    async def _start(self) -> None:
        store = SlowShared(self.harness)
        await self.harness.network.serve({LENT.encode(): unary_async(self._describe)}, "10.0.0.2", 4000)
        self.shared = SharedCatalog(store)
        await self.shared.start()
        me = Member("s1", (SUBSCRIBE,), "10.0.0.2:4000", 1)
        await store.txn([], [Put(MEMBERS.key("s1"), me.encode())])

    async def _describe(self, call: Call, request: bytes) -> bytes:
        asked = internal.DescribeDeliveryRequest.FromString(request)
        while self.deaf:
            await asyncio.sleep(0.05)
        await self.shared.at(asked.revision)
        self.asked.append(asked.revision)
        return b""


async def _at_once() -> None:
    """Its disks read without delay."""


class PlaneHarness:
    """Two proxies and some owners."""

    def __init__(self, loop: ProcessLoop, clock: ManualClock, seed: int, chains: int) -> None:
        self.loop, self.clock, self.random = loop, clock, SeededRandom(seed)
        self.store = MemoryStore(clock=clock, random=self.random)
        self.network = SimNetwork(self.random, delay_s_max=0.02)
        self.owners = {chain: FakeOwner(self, chain) for chain in range(1, chains + 1)}

    async def start(self) -> None:
        await asyncio.gather(*(owner.started for owner in self.owners.values()))
        self.proxies = [await self._proxy() for _ in range(2)]

    async def _proxy(self) -> Proxy:
        store = SlowShared(self)
        view, shared = ClusterView(store), SharedCatalog(store)
        await view.start()
        await shared.start()
        barrier = Barrier(view, PeerChannels(self.network))
        return Proxy(store, ControlPlane(HeadCommit(store, shared, barrier), self.clock, self.random), barrier)

    def disown(self, chain: int) -> None:
        self.store.txn([], [Delete(OWNERS.key(chain))])


class Proxy:
    """The admin methods of one process."""

    def __init__(self, store: LocalShared, control: ControlPlane, barrier: Barrier) -> None:
        self.store, self.control, self.barrier = store, control, barrier
        options = OptionsAdmin(control, FlowLimits(), ("default",))
        self.methods = {
            **CatalogService(control, Vetting()).methods(),
            **SchemaService(control).methods(),
            **seek_methods(control),
            **options.methods(),
            **RuleAdmin(control, options).methods(),
        }

    async def call(self, method: str, **fields: Any) -> Any:
        services = (methods.ADMIN, methods.PUBLISHER, methods.SUBSCRIBER, methods.SCHEMAS)
        path = next(one for one in services if method in one)[method]
        answer = await MemoryChannel(self.methods).unary(path, path.request(**fields).SerializeToString())
        return path.response.FromString(answer)

    async def insist(self, method: str, **fields: Any) -> Any:
        """Call again while it is unavailable."""
        while True:
            try:
                return await self.call(method, **fields)
            except Unavailable:
                await asyncio.sleep(0.1)


def planned(seed: int = 1, chains: int = 2) -> Callable[[Work], Callable[..., None]]:
    """A decorator: a coroutine function over a started harness as a plain test."""

    def run(work: Work) -> None:
        clock = ManualClock()

        async def main(loop: ProcessLoop) -> None:
            harness = PlaneHarness(loop, clock, seed, chains)
            await harness.start()
            await work(harness)

        run_in_loop(clock, main)

    return plain_test(run)
