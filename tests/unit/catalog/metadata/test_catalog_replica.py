"""The catalog of a cluster: many mirrors, one truth."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import pytest

from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.catalog.metadata import catalog_replica
from syncpoint.catalog.metadata.catalog_replica import BLOCK, CatalogConflict, SharedCatalog
from syncpoint.catalog.metadata.contract import Compare, Indeterminate, Operation, StoreUnavailable, TxnResult
from syncpoint.catalog.metadata.layout import CHANGE, HEAD
from syncpoint.catalog.metadata.local import LocalShared
from syncpoint.catalog.metadata.memory import MemoryStore
from syncpoint.catalog.metadata.records import CREATING, CatalogChange, ChangeOp, Record, Setting, Subscription, Topic
from syncpoint.testing.rigs.plain_tests import plain_test
from syncpoint.testing.rigs.simulated_loop import run_simulated

A, B = "projects/p/topics/a", "projects/p/topics/b"
S = "projects/p/subscriptions/s"

Work = Callable[[MemoryStore, ManualClock], Awaitable[None]]


def run(work: Work) -> None:
    clock = ManualClock()
    run_simulated(clock, work(MemoryStore(clock=clock, random=SeededRandom(1)), clock))  # type: ignore[arg-type]


async def opened(store: MemoryStore, clock: ManualClock) -> tuple[SharedCatalog, LocalShared]:
    shared = LocalShared(store, clock)
    found = SharedCatalog(shared)
    await found.start()
    return found, shared


def records(mirror: SharedCatalog) -> list[Record]:
    return mirror.catalog.records()


@plain_test(run)
async def test_a_commit_reaches_every_mirror_in_order(store: MemoryStore, clock: ManualClock) -> None:
    (one, _), (two, _) = await opened(store, clock), await opened(store, clock)
    received: list[CatalogChange] = []
    two.on_change.append(received.append)
    topic = Topic(one.next_incarnation(), A)
    subscription = Subscription(one.next_incarnation(), S, topic.incarnation, A, state=CREATING)
    assigned = await one.commit([CatalogChange.put(topic), CatalogChange.put(subscription)])
    assert [change.revision for change in assigned] == [1, 2]
    assert one.catalog.topic(A) == topic
    await two.at(2)
    assert received == assigned
    made = two.catalog.subscription(S)
    assert made is not None
    assert (made.state, made.created_revision) == (CREATING, 2)
    await two.commit([CatalogChange.delete(made), CatalogChange.put(Setting("limit", b"1"))])
    await one.at(4)
    assert records(one) == records(two) == [topic, Setting("limit", b"1")]
    three, _ = await opened(store, clock)
    assert (three.catalog.revision, records(three)) == (4, records(one))


@plain_test(run)
async def test_of_two_who_checked_the_same_one_wins(store: MemoryStore, clock: ManualClock) -> None:
    (one, _), (two, _) = await opened(store, clock), await opened(store, clock)
    mirrors = [one, two, one, two]
    results = await asyncio.gather(
        *(mirror.commit([CatalogChange.put(Topic(mirror.next_incarnation(), A))]) for mirror in mirrors),
        return_exceptions=True,
    )
    assert sorted(type(result).__name__ for result in results) == [*["CatalogConflict"] * 3, "list"]
    assert one.catalog.revision == two.catalog.revision == 1
    assert records(one) == records(two)


@plain_test(run)
async def test_incarnations_are_never_drawn_twice(store: MemoryStore, clock: ManualClock) -> None:
    (one, _), (two, shared) = await opened(store, clock), await opened(store, clock)
    drawn = []
    for _ in range(3 * BLOCK):
        drawn += [one.next_incarnation(), two.next_incarnation()]
        await asyncio.sleep(0.001)
    assert len(set(drawn)) == len(drawn)
    shared.cut = True
    with pytest.raises(StoreUnavailable):
        drawn += [two.next_incarnation() for _ in range(3 * BLOCK)]
    shared.cut = False
    await asyncio.sleep(1.0)
    assert two.next_incarnation() not in drawn


@plain_test(run)
async def test_who_was_away_too_long_takes_over_the_differences(store: MemoryStore, clock: ManualClock) -> None:
    (one, _), (two, shared) = await opened(store, clock), await opened(store, clock)
    old = Topic(one.next_incarnation(), A)
    kept = Topic(one.next_incarnation(), B)
    await one.commit([CatalogChange.put(old), CatalogChange.put(kept)])
    await two.at(2)
    mirror, received = two.catalog, list[CatalogChange]()
    two.on_change.append(received.append)
    shared.cut = True
    new = Topic(one.next_incarnation(), A)
    await one.commit([CatalogChange.delete(old)])
    await one.commit([CatalogChange.put(new)])
    await one.commit([CatalogChange.put(replace(kept, retention_s=60))])
    store.compact(store.revision + 1)
    shared.cut = False
    await two.at(5)
    assert two.catalog is mirror
    assert records(two) == records(one)
    assert [(change.revision, change.op, change.record.name) for change in received] == [
        (5, ChangeOp.DELETE, A), (5, ChangeOp.PUT, A), (5, ChangeOp.PUT, B),
    ]  # fmt: skip
    await two.commit([CatalogChange.delete(new)])
    await one.at(6)


class Lossy(LocalShared):
    """Loses the answers of transactions: some were applied, some were not, some are applied a little later."""

    fate = "fine"

    async def txn(
        self,
        compares: Sequence[Compare],
        then: Sequence[Operation],
        orelse: Sequence[Operation] = (),
        *,
        deadline_s: float = 5.0,
    ) -> TxnResult:
        fate, self.fate = self.fate, "fine"
        if fate == "late":
            asyncio.get_running_loop().call_later(1.0, self.store.txn, compares, then, orelse)
            raise Indeterminate("no answer")
        if fate == "dropped":
            raise Indeterminate("no answer")
        result = await super().txn(compares, then, orelse, deadline_s=deadline_s)
        if fate == "applied":
            raise Indeterminate("no answer")
        return result


@pytest.mark.parametrize("fate", ["applied", "dropped", "late"])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("rival", [True, False])
@plain_test(run)
async def test_a_lost_answer_is_cleared_up(
    store: MemoryStore, clock: ManualClock, *, fate: str, first: bool, rival: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, _ = await opened(store, clock)
    lossy = Lossy(store, clock)
    mirror = SharedCatalog(lossy)
    await mirror.start()
    if not first:
        await other.commit([CatalogChange.put(Setting("x", b""))])
        await mirror.at(1)
    begin = mirror.catalog.revision
    lossy.fate = fate
    topic = Topic(mirror.next_incarnation(), A)

    async def commit() -> bool:
        try:
            await mirror.commit([CatalogChange.put(topic)])
        except (StoreUnavailable, CatalogConflict):
            return False
        return True

    mine = asyncio.ensure_future(commit())
    if rival:
        if fate == "applied":
            await other.at(begin + 1)
        await other.commit([CatalogChange.put(Setting("y", b""))])
    done = await mine
    assert done is (fate == "applied")
    await asyncio.sleep(5.0)
    assert (mirror.catalog.topic(A) == topic) is done
    await other.commit([CatalogChange.put(Setting("z", b""))])
    await mirror.at(other.catalog.revision)
    assert records(mirror) == records(other)
    assert (await opened(store, clock))[0].catalog.records() == records(other)
    await mirror.commit([CatalogChange.put(Setting("w", b""))])


@pytest.mark.parametrize("seed", range(20))
@plain_test(run)
async def test_many_writers_whose_answers_are_lost(store: MemoryStore, clock: ManualClock, *, seed: int) -> None:
    """What was said to be done is there, what was said not to be done is not, and all mirrors saw the same."""
    random = SeededRandom(seed)
    stores = [Lossy(store, clock) for _ in range(3)]
    mirrors = [SharedCatalog(one) for one in stores]
    received: list[list[CatalogChange]] = [[], [], []]
    for mirror, into in zip(mirrors, received, strict=True):
        await mirror.start()
        mirror.on_change.append(into.append)
    done, undone, unknown = set(), set(), set()

    async def write(number: int) -> None:
        for i in range(15):
            name = f"{number}.{i}"
            stores[number].fate = ("fine", "applied", "dropped", "late")[random.randrange(0, 4)]
            stores[number].cut = random.randrange(0, 10) == 0
            if stores[number].cut:
                asyncio.get_running_loop().call_later(0.5, setattr, stores[number], "cut", False)
            try:
                await mirrors[number].commit([CatalogChange.put(Setting(name, b""))])
                done.add(name)
            except (CatalogConflict, StoreUnavailable):
                undone.add(name)
            except Indeterminate:
                unknown.add(name)
            stores[number].fate = "fine"
            await asyncio.sleep(random.random())

    await asyncio.gather(*map(write, range(3)))
    await asyncio.sleep(10.0)
    await mirrors[0].commit([CatalogChange.put(Setting("end", b""))])
    for mirror, changes in zip(mirrors, received, strict=True):
        await mirror.at(mirrors[0].catalog.revision)
        assert changes == received[0]
    assert [change.revision for change in received[0]] == list(range(1, len(received[0]) + 1))
    there = {record.name for record in records(mirrors[0])} - {"end"}
    assert done <= there <= done | unknown
    assert len(done) > 5
    assert undone


@plain_test(run)
async def test_the_catalog_is_read_while_it_changes(
    store: MemoryStore, clock: ManualClock, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that is deleted and made again between two pages."""
    one, _ = await opened(store, clock)
    for name in (A, B):
        await one.commit([CatalogChange.put(Topic(one.next_incarnation(), name))])
    late = LocalShared(store, clock)
    read = late.range

    async def slow(prefix: str, **options: object):  # type: ignore[no-untyped-def]
        page = await read(prefix, **options)  # type: ignore[arg-type]
        if prefix == catalog_replica.RECORDS:
            for _ in range(3):
                found = one.catalog.topic(A)
                assert found is not None
                await one.commit([CatalogChange.delete(found)])
                await one.commit([CatalogChange.put(Topic(one.next_incarnation(), A))])
        return page

    monkeypatch.setattr(late, "range", slow)
    two = SharedCatalog(late)
    await two.start()
    assert (two.catalog.revision, records(two)) == (one.catalog.revision, records(one))
    await two.commit([CatalogChange.put(Setting("x", b""))])


@plain_test(run)
async def test_what_stands_in_the_store(store: MemoryStore, clock: ManualClock) -> None:
    one, _ = await opened(store, clock)
    topic = Topic(one.next_incarnation(), A)
    await one.commit([CatalogChange.put(topic)])
    await one.commit([CatalogChange.put(Setting("limit", b"1"))])
    assert [item.key for item in store.range("catalog/").items] == [
        CHANGE, HEAD, "catalog/records/settings/limit", f"catalog/records/topics/{A}",
    ]  # fmt: skip
    head = store.get(HEAD)
    assert head is not None
    assert head.value == b"2 %d" % topic.incarnation
    with pytest.raises(ValueError, match="too large"):
        await one.commit([CatalogChange.put(Setting(f"s{i}", b"")) for i in range(200)])
    assert one.catalog.revision == 2
