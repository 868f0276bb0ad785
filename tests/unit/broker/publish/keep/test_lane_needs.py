"""Which stopped lanes a chain says are empty, and that nothing is lost by removing them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from syncpoint.base.model.errors import FailedPrecondition, Unavailable
from syncpoint.base.runtime.tasks import stop
from syncpoint.catalog.metadata.entity_options import (
    MessageRule,
    RuleChange,
    changed_rules,
    stopped_lanes,
    was_drained,
    without_drained,
)
from syncpoint.catalog.metadata.records import CREATING, CatalogChange, SeekTarget, Snapshot
from tests.kit.chain import SUB_NUMBER, TOPIC, TOPIC_NUMBER, ChainHarness, Process, simulated
from tests.unit.broker.publish.facts.test_lane_bounds import acknowledge, change, fetched, record_of

DAY = 86_400
RULES = [MessageRule("plain", f"a = {number}") for number in range(3)]


async def ruled(harness: ChainHarness, **options: object) -> tuple[Process, int]:
    """Two messages in lane 0, one in lane 1, and lane 2 in force; the source they are in."""
    process = await harness.subscribed(**options)
    await process.publish("a", "b")
    await change(harness, RULES[0])
    await process.publish("c")
    await change(harness, RULES[1])
    (source,) = process.host.chains[1].forwarder.sources.of_topic(TOPIC_NUMBER)
    return process, source.number


async def drained(harness: ChainHarness) -> list[int]:
    await asyncio.sleep(0.3)  # nothing is on its way that would take the answer along
    async with asyncio.timeout(0.2):
        return await harness.owner(1).host.drained(1, SUB_NUMBER)


async def forget(harness: ChainHarness) -> list[int]:
    """As the control plane does it; the lanes that are left."""
    options = without_drained(record_of(harness).options, await drained(harness))
    await harness.confirm(harness.update(options=options))
    return [lane.number for lane in options.lanes]


@simulated
async def test_a_stopped_lane_is_empty_when_all_that_was_published_in_it_is_acknowledged(harness: ChainHarness) -> None:
    process, source = await ruled(harness)
    assert await drained(harness) == []
    await acknowledge(process, source, 0, 1)
    await acknowledge(process, source, 1, 2)
    assert await forget(harness) == [0, 2]
    assert await fetched(process, source, 0) == [0]
    await acknowledge(process, source, 0, 0)
    assert await forget(harness) == [2]
    assert list(process.host.chains[1].forwarder.ledgers[SUB_NUMBER].lanes) == [2]
    await process.publish("d")
    second = await harness.succeeded(process)
    assert [await fetched(second, source, lane) for lane in (0, 1, 2)] == [[], [], [3]]


@simulated
async def test_a_lane_with_nothing_in_it_is_empty_at_once(harness: ChainHarness) -> None:
    await harness.subscribed()
    for rule in RULES:
        await change(harness, rule)
    assert await drained(harness) == [0, 1, 2]
    process = harness.owner(1)
    await process.publish("a")
    assert await forget(harness) == [3]
    assert record_of(harness).options.drained == ((0, 3),)


@simulated
async def test_what_is_acknowledged_and_not_persisted_does_not_count(harness: ChainHarness) -> None:
    process, source = await ruled(harness)
    process.paused = True
    held = [acknowledge(process, source, lane, *which) for lane, which in ((0, (0, 1)), (1, (2,)))]
    tasks = [asyncio.ensure_future(one) for one in [*held, process.host.drained(1, SUB_NUMBER)]]
    done, _ = await asyncio.wait(tasks, timeout=1)
    assert not done
    second = await harness.succeeded(process)
    assert await second.host.drained(1, SUB_NUMBER) == []
    assert await fetched(second, source, 0) == [0, 1]
    assert not any(one.done() for one in tasks)
    await stop(tasks)


@simulated
async def test_a_lane_is_kept_while_a_seek_to_a_time_could_need_it(harness: ChainHarness) -> None:
    process, source = await ruled(harness, retain_acked=True, retention_s=DAY)
    await acknowledge(process, source, 0, 0, 1)
    await acknowledge(process, source, 1, 2)
    assert await drained(harness) == []
    await harness.confirm(harness.update(generation=1, target=SeekTarget(time_ns=0)))
    assert [await fetched(process, source, lane) for lane in (0, 1, 2)] == [[0, 1], [2], []]
    await harness.confirm(harness.update(generation=2, target=SeekTarget(time_ns=1 << 62)))
    harness.clock.advance(DAY + 1)
    assert await drained(harness) == [0, 1]


@simulated
async def test_a_lane_is_kept_while_the_topic_keeps_what_was_published_in_it(harness: ChainHarness) -> None:
    process, source = await ruled(harness)
    topic = harness.master.topic_by_incarnation(TOPIC_NUMBER)
    assert topic is not None
    await harness.confirm(harness.commit(CatalogChange.put(replace(topic, retention_s=DAY))))
    await acknowledge(process, source, 0, 0, 1)
    await acknowledge(process, source, 1, 2)
    assert await drained(harness) == []
    harness.clock.advance(DAY + 1)
    assert await drained(harness) == [0, 1]


@simulated
async def test_a_lane_is_kept_while_a_snapshot_could_need_it(harness: ChainHarness) -> None:
    process, source = await ruled(harness)
    await acknowledge(process, source, 0, 0)
    kept = Snapshot(
        30, "projects/p/snapshots/n", TOPIC_NUMBER, TOPIC, expire_ns=1 << 62, status=CREATING, subscription=SUB_NUMBER,
        generation=0,
    )  # fmt: skip
    await harness.confirm(harness.commit(CatalogChange.put(kept)))
    await acknowledge(process, source, 0, 1)
    await acknowledge(process, source, 1, 2)
    assert await drained(harness) == []
    await harness.confirm(harness.commit(CatalogChange.delete(kept)))
    assert await drained(harness) == [0, 1]


@simulated
async def test_a_lane_is_kept_while_another_subscription_could_be_moved_to(harness: ChainHarness) -> None:
    """A snapshot of that one could be taken at any time, and this one be moved to it."""
    process = await harness.subscribed()
    await harness.subscribe(SUB_NUMBER + 1, "projects/p/subscriptions/slow")
    await process.publish("a")
    await change(harness, RULES[0])
    (source,) = process.host.chains[1].forwarder.sources.of_topic(TOPIC_NUMBER)
    await acknowledge(process, source.number, 0, 0)
    assert await drained(harness) == []
    await harness.confirm(harness.update(SUB_NUMBER + 1, detached=True))
    assert await drained(harness) == [0]


@simulated
async def test_an_acknowledgement_said_again_counts_although_its_lane_is_removed(harness: ChainHarness) -> None:
    """Whoever has an exactly-once subscription would take it for lost else."""
    process, source = await ruled(harness)
    await acknowledge(process, source, 0, 0, 1)
    await acknowledge(process, source, 1, 2)
    assert await forget(harness) == [2]
    assert await acknowledge(process, source, 1, 2) is None
    await change(harness, RULES[2], to_all=True)
    assert isinstance(await acknowledge(process, source, 9, 2), FailedPrecondition)


@simulated
async def test_a_chain_that_has_not_followed_says_nothing(harness: ChainHarness) -> None:
    process = await harness.subscribed()
    await process.publish("a")
    process.shared.held = True
    options = changed_rules(record_of(harness).options, RuleChange((RULES[0],)), harness.master.revision + 1)
    harness.update(options=options)
    assert stopped_lanes(options) == [0]
    assert await drained(harness) == []
    process.shared.held = False
    process.shared.catch_up()
    assert not was_drained(record_of(harness).options, 0)


@simulated
async def test_a_chain_without_an_owner_is_not_asked_in_vain(harness: ChainHarness) -> None:
    process, _ = await ruled(harness)
    await process.host.close(1)
    with pytest.raises(Unavailable):
        await process.host.drained(1, SUB_NUMBER)
