"""Routers as processes: plans written once, answers to proxies, watches, and what happens when routers come and go."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from syncpoint.base.model.cluster import PROXY, PUBLISH, ROUTER, SUBSCRIBE, ChainOwner, ChainRecord, Member
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.broker.router.assignment import SubscriptionAssignment, TopicAssignment
from syncpoint.broker.router.router import PERIOD_S, SWEEP_S, Router
from syncpoint.broker.router.routing_rules import RoutingRule
from syncpoint.catalog.metadata.catalog_replica import SharedCatalog
from syncpoint.catalog.metadata.contract import Delete, Put
from syncpoint.catalog.metadata.layout import (
    ASSIGNED_SUBSCRIPTIONS,
    ASSIGNED_TOPICS,
    CHAINS,
    CONSTRAINTS,
    DRAINS,
    LOADS,
    OWNERS,
)
from syncpoint.catalog.metadata.local import LocalShared
from syncpoint.catalog.metadata.memory import MemoryStore
from syncpoint.catalog.metadata.records import CatalogChange, Subscription, Topic
from syncpoint.catalog.metadata.view import ClusterView
from syncpoint.cluster.control.membership import Membership, new_incarnation
from syncpoint.cluster.control.peer_channels import PeerChannels, Reach, process_methods
from syncpoint.testing.rigs.plain_tests import Work, plain_test
from syncpoint.testing.simulation.loop import ProcessLoop, SimProcess, run_in_loop
from syncpoint.testing.simulation.sim_network import SimNetwork
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal

pytestmark = pytest.mark.shows("routers")


class Process:
    """A process of the harness: a router, or one that only is a member."""

    def __init__(self, harness: Routing, name: str, role: str, region: str) -> None:
        self.harness, self.name, self.role, self.region = harness, name, role, region
        self.process = SimProcess(harness.loop, name)
        self.store = LocalShared(harness.store, harness.clock)
        self.methods: dict[bytes, Any] = {}
        self.peers = PeerChannels(harness.network)
        self.service: Router
        self.member: Member
        self.started = self.process.start(self._start())

    async def _start(self) -> None:
        harness = self.harness
        self.methods |= process_methods(dict)
        self.view, self.catalog = ClusterView(self.store), SharedCatalog(self.store)
        await self.view.start()
        await self.catalog.start()
        listening = await harness.network.serve(self.methods, "10.0.0.1", 0)
        self.member = Member(
            self.name, (self.role,), f"10.0.0.1:{listening.port}", new_incarnation(harness.random), self.region
        )  # fmt: skip
        self.membership = Membership(self.store, self.member)
        await self.membership.start()
        if self.role == ROUTER:
            self.service = Router(
                self.store, self.view, self.catalog, self.member, self._ping, harness.clock, harness.random
            )
            await self.service.start()
            self.methods |= self.service.methods()

    async def _ping(self, address: str) -> bool:
        return await self.peers.ping(address) is Reach.ANSWERED

    def crash(self) -> None:
        self.process.crash()
        self.harness.network.ended(self.process)


class Routing:
    """Two routers, two forwarders of each kind and a proxy in each of two regions."""

    def __init__(self, loop: ProcessLoop, clock: ManualClock) -> None:
        self.loop, self.clock, self.random = loop, clock, SeededRandom(1)
        self.store = MemoryStore(clock=clock, random=self.random)
        self.network = SimNetwork(self.random)
        self.shared = LocalShared(self.store, clock)
        self.peers = PeerChannels(self.network)
        self.catalog = SharedCatalog(self.shared)
        self.processes: dict[str, Process] = {}

    async def start(self) -> None:
        await self.catalog.start()
        for region in ("eu", "us"):
            for role, short, count in ((PUBLISH, "pub", 2), (SUBSCRIBE, "sub", 2), (PROXY, "proxy", 1)):
                for number in range(1, count + 1):
                    self.add(f"{short}-{region}-{number}", role, region)
        for name in ("router-1", "router-2"):
            self.add(name, ROUTER, "eu")
        await asyncio.gather(*(one.started for one in self.processes.values()))
        for number, name in enumerate(sorted(one for one in self.processes if one.startswith("pub-")), 1):
            one = self.processes[name].member
            record = ChainRecord(number, name, "default", one.region, name)
            owner = ChainOwner(name, one.incarnation, 1, one.address)
            self.put(CHAINS.key(number), record.encode())
            self.put(OWNERS.key(number), owner.encode())
        await asyncio.sleep(1)

    def add(self, name: str, role: str, region: str) -> Process:
        self.processes[name] = Process(self, name, role, region)
        return self.processes[name]

    def put(self, key: str, value: bytes) -> None:
        self.store.txn([], [Put(key, value)])

    async def create(self, *names: str) -> list[int]:
        """Topics, each with a subscription of the next incarnation."""
        changes, numbers = [], []
        for name in names:
            topic = Topic(self.catalog.next_incarnation(), f"projects/p/topics/{name}")
            number = self.catalog.next_incarnation()
            changes += [
                CatalogChange.put(topic),
                CatalogChange.put(
                    Subscription(number, f"projects/p/subscriptions/{name}", topic.incarnation, topic.name)
                ),
            ]
            numbers += [topic.incarnation, number]
        await self.catalog.commit(changes)
        return numbers

    def topic(self, number: int) -> TopicAssignment | None:
        found = self.store.get(ASSIGNED_TOPICS.key(number))
        return None if found is None else TopicAssignment.decode(found.value)

    def subscription(self, number: int) -> SubscriptionAssignment | None:
        found = self.store.get(ASSIGNED_SUBSCRIPTIONS.key(number))
        return None if found is None else SubscriptionAssignment.decode(found.value)

    async def route(self, router: str, topics: list[int], subscriptions: list[int], region: str = "eu") -> Any:
        request = internal.RouteRequest(
            proxy=f"proxy-{region}-1", region=region, topics=topics, subscriptions=subscriptions
        )
        address = self.processes[router].member.address
        return internal.RouteResponse.FromString(
            await self.peers.call(address, methods.ROUTER.Route, request.SerializeToString(), timeout_s=2)
        )

    @property
    def services(self) -> list[Router]:
        return [one.service for one in self.processes.values() if one.role == ROUTER and one.process.alive]


def run(work: Work) -> None:
    clock = ManualClock()

    async def main(loop: ProcessLoop) -> None:
        harness = Routing(loop, clock)
        await harness.start()
        await work(harness)

    run_in_loop(clock, main)


in_harness = plain_test(run)


@in_harness
async def test_the_first_router_assigns_what_is_created(harness: Routing) -> None:
    topic, subscription = await harness.create("orders")
    await asyncio.sleep(2)
    assigned, served = harness.topic(topic), harness.subscription(subscription)
    assert assigned is not None
    assert served is not None
    assert assigned.epoch == served.epoch == 1
    assert [one.leads for one in harness.services] == [True, False]
    assert [one.written for one in harness.services] == [2, 0]
    assert {one[:6] for one in served.members} == {"sub-eu", "sub-us"}


@in_harness
async def test_any_router_assigns_at_once_what_a_proxy_asks_for(harness: Routing) -> None:
    [topic, subscription] = await harness.create("orders")
    answers = await asyncio.gather(
        harness.route("router-2", [topic, 77], [subscription]), harness.route("router-1", [topic], [subscription], "us")
    )
    for answer, region in zip(answers, ("eu", "us"), strict=True):
        [one], [served] = answer.topics, answer.subscriptions
        assert one.epoch == served.epoch == 1
        chains = {1, 2} if region == "eu" else {3, 4}
        assert {*one.nearest} <= chains
        assert {*one.nearest, *one.alternatives} == {1, 2, 3, 4}
        assert served.members[0].startswith(f"sub-{region}")
    assert [*answers[0].topics[0].chains] == [*answers[1].topics[0].chains]
    assigned = harness.topic(topic)
    assert assigned is not None
    assert [*assigned.chains] == [*answers[0].topics[0].chains]


@in_harness
async def test_a_watcher_learns_of_assignments_and_is_asked_to_ask_again(harness: Routing) -> None:
    address = harness.processes["router-2"].member.address
    stream = harness.peers.stream(address, methods.ROUTER.Watch)
    await stream.send(internal.WatchRequest(proxy="proxy-eu-1", region="eu").SerializeToString())
    await stream.end()
    await asyncio.sleep(0.1)
    [topic, subscription] = await harness.create("orders")
    received: set[int] = set()
    while received != {topic, subscription}:
        answer = internal.RouteResponse.FromString(await stream.receive())
        received |= {one.topic for one in answer.topics} | {one.subscription for one in answer.subscriptions}
    harness.put(CONSTRAINTS.key("r"), RoutingRule("r", forwarders="name=pub-eu-1").encode())
    answer = internal.RouteResponse.FromString(await stream.receive())
    assert not answer.topics
    assert not answer.subscriptions
    route = (await harness.route("router-2", [topic], [])).topics[0]
    assert {*route.nearest, *route.alternatives} == {2, 3, 4}
    await harness.processes["router-2"].service.stop()
    while await stream.receive() is not None:
        pass


@in_harness
async def test_another_router_goes_on_where_the_first_one_dies(harness: Routing) -> None:
    await harness.create("orders")
    await asyncio.sleep(1)
    harness.processes["router-1"].crash()
    await asyncio.sleep(6)
    [topic, _] = await harness.create("bills")
    await asyncio.sleep(1)
    assert harness.topic(topic) is not None
    assert [one.leads for one in harness.services] == [True]


@in_harness
async def test_a_subscribe_forwarder_that_dies_is_replaced(harness: Routing) -> None:
    made = await harness.create(*(f"t{number}" for number in range(20)))
    await asyncio.sleep(2)
    had = [one for one in made[1::2] if "sub-eu-1" in harness.subscription(one).members]  # type: ignore[union-attr]
    assert had
    harness.processes["sub-eu-1"].crash()
    await asyncio.sleep(6)
    for number in had:
        served = harness.subscription(number)
        assert served is not None
        assert served.epoch == 2
        assert "sub-eu-2" in served.members


@in_harness
async def test_load_splits_a_topic(harness: Routing) -> None:
    [topic, subscription] = await harness.create("hot")
    await asyncio.sleep(1)
    before = harness.topic(topic)
    assert before is not None
    [chain] = before.chains
    region = "eu" if chain < 3 else "us"
    load = {"topics": {str(topic): [300_000.0, 300e6]}}
    harness.put(f"{LOADS}pub-{region}-{1 + (chain - 1) % 2}", json.dumps(load).encode())
    await asyncio.sleep(60)
    after = harness.topic(topic)
    assert after is not None
    assert set(after.chains) == ({1, 2} if region == "eu" else {3, 4})
    assert after.epoch == 2
    assert len(harness.subscription(subscription).members) == 4  # type: ignore[union-attr]


@in_harness
async def test_a_drained_region_is_left_and_taken_again(harness: Routing) -> None:
    made = await harness.create(*(f"t{number}" for number in range(10)))
    await asyncio.sleep(1)
    harness.put(DRAINS + "region/us", b"{}")
    await asyncio.sleep(2)
    for number in made[::2]:
        assigned = harness.topic(number)
        assert assigned is not None
        assert set(assigned.chains) <= {1, 2}
        assert assigned.elsewhere == {}
    assert all(
        name.startswith("sub-eu") for one in made[1::2] for name in harness.subscription(one).members  # type: ignore[union-attr]
    )  # fmt: skip
    harness.store.txn([], [Delete(DRAINS + "region/us")])
    await asyncio.sleep(2)
    assert all(harness.topic(number).elsewhere for number in made[::2])  # type: ignore[union-attr]


@in_harness
async def test_assignments_of_what_was_deleted_go(harness: Routing) -> None:
    [topic, subscription, kept, _] = await harness.create("orders", "bills")
    await asyncio.sleep(1)
    records = harness.catalog.catalog
    await harness.catalog.commit(
        [
            CatalogChange.delete(records.subscription_by_incarnation(subscription)),  # type: ignore[arg-type]
            CatalogChange.delete(records.topic_by_incarnation(topic)),  # type: ignore[arg-type]
        ]
    )
    await asyncio.sleep(SWEEP_S + 2 * PERIOD_S)
    assert harness.topic(topic) is None
    assert harness.subscription(subscription) is None
    assert harness.topic(kept) is not None


@in_harness
async def test_without_metadata_routers_answer_from_what_they_know(harness: Routing) -> None:
    [topic, subscription] = await harness.create("orders")
    await asyncio.sleep(1)
    for name in ("router-1", "router-2"):
        harness.processes[name].store.cut = True
    await asyncio.sleep(20)
    answer = await harness.route("router-2", [topic], [subscription])
    assert answer.topics[0].epoch == 1
    assert answer.subscriptions[0].members
    for name in ("router-1", "router-2"):
        harness.processes[name].store.cut = False
    await asyncio.sleep(5)
    [other, _] = await harness.create("bills")
    await asyncio.sleep(3)
    assert harness.topic(other) is not None


@in_harness
async def test_distances_reported_beside_a_proxy_decide(harness: Routing) -> None:
    [topic, _] = await harness.create("orders")
    await asyncio.sleep(1)
    harness.put(LOADS + "proxy-us-1", json.dumps({"distances": {"eu": 0.001, "us": 0.2}}).encode())
    await asyncio.sleep(0.1)
    [route] = (await harness.route("router-1", [topic], [], "us")).topics
    assert set(route.nearest) <= {1, 2}


@in_harness
async def test_thousands_of_topics(harness: Routing) -> None:
    made = [one for part in range(100) for one in await harness.create(*(f"t{part}-{number}" for number in range(25)))]
    await asyncio.sleep(10)
    inputs = harness.services[1].inputs
    assert inputs.topics.items.keys() == {str(number) for number in made[::2]}
    assert inputs.subscriptions.items.keys() == {str(number) for number in made[1::2]}
    answer = await harness.route("router-2", made[:1000:2], made[1:1000:2])
    assert len(answer.topics) == len(answer.subscriptions) == 500
