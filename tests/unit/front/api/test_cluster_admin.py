"""The administration of a cluster: what it shows of the metadata, and what it refuses."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from typing import Any

import pytest

from syncpoint.base.model.cluster import PROXY, PUBLISH, STORAGE, SUBSCRIBE, ChainOwner, ChainRecord, DiskPlace, Member
from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.base.model.flow import FlowLimits
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.catalog.metadata.catalog_replica import SharedCatalog
from syncpoint.catalog.metadata.contract import Delete, Put
from syncpoint.catalog.metadata.layout import CHAINS, LOADS, MEMBERS, OPEN, OWNERS, SETTINGS
from syncpoint.catalog.metadata.local import LocalShared
from syncpoint.catalog.metadata.memory import MemoryStore
from syncpoint.catalog.metadata.view import ClusterView
from syncpoint.cluster.control.cluster_queries import ClusterQueries
from syncpoint.cluster.control.durability_classes import CLASSES, DurabilityClass, DurabilityClasses
from syncpoint.cluster.control.head_commit import HeadCommit
from syncpoint.cluster.control.operations import Operations
from syncpoint.cluster.control.plane import ControlPlane
from syncpoint.front.api.admin_handlers import CatalogService
from syncpoint.front.api.cluster_admin import ClusterAdmin
from syncpoint.front.api.server_admin import ServerIdentity
from syncpoint.testing.rigs.plain_tests import Work, plain_test
from syncpoint.testing.rigs.simulated_loop import run_simulated
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import admin, internal, pubsub
from syncpoint.wire.transport.memory import MemoryChannel

DESCRIBE, STATUS = methods.CHAINS.Describe, methods.PROCESS.GetStatus
TOPIC, SUB = "projects/p/topics/topic", "projects/p/subscriptions/sub"

KINDS = [(role, number) for role in (PUBLISH, SUBSCRIBE, PROXY) for number in (1, 2)]
PLACES = [(region, role, number) for region in ("eu", "us") for role, number in KINDS]
MEMBERS_OF_TWO_REGIONS = [
    Member(f"{region}-{role}-{number}", (role,), f"10.0.0.1:{port}", port, region=region, zone=f"z{number}")
    for port, (region, role, number) in enumerate(PLACES, 4000)
]


class Passed:
    """A barrier that everybody has passed already."""

    async def confirm(self, topic: int, revision: int) -> None:
        pass


class Peers:
    """What other processes answer, by address and method; the others are not there."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], Any] = {}

    async def call(self, address: str, path: str, request: bytes, *, timeout_s: float) -> bytes:
        answer = self.answers.get((address, path))
        if answer is None:
            await asyncio.sleep(timeout_s)
            raise SyncpointError(Code.DEADLINE_EXCEEDED, "Deadline exceeded.")
        made: bytes = answer.SerializeToString()
        return made


class ClusterHarness:
    """One proxy's admin methods over a store that the test fills."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.store = MemoryStore(clock=clock, random=SeededRandom(1))
        self.shared = LocalShared(self.store, clock)
        self.peers = Peers()

    async def start(self) -> None:
        for member in MEMBERS_OF_TWO_REGIONS:
            self.put(MEMBERS + member.name, member.encode())
        self.view, catalog = ClusterView(self.shared), SharedCatalog(self.shared)
        await self.view.start()
        await catalog.start()
        control = ControlPlane(HeadCommit(self.shared, catalog, Passed()), self.clock, SeededRandom(2))  # type: ignore[arg-type]
        operations = Operations(self.view, control.catalog, self.clock)
        two = {"default": asdict(DurabilityClass()), "fast": asdict(DurabilityClass("fast", durability="async"))}
        self.put(SETTINGS, json.dumps({CLASSES: two}).encode())
        classes = DurabilityClasses(self.shared)
        await classes.start()
        identity = ServerIdentity(10**12, "sync", self.clock.time_ns())
        inquiry = ClusterQueries(self.view, self.peers)  # type: ignore[arg-type]
        self.admin = ClusterAdmin(control, self.view, operations, FlowLimits(), identity, classes, inquiry)
        self.channel = MemoryChannel({**CatalogService(control).methods(), **self.admin.methods()})
        await self.topic(TOPIC)

    def put(self, key: str, value: bytes) -> None:
        self.store.txn([], [Put(key, value)])

    async def topic(self, name: str, *regions: str) -> None:
        policy = {"allowed_persistence_regions": regions}
        request = pubsub.Topic(name=name, message_storage_policy=policy if regions else None)
        await self.channel.unary("/google.pubsub.v1.Publisher/CreateTopic", request.SerializeToString())

    async def call(self, method: str, **fields: Any) -> Any:
        path = methods.ADMIN[method]
        return path.response.FromString(await self.channel.unary(path, path.request(**fields).SerializeToString()))

    async def refused(self, method: str, **fields: Any) -> SyncpointError:
        with pytest.raises(SyncpointError) as caught:
            await self.call(method, **fields)
        return caught.value


def run(work: Work) -> None:
    clock = ManualClock()

    async def main() -> None:
        harness = ClusterHarness(clock)
        await harness.start()
        await work(harness)
        await harness.shared.close()

    run_simulated(clock, main())


cluster = plain_test(run)
"""A decorator: a coroutine function over a started harness as a plain test."""


@cluster
async def test_members_and_chains_are_reported_at_once_while_the_metadata_do_not_answer(
    harness: ClusterHarness,
) -> None:
    async def silent(*asked: Any, **more: Any) -> None:
        await asyncio.sleep(3600)

    harness.shared.get = silent  # type: ignore[assignment]
    before = harness.clock.monotonic()
    assert len((await harness.call("ListMembers")).members) == len(MEMBERS_OF_TWO_REGIONS)
    assert not (await harness.call("ListChains")).chains
    assert harness.clock.monotonic() == before


@cluster
async def test_members_and_chains_are_shown_as_they_are(harness: ClusterHarness) -> None:
    places = (DiskPlace("c1", "d1", "s1", "k1", "z1"),)
    harness.put(
        CHAINS.key("7"),
        ChainRecord(7, "eu-publish-forwarder-1/fast", "fast", "eu", "eu-publish-forwarder-1", places).encode(),
    )
    harness.put(OWNERS.key("7"), ChainOwner("eu-publish-forwarder-2", 4001, 9, "10.0.0.1:4001").encode())
    harness.put(
        LOADS + "eu-publish-forwarder-2", json.dumps({"connections": 3, "messages_s": 1.5, "bytes_s": 20}).encode()
    )
    (chain,) = (await harness.call("ListChains")).chains
    assert (chain.number, chain.durability_class, chain.home, chain.owner, chain.epoch) == (
        7, "fast", "eu-publish-forwarder-1", "eu-publish-forwarder-2", 9,
    )  # fmt: skip
    assert (chain.disks[0].cluster, chain.disks[0].process, chain.disks[0].rack) == ("c1", "s1", "k1")
    members = {member.name: member for member in (await harness.call("ListMembers")).members}
    assert len(members) == 12
    owner = members["eu-publish-forwarder-2"]
    assert (owner.chains, owner.connections, owner.messages_per_second, owner.region) == (1, 3, 1.5, "eu")


@cluster
async def test_the_server_its_topics_and_subscriptions(harness: ClusterHarness) -> None:
    request = pubsub.Subscription(name=SUB, topic=TOPIC).SerializeToString()
    await harness.channel.unary("/google.pubsub.v1.Subscriber/CreateSubscription", request)
    server = await harness.call("GetServer")
    assert (server.topics, server.subscriptions, server.universe) == (1, 1, 10**12)
    assert (await harness.call("GetTopicState", topic=TOPIC)).subscriptions == 1
    limits = await harness.call("UpdateLimits", limits={"system": {"messages": 5}}, update_mask={"paths": ["system"]})
    assert limits.system.messages == (await harness.call("GetLimits")).system.messages == 5


@cluster
async def test_a_topic_has_a_durability_class_that_exists(harness: ClusterHarness) -> None:
    mask = {"paths": ["durability_class"]}
    fast, none = ({"topic": TOPIC, "durability_class": name} for name in ("fast", "x"))
    changed = await harness.call("UpdateTopicOptions", options=fast, update_mask=mask)
    assert changed == await harness.call("GetTopicOptions", topic=TOPIC)
    assert changed.durability_class == "fast"
    error = await harness.refused("UpdateTopicOptions", options=none, update_mask=mask)
    assert "the classes are: default, fast" in error.message
    await harness.call("UpdateTopicOptions", options={"topic": TOPIC}, update_mask=mask)
    assert (await harness.call("GetTopicOptions", topic=TOPIC)).durability_class == ""
    assert (await harness.refused("GetTopicOptions", topic=TOPIC + "x")).code is Code.NOT_FOUND


@cluster
async def test_a_durability_class_is_added_where_every_forwarder_has_disks_for_it(harness: ClusterHarness) -> None:
    def storage(region: str) -> None:
        name = f"{region}-storage"
        member = Member(name, (STORAGE,), "h:1", 5000, region=region, cluster=f"{region}-c1", disks=("d1", "d2", "d3"))
        harness.put(MEMBERS + name, member.encode())

    async def add(name: str, **asked: Any) -> Any:
        return await harness.call("CreateDurabilityClass", durability_class={"name": name, **asked})

    storage("eu")
    await asyncio.sleep(0.1)
    with pytest.raises(SyncpointError, match=r"chain of us-.*start more storage") as caught:
        await add("one", clusters=1)
    assert caught.value.code is Code.FAILED_PRECONDITION
    storage("us")
    await asyncio.sleep(0.1)
    asynchronous = admin.Durability.Value("ASYNC")
    made = await add("one", clusters=1, durability=asynchronous)
    assert (made.clusters, made.disks, made.durability, made.placement) == (1, 3, asynchronous, "degrade")
    listed = (await harness.call("ListDurabilityClasses")).durability_classes
    assert [one.name for one in listed] == ["default", "fast", "one"]
    mask = {"paths": ["durability_class"]}
    await harness.call("UpdateTopicOptions", options={"topic": TOPIC, "durability_class": "one"}, update_mask=mask)
    for name, fields, code in (
        ("one", {"clusters": 1}, Code.ALREADY_EXISTS),
        ("a/b", {"clusters": 1}, Code.INVALID_ARGUMENT),
        ("even", {"clusters": 2}, Code.INVALID_ARGUMENT),
        ("odd", {"clusters": 1, "placement": "soon"}, Code.INVALID_ARGUMENT),
        ("odd", {"clusters": 1, "durability": 7}, Code.INVALID_ARGUMENT),
    ):
        with pytest.raises(SyncpointError) as caught:
            await add(name, **fields)
        assert caught.value.code is code, name
    harness.admin._classes.fixed = True
    with pytest.raises(SyncpointError, match="single server"):
        await add("two", clusters=1)


@cluster
async def test_a_durability_class_can_be_judged_before_there_is_a_topic(harness: ClusterHarness) -> None:
    async def judged(topic: str, name: str) -> Any:
        options, mask = {"topic": topic, "durability_class": name}, {"paths": ["durability_class"]}
        return await harness.call("UpdateTopicOptions", options=options, update_mask=mask, validate_only=True)

    assert (await judged(TOPIC + "x", "fast")).durability_class == "fast"
    with pytest.raises(SyncpointError, match="the classes are: default, fast"):
        await judged(TOPIC + "x", "x")
    with pytest.raises(SyncpointError, match="no topic") as caught:
        await judged("no topic", "fast")
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert (await harness.refused("GetTopicOptions", topic=TOPIC + "x")).code is Code.NOT_FOUND
    await judged(TOPIC, "fast")
    assert (await harness.call("GetTopicOptions", topic=TOPIC)).durability_class == "", "nothing was changed"


@cluster
async def test_drains_come_and_go_with_what_is_left_to_do(harness: ClusterHarness) -> None:
    target = "eu-publish-forwarder-1"
    harness.put(OWNERS.key("1"), ChainOwner(target, 4000, 1, "10.0.0.1:4000").encode())
    harness.put(LOADS.key(target), json.dumps({"connections": 4}).encode())
    drained = await harness.call("Drain", target=target, comment="new disks")
    assert (drained.draining, list(drained.members), drained.connections, drained.chains) == (True, [target], 4, 1)
    assert await harness.call("Drain", target=target, comment="again")
    (listed,) = (await harness.call("ListDrains")).drains
    assert (listed.comment, listed.create_time.ToNanoseconds()) == ("new disks", harness.clock.time_ns())
    assert next(one for one in (await harness.call("ListMembers")).members if one.name == target).draining
    assert not (await harness.call("Undrain", target=target)).draining
    assert (await harness.refused("Undrain", target=target)).code is Code.NOT_FOUND
    assert not (await harness.call("GetDrain", target=target)).draining
    assert (await harness.refused("Drain", target="nobody")).code is Code.NOT_FOUND
    assert (await harness.refused("GetDrain", target="region/mars")).code is Code.NOT_FOUND
    assert (await harness.refused("Drain")).code is Code.INVALID_ARGUMENT
    assert len((await harness.call("Drain", target="region/us")).members) == 6


@cluster
async def test_a_drain_that_leaves_nothing_is_refused(harness: ClusterHarness) -> None:
    await harness.topic(TOPIC + "-us", "us")
    error = await harness.refused("Drain", target="region/us")
    assert error.code is Code.FAILED_PRECONDITION
    assert TOPIC + "-us" in error.message
    await harness.call("Drain", target="region/eu")
    await harness.call("Drain", target="us-publish-forwarder-1")
    assert (await harness.refused("Drain", target="us-publish-forwarder-2")).code is Code.FAILED_PRECONDITION


@cluster
async def test_rules_are_tried_stored_listed_and_deleted(harness: ClusterHarness) -> None:
    rule = {"name": "keep-apart", "action": admin.Constraint.DENY, "clients": "region=eu", "forwarders": "region=us"}
    trial = await harness.call("TestConstraint", constraint=rule)
    assert trial.refusal == ""
    assert (list(trial.clients), list(trial.topics)) == (["eu-proxy-1", "eu-proxy-2"], [TOPIC])
    assert not (await harness.call("ListConstraints")).constraints
    stored = await harness.call("CreateConstraint", constraint=rule)
    assert stored.create_time.ToNanoseconds() == harness.clock.time_ns()
    assert list((await harness.call("ListConstraints")).constraints) == [stored]
    assert (await harness.refused("CreateConstraint", constraint=rule)).code is Code.ALREADY_EXISTS
    lock_out = {"name": "lock-out", "action": admin.Constraint.DENY, "clients": "region=eu", "forwarders": "region=eu"}
    assert "would be left without" in (await harness.call("TestConstraint", constraint=lock_out)).refusal
    assert (await harness.refused("CreateConstraint", constraint=lock_out)).code is Code.FAILED_PRECONDITION
    await harness.call("DeleteConstraint", name="keep-apart")
    assert (await harness.refused("DeleteConstraint", name="keep-apart")).code is Code.NOT_FOUND
    await harness.call("CreateConstraint", constraint=lock_out)
    for wrong in ({"name": "x"}, {**rule, "name": "Bad Name"}, {**rule, "clients": "colour=red"}):
        assert (await harness.refused("CreateConstraint", constraint=wrong)).code is Code.INVALID_ARGUMENT


@cluster
async def test_a_rule_that_others_depend_on_stays(harness: ClusterHarness) -> None:
    allow = {"name": "allow-eu", "action": admin.Constraint.ALLOW, "forwarders": "region=eu", "priority": 10}
    await harness.call("CreateConstraint", constraint=allow)
    await harness.call("CreateConstraint", constraint={"name": "deny-all", "action": admin.Constraint.DENY})
    error = await harness.refused("DeleteConstraint", name="allow-eu")
    assert error.code is Code.FAILED_PRECONDITION
    await harness.call("DeleteConstraint", name="deny-all")
    await harness.call("DeleteConstraint", name="allow-eu")


@cluster
async def test_without_metadata_nothing_is_decided(harness: ClusterHarness) -> None:
    harness.shared.cut = True
    for method, fields in (
        ("Drain", {"target": "eu-proxy-1"}),
        ("ListConstraints", {}),
        ("UpdateTopicOptions", {"options": {"topic": TOPIC}, "update_mask": {"paths": ["durability_class"]}}),
    ):
        assert (await harness.refused(method, **fields)).code is Code.UNAVAILABLE
    assert (await harness.call("GetServer")).topics == 1
    assert len((await harness.call("ListMembers")).members) == 12


async def subscribed(harness: ClusterHarness) -> None:
    """A subscription; its topic in chains 7 and 8, with an owner each, who do not answer yet."""
    request = pubsub.Subscription(name=SUB, topic=TOPIC).SerializeToString()
    await harness.channel.unary("/google.pubsub.v1.Subscriber/CreateSubscription", request)
    topic = (await harness.call("GetTopicState", topic=TOPIC)).incarnation
    for chain, port in ((7, 4000), (8, 4001)):
        name = f"eu-publish-forwarder-{port - 3999}"
        harness.put(OWNERS + str(chain), ChainOwner(name, port, 2, f"10.0.0.1:{port}").encode())
        harness.put(OPEN.key(topic, chain), b"{}")


def described(chain: int, **fields: Any) -> Any:
    source = {"source": chain << 32 | 1, "first_offset": 3, "next_offset": 9, "acked": [3, 5], "ranges_total": 1}
    return internal.DescribeResponse(chains=[{"chain": chain, "sources": [source], "generation": 2, **fields}])


@cluster
async def test_states_are_summed_over_chains_and_forwarders(harness: ClusterHarness) -> None:
    await subscribed(harness)
    answers = harness.peers.answers
    answers["10.0.0.1:4000", DESCRIBE] = described(7, backlog_messages=10, backlog_bytes=1000, oldest_age_s=5.5)
    answers["10.0.0.1:4001", DESCRIBE] = described(8, backlog_messages=1, backlog_bytes=7, oldest_age_s=2.5)
    delivery = internal.DescribeDeliveryResponse(messages=2, bytes=30, subscribers=1)
    for member in MEMBERS_OF_TWO_REGIONS:
        if SUBSCRIBE in member.roles:
            answers[member.address, methods.DELIVERIES.Describe] = delivery
    state = await harness.call("GetSubscriptionState", subscription=SUB)
    assert list(state.unknown) == []
    assert (state.backlog_messages, state.backlog_bytes, state.generation) == (11, 1007, 2)
    assert state.oldest_unacked_age.ToNanoseconds() == 5_500_000_000
    assert (state.outstanding_messages, state.outstanding_bytes, state.subscribers) == (8, 120, 4)
    assert [(one.chain, one.next_offset, one.acked[0].begin, one.acked[0].end) for one in state.sources] == [
        (7, 9, 3, 5),
        (8, 9, 3, 5),
    ]
    topic = await harness.call("GetTopicState", topic=TOPIC)
    assert [(one.chain, one.first_offset, one.next_offset) for one in topic.sources] == [(7, 3, 9), (8, 3, 9)]
    assert list(topic.unknown) == []
    error = await harness.refused("GetSubscriptionState", subscription=SUB, ranges_max=-1)
    assert error.code is Code.INVALID_ARGUMENT


@cluster
async def test_who_does_not_answer_is_named(harness: ClusterHarness) -> None:
    await subscribed(harness)
    harness.peers.answers["10.0.0.1:4000", DESCRIBE] = described(7, backlog_messages=10, unreadable="disk on fire")
    harness.store.txn([], [Delete(OWNERS.key("8"))])
    state = await harness.call("GetSubscriptionState", subscription=SUB)
    assert state.backlog_messages == 10
    silent = [f"{one.name} does not report" for one in MEMBERS_OF_TWO_REGIONS if SUBSCRIBE in one.roles]
    expected = ["chain 8: no process has it open now", "chain 7: disk on fire", *silent]
    assert len(state.unknown) == len(expected)
    assert all(reported.startswith(words) for reported, words in zip(state.unknown, expected, strict=True)), (
        state.unknown
    )
    assert "chain 8: no process has it open now" in (await harness.call("GetTopicState", topic=TOPIC)).unknown
    del harness.peers.answers["10.0.0.1:4000", DESCRIBE]
    (first, _) = (await harness.call("GetTopicState", topic=TOPIC)).unknown
    assert first == "chain 7: eu-publish-forwarder-1 does not report (Deadline exceeded.)"


@cluster
async def test_an_owner_who_takes_over_within_the_deadline_is_asked(harness: ClusterHarness) -> None:
    await subscribed(harness)
    answers = harness.peers.answers
    answers["10.0.0.1:4000", DESCRIBE] = described(7, backlog_messages=1)
    answers["10.0.0.1:4001", DESCRIBE] = internal.DescribeResponse()  # it has let go of chain 8
    answers["10.0.0.1:4004", DESCRIBE] = described(8, backlog_messages=5)

    async def adopt() -> None:
        await asyncio.sleep(0.5)
        harness.put(OWNERS.key("8"), ChainOwner("eu-proxy-1", 4004, 3, "10.0.0.1:4004").encode())

    adopting = asyncio.ensure_future(adopt())
    state = await harness.call("GetSubscriptionState", subscription=SUB)
    assert state.backlog_messages == 6
    assert not [one for one in state.unknown if "chain" in one]
    await adopting


@cluster
async def test_disks_that_processes_write_themselves_are_shown_once_as_the_owners_see_them(
    harness: ClusterHarness,
) -> None:
    for number in (7, 8):
        name = f"eu-publish-forwarder-{number - 6}"
        places = tuple(DiskPlace("local", disk, name) for disk in ("disk-1", "disk-2"))
        harness.put(CHAINS + str(number), ChainRecord(number, f"x/{number}", "", "eu", name, places).encode())
        address = f"10.0.0.1:{3993 + number}"
        member = Member(
            name, (PUBLISH,), address, 3993 + number, region="eu", cluster="local", disks=("disk-1", "disk-2")
        )
        harness.put(MEMBERS.key(name), member.encode())
        # The first one has taken over the chain of the second one.
        harness.put(OWNERS.key(str(number)), ChainOwner("eu-publish-forwarder-1", 4000, 2, "10.0.0.1:4000").encode())

    async def shown() -> list[tuple[str, int, str]]:
        return [(one.path, one.state, one.reason) for one in (await harness.call("ListDisks")).disks]

    silent = "; ".join(f"chain {number}: eu-publish-forwarder-1, its owner, does not report" for number in (7, 8))
    assert await shown() == [(disk, admin.Disk.UNKNOWN, silent) for disk in ("disk-1", "disk-2")]

    good = {"state": "ok", "reason": "", "position": 40, "lacks": 0, "unreadable": 0, "free_bytes": 900}
    disks = {
        str(number): {
            "/local/disk-1": {**good, "folder": f"/disks/a/chains/{number:010d}"},
            "/local/disk-2": {**good, "folder": f"/disks/b/chains/{number:010d}", "free_bytes": 100 * number},
        }
        for number in (7, 8)
    }
    reported = {"roles": {"publish-forwarder": {"disks": disks, "chains": []}}}
    harness.peers.answers["10.0.0.1:4000", STATUS] = internal.StatusResponse(json=json.dumps(reported))
    assert await shown() == [("/disks/a", admin.Disk.OK, ""), ("/disks/b", admin.Disk.OK, "")]
    assert [one.free_bytes for one in (await harness.call("ListDisks")).disks] == [900, 700]
    disks["8"]["/local/disk-2"] |= {"state": "failed", "reason": "EIO"}
    harness.peers.answers["10.0.0.1:4000", STATUS] = internal.StatusResponse(json=json.dumps(reported))
    assert (await shown())[1] == ("/disks/b", admin.Disk.FAILED, "chain 8: EIO")


@cluster
async def test_disks_are_shown_as_storage_and_owners_see_them(harness: ClusterHarness) -> None:
    places = (DiskPlace("c1", "d1", "s1"), DiskPlace("c1", "d2", "s1"), DiskPlace("c2", "d1", "s2"))
    for chain in (7, 8):
        harness.put(CHAINS + str(chain), ChainRecord(chain, f"x/{chain}", "", "eu", "x", places).encode())
    harness.put(OWNERS.key("7"), ChainOwner("eu-publish-forwarder-1", 4000, 2, "10.0.0.1:4000").encode())
    harness.put(MEMBERS.key("s1"), Member("s1", (STORAGE,), "10.0.0.1:1", 1, disks=("d1", "d2", "d3")).encode())

    async def shown() -> tuple[dict[str, Any], list[str]]:
        answer = await harness.call("ListDisks")
        return {one.path: one for one in answer.disks}, list(answer.unknown)

    found, unknown = await shown()
    assert {path: one.state for path, one in found.items()} == {
        "s1/d1": admin.Disk.UNKNOWN,
        "s1/d2": admin.Disk.UNKNOWN,
        "s1/d3": admin.Disk.UNKNOWN,
        "s2/d1": admin.Disk.AWAY,
    }
    assert not found["s1/d1"].HasField("free_bytes")
    assert [name.split()[0] for name in unknown] == [
        "eu-publish-forwarder-1", "eu-publish-forwarder-2", "s1", "us-publish-forwarder-1", "us-publish-forwarder-2",
    ]  # fmt: skip

    free = {"d1": {"free_bytes": 100}, "d2": {"free_bytes": 0}, "d3": {"free_bytes": 300}}
    storage = {"roles": {"storage": {"disks": free}}}
    harness.peers.answers["10.0.0.1:1", STATUS] = internal.StatusResponse(json=json.dumps(storage))
    good = {"state": "ok", "reason": "", "position": 40, "lacks": 2, "unreadable": 0, "incarnation": "ab12"}
    disks = {
        "/c1/d1": good,
        "/c1/d2": {**good, "state": "failed", "reason": "EIO"},
        "/c2/d1": {**good, "state": "away"},
    }
    owner = {"publish-forwarder": {"disks": {"7": disks}, "chains": [{"chain": 7, "under_replicated": 6}]}}
    harness.peers.answers["10.0.0.1:4000", STATUS] = internal.StatusResponse(json=json.dumps({"roles": owner}))
    found, unknown = await shown()
    assert len(unknown) == 3
    first = found["s1/d1"]
    assert (first.state, first.free_bytes, first.under_replicated) == (admin.Disk.UNKNOWN, 100, 2)
    assert first.reason == "chain 8: no process has it open"
    assert [(one.chain, one.state, one.HasField("position"), one.position) for one in first.chains] == [
        (7, admin.Disk.OK, True, 40),
        (8, admin.Disk.UNKNOWN, False, 0),
    ]
    assert [one.incarnation for one in first.chains] == ["ab12", ""]
    second = found["s1/d2"]
    assert (second.state, second.reason) == (admin.Disk.FAILED, "chain 7: EIO")
    assert (second.HasField("free_bytes"), second.free_bytes) == (True, 0)
    assert found["s1/d3"].state == admin.Disk.OK, "it lives, and no chain is on it"
    assert (await harness.call("ListDisks")).under_replicated == 6
    disks["/c1/d1"] = {**good, "state": "damaged", "reason": "segment 1/1", "unreadable": 4}
    harness.peers.answers["10.0.0.1:4000", STATUS] = internal.StatusResponse(json=json.dumps({"roles": owner}))
    first = (await shown())[0]["s1/d1"]
    assert (first.state, first.reason, first.damaged) == (admin.Disk.DAMAGED, "chain 7: segment 1/1", 4)
