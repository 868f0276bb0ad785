"""What operators do with keys: rotation, wrapping anew, and what is removed when topics are gone."""

from __future__ import annotations

import asyncio

import pytest

from syncpoint.base.model.errors import Unavailable
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.catalog.metadata.catalog_replica import SharedCatalog, record_key
from syncpoint.catalog.metadata.contract import Delete, Put
from syncpoint.catalog.metadata.layout import DATA_KEYS, LENT_KEYS, OPEN, TOPIC_KEYS
from syncpoint.catalog.metadata.local import LocalShared
from syncpoint.catalog.metadata.memory import MemoryStore
from syncpoint.catalog.metadata.records import CatalogChange, Topic, encode_record
from syncpoint.catalog.metadata.restored_topics import LostTopicDecision, LostTopics
from syncpoint.front.proxy import key_admin
from syncpoint.front.proxy.data_keys import KeyRing, TopicKeys
from syncpoint.front.proxy.key_admin import KeyCleaner, listed, needed, remove_gone, topics_now
from syncpoint.front.proxy.sealing import Sealer
from syncpoint.testing.rigs.plain_tests import Work, plain_test
from syncpoint.testing.rigs.simulated_loop import run_simulated
from syncpoint.wire.protobuf.messages import pubsub
from tests.kit.sealed import published, pulled

OLD, NEW = bytes(range(32)), bytes(range(1, 33))


class Harness:
    """A store with a catalog, and sealers over it."""

    def __init__(self) -> None:
        self.clock, self.random = ManualClock(), SeededRandom(7)
        self.raw = MemoryStore(clock=self.clock, random=self.random)
        self.store = LocalShared(self.raw, self.clock)
        self.catalog = SharedCatalog(self.store)

    def keys(self, *keks: bytes) -> TopicKeys:
        return TopicKeys(self.store, KeyRing(keks or (OLD,)), self.clock, self.random)

    async def topic(self, name: str) -> Topic:
        made = Topic(self.catalog.next_incarnation(), f"projects/p/topics/{name}")
        await self.catalog.commit([CatalogChange.put(made)])
        return made

    async def delete(self, topic: Topic) -> None:
        await self.catalog.commit([CatalogChange.delete(topic)])

    def holds(self, topic: Topic, chain: int = 1) -> None:
        self.raw.txn([], [Put(OPEN.key(topic.incarnation, chain), b"{}")])

    def lets_go(self, topic: Topic, chain: int = 1) -> None:
        self.raw.txn([], [Delete(OPEN.key(topic.incarnation, chain))])

    def left(self) -> list[str]:
        return [item.key for prefix in (TOPIC_KEYS, DATA_KEYS, LENT_KEYS) for item in self.raw.range(prefix).items]


def run(work: Work) -> None:
    harness = Harness()

    async def main() -> None:
        await harness.catalog.start()
        try:
            await work(harness)
        finally:
            await harness.catalog.close()

    run_simulated(harness.clock, main())


in_harness = plain_test(run)


async def readable(harness: Harness, sealed: bytes) -> list[bytes]:
    opened = await Sealer(harness.keys(OLD, NEW)).open(pulled(sealed))
    return [one.message.data for one in pubsub.PullResponse.FromString(opened).received_messages]


@in_harness
async def test_the_list_knows_who_is_wrapped_under_what(harness: Harness) -> None:
    orders, bills = await harness.topic("orders"), await harness.topic("bills")
    keys = harness.keys()
    await keys.current(orders.incarnation)
    await keys.current(bills.incarnation)
    assert await key_admin.rotate(harness.keys(NEW, OLD), [orders.incarnation]) == 1
    found = await listed(harness.store)
    assert [(one.topic, one.current) for one in found] == [
        (orders.incarnation, False),
        (bills.incarnation, True),
        (orders.incarnation, True),
    ]
    assert needed(found) == {KeyRing([OLD]).current: 2, KeyRing([NEW]).current: 1}
    assert await topics_now(harness.store) == {
        orders.incarnation: "projects/p/topics/orders",
        bills.incarnation: "projects/p/topics/bills",
    }


@in_harness
async def test_keys_go_when_nothing_of_a_deleted_topic_is_stored(harness: Harness) -> None:
    orders, bills = await harness.topic("orders"), await harness.topic("bills")
    sealer = Sealer(harness.keys())
    sealed = await sealer.seal(orders.incarnation, published(b"a"))
    await sealer.keys.rotate(orders.incarnation)
    kept = await sealer.seal(bills.incarnation, published(b"b"))
    harness.holds(orders, 1)
    harness.holds(orders, 2)
    assert await remove_gone(harness.store) == 0, "it exists"
    await harness.delete(orders)
    assert await remove_gone(harness.store) == 0, "its subscriptions still have messages"
    assert await readable(harness, sealed) == [b"a"]
    harness.lets_go(orders, 1)
    assert await remove_gone(harness.store) == 0
    harness.lets_go(orders, 2)
    assert await remove_gone(harness.store, exists=lambda topic: True) == 0, "nobody is suspected"
    assert await remove_gone(harness.store) == 2
    assert [key for key in harness.left() if key.startswith(TOPIC_KEYS)] == [TOPIC_KEYS.key(bills.incarnation)]
    assert len(harness.left()) == 2
    assert await readable(harness, kept) == [b"b"]
    assert await remove_gone(harness.store) == 0


@in_harness
async def test_a_dead_letter_keeps_the_key_it_was_sealed_with(harness: Harness) -> None:
    orders, dead = await harness.topic("orders"), await harness.topic("dead")
    sealed = await Sealer(harness.keys()).seal(orders.incarnation, published(b"a", b"b"))
    other = Sealer(harness.keys())
    for _ in range(3):
        await other.lend(dead.incarnation, sealed)
    await other.lend(dead.incarnation, published(b"never sealed"))
    assert len([key for key in harness.left() if key.startswith(LENT_KEYS)]) == 1
    harness.holds(dead)
    await harness.delete(orders)
    assert await remove_gone(harness.store) == 0
    assert await readable(harness, sealed) == [b"a", b"b"]
    await harness.delete(dead)
    assert await remove_gone(harness.store) == 0, "of the dead letters something is stored"
    harness.lets_go(dead)
    assert await remove_gone(harness.store) == 1
    assert harness.left() == []


@in_harness
async def test_a_dead_letter_is_not_published_while_its_key_can_not_be_lent(harness: Harness) -> None:
    orders, dead = await harness.topic("orders"), await harness.topic("dead")
    sealed = await Sealer(harness.keys()).seal(orders.incarnation, published(b"a"))
    sealer = Sealer(harness.keys())
    harness.store.cut = True
    with pytest.raises(Unavailable):
        await sealer.lend(dead.incarnation, sealed)
    harness.store.cut = False
    await sealer.lend(dead.incarnation, sealed)
    assert len([key for key in harness.left() if key.startswith(LENT_KEYS)]) == 1


@in_harness
async def test_the_cleaner_works_when_it_is_its_turn_and_after_a_failure(harness: Harness) -> None:
    orders = await harness.topic("orders")
    await harness.keys().current(orders.incarnation)
    await harness.delete(orders)
    turn = False
    cleaner = KeyCleaner(harness.store, lambda topic: False, lambda: turn, harness.random)
    cleaner.start()
    await asyncio.sleep(3 * key_admin.CLEAN_S)
    assert len(harness.left()) == 2
    turn = harness.store.cut = True
    await asyncio.sleep(3 * key_admin.CLEAN_S)
    harness.store.cut = False
    assert len(harness.left()) == 2
    await asyncio.sleep(2 * key_admin.CLEAN_S)
    assert harness.left() == []
    await cleaner.stop()


@in_harness
async def test_what_may_have_been_lost_with_the_metadata_keeps_its_keys(harness: Harness) -> None:
    """No chain says that it has anything of the topic; it may not have been opened since the restore."""
    lost, known = await harness.topic("lost"), await harness.topic("known")
    keys = harness.keys()
    for topic in (lost, known):
        await keys.current(topic.incarnation)
        await harness.delete(topic)
    gap = LostTopics().with_gap(0, 1 << 40, [known.incarnation])
    setting = gap.setting()
    await harness.store.txn([], [Put(record_key(setting), encode_record(setting))])
    assert await remove_gone(harness.store) == 1
    assert [one.topic for one in await listed(harness.store)] == [lost.incarnation]
    setting = gap.decided(LostTopicDecision(lost.incarnation, "deleted", "", 1, "me", "here", 1)).setting()
    await harness.store.txn([], [Put(record_key(setting), encode_record(setting))])
    assert await remove_gone(harness.store) == 1
