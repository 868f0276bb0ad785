"""The administration of a cluster: what it shows of the metadata, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from syncpoint.api.admin_handlers import CatalogService
from syncpoint.api.cluster_admin import ClusterAdmin, Identity
from syncpoint.control.barrier import Backlog
from syncpoint.control.operations import Operations
from syncpoint.control.plane import SharedControl
from syncpoint.control.view import CHAINS, LOADS, MEMBERS, OWNERS, ClusterView
from syncpoint.metadata.contract import Put
from syncpoint.metadata.local import LocalShared
from syncpoint.metadata.memory import MemoryStore
from syncpoint.metadata.shared_catalog import SharedCatalog
from syncpoint.model.cluster import PROXY, PUBLISH, STORAGE, SUBSCRIBE, ChainRecord, DiskPlace, Member, Owner
from syncpoint.model.errors import Code, SyncpointError
from syncpoint.model.flow import FlowLimits
from syncpoint.runtime.clock import ManualClock
from syncpoint.runtime.random import SeededRandom
from syncpoint.testing.simulated_loop import run_simulated
from syncpoint.transport.memory import MemoryChannel
from syncpoint.wire.messages import admin, pubsub

TOPIC, SUB = "projects/p/topics/topic", "projects/p/subscriptions/sub"

KINDS = [(role, number) for role in (PUBLISH, SUBSCRIBE, PROXY) for number in (1, 2)]
PLACES = [(region, role, number) for region in ("eu", "us") for role, number in KINDS]
MEMBERS_OF_TWO_REGIONS = [
    Member(f"{region}-{role}-{number}", (role,), f"10.0.0.1:{port}", port, region=region, zone=f"z{number}")
    for port, (region, role, number) in enumerate(PLACES, 4000)
]


class Backlogs:
    """A barrier that everybody has passed already."""

    def __init__(self) -> None:
        self.found = Backlog(0, 0.0, 0.0)

    async def confirm(self, topic: int, revision: int) -> None:
        pass

    async def backlog(self, subscription: int, topic: int) -> Backlog:
        return self.found


class ClusterWorld:
    """One proxy's admin methods over a store that the test fills."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.store = MemoryStore(clock=clock, random=SeededRandom(1))
        self.shared = LocalShared(self.store, clock)
        self.barrier = Backlogs()

    async def start(self) -> None:
        for member in MEMBERS_OF_TWO_REGIONS:
            self.put(MEMBERS + member.name, member.encode())
        self.view, catalog = ClusterView(self.shared), SharedCatalog(self.shared)
        await self.view.start()
        await catalog.start()
        control = SharedControl(self.shared, catalog, self.barrier, self.clock, SeededRandom(2))  # type: ignore[arg-type]
        operations = Operations(self.view, control.catalog, self.clock)
        identity = Identity(10**12, "sync", self.clock.time_ns())
        self.admin = ClusterAdmin(control, self.view, operations, FlowLimits(), identity, ("default", "fast"))
        self.channel = MemoryChannel({**CatalogService(control).methods(), **self.admin.methods()})
        await self.topic(TOPIC)

    def put(self, key: str, value: bytes) -> None:
        self.store.txn([], [Put(key, value)])

    async def topic(self, name: str, *regions: str) -> None:
        policy = {"allowed_persistence_regions": regions}
        request = pubsub.Topic(name=name, message_storage_policy=policy if regions else None)
        await self.channel.unary("/google.pubsub.v1.Publisher/CreateTopic", request.SerializeToString())

    async def call(self, method: str, **fields: Any) -> Any:
        answers = {
            "GetServer": admin.Server, "GetLimits": admin.Limits, "UpdateLimits": admin.Limits,
            "GetTopicState": admin.TopicState, "GetSubscriptionState": admin.SubscriptionState,
            "GetTopicOptions": admin.TopicOptions, "UpdateTopicOptions": admin.TopicOptions,
            "CreateConstraint": admin.Constraint, "Drain": admin.DrainState, "GetDrain": admin.DrainState,
            "Undrain": admin.DrainState,
        }  # fmt: skip
        request = getattr(admin, f"{method}Request")(**fields).SerializeToString()
        answer = await self.channel.unary(f"/syncpoint.admin.v1.Admin/{method}", request)
        return (answers.get(method) or getattr(admin, f"{method}Response")).FromString(answer)

    async def refused(self, method: str, **fields: Any) -> SyncpointError:
        with pytest.raises(SyncpointError) as caught:
            await self.call(method, **fields)
        return caught.value


def cluster(work: Callable[[ClusterWorld], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Make a coroutine function over a started world a plain test."""

    def test() -> None:
        clock = ManualClock()

        async def run() -> None:
            world = ClusterWorld(clock)
            await world.start()
            await work(world)
            await world.shared.close()

        run_simulated(clock, run())

    test.__name__, test.__doc__, test.__module__ = work.__name__, work.__doc__, work.__module__
    return test


@cluster
async def test_members_and_chains_are_shown_as_they_are(world: ClusterWorld) -> None:
    places = (DiskPlace("c1", "d1", "s1", "k1", "z1"),)
    world.put(
        CHAINS + "7",
        ChainRecord(7, "eu-publish-forwarder-1/fast", "fast", "eu", "eu-publish-forwarder-1", places).encode(),
    )
    world.put(OWNERS + "7", Owner("eu-publish-forwarder-2", 4001, 9, "10.0.0.1:4001").encode())
    world.put(
        LOADS + "eu-publish-forwarder-2", json.dumps({"connections": 3, "messages_s": 1.5, "bytes_s": 20}).encode()
    )
    (chain,) = (await world.call("ListChains")).chains
    assert (chain.number, chain.durability_class, chain.home, chain.owner, chain.epoch) == (
        7, "fast", "eu-publish-forwarder-1", "eu-publish-forwarder-2", 9,
    )  # fmt: skip
    assert (chain.disks[0].cluster, chain.disks[0].process, chain.disks[0].rack) == ("c1", "s1", "k1")
    members = {member.name: member for member in (await world.call("ListMembers")).members}
    assert len(members) == 12
    owner = members["eu-publish-forwarder-2"]
    assert (owner.chains, owner.connections, owner.messages_per_second, owner.region) == (1, 3, 1.5, "eu")
    (disk,) = (await world.call("ListDisks")).disks
    assert (disk.path, disk.state) == ("s1/d1", admin.Disk.FAILED)
    world.put(MEMBERS + "s1", Member("s1", (STORAGE,), "10.0.0.1:1", 1, disks=("d1", "d2")).encode())
    assert [one.state for one in (await world.call("ListDisks")).disks] == [admin.Disk.OK] * 2


@cluster
async def test_the_server_its_topics_and_subscriptions(world: ClusterWorld) -> None:
    request = pubsub.Subscription(name=SUB, topic=TOPIC).SerializeToString()
    await world.channel.unary("/google.pubsub.v1.Subscriber/CreateSubscription", request)
    server = await world.call("GetServer")
    assert (server.topics, server.subscriptions, server.universe) == (1, 1, 10**12)
    assert (await world.call("GetTopicState", topic=TOPIC)).subscriptions == 1
    state = await world.call("GetSubscriptionState", subscription=SUB)
    assert (state.backlog_messages, state.HasField("oldest_unacked_age")) == (0, False)
    world.barrier.found = Backlog(10, 5.0, 100.0)
    state = await world.call("GetSubscriptionState", subscription=SUB)
    assert (state.backlog_messages, state.backlog_bytes, state.oldest_unacked_age.seconds) == (10, 1000, 5)
    limits = await world.call("UpdateLimits", limits={"system": {"messages": 5}}, update_mask={"paths": ["system"]})
    assert limits.system.messages == (await world.call("GetLimits")).system.messages == 5


@cluster
async def test_a_topic_has_a_durability_class_that_exists(world: ClusterWorld) -> None:
    mask = {"paths": ["durability_class"]}
    changed = await world.call(
        "UpdateTopicOptions", options={"topic": TOPIC, "durability_class": "fast"}, update_mask=mask
    )
    assert changed == await world.call("GetTopicOptions", topic=TOPIC)
    assert changed.durability_class == "fast"
    error = await world.refused(
        "UpdateTopicOptions", options={"topic": TOPIC, "durability_class": "x"}, update_mask=mask
    )
    assert "there are: default, fast" in error.message
    await world.call("UpdateTopicOptions", options={"topic": TOPIC}, update_mask=mask)
    assert (await world.call("GetTopicOptions", topic=TOPIC)).durability_class == ""
    assert (await world.refused("GetTopicOptions", topic=TOPIC + "x")).code is Code.NOT_FOUND


@cluster
async def test_drains_come_and_go_with_what_is_left_to_do(world: ClusterWorld) -> None:
    target = "eu-publish-forwarder-1"
    world.put(OWNERS + "1", Owner(target, 4000, 1, "10.0.0.1:4000").encode())
    world.put(LOADS + target, json.dumps({"connections": 4}).encode())
    drained = await world.call("Drain", target=target, comment="new disks")
    assert (drained.draining, list(drained.members), drained.connections, drained.chains) == (True, [target], 4, 1)
    assert await world.call("Drain", target=target, comment="again")
    (listed,) = (await world.call("ListDrains")).drains
    assert (listed.comment, listed.create_time.ToNanoseconds()) == ("new disks", world.clock.time_ns())
    assert next(one for one in (await world.call("ListMembers")).members if one.name == target).draining
    assert not (await world.call("Undrain", target=target)).draining
    assert (await world.refused("Undrain", target=target)).code is Code.NOT_FOUND
    assert not (await world.call("GetDrain", target=target)).draining
    assert (await world.refused("Drain", target="nobody")).code is Code.NOT_FOUND
    assert (await world.refused("GetDrain", target="region/mars")).code is Code.NOT_FOUND
    assert (await world.refused("Drain")).code is Code.INVALID_ARGUMENT
    assert len((await world.call("Drain", target="region/us")).members) == 6


@cluster
async def test_a_drain_that_leaves_nothing_is_refused(world: ClusterWorld) -> None:
    await world.topic(TOPIC + "-us", "us")
    error = await world.refused("Drain", target="region/us")
    assert error.code is Code.FAILED_PRECONDITION
    assert TOPIC + "-us" in error.message
    await world.call("Drain", target="region/eu")
    await world.call("Drain", target="us-publish-forwarder-1")
    assert (await world.refused("Drain", target="us-publish-forwarder-2")).code is Code.FAILED_PRECONDITION


@cluster
async def test_rules_are_tried_stored_listed_and_deleted(world: ClusterWorld) -> None:
    rule = {"name": "keep-apart", "action": admin.Constraint.DENY, "clients": "region=eu", "forwarders": "region=us"}
    trial = await world.call("TestConstraint", constraint=rule)
    assert trial.refusal == ""
    assert (list(trial.clients), list(trial.topics)) == (["eu-proxy-1", "eu-proxy-2"], [TOPIC])
    assert not (await world.call("ListConstraints")).constraints
    stored = await world.call("CreateConstraint", constraint=rule)
    assert stored.create_time.ToNanoseconds() == world.clock.time_ns()
    assert list((await world.call("ListConstraints")).constraints) == [stored]
    assert (await world.refused("CreateConstraint", constraint=rule)).code is Code.ALREADY_EXISTS
    lock_out = {"name": "lock-out", "action": admin.Constraint.DENY, "clients": "region=eu", "forwarders": "region=eu"}
    assert "would be left without" in (await world.call("TestConstraint", constraint=lock_out)).refusal
    assert (await world.refused("CreateConstraint", constraint=lock_out)).code is Code.FAILED_PRECONDITION
    await world.call("DeleteConstraint", name="keep-apart")
    assert (await world.refused("DeleteConstraint", name="keep-apart")).code is Code.NOT_FOUND
    await world.call("CreateConstraint", constraint=lock_out)
    for wrong in ({"name": "x"}, {**rule, "name": "Bad Name"}, {**rule, "clients": "colour=red"}):
        assert (await world.refused("CreateConstraint", constraint=wrong)).code is Code.INVALID_ARGUMENT


@cluster
async def test_a_rule_that_others_depend_on_stays(world: ClusterWorld) -> None:
    allow = {"name": "allow-eu", "action": admin.Constraint.ALLOW, "forwarders": "region=eu", "priority": 10}
    await world.call("CreateConstraint", constraint=allow)
    await world.call("CreateConstraint", constraint={"name": "deny-all", "action": admin.Constraint.DENY})
    error = await world.refused("DeleteConstraint", name="allow-eu")
    assert error.code is Code.FAILED_PRECONDITION
    await world.call("DeleteConstraint", name="deny-all")
    await world.call("DeleteConstraint", name="allow-eu")


@cluster
async def test_without_metadata_nothing_is_decided(world: ClusterWorld) -> None:
    world.shared.cut = True
    for method, fields in (
        ("Drain", {"target": "eu-proxy-1"}),
        ("ListConstraints", {}),
        ("UpdateTopicOptions", {"options": {"topic": TOPIC}, "update_mask": {"paths": ["durability_class"]}}),
    ):
        assert (await world.refused(method, **fields)).code is Code.UNAVAILABLE
    assert (await world.call("GetServer")).topics == 1
    assert len((await world.call("ListMembers")).members) == 12
