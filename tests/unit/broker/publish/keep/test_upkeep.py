"""What a chain forgets once nothing is left of it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from syncpoint.base.kernel.acks import encode_runs
from syncpoint.broker.publish.facts.scheduled import Scheduled
from tests.kit.chain import SUB_NUMBER, TOPIC_NUMBER, ChainHarness, simulated
from tests.kit.chain_subscriber import Subscriber


@simulated
async def test_a_topic_of_which_nothing_is_left_is_forgotten_and_may_come_back(harness: ChainHarness) -> None:
    process = harness.process()
    chain = await process.open()
    await harness.subscribe()
    await process.publish("a")
    subscriber = await Subscriber(process, 11).attached()
    (source,) = subscriber.granted
    await subscriber.ack(source, (0, 1))
    await process.outgrow()
    await asyncio.sleep(200)
    assert harness.registered <= {(9, 1)}
    assert chain.forwarder.ledgers == {}
    assert not (await subscriber.ack(source, (0, 1), grant=1)).error
    await process.publish("b")
    assert (TOPIC_NUMBER, 1) in harness.registered
    await asyncio.sleep(0.1)
    assert await subscriber.read_all() == ["b"]


@simulated
async def test_who_held_a_source_is_forgotten_with_it(harness: ChainHarness) -> None:
    process = harness.process()
    chain = await process.open()
    await harness.subscribe(ordered=True, exactly_once=True)
    subscriber = await Subscriber(process, 11).attached()
    await process.publish("a")
    await asyncio.sleep(0.1)
    (source,) = subscriber.granted
    await subscriber.ack(source, (0, 1))
    assert list(chain.forwarder.memory.grants) == [(SUB_NUMBER, source)]
    await process.outgrow()
    await asyncio.sleep(100)
    assert source not in chain.forwarder.sources.by_number
    assert chain.forwarder.memory.grants == {}, "every checkpoint names them all"
    assert chain.holders.grants._known == {}
    assert not (await subscriber.ack(source, (0, 1), grant=1 << 32 | 1)).error, "the last holder may say so again"


@simulated
async def test_nothing_is_confirmed_a_second_time_because_its_source_is_gone(harness: ChainHarness) -> None:
    process = harness.process()
    chain = await process.open()
    await harness.subscribe(exactly_once=True)
    first = await Subscriber(process, 11).attached()
    await process.publish("a")
    await asyncio.sleep(0.1)
    ((source, grant),) = first.granted.items()
    first.beating = False  # cut off; its client acknowledges in the meantime, and nobody learns it
    second = await Subscriber(process, 12).attached()
    await asyncio.sleep(8)
    ((_, later),) = second.granted.items()
    assert later != grant
    assert not (await second.ack(source, (0, 1))).error
    assert (await first.ack(source, (0, 1), grant=grant)).error
    await process.outgrow()
    await asyncio.sleep(100)
    assert chain.has_had(source)
    assert (await first.ack(source, (0, 1), grant=grant)).error
    assert not (await second.ack(source, (0, 1), grant=later)).error


@simulated
async def test_what_deletion_judges_by_has_its_place_in_the_log(harness: ChainHarness) -> None:
    process = await harness.subscribed()
    await process.publish("a")
    chain = process.host.chains[1]
    (source,) = chain.forwarder.sources.by_number
    before, seen, collect = chain.store.appended, list[int](), chain.store.collect

    def collected(*judged: Any) -> Any:
        seen.append(chain.store.appended - before)
        return collect(*judged)

    chain.store.collect = collected
    chain.forwarder.server.acknowledge(SUB_NUMBER, 0, source, encode_runs([(0, 1)]), lambda error: None, urgent=False)
    chain.upkeep.collect()
    assert seen == [1]


@simulated
async def test_what_is_scheduled_at_rest_is_looked_at_in_time(harness: ChainHarness) -> None:
    process = await harness.subscribed()
    await process.publish("a")
    chain, clock = process.host.chains[1], process.host.context.environment.clock
    (source,) = chain.forwarder.sources.by_number
    await asyncio.sleep(20.03)
    ticks: list[float] = []
    firing, chain.firing = chain.firing, SimpleNamespace(tick=lambda: ticks.append(clock.monotonic()))
    await asyncio.sleep(10)
    assert len(ticks) <= 21, "at rest"
    del ticks[:]
    for after_s in (0.25, 0.45, 3.0):
        due_ns = clock.time_ns() + round(after_s * 1e9)
        due = clock.monotonic() + after_s
        chain.forwarder.scheduled.note(Scheduled(due_ns, source, 0, TOPIC_NUMBER))
        await asyncio.sleep(after_s + 0.5)
        assert min(tick for tick in ticks if tick >= due) <= due + 0.11
        chain.forwarder.scheduled.drop_topic(TOPIC_NUMBER)
        await asyncio.sleep(20.07)
    chain.firing = firing
