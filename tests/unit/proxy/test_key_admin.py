"""What operators do with keys: rotation, wrapping anew, and what is removed when topics are gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from syncpoint.metadata.catalog_replica import SharedCatalog, record_key
from syncpoint.metadata.contract import Delete, Put
from syncpoint.metadata.layout import DATA_KEYS, LENT_KEYS, OPEN, TOPIC_KEYS
from syncpoint.metadata.local import LocalShared
from syncpoint.metadata.memory import MemoryStore
from syncpoint.metadata.records import CatalogChange, Topic, encode_record
from syncpoint.metadata.restored_topics import LostTopicDecision, LostTopics
from syncpoint.model.errors import Unavailable
from syncpoint.proxy import key_admin
from syncpoint.proxy.data_keys import KeyRing, TopicKeys
from syncpoint.proxy.key_admin import KeyCleaner, listed, needed, remove_gone, topics_now
from syncpoint.proxy.sealing import Sealer
from syncpoint.runtime.clock import ManualClock
from syncpoint.runtime.random import SeededRandom
from syncpoint.testing.simulated_loop import run_simulated
from syncpoint.wire.messages import pubsub

OLD, NEW = bytes(range(32)), bytes(range(1, 33))


class World:
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


def in_world(work: Callable[[World], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def test() -> None:
        world = World()

        async def run() -> None:
            await world.catalog.start()
            try:
                await work(world)
            finally:
                await world.catalog.close()

        run_simulated(world.clock, run())

    test.__name__, test.__doc__, test.__module__ = work.__name__, work.__doc__, work.__module__
    return test


def publish(*data: bytes) -> bytes:
    made: bytes = pubsub.PublishRequest(messages=[pubsub.PubsubMessage(data=one) for one in data]).SerializeToString()
    return made


def pulled(sealed: bytes) -> bytes:
    messages = pubsub.PublishRequest.FromString(sealed).messages
    made: bytes = pubsub.PullResponse(
        received_messages=[pubsub.ReceivedMessage(ack_id="a", message=one) for one in messages]
    ).SerializeToString()
    return made


async def readable(world: World, sealed: bytes) -> list[bytes]:
    opened = await Sealer(world.keys(OLD, NEW)).open(pulled(sealed))
    return [one.message.data for one in pubsub.PullResponse.FromString(opened).received_messages]


@in_world
async def test_the_list_knows_who_is_wrapped_under_what(world: World) -> None:
    orders, bills = await world.topic("orders"), await world.topic("bills")
    keys = world.keys()
    await keys.current(orders.incarnation)
    await keys.current(bills.incarnation)
    assert await key_admin.rotate(world.keys(NEW, OLD), [orders.incarnation]) == 1
    found = await listed(world.store)
    assert [(one.topic, one.current) for one in found] == [
        (orders.incarnation, False),
        (bills.incarnation, True),
        (orders.incarnation, True),
    ]
    assert needed(found) == {KeyRing([OLD]).current: 2, KeyRing([NEW]).current: 1}
    assert await topics_now(world.store) == {
        orders.incarnation: "projects/p/topics/orders",
        bills.incarnation: "projects/p/topics/bills",
    }


@in_world
async def test_keys_go_when_nothing_of_a_deleted_topic_is_stored(world: World) -> None:
    orders, bills = await world.topic("orders"), await world.topic("bills")
    sealer = Sealer(world.keys())
    sealed = await sealer.seal(orders.incarnation, publish(b"a"))
    await sealer.keys.rotate(orders.incarnation)
    kept = await sealer.seal(bills.incarnation, publish(b"b"))
    world.holds(orders, 1)
    world.holds(orders, 2)
    assert await remove_gone(world.store) == 0, "it exists"
    await world.delete(orders)
    assert await remove_gone(world.store) == 0, "its subscriptions still have messages"
    assert await readable(world, sealed) == [b"a"]
    world.lets_go(orders, 1)
    assert await remove_gone(world.store) == 0
    world.lets_go(orders, 2)
    assert await remove_gone(world.store, exists=lambda topic: True) == 0, "nobody is suspected"
    assert await remove_gone(world.store) == 2
    assert [key for key in world.left() if key.startswith(TOPIC_KEYS)] == [TOPIC_KEYS.key(bills.incarnation)]
    assert len(world.left()) == 2
    assert await readable(world, kept) == [b"b"]
    assert await remove_gone(world.store) == 0


@in_world
async def test_a_dead_letter_keeps_the_key_it_was_sealed_with(world: World) -> None:
    orders, dead = await world.topic("orders"), await world.topic("dead")
    sealed = await Sealer(world.keys()).seal(orders.incarnation, publish(b"a", b"b"))
    other = Sealer(world.keys())
    for _ in range(3):
        await other.lend(dead.incarnation, sealed)
    await other.lend(dead.incarnation, publish(b"never sealed"))
    assert len([key for key in world.left() if key.startswith(LENT_KEYS)]) == 1
    world.holds(dead)
    await world.delete(orders)
    assert await remove_gone(world.store) == 0
    assert await readable(world, sealed) == [b"a", b"b"]
    await world.delete(dead)
    assert await remove_gone(world.store) == 0, "of the dead letters something is stored"
    world.lets_go(dead)
    assert await remove_gone(world.store) == 1
    assert world.left() == []


@in_world
async def test_a_dead_letter_is_not_published_while_its_key_can_not_be_lent(world: World) -> None:
    orders, dead = await world.topic("orders"), await world.topic("dead")
    sealed = await Sealer(world.keys()).seal(orders.incarnation, publish(b"a"))
    sealer = Sealer(world.keys())
    world.store.cut = True
    with pytest.raises(Unavailable):
        await sealer.lend(dead.incarnation, sealed)
    world.store.cut = False
    await sealer.lend(dead.incarnation, sealed)
    assert len([key for key in world.left() if key.startswith(LENT_KEYS)]) == 1


@in_world
async def test_the_cleaner_works_when_it_is_its_turn_and_after_a_failure(world: World) -> None:
    orders = await world.topic("orders")
    await world.keys().current(orders.incarnation)
    await world.delete(orders)
    turn = False
    cleaner = KeyCleaner(world.store, lambda topic: False, lambda: turn, world.random)
    cleaner.start()
    await asyncio.sleep(3 * key_admin.CLEAN_S)
    assert len(world.left()) == 2
    turn = world.store.cut = True
    await asyncio.sleep(3 * key_admin.CLEAN_S)
    world.store.cut = False
    assert len(world.left()) == 2
    await asyncio.sleep(2 * key_admin.CLEAN_S)
    assert world.left() == []
    await cleaner.stop()


@in_world
async def test_what_may_have_been_lost_with_the_metadata_keeps_its_keys(world: World) -> None:
    """No chain says that it has anything of the topic; it may not have been opened since the restore."""
    lost, known = await world.topic("lost"), await world.topic("known")
    keys = world.keys()
    for topic in (lost, known):
        await keys.current(topic.incarnation)
        await world.delete(topic)
    gap = LostTopics().with_gap(0, 1 << 40, [known.incarnation])
    setting = gap.setting()
    await world.store.txn([], [Put(record_key(setting), encode_record(setting))])
    assert await remove_gone(world.store) == 1
    assert [one.topic for one in await listed(world.store)] == [lost.incarnation]
    setting = gap.decided(LostTopicDecision(lost.incarnation, "deleted", "", 1, "me", "here", 1)).setting()
    await world.store.txn([], [Put(record_key(setting), encode_record(setting))])
    assert await remove_gone(world.store) == 1
