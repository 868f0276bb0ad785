"""A sealed segment's index, damaged on every disk: built again from the frames, or what it lists is passed over."""

from __future__ import annotations

import pytest

from syncpoint.base.runtime.files import Files
from syncpoint.log.storage.disk.segment_catalog import Segment, index_seed
from syncpoint.log.storage.errors import CopiesUnreachable, StorageDamaged
from syncpoint.log.storage.index import DamagedIndex
from syncpoint.log.storage.record import StoredBatch
from syncpoint.log.storage.recovery import reindex
from syncpoint.log.storage.recovery.reindex import AGAIN_S, Reindexing
from syncpoint.log.storage.recovery.scan import FrameTable
from syncpoint.log.storage.recovery.scrub import index_pages
from syncpoint.log.storage.segment import DATA_START, PAGE
from tests.kit.disks import Harness


def filled(disks: int) -> Harness:
    """Some sealed segments of one source, and nothing in memory that a read could do with."""
    harness = Harness.opened(5, disks, cache_bytes=1, index_cache_bytes=1, scrub_bytes_s=0, read_ahead_bytes=1)
    harness.fill(150, 0, 2, 600)
    harness.note()
    harness.commit()
    return harness


def spoil_index(harness: Harness, slot: int = 0, which: int = 0) -> tuple[str, bytes]:
    """Damage the page of message records of one segment; the path of the copy, and the pages that were there."""
    segment = list(harness.store.catalog)[which]
    path = segment.copies[slot].path
    content = harness.files.content(path)
    assert segment.messages
    harness.files.flip(path, segment.index_offset + 30)
    end = segment.index_offset + PAGE * index_pages(segment.messages, segment.controls, segment.sources)
    return path, content[segment.index_offset : end]


def source(harness: Harness) -> int:
    return harness.store.log_counter << 24


def count_looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The copies that are read through from now on."""
    looks: list[str] = []
    read_through = reindex.frames_of

    def counting(files: Files, path: str, size: int, seed: int) -> FrameTable:
        looks.append(path)
        return read_through(files, path, size, seed)

    monkeypatch.setattr(reindex, "frames_of", counting)
    return looks


def read(harness: Harness, begin: int) -> list[StoredBatch] | Exception:
    answers: list[list[StoredBatch] | Exception] = []
    harness.store.read(source(harness), begin, 1 << 20, answers.append)
    while not answers:
        harness.run("syncpoint-read")
        harness.deliver()
    return answers.pop()


@pytest.mark.parametrize("disks", [1, 3])
def test_an_index_that_no_disk_has_holds_up_nothing_and_is_written_again(disks: int) -> None:
    harness = filled(disks)
    written = [spoil_index(harness, slot) for slot in range(disks)]
    assert len(harness.read_all(source(harness))) == 150
    harness.heal()
    harness.clock.advance(2)
    harness.quiesce()
    for path, pages in written[:1] if disks == 1 else written[:-1]:
        assert pages in harness.files.content(path), "the pages are what they were"
    assert [disk.unreadable for disk in harness.store.status().disks] == [0] * disks
    harness.kill()
    harness.open()
    harness.judge()


def test_it_is_met_after_a_restart_and_deletion_goes_on() -> None:
    harness = filled(1)
    harness.store.close()
    spoil_index(harness)
    harness.kill()
    harness.open()
    assert "1/1" not in harness.store.recovered.scanned, "the opening reads other pages"
    harness.dead = set(harness.appended)
    for _ in range(200):
        harness.store.collect(harness.live)
        harness.quiesce()
    assert harness.store.catalog.at(1, 1) is None


def test_a_segment_without_index_that_lacks_an_entry_is_passed_over_as_a_whole() -> None:
    harness = filled(1)
    spoil_index(harness, which=1)
    first, second = list(harness.store.catalog)[:2]
    harness.files.flip(second.copies[0].path, DATA_START + 70)
    before, lost = first.messages, second.messages
    batches = read(harness, 0)
    assert isinstance(batches, list)
    assert len(batches) >= 1, "what lies before it is not held up"
    error = read(harness, 2 * before)
    assert isinstance(error, StorageDamaged)
    assert error.resume_offset == 2 * (before + lost)
    later = read(harness, error.resume_offset)
    assert isinstance(later, list)
    assert later[0].first_offset == error.resume_offset
    harness.heal(5)
    disk = harness.store.status().disks[0]
    assert disk.state == "damaged", "nothing is written anew without what it lacks"
    harness.files.flip(second.copies[0].path, DATA_START + 70)
    harness.clock.advance(AGAIN_S)
    assert len(harness.read_all(source(harness))) == 150, "the frames are all there again"


def test_what_is_found_before_it_is_served() -> None:
    harness = filled(1)
    harness.store._reader._ahead_bytes = 1 << 20
    spoil_index(harness, which=1)
    first, second = list(harness.store.catalog)[:2]
    harness.files.flip(second.copies[0].path, DATA_START + 70)
    batches = read(harness, 0)
    assert isinstance(batches, list)
    assert len(batches) == first.messages


def test_a_segment_that_lacks_an_entry_is_read_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = filled(1)
    path, _ = spoil_index(harness, which=1)
    harness.files.flip(path, DATA_START + 70)
    begin = 2 * next(iter(harness.store.catalog)).messages
    looks = count_looks(monkeypatch)
    for _ in range(5):
        assert isinstance(read(harness, begin), StorageDamaged)
        harness.heal(2)
        harness.dead = set(harness.appended)
        harness.store.collect(harness.live)
    assert looks == [path]
    harness.clock.advance(AGAIN_S)
    assert isinstance(read(harness, begin), StorageDamaged)
    assert looks == [path] * 2, "what was read wrongly may be there"
    harness.kill()
    harness.open()
    harness.store.read(1 << 24, begin, 1 << 20, lambda answer: None)
    harness.run("syncpoint-read")
    assert looks == [path] * 3, "and so it is after a restart"


def test_of_what_some_copies_lack_only_the_others_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = filled(3)
    segment = list(harness.store.catalog)[1]
    paths = [spoil_index(harness, slot, 1)[0] for slot in range(3)]
    harness.files.flip(paths[0], DATA_START + 70)
    harness.files.flip(paths[1], DATA_START + 70)
    copies = segment.copies.copy()
    looks = count_looks(monkeypatch)
    again = Reindexing(harness.files, nowhere, lambda slot: True, harness.clock)
    seed = index_seed(segment.universe, segment.log, segment.seq)

    def page() -> bytes:
        return again.page(segment, segment.index_offset, seed)

    harness.lose_sight(2)
    for _ in range(3):
        with pytest.raises(CopiesUnreachable):
            page()
    assert looks == [*paths, paths[2], paths[2]], "those that were read add nothing"
    del segment.copies[2]
    with pytest.raises(DamagedIndex):
        page()
    assert len(looks) == 5
    segment.copies[2] = copies[2]
    harness.regain(2)
    assert len(page()) == PAGE
    assert looks[5:] == paths[2:], "it has all of them"
    assert len(page()) == PAGE
    assert len(looks) == 6


def nowhere(segment: Segment, offset: int, seed: int) -> bytes:
    raise DamagedIndex("checksum")


def test_deletion_has_a_segment_read_through_by_the_thread_that_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = filled(1)
    path, _ = spoil_index(harness)
    looks = count_looks(monkeypatch)
    harness.dead = set(harness.appended)
    for _ in range(200):
        before = len(looks)
        harness.store.collect(harness.live)
        assert len(looks) == before, "nobody may wait for that on the owner's thread"
        harness.run("syncpoint-read")
        harness.run("syncpoint-write-0")
        harness.deliver()
    assert looks == [path]
    assert harness.store.catalog.at(1, 1) is None
