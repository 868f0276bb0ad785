"""What only the store inside a process does behind the shared contract: time, death, being cut off."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from syncpoint.base.model.errors import Unavailable
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.catalog.metadata.contract import Event, Indeterminate, Put, Resync, StoreError, StoreUnavailable
from syncpoint.catalog.metadata.local import LocalShared
from syncpoint.catalog.metadata.memory import MemoryStore
from syncpoint.catalog.metadata.store_client import SharedStore, SharedWatch, answered
from syncpoint.testing.rigs.plain_tests import plain_test
from syncpoint.testing.rigs.simulated_loop import run_simulated

Two = Callable[[LocalShared, LocalShared, ManualClock], Awaitable[None]]


def run_two(work: Two) -> None:
    """Two processes over one store, in simulated time."""
    clock = ManualClock()
    store = MemoryStore(clock=clock, random=SeededRandom(1))

    async def main() -> None:
        one, two = LocalShared(store, clock), LocalShared(store, clock)
        await work(one, two, clock)
        await one.close()
        await two.close()

    run_simulated(clock, main())


async def events_of(watch: SharedWatch) -> list[Event]:
    found = await watch.next()
    assert not isinstance(found, Resync)
    return found


def test_it_is_a_shared_store() -> None:
    store: SharedStore = LocalShared(MemoryStore(clock=ManualClock(), random=SeededRandom(1)), ManualClock())
    assert store.cluster_id


@plain_test(run_two)
async def test_a_lease_lives_as_long_as_its_process(one: LocalShared, two: LocalShared, clock: ManualClock) -> None:
    watch = two.watch("members/", from_revision=1)
    lease = await one.lease(4.0)
    await one.txn([], [Put("members/a", b"", lease.id)])
    assert [event.value for event in await events_of(watch)] == [b""]
    await asyncio.sleep(100.0)
    assert await two.get("members/a") is not None
    assert lease.valid_until() > clock.monotonic()
    died = clock.monotonic()
    await one.close()
    assert [event.value for event in await events_of(watch)] == [None]
    assert 2.0 < clock.monotonic() - died <= 4.0
    with pytest.raises(StoreUnavailable):
        await one.get("members/a")


@plain_test(run_two)
async def test_who_is_cut_off_loses_his_lease_and_learns_later_what_happened(
    one: LocalShared, two: LocalShared, clock: ManualClock
) -> None:
    lease = await one.lease(4.0)
    await one.txn([], [Put("owner", b"one", lease.id)])
    watch = one.watch("", from_revision=3)
    one.cut = True
    begin = clock.monotonic()
    with pytest.raises(StoreUnavailable):
        await one.txn([], [Put("x", b"")])
    await lease.lost.wait()
    assert 2.0 < clock.monotonic() - begin <= 4.0
    assert clock.monotonic() >= lease.valid_until()
    await two.txn([], [Put("owner", b"two")])
    reading = asyncio.ensure_future(watch.next())
    await asyncio.sleep(1.0)
    assert not reading.done()
    one.cut = False
    assert [(event.key, event.value) for event in await reading or ()] == [("owner", None), ("owner", b"two")]


@plain_test(run_two)
async def test_a_short_absence_is_survived(one: LocalShared, two: LocalShared, clock: ManualClock) -> None:
    lease = await one.lease(4.0)
    for _ in range(10):
        one.cut = True
        await asyncio.sleep(2.5)
        one.cut = False
        await asyncio.sleep(0.5)
    assert not lease.lost.is_set()


@plain_test(run_two)
async def test_closing_a_watch_wakes_who_waits_for_it(one: LocalShared, two: LocalShared, clock: ManualClock) -> None:
    watch = one.watch("", from_revision=1)
    reading = asyncio.ensure_future(watch.next())
    await asyncio.sleep(0)
    await watch.close()
    with pytest.raises(StoreUnavailable):
        await reading


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (StoreUnavailable("away"), "nothing was changed: away"),
        (Indeterminate("late"), "may or may not be stored: late"),
    ],
)
def test_who_knows_no_store_is_notified_what_became_of_a_change(error: StoreError, reported: str) -> None:
    async def call() -> None:
        raise error

    with pytest.raises(Unavailable, match=reported) as caught:
        asyncio.run(answered(call()))
    assert caught.value.__cause__ is error
