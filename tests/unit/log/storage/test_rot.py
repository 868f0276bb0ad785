"""Bits that rot, files that are lost or swapped: found, read from other disks, written again, or counted as lost."""

from __future__ import annotations

import pytest

from syncpoint.log.storage import copy_reader
from syncpoint.log.storage.errors import StorageDamaged
from syncpoint.log.storage.record import HEADER_BYTES, StoredBatch
from syncpoint.log.storage.segment import DATA_START, PAGE, decode_trailer
from syncpoint.log.storage.store import DiskStatus
from tests.kit.disks import Harness


def stored(disks: int, batches: int = 130, size: int = 600, **settings: int) -> Harness:
    """Messages in several segments, of which nothing is in memory."""
    harness = Harness.opened(5, disks, cache_bytes=1, **settings)
    harness.fill(batches, 0, 2, size)
    harness.commit()
    return harness


def test_rot_is_found_healed_and_reported() -> None:
    harness = stored(3)
    path = harness.files.paths("/d0/logs")[0]
    good = harness.files.content(path)
    for offset in (DATA_START + 70, 50, len(good) - 60, DATA_START + 64 + 5):
        harness.files.flip(path, offset)
        harness.heal(20)
        harness.clock.advance(3)
        harness.heal(20)
        assert any("segment 1/1" in text for text in harness.store.status().disks[0].damaged)
        assert harness.store.status().under_replicated == 0
    harness.judge()


def scrubbed(harness: Harness, slot: int = 0) -> DiskStatus:
    """How a disk is once all of it was read through."""
    maintainer = harness.store._disks.maintainers[slot]
    rounds = maintainer.scrubber.rounds + 2  # one may be half done
    for _ in range(600):
        harness.clock.advance(0.2)
        harness.quiesce()
        if maintainer.scrubber.rounds >= rounds:
            return harness.store.status().disks[slot]
    raise AssertionError("the disk is not read through")


def test_what_a_single_disk_has_lost_is_counted_until_it_can_be_read_again_or_is_deleted() -> None:
    harness = stored(1)
    assert scrubbed(harness).state == "ok"
    first, second = harness.files.paths("/d0/logs")[:2]
    spoilt = ((first, DATA_START + 70), (first, DATA_START + 5000), (second, DATA_START + 70))
    for path, offset in spoilt:
        harness.files.flip(path, offset)
    with pytest.raises(StorageDamaged):
        harness.read_all(harness.store.log_counter << 24)
    harness.quiesce()
    disk = harness.store.status().disks[0]
    assert (disk.state, disk.unreadable) == ("damaged", 1), "met by a reader"
    assert f"segment 1/1: frame at {DATA_START}" in disk.reason
    assert "checksum" not in disk.reason, "found in another way it is the same place"
    disk = scrubbed(harness)
    assert (disk.state, disk.unreadable) == ("damaged", 2), "the first place of each copy is met by looking through it"
    harness.files.flip(*spoilt[0])
    harness.files.flip(*spoilt[1])
    disk = scrubbed(harness)
    assert (disk.state, disk.unreadable) == ("damaged", 1)
    assert "segment 1/2" in disk.reason
    harness.dead = set(harness.appended)
    for _ in range(200):
        harness.store.collect(harness.live)
        harness.quiesce()
    disk = harness.store.status().disks[0]
    assert (disk.state, disk.unreadable, disk.reason) == ("ok", 0, "")


def test_what_all_disks_have_lost_is_counted_on_each() -> None:
    harness = stored(3)
    places = [harness.files.paths(f"/d{slot}/logs")[0] for slot in range(3)]
    written = [harness.files.stat(path).inode for path in places]
    for path in places:
        harness.files.flip(path, DATA_START + 70)
    with pytest.raises(StorageDamaged):
        harness.read_all(harness.store.log_counter << 24)
    harness.heal(10)
    assert [(disk.state, disk.unreadable) for disk in harness.store.status().disks] == [("damaged", 1)] * 3
    again = [harness.files.stat(path).inode for path in places]
    with pytest.raises(StorageDamaged):
        harness.read_all(harness.store.log_counter << 24)
    harness.heal(10)
    assert [harness.files.stat(path).inode for path in places] == again, "what no disk has is not copied for ever"
    (kept,) = (path for path, old, new in zip(places, written, again, strict=True) if old == new)
    harness.files.flip(kept, DATA_START + 70)
    for slot in range(3):
        scrubbed(harness, slot)
    harness.heal()
    assert [(disk.state, disk.unreadable) for disk in harness.store.status().disks] == [("ok", 0)] * 3
    harness.judge()


def one_by_one(harness: Harness, source: int) -> list[tuple[int, int, bytes]]:
    """What one read gives away batch by batch."""
    taken: list[tuple[int, int, bytes]] = []

    def take(one: StoredBatch) -> bool:
        taken.append((one.first_offset, one.count, one.payload))
        return True

    harness.store.read(source, 0, 1 << 20, lambda answer: None, take=take)
    harness.quiesce()
    return taken


@pytest.mark.parametrize("sizes", [(500, 20, 20, 500, 500, 20), (20, 500, 20), (500,), (20, 20)])
def test_large_payloads_among_small_ones_are_read_whole_and_their_rot_is_found(
    sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_reader, "LARGE", 300)
    harness = Harness.opened(1, 3, cache_bytes=1)
    source = harness.store.log_counter << 24
    keys = [harness.publish(0, 2, size) for size in sizes]
    harness.commit()
    stored = [(first, *harness.appended[source, first]) for _, first in keys]
    assert harness.read_all(source) == stored
    assert harness.read_all(source, stored[-1][0]) == stored[-1:]
    assert one_by_one(harness, source) == stored
    paths = [harness.files.paths(f"/d{disk}/logs")[0] for disk in range(3)]
    at = DATA_START
    for number, (_, _, payload) in enumerate(stored):  # its header is bad on one disk, its payload on another
        harness.files.flip(paths[number % 3], at + 40)
        harness.files.flip(paths[(number + 1) % 3], at + HEADER_BYTES + len(payload) // 2)
        at += HEADER_BYTES + len(payload)
    assert one_by_one(harness, source) == stored
    assert harness.read_all(source) == stored
    harness.files.flip(paths[0], at - 1)
    harness.files.flip(paths[1], at - 1)
    harness.files.flip(paths[2], at - 1)
    with pytest.raises(StorageDamaged):
        harness.read_all(source)


def test_rot_on_every_disk_in_different_places() -> None:
    harness = stored(3, 100, scrub_bytes_s=0)
    harness.stop()
    for slot in range(3):
        harness.files.flip(f"/d{slot}/logs/0000000001/00000001.seg", DATA_START + 100 + 2_000 * slot)
    harness.open()
    harness.judge()


def test_rot_without_a_replica_is_reported_and_the_rest_is_served() -> None:
    harness = stored(1, 20)
    harness.stop()
    harness.files.flip("/d0/logs/0000000001/00000001.seg", DATA_START + 100)
    harness.open()
    with pytest.raises(StorageDamaged) as reported:
        harness.read_all(1 << 24)
    assert reported.value.resume_offset == 2
    assert len(harness.read_all(1 << 24, 2)) == 19


def test_a_lost_segment_is_missed() -> None:
    harness = Harness.opened(5, 1)
    harness.persist()
    harness.stop()
    harness.files.unlink("/d0/logs/0000000001/00000001.seg")
    with pytest.raises(StorageDamaged, match="segment 1 of log 1 is missing on every disk"):
        harness.open()
    harness.settings = harness.settings.__class__(segment_bytes=128 * 1024, accept_loss=True)
    harness.kill()
    store = harness.open()
    assert store.recovered.lost


@pytest.mark.parametrize("name", ["marks.json", "disk.json"])
@pytest.mark.parametrize("how", ["unlink", "flip"])
def test_small_files_may_rot(name: str, how: str) -> None:
    harness = Harness.opened(5, 1)
    harness.persist()
    harness.stop()
    if how == "unlink":
        harness.files.unlink(f"/d0/{name}")
    else:
        harness.files.flip(f"/d0/{name}", 60)
    store = harness.open()
    assert store.log_counter == 2
    harness.judge()


def test_swapped_and_renamed_segments_are_put_right() -> None:
    harness = stored(1, 150, 300)
    harness.stop()
    one, two = "/d0/logs/0000000001/00000001.seg", "/d0/logs/0000000001/00000002.seg"
    harness.files.rename(one, "/d0/x")
    harness.files.rename(two, one)
    harness.files.rename("/d0/x", two)
    harness.open()
    harness.judge()
    harness.stop()
    harness.files.rename(one, "/d0/logs/0000000001/00000077.seg")
    harness.open()
    harness.judge()


def test_a_damaged_index_is_built_again() -> None:
    harness = Harness.opened(5, 1, cache_bytes=1)
    harness.fill(150, 0, 2, 300)
    harness.note()
    harness.commit()
    harness.stop()
    path = "/d0/logs/0000000001/00000001.seg"
    whole = harness.files.content(path)
    size = len(whole)
    for at in (size - 10, size - PAGE - 50, size - 2 * PAGE):  # the trailer, and the index before it
        harness.files.flip(path, at)
        harness.open()
        assert harness.store.recovered.scanned == ["1/1"]
        harness.judge()
        harness.stop()
        again = harness.files.content(path)
        assert again[:-PAGE] == whole[:-PAGE], "the index is what it was"
        sealed = decode_trailer(again[-PAGE:])
        assert sealed is not None
        assert sealed[1].index_offset == decode_trailer(whole[-PAGE:])[1].index_offset
    harness.open()
    assert "1/1" not in harness.store.recovered.scanned
    harness.judge()
