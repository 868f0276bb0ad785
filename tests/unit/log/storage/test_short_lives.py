"""Deletion over lives too short for all of it: what one of them gains is not lost to the next, and nothing is lost."""

from __future__ import annotations

import pytest

from syncpoint.log.storage.damage import SegmentPart, SegmentPlace
from tests.kit.disks import Harness

pytestmark = pytest.mark.shows("restarts")

LIVE = 50  # entries of the first log, which somebody needs


def short_lived(**settings: object) -> Harness:
    """After a life that left what is needed for long, and a little more."""
    limits = {"segment_entries_max": 1_000, "collect_entries_step": 10, "scrub_bytes_s": 0}
    harness = Harness.opened(1, **{**limits, **settings})
    for topic in range(LIVE + 5):
        harness.publish(topic, 1, 100)
    harness.dead.update(key for key in harness.appended if key[0] & 0xFFFFFF >= LIVE)
    harness.take_checkpoint()
    harness.commit()
    return harness


def live_for(harness: Harness, steps: int) -> int:
    """A life of one message that nobody needs, and so many steps of deletion; then it is killed."""
    harness.kill()
    harness.open()
    harness.dead.add(harness.publish(LIVE, 1, 100))
    harness.take_checkpoint()
    harness.commit()
    copied = 0
    for _ in range(steps):
        copied += harness.store.collect(harness.live).copied_entries
        harness.quiesce()
    return copied


def test_a_life_too_short_to_judge_a_large_segment_deletes_small_ones() -> None:
    harness = short_lived()
    for _ in range(30):
        live_for(harness, 2)
        assert harness.store.earlier_logs <= 3
    harness.judge()


def broken_off(steps: int = 9) -> Harness:
    """A part of the first log is copied forward, or all of it, and then it was not deleted."""
    harness = short_lived(collect_entries_step=200, copy_entries_step=5)
    leave_logs(harness)
    assert live_for(harness, steps) > 0
    assert harness.store.catalog.at(1, 1) is not None
    leave_logs(harness)
    return harness


def leave_logs(harness: Harness) -> None:
    """Only what is not among the newest segments is copied forward."""
    for _ in range(4):
        live_for(harness, 0)


def test_a_copy_forward_goes_on_where_an_earlier_life_ended() -> None:
    harness = broken_off()
    copied = 0
    for _ in range(3):
        copied += live_for(harness, 9)
        harness.judge()
        leave_logs(harness)
    assert harness.store.catalog.at(1, 1) is None
    assert copied < LIVE, "what was copied before is not copied again"
    for _ in range(10):
        live_for(harness, 30)
    harness.judge()
    assert sum(segment.messages for segment in harness.store.catalog) < LIVE + 10, "nothing is kept twice"


@pytest.mark.parametrize(("steps", "going"), [(9, LIVE), (12, LIVE), (12, LIVE - 10)])
def test_an_entry_stays_whose_copy_was_judged_to_go(steps: int, going: int) -> None:
    """It is needed again in between, as after a seek. `going`: how many; the rest of the copies is copied forward."""
    harness = broken_off(steps)
    harness.kill()
    harness.open()
    harness.note()  # not synced: nothing goes before it is
    twice = {source for source in harness.store.sources() if harness.store._sources.tangled(source)}
    flickering = sorted(twice)[:going]
    asked: set[int] = set()

    def live(source: int, first: int, count: int, time_ns: int) -> bool:
        if source in flickering and source not in asked:
            asked.add(source)
            return False
        return (source, first) not in harness.dead

    harness.store.collect(live)
    assert asked
    harness.commit()
    for _ in range(30):
        harness.store.collect(harness.live)
        harness.quiesce()
    harness.kill()
    harness.open()
    harness.judge()


@pytest.mark.parametrize("damage", ["unreadable", "fewer disks"])
def test_a_copy_that_may_not_be_readable_keeps_nothing(damage: str) -> None:
    harness = broken_off()
    harness.kill()
    harness.open()
    store = harness.store
    first = store.catalog.at(1, 1)
    assert first is not None
    copied = [one for one in store.catalog.index(first).messages() if list(store._deletion.copied(first, one))]
    assert copied
    for segment in store.catalog:
        if damage == "unreadable":
            segment.unreadable[0] = {SegmentPlace(SegmentPart.FRAME, 64)}
        elif segment is not first:
            segment.copies.popitem()
    assert not [one for one in copied if list(store._deletion.copied(first, one))]


def test_hundreds_of_restarts_leave_nothing_behind() -> None:
    harness = Harness(1)
    calls = []
    files = 0
    for number in range(300):
        harness.open()
        harness.note()
        if number % 50 == 0:
            harness.publish(0, 1, 100)
        harness.take_checkpoint()
        harness.commit()
        for _ in range(3):
            harness.store.collect(lambda *batch: False)
            harness.quiesce(5)
        if number % 2:
            harness.store.close()
        before = harness.files.calls
        harness.kill()
        harness.acked_facts.clear()
        if number in (100, 299):
            harness.open()
            calls.append(harness.files.calls - before)
            files = len(harness.files.paths("/d0"))
            harness.kill()
    assert files < 20
    assert calls[1] <= calls[0] + 20
    assert len(harness.files.content("/d0/marks.json").rstrip()) < 1_000
