"""Batches that another chain has confirmed: acknowledged here before anybody is handed them, and counted always."""

from __future__ import annotations

import asyncio

import pytest

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.base.runtime.random import SeededRandom
from tests.kit.chain import SUB_NUMBER, TOPIC_NUMBER, ChainHarness, simulated
from tests.kit.chain_subscriber import Subscriber

pytestmark = pytest.mark.shows("resends")


@simulated
async def test_what_is_void_is_not_delivered(harness: ChainHarness) -> None:
    process = harness.process()
    chain = await process.open()
    await harness.subscribe()
    await process.publish("a", batch=1)
    await process.publish("b", "c", batch=2)
    await process.publish("d", batch=3)
    found = await process.void(2, 9)
    assert (found.batches, found.messages, found.late) == (1, 2, 0)
    subscriber = await Subscriber(process, 11).attached()
    assert await subscriber.read_all() == ["a", "d"]
    assert (chain.status()["resent_duplicates"], chain.status()["resent_duplicates_late"]) == (2, 0)


@simulated
async def test_saying_it_again_changes_nothing(harness: ChainHarness) -> None:
    process = harness.process()
    chain = await process.open()
    await harness.subscribe()
    await process.publish("a", batch=1)
    first = await process.void(1)
    assert await process.void(1) == first
    assert (chain.duplicates.duplicates, chain.duplicates.late) == (1, 0)


@simulated
async def test_an_adopter_knows_the_batch_and_hands_nothing_out_before(harness: ChainHarness) -> None:
    """It is reported while it opens the chain; a subscriber that waits for it gets the rest only, and so for ever."""
    first = await harness.subscribed()
    await first.publish("a", batch=1)
    await first.publish("b", batch=2)
    await first.crash()
    second = harness.process("f2")
    subscriber = await Subscriber(second, 11).attached()
    second.paused = True
    opening = asyncio.ensure_future(second.open())
    await asyncio.sleep(0.1)
    reporting = asyncio.ensure_future(second.void(2))
    await asyncio.sleep(0.1)
    assert not opening.done()
    assert not reporting.done()
    second.paused = False
    found = await reporting
    assert (found.batches, found.messages, found.late) == (1, 1, 0)
    await opening
    await asyncio.sleep(0.2)
    assert await subscriber.read_all() == ["a"]
    third = await harness.succeeded(second, "f3")
    again = await Subscriber(third, 12).attached()
    assert await again.read_all() == ["a"]


@simulated
async def test_what_was_handed_out_is_late(harness: ChainHarness) -> None:
    process = harness.process()
    chain = await process.open()
    await harness.subscribe()
    await harness.subscribe(3, "projects/p/subscriptions/idle")
    subscriber = await Subscriber(process, 11).attached()
    await process.publish("a", "b", batch=1)
    await asyncio.sleep(0.1)
    assert await subscriber.read_all() == ["a", "b"]
    await process.publish("c", batch=2)
    found = await process.void(1, 2)
    assert (found.batches, found.messages, found.late) == (2, 3, 2)
    assert (chain.duplicates.duplicates, chain.duplicates.late) == (3, 2)
    ledger = chain.forwarder.ledgers[3]
    assert all(ledger.covers(source.number, 0, 3) for source in chain.forwarder.sources.of_topic(TOPIC_NUMBER))


@simulated
async def test_a_batch_that_comes_after_it_was_said_to_be_void_is_not_stored(harness: ChainHarness) -> None:
    process = harness.process()
    chain = await process.open()
    await harness.subscribe()
    await process.publish("a", batch=1)
    assert (await process.void(2)).batches == 0
    with pytest.raises(SyncpointError) as caught:
        await process.publish("b", batch=2)
    assert caught.value.code is Code.FAILED_PRECONDITION
    await process.publish("b", batch=2, sender=8)  # another proxy's
    subscriber = await Subscriber(process, 11).attached()
    assert await subscriber.read_all() == ["a", "b"]
    assert chain.duplicates.duplicates == 0


@simulated
async def test_what_waits_for_its_topic_is_not_stored_either(harness: ChainHarness) -> None:
    process = await harness.opened()
    late = asyncio.ensure_future(process.publish("a", batch=1))
    await asyncio.sleep(0.005)
    await process.void(1)
    with pytest.raises(SyncpointError) as caught:
        await late
    assert caught.value.code is Code.FAILED_PRECONDITION


@simulated
async def test_it_is_answered_when_it_is_persisted(harness: ChainHarness) -> None:
    process = await harness.subscribed()
    await process.publish("a", batch=1)
    process.paused = True
    reporting = [asyncio.ensure_future(process.void(1)) for _ in range(2)]
    await asyncio.sleep(0.5)
    assert not any(one.done() for one in reporting)
    process.paused = False
    one, other = await asyncio.gather(*reporting)
    assert one == other
    assert one.messages == 1


@simulated
async def test_a_subscription_begun_later_does_not_count(harness: ChainHarness) -> None:
    process = await harness.opened()
    await process.publish("a", batch=1)
    await harness.subscribe()
    found = await process.void(1)
    assert (found.batches, found.messages, found.late) == (1, 1, 0)


@simulated
async def test_a_chain_that_is_not_here_can_not_be_reported(harness: ChainHarness) -> None:
    process = harness.process()
    with pytest.raises(SyncpointError) as caught:
        await process.void(1)
    assert caught.value.code is Code.UNAVAILABLE


@pytest.mark.parametrize("seed", range(12))
@simulated
async def test_whatever_happens_nothing_else_is_void_and_what_is_void_in_time_is_not_delivered(
    harness: ChainHarness, *, seed: int
) -> None:
    """Batches come, are said to be void (before they come, too), are read; owners die and others adopt."""
    chance = SeededRandom(seed)
    process = await harness.opened("f0")
    await harness.subscribe()
    subscriber = await Subscriber(process, 11).attached()
    stored: dict[int, list[str]] = {}  # what was confirmed, by batch
    read: set[str] = set()
    handed: set[str] = set()  # by the owner of now
    void: set[int] = set()
    in_time: set[str] = set()
    found = 0
    for turn in range(60):
        match chance.randrange(0, 8):
            case 0 | 1 | 2:
                batch, data = turn + 1, [f"{turn}-{one}" for one in range(chance.randrange(1, 4))]
                if batch in void:
                    with pytest.raises(SyncpointError):
                        await process.publish(*data, batch=batch)
                else:
                    await process.publish(*data, batch=batch)
                    stored[batch] = data
            case 3 | 4:
                batches = {chance.randrange(1, turn + 5) for _ in range(2)}
                fresh = {one for one in batches if one in stored and one not in void}
                answer = await process.void(*sorted(batches))
                known = sum(len(stored[one]) for one in batches if one in stored)
                # Of one that was void before, nothing may be left.
                assert sum(len(stored[one]) for one in fresh) <= answer.messages <= known
                late = sum(one in handed for batch in fresh for one in stored[batch])
                if fresh == batches & stored.keys():
                    assert (answer.late > 0) == (late > 0)
                in_time |= {one for batch in fresh for one in stored[batch] if one not in read}
                found += sum(len(stored[one]) for one in fresh)
                void |= batches
            case 5 | 6:
                alive = process.host.chains[1].holders.grants.open_sources(SUB_NUMBER)
                got = [one for source in subscriber.granted.keys() & alive for one in await subscriber.read(source)]
                read |= set(got)
                handed |= set(got)
                assert not in_time & set(got)
                kept = {one for batch, data in stored.items() if batch not in void for one in data}
                assert kept <= set(got)
            case _ if turn % 3 == 0:
                await process.crash()
                process = await harness.opened(f"f{turn + 1}")
                subscriber = await Subscriber(process, 11).attached()
                handed = set()
                void &= stored.keys()  # what has not come before its owner died, comes no more
    assert found == 0 or void
