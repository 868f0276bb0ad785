"""Batches that are sent again: stored once, with the ids of the first time."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from syncpoint.base.model.errors import SyncpointError
from syncpoint.broker.publish.facts import records
from syncpoint.broker.publish.intake.envelope import PublishBatch
from syncpoint.catalog.metadata.entity_options import TopicOptions
from syncpoint.catalog.metadata.records import CatalogChange
from syncpoint.wire.protobuf.messages import pubsub
from tests.kit.chain import TOPIC, TOPIC_NUMBER, ChainHarness, simulated
from tests.kit.chain_subscriber import Subscriber


@simulated
async def test_a_batch_sent_again_has_the_same_ids_also_at_the_next_owner(harness: ChainHarness) -> None:
    first = await harness.subscribed()
    ids = await first.publish("a", "b", batch=5)
    assert await first.publish("a", "b", batch=5, resent=True) == ids
    first.paused = True
    under_way = [asyncio.ensure_future(first.publish("c", batch=6, resent=again)) for again in (False, True)]
    await asyncio.sleep(0.1)
    assert not any(one.done() for one in under_way)
    first.paused = False
    one, other = await asyncio.gather(*under_way)
    assert one == other
    await first.crash()
    second = harness.process("f2")
    chain = await second.open()
    assert await second.publish("a", "b", batch=5, resent=True) == ids
    assert await second.publish("c", batch=6, resent=True) == one
    assert chain.forwarder.recent_batches.answered == 2
    (new,) = await second.publish("d", batch=7, resent=True)
    assert new not in ids
    subscriber = await Subscriber(second, 11).attached()
    assert await subscriber.read_all() == ["a", "b", "c", "d"]


@simulated
async def test_a_batch_that_was_lost_on_the_way_is_stored_when_it_is_sent_again(harness: ChainHarness) -> None:
    first = await harness.opened("f1")
    await first.publish("a", batch=1)
    first.paused = True
    lost = asyncio.ensure_future(first.publish("b", batch=2, timeout=1.0))
    await asyncio.sleep(0.2)
    await first.crash()
    second = harness.process("f2")
    chain = await second.open()
    lost.cancel()
    assert await second.publish("b", batch=2, resent=True)
    assert chain.forwarder.recent_batches.answered == 0


@simulated
async def test_a_batch_from_before_its_topic_dropped_duplicates_is_known_by_its_number(harness: ChainHarness) -> None:
    harness.assign(1)
    process = await harness.opened("f1")
    epoch = harness.assignments[TOPIC_NUMBER].epoch
    ids = await process.publish("a", key="k", epoch=epoch, batch=5)
    record = process.shared.catalog.topic(TOPIC)
    assert record is not None
    harness.commit(CatalogChange.put(replace(record, options=TopicOptions(duplicate_window_s=60))))
    await asyncio.sleep(1)
    assert await process.publish("a", key="k", epoch=epoch, batch=5, resent=True) == ids
    later = await process.publish("b", key="k", epoch=epoch, batch=6)
    assert await process.publish("b", key="k", epoch=epoch, batch=6, resent=True) == later


class Nobody:
    """A caller who is gone."""

    def reply(self, response: bytes) -> None:
        """Nobody learns it."""

    def fail(self, error: SyncpointError) -> None:
        """Nobody learns it."""


@simulated
async def test_a_batch_that_came_while_a_checkpoint_was_written_is_not_named_before_its_messages(
    harness: ChainHarness,
) -> None:
    first = harness.process("f1")
    chain = await first.open()
    await harness.subscribe()
    await first.publish("a", batch=70)
    for number in range(2_000):  # more than one part of the checkpoint, in front of what names batches
        chain.forwarder.memory.grants[number, 1] = records.GrantFact(number, 1, 1, 1)
    checkpoint = chain.store.checkpoint(chain.follower.checkpoint_parts())
    assert not checkpoint.step(1)
    request = pubsub.PublishRequest(topic=TOPIC, messages=[pubsub.PubsubMessage(data=b"b")]).SerializeToString()
    chain.ingress.publish(Nobody(), PublishBatch(1, 0, False, 7, 71, False, request))
    chain.upkeep.checkpoint = checkpoint
    chain.upkeep.last_checkpoint()  # goes on with it in the same turn
    for name in list(first.workers[0].steps):
        first.workers[0].run(name)
    second = await harness.succeeded(first)
    await second.publish("b", batch=71, resent=True)
    subscriber = await Subscriber(second, 11).attached()
    assert await subscriber.read_all() == ["a", "b"]
