"""A sealed segment's index, damaged on every disk: built again from the frames, or what it lists is passed over."""

from __future__ import annotations

import pytest

from syncpoint.runtime.files import Files
from syncpoint.storage.disk.segment_catalog import Segment, index_seed
from syncpoint.storage.errors import CopiesUnreachable, StorageDamaged
from syncpoint.storage.index import DamagedIndex
from syncpoint.storage.record import StoredBatch
from syncpoint.storage.recovery import reindex
from syncpoint.storage.recovery.reindex import AGAIN_S, Reindexing
from syncpoint.storage.recovery.scan import FrameTable
from syncpoint.storage.recovery.scrub import index_pages
from syncpoint.storage.segment import DATA_START, PAGE
from tests.kit.disks import World


def filled(disks: int) -> World:
    """Some sealed segments of one source, and nothing in memory that a read could do with."""
    world = World.opened(5, disks, cache_bytes=1, index_cache_bytes=1, scrub_bytes_s=0, read_ahead_bytes=1)
    world.fill(150, 0, 2, 600)
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


def count_looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The copies that are read through from now on."""
    looks: list[str] = []
    read_through = reindex.frames_of

    def counting(files: Files, path: str, size: int, seed: int) -> FrameTable:
        looks.append(path)
        return read_through(files, path, size, seed)

    monkeypatch.setattr(reindex, "frames_of", counting)
    return looks


def read(world: World, begin: int) -> list[StoredBatch] | Exception:
    answers: list[list[StoredBatch] | Exception] = []
    world.store.read(source(world), begin, 1 << 20, answers.append)
    while not answers:
        world.run("syncpoint-read")
        world.deliver()
    return answers.pop()


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
    batches = read(world, 0)
    assert isinstance(batches, list)
    assert len(batches) >= 1, "what lies before it is not held up"
    error = read(world, 2 * before)
    assert isinstance(error, StorageDamaged)
    assert error.resume_offset == 2 * (before + lost)
    later = read(world, error.resume_offset)
    assert isinstance(later, list)
    assert later[0].first_offset == error.resume_offset
    world.heal(5)
    disk = world.store.status().disks[0]
    assert disk.state == "damaged", "nothing is written anew without what it lacks"
    world.files.flip(second.copies[0].path, DATA_START + 70)
    world.clock.advance(AGAIN_S)
    assert len(world.read_all(source(world))) == 150, "the frames are all there again"


def test_what_is_found_before_it_is_served() -> None:
    world = filled(1)
    world.store._reader._ahead_bytes = 1 << 20
    spoil_index(world, which=1)
    first, second = list(world.store.catalog)[:2]
    world.files.flip(second.copies[0].path, DATA_START + 70)
    batches = read(world, 0)
    assert isinstance(batches, list)
    assert len(batches) == first.messages


def test_a_segment_that_lacks_an_entry_is_read_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = filled(1)
    path, _ = spoil_index(world, which=1)
    world.files.flip(path, DATA_START + 70)
    begin = 2 * next(iter(world.store.catalog)).messages
    looks = count_looks(monkeypatch)
    for _ in range(5):
        assert isinstance(read(world, begin), StorageDamaged)
        world.heal(2)
        world.dead = set(world.appended)
        world.store.collect(world.live)
    assert looks == [path]
    world.clock.advance(AGAIN_S)
    assert isinstance(read(world, begin), StorageDamaged)
    assert looks == [path] * 2, "what was read wrongly may be there"
    world.kill()
    world.open()
    world.store.read(1 << 24, begin, 1 << 20, lambda answer: None)
    world.run("syncpoint-read")
    assert looks == [path] * 3, "and so it is after a restart"


def test_of_what_some_copies_lack_only_the_others_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    world = filled(3)
    segment = list(world.store.catalog)[1]
    paths = [spoil_index(world, slot, 1)[0] for slot in range(3)]
    world.files.flip(paths[0], DATA_START + 70)
    world.files.flip(paths[1], DATA_START + 70)
    copies = segment.copies.copy()
    looks = count_looks(monkeypatch)
    again = Reindexing(world.files, nowhere, lambda slot: True, world.clock)
    seed = index_seed(segment.universe, segment.log, segment.seq)

    def page() -> bytes:
        return again.page(segment, segment.index_offset, seed)

    world.lose_sight(2)
    for _ in range(3):
        with pytest.raises(CopiesUnreachable):
            page()
    assert looks == [*paths, paths[2], paths[2]], "those that were read add nothing"
    del segment.copies[2]
    with pytest.raises(DamagedIndex):
        page()
    assert len(looks) == 5
    segment.copies[2] = copies[2]
    world.regain(2)
    assert len(page()) == PAGE
    assert looks[5:] == paths[2:], "it has all of them"
    assert len(page()) == PAGE
    assert len(looks) == 6


def nowhere(segment: Segment, offset: int, seed: int) -> bytes:
    raise DamagedIndex("checksum")


def test_deletion_has_a_segment_read_through_by_the_thread_that_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    world = filled(1)
    path, _ = spoil_index(world)
    looks = count_looks(monkeypatch)
    world.dead = set(world.appended)
    for _ in range(200):
        before = len(looks)
        world.store.collect(world.live)
        assert len(looks) == before, "nobody may wait for that on the owner's thread"
        world.run("syncpoint-read")
        world.run("syncpoint-write-0")
        world.deliver()
    assert looks == [path]
    assert world.store.catalog.at(1, 1) is None
