"""Deletion over lives too short for all of it: what one of them gains is not lost to the next, and nothing is lost."""

from __future__ import annotations

import pytest

from syncpoint.storage.damage import SegmentPart, SegmentPlace
from tests.kit.disks import World

LIVE = 50  # entries of the first log, which somebody needs


def short_lived(**settings: object) -> World:
    """After a life that left what is needed for long, and a little more."""
    limits = {"segment_entries_max": 1_000, "collect_entries_step": 10, "scrub_bytes_s": 0}
    world = World.opened(1, **{**limits, **settings})
    for topic in range(LIVE + 5):
        world.publish(topic, 1, 100)
    world.dead.update(key for key in world.appended if key[0] & 0xFFFFFF >= LIVE)
    world.take_checkpoint()
    world.commit()
    return world


def live_for(world: World, steps: int) -> int:
    """A life of one message that nobody needs, and so many steps of deletion; then it is killed."""
    world.kill()
    world.open()
    world.dead.add(world.publish(LIVE, 1, 100))
    world.take_checkpoint()
    world.commit()
    copied = 0
    for _ in range(steps):
        copied += world.store.collect(world.live).copied_entries
        world.settle()
    return copied


def test_a_life_too_short_to_judge_a_large_segment_deletes_small_ones() -> None:
    world = short_lived()
    for _ in range(30):
        live_for(world, 2)
        assert world.store.earlier_logs <= 3
    world.judge()


def broken_off(steps: int = 9) -> World:
    """A part of the first log is copied forward, or all of it, and then it was not deleted."""
    world = short_lived(collect_entries_step=200, copy_entries_step=5)
    leave_logs(world)
    assert live_for(world, steps) > 0
    assert world.store.catalog.at(1, 1) is not None
    leave_logs(world)
    return world


def leave_logs(world: World) -> None:
    """Only what is not among the newest segments is copied forward."""
    for _ in range(4):
        live_for(world, 0)


def test_a_copy_forward_goes_on_where_an_earlier_life_ended() -> None:
    world = broken_off()
    copied = 0
    for _ in range(3):
        copied += live_for(world, 9)
        world.judge()
        leave_logs(world)
    assert world.store.catalog.at(1, 1) is None
    assert copied < LIVE, "what was copied before is not copied again"
    for _ in range(10):
        live_for(world, 30)
    world.judge()
    assert sum(segment.messages for segment in world.store.catalog) < LIVE + 10, "nothing is kept twice"


@pytest.mark.parametrize(("steps", "going"), [(9, LIVE), (12, LIVE), (12, LIVE - 10)])
def test_an_entry_stays_whose_copy_was_judged_to_go(steps: int, going: int) -> None:
    """It is needed again in between, as after a seek. `going`: how many; the rest of the copies is copied forward."""
    world = broken_off(steps)
    world.kill()
    world.open()
    world.note()  # not synced: nothing goes before it is
    twice = {source for source in world.store.sources() if world.store._sources.tangled(source)}
    flickering = sorted(twice)[:going]
    asked: set[int] = set()

    def live(source: int, first: int, count: int, time_ns: int) -> bool:
        if source in flickering and source not in asked:
            asked.add(source)
            return False
        return (source, first) not in world.dead

    world.store.collect(live)
    assert asked
    world.commit()
    for _ in range(30):
        world.store.collect(world.live)
        world.settle()
    world.kill()
    world.open()
    world.judge()


def test_a_copy_in_which_damage_was_found_keeps_nothing() -> None:
    world = broken_off()
    world.kill()
    world.open()
    store = world.store
    first = store.catalog.at(1, 1)
    assert first is not None
    copied = [one for one in store.catalog.index(first).messages() if list(store._deletion.copied(first, one))]
    assert copied
    for segment in store.catalog:
        segment.unreadable[0] = {SegmentPlace(SegmentPart.FRAME, 64)}
    assert not [one for one in copied if list(store._deletion.copied(first, one))]
