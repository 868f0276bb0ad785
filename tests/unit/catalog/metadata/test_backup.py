"""Backups that are taken while everybody goes on, and restores below disks that are newer."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.base.model.identity import LOG_COUNTER_END, UNIVERSE_END, UNIVERSE_MIN
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.catalog.metadata.backup import Damaged, read_backup, restore, take_backup, write_file
from syncpoint.catalog.metadata.catalog_replica import SharedCatalog
from syncpoint.catalog.metadata.contract import Compare, Indeterminate, Operation, Put, StoreUnavailable, TxnResult
from syncpoint.catalog.metadata.entity_options import MessageRule, RuleChange, changed_rules
from syncpoint.catalog.metadata.layout import LAST_BACKUP, UNIVERSE
from syncpoint.catalog.metadata.local import LocalShared
from syncpoint.catalog.metadata.memory import MemoryStore
from syncpoint.catalog.metadata.records import CatalogChange, Record, Setting, Subscription, Topic
from syncpoint.catalog.metadata.restored_topics import NAME
from syncpoint.catalog.metadata.store_client import read_all
from syncpoint.testing.rigs.plain_tests import plain_test
from syncpoint.testing.rigs.simulated_loop import run_simulated

pytestmark = pytest.mark.shows("options")

A, B = "projects/p/topics/a", "projects/p/topics/b"
S = "projects/p/subscriptions/s"


def run(work: Callable[[ManualClock], Awaitable[None]]) -> None:
    clock = ManualClock()

    async def main() -> None:
        await work(clock)

    run_simulated(clock, main())


def made(clock: ManualClock, seed: int = 1) -> LocalShared:
    return LocalShared(MemoryStore(clock=clock, random=SeededRandom(seed)), clock)


async def founded(store: LocalShared) -> None:
    """What stands in the metadata of a small cluster."""
    lease = await store.lease(4.0)
    await store.txn(
        [],
        [
            Put(UNIVERSE, b"%d" % UNIVERSE_MIN),
            Put("cluster/ack-key", b"00"),
            Put("chains/1", b"{}"),
            Put("assign/topics/1", b'{"epoch":7,"chains":[1]}'),
            Put("members/a", b"", lease.id),
            Put("owners/1", b"", lease.id),
            Put("odd", bytes(range(256)), lease.id),
            Put("even/\u20ac", bytes(range(256))),
        ],
    )
    for key in ("counter/log", "counter/chain", "epochs/1"):
        await store.counter(key, by=5)


async def everything(store: LocalShared) -> dict[str, bytes]:
    return {item.key: item.value for item in (await read_all(store, ""))[0]}


def without_lost(catalog: SharedCatalog) -> list[Record]:
    """What is in the catalog besides what a restore notes there."""
    return [one for one in catalog.catalog.records() if not (isinstance(one, Setting) and one.name == NAME)]


@plain_test(run)
async def test_a_backup_is_of_one_moment(clock: ManualClock) -> None:
    """Two keys that are always written together are equal in it, whenever it was taken."""
    store, other = made(clock), made(clock)
    other = LocalShared(store.store, clock)
    await store.txn([], [Put(f"many/{i:05}", b"") for i in range(90)])
    for i in range(0, 1_500, 100):
        await store.txn([], [Put(f"many/{i + j:05}", b"") for j in range(100)])
    stop = asyncio.Event()

    async def write() -> None:
        for i in itertools.count():
            operations: list[Operation] = [Put("a", b"%d" % i), Put("z", b"%d" % i), Put(f"many/{i:05}x", b"")]
            await other.txn([], operations)
            if stop.is_set():
                return

    writing = asyncio.ensure_future(write())
    for _ in range(20):
        found = read_backup(await take_backup(store, clock)).items
        assert found.get("a") == found.get("z")
        assert f"many/{int(found.get('a', b'0')) + 1:05}x" not in found
    stop.set()
    await writing
    assert await store.get(LAST_BACKUP) is not None


@plain_test(run)
async def test_what_passes_is_not_in_a_backup(clock: ManualClock) -> None:
    store = made(clock)
    await founded(store)
    found = read_backup(await take_backup(store, clock))
    assert sorted(found.items) == [
        "assign/topics/1", "chains/1", "cluster/ack-key", UNIVERSE, "counter/chain", "counter/log", "epochs/1",
        "even/\u20ac",
    ]  # fmt: skip
    assert found.items["even/\u20ac"] == bytes(range(256))
    assert (found.store, found.time_ns) == (store.cluster_id, clock.time_ns())


def test_damage_is_noticed() -> None:
    whole = bytearray()

    async def work(clock: ManualClock) -> None:
        store = made(clock)
        await founded(store)
        whole.extend(await take_backup(store, clock))

    run(work)
    data = bytes(whole)
    assert read_backup(data)

    @given(st.integers(0, len(data) - 2), st.integers(1, 255))
    def spoiled(at: int, difference: int) -> None:
        changed = bytearray(data)
        changed[at] ^= difference
        with pytest.raises(Damaged):
            read_backup(bytes(changed))

    @given(st.integers(0, len(data) - 2))
    def cut(at: int) -> None:
        with pytest.raises(Damaged):
            read_backup(data[:at])

    spoiled()
    cut()
    with pytest.raises(Damaged):
        read_backup(b"{}\n" + data)


@plain_test(run)
async def test_a_restore_is_refused_while_members_live(clock: ManualClock) -> None:
    store = made(clock)
    await founded(store)
    backup = read_backup(await take_backup(store, clock))
    before = await everything(store)
    with pytest.raises(FailedPrecondition, match="1 members live"):
        await restore(store, backup, SeededRandom(2), clock)
    assert await everything(store) == before


@pytest.mark.parametrize("same", [True, False], ids=["into the store it is of", "into a new store"])
@plain_test(run)
async def test_disks_are_newer_than_the_backup(clock: ManualClock, *, same: bool) -> None:
    """No number that was given out after the backup, and may stand on a disk, is given out again."""
    store = made(clock)
    await founded(store)
    catalog = SharedCatalog(store)
    await catalog.start()
    kept = Topic(catalog.next_incarnation(), A)
    ruled = Subscription(catalog.next_incarnation(), S, kept.incarnation, A)
    await catalog.commit([CatalogChange.put(kept), CatalogChange.put(ruled)])
    backup = read_backup(await take_backup(store, clock))
    for n in range(50):
        options = changed_rules(ruled.options, RuleChange((MessageRule(f"r{n}", action="SET a = 1"),)), n + 1)
        ruled = replace(ruled, options=options)
    await catalog.commit([CatalogChange.put(ruled)])
    # What came after it, and is on disks now.
    on_disks = {"logs": 0, "epochs": 0, "chains": 0, "assigned": 0}
    for _ in range(50):
        on_disks["logs"] = await store.counter("counter/log")
        on_disks["epochs"] = await store.counter("epochs/1")
        on_disks["chains"] = await store.counter("counter/chain")
    await store.txn([], [Put("assign/topics/1", b'{"epoch":40,"chains":[1,2]}')])
    lost = Topic(catalog.next_incarnation(), B)
    await catalog.commit([CatalogChange.put(lost)])
    for i in range(100):
        await catalog.commit([CatalogChange.put(Setting("x", b"%d" % i))])
    revision = catalog.catalog.revision
    await catalog.close()
    await store.close()
    await asyncio.sleep(10.0)  # the members are dead
    target = LocalShared(store.store, clock) if same else made(clock, 3)
    restored = await restore(target, backup, SeededRandom(2), clock)
    found = await target.get(UNIVERSE)
    assert found is not None
    assert int(found.value) == restored.universe != UNIVERSE_MIN
    assert UNIVERSE_MIN <= restored.universe < UNIVERSE_END
    assert on_disks["logs"] < await target.counter("counter/log") < LOG_COUNTER_END >> 8
    assert on_disks["epochs"] < await target.counter("epochs/1") < 1 << 31
    assert on_disks["chains"] < await target.counter("counter/chain")
    assigned = await target.get("assign/topics/1")
    assert assigned is not None
    assert json.loads(assigned.value)["epoch"] > 40
    assert json.loads(assigned.value)["chains"] == [1]
    again = SharedCatalog(target)
    await again.start()
    restored_one = again.catalog.subscription(S)
    assert restored_one is not None
    assert restored_one.options.next_lane > ruled.options.next_lane
    assert without_lost(again) == [kept, restored_one]
    assert again.catalog.revision > revision
    new = Topic(again.next_incarnation(), B)
    assert new.incarnation > lost.incarnation + 256
    subscription = Subscription(again.next_incarnation(), S + "2", new.incarnation, B)
    await again.commit([CatalogChange.put(new), CatalogChange.put(subscription)])
    assert without_lost(again) == [kept, new, restored_one, subscription]
    await again.close()


class Breaking(LocalShared):
    """Fails for good at one transaction; before that, every third answer is lost."""

    left = 1 << 30

    async def txn(
        self,
        compares: Sequence[Compare],
        then: Sequence[Operation],
        orelse: Sequence[Operation] = (),
        *,
        deadline_s: float = 5.0,
    ) -> TxnResult:
        self.left -= 1
        if self.left < 0:
            raise StoreUnavailable("broken off")
        result = await super().txn(compares, then, orelse, deadline_s=deadline_s)
        if self.left % 3 == 0:
            raise Indeterminate("the answer was lost")
        return result


@plain_test(run)
async def test_a_restore_that_was_broken_off_is_begun_again(clock: ManualClock) -> None:
    source = made(clock)
    await founded(source)
    for i in range(3):
        await source.txn([], [Put(f"catalog/records/{i}/{j}", b"r") for j in range(100)])
    backup = read_backup(await take_backup(source, clock))
    broken = 0
    for steps in itertools.count():
        target = Breaking(MemoryStore(clock=clock, random=SeededRandom(4)), clock)
        before: list[Operation] = [Put(UNIVERSE, b"1000000000001"), Put("stray", b""), Put("epochs/1", b"900")]
        target.store.txn([], before)
        target.left = steps
        try:
            await restore(target, backup, SeededRandom(5), clock)
        except StoreUnavailable:
            broken += 1
            found = await everything(target)
            assert steps == 0 or UNIVERSE not in found
            target.left = 1 << 30
            await restore(target, backup, SeededRandom(6), clock)
        found = await everything(target)
        assert "stray" not in found
        assert {key: found[key] for key in backup.items if key.startswith("catalog/")} == {
            key: value for key, value in backup.items.items() if key.startswith("catalog/")
        }
        assert int(found["epochs/1"]) > 900
        assert int(found[UNIVERSE]) not in (UNIVERSE_MIN, UNIVERSE_MIN + 1)
        if steps > broken + 2:
            break
    assert broken > 5


@plain_test(run)
async def test_what_arrives_after_a_restore_undoes_nothing(clock: ManualClock) -> None:
    """A batch whose outcome nobody received was sent again; the first copy comes when processes have drawn numbers."""
    source, target = made(clock), Twice(MemoryStore(clock=clock, random=SeededRandom(4)), clock)
    await founded(source)
    backup = read_backup(await take_backup(source, clock))
    target.store.txn([], [Put(UNIVERSE, b"1000000000001")])
    await restore(target, backup, SeededRandom(5), clock)
    drawn = await target.counter("counter/log")
    after = await everything(target)
    assert len(target.late) > 3
    assert not any(target.store.txn(compares, then).ok for compares, then in target.late)
    assert await everything(target) == after
    assert await target.counter("counter/log") == drawn + 1


class Twice(LocalShared):
    """A store that carries every write out and keeps a copy of it for later, and says of each second one nothing."""

    def __init__(self, store: MemoryStore, clock: ManualClock) -> None:
        super().__init__(store, clock)
        self.late: list[tuple[Sequence[Compare], Sequence[Operation]]] = []

    async def txn(
        self, compares: Sequence[Compare], then: Sequence[Operation], orelse: Sequence[Operation] = (), **more: float
    ) -> TxnResult:
        result = await super().txn(compares, then, orelse)
        self.late.append((compares, then))
        if len(self.late) % 2:
            raise Indeterminate("nobody said whether it was done")
        return result


@plain_test(run)
async def test_who_starts_meanwhile_ends_the_restore(clock: ManualClock) -> None:
    source, target = made(clock), made(clock, 3)
    await founded(source)
    backup = read_backup(await take_backup(source, clock))

    class Hasty(SeededRandom):
        def randrange(self, start: int, stop: int) -> int:
            target.store.txn([], [Put(UNIVERSE, b"%d" % (UNIVERSE_MIN + 2))])
            return super().randrange(start, stop)

    with pytest.raises(FailedPrecondition, match="started"):
        await restore(target, backup, Hasty(1), clock)


def test_a_file_is_there_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "backup"
    write_file(path, b"one")
    write_file(path, b"two")
    assert path.read_bytes() == b"two"
    assert [found.name for found in tmp_path.iterdir()] == ["backup"]
