"""What a node does by the clock: deletes what has run out, writes checkpoints, notices disks, outlives faults."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from syncpoint.broker.inner.feed import FeedTerms, open_feed
from syncpoint.broker.inner.lent import Lent
from syncpoint.broker.publish.keep import upkeep
from syncpoint.catalog.metadata.records import CatalogChange
from syncpoint.log.storage.record import EntryKind
from syncpoint.node import uses
from syncpoint.testing.rigs.forwarder_harness import SUB, TOPIC
from syncpoint.testing.rigs.servicer_harness import ServicerHarness, simulated

pytestmark = pytest.mark.shows("expiry")

DAY = 86_400
START_NS = 1_700_000_000 * 10**9  # what the clock of these harnesses shows first
SNAP = "projects/p/snapshots/snap"


def count(harness: ServicerHarness, kind: EntryKind) -> int:
    return sum(entry.kind == kind for entry in harness.store.entries)


async def passes(harness: ServicerHarness, seconds: float) -> None:
    """So much time at once, and some more to notice it."""
    harness.clock.advance(seconds)
    await asyncio.sleep(91)


async def checkpointed(harness: ServicerHarness) -> None:
    """Until the checkpoint of the start is over."""
    while harness.upkeep.log.overdue or harness.upkeep.log.checkpoint is not None:
        await asyncio.sleep(0.1)


@simulated()
async def test_expired_snapshots_are_deleted_with_what_only_they_kept(harness: ServicerHarness) -> None:
    await harness.put("a")
    await harness.call("CreateSnapshot", name=SNAP, subscription=SUB)
    (got,) = await harness.pull()
    await harness.call("Acknowledge", subscription=SUB, ack_ids=[got.ack_id])
    await passes(harness, 6.9 * DAY)
    assert harness.control.catalog.snapshot(SNAP) is not None
    assert harness.store.bounds(1 << 24) is not None
    await passes(harness, 0.2 * DAY)
    assert harness.control.catalog.snapshot(SNAP) is None
    assert harness.store.bounds(1 << 24) is None
    await harness.crash()
    assert harness.control.catalog.snapshot(SNAP) is None


@simulated(expiration_s=3600)
async def test_subscriptions_nobody_uses_are_deleted(harness: ServicerHarness) -> None:
    await harness.call("CreateSubscription", name="projects/p/subscriptions/kept", topic=TOPIC)
    for _ in range(3):  # use begins the time anew
        await passes(harness, 2900)
        assert not await harness.pull(timeout=2.0)
    stream = await harness.stream()  # and whoever listens uses it
    await passes(harness, 7100)
    assert harness.control.catalog.subscription(SUB) is not None
    stream.raw.cancel()
    await asyncio.sleep(0.2)
    await passes(harness, 3400)
    assert harness.control.catalog.subscription(SUB) is not None
    await passes(harness, 300)
    assert harness.control.catalog.subscription(SUB) is None
    assert harness.control.catalog.subscription("projects/p/subscriptions/kept") is not None
    assert 2 not in harness.subscribe.used
    assert 2 not in harness.publish.ledgers


@simulated()
async def test_changes_and_seeks_are_uses(harness: ServicerHarness) -> None:
    sub = "projects/p/subscriptions/made"
    short = {"message_retention_duration": {"seconds": 600}, "expiration_policy": {"ttl": {"seconds": DAY}}}
    await harness.call("CreateSubscription", name=sub, topic=TOPIC, **short)
    name = {"subscription": sub}
    update = {"subscription": {"name": sub, "labels": {"a": "b"}}, "update_mask": {"paths": ["labels"]}}
    for method, fields in (
        ("UpdateSubscription", update),
        ("UpdateSubscription", update),  # that it changes nothing does not matter
        ("ModifyPushConfig", name),
        ("Seek", {**name, "time": {"seconds": 1}}),
    ):
        await passes(harness, DAY - 600)
        await harness.call(method, **fields)
        if method == "Seek":
            await harness.crash()
    await passes(harness, DAY - 600)
    assert harness.control.catalog.subscription(sub) is not None
    await passes(harness, 4800)  # after a crash an hour may not have been noted
    assert harness.control.catalog.subscription(sub) is None


@pytest.mark.parametrize("succeeds", [True, False])
def test_of_a_subscription_that_is_pushed_only_what_succeeds_is_a_use(succeeds: bool) -> None:
    @simulated(expiration_s=3600)
    async def scenario(harness: ServicerHarness) -> None:
        lent: list[Lent] = []
        terms = FeedTerms(harness.record, 600, lent.extend, lambda: None, lambda: 0)
        feed = open_feed(harness.subscribe, terms)
        feed.set_room(1)
        await harness.put("a")
        await passes(harness, 3000)
        await asyncio.sleep(0.2)
        feed.extend([lent[-1].ack_id])
        (feed.acknowledge if succeeds else feed.refuse)([lent[-1].ack_id])
        await passes(harness, 700)
        assert (harness.control.catalog.subscription(SUB) is not None) == succeeds

    scenario()


@simulated(expiration_s=3600, created_ns=START_NS)
async def test_a_start_does_not_begin_the_time_of_subscriptions_anew(harness: ServicerHarness) -> None:
    """What was noted counts, with the hour that may not have been noted on top."""
    for _ in range(4):
        await passes(harness, 1700)
        assert harness.control.catalog.subscription(SUB) is not None
        await harness.crash()
    await passes(harness, 800)
    assert harness.control.catalog.subscription(SUB) is None


@simulated(expiration_s=3600, created_ns=START_NS)
async def test_the_last_use_of_an_earlier_life_counts(harness: ServicerHarness) -> None:
    await passes(harness, 3000)
    assert not await harness.pull(timeout=2.0)
    await harness.crash()
    await passes(harness, 3500)
    await harness.crash()
    await passes(harness, 3400)
    assert harness.control.catalog.subscription(SUB) is not None
    await passes(harness, 400)
    assert harness.control.catalog.subscription(SUB) is None


@simulated(expiration_s=86_400, created_ns=START_NS)
async def test_a_clock_that_is_wrong_for_a_while_deletes_nothing(harness: ServicerHarness) -> None:
    await harness.put("a")
    await harness.call("CreateSnapshot", name=SNAP, subscription=SUB)
    now = harness.clock.time_ns()
    harness.clock.set_time_ns(now + 90 * DAY * 10**9)
    for _ in range(2):
        await asyncio.sleep(3600)
        assert harness.control.catalog.snapshot(SNAP) is not None
        assert harness.control.catalog.subscription(SUB) is not None
        assert harness.store.bounds(1 << 24) is not None
        await harness.crash()  # it is wrong from the start
    harness.clock.set_time_ns(now + 3 * 3600 * 10**9)
    assert [one.message.data for one in await harness.pull()] == [b"a"]


@simulated(retention_s=600)
async def test_what_was_published_while_the_clock_was_behind_is_kept_for_its_time(harness: ServicerHarness) -> None:
    await asyncio.sleep(2 * 3600)
    await harness.crash()
    now = harness.clock.time_ns()
    harness.clock.set_time_ns(now - 8 * DAY * 10**9)
    await harness.crash()
    await harness.put("in the past")
    await asyncio.sleep(60)
    harness.clock.set_time_ns(now + 60 * 10**9)
    await asyncio.sleep(60)
    (got,) = await harness.pull()
    assert got.message.data == b"in the past"
    assert abs(got.message.publish_time.ToNanoseconds() - now) < 3600 * 10**9


@simulated()
async def test_who_used_a_deleted_subscription_is_forgotten(harness: ServicerHarness) -> None:
    await harness.pull(timeout=1.0)
    assert harness.subscribe.used
    await asyncio.sleep(1)
    await harness.call("DeleteSubscription", subscription=SUB)
    await asyncio.sleep(91)
    assert not harness.subscribe.used


def test_what_becomes_of_disks_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "syncpoint.broker.publish")

    @simulated()
    async def run(harness: ServicerHarness) -> None:
        for state, reason in (("failed", "I/O error"), ("healing", ""), ("ok", "")):
            harness.store.state = replace(harness.store.state, state=state, reason=reason)
            await asyncio.sleep(10)
        assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING", "INFO"]
        assert "disk memory is failed: I/O error" in caplog.text

    run()


def test_damage_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "syncpoint.broker.publish")

    @simulated()
    async def run(harness: ServicerHarness) -> None:
        for damaged in (("segment 1/1: frame at 64: checksum",), ("segment 1/1: frame at 64: checksum", "segment 1/2")):
            harness.store.state = replace(harness.store.state, damaged=damaged)
            await asyncio.sleep(10)
        assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
        assert "disk memory is damaged, what is lost there cannot be delivered: segment 1/1" in caplog.text

    run()


@simulated()
async def test_a_failing_step_stops_no_other(harness: ServicerHarness, *, caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> None:
        raise RuntimeError("broken")

    harness.mirror.flush = broken  # type: ignore[method-assign]
    await harness.put("a")
    await harness.pull()
    assert len(await harness.pull(timeout=None)) == 1  # leases still expire
    assert "upkeep step failed" in caplog.text


@simulated()
async def test_failed_disks_end_checkpoints_and_deletion(harness: ServicerHarness) -> None:
    await harness.put("a")
    harness.store.fail(OSError("no disk left"))
    entries = len(harness.store.entries)
    await asyncio.sleep(200)
    harness.upkeep.log.last_checkpoint()
    assert len(harness.store.entries) == entries
    assert harness.store.bounds(1 << 24) is not None


@simulated()
async def test_sources_of_earlier_lives_are_forgotten_with_their_messages(harness: ServicerHarness) -> None:
    for _ in range(5):
        await harness.put("a")
        await harness.crash()
    assert len(harness.publish.sources.by_number) == 5
    await harness.call("Seek", subscription=SUB, time={"seconds": 4_000_000_000})
    await asyncio.sleep(2)
    assert not harness.publish.sources.by_number
    assert not any(ledger.acks for ledger in harness.publish.ledgers.values())


@simulated()
async def test_acknowledged_messages_go_although_the_clock_to_delete_by_is_behind_their_time(
    harness: ServicerHarness,
) -> None:
    """As it is after a pause, until it has run for as long again."""
    await asyncio.sleep(400)
    await harness.close()  # the time that was reached is noted
    harness.clock.advance(3000)
    harness.restart()
    for _ in range(3):
        await harness.put("a")
        (got,) = await harness.pull()
        await harness.call("Acknowledge", subscription=SUB, ack_ids=[got.ack_id])
        assert harness.publish.clock.sure_ns() < harness.clock.time_ns() - 2000 * 10**9
        await harness.crash()
    assert len(harness.publish.sources.by_number) == 3
    await asyncio.sleep(2)
    assert not harness.publish.sources.by_number
    assert not list(harness.store.sources())


async def killed(harness: ServicerHarness) -> None:
    """A crash that leaves no time to note anything."""
    harness.upkeep.rounds.tasks.cancel()
    await harness.channel.close()
    harness.restart()


@simulated()
async def test_lives_that_are_killed_get_on_with_the_time_to_delete_by(harness: ServicerHarness) -> None:
    topic = harness.control.catalog.topic(TOPIC)
    assert topic is not None
    harness.commit(CatalogChange.put(replace(topic, retention_s=600)))
    await asyncio.sleep(400)
    await harness.put("a")
    (got,) = await harness.pull()
    await harness.call("Acknowledge", subscription=SUB, ack_ids=[got.ack_id])
    for _ in range(8):
        for _ in range(7):
            await harness.put("b")
            await asyncio.sleep(20)
        await killed(harness)
        assert harness.clock.time_ns() - harness.publish.clock.sure_ns() < 60 * 10**9
    await asyncio.sleep(2)
    assert harness.store.bounds(1 << 24) == (1, 8), "the retention of the first is over, nobody acknowledged the others"


@pytest.mark.parametrize("wrong_s", [3600, 32 * DAY, -3600])
@pytest.mark.parametrize("age_s", [0, 3, 100, 330, 5000])
def test_a_clock_that_is_wrong_at_a_restart_is_not_believed_however_young_the_log_is(age_s: int, wrong_s: int) -> None:
    @simulated(retention_s=700)
    async def scenario(harness: ServicerHarness) -> None:
        await asyncio.sleep(age_s)
        await publish_for_ten_minutes_and_in(600, harness)
        for _ in range(2):
            harness.clock.set_time_ns(harness.clock.time_ns() + wrong_s * 10**9)
            await killed(harness)
            await asyncio.sleep(200)
            assert len(harness.publish.scheduled) == 1, "it is not due yet"
            assert harness.store.bounds(harness.publish.sources.of_topic(1)[0].number) == (0, 1), "its time is not over"
            harness.clock.set_time_ns(harness.clock.time_ns() - wrong_s * 10**9)
        await asyncio.sleep(30)
        assert [one.message.data for one in await harness.pull()] == [b"a"]

    scenario()


@simulated()
async def test_a_clock_that_was_right_all_the_time_is_followed_after_a_kill_within_a_moment(
    harness: ServicerHarness,
) -> None:
    """In the first minutes, and where something waits and nothing was published for long."""
    for age_s, late_s in ((2, 2), (3000, uses.WAITING_S)):
        await publish_for_ten_minutes_and_in(7200, harness)
        await asyncio.sleep(age_s)
        await killed(harness)
        assert 0 <= harness.clock.time_ns() - harness.publish.clock.sure_ns() <= late_s * 10**9
        await asyncio.sleep(late_s + 1)
        assert harness.clock.time_ns() - harness.publish.clock.sure_ns() < 10**9


async def publish_for_ten_minutes_and_in(seconds: int, harness: ServicerHarness) -> None:
    """A message that lives for ten minutes, and one that waits for its time."""
    due = datetime.fromtimestamp(harness.clock.time_ns() / 1e9 + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    lives, waits = {"sys.TimeToLive": "0:10:0"}, {"sys.ScheduledEnqueueTimeUtc": due}
    messages = [{"data": b"a", "attributes": lives}, {"data": b"b", "attributes": waits}]
    await harness.call("Publish", topic=TOPIC, messages=messages)


@simulated()
async def test_nothing_is_noted_where_nothing_happens(harness: ServicerHarness) -> None:
    await asyncio.sleep(500)
    before = len(harness.store.entries)
    await asyncio.sleep(3000)
    assert len(harness.store.entries) == before


@simulated()
async def test_lives_that_end_as_soon_as_they_serve_leave_a_few_logs_and_no_more(harness: ServicerHarness) -> None:
    for _ in range(60):
        await harness.upkeep.catch_up()
        await harness.put("a")
        await harness.call("Seek", subscription=SUB, time={"seconds": 4_000_000_000})
        await harness.crash()
        assert harness.store.uncovered_logs <= upkeep.UNCOVERED_LOGS_MAX + 1
        assert harness.store.earlier_logs <= upkeep.EARLIER_LOGS_MAX + 1
    assert not await harness.pull(timeout=2.0)


@simulated()
async def test_a_start_waits_for_deletion_only_where_much_is_left_and_only_a_moment(harness: ServicerHarness) -> None:
    async def waited() -> float:
        began = harness.clock.monotonic()
        await harness.upkeep.catch_up()
        return harness.clock.monotonic() - began

    for _ in range(upkeep.EARLIER_LOGS_MAX + 1):
        assert not await waited()
        await harness.put("a")  # nobody acknowledges it
        harness.upkeep.log.last_checkpoint()
        await asyncio.sleep(0.01)
        await harness.crash()
    assert 0.4 < await waited() < 0.6
    assert len(await harness.pull()) == upkeep.EARLIER_LOGS_MAX + 1


@simulated()
async def test_deletion_is_quick_behind_a_start_and_a_checkpoint_and_slow_later(harness: ServicerHarness) -> None:
    """A life of a few seconds has to get round all segments, or lives would leave theirs behind for ever."""
    steps, collect = 0, harness.store.collect

    def counted(*asked):  # type: ignore[no-untyped-def]
        nonlocal steps
        steps += 1
        return collect(*asked)

    harness.store.collect = counted  # type: ignore[method-assign]
    for wait_s, least, most in ((0, 40, 60), (10, 1, 3)):
        await asyncio.sleep(wait_s)
        before = steps
        await asyncio.sleep(1)
        assert least <= steps - before <= most
    harness.upkeep.log.overdue = True
    await checkpointed(harness)
    before = steps
    await asyncio.sleep(1)
    assert 40 <= steps - before <= 60


@simulated()
async def test_ticks_are_rare_at_rest_and_frequent_while_something_waits_for_them(harness: ServicerHarness) -> None:
    ticks = 0

    async def per_second() -> int:
        before = ticks
        await asyncio.sleep(1)
        return ticks - before

    def counted() -> None:
        nonlocal ticks
        ticks += 1

    harness.upkeep.rounds.every(upkeep.TICK_S, counted)
    await harness.upkeep.rounds.stop()
    harness.upkeep.rounds.start()
    await asyncio.sleep(20)
    assert await per_second() <= 3
    stream = await harness.stream()
    await asyncio.sleep(20)
    assert await per_second() <= 3, "a subscriber to whom nothing is lent waits for no tick"
    await harness.put("a")
    (got,) = await stream.messages(1)
    await asyncio.sleep(5)
    assert await per_second() >= 9, "the lease may end"
    await harness.call("Acknowledge", subscription=SUB, ack_ids=[got.ack_id])
    await asyncio.sleep(5)
    assert await per_second() <= 3
    before = ticks
    stream.raw.cancel()
    await asyncio.sleep(0.05)
    assert ticks == before + 1, "who goes is noticed at once"


@simulated(retention_s=600)
async def test_a_snapshots_messages_are_there_when_it_is_reset_however_short_the_retention_is(
    harness: ServicerHarness,
) -> None:
    await harness.put("a")
    await harness.call("CreateSnapshot", name=SNAP, subscription=SUB)
    (got,) = await harness.pull()
    await harness.call("Acknowledge", subscription=SUB, ack_ids=[got.ack_id])
    await passes(harness, DAY)
    await harness.call("Seek", subscription=SUB, snapshot=SNAP)
    await harness.call("DeleteSnapshot", snapshot=SNAP)
    await asyncio.sleep(91)
    await harness.crash()
    (again,) = await harness.pull()
    assert again.message.data == b"a"


@simulated(expiration_s=3600)
async def test_however_many_subscriptions_there_are_their_last_use_is_noted(
    harness: ServicerHarness, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In settings of a bounded size each, of which none stays behind."""
    monkeypatch.setattr(uses, "PART", 3)
    monkeypatch.setattr(uses, "TURN", 2)
    names = [f"projects/p/subscriptions/s{number:02d}" for number in range(10)]
    for name in names:
        await harness.call("CreateSubscription", name=name, topic=TOPIC)
        harness.subscribe.used[harness.control.catalog.subscription(name).incarnation] = harness.clock.monotonic()
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    with monkeypatch.context() as at_once:  # only pieces let others have their turn
        catalog, commit = harness.control.catalog, harness.upkeep.uses._commit
        stored: list[CatalogChange] = []

        async def keep(changes: list[CatalogChange]) -> None:
            stored.extend(changes)

        at_once.setattr(harness.upkeep.uses, "_commit", keep)
        rival = asyncio.ensure_future(others())
        await harness.upkeep.uses.note()
        rival.cancel()
    await commit(stored)
    assert turns >= 4
    assert len(catalog.settings_named(uses.USES)) == 4
    for name in names[:6]:
        await harness.call("DeleteSubscription", subscription=name)
    await harness.upkeep.uses.note()
    assert len(catalog.settings_named(uses.USES)) == 2
    assert uses.noted_uses(catalog).keys() == {catalog.subscription(name).incarnation for name in names[6:]}
