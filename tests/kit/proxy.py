"""A proxy, clients, and imagined owners of chains, subscribe forwarders and routers over a simulated network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from syncpoint.base.model.cluster import PROXY, ChainOwner, ChainRecord
from syncpoint.base.model.flow import FlowLimits
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.broker.router.assignment import SubscriptionAssignment, TopicAssignment
from syncpoint.broker.router.distance import Distances
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.contract import Put
from syncpoint.catalog.metadata.layout import ASSIGNED_SUBSCRIPTIONS, ASSIGNED_TOPICS, CHAINS, OWNERS
from syncpoint.catalog.metadata.local import LocalShared
from syncpoint.catalog.metadata.memory import MemoryStore
from syncpoint.catalog.metadata.records import CatalogChange, Setting, Subscription, Topic
from syncpoint.catalog.metadata.view import ClusterView
from syncpoint.cluster.control.peer_channels import PeerChannels
from syncpoint.front.proxy.data_keys import KeyRing, TopicKeys
from syncpoint.front.proxy.proxy import MessageHandling, Proxy, ProxyCluster
from syncpoint.front.proxy.sealing import Sealer
from syncpoint.testing.rigs.plain_tests import Work, plain_test
from syncpoint.testing.simulation.loop import ProcessLoop, run_in_loop
from syncpoint.testing.simulation.sim_network import SimNetwork
from syncpoint.wire.protobuf.messages import pubsub
from syncpoint.wire.transport.network import AnyStream
from tests.kit.proxy_processes import SUBSCRIBER, Process, PublishProcess

TOPIC = "projects/p/topics/orders"
SUBSCRIPTION = "projects/p/subscriptions/billing"
PUBLISHER = "/google.pubsub.v1.Publisher/"


class ProxyProcess(Process):
    """The real thing."""

    roles = (PROXY,)

    def __init__(self, harness: ProxyHarness, name: str, region: str = "r1", *, sealed: bool = False) -> None:
        super().__init__(harness, name, region)
        self.store = LocalShared(harness.store, harness.clock)
        self.sealed = sealed
        self.refreshed = 0
        self.stopped = False
        self.proxy: Proxy

    async def _serve(self) -> None:
        self.view = ClusterView(self.store)
        await self.view.start()
        self.peers = PeerChannels(self.harness.network)
        cluster = ProxyCluster(
            me=self.member,
            view=self.view,
            catalog=self.harness.catalog,
            store=self.store,
            peers=self.peers,
            refresh=self._refresh,
            commit=self._commit,
        )
        handling = MessageHandling(self.harness.limits, Sealer(self.keys()) if self.sealed else None)
        self.proxy = Proxy(cluster, handling, Distances(self.region), self.harness.clock)
        await self.proxy.start()
        await self.harness.network.serve(self.proxy.methods(), self.name, 1)

    def keys(self, kek: bytes = bytes(32)) -> TopicKeys:
        return TopicKeys(self.store, KeyRing([kek]), self.harness.clock, self.harness.random)

    async def _refresh(self) -> None:
        self.refreshed += 1
        await asyncio.sleep(0.001)
        self.harness.on_refresh()

    async def _commit(self, changes: Sequence[CatalogChange]) -> None:
        for change in self.harness.catalog.assign(changes):
            self.harness.catalog.apply(change)

    async def stop(self) -> None:
        self.stopped = True
        self.proxy.drain()
        await self.proxy.stop()
        await self.proxy.transformer.close()
        await self.view.close()
        await self.peers.close()


class ProxyHarness:
    """Everything, and a client that calls the proxy."""

    def __init__(self, loop: ProcessLoop, clock: ManualClock, seed: int) -> None:
        self.loop, self.clock = loop, clock
        self.random = SeededRandom(seed)
        self.store = MemoryStore(clock=clock, random=self.random)
        self.network = SimNetwork(self.random)
        self.catalog = Catalog()
        self.limits = FlowLimits()
        self.stored: dict[int, dict[tuple[int, int], tuple[bytes, list[str]]]] = {}
        self.voided: list[tuple[int, int]] = []  # chain, batch
        self.processes: dict[str, Any] = {}
        self.on_refresh: Callable[[], None] = lambda: None
        self._number = 0
        self.topic = self.add_topic(TOPIC)
        self.subscription = self.add_subscription(SUBSCRIPTION, self.topic)

    def next_number(self) -> int:
        self._number += 1
        return self._number

    # -- the cluster -------------------------------------------------------------------------------------------------

    def add_topic(self, name: str, **fields: Any) -> Topic:
        record = Topic(self.catalog.next_incarnation(), name, **fields)
        return self.put(record)  # type: ignore[return-value]

    def add_subscription(self, name: str, topic: Topic, **fields: Any) -> Subscription:
        record = Subscription(self.catalog.next_incarnation(), name, topic.incarnation, topic.name, **fields)
        return self.put(record)  # type: ignore[return-value]

    def put(self, record: Topic | Subscription) -> Topic | Subscription:
        for change in self.catalog.assign([CatalogChange.put(record)]):
            self.catalog.apply(change)
        return record

    def put_setting(self, setting: Setting) -> None:
        for change in self.catalog.assign([CatalogChange.put(setting)]):
            self.catalog.apply(change)

    def delete(self, record: Topic | Subscription) -> None:
        for change in self.catalog.assign([CatalogChange.delete(record)]):
            self.catalog.apply(change)

    async def start(self, kind: Callable[..., Any], name: str, region: str = "r1", **options: Any) -> Any:
        made = kind(self, name, region, **options)
        self.processes[name] = made
        await made.serve()
        return made

    async def cluster(self, assigned: Sequence[int] = (), owners: int = 2, **options: Any) -> tuple[Any, ...]:
        """A proxy, and owners with one chain each, numbered from 1; some of them are assigned to the topic."""
        made = [await self.start(PublishProcess, f"f{number}") for number in range(1, owners + 1)]
        for number, owner in enumerate(made, 1):
            self.chain(number, owner)
        if assigned:
            self.assign(assigned)
        proxy = await self.start(ProxyProcess, "proxy", **options)
        await asyncio.sleep(0.1)
        return (proxy.proxy, *made)

    def chain(self, number: int, owner: Any, *, region: str = "r1", epoch: int = 1, klass: str = "default") -> None:
        """A chain, new or with a new owner."""
        record = ChainRecord(number, f"c{number}", klass, region, owner.name)
        held = ChainOwner(owner.name, owner.incarnation, epoch, owner.address)
        puts = [Put(CHAINS.key(number), record.encode()), Put(OWNERS.key(number), held.encode())]
        self.store.txn([], puts)

    def assign(
        self, chains: Iterable[int], epoch: int = 1, elsewhere: Mapping[str, tuple[int, ...]] | None = None
    ) -> None:
        made = TopicAssignment(epoch, tuple(chains), elsewhere or {})
        self.store.txn([], [Put(ASSIGNED_TOPICS.key(self.topic.incarnation), made.encode())])

    def share(self, members: Iterable[str], epoch: int = 1) -> None:
        made = SubscriptionAssignment(epoch, tuple(members))
        self.store.txn([], [Put(ASSIGNED_SUBSCRIPTIONS.key(self.subscription.incarnation), made.encode())])

    # -- the client --------------------------------------------------------------------------------------------------

    async def call(self, path: str, request: Any, *, timeout: float | None = None, proxy: str = "proxy") -> bytes:
        raw = request if isinstance(request, bytes) else request.SerializeToString()
        return await self.network.channel(f"{proxy}:1").unary(path, raw, timeout=timeout)

    async def publish(
        self, *data: bytes, key: str = "", topic: str = TOPIC, timeout: float | None = None, proxy: str = "proxy"
    ) -> list[str]:
        messages = [pubsub.PubsubMessage(data=one, ordering_key=key) for one in data]
        request = pubsub.PublishRequest(topic=topic, messages=messages)
        answer = await self.call(PUBLISHER + "Publish", request, timeout=timeout, proxy=proxy)
        return list(pubsub.PublishResponse.FromString(answer).message_ids)

    def found(self, chain: int) -> list[bytes]:
        """Data stored in a chain, in order."""
        return [
            message.data
            for request, _ in self.stored.get(chain, {}).values()
            for message in pubsub.PublishRequest.FromString(request).messages
        ]

    async def stream(self, **fields: Any) -> ClientStream:
        behind = self.network.channel("proxy:1").stream(SUBSCRIBER + "StreamingPull")
        first = {"subscription": SUBSCRIPTION, "stream_ack_deadline_seconds": 60, "client_id": "c", **fields}
        stream = ClientStream(behind)
        await stream.send(**first)
        return stream


class ClientStream:
    """A client's streaming pull."""

    def __init__(self, behind: AnyStream) -> None:
        self.behind = behind

    async def send(self, **fields: Any) -> None:
        await self.behind.send(pubsub.StreamingPullRequest(**fields).SerializeToString())

    async def next(self) -> Any:
        """The next response; None at an end with OK."""
        response = await self.behind.receive()
        return None if response is None else pubsub.StreamingPullResponse.FromString(response)

    async def data(self) -> list[bytes]:
        return [one.message.data for one in (await self.next()).received_messages]


def run(work: Work, seed: int) -> None:
    """Run it in a harness of its own."""
    clock = ManualClock()

    async def begin(loop: ProcessLoop) -> None:
        harness = ProxyHarness(loop, clock, seed)
        try:
            await work(harness)
        finally:
            for one in harness.processes.values():
                if isinstance(one, ProxyProcess) and one.process.alive and not one.stopped:
                    await one.process.start(one.stop())

    run_in_loop(clock, begin)


def in_harness(seed: int = 1) -> Callable[[Work], Callable[..., None]]:
    """A decorator: a coroutine function over a harness without processes as a plain test."""
    return plain_test(run, seed)
