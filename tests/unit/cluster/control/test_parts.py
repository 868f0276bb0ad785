"""Listeners, views, membership, founding, registration, reports and expiry, each alone."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from syncpoint.base.model.cluster import PUBLISH, STORAGE, ChainOwner, ChainRecord, DiskPlace, Member
from syncpoint.base.model.errors import FailedPrecondition, InvalidArgument, SyncpointError, Unavailable
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.base.runtime.trusted import TrustedClock
from syncpoint.catalog.metadata.catalog_replica import SharedCatalog
from syncpoint.catalog.metadata.contract import Delete, Put
from syncpoint.catalog.metadata.layout import CHAINS, DRAINS, MEMBERS, OWNERS, USED
from syncpoint.catalog.metadata.local import LocalShared
from syncpoint.catalog.metadata.memory import MemoryStore
from syncpoint.catalog.metadata.records import CREATING, CatalogChange, Snapshot, Subscription, Topic
from syncpoint.catalog.metadata.view import ClusterView, View
from syncpoint.cluster.control.barrier import Barrier
from syncpoint.cluster.control.chain_creation import PATIENCE_S, ChainCreator, ChainPlan
from syncpoint.cluster.control.chain_placement import planner, refuse_what_has_no_place
from syncpoint.cluster.control.durability_classes import DurabilityClass
from syncpoint.cluster.control.expiry import UNFINISHED_S, Expiry
from syncpoint.cluster.control.head_commit import HeadCommit
from syncpoint.cluster.control.membership import Membership
from syncpoint.cluster.control.peer_channels import PeerChannels, Reach, process_methods
from syncpoint.cluster.control.plane import ControlPlane
from syncpoint.cluster.control.registration import Registration, registered_chains
from syncpoint.cluster.control.usage_reports import USED_S, ReportedUses, UsageReporter
from syncpoint.log.storage.quorum import AckRule
from syncpoint.testing.rigs.plain_tests import Work, on_loop, plain_test
from syncpoint.testing.rigs.simulated_loop import run_simulated
from syncpoint.testing.simulation.loop import ProcessLoop, SimProcess, run_in_loop
from syncpoint.testing.simulation.sim_network import SimNetwork
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal
from syncpoint.wire.transport.network import TcpNetwork

STATUS = methods.PROCESS.GetStatus

ME = Member("f1", (PUBLISH,), "10.0.0.1:1", 11, region="r")


class Bare:
    """A store and the ways to it that a test opens."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.random = SeededRandom(1)
        self.store = MemoryStore(clock=self.clock, random=self.random)

    def open(self) -> LocalShared:
        return LocalShared(self.store, self.clock)

    def put(self, key: str, value: bytes = b"{}") -> None:
        self.store.txn([], [Put(key, value)])


def run(work: Work) -> None:
    bare = Bare()
    run_simulated(bare.clock, work(bare))


alone = plain_test(run)
"""A decorator: a coroutine function over a bare store as a plain test."""

# -- listeners
# -------------------------------------------------------------------------------------------------------------


def test_who_answers_who_refuses_and_who_is_silent() -> None:
    async def run(loop: ProcessLoop) -> None:
        network = SimNetwork(SeededRandom(1))
        process, caller = SimProcess(loop, "p"), SimProcess(loop, "q")
        serving = await process.start(network.serve(process_methods(lambda: {"a": 1}), "10.0.0.1", 0))
        address = f"10.0.0.1:{serving.port}"

        async def ask() -> None:
            peers = PeerChannels(network)
            assert await peers.ping(address) is Reach.ANSWERED
            status = internal.StatusResponse.FromString(await peers.call(address, STATUS, b"", timeout_s=1))
            assert status.json == '{"a": 1}'
            process.hang()
            assert await peers.ping(address) is Reach.SILENT
            process.go_on()
            assert await peers.ping(address) is Reach.ANSWERED
            process.crash()
            network.ended(process)
            assert await peers.ping(address) is Reach.REFUSED
            await peers.close()

        await caller.start(ask())

    run_in_loop(ManualClock(), run)


@on_loop
async def test_over_real_sockets_a_dead_process_is_distinguished_from_a_living_one() -> None:
    network = TcpNetwork()
    serving = await network.serve(process_methods(dict), "127.0.0.1", 0)
    peers = PeerChannels(network)
    address = f"127.0.0.1:{serving.port}"
    assert await peers.ping(address) is Reach.ANSWERED
    await serving.close()
    for _ in range(3):  # the first may still meet the old connection
        reach = await peers.ping(address)
    assert reach is Reach.REFUSED
    await peers.close()


def test_channels_nobody_uses_are_closed() -> None:
    closed: list[str] = []

    class Counting:
        def __init__(self, address: str) -> None:
            self.address = address

        async def unary(
            self, path: str, message: object, *, metadata: object = (), timeout: float | None = None
        ) -> bytes:
            return b""

        def stream(self, path: str, metadata: object = ()) -> object:
            return object()

        async def close(self) -> None:
            closed.append(self.address)

    class Net:
        channel = staticmethod(Counting)

    async def run() -> None:
        peers = PeerChannels(Net(), idle_s=10)  # type: ignore[arg-type]
        peers.stream("a:1", "/x")
        await peers.call("b:1", "/x", b"", timeout_s=1)
        await asyncio.sleep(25)
        assert closed == ["b:1"]
        peers.unpin("a:1")
        await asyncio.sleep(25)
        assert closed == ["b:1", "a:1"]
        await peers.call("b:1", "/x", b"", timeout_s=1)
        await peers.close()
        assert closed == ["b:1", "a:1", "b:1"]

    run_simulated(ManualClock(), run())


# -- views and members -------------------------------------------------------------------------------------------------


@alone
async def test_a_view_follows_and_lists_again_when_events_are_gone(bare: Bare) -> None:
    for number in range(2_500):
        bare.put(f"x/{number}", b"1")
    view = View(bare.open(), "x/", int)
    received: list[set[str]] = []
    await view.start()
    view.listeners.append(received.append)
    assert len(view.items) == 2_500
    bare.put("x/7", b"2")
    bare.put("x/8", b"not a number")
    bare.store.txn([], [Delete("x/9")])
    await asyncio.sleep(0.1)
    assert (view.get("7"), view.get("8"), view.get("9")) == (2, None, None)
    assert set.union(*received) == {"7", "8", "9"}
    shared = view._store
    shared.cut = True
    bare.put("x/7", b"3")
    bare.store.txn([], [Delete("x/1")])
    bare.store.compact(bare.store.status().revision + 1)
    await asyncio.sleep(5)
    assert view.get("7") == 2, "as it was"
    shared.cut = False
    await asyncio.sleep(5)
    assert (view.get("7"), view.get("1")) == (3, None)
    assert view.revision == bare.store.status().revision
    await view.close()


@alone
async def test_a_member_is_there_while_it_lives_and_again_after_an_outage(bare: Bare) -> None:
    shared, other = bare.open(), ClusterView(bare.open())
    await other.start()
    membership = Membership(shared, ME)
    leases: list[object] = []
    membership.on_lease.append(leases.append)
    await membership.start()
    await asyncio.sleep(60)
    assert other.with_role(PUBLISH) == [ME]
    shared.cut = True
    await asyncio.sleep(6)
    assert other.with_role(PUBLISH) == []
    assert membership.lease is None
    shared.cut = False
    await asyncio.sleep(1)
    assert other.with_role(PUBLISH) == [ME]
    await membership.announce(draining=True)
    await asyncio.sleep(0.1)
    assert other.draining(other.members.get("f1"))  # type: ignore[arg-type]
    await membership.stop()
    await asyncio.sleep(0.1)
    assert other.with_role(PUBLISH) == []
    assert [lease is not None for lease in leases] == [True, False, True]
    await other.close()


@alone
async def test_after_an_outage_a_name_that_went_to_another_is_left_to_it(bare: Bare) -> None:
    shared = bare.open()
    membership = Membership(shared, ME)
    await membership.start()
    shared.cut = True
    await asyncio.sleep(6)
    other = replace(ME, incarnation=99)
    bare.put(MEMBERS.key("f1"), other.encode())
    shared.cut = False
    await asyncio.sleep(2)
    assert membership.superseded.is_set()
    assert Member.decode(bare.store.get(MEMBERS.key("f1")).value) == other  # type: ignore[union-attr]


def test_what_a_target_covers() -> None:
    one = Member("f1", (PUBLISH,), "h:1", 1, region="eu", zone="a", cluster="c1")
    assert [target for target in ("f1", "f2", "region/eu", "region/us", "cluster/c1", "cluster/a", "x/eu")
            if one.covered_by(target)] == ["f1", "region/eu", "cluster/c1", "cluster/a"]  # fmt: skip


@pytest.mark.parametrize("wrong", [b"", b"[]", b"{}", b'{"name": 1}'])
def test_what_is_no_member_is_not_read_as_one(wrong: bytes) -> None:
    for kind in (Member, ChainOwner):
        with pytest.raises(ValueError):
            kind.decode(wrong)
    newer = ME.encode()[:-1] + b',"colour":"red"}'
    assert Member.decode(newer) == ME


# -- chains and registrations ------------------------------------------------------------------------------------------


@alone
async def test_chains_are_made_once_and_only_by_the_living(bare: Bare) -> None:
    shared = bare.open()
    membership = Membership(shared, ME)
    await membership.start()
    room = False

    def plan(klass: str, known) -> ChainPlan:  # type: ignore[no-untyped-def]
        if not room:
            raise FailedPrecondition("no disks yet")
        return ChainPlan((DiskPlace("c1", f"d{len(known)}", "s1"),), {"clusters": [0]}, "sync")

    founder = ChainCreator(shared, membership, ["default", "fast"], plan)
    founder.start()
    await asyncio.sleep(10)
    assert not founder.done.is_set()
    room = True
    await asyncio.sleep(5)
    assert founder.done.is_set()
    await founder.stop()
    found = [ChainRecord.decode(item.value) for item in bare.store.range(CHAINS).items]
    assert [(one.number, one.name, one.home, one.places[0].disk) for one in found] == [
        (1, "f1/default", "f1", "d0"),
        (2, "f1/fast", "f1", "d1"),
    ]
    again = ChainCreator(shared, membership, ["fast", "default"], plan)
    assert [one.number for one in await again.create_missing()] == [2, 1]
    heavier = replace(ME, weight=2.5)
    membership.me = heavier
    bare.put(MEMBERS.key("f1"), heavier.encode())
    assert {one.weight for one in await again.create_missing()} == {2.5}, "its weight of today, in the store, too"
    stored = [ChainRecord.decode(item.value) for item in bare.store.range(CHAINS).items]
    assert [(one.number, one.weight) for one in stored] == [(1, 2.5), (2, 2.5)]
    membership.me = ME
    bare.put(MEMBERS.key("f1"), replace(ME, incarnation=5).encode())
    late = ChainCreator(shared, membership, ["third"], plan)
    with pytest.raises(Exception, match="not registered now"):
        await late.create_missing()
    assert len(bare.store.range(CHAINS).items) == 2


@alone
async def test_a_topic_is_registered_until_the_owner_takes_it_back(bare: Bare) -> None:
    shared = bare.open()
    catalog = SharedCatalog(shared)
    await catalog.start()
    registration = Registration(shared, catalog, lambda: ME)
    before = bare.store.status().revision
    assert set(await asyncio.gather(*(registration.register(topic, 3) for topic in range(250)))) == {0}
    assert bare.store.status().revision == before + 3, "what is asked at once shares transactions"
    assert await registered_chains(shared, 7) == [3]
    assert not await registration.unregister(7, 3, 1), "nobody owns the chain"
    bare.put(OWNERS.key("3"), ChainOwner("f1", 11, 2, "10.0.0.1:1").encode())
    assert not await registration.unregister(7, 3, 1), "an older ownership"
    assert await registration.unregister(7, 3, 2)
    assert await registered_chains(shared, 7) == []
    shared.cut = True
    with pytest.raises(Unavailable):
        await registration.register(7, 3)
    with pytest.raises(Unavailable):
        await registration.unregister(7, 3, 2)
    await catalog.close()


# -- reports and expiry ------------------------------------------------------------------------------------------------


@alone
async def test_what_has_expired_is_deleted_and_what_is_used_is_not(bare: Bare) -> None:
    shared = bare.open()
    catalog, view = SharedCatalog(shared), ClusterView(shared)
    await catalog.start()
    await view.start()
    network = SimNetwork(SeededRandom(1))
    control = ControlPlane(HeadCommit(shared, catalog, Barrier(view, PeerChannels(network))), bare.clock, bare.random)
    now, day, put = bare.clock.time_ns(), 86_400, CatalogChange.put
    await control.commit([
        put(Topic(1, "t")),
        *(put(Subscription(2 + n, f"s{n}", 1, "t", created_ns=now, expiration_s=2 * day)) for n in range(2)),
        put(Subscription(4, "never", 1, "t", created_ns=now)),
        put(Subscription(5, "unfinished", 1, "t", created_ns=now, state=CREATING)),
        put(Snapshot(6, "old", 1, "t", created_ns=now, expire_ns=now + day * 10**9)),
        put(Snapshot(7, "new", 1, "t", created_ns=now, expire_ns=now + 9 * day * 10**9)),
        put(Snapshot(8, "begun", 1, "t", created_ns=now, expire_ns=now + 9 * day * 10**9, status=CREATING)),
    ])  # fmt: skip
    uses = UsageReporter(shared, bare.clock, lambda: [2, 99])
    uses.start()
    trusted = TrustedClock(bare.clock)
    expiry = Expiry(control, ReportedUses(shared, control.catalog, trusted), trusted)
    assert await expiry.expire() == 0
    bare.clock.advance(UNFINISHED_S + 1)
    assert await expiry.expire() == 2
    expiry.start()
    for _ in range(2 * 24):
        await asyncio.sleep(USED_S)
    await expiry.stop()
    assert control.catalog.subscription("s1") is not None, "what is known of its last use may be two hours old"
    expiry = Expiry(control, ReportedUses(shared, control.catalog, trusted), trusted)  # another process
    expiry.start()
    await asyncio.sleep(USED_S)
    assert control.catalog.subscription("s1") is not None
    await asyncio.sleep(2 * USED_S)
    assert control.catalog.subscription("s1") is None, "the time does not begin anew"
    await asyncio.sleep(4 * 24 * USED_S)
    await expiry.stop()
    await uses.stop()
    names = {record.name for record in control.catalog.records()}
    assert names == {"t", "s0", "never", "new"}
    assert [item.key for item in bare.store.range(USED).items if item.key.endswith("/2")] == [USED.key("2")]
    shared.cut = True
    with pytest.raises(SyncpointError):
        await control.commit([CatalogChange.delete(Topic(1, "t"))])


@alone
async def test_a_chain_lies_where_the_living_disks_are_and_waits_for_those_to_come(bare: Bare) -> None:
    shared = bare.open()
    view, membership = ClusterView(shared), Membership(shared, ME)
    await view.start()
    await membership.start()

    def storage(number: int, region: str = "r") -> None:
        name = f"s-{region}-c{number}"
        disks = ("d1", "d2", "d3")
        served = Member(name, (STORAGE,), "h:1", number, region, "", f"k{number}", f"{region}-c{number}", disks)
        bare.put(MEMBERS.key(name), served.encode())

    kinds = {
        "default": DurabilityClass(),
        "wide": DurabilityClass("wide", disks=1, durability="async", spans_regions=True),
    }
    founder = ChainCreator(shared, membership, kinds, planner(view, ME, kinds))
    storage(1)
    storage(1, "far")
    founder.start()
    await asyncio.sleep(5)
    assert not founder.done.is_set(), "three clusters are wanted: the others may be on their way"
    storage(2)
    storage(3)
    await asyncio.sleep(2)
    assert founder.done.is_set()
    default, wide = (ChainRecord.decode(item.value) for item in bare.store.range(CHAINS).items)
    assert {place.cluster for place in default.places} == {"r-c1", "r-c2", "r-c3"}
    assert (len(default.places), default.below_policy, wide.durability) == (9, False, "async")
    assert AckRule.from_values(default.rule) == AckRule.grid(3, 3)
    assert AckRule.from_values(wide.rule) == AckRule.grid(3, 1)
    with pytest.raises(InvalidArgument):
        planner(view, ME, kinds)("none", [])
    refuse_what_has_no_place(view, DurabilityClass("solo", clusters=1))
    for wanted in (DurabilityClass("x", clusters=5), DurabilityClass("x", disks=5, placement="any")):
        with pytest.raises(FailedPrecondition, match=r"not enough disks for a chain of f1: .* start more storage"):
            refuse_what_has_no_place(view, wanted)
    kinds["solo"] = DurabilityClass("solo", clusters=1)
    founder.classes_grew()
    assert not founder.done.is_set()
    await asyncio.sleep(1)
    assert founder.done.is_set(), "a class was added while it ran"
    assert ChainRecord.decode(bare.store.range(CHAINS).items[-1].value).name == "f1/solo"
    bare.put(DRAINS + "s-r-c3")
    await asyncio.sleep(0.1)
    late = ChainCreator(shared, Membership(shared, replace(ME, name="f2")), ["default"], planner(view, ME, kinds))
    await late._membership.start()
    late.start()
    await asyncio.sleep(PATIENCE_S - 1)
    assert not late.done.is_set()
    await asyncio.sleep(3)
    (record,) = await late.create_missing()
    assert record.below_policy
    assert "s-r-c3" not in {place.process for place in record.places}
    await founder.stop()
    await late.stop()
