"""Topics that a restore has made unknown: distinguished from those that were deleted, whatever was
restored how often.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.catalog.metadata.backup import Backup, read_backup, restore, take_backup
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.catalog_replica import CatalogConflict, SharedCatalog
from syncpoint.catalog.metadata.contract import Put
from syncpoint.catalog.metadata.local import LocalShared
from syncpoint.catalog.metadata.memory import MemoryStore
from syncpoint.catalog.metadata.records import CatalogChange, Topic
from syncpoint.catalog.metadata.restored_topics import NAME, NOTHING, LostTopicDecision, LostTopics, decode, lost_of
from syncpoint.testing.rigs.plain_tests import plain_test
from tests.unit.catalog.metadata.test_backup import everything, made, run

pytestmark = pytest.mark.shows("upgrade")

TOPICS = st.integers(1, 1 << 40)
REVISIONS = st.integers(0, 1 << 60)
GAPS = st.lists(st.tuples(REVISIONS, REVISIONS, st.sets(TOPICS, max_size=20)), max_size=4)
DECISIONS = st.builds(LostTopicDecision, TOPICS,
                      st.sampled_from(["adopted", "deleted"]), *[st.text()] * 1, *[REVISIONS] * 1,
                      st.text(), st.text(), REVISIONS)  # fmt: skip


@given(GAPS, st.lists(DECISIONS, max_size=5), TOPICS, REVISIONS)
def test_what_is_lost_comes_back_as_it_was_written(
    gaps: list[tuple[int, int, set[int]]], decisions: list[LostTopicDecision], topic: int, revision: int
) -> None:
    lost = LostTopics()
    for gap in gaps:
        lost = lost.with_gap(*gap)
    for decision in decisions:
        lost = lost.decided(decision)
    setting = lost.setting()
    assert setting.name == NAME
    found = decode(setting.value)
    assert found == lost
    expected = topic not in {one.topic for one in decisions} and any(
        above < revision < below and topic not in known for above, below, known in gaps
    )
    assert found.keeps(topic, revision) == expected
    assert found.may_be(topic) == (
        topic not in {one.topic for one in decisions}
        and any(topic < below and topic not in known for _, below, known in gaps)
    )


@pytest.mark.parametrize("bad", [b"", b"[]", b"{}", b'{"gaps":[1],"decisions":[]}'])
def test_what_is_something_else_is_refused(bad: bytes) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        decode(bad)


def test_nothing_is_lost_where_nothing_was_restored() -> None:
    assert lost_of(Catalog()) is NOTHING
    assert not NOTHING.keeps(1, 1)


async def opened(store: LocalShared) -> SharedCatalog:
    catalog = SharedCatalog(store)
    await catalog.start()
    return catalog


async def add(catalog: SharedCatalog, name: str) -> tuple[int, int]:
    """A topic, and the revision at which its first source is opened."""
    topic = Topic(catalog.next_incarnation(), f"projects/p/topics/{name}")
    await commit(catalog, CatalogChange.put(topic))
    return topic.incarnation, catalog.catalog.revision


async def delete(catalog: SharedCatalog, topic: int) -> None:
    record = catalog.catalog.topic_by_incarnation(topic)
    assert record is not None
    await commit(catalog, CatalogChange.delete(record))


async def commit(catalog: SharedCatalog, change: CatalogChange) -> None:
    """However late the catalog here is."""
    while True:
        try:
            await catalog.commit([change])
            return
        except CatalogConflict:
            continue


@pytest.mark.parametrize("same", [True, False], ids=["into the store it is of", "into a new store"])
@plain_test(run)
async def test_topics_made_after_the_backup_are_lost_and_deleted_ones_are_not(
    clock: ManualClock, *, same: bool
) -> None:
    store = made(clock)
    first, second = await opened(store), await opened(store)  # each has a block of numbers to give
    kept, deleted = await add(first, "kept"), await add(second, "deleted")
    await delete(second, deleted[0])
    later = second.catalog.revision  # a source of a known topic opened later than the backup
    backup = read_backup(await take_backup(store, clock))
    lost = [await add(first, "a"), await add(second, "b")]
    assert lost[0][0] < deleted[0], "a number alone does not say when it was given out"
    for catalog in (first, second):
        await catalog.close()
    target = LocalShared(store.store, clock) if same else made(clock, 3)
    await restore(target, backup, SeededRandom(2), clock)
    again = await opened(target)
    found = lost_of(again.catalog)
    assert all(found.keeps(*one) for one in lost)
    assert not found.keeps(*deleted)
    assert not found.keeps(kept[0], later + 1)
    await delete(again, kept[0])
    assert not lost_of(again.catalog).keeps(kept[0], later + 1)
    new = await add(again, "new")
    assert not lost_of(again.catalog).keeps(*new)
    await delete(again, new[0])
    assert not lost_of(again.catalog).keeps(*new)
    await again.close()


@plain_test(run)
async def test_of_two_restores_of_one_backup_into_nothing_the_second_knows_what_the_first_gave_out(
    clock: ManualClock,
) -> None:
    clock.set_time_ns(1_800_000_000 * 10**9)
    backup = await _backup(clock)
    target = made(clock, 3)
    await restore(target, backup, SeededRandom(2), clock)
    between = await opened(target)
    topic, revision = await add(between, "between")
    await between.close()
    clock.set_time_ns(clock.time_ns() + 60 * 10**9)
    other = made(clock, 4)
    await restore(other, backup, SeededRandom(2), clock)
    again = await opened(other)
    assert again.catalog.revision > revision
    assert again.next_incarnation() > topic + 256
    assert lost_of(again.catalog).keeps(topic, revision)
    # A backup of now knows of both gaps.
    added = await add(again, "later")
    third = read_backup(await take_backup(other, clock))
    gone = await add(again, "gone")
    await again.close()
    last = made(clock, 5)
    await restore(last, third, SeededRandom(2), clock)
    end = await opened(last)
    found = lost_of(end.catalog)
    assert len(found.gaps) == 2
    assert [found.keeps(*one) for one in ((topic, revision), added, gone)] == [True, False, True]
    await end.close()


async def _backup(clock: ManualClock) -> Backup:
    store = made(clock)
    catalog = await opened(store)
    await add(catalog, "kept")
    backup = read_backup(await take_backup(store, clock))
    await catalog.close()
    return backup


@plain_test(run)
async def test_a_backup_of_an_empty_catalog_is_below_what_came_after_it(clock: ManualClock) -> None:
    store = made(clock)
    backup = read_backup(await take_backup(store, clock))
    catalog = await opened(store)
    topic, revision = await add(catalog, "first")
    await catalog.close()
    target = made(clock, 3)
    await restore(target, backup, SeededRandom(2), clock)
    again = await opened(target)
    assert again.catalog.revision > revision
    assert lost_of(again.catalog).keeps(topic, revision)
    await again.close()


@plain_test(run)
async def test_decisions_of_after_the_backup_are_to_be_made_again(clock: ManualClock) -> None:
    """An adopted topic is unknown again after a restore from before its adoption: its messages must not go."""
    backup = await _backup(clock)
    target = made(clock, 3)
    await restore(target, backup, SeededRandom(2), clock)
    catalog = await opened(target)
    lost = lost_of(catalog.catalog)
    revision, topic = lost.gaps[0].above + 1, 77
    assert lost.keeps(topic, revision)
    decision = LostTopicDecision(topic, "adopted", "projects/p/topics/x", 3, "me", "here", 5)
    await catalog.commit([CatalogChange.put(lost.decided(decision).setting())])
    assert not lost_of(catalog.catalog).keeps(topic, revision)
    after = read_backup(await take_backup(target, clock))
    await catalog.close()
    for source, kept in ((backup, True), (after, False)):
        await restore(target, source, SeededRandom(2), clock)
        again = await opened(target)
        assert lost_of(again.catalog).keeps(topic, revision) == kept
        await again.close()


@plain_test(run)
async def test_data_keys_that_the_store_still_has_stay(clock: ManualClock) -> None:
    store = LocalShared(MemoryStore(clock=clock, random=SeededRandom(1)), clock)
    await store.txn([], [Put("keys/topics/1", b"1"), Put("keys/data/1", b"one")])
    backup = read_backup(await take_backup(store, clock))
    await store.txn([], [Put("keys/topics/1", b"2"), Put("keys/data/2", b"two"), Put("stray", b"")])
    await restore(store, backup, SeededRandom(2), clock)
    found = await everything(store)
    assert {key: found[key] for key in found if key.startswith("keys/")} == {
        "keys/topics/1": b"1", "keys/data/1": b"one", "keys/data/2": b"two",
    }  # fmt: skip
    assert "stray" not in found
