"""Members that report each other the time, and what is deleted by it."""

from __future__ import annotations

import asyncio

import pytest

from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.base.runtime.trusted import TrustedClock
from syncpoint.catalog.metadata.catalog_replica import SharedCatalog
from syncpoint.catalog.metadata.contract import Put
from syncpoint.catalog.metadata.layout import CLOCKS, USED
from syncpoint.catalog.metadata.local import LocalShared
from syncpoint.catalog.metadata.memory import MemoryStore
from syncpoint.catalog.metadata.records import COPYING, CatalogChange, Snapshot, Subscription, Topic
from syncpoint.catalog.metadata.view import ClusterView
from syncpoint.cluster.control.barrier import Barrier
from syncpoint.cluster.control.clocks import ClockExchange
from syncpoint.cluster.control.expiry import Expiry
from syncpoint.cluster.control.head_commit import HeadCommit
from syncpoint.cluster.control.peer_channels import PeerChannels
from syncpoint.cluster.control.plane import ControlPlane
from syncpoint.cluster.control.usage_reports import USED_S, ReportedUses, UsageReporter
from syncpoint.testing.rigs.plain_tests import Work, plain_test
from syncpoint.testing.rigs.simulated_loop import run_simulated
from syncpoint.testing.simulation.sim_network import SimNetwork

pytestmark = pytest.mark.shows("clocks")

NS = 10**9
DAY = 86_400


class Wrong:
    """The clock of one process, so many seconds wrong."""

    def __init__(self, clock: ManualClock, wrong_s: float = 0.0) -> None:
        self._clock, self.wrong_s = clock, wrong_s

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def time_ns(self) -> int:
        return self._clock.time_ns() + round(self.wrong_s * NS)


class Process:
    """What a process of a cluster has for its clock."""

    def __init__(self, store: MemoryStore, clock: ManualClock, name: str, host: str, wrong_s: float = 0.0) -> None:
        self.clock = Wrong(clock, wrong_s)
        self.shared = LocalShared(store, clock)
        self.trusted = TrustedClock(self.clock)
        self.exchange = ClockExchange(self.shared, self.clock, self.trusted, name)
        self.host = host

    async def start(self) -> Process:
        await self.exchange.start()
        self.exchange.announce(f"{self.host}:1")
        return self


def run(work: Work) -> None:
    clock = ManualClock()
    run_simulated(clock, work(MemoryStore(clock=clock, random=SeededRandom(1)), clock))


simulated = plain_test(run)


@simulated
async def test_a_process_that_starts_with_a_wrong_clock_believes_the_others(
    store: MemoryStore, clock: ManualClock
) -> None:
    right = [await Process(store, clock, f"f{n}", f"10.0.0.{n}").start() for n in range(2)]
    await asyncio.sleep(300)
    wrong = await Process(store, clock, "f9", "10.0.0.9", wrong_s=32 * DAY).start()
    assert abs(wrong.trusted.sure_ns() - clock.time_ns()) < 61 * NS, "before it has received anybody"
    await asyncio.sleep(3 * DAY)
    for process in (*right, wrong):
        assert abs(process.trusted.sure_ns() - clock.time_ns()) < NS
    behind = await Process(store, clock, "f8", "10.0.0.8", wrong_s=-32 * DAY).start()
    await asyncio.sleep(120)
    assert abs(behind.trusted.time_ns() - clock.time_ns()) < NS, "what it stamps is not of the past"
    for process in (*right, wrong, behind):
        await process.exchange.close()


@simulated
async def test_processes_of_one_host_do_not_outvote_another_host(store: MemoryStore, clock: ManualClock) -> None:
    wrong = [await Process(store, clock, f"w{n}", "10.0.0.1", wrong_s=32 * DAY).start() for n in range(4)]
    right = await Process(store, clock, "r", "10.0.0.2").start()
    await asyncio.sleep(3 * DAY)  # nobody is patient for more than one
    for process in (*wrong, right):
        assert process.trusted.sure_ns() <= clock.time_ns() + NS
        await process.exchange.close()


@simulated
async def test_a_clock_that_jumps_for_a_while_deletes_no_record(store: MemoryStore, clock: ManualClock) -> None:
    shared = LocalShared(store, clock)
    catalog, view = SharedCatalog(shared), ClusterView(shared)
    await catalog.start()
    await view.start()
    mine = Wrong(clock)
    control = ControlPlane(
        HeadCommit(shared, catalog, Barrier(view, PeerChannels(SimNetwork(SeededRandom(1))))), mine, SeededRandom(2)
    )
    now = clock.time_ns()
    await control.commit([
        CatalogChange.put(Topic(1, "t")),
        CatalogChange.put(Subscription(2, "in-use", 1, "t", created_ns=now, expiration_s=31 * DAY)),
        CatalogChange.put(Snapshot(3, "fresh", 1, "t", created_ns=now, expire_ns=now + 7 * DAY * NS)),
        *(
            CatalogChange.put(
                Snapshot(
                    number, f"copy-{of}", 1, "t", created_ns=now, expire_ns=now + 7 * DAY * NS, status=COPYING,
                    subscription=of,
                )
            )
            for number, of in ((4, 2), (5, 9))
        ),
    ])  # fmt: skip
    trusted = TrustedClock(mine)
    expiry = Expiry(control, ReportedUses(shared, control.catalog, trusted), trusted)
    assert await expiry.expire() == 1
    assert [one.name for one in catalog.catalog.snapshots()] == ["fresh", "copy-2"], "of 9 is nothing left to copy"
    await asyncio.sleep(4 * USED_S)
    mine.wrong_s = 32 * DAY
    for _ in range(20):
        await asyncio.sleep(USED_S)
        assert await expiry.expire() == 0
    mine.wrong_s = 0
    for _ in range(7 * 24):
        await asyncio.sleep(USED_S)
        await expiry.expire()
    assert [one.name for one in catalog.catalog.snapshots()] == [], "a right clock does delete"
    assert catalog.catalog.subscription("in-use") is not None
    await catalog.close()
    await view.close()


@simulated
async def test_processes_of_one_host_bear_no_witness_to_one_that_does_not_know_its_host_yet(
    store: MemoryStore, clock: ManualClock
) -> None:
    await Process(store, clock, "w1", "127.0.0.1").start()
    await asyncio.sleep(10)
    again = [Process(store, clock, f"w{n}", "127.0.0.1", wrong_s=100) for n in (1, 2)]
    await again[0].exchange.start()
    await again[1].start()
    for seconds in (1, 10):
        await asyncio.sleep(seconds)
        assert again[0].trusted.sure_ns() <= clock.time_ns(), "both have the one wrong clock of their host"
        again[0].exchange.announce("127.0.0.1:1")


@simulated
async def test_after_an_outage_of_the_metadata_those_in_use_can_say_so_first(
    store: MemoryStore, clock: ManualClock
) -> None:
    proxy, forwarder = LocalShared(store, clock), LocalShared(store, clock)
    catalog, view = SharedCatalog(proxy), ClusterView(proxy)
    await catalog.start()
    await view.start()
    control = ControlPlane(
        HeadCommit(proxy, catalog, Barrier(view, PeerChannels(SimNetwork(SeededRandom(1))))), clock, SeededRandom(2)
    )
    await control.commit([
        CatalogChange.put(Topic(1, "t")),
        CatalogChange.put(Subscription(2, "used", 1, "t", created_ns=clock.time_ns(), expiration_s=DAY)),
        CatalogChange.put(Subscription(3, "unused", 1, "t", created_ns=clock.time_ns(), expiration_s=DAY)),
    ])  # fmt: skip
    trusted, uses = TrustedClock(clock), UsageReporter(forwarder, clock, lambda: [2])
    expiry = Expiry(control, ReportedUses(proxy, control.catalog, trusted), trusted)
    uses.start()
    expiry.start()
    await asyncio.sleep(DAY / 2)
    proxy.cut = forwarder.cut = True
    await asyncio.sleep(3 * DAY)
    proxy.cut = forwarder.cut = False
    await asyncio.sleep(DAY)
    assert [one.name for one in catalog.catalog.subscriptions()] == ["used"]
    await expiry.stop()
    await uses.stop()
    await catalog.close()
    await view.close()


@simulated
async def test_a_report_never_makes_a_use_earlier(store: MemoryStore, clock: ManualClock) -> None:
    later = clock.time_ns() + 9 * DAY * NS
    store.txn([], [Put(USED.key(2), b"%d" % later), Put(USED.key(3), b"1")])
    uses = UsageReporter(LocalShared(store, clock), clock, lambda: range(1, 300))
    uses.start()
    await asyncio.sleep(1)
    await uses.stop()
    stored = {USED.number(item.key): int(item.value) for item in store.range(USED).items}
    assert stored.pop(2) == later
    assert stored == dict.fromkeys({*range(1, 300)} - {2}, clock.time_ns()), "at its end, too"


@simulated
async def test_what_cannot_be_read_as_a_clock_is_left_out(store: MemoryStore, clock: ManualClock) -> None:
    store.txn([], [Put(f"{CLOCKS}x", b"{}"), Put(f"{CLOCKS}y", b"[]")])
    process = await Process(store, clock, "f1", "10.0.0.1").start()
    await asyncio.sleep(1)
    assert process.trusted.sure_ns() == clock.time_ns()
    await process.exchange.close()


@simulated
async def test_what_names_reported_that_are_not_used_any_more_goes(store: MemoryStore, clock: ManualClock) -> None:
    stays = await Process(store, clock, "stays", "10.0.0.1").start()
    for number in range(30):
        gone = await Process(store, clock, f"once-{number}", "10.0.0.2").start()
        await asyncio.sleep(1)
        await gone.exchange.close()
    returns = await Process(store, clock, "returns", "10.0.0.3").start()
    await asyncio.sleep(1)
    await returns.exchange.close()
    assert len(store.range(CLOCKS).items) == 32
    await asyncio.sleep(6 * DAY)
    assert len(store.range(CLOCKS).items) == 32, "whoever starts now still learns of them"
    returns = await Process(store, clock, "returns", "10.0.0.3").start()
    await asyncio.sleep(3 * DAY)
    assert {item.key for item in store.range(CLOCKS).items} == {f"{CLOCKS}stays", f"{CLOCKS}returns"}
    late = await Process(store, clock, "late", "10.0.0.4", wrong_s=-99 * DAY).start()
    assert abs(late.trusted.sure_ns() - clock.time_ns()) < 99 * DAY * NS + 61 * NS
    assert abs(late.trusted.time_ns() - clock.time_ns()) < 61 * NS, "what it stamps is of now"
    for process in (stays, returns, late):
        await process.exchange.close()
