"""The store of another process over a network that delays, loses and is cut, in simulated time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from syncpoint.base.model.errors import Unprocessed
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.catalog.metadata.contract import Event, Indeterminate, Put, Resync, StoreUnavailable, absent
from syncpoint.catalog.metadata.embedded import EmbeddedStore
from syncpoint.catalog.metadata.memory import MemoryStore
from syncpoint.catalog.metadata.remote import RemoteShared, open_remote
from syncpoint.catalog.metadata.service import MetadataService
from syncpoint.catalog.metadata.sqlite import SqliteStore
from syncpoint.catalog.metadata.store_client import SharedWatch, read_all
from syncpoint.testing.rigs.plain_tests import plain_test
from syncpoint.testing.rigs.simulated_loop import run_simulated
from syncpoint.wire.transport.calls import Methods
from syncpoint.wire.transport.memory import Faults, MemoryChannel
from syncpoint.wire.transport.network import Listening


class Wires:
    """A network with one server, which may be another one in a moment."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.methods: Methods = {}
        self.faults = faults

    def channel(self, address: str) -> MemoryChannel:
        return _Rewired(self)

    async def serve(self, methods: Methods, host: str, port: int) -> Listening:
        raise NotImplementedError("nobody serves here")


class _Rewired(MemoryChannel):
    """A channel that asks for the methods anew at every call."""

    def __init__(self, wires: Wires) -> None:
        self._wires = wires
        super().__init__({}, wires.faults)

    @property
    def _methods(self) -> Methods:
        return self._wires.methods

    @_methods.setter
    def _methods(self, methods: Methods) -> None:
        """Kept by the wires."""


async def events_until(watch: SharedWatch, key: str) -> list[Event]:
    found: list[Event] = []
    while not found or found[-1].key != key:
        events = await watch.next()
        assert not isinstance(events, Resync)
        found += events
    return found


def run(work: Callable[[ManualClock, EmbeddedStore], Awaitable[None]]) -> None:
    clock = ManualClock()

    async def main() -> None:
        await work(clock, MemoryStore(clock=clock, random=SeededRandom(1)))

    run_simulated(clock, main())


@pytest.mark.parametrize("seed", range(12))
@plain_test(run)
async def test_over_a_network_that_loses(clock: ManualClock, store: EmbeddedStore, *, seed: int) -> None:
    faults = Faults(SeededRandom(seed), delay_s_max=0.2, loss=0.05)
    wires = Wires(faults)
    service = MetadataService(store, clock)
    wires.methods = service.methods
    clients = [await open_remote("m:1", wires, clock=clock) for _ in range(3)]
    watch = clients[0].watch("k/", from_revision=1)
    leases = [await client.lease(4.0) for client in clients]
    confirmed, unknown, drawn = set(), set(), list[int]()

    async def write(client: RemoteShared, name: int) -> None:
        for i in range(40):
            key = f"k/{name}/{i}"
            try:
                assert (await client.txn([absent(key)], [Put(key, b"")])).ok
                confirmed.add(key)
            except Indeterminate:
                unknown.add(key)
            drawn.append(await client.counter("n", deadline_s=60.0))

    await asyncio.gather(*(write(client, name) for name, client in enumerate(clients)))
    faults.loss = 0.0
    assert len(set(drawn)) == len(drawn)
    stored = {item.key for item in (await read_all(clients[1], "k/"))[0]}
    assert unknown
    assert confirmed <= stored <= confirmed | unknown
    await clients[2].txn([], [Put("k/end", b"")])
    events = await events_until(watch, "k/end")
    assert [event.revision for event in events] == sorted({event.revision for event in events})
    assert {event.key for event in events} == stored | {"k/end"}
    assert not any(lease.lost.is_set() for lease in leases)
    for client in clients:
        await client.close()
    await service.close()


@plain_test(run)
async def test_who_is_cut_off_loses_his_lease_at_both_ends(clock: ManualClock, store: EmbeddedStore) -> None:
    faults, free = Faults(SeededRandom(1), delay_s_max=0.01), Wires()
    wires = Wires(faults)
    service = MetadataService(store, clock)
    wires.methods = free.methods = service.methods
    one, two = await open_remote("m:1", wires, clock=clock), await open_remote("m:1", free, clock=clock)
    lease = await one.lease(4.0)
    await one.txn([], [Put("members/one", b"", lease.id)])
    watch = two.watch("members/", from_revision=1)
    assert [event.value for event in await events_until(watch, "members/one")] == [b""]
    faults.cut = True
    with pytest.raises(StoreUnavailable):
        await one.txn([], [Put("a", b"")], deadline_s=1.0)
    with pytest.raises(StoreUnavailable):
        await one.get("a", deadline_s=1.0)
    assert [event.value for event in await events_until(watch, "members/one")] == [None]
    assert clock.monotonic() >= lease.valid_until()
    await lease.lost.wait()
    faults.cut = False
    await asyncio.sleep(3.0)
    assert (await one.range("members/")).items == []
    for client in (one, two):
        await client.close()
    await service.close()


@plain_test(run)
async def test_the_serving_process_is_restarted(clock: ManualClock, store: EmbeddedStore, *, tmp_path: Path) -> None:
    def open_store(name: str = "meta.db") -> SqliteStore:
        return SqliteStore(tmp_path / name, clock=clock, random=SeededRandom(len(name)), durable=False)

    store = open_store()
    wires, service = Wires(Faults(SeededRandom(1), delay_s_max=0.01)), MetadataService(store, clock)
    wires.methods = service.methods
    assert wires.faults is not None
    client = await open_remote("m:1", wires, clock=clock)
    lease = await client.lease(4.0)
    watch = client.watch("", from_revision=1)
    await client.txn([], [Put("a", b"1", lease.id)])
    assert len(await events_until(watch, "a")) == 1
    wires.faults.cut = True
    await service.close()
    store.close()
    pending = asyncio.ensure_future(client.txn([], [Put("b", b"2")]))
    await asyncio.sleep(2.0)
    store = open_store()
    service = MetadataService(store, clock)
    wires.methods = service.methods
    wires.faults.cut = False
    assert (await pending).ok
    assert [event.key for event in await events_until(watch, "b")] == ["b"]
    await asyncio.sleep(20.0)
    assert not lease.lost.is_set()
    assert await client.get("a") is not None
    await service.close()
    store.close()
    # Another store in its place is not taken for the same.
    other = open_store("other.db")
    service = MetadataService(other, clock)
    wires.methods = service.methods
    with pytest.raises(StoreUnavailable, match="not"):
        await client.get("a")
    with pytest.raises(StoreUnavailable):
        await client.txn([], [Put("c", b"")])
    await lease.lost.wait()
    await client.close()
    await service.close()
    other.close()


@plain_test(run)
async def test_old_events_are_forgotten_as_time_goes_by(clock: ManualClock, store: EmbeddedStore) -> None:
    wires, service = Wires(), MetadataService(store, clock, events_kept=10)
    wires.methods = service.methods
    client = await open_remote("m:1", wires, clock=clock)
    for i in range(100):
        await client.txn([], [Put("a", b"%d" % i)])
    assert 100 - 21 <= (await client.status()).compacted <= 100 - 10
    assert isinstance(await client.watch("", from_revision=1).next(), Resync)
    await client.close()
    await service.close()


@plain_test(run)
async def test_many_large_events_come_in_pieces(clock: ManualClock, store: EmbeddedStore) -> None:
    wires, service = Wires(), MetadataService(store, clock)
    wires.methods = service.methods
    client = await open_remote("m:1", wires, clock=clock)
    for i in range(8):
        await client.txn([], [Put(f"{i}/{j}", bytes(200_000)) for j in range(5)])
    watch = client.watch("", from_revision=1)
    events = await watch.next()
    assert not isinstance(events, Resync)
    assert [event.revision for event in events] == sorted([*range(1, 9)] * 5)
    await client.close()
    await service.close()


WAITING = 12


class Gone(dict):  # type: ignore[type-arg]
    """Methods of a server that is not there."""

    def __init__(self) -> None:
        super().__init__()
        self.tries = 0

    def get(self, *of: object) -> None:
        self.tries += 1
        raise Unprocessed("Connection refused.")


@plain_test(run)
async def test_a_few_tries_a_second_are_made_however_many_wait(clock: ManualClock, store: EmbeddedStore) -> None:
    wires, gone = Wires(), Gone()
    service = MetadataService(store, clock)
    wires.methods = service.methods
    client = await open_remote("m:1", wires, clock=clock)
    watches = [client.watch("k/", from_revision=1) for _ in range(WAITING)]
    watching = [asyncio.create_task(watch.next()) for watch in watches]
    await asyncio.sleep(1.0)
    wires.methods = gone
    await service.close()  # the watches end
    asking = [asyncio.create_task(client.get("k/a", deadline_s=60.0)) for _ in range(WAITING)]
    await asyncio.sleep(3.0)
    before = gone.tries
    with pytest.raises(StoreUnavailable, match="does not answer"):
        await client.txn([], [Put("k/a", b"")], deadline_s=0.05)
    await asyncio.sleep(10.0)
    assert 10 <= gone.tries - before <= 40, "ten seconds: some times a second, all together"
    service = MetadataService(store, clock)
    wires.methods, back = service.methods, asyncio.get_running_loop().time()
    await asyncio.gather(*asking)
    assert asyncio.get_running_loop().time() - back <= 1.0
    await client.txn([], [Put("k/a", b"1")])
    for events in await asyncio.gather(*watching):
        assert not isinstance(events, Resync)
        assert [event.value for event in events] == [b"1"]
    await client.close()
    await service.close()
