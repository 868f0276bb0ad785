"""The catalog's only writer: races, callers who give up, failing disks, snapshots, seeks."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from syncpoint.base.model.errors import Code, SyncpointError, Unavailable
from syncpoint.catalog.metadata.records import CatalogChange, SeekTarget, Snapshot, Subscription, Topic, encode_changes
from syncpoint.log.storage.record import EntryKind
from syncpoint.testing.rigs.forwarder_harness import SUB, TOPIC
from syncpoint.testing.rigs.servicer_harness import ServicerHarness, simulated

NEW = "projects/p/topics/new"
SNAP = "projects/p/snapshots/snap"


async def codes(*waiting) -> list[str]:
    """Sorted outcomes of calls that run at once."""
    found = await asyncio.gather(*waiting, return_exceptions=True)
    return sorted(one.code.name if isinstance(one, SyncpointError) else "OK" for one in found)


CREATES = [
    ("CreateTopic", {"name": NEW}),
    ("CreateSubscription", {"name": "projects/p/subscriptions/new", "topic": TOPIC}),
    ("CreateSnapshot", {"name": SNAP, "subscription": SUB}),
]


@pytest.mark.parametrize(("method", "fields"), CREATES)
@simulated()
async def test_of_racing_creates_one_wins_also_after_a_restart(
    harness: ServicerHarness, *, method: str, fields: dict[str, str]
) -> None:
    await harness.put("a")
    assert await codes(*(harness.call(method, **fields) for _ in range(5))) == ["ALREADY_EXISTS"] * 4 + ["OK"]
    counts = harness.control.catalog.counts()
    await harness.crash()
    assert harness.control.catalog.counts() == counts


@pytest.mark.parametrize("first", ["DeleteSubscription", "DetachSubscription"])
@simulated()
async def test_a_snapshot_loses_against_the_end_of_its_subscription(harness: ServicerHarness, *, first: str) -> None:
    """The store answers late: the subscription goes while the snapshot looks for its oldest message."""
    await harness.put("a")
    read = harness.store.read

    def late(source, begin, max_bytes, reply, *, early=False):  # type: ignore[no-untyped-def]
        asyncio.get_running_loop().call_later(2, lambda: read(source, begin, max_bytes, reply, early=early))

    harness.store.read = late  # type: ignore[method-assign]
    snapping = asyncio.create_task(harness.call("CreateSnapshot", name=SNAP, subscription=SUB))
    await asyncio.sleep(1)
    await harness.call(first, subscription=SUB)
    with pytest.raises(SyncpointError) as caught:
        await snapping
    assert caught.value.code in (Code.NOT_FOUND, Code.FAILED_PRECONDITION)
    assert SUB in caught.value.message
    assert harness.control.catalog.snapshot(SNAP) is None


@simulated()
async def test_a_change_shows_at_once_and_is_answered_when_persisted(harness: ServicerHarness) -> None:
    harness.disks_rest = True
    creating = asyncio.create_task(harness.call("CreateTopic", name=NEW))
    await asyncio.sleep(60)
    assert not creating.done()
    assert harness.control.catalog.topic(NEW) is not None
    assert harness.mirror.revision < harness.control.catalog.revision
    harness.persist()
    await creating
    await asyncio.sleep(1)
    assert harness.mirror.agrees(harness.control.catalog)


@simulated()
async def test_a_caller_who_gives_up_leaves_a_whole_change_behind(harness: ServicerHarness) -> None:
    harness.disks_rest = True
    with pytest.raises(SyncpointError) as caught:
        await harness.call("CreateTopic", name=NEW, timeout=1.0)
    assert caught.value.code is Code.DEADLINE_EXCEEDED
    committing = asyncio.create_task(
        harness.control.commit([CatalogChange.put(Topic(77, "projects/p/topics/seventy"))])
    )
    seeking = asyncio.create_task(harness.control.seek(harness.record, time_ns=1))
    await asyncio.sleep(0)
    for task in (committing, seeking):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    harness.persist()
    harness.disks_rest = False
    await asyncio.sleep(1)
    assert harness.mirror.agrees(harness.control.catalog)
    await harness.crash()
    assert harness.control.catalog.topic(NEW) is not None
    assert harness.control.catalog.topic("projects/p/topics/seventy") is not None


@simulated()
async def test_what_was_not_persisted_is_gone_after_a_crash_and_can_be_made_again(harness: ServicerHarness) -> None:
    await asyncio.sleep(1)
    harness.disks_rest = True
    creating = asyncio.create_task(harness.call("CreateTopic", name=NEW))
    await asyncio.sleep(0.01)
    creating.cancel()
    await harness.crash()
    harness.disks_rest = False
    assert harness.control.catalog.topic(NEW) is None
    await harness.call("CreateTopic", name=NEW)


@simulated()
async def test_failed_disks_make_the_outcome_unknown_and_then_refuse(harness: ServicerHarness) -> None:
    harness.disks_rest = True
    creating = asyncio.create_task(harness.call("CreateTopic", name=NEW))
    await asyncio.sleep(0.01)
    harness.store.fail(OSError("no disk left"))
    with pytest.raises(SyncpointError, match="may or may not be stored") as caught:
        await creating
    assert caught.value.code is Code.UNAVAILABLE
    before = harness.control.catalog.revision
    with pytest.raises(SyncpointError, match="cannot be written"):
        await harness.call("CreateTopic", name="projects/p/topics/later")
    assert harness.control.catalog.revision == before


@simulated()
async def test_updates_of_one_subscription_do_not_undo_one_another(harness: ServicerHarness) -> None:
    async def update(field: str, **fields) -> None:
        await harness.call("UpdateSubscription", subscription={"name": SUB, **fields}, update_mask={"paths": [field]})

    early = {"options": {"subscription": SUB, "early_delivery": True}, "update_mask": {"paths": ["early_delivery"]}}
    await asyncio.gather(
        update("labels", labels={"a": "b"}),
        update("ack_deadline_seconds", ack_deadline_seconds=99),
        harness.call("UpdateSubscriptionOptions", **early),
        update("retain_acked_messages", retain_acked_messages=True),
    )
    await harness.crash()
    record = harness.control.catalog.subscription(SUB)
    assert record is not None
    assert (record.ack_deadline_s, record.early_delivery, record.retain_acked) == (99, True, True)


@simulated()
async def test_a_name_may_be_used_again_and_messages_do_not_come_back(harness: ServicerHarness) -> None:
    await harness.put("old")
    for number in range(3):
        await harness.call("DeleteTopic", topic=TOPIC)
        await harness.call("DeleteSubscription", subscription=SUB)
        await harness.call("CreateTopic", name=TOPIC)
        await harness.call("CreateSubscription", name=SUB, topic=TOPIC)
        if number:
            await harness.crash()
        await harness.put("new")
        assert [one.message.data for one in await harness.pull()] == [b"new"]


@simulated()
async def test_a_snapshot_holds_what_is_unacknowledged_at_its_return(harness: ServicerHarness) -> None:
    await harness.put("a", "b")
    got = await harness.pull(1)
    snapping = asyncio.create_task(harness.call("CreateSnapshot", name=SNAP, subscription=SUB))
    await snapping
    await harness.call("Acknowledge", subscription=SUB, ack_ids=[one.ack_id for one in got + await harness.pull()])
    await asyncio.sleep(5)  # nobody but the snapshot needs them now
    await harness.crash()
    assert not await harness.pull(timeout=4.0)
    await harness.call("Seek", subscription=SUB, snapshot=SNAP)
    assert sorted(one.message.data for one in await harness.pull()) == [b"a", b"b"]


@simulated()
async def test_incarnations_are_never_used_twice(harness: ServicerHarness) -> None:
    seen = set()
    for _ in range(3):
        await harness.call("CreateTopic", name=NEW)
        record = harness.control.catalog.topic(NEW)
        assert record is not None
        assert record.incarnation not in seen
        seen.add(record.incarnation)
        await harness.call("DeleteTopic", topic=NEW)
        await harness.crash()
    assert harness.record.incarnation not in seen


@simulated(retain_acked=True)
async def test_a_seek_that_was_not_followed_before_a_crash_is_followed_after_it(harness: ServicerHarness) -> None:
    await harness.put("a")
    (got,) = await harness.pull()
    await harness.call("Acknowledge", subscription=SUB, ack_ids=[got.ack_id])
    record = harness.control.catalog.subscription(SUB)
    assert record is not None
    moved = replace(record, generation=1, target=SeekTarget(0, None))
    new = Subscription(
        30, "projects/p/subscriptions/new", 1, TOPIC, created_revision=harness.control.catalog.revision + 2
    )
    kept = Snapshot(31, SNAP, 1, TOPIC, expire_ns=1 << 62, subscription=2, generation=1)
    changes = harness.control.catalog.assign(
        [CatalogChange.put(moved), CatalogChange.put(new), CatalogChange.put(kept)]
    )
    harness.publish.commit.append_fact(EntryKind.CATALOG, encode_changes(changes))
    for change in changes:
        harness.control.catalog.apply(change)
    await asyncio.sleep(0.1)
    await harness.crash()
    assert [one.message.data for one in await harness.pull()] == [b"a"]
    assert harness.publish.ledgers[30].start == {1 << 24: 1}
    assert harness.publish.snapshots[31].acks[1 << 24].count(0, 1) == 0


@simulated()
async def test_a_seek_whose_place_cannot_be_read_changes_nothing(harness: ServicerHarness) -> None:
    await harness.put("a")
    offset_at = harness.store.offset_at

    def unreadable(source: int, time_ns: int) -> int:
        raise Unavailable("the disks do not answer")

    harness.store.offset_at = unreadable  # type: ignore[method-assign]
    with pytest.raises(SyncpointError, match="do not answer"):
        await harness.call("Seek", subscription=SUB, time={"seconds": 5})
    harness.store.offset_at = offset_at  # type: ignore[method-assign]
    assert harness.control.catalog.subscription(SUB).generation == 0
    await harness.call("Seek", subscription=SUB, time={"seconds": 5})
    assert [one.message.data for one in await harness.pull()] == [b"a"]
