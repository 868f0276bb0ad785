"""What a node does by the clock: deletes what has run out, writes checkpoints, notices disks, outlives faults."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace

import pytest

from syncpoint.metadata.records import CatalogChange
from syncpoint.node.upkeep import Upkeep
from syncpoint.publish import upkeep
from syncpoint.publish.upkeep import LogUpkeep, Rounds
from syncpoint.storage.record import EntryKind
from syncpoint.testing.forwarder_harness import SUB, TOPIC
from syncpoint.testing.servicer_harness import ServicerHarness, simulated

DAY = 86_400
START_NS = 1_700_000_000 * 10**9  # what the clock of these worlds shows first
SNAP = "projects/p/snapshots/snap"


def count(world: ServicerHarness, kind: EntryKind) -> int:
    return sum(entry.kind == kind for entry in world.store.entries)


async def passes(world: ServicerHarness, seconds: float) -> None:
    """So much time at once, and some more to notice it."""
    world.clock.advance(seconds)
    await asyncio.sleep(91)


async def checkpointed(world: ServicerHarness) -> None:
    """Until the checkpoint of the start is over."""
    while world.upkeep.log.overdue or world.upkeep.log.checkpoint is not None:
        await asyncio.sleep(0.1)


# -- what runs out -----------------------------------------------------------------------------------------------------


@simulated()
async def test_expired_snapshots_are_deleted_with_what_only_they_kept(world: ServicerHarness) -> None:
    await world.put("a")
    await world.call("CreateSnapshot", name=SNAP, subscription=SUB)
    (got,) = await world.pull()
    await world.call("Acknowledge", subscription=SUB, ack_ids=[got.ack_id])
    await passes(world, 6.9 * DAY)
    assert world.control.catalog.snapshot(SNAP) is not None
    assert world.store.bounds(1 << 24) is not None
    await passes(world, 0.2 * DAY)
    assert world.control.catalog.snapshot(SNAP) is None
    assert world.store.bounds(1 << 24) is None
    await world.crash()
    assert world.control.catalog.snapshot(SNAP) is None


@simulated(expiration_s=3600)
async def test_subscriptions_nobody_uses_are_deleted(world: ServicerHarness) -> None:
    await world.call("CreateSubscription", name="projects/p/subscriptions/kept", topic=TOPIC)
    for _ in range(3):  # use begins the time anew
        await passes(world, 2900)
        assert not await world.pull(timeout=2.0)
    stream = await world.stream()  # and whoever listens uses it
    await passes(world, 7100)
    assert world.control.catalog.subscription(SUB) is not None
    stream.raw.cancel()
    await asyncio.sleep(0.2)
    await passes(world, 3400)
    assert world.control.catalog.subscription(SUB) is not None
    await passes(world, 300)
    assert world.control.catalog.subscription(SUB) is None
    assert world.control.catalog.subscription("projects/p/subscriptions/kept") is not None
    assert 2 not in world.subscribe.used
    assert 2 not in world.publish.ledgers


@simulated(expiration_s=3600, created_ns=START_NS)
async def test_a_start_does_not_begin_the_time_of_subscriptions_anew(world: ServicerHarness) -> None:
    """What was noted counts, with the hour that may not have been noted on top."""
    for _ in range(4):
        await passes(world, 1700)
        assert world.control.catalog.subscription(SUB) is not None
        await world.crash()
    await passes(world, 800)
    assert world.control.catalog.subscription(SUB) is None


@simulated(expiration_s=3600, created_ns=START_NS)
async def test_the_last_use_of_an_earlier_life_counts(world: ServicerHarness) -> None:
    await passes(world, 3000)
    assert not await world.pull(timeout=2.0)
    await world.crash()
    await passes(world, 3500)
    await world.crash()
    await passes(world, 3400)
    assert world.control.catalog.subscription(SUB) is not None
    await passes(world, 400)
    assert world.control.catalog.subscription(SUB) is None


@simulated(expiration_s=86_400, created_ns=START_NS)
async def test_a_clock_that_is_wrong_for_a_while_deletes_nothing(world: ServicerHarness) -> None:
    await world.put("a")
    await world.call("CreateSnapshot", name=SNAP, subscription=SUB)
    now = world.clock.time_ns()
    world.clock.set_time_ns(now + 90 * DAY * 10**9)
    for _ in range(2):
        await asyncio.sleep(3600)
        assert world.control.catalog.snapshot(SNAP) is not None
        assert world.control.catalog.subscription(SUB) is not None
        assert world.store.bounds(1 << 24) is not None
        await world.crash()  # it is wrong from the start
    world.clock.set_time_ns(now + 3 * 3600 * 10**9)
    assert [one.message.data for one in await world.pull()] == [b"a"]


@simulated(retention_s=600)
async def test_what_was_published_while_the_clock_was_behind_is_kept_for_its_time(world: ServicerHarness) -> None:
    await asyncio.sleep(2 * 3600)
    await world.crash()
    now = world.clock.time_ns()
    world.clock.set_time_ns(now - 8 * DAY * 10**9)
    await world.crash()
    await world.put("in the past")
    await asyncio.sleep(60)
    world.clock.set_time_ns(now + 60 * 10**9)
    await asyncio.sleep(60)
    (got,) = await world.pull()
    assert got.message.data == b"in the past"
    assert abs(got.message.publish_time.ToNanoseconds() - now) < 3600 * 10**9


@simulated()
async def test_who_used_a_deleted_subscription_is_forgotten(world: ServicerHarness) -> None:
    await world.pull(timeout=1.0)
    assert world.subscribe.used
    await asyncio.sleep(1)
    await world.call("DeleteSubscription", subscription=SUB)
    await asyncio.sleep(91)
    assert not world.subscribe.used


# -- checkpoints -------------------------------------------------------------------------------------------------------


@simulated()
async def test_checkpoints_begin_by_time_and_only_with_news(world: ServicerHarness) -> None:
    await checkpointed(world)
    assert count(world, EntryKind.CHECKPOINT_END) == 1
    await asyncio.sleep(200)
    assert count(world, EntryKind.CHECKPOINT_END) == 1
    await world.put("x")
    await asyncio.sleep(1)
    assert count(world, EntryKind.CHECKPOINT_END) == 2
    await world.put("x")
    await asyncio.sleep(25)
    assert count(world, EntryKind.CHECKPOINT_END) == 2
    await asyncio.sleep(10)
    assert count(world, EntryKind.CHECKPOINT_END) == 3


@pytest.mark.parametrize(("name", "bound"), [("CHECKPOINT_ENTRIES", 20), ("CHECKPOINT_BYTES", 20_000)])
def test_checkpoints_begin_by_entries_and_by_bytes(monkeypatch: pytest.MonkeyPatch, name: str, bound: int) -> None:
    monkeypatch.setattr(upkeep, name, bound)

    @simulated()
    async def run(world: ServicerHarness) -> None:
        await checkpointed(world)
        for expected in (1, 2):
            for _ in range(15):
                assert count(world, EntryKind.CHECKPOINT_BEGIN) == expected
                await world.put("x" * 1000)
            for _ in range(15):
                await world.put("x" * 1000)
            await asyncio.sleep(1)
        assert count(world, EntryKind.CHECKPOINT_END) == 3

    run()


def lose_parts(world: ServicerHarness, parts: int) -> None:
    """Let each step of a checkpoint write only so many parts."""
    begin = world.store.checkpoint

    def slowly(found):  # type: ignore[no-untyped-def]
        checkpoint = begin(found)
        step = checkpoint.step
        checkpoint.step = lambda max_bytes=parts: step(parts)  # type: ignore[method-assign]
        return checkpoint

    world.store.checkpoint = slowly  # type: ignore[method-assign]


@simulated(retain_acked=True)
async def test_a_crash_in_the_middle_of_a_checkpoint_loses_nothing(world: ServicerHarness) -> None:
    """Crash after every step; meanwhile the catalog and the acknowledgements change."""
    for number in range(30):
        await world.call("CreateTopic", name=f"projects/p/topics/topic-{number}")
        await world.call("CreateSubscription", name=f"projects/p/subscriptions/s-{number}", topic=TOPIC)
    await world.put(*map(str, range(20)))
    acked: set[str] = set()
    for steps in range(8):
        monkey = pytest.MonkeyPatch()
        monkey.setattr("syncpoint.metadata.catalog.PART_BYTES_MAX", 500)
        monkey.setattr("syncpoint.publish.records.BUNDLE_BYTES", 100)
        await world.crash()
        lose_parts(world, 1)
        before = count(world, EntryKind.CHECKPOINT_PART)
        while count(world, EntryKind.CHECKPOINT_PART) < before + steps:
            await asyncio.sleep(0.1)
        (got,) = await world.pull(1)
        await world.call("Acknowledge", subscription=SUB, ack_ids=[got.ack_id])
        acked.add(got.message.data.decode())
        await world.call("CreateTopic", name=f"projects/p/topics/more-{steps}")
        await world.call("DeleteTopic", topic=f"projects/p/topics/topic-{steps}")
        monkey.undo()
        await world.crash()
        assert world.control.catalog.counts() == (31, 31, 0)
        state = await world.call("GetSubscriptionState", subscription=SUB)
        assert state.backlog_messages == 20 - len(acked)
    got = await world.pull()
    assert {one.message.data.decode() for one in got} == set(map(str, range(20))) - acked


@simulated()
async def test_what_happens_while_a_checkpoint_is_written_is_in_it_or_behind_it(world: ServicerHarness) -> None:
    await world.put("a", "b", "c")
    got = await world.pull()
    await checkpointed(world)
    lose_parts(world, 1)
    world.upkeep.log.overdue = True
    await asyncio.sleep(0.25)
    assert world.upkeep.log.checkpoint is not None
    await world.call("Acknowledge", subscription=SUB, ack_ids=[got[0].ack_id])
    world.commit(CatalogChange.put(replace(world.record, ack_deadline_s=77)))
    await world.call("CreateTopic", name="projects/p/topics/new")
    await world.put("x", topic="projects/p/topics/new")
    await checkpointed(world)
    ends = count(world, EntryKind.CHECKPOINT_END)
    await world.crash()
    assert count(world, EntryKind.CHECKPOINT_END) == ends == 2
    assert world.record.ack_deadline_s == 77
    assert sorted(one.message.data for one in await world.pull()) == [b"b", b"c"]


@simulated()
async def test_a_checkpoint_that_breaks_is_begun_anew_after_a_while_and_not_at_once(world: ServicerHarness) -> None:
    await checkpointed(world)
    inner = world.upkeep.log._parts

    def broken() -> Iterator[bytes]:
        yield next(inner())
        raise RuntimeError("broken")

    world.upkeep.log._parts = broken
    world.upkeep.log.overdue = True
    before = len(world.store.entries)
    await asyncio.sleep(60)
    assert len(world.store.entries) - before <= 3 * 2, "what there is of each stays in the log"
    world.upkeep.log._parts = inner
    ends = count(world, EntryKind.CHECKPOINT_END)
    await checkpointed(world)
    assert count(world, EntryKind.CHECKPOINT_END) == ends + 1


@simulated()
async def test_the_last_checkpoint_makes_the_next_start_short(world: ServicerHarness) -> None:
    await world.put("a")
    world.upkeep.log.last_checkpoint()
    await asyncio.sleep(0.01)
    await world.crash()
    assert world.memory.checkpointed
    assert world.memory.facts == 0
    assert [one.message.data for one in await world.pull()] == [b"a"]


@simulated()
async def test_a_start_that_read_nothing_new_writes_no_checkpoint(world: ServicerHarness) -> None:
    await checkpointed(world)
    parts, now = world.follower.checkpoint_parts, world.clock.monotonic()
    log = LogUpkeep(world.store, world.publish, parts, now, begin_with_checkpoint=False)  # type: ignore[arg-type]
    rounds = Rounds(world.clock, lambda: [log], lambda: [log])
    quiet = Upkeep(log, rounds, world.subscribe, world.control, world.mirror, world.clock)
    quiet.log._checkpointed = world.store.appended
    await world.upkeep.stop()
    before = count(world, EntryKind.CHECKPOINT_BEGIN)
    rounds.start()
    await asyncio.sleep(100)
    assert count(world, EntryKind.CHECKPOINT_BEGIN) == before
    await world.put("x")
    await asyncio.sleep(1)
    assert count(world, EntryKind.CHECKPOINT_BEGIN) == before + 1
    await quiet.stop()


# -- the rest ----------------------------------------------------------------------------------------------------------


def test_what_becomes_of_disks_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "syncpoint.publish")

    @simulated()
    async def run(world: ServicerHarness) -> None:
        for state, reason in (("failed", "I/O error"), ("healing", ""), ("ok", "")):
            world.store.state = replace(world.store.state, state=state, reason=reason)
            await asyncio.sleep(10)
        assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING", "INFO"]
        assert "disk memory is failed: I/O error" in caplog.text

    run()


def test_damage_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "syncpoint.publish")

    @simulated()
    async def run(world: ServicerHarness) -> None:
        for damaged in (("segment 1/1: frame at 64: checksum",), ("segment 1/1: frame at 64: checksum", "segment 1/2")):
            world.store.state = replace(world.store.state, damaged=damaged)
            await asyncio.sleep(10)
        assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
        assert "disk memory is damaged, what is lost there cannot be delivered: segment 1/1" in caplog.text

    run()


def test_a_failing_step_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    @simulated()
    async def run(world: ServicerHarness) -> None:
        def broken() -> None:
            raise RuntimeError("broken")

        world.mirror.flush = broken  # type: ignore[method-assign]
        await world.put("a")
        await world.pull()
        assert len(await world.pull(timeout=None)) == 1  # leases still expire
        assert "upkeep step failed" in caplog.text

    run()


@simulated()
async def test_failed_disks_end_checkpoints_and_deletion(world: ServicerHarness) -> None:
    await world.put("a")
    world.store.fail(OSError("no disk left"))
    entries = len(world.store.entries)
    await asyncio.sleep(200)
    world.upkeep.log.last_checkpoint()
    assert len(world.store.entries) == entries
    assert world.store.bounds(1 << 24) is not None


@simulated()
async def test_sources_of_earlier_lives_are_forgotten_with_their_messages(world: ServicerHarness) -> None:
    for _ in range(5):
        await world.put("a")
        await world.crash()
    assert len(world.publish.sources.by_number) == 5
    await world.call("Seek", subscription=SUB, time={"seconds": 4_000_000_000})
    await asyncio.sleep(2)
    assert not world.publish.sources.by_number
    assert not any(ledger.acks for ledger in world.publish.ledgers.values())


@simulated()
async def test_acknowledged_messages_go_although_the_clock_to_delete_by_is_behind_their_time(
    world: ServicerHarness,
) -> None:
    """As it is after a pause, until it has run for as long again."""
    await asyncio.sleep(400)
    await world.close()  # the time that was reached is noted
    world.clock.advance(3000)
    world.restart()
    for _ in range(3):
        await world.put("a")
        (got,) = await world.pull()
        await world.call("Acknowledge", subscription=SUB, ack_ids=[got.ack_id])
        assert world.publish.clock.sure_ns() < world.clock.time_ns() - 2000 * 10**9
        await world.crash()
    assert len(world.publish.sources.by_number) == 3
    await asyncio.sleep(2)
    assert not world.publish.sources.by_number
    assert not list(world.store.sources())


async def killed(world: ServicerHarness) -> None:
    """A crash that leaves no time to note anything."""
    world.upkeep.rounds.tasks.cancel()
    await world.channel.close()
    world.restart()


@simulated()
async def test_lives_that_are_killed_get_on_with_the_time_to_delete_by(world: ServicerHarness) -> None:
    topic = world.control.catalog.topic(TOPIC)
    assert topic is not None
    world.commit(CatalogChange.put(replace(topic, retention_s=600)))
    await asyncio.sleep(400)
    await world.put("a")
    (got,) = await world.pull()
    await world.call("Acknowledge", subscription=SUB, ack_ids=[got.ack_id])
    for _ in range(8):
        for _ in range(7):
            await world.put("b")
            await asyncio.sleep(20)
        await killed(world)
        assert world.clock.time_ns() - world.publish.clock.sure_ns() < 60 * 10**9
    await asyncio.sleep(2)
    assert world.store.bounds(1 << 24) == (1, 8), "the retention of the first is over, nobody acknowledged the others"


@simulated()
async def test_nothing_is_noted_where_nothing_happens(world: ServicerHarness) -> None:
    await asyncio.sleep(500)
    before = len(world.store.entries)
    await asyncio.sleep(3000)
    assert len(world.store.entries) == before


@simulated()
async def test_lives_that_end_as_soon_as_they_serve_leave_a_few_logs_and_no_more(world: ServicerHarness) -> None:
    for _ in range(60):
        await world.upkeep.catch_up()
        await world.put("a")
        await world.call("Seek", subscription=SUB, time={"seconds": 4_000_000_000})
        await world.crash()
        assert world.store.uncovered_logs <= upkeep.UNCOVERED_LOGS_MAX + 1
        assert world.store.earlier_logs <= upkeep.EARLIER_LOGS_MAX + 1
    assert not await world.pull(timeout=2.0)


@simulated()
async def test_a_start_waits_for_deletion_only_where_much_is_left_and_only_a_moment(world: ServicerHarness) -> None:
    async def waited() -> float:
        began = world.clock.monotonic()
        await world.upkeep.catch_up()
        return world.clock.monotonic() - began

    for _ in range(upkeep.EARLIER_LOGS_MAX + 1):
        assert not await waited()
        await world.put("a")  # nobody acknowledges it
        world.upkeep.log.last_checkpoint()
        await asyncio.sleep(0.01)
        await world.crash()
    assert 0.4 < await waited() < 0.6
    assert len(await world.pull()) == upkeep.EARLIER_LOGS_MAX + 1


@simulated()
async def test_deletion_is_quick_behind_a_start_and_a_checkpoint_and_slow_later(world: ServicerHarness) -> None:
    """A life of a few seconds has to get round all segments, or lives would leave theirs behind for ever."""
    steps, collect = 0, world.store.collect

    def counted(*asked):  # type: ignore[no-untyped-def]
        nonlocal steps
        steps += 1
        return collect(*asked)

    world.store.collect = counted  # type: ignore[method-assign]
    for wait_s, least, most in ((0, 40, 60), (10, 9, 11)):
        await asyncio.sleep(wait_s)
        before = steps
        await asyncio.sleep(1)
        assert least <= steps - before <= most
    world.upkeep.log.overdue = True
    await checkpointed(world)
    before = steps
    await asyncio.sleep(1)
    assert 40 <= steps - before <= 60


@simulated(retention_s=600)
async def test_a_snapshots_messages_are_there_when_it_is_sought_however_short_the_retention_is(
    world: ServicerHarness,
) -> None:
    await world.put("a")
    await world.call("CreateSnapshot", name=SNAP, subscription=SUB)
    (got,) = await world.pull()
    await world.call("Acknowledge", subscription=SUB, ack_ids=[got.ack_id])
    await passes(world, DAY)
    await world.call("Seek", subscription=SUB, snapshot=SNAP)
    await world.call("DeleteSnapshot", snapshot=SNAP)
    await asyncio.sleep(91)
    await world.crash()
    (again,) = await world.pull()
    assert again.message.data == b"a"
