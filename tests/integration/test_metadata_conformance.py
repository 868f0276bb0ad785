"""One conformance suite for every metadata store that processes share: in memory, in a file, in the file of another
process, in an etcd of three members."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from syncpoint.base.runtime.clock import SystemClock
from syncpoint.base.runtime.random import SystemRandom
from syncpoint.catalog.metadata.backup import read_backup, restore, take_backup
from syncpoint.catalog.metadata.catalog_replica import CatalogConflict, SharedCatalog
from syncpoint.catalog.metadata.contract import (
    Compare,
    Delete,
    Event,
    Put,
    Resync,
    StoreError,
    StoreUnavailable,
    absent,
    unchanged,
)
from syncpoint.catalog.metadata.etcd import open_etcd
from syncpoint.catalog.metadata.layout import UNIVERSE
from syncpoint.catalog.metadata.local import LocalShared
from syncpoint.catalog.metadata.memory import MemoryStore
from syncpoint.catalog.metadata.records import CatalogChange, Setting
from syncpoint.catalog.metadata.remote import open_remote
from syncpoint.catalog.metadata.service import MetadataService
from syncpoint.catalog.metadata.sqlite import SqliteStore
from syncpoint.catalog.metadata.store_client import SharedStore, SharedWatch, read_all
from syncpoint.testing.rigs import etcd
from syncpoint.testing.rigs.plain_tests import on_loop, plain_test
from syncpoint.wire.transport.network import TcpNetwork, join_address

pytestmark = pytest.mark.shows("catalog")

CLOCK, RANDOM = SystemClock(), SystemRandom()
TTL_S = 1.0

Opener = Callable[[], Awaitable[SharedStore]]
Work = Callable[[Opener], Awaitable[None]]
Run = Callable[[Work], None]


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[etcd.EtcdCluster]:
    if (reason := etcd.why_not()) is not None:
        pytest.skip(reason)
    with etcd.EtcdCluster(tmp_path_factory.mktemp("etcd"), 3) as cluster:
        yield cluster


@asynccontextmanager
async def harness(kind: str, folder: Path, request: pytest.FixtureRequest) -> AsyncIterator[Opener]:
    """A new store, and a way to open it as one process after another would."""
    opened: list[SharedStore] = []
    store: MemoryStore | SqliteStore
    if kind == "etcd":
        cluster: etcd.EtcdCluster = request.getfixturevalue("members")
        prefix = f"{RANDOM.token(4).hex()}/"

        async def make() -> SharedStore:
            return await open_etcd(cluster.endpoints, TcpNetwork(), clock=CLOCK, random=RANDOM, prefix=prefix)

    elif kind == "remote":
        store = SqliteStore(folder / "meta.db", clock=CLOCK, random=RANDOM)
        service = MetadataService(store, CLOCK)
        listening = await TcpNetwork().serve(service.methods, "127.0.0.1", 0)

        async def make() -> SharedStore:
            return await open_remote(join_address(listening.host, listening.port), TcpNetwork(), clock=CLOCK)

    else:
        if kind == "memory":
            store = MemoryStore(clock=CLOCK, random=RANDOM)
        else:
            store = SqliteStore(folder / "meta.db", clock=CLOCK, random=RANDOM)

        async def make() -> SharedStore:
            return LocalShared(store, CLOCK)

    async def open_one() -> SharedStore:
        opened.append(await make())
        return opened[-1]

    try:
        yield open_one
    finally:
        for one in opened:
            await one.close()
        if kind == "remote":
            await service.close()
            await listening.close()
        if kind != "etcd":
            store.close()


@pytest.fixture(params=["memory", "sqlite", "remote", "etcd"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    def run_work(work: Work) -> None:
        async def main() -> None:
            async with harness(request.param, tmp_path, request) as open_one, asyncio.timeout(60.0):
                await work(open_one)

        if request.param == "etcd":
            request.getfixturevalue("members")
        asyncio.run(main())

    return run_work


def over(work: Work, *, run: Run) -> None:
    run(work)


async def put(store: SharedStore, key: str, value: bytes = b"v", lease: int | None = None) -> int:
    return (await store.txn([], [Put(key, value, lease)])).revision


async def until(watch: SharedWatch, revision: int) -> list[Event]:
    """Events up to a revision, gathered; no revision may be parted."""
    found: list[Event] = []
    while not found or found[-1].revision < revision:
        events = await watch.next()
        assert not isinstance(events, Resync)
        assert events
        assert not found or events[0].revision > found[-1].revision
        found += events
    return found


@plain_test(over)
async def test_a_key_remembers_its_revisions(open_one: Opener) -> None:
    store = await open_one()
    assert await store.get("a") is None
    first = await put(store, "a", b"1")
    second = await put(store, "a", b"\x00\xff")
    assert (await store.get("a")) == ("a", b"\x00\xff", first, second, 2, None)
    assert (await store.txn([], [Delete("a")])).revision == second + 1
    assert await store.get("a") is None
    third = await put(store, "a", b"")
    assert (await store.get("a")) == ("a", b"", third, third, 1, None)
    assert [second, third] == [first + 1, first + 3]


@plain_test(over)
async def test_a_transaction_happens_whole_or_not_at_all(open_one: Opener) -> None:
    store, other = await open_one(), await open_one()
    begin = await put(store, "a", b"1")
    watch = other.watch("", from_revision=begin + 1)
    conditions = [unchanged("a", begin), absent("b")]
    lost = await store.txn([*conditions, absent("a")], [Put("b", b"x"), Delete("a")], [Put("c", b"y")])
    assert lost == (False, begin + 1)
    assert await other.get("b") is None
    won = await store.txn(conditions, [Put("b", b"x"), Delete("a"), Put("d", b"z")])
    assert won == (True, begin + 2)
    nothing = await store.txn([absent("b")], [Put("e", b"")])
    assert nothing == (False, begin + 2)
    assert await store.txn([], [Delete("none")]) == (True, begin + 2)
    events = await until(watch, begin + 2)
    assert events[0] == (begin + 1, "c", b"y")
    assert sorted(events[1:], key=lambda event: event.key) == [
        (begin + 2, "a", None), (begin + 2, "b", b"x"), (begin + 2, "d", b"z"),
    ]  # fmt: skip
    await watch.close()


@plain_test(over)
async def test_every_condition_means_the_same_everywhere(open_one: Opener) -> None:
    store = await open_one()
    model = MemoryStore(clock=CLOCK, random=RANDOM)
    revision = await put(store, "there", b"m")
    await put(store, "there", b"m")
    model.txn([], [Put("there", b"m")])
    model.txn([], [Put("there", b"m")])
    shift = revision - 1
    cases = []
    for key, relation in itertools.product(("there", "absent"), ("=", "!=", "<", ">")):
        for value in (b"", b"a", b"m", b"z"):
            cases.append((Compare(key, "value", relation, value), Compare(key, "value", relation, value)))
        for number in (0, 1, 2, 3):
            cases.append((Compare(key, "version", relation, number), Compare(key, "version", relation, number)))
            shifted = number + shift if number else 0
            cases.append((Compare(key, "revision", relation, number), Compare(key, "revision", relation, shifted)))
    for for_model, for_store in cases:
        wanted = model.txn([for_model], []).ok
        assert (await store.txn([for_store], [Put("t", b"")], [Put("e", b"")])).ok is wanted, for_store
        for second in (Compare("absent", "value", "!=", b"x"), Compare("absent", "value", "!=", b"")):
            both = model.txn([for_model, second], []).ok
            assert (await store.txn([for_store, second], [], [Delete("none")])).ok is both, (for_store, second)


@plain_test(over)
async def test_what_is_too_much_is_refused(open_one: Opener) -> None:
    store = await open_one()
    begin = await put(store, "a")
    refused = [
        [Put(f"k{i}", b"") for i in range(101)],
        [Put("big", bytes(1024 * 1024))],
        [Put("twice", b"1"), Delete("twice")],
        [Put("leased", b"", 987_654_321)],
    ]
    for operations in refused:
        with pytest.raises(ValueError, match=r"."):
            await store.txn([], operations)
    assert (await store.status()).revision == begin
    allowed = [Put(f"k{i}", bytes(10_000)) for i in range(100)]
    assert (await store.txn([], allowed)).ok
    assert (await store.status()).keys == 101
    async with asyncio.timeout(60):  # etcd counts bytes when it writes its file
        while (await store.status()).bytes < 100 * 10_000:
            await asyncio.sleep(0.05)
    with pytest.raises(ValueError, match=r"."):
        await store.lease(0.0)


@plain_test(over)
async def test_keys_are_listed_in_order_page_by_page(open_one: Opener) -> None:
    store = await open_one()
    names = [f"p/{i:04}" for i in range(2_300)] + ["p/", "p/é", "p/€", "p/\U0001f600", "p0", "o", "q"]
    for begin in range(0, len(names), 100):
        await store.txn([], [Put(name, b"") for name in names[begin : begin + 100]])
    wanted = sorted(name for name in names if name.startswith("p/"))
    items, _ = await read_all(store, "p/")
    assert [item.key for item in items] == wanted
    page = await store.range("p/", after="p/2298", limit=3)
    assert ([item.key for item in page.items], page.more) == (["p/2299", "p/é", "p/€"], True)
    assert page.revision == (await store.status()).revision
    assert [item.key for item in (await store.range("p/", after="a", limit=1)).items] == ["p/"]
    assert [item.key for item in (await store.range("", after="p0")).items] == ["q"]
    assert (await store.range("p/", after="q")).items == []
    assert (await store.range("p/", after="p/\U0001f600")).items == []
    assert len((await read_all(store, ""))[0]) == len(names)


@plain_test(over)
async def test_of_those_who_compare_and_set_one_wins(open_one: Opener) -> None:
    stores = [await open_one() for _ in range(4)]
    await put(stores[0], "n", b"0")

    async def add(store: SharedStore) -> int:
        wins = 0
        for _ in range(15):
            found = await store.get("n")
            assert found is not None
            then = [Put("n", b"%d" % (int(found.value) + 1))]
            wins += (await store.txn([unchanged("n", found.revision)], then)).ok
        return wins

    wins = await asyncio.gather(*map(add, stores))
    found = await stores[0].get("n")
    assert found is not None
    assert int(found.value) == sum(wins) >= 15


@plain_test(over)
async def test_a_counter_never_gives_a_number_twice(open_one: Opener) -> None:
    stores = [await open_one() for _ in range(3)]
    assert await stores[0].counter("c") == 1
    assert await stores[1].counter("c", by=9) == 10

    async def draw(store: SharedStore) -> list[int]:
        return [await store.counter("c") for _ in range(10)]

    drawn = list(itertools.chain(*await asyncio.gather(*map(draw, stores))))
    assert sorted(drawn) == list(range(11, 41))
    assert await stores[0].counter("another") == 1
    with pytest.raises(ValueError, match=r"."):
        await stores[0].counter("c", by=0)


@plain_test(over)
async def test_a_watch_yields_every_event_of_its_prefix(open_one: Opener) -> None:
    store, other = await open_one(), await open_one()
    begin = await put(store, "w/a", b"1")
    old = other.watch("w/", from_revision=begin)
    new = other.watch("w/", from_revision=begin + 3)
    await put(store, "x", b"")
    await store.txn([], [Delete("w/a")])
    assert await until(old, begin + 2) == [(begin, "w/a", b"1"), (begin + 2, "w/a", None)]
    waiting = asyncio.ensure_future(new.next())
    end = begin
    for i in range(150):
        end = (await store.txn([], [Put(f"w/{j}", b"%d" % i) for j in range(3)])).revision
    first = await waiting
    assert not isinstance(first, Resync)
    follow = first if first[-1].revision == end else [*first, *await until(new, end)]
    assert await until(old, end) == follow
    assert [event.revision for event in follow] == sorted([*range(end - 149, end + 1)] * 3)
    for watch in (old, new):
        await watch.close()
        with pytest.raises(StoreUnavailable):
            await watch.next()


@plain_test(over)
async def test_a_watch_whose_events_are_gone_says_so(open_one: Opener) -> None:
    store = await open_one()
    begin = await put(store, "w/a", b"1")
    await put(store, "w/a", b"2")
    await store.txn([], [Delete("w/a")])
    end = await put(store, "w/b", b"3")
    await store.compact(end)
    await store.compact(end)
    for wanted in (begin, end - 1):
        watch = store.watch("w/", from_revision=wanted)
        answer = await watch.next()
        assert isinstance(answer, Resync)
        assert answer.revision >= end
        listed = (await store.range("w/")).items
        assert [item.key for item in listed] == ["w/b"]
        end = await put(store, "w/b", b"4")
        assert await watch.next() == [(end, "w/b", b"4")]
        await store.compact(end)
        await watch.close()
    kept = store.watch("w/", from_revision=end)
    assert await kept.next() == [(end, "w/b", b"4")]
    await kept.close()


@plain_test(over)
async def test_a_lease_is_kept_alive_until_its_holder_dies(open_one: Opener) -> None:
    store, other = await open_one(), await open_one()
    lease = await store.lease(TTL_S)
    begin = await put(store, "members/a", b"1", lease.id)
    found = await other.get("members/a")
    assert found is not None
    assert found.lease == lease.id
    watch = other.watch("members/", from_revision=begin + 1)
    await asyncio.sleep(3 * TTL_S)
    assert not lease.lost.is_set()
    assert lease.valid_until() > CLOCK.monotonic()
    assert await other.get("members/a") is not None
    died = CLOCK.monotonic()
    await store.close()
    events = await until(watch, begin + 1)
    assert [(event.key, event.value) for event in events] == [("members/a", None)]
    assert CLOCK.monotonic() >= lease.valid_until()
    assert CLOCK.monotonic() - died < 30 * TTL_S
    assert await other.get("members/a") is None
    await watch.close()


@plain_test(over)
async def test_a_revoked_lease_takes_its_keys_along(open_one: Opener) -> None:
    store = await open_one()
    lease, stays = await store.lease(30.0), await store.lease(30.0)
    begin = await put(store, "a", b"", lease.id)
    await put(store, "b", b"", lease.id)
    await put(store, "b", b"", stays.id)
    await put(store, "c", b"", lease.id)
    await put(store, "c", b"")
    watch = store.watch("", from_revision=begin + 5)
    await lease.revoke()
    assert lease.lost.is_set()
    assert [(event.key, event.value) for event in await until(watch, begin + 5)] == [("a", None)]
    assert [item.key for item in (await store.range("")).items] == ["b", "c"]
    with pytest.raises(ValueError, match=r"."):
        await put(store, "a", b"", lease.id)
    await lease.revoke()
    await watch.close()


@plain_test(over)
async def test_two_clients_of_one_store_know_it_by_one_name(open_one: Opener, *, tmp_path: Path) -> None:
    one, two = await open_one(), await open_one()
    assert one.cluster_id == two.cluster_id
    assert len(one.cluster_id) == 32


@plain_test(over)
async def test_the_catalog_over_it(open_one: Opener) -> None:
    mirrors = [SharedCatalog(await open_one()) for _ in range(3)]
    for mirror in mirrors:
        await mirror.start()

    async def commit(mirror: SharedCatalog, name: str) -> int:
        conflicts = 0
        for i in range(10):
            while True:
                try:
                    await mirror.commit([CatalogChange.put(Setting(f"{name}{i}", b""))])
                    break
                except CatalogConflict:
                    conflicts += 1
        return conflicts

    await asyncio.gather(*(commit(mirror, name) for mirror, name in zip(mirrors, "abc", strict=True)))
    for mirror in mirrors:
        await mirror.at(30)
        assert mirror.catalog.records() == mirrors[0].catalog.records()
        assert len(mirror.catalog.records()) == 30
    for mirror in mirrors:
        await mirror.close()


@plain_test(over)
async def test_a_backup_of_it_is_restored(open_one: Opener) -> None:
    store = await open_one()
    for begin in range(0, 1_200, 100):
        await store.txn([], [Put(f"load-of-old/{begin + i}", b"\0\xff") for i in range(100)])
    await store.counter("counter/log", by=7)
    await put(store, UNIVERSE, b"1000000000000")
    backup = read_backup(await take_backup(store, CLOCK))
    await put(store, "stray")
    await store.txn([], [Delete("load-of-old/5")])
    restored = await restore(store, backup, RANDOM, CLOCK)
    items = {item.key: item.value for item in (await read_all(store, ""))[0]}
    assert len([key for key in items if key.startswith("load-of-old/")]) == 1_200
    assert "stray" not in items
    assert items[UNIVERSE] == b"%d" % restored.universe != b"1000000000000"
    assert await store.counter("counter/log") > 1_000


@on_loop
async def test_a_store_that_cannot_be_reached_is_unavailable() -> None:
    address = "127.0.0.1:9"
    with pytest.raises(StoreError):
        await open_remote(address, TcpNetwork(), clock=CLOCK, deadline_s=0.5)
    with pytest.raises(StoreError):
        await open_etcd([address], TcpNetwork(), clock=CLOCK, random=RANDOM, deadline_s=0.5)
