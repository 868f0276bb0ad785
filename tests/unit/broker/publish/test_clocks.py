"""A forwarder whose wall clock is wrong for a while: nothing that is needed is deleted, skipped or made older."""

from __future__ import annotations

import asyncio

import pytest

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.testing.rigs.forwarder_harness import ForwarderHarness
from syncpoint.testing.rigs.forwarder_harness import Subscriber as SubscriberInMemory
from tests.kit.chain import ChainHarness, simulated
from tests.kit.chain_subscriber import Subscriber

DAY_NS = 86_400 * 10**9


@simulated
async def test_a_clock_ahead_for_a_moment_deletes_no_message(harness: ChainHarness) -> None:
    process = harness.process()
    chain = await process.open()
    await harness.subscribe()
    for number in range(100):  # of 20 kB: some segments are full, and could go
        await process.publish(f"{number}" + "x" * 20_000)
    (source,) = chain.forwarder.sources.by_number
    before, now = chain.store.bounds(source), harness.clock.time_ns()
    chain.upkeep.overdue = True
    harness.clock.set_time_ns(now + 8 * DAY_NS)
    await asyncio.sleep(30)
    subscriber = await Subscriber(process, 11).attached()
    assert len(await subscriber.read_all()) == 100, "nor is anything passed over in a fetch"
    harness.clock.set_time_ns(now + 30 * 10**9)
    assert chain.store.bounds(source) == before


@simulated
async def test_a_right_clock_deletes_what_has_had_its_time(harness: ChainHarness) -> None:
    process = harness.process()
    chain = await process.open()
    await harness.subscribe()
    for number in range(100):
        await process.publish(f"{number}" + "x" * 20_000)
    (source,) = chain.forwarder.sources.by_number
    harness.clock.advance(7 * 86_400 + 1)
    await asyncio.sleep(30)
    first, _ = chain.store.bounds(source) or (100, 100)
    assert first > 0


def test_a_publish_that_was_refused_does_not_make_the_next_one_older() -> None:
    harness = ForwarderHarness()
    harness.send("first")
    with pytest.raises(InvalidArgument):
        harness.send("refused", googlike="x")
    harness.quiesce()
    harness.clock.advance(3600)
    harness.send("next")
    subscriber = SubscriberInMemory(harness)
    harness.quiesce()
    assert subscriber.received[-1].message.publish_time.seconds == harness.clock.time_ns() // 10**9
