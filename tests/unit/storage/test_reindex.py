"""A sealed segment's index, damaged on every disk: built again from the frames, or what it lists is passed over."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from storage_world import World  # a helper beside the tests; they are imported by path

from syncpoint.storage.errors import StorageDamaged
from syncpoint.storage.recovery.scrub import index_pages
from syncpoint.storage.segment import DATA_START, PAGE


def filled(disks: int) -> World:
    """Some sealed segments of one source, and nothing in memory that a read could do with."""
    world = World(5, disks, cache_bytes=1, index_cache_bytes=1, scrub_bytes_s=0, read_ahead_bytes=1)
    world.open()
    for _ in range(150):
        world.publish(0, 2, 600)
    world.note()
    world.commit()
    return world


def spoil_index(world: World, slot: int = 0, which: int = 0) -> tuple[str, bytes]:
    """Damage the page of message records of one segment; the path of the copy, and the pages that were there."""
    segment = list(world.store.catalog)[which]
    path = segment.copies[slot].path
    content = world.files.content(path)
    assert segment.messages
    world.files.flip(path, segment.index_offset + 30)
    end = segment.index_offset + PAGE * index_pages(segment.messages, segment.controls, segment.sources)
    return path, content[segment.index_offset : end]


def source(world: World) -> int:
    return world.store.log_counter << 24


@pytest.mark.parametrize("disks", [1, 3])
def test_an_index_that_no_disk_has_holds_up_nothing_and_is_written_again(disks: int) -> None:
    world = filled(disks)
    written = [spoil_index(world, slot) for slot in range(disks)]
    assert len(world.read_all(source(world))) == 150
    world.heal()
    world.clock.advance(2)
    world.settle()
    for path, pages in written[:1] if disks == 1 else written[:-1]:
        assert pages in world.files.content(path), "the pages are what they were"
    assert [disk.unreadable for disk in world.store.status().disks] == [0] * disks
    world.kill()
    world.open()
    world.judge()


def test_it_is_met_after_a_restart_and_deletion_goes_on() -> None:
    world = filled(1)
    world.store.close()
    spoil_index(world)
    world.kill()
    world.open()
    assert "1/1" not in world.store.recovered.scanned, "the opening reads other pages"
    world.dead = set(world.appended)
    for _ in range(200):
        world.store.collect(world.live)
        world.settle()
    assert world.store.catalog.at(1, 1) is None


def test_a_segment_without_index_that_lacks_an_entry_is_passed_over_as_a_whole() -> None:
    world = filled(1)
    spoil_index(world, which=1)
    first, second = list(world.store.catalog)[:2]
    world.files.flip(second.copies[0].path, DATA_START + 70)
    before, lost = first.messages, second.messages
    answers: list[object] = []

    def read(begin: int) -> object:
        world.store.read(source(world), begin, 1 << 20, answers.append)
        while not answers:
            world.run("syncpoint-read")
            world.deliver()
        return answers.pop()

    batches = read(0)
    assert isinstance(batches, list)
    assert len(batches) >= 1, "what lies before it is not held up"
    error = read(2 * before)
    assert isinstance(error, StorageDamaged)
    assert error.resume_offset == 2 * (before + lost)
    later = read(error.resume_offset)
    assert isinstance(later, list)
    assert later[0].first_offset == error.resume_offset
    world.heal(5)
    disk = world.store.status().disks[0]
    assert disk.state == "damaged", "nothing is written anew without what it lacks"
    world.files.flip(second.copies[0].path, DATA_START + 70)
    assert len(world.read_all(source(world))) == 150, "the frames are all there again"


def test_what_is_found_before_it_is_served() -> None:
    world = filled(1)
    world.store._reader._ahead_bytes = 1 << 20
    spoil_index(world, which=1)
    first, second = list(world.store.catalog)[:2]
    world.files.flip(second.copies[0].path, DATA_START + 70)
    answers: list[object] = []
    world.store.read(source(world), 0, 1 << 20, answers.append)
    while not answers:
        world.run("syncpoint-read")
        world.deliver()
    (batches,) = answers
    assert isinstance(batches, list)
    assert len(batches) == first.messages
