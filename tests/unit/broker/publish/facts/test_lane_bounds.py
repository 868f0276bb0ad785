"""Lanes of a subscription with rules: what starts where, and that a copy is acknowledged by itself."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from syncpoint.base.kernel.acks import AckSet, encode_runs
from syncpoint.base.model.errors import FailedPrecondition, Unavailable
from syncpoint.base.model.lanes import in_lane, place_in
from syncpoint.broker.publish.facts import lane_bounds, records
from syncpoint.broker.publish.facts.ledger import LaneBounds, Ledger, SnapshotState, begun, copy_lanes
from syncpoint.broker.publish.facts.ledgers import AckVerdict, Ledgers
from syncpoint.broker.publish.facts.source import Source
from syncpoint.broker.publish.keep.backlog import unacknowledged
from syncpoint.catalog.metadata.entity_options import (
    MessageRule,
    RuleChange,
    RuleLane,
    SubscriptionOptions,
    changed_rules,
)
from syncpoint.catalog.metadata.records import CREATING, CatalogChange, SeekTarget, Snapshot, Subscription
from tests.kit.chain import SUB_NUMBER, TOPIC, TOPIC_NUMBER, ChainHarness, Process, simulated

MARKED = MessageRule("marked", "1=1", action="SET mark=1")
OTHER = MessageRule("other", "1=1", action="SET mark=2")
PLAIN = MessageRule("plain", "a=1")


def acked(*runs: tuple[int, int, int]) -> AckSet:
    """Ranges of lanes."""
    found = AckSet()
    for lane, begin, end in runs:
        found.add(in_lane(lane, begin), in_lane(lane, end))
    return found


def gaps(ledger: Ledger, source: int, end: int) -> dict[int, list[int]]:
    """What is left of the offsets below `end`, by lane."""
    found = ledger.known(source) or AckSet()
    return {lane: [one for one in range(end) if not found.contains(in_lane(lane, one))] for lane in ledger.lane_numbers}


def test_a_message_is_acknowledged_when_all_copies_are() -> None:
    ledger = Ledger(1, acks={7: acked((0, 0, 9), (2, 0, 4))}, lanes={0: LaneBounds(), 2: LaneBounds()})
    assert ledger.covers(7, 0, 4)
    assert not ledger.covers(7, 0, 5)
    assert ledger.begin_of(7) == 4
    assert gaps(ledger, 7, 6) == {0: [], 2: [4, 5]}


def test_a_lane_is_what_lies_within_its_bounds_in_every_generation() -> None:
    ledger = Ledger(1)
    ledger.merge(Ledger(1, 0, {7: AckSet()}, lanes={0: LaneBounds({}, {7: 3}), 1: LaneBounds({7: 3})}))
    assert gaps(ledger, 7, 5) == {0: [0, 1, 2], 1: [3, 4]}
    ledger.merge(Ledger(1, 1, {7: acked((0, 0, 1))}))
    assert gaps(ledger, 7, 5) == {0: [1, 2], 1: [3, 4]}


def test_of_a_source_opened_later_a_stopped_lane_has_nothing() -> None:
    ledger = Ledger(1, lanes={0: LaneBounds({}, {7: 3}), 1: LaneBounds({7: 3})})
    assert gaps(ledger, 8, 2) == {0: [], 1: [0, 1]}
    assert ledger.stop_of(8, 0) == 0
    ledger.forget(7)
    assert gaps(ledger, 7, 2) == {0: [], 1: [0, 1]}


def test_acknowledgements_of_a_lane_that_is_no_more_do_not_count() -> None:
    ledgers = Ledgers()
    ledgers.take(Ledger(1, lanes={0: LaneBounds(), 5: LaneBounds()}))
    assert ledgers.acknowledge(1, 0, 7, encode_runs([(in_lane(4, 2), 3)])) is AckVerdict.NO_LANE
    assert ledgers.acknowledge(1, 0, 7, encode_runs([(in_lane(4, 2), 3), (in_lane(5, 1), 1)])) is AckVerdict.COUNTS
    assert list(ledgers[1].of(7).runs()) == [(in_lane(5, 1), 1)]


def test_a_copied_lane_has_the_rest_of_several() -> None:
    acks = acked((0, 0, 5), (1, 2, 3), (1, 5, 9))
    copy_lanes(acks, (0, 1), 3, 8)
    found = Ledger(1, acks={7: acks}, lanes={lane: LaneBounds() for lane in (0, 1, 3)})
    assert gaps(found, 7, 10) == {0: [5, 6, 7, 8, 9], 1: [0, 1, 3, 4, 9], 3: [0, 1, 3, 4, 5, 6, 7, 8, 9]}


def test_lanes_come_back_as_they_were_written() -> None:
    bounds = {0: LaneBounds({}, {7: 3}), 2: LaneBounds({7: 3}), 9: LaneBounds({7: 0, 8: 1 << 39}, {})}
    again, _ = records.decode_ledger(records.encode_ledger(Ledger(1, 2, {7: acked((2, 0, 3))}, {7: 1}, 5, bounds)))
    assert (again.lanes, again.start, list(again.acks[7].runs())) == (bounds, {7: 1}, [(in_lane(2, 0), 3)])
    state, _ = records.decode_snapshot(records.encode_snapshot(SnapshotState(4, {7: acked((1, 0, 2))}, (0, 1))))
    assert (state.lanes, list(state.acks[7].runs())) == ((0, 1), [(in_lane(1, 0), 2)])


def test_a_snapshot_keeps_what_waits_in_any_lane() -> None:
    state = SnapshotState(4, {7: acked((0, 0, 9), (1, 0, 2))}, (0, 1))
    assert state.covers(7, 0, 2)
    assert not state.covers(7, 0, 3)


def record(*changes: RuleChange, revision: int = 10) -> Subscription:
    options = SubscriptionOptions()
    for at, change in enumerate(changes):
        options = changed_rules(options, change, revision + at)
    return Subscription(1, "projects/p/subscriptions/s", TOPIC_NUMBER, TOPIC, created_revision=2, options=options)


def sources(*revisions: int) -> list[Source]:
    return [Source(number, TOPIC_NUMBER, end=4, visible=4, revision=at) for number, at in enumerate(revisions, 7)]


def test_a_changed_plain_set_takes_up_where_the_old_one_stops() -> None:
    """All at once, in a source from before, one from between the changes, and one that knew both."""
    first = RuleChange((PLAIN,))
    second = RuleChange((), ("plain",))
    ledger = lane_bounds.state_of(begun(1, 0, {}), record(first, second), sources(3, 10, 11))
    found = [gaps(ledger, one, 5) for one in (7, 8, 9)]
    assert [[lane for lane in one if 0 in one[lane]] for one in found] == [[0], [1], [2]]
    assert [[lane for lane in one if 4 in one[lane]] for one in found] == [[2], [2], [2]]


def test_a_lane_that_is_missed_is_made_for_the_one_that_copies_it() -> None:
    """Acknowledged of lane 0 are 0 and 1. Lane 1 copies it, and is dropped for lane 2 while the chain had no owner."""
    changes = RuleChange((MARKED,), to_all=True), RuleChange((MARKED._replace(action="SET mark=3"),), to_all=True)
    before = Ledger(1, acks={7: acked((0, 0, 2))})
    ledger = lane_bounds.state_of(before, record(*changes), sources(3))
    assert gaps(ledger, 7, 5) == {0: [2, 3, 4], 2: [2, 3, 4]}
    assert lane_bounds.is_followed(ledger, record(*changes))


# -- in a chain --------------------------------------------------------------------------------------------------------


def test_a_dropped_lane_that_recovery_brought_back_says_nothing_beside_its_copy() -> None:
    """Lane 1 copied lane 0, and all is acknowledged in it. Lane 2 copies what both of them have left."""
    found = record(RuleChange((PLAIN,), to_all=True), RuleChange((PLAIN._replace(sql="a=2"),), to_all=True))
    before = Ledger(1, acks={7: acked((0, 0, 1), (1, 0, 4))}, lanes={0: LaneBounds(), 1: LaneBounds()})
    assert gaps(lane_bounds.state_of(before, found, sources(3)), 7, 5) == {2: [4]}


def record_of(harness: ChainHarness) -> Subscription:
    known = harness.master.subscription_by_incarnation(SUB_NUMBER)
    assert known is not None
    return known


async def change(harness: ChainHarness, *rules: MessageRule, to_all: bool = False) -> tuple[RuleLane, ...]:
    options = changed_rules(record_of(harness).options, RuleChange(rules, to_all=to_all), harness.master.revision + 1)
    await harness.confirm(harness.update(options=options))
    return options.lanes


async def fetched(process: Process, source: int, lane: int) -> list[int]:
    """Offsets that a chain hands out."""
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    server = process.host.chains[1].forwarder.server
    server.fetch(SUB_NUMBER, source, in_lane(lane, 0), 1 << 20, answer.set_result)
    found = []
    batches = await answer
    if isinstance(batches, Exception):
        raise batches
    for batch in batches:
        for place in range(batch.begin, batch.end):
            at = place - batch.first_offset
            if not (batch.skip and batch.skip[at >> 3] >> (at & 7) & 1):
                assert place_in(place)[0] == lane
                found.append(place_in(place)[1])
    return found


async def acknowledge(process: Process, source: int, lane: int, *offsets: int) -> Exception | None:
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    runs = encode_runs([(in_lane(lane, one), 1) for one in offsets])
    process.host.chains[1].forwarder.server.acknowledge(SUB_NUMBER, 0, source, runs, answer.set_result, urgent=True)
    return await answer


@simulated
async def test_an_acknowledged_copy_says_nothing_of_another_one(harness: ChainHarness) -> None:
    process = await harness.subscribed()
    await process.publish("a")
    await change(harness, MARKED, OTHER)
    await process.publish("b", "c")
    (source,) = process.host.chains[1].forwarder.sources.of_topic(TOPIC_NUMBER)
    assert [await fetched(process, source.number, lane) for lane in (0, 1, 2)] == [[0, 1, 2], [1, 2], [1, 2]]
    assert await acknowledge(process, source.number, 1, 1, 2) is None
    second = await harness.succeeded(process)
    assert [await fetched(second, source.number, lane) for lane in (0, 1, 2)] == [[0, 1, 2], [], [1, 2]]
    assert unacknowledged(second.host.chains[1].forwarder, record_of(harness)) == 5


@simulated
async def test_a_dropped_lane_hands_nothing_out_and_takes_no_acknowledgement(harness: ChainHarness) -> None:
    process = await harness.subscribed()
    await change(harness, MARKED)
    await process.publish("a")
    await change(harness, MARKED._replace(action="SET mark=3"), to_all=True)
    (source,) = process.host.chains[1].forwarder.sources.of_topic(TOPIC_NUMBER)
    assert [await fetched(process, source.number, lane) for lane in (0, 1, 2)] == [[0], [], [0]]
    assert isinstance(await acknowledge(process, source.number, 1, 0), FailedPrecondition)


@simulated
async def test_what_is_void_is_acknowledged_in_all_lanes(harness: ChainHarness) -> None:
    process = await harness.subscribed()
    await change(harness, MARKED, OTHER)
    await process.publish("a", "b", batch=4)
    (source,) = process.host.chains[1].forwarder.sources.of_topic(TOPIC_NUMBER)
    assert (await process.void(4)).messages == 2
    assert [await fetched(process, source.number, lane) for lane in (0, 1, 2)] == [[], [], []]


@simulated
async def test_a_change_is_served_once_it_is_persisted(harness: ChainHarness) -> None:
    process = await harness.subscribed()
    await process.publish("a")
    (source,) = process.host.chains[1].forwarder.sources.of_topic(TOPIC_NUMBER)
    process.paused = True
    options = changed_rules(record_of(harness).options, RuleChange((MARKED,)), harness.master.revision + 1)
    revision = harness.update(options=options)
    with pytest.raises(Unavailable, match="not persisted yet"):
        await fetched(process, source.number, 0)
    process.paused = False
    await harness.confirm(revision)
    assert await fetched(process, source.number, 0) == [0]
    with pytest.raises(Unavailable, match="not known here yet"):
        await fetched(process, source.number, 7)


@simulated
async def test_a_seek_to_a_snapshot_gives_a_later_copy_what_the_snapshot_had(harness: ChainHarness) -> None:
    process = await harness.subscribed()
    await process.publish("a", "b", "c")
    (source,) = process.host.chains[1].forwarder.sources.of_topic(TOPIC_NUMBER)
    await acknowledge(process, source.number, 0, 0)
    kept = Snapshot(
        30, "projects/p/snapshots/n", TOPIC_NUMBER, TOPIC, expire_ns=1 << 62, status=CREATING, subscription=SUB_NUMBER,
        generation=0,
    )  # fmt: skip
    await harness.confirm(harness.commit(CatalogChange.put(kept)))
    await acknowledge(process, source.number, 0, 1, 2)
    await change(harness, MARKED, to_all=True)
    await change(harness, OTHER)
    await process.publish("d")
    await harness.confirm(harness.update(generation=1, target=SeekTarget(snapshot=30)))
    assert [await fetched(process, source.number, lane) for lane in (0, 1, 2)] == [[1, 2, 3], [1, 2, 3], [3]]


@simulated
async def test_a_seek_to_the_snapshot_of_another_subscription_gives_all_lanes_what_that_one_had_left(
    harness: ChainHarness,
) -> None:
    """Numbers of lanes are a subscription's own."""
    process = await harness.subscribed()
    await change(harness, MARKED)
    await process.publish("a", "b", "c")
    (source,) = process.host.chains[1].forwarder.sources.of_topic(TOPIC_NUMBER)
    await acknowledge(process, source.number, 0, 0, 1)
    await acknowledge(process, source.number, 1, 0, 2)
    kept = Snapshot(
        30, "projects/p/snapshots/n", TOPIC_NUMBER, TOPIC, expire_ns=1 << 62, status=CREATING, subscription=SUB_NUMBER,
        generation=0,
    )  # fmt: skip
    await harness.confirm(harness.commit(CatalogChange.put(kept)))
    other = replace(record_of(harness), incarnation=SUB_NUMBER + 1, name="projects/p/subscriptions/other")
    await harness.confirm(harness.commit(CatalogChange.put(other)))
    moved = replace(other, generation=1, target=SeekTarget(snapshot=30))
    await harness.confirm(harness.commit(CatalogChange.put(moved)))
    ledger = process.host.chains[1].forwarder.ledgers[SUB_NUMBER + 1]
    for lane in (0, 1):
        assert ledger.first_gap(source.number, in_lane(lane, 0)) == in_lane(lane, 1)
        assert not ledger.of(source.number).covers(in_lane(lane, 2), in_lane(lane, 3))


@simulated
async def test_a_message_is_kept_until_its_last_copy_is_acknowledged(harness: ChainHarness) -> None:
    process = await harness.subscribed()
    await change(harness, MARKED)
    await process.publish("a", "b")
    (source,) = process.host.chains[1].forwarder.sources.of_topic(TOPIC_NUMBER)
    await acknowledge(process, source.number, 0, 0, 1)
    second = await harness.succeeded(process)
    await asyncio.sleep(10)
    assert await fetched(second, source.number, 1) == [0, 1]
    await acknowledge(second, source.number, 1, 0, 1)
    await asyncio.sleep(10)
    assert not second.host.chains[1].forwarder.sources.of_topic(TOPIC_NUMBER)


@simulated
async def test_a_lane_that_a_chain_does_not_know_yet_is_not_taken_for_an_empty_one(harness: ChainHarness) -> None:
    process = await harness.subscribed()
    await process.publish("a")
    (source,) = process.host.chains[1].forwarder.sources.of_topic(TOPIC_NUMBER)
    process.shared.held = True
    options = changed_rules(record_of(harness).options, RuleChange((MARKED,), to_all=True), harness.master.revision + 1)
    harness.update(options=options)
    with pytest.raises(Unavailable, match="not known here yet"):
        await fetched(process, source.number, 1)
    process.shared.held = False
    process.shared.catch_up()
    await asyncio.sleep(0.1)
    assert await fetched(process, source.number, 1) == [0]


@simulated
async def test_rules_changed_for_all_while_a_chain_is_away_bring_nothing_back(harness: ChainHarness) -> None:
    """What is read back of the log has lanes again that were dropped; what their copies acknowledged counts."""
    process = await harness.subscribed()
    await process.publish("a", "b")
    first = await change(harness, PLAIN, to_all=True)
    (source,) = process.host.chains[1].forwarder.sources.of_topic(TOPIC_NUMBER)
    await process.publish("c")
    assert await fetched(process, source.number, first[-1].number) == [0, 1, 2]
    assert await acknowledge(process, source.number, first[-1].number, 0, 1, 2) is None
    await process.crash()
    second = RuleChange((PLAIN._replace(sql="a=2"),), to_all=True)
    options = changed_rules(record_of(harness).options, second, harness.master.revision + 1)
    assert options.lanes[-1].copy_of == (0, first[-1].number)
    harness.update(options=options)
    assert await fetched(await harness.opened(), source.number, options.lanes[-1].number) == []
