"""When checkpoints are written, what is in them, and what a start reads after one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from syncpoint.broker.publish.keep import upkeep
from syncpoint.broker.publish.keep.upkeep import LogUpkeep, Rounds
from syncpoint.catalog.metadata.records import CatalogChange
from syncpoint.log.storage.record import EntryKind
from syncpoint.node.upkeep import Upkeep
from syncpoint.testing.rigs.forwarder_harness import SUB, TOPIC
from syncpoint.testing.rigs.servicer_harness import ServicerHarness, simulated
from tests.unit.node.test_upkeep import checkpointed, count


@simulated()
async def test_checkpoints_begin_by_time_and_only_with_news(harness: ServicerHarness) -> None:
    await checkpointed(harness)
    assert count(harness, EntryKind.CHECKPOINT_END) == 1
    await asyncio.sleep(200)
    assert count(harness, EntryKind.CHECKPOINT_END) == 1
    await harness.put("x")
    await asyncio.sleep(1)
    assert count(harness, EntryKind.CHECKPOINT_END) == 2
    await harness.put("x")
    await asyncio.sleep(25)
    assert count(harness, EntryKind.CHECKPOINT_END) == 2
    await asyncio.sleep(10)
    assert count(harness, EntryKind.CHECKPOINT_END) == 3


@pytest.mark.parametrize(("name", "bound"), [("CHECKPOINT_ENTRIES", 20), ("CHECKPOINT_BYTES", 20_000)])
def test_checkpoints_begin_by_entries_and_by_bytes(monkeypatch: pytest.MonkeyPatch, name: str, bound: int) -> None:
    monkeypatch.setattr(upkeep, name, bound)

    @simulated()
    async def run(harness: ServicerHarness) -> None:
        await checkpointed(harness)
        for expected in (1, 2):
            for _ in range(15):
                assert count(harness, EntryKind.CHECKPOINT_BEGIN) == expected
                await harness.put("x" * 1000)
            for _ in range(15):
                await harness.put("x" * 1000)
            await asyncio.sleep(1)
        assert count(harness, EntryKind.CHECKPOINT_END) == 3

    run()


def lose_parts(harness: ServicerHarness, parts: int) -> None:
    """Let each step of a checkpoint write only so many parts."""
    begin = harness.store.checkpoint

    def slowly(found):  # type: ignore[no-untyped-def]
        checkpoint = begin(found)
        step = checkpoint.step
        checkpoint.step = lambda max_bytes=parts: step(parts)  # type: ignore[method-assign]
        return checkpoint

    harness.store.checkpoint = slowly  # type: ignore[method-assign]


@simulated(retain_acked=True)
async def test_a_crash_in_the_middle_of_a_checkpoint_loses_nothing(harness: ServicerHarness) -> None:
    """Crash after every step; in the meantime the catalog and the acknowledgements change."""
    for number in range(30):
        await harness.call("CreateTopic", name=f"projects/p/topics/topic-{number}")
        await harness.call("CreateSubscription", name=f"projects/p/subscriptions/s-{number}", topic=TOPIC)
    await harness.put(*map(str, range(20)))
    acked: set[str] = set()
    for steps in range(8):
        monkey = pytest.MonkeyPatch()
        monkey.setattr("syncpoint.catalog.metadata.catalog.PART_BYTES_MAX", 500)
        monkey.setattr("syncpoint.broker.publish.facts.records.BUNDLE_BYTES", 100)
        await harness.crash()
        lose_parts(harness, 1)
        before = count(harness, EntryKind.CHECKPOINT_PART)
        while count(harness, EntryKind.CHECKPOINT_PART) < before + steps:
            await asyncio.sleep(0.1)
        (got,) = await harness.pull(1)
        await harness.call("Acknowledge", subscription=SUB, ack_ids=[got.ack_id])
        acked.add(got.message.data.decode())
        await harness.call("CreateTopic", name=f"projects/p/topics/more-{steps}")
        await harness.call("DeleteTopic", topic=f"projects/p/topics/topic-{steps}")
        monkey.undo()
        await harness.crash()
        assert harness.control.catalog.counts() == (31, 31, 0)
        state = await harness.call("GetSubscriptionState", subscription=SUB)
        assert state.backlog_messages == 20 - len(acked)
    got = await harness.pull()
    assert {one.message.data.decode() for one in got} == set(map(str, range(20))) - acked


@simulated()
async def test_what_happens_while_a_checkpoint_is_written_is_in_it_or_behind_it(harness: ServicerHarness) -> None:
    await harness.put("a", "b", "c")
    got = await harness.pull()
    await checkpointed(harness)
    lose_parts(harness, 1)
    harness.upkeep.log.overdue = True
    await asyncio.sleep(0.25)
    assert harness.upkeep.log.checkpoint is not None
    await harness.call("Acknowledge", subscription=SUB, ack_ids=[got[0].ack_id])
    harness.commit(CatalogChange.put(replace(harness.record, ack_deadline_s=77)))
    await harness.call("CreateTopic", name="projects/p/topics/new")
    await harness.put("x", topic="projects/p/topics/new")
    await checkpointed(harness)
    ends = count(harness, EntryKind.CHECKPOINT_END)
    await harness.crash()
    assert count(harness, EntryKind.CHECKPOINT_END) == ends == 2
    assert harness.record.ack_deadline_s == 77
    assert sorted(one.message.data for one in await harness.pull()) == [b"b", b"c"]


@simulated()
async def test_a_checkpoint_that_breaks_is_begun_anew_after_a_while_and_not_at_once(harness: ServicerHarness) -> None:
    await checkpointed(harness)
    inner = harness.upkeep.log._parts

    def broken() -> Iterator[bytes]:
        yield next(inner())
        raise RuntimeError("broken")

    harness.upkeep.log._parts = broken
    harness.upkeep.log.overdue = True
    before = len(harness.store.entries)
    await asyncio.sleep(60)
    assert len(harness.store.entries) - before <= 3 * 2, "what there is of each stays in the log"
    harness.upkeep.log._parts = inner
    ends = count(harness, EntryKind.CHECKPOINT_END)
    await checkpointed(harness)
    assert count(harness, EntryKind.CHECKPOINT_END) == ends + 1


@simulated()
async def test_the_last_checkpoint_makes_the_next_start_short(harness: ServicerHarness) -> None:
    await harness.put("a")
    harness.upkeep.log.last_checkpoint()
    await asyncio.sleep(0.01)
    await harness.crash()
    assert harness.memory.checkpointed
    assert harness.memory.facts == 0
    assert [one.message.data for one in await harness.pull()] == [b"a"]


@simulated()
async def test_a_start_that_read_nothing_new_writes_no_checkpoint(harness: ServicerHarness) -> None:
    await checkpointed(harness)
    parts, now = harness.follower.checkpoint_parts, harness.clock.monotonic()
    log = LogUpkeep(harness.store, harness.publish, parts, now, begin_with_checkpoint=False)  # type: ignore[arg-type]
    rounds = Rounds(harness.clock, lambda: [log], lambda: [log])
    quiet = Upkeep(log, rounds, harness.subscribe, harness.control, harness.mirror, harness.clock)
    quiet.log._checkpointed = harness.store.appended
    await harness.upkeep.stop()
    before = count(harness, EntryKind.CHECKPOINT_BEGIN)
    rounds.start()
    await asyncio.sleep(100)
    assert count(harness, EntryKind.CHECKPOINT_BEGIN) == before
    await harness.put("x")
    await asyncio.sleep(1)
    assert count(harness, EntryKind.CHECKPOINT_BEGIN) == before + 1
    await quiet.stop()
