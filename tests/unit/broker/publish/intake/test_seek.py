"""What seeks and snapshots of the catalog make a chain do."""

from __future__ import annotations

import asyncio

from syncpoint.catalog.metadata.records import CREATING, CatalogChange, SeekTarget, Snapshot
from tests.kit.chain import SUB_NUMBER, TOPIC, TOPIC_NUMBER, ChainHarness, simulated
from tests.kit.chain_subscriber import Subscriber


@simulated
async def test_seeks_and_snapshots_follow_from_the_catalog_and_survive(harness: ChainHarness) -> None:
    process = await harness.subscribed(retain_acked=True)
    await process.publish("a", "b", "c")
    subscriber = await Subscriber(process, 11).attached()
    (source,) = subscriber.granted
    await subscriber.ack(source, (0, 1))
    snapshot = Snapshot(
        50, "projects/p/snapshots/s", TOPIC_NUMBER, TOPIC, expire_ns=1 << 62, status=CREATING, subscription=SUB_NUMBER
    )
    await harness.confirm(harness.commit(CatalogChange.put(snapshot)))
    await subscriber.ack(source, (1, 1), (2, 1))
    assert await subscriber.read_all() == []
    await harness.confirm(harness.update(generation=1, target=SeekTarget(snapshot=50)))
    await asyncio.sleep(0.1)
    assert [what.generation for kind, what in subscriber.received if kind == "reset"] == [1]
    await subscriber.attach()
    assert await subscriber.read_all() == ["b", "c"]
    await subscriber.ack(source, (1, 1))
    second = await harness.succeeded(process)
    again = await Subscriber(second, 11).attached()
    assert await again.read_all() == ["c"]
    # While nobody has the chain open, it is reset by a seek twice, and the snapshot goes.
    await second.crash()
    harness.update(generation=2, target=SeekTarget(time_ns=harness.clock.time_ns() + 10**12))
    harness.update(generation=3, target=SeekTarget(snapshot=50))
    harness.commit(CatalogChange.delete(snapshot))
    third = await harness.opened()
    last = await Subscriber(third, 11).attached()
    assert last.generation == 3
    assert await last.read_all() == ["b", "c"]


@simulated
async def test_a_seek_to_a_snapshot_of_a_time_before_the_chain_had_the_topic(harness: ChainHarness) -> None:
    process = await harness.opened("f1", 1)
    await harness.subscribe(retain_acked=True)
    snapshot = Snapshot(
        50, "projects/p/snapshots/s", TOPIC_NUMBER, TOPIC, expire_ns=1 << 62, status=CREATING, subscription=SUB_NUMBER
    )
    await harness.confirm(harness.commit(CatalogChange.put(snapshot)))
    await process.publish("a")
    subscriber = await Subscriber(process, 11).attached()
    (source,) = subscriber.granted
    await subscriber.ack(source, (0, 1))
    await harness.confirm(harness.update(generation=1, target=SeekTarget(snapshot=50)))
    await subscriber.attach()
    assert await subscriber.read_all() == ["a"]


@simulated
async def test_a_seek_counts_also_where_recovery_found_nothing_of_the_topic_but_its_ledger(
    harness: ChainHarness,
) -> None:
    first = harness.process("f1")
    chain = await first.open()
    harness.registered.add((TOPIC_NUMBER, 1))
    chain.follower.open_source(TOPIC_NUMBER, 0)
    await harness.subscribe(retain_acked=True)  # its ledger is begun here, in the first generation
    await first.crash()  # and the source never had a message
    harness.update(generation=1, target=SeekTarget(time_ns=0))
    second = await harness.opened("f2")
    await harness.confirm(harness.master.revision)
    subscriber = await Subscriber(second, 11).attached()
    await second.publish("a")
    await asyncio.sleep(0.1)
    assert {what.generation for kind, what in subscriber.received if kind == "sources"} == {1}
    assert await subscriber.read_all() == ["a"]
    third = await harness.succeeded(second, "f3")
    again = await Subscriber(third, 11).attached()
    assert (again.generation, await again.read_all()) == (1, ["a"])
