"""What is reported to be damaged: only what every copy known says. A disk that is late, away or given up has not
spoken."""

from __future__ import annotations

import errno

import pytest

from syncpoint.base.runtime.files import DiskFenced
from syncpoint.log.storage.disk.segment_catalog import SegmentCatalog
from syncpoint.log.storage.entries_at_risk import SegmentRows
from syncpoint.log.storage.errors import CopiesUnreachable, Fenced, StorageDamaged
from syncpoint.log.storage.record import EntryKind, StoredBatch
from syncpoint.testing.rigs.memory_files import FailOn
from tests.kit.disks import Harness


def late_harness(late: int = 2) -> Harness:
    """Three disks; the writer of one of them runs only when a test says so."""
    harness = Harness.opened(
        1, disks=3, segment_entries_max=20, scrub_bytes_s=0, cache_bytes=2_000, read_ahead_bytes=1_000
    )
    harness.late = f"syncpoint-write-{late}"
    return harness


def turn(harness: Harness, rounds: int = 30, seconds: float = 0.0) -> None:
    harness.store.flush()
    for _ in range(rounds):
        for name in list(harness.workers.steps):
            if name != harness.late:
                harness.run(name)
        harness.deliver()
        harness.clock.advance(seconds)


def away_and_back(harness: Harness, slot: int) -> None:
    fault = harness.fail(slot, errno.EIO)
    harness.publish()
    turn(harness)
    harness.files.faults.remove(fault)
    turn(harness, 40, 0.5)
    assert harness.store.status().disks[slot].state in ("ok", "healing")


def read(harness: Harness, source: int, first: int) -> list[StoredBatch] | Exception:
    answers: list[list[StoredBatch] | Exception] = []
    harness.store.read(source, first, 100, answers.append)
    for _ in range(20):
        harness.run("syncpoint-read")
        harness.deliver()
    return answers[0]


def assert_served(harness: Harness, key: tuple[int, int]) -> None:
    answer = read(harness, *key)
    assert isinstance(answer, list), answer
    assert answer[0].first_offset == key[1]


def test_copies_of_disks_that_come_back_count_although_another_disk_is_late() -> None:
    harness = late_harness()
    keys = [harness.publish() for _ in range(30)]
    turn(harness)
    away_and_back(harness, 0)
    keys += [harness.publish() for _ in range(30)]
    turn(harness)
    away_and_back(harness, 1)
    whole = {(segment.log, segment.seq): sorted(segment.copies) for segment in harness.store.catalog}
    assert {0, 1} <= set(whole[1, 1]), "sealed on both before they failed"
    for key in keys[:30]:
        assert_served(harness, key)
    assert [disk.damaged for disk in harness.store.status().disks] == [(), (), ()]
    harness.late = ""
    turn(harness, 50, 0.5)
    harness.judge()


def test_the_part_of_a_segment_that_nobody_has_whole_stays_at_readmission() -> None:
    harness = late_harness()
    keys = [harness.publish() for _ in range(10)]
    turn(harness)
    away_and_back(harness, 0)
    away_and_back(harness, 1)
    harness.fail(2, errno.EIO)  # the late disk will never write them
    harness.late = ""
    turn(harness, 10)
    for key in keys:
        assert_served(harness, key)
    harness.kill()
    harness.open()
    harness.judge()


def test_a_late_copy_at_the_hot_end_is_not_called_damaged() -> None:
    harness = late_harness(late=0)
    keys = [harness.publish() for _ in range(15)]
    turn(harness)
    assert harness.store._log.persisted == 15
    for key in keys:
        assert_served(harness, key)
    assert [disk.damaged for disk in harness.store.status().disks] == [(), (), ()]


def test_what_only_a_late_disk_will_have_is_not_lost_yet() -> None:
    harness = late_harness()
    key = harness.publish()
    harness.fill(9)
    turn(harness)
    segment = next(iter(harness.store.catalog))
    for slot in (0, 1):
        harness.files.flip(segment.copies[slot].path, 3 * 4096 + 100)
    assert isinstance(read(harness, *key), CopiesUnreachable)
    harness.late = ""
    turn(harness, 50, 0.5)
    assert_served(harness, key)


def test_damage_is_reported_once_every_disk_has_spoken() -> None:
    harness = late_harness()
    harness.late = ""
    key = harness.publish()
    harness.fill(9)
    turn(harness)
    segment = next(iter(harness.store.catalog))
    assert segment.active is not None
    for slot in (0, 1, 2):
        harness.files.flip(segment.copies[slot].path, 3 * 4096 + 100)
    assert isinstance(read(harness, *key), StorageDamaged)


def test_a_disk_that_was_given_up_has_not_spoken() -> None:
    harness = late_harness()
    harness.late = ""
    keys = [harness.publish() for _ in range(30)]
    turn(harness)
    segment = next(iter(harness.store.catalog))
    assert segment.active is None
    fault = harness.fail(2, errno.EIO)
    turn(harness, 10, 0.5)
    assert harness.store.status().disks[2].state == "failed"
    for slot in (0, 1):
        harness.files.flip(segment.copies[slot].path, 3 * 4096 + 100)
    assert isinstance(read(harness, *keys[0]), CopiesUnreachable)
    harness.files.faults.remove(fault)
    turn(harness, 60, 0.5)
    assert_served(harness, keys[0])


@pytest.mark.parametrize("operation", ["listdir", "rename"])
def test_a_readmission_that_was_cut_short_knows_its_folder_again(operation: str) -> None:
    harness = late_harness()
    harness.late = ""
    harness.fill(50)
    turn(harness)
    segment = next(iter(harness.store.catalog))
    path = segment.copies[0].path
    inode = harness.files.stat(path).inode
    fault = harness.fail(0, errno.EIO)
    harness.publish()
    turn(harness, 10, 0.5)
    harness.files.faults.remove(fault)
    again = FailOn("/d0/marks.json" if operation == "rename" else "/d0/pool", errno.EIO, (operation,), times=2)
    harness.files.faults.append(again)
    turn(harness, 60, 0.5)
    assert again.times == 0, "it was cut short"
    assert harness.store.status().disks[0].state == "ok"
    assert harness.files.stat(path).inode == inode, "the whole copy stayed where it was"


@pytest.mark.parametrize("disks", [1, 3])
def test_what_is_written_while_the_entry_before_it_is_read_is_not_called_damaged(disks: int) -> None:
    harness = Harness.opened(1, disks, scrub_bytes_s=0)
    writer = harness.late = "syncpoint-write-0"
    harness.publish()
    turn(harness)
    harness.run(writer)
    harness.publish()
    turn(harness)
    segment = harness.store._log.segment
    assert segment.active is not None
    records = list(segment.active.all())
    assert [segment.copies[0].has(position) for position in (1, 2)] == [True, False]

    def goes_on(operation: str, path: str) -> None:
        if operation in ("open", "pread") and path == segment.copies[0].path:
            harness.files.faults.remove(goes_on)
            harness.run(writer)

    harness.files.faults.append(goes_on)
    if disks == 1:
        with pytest.raises(CopiesUnreachable):
            harness.store._disks.access.frames(segment, records)
    else:
        assert len(harness.store._disks.access.frames(segment, records)) == 2
    assert segment.copies[0].has(2), "it was written in the meantime"
    harness.deliver()
    assert [(disk.state, disk.damaged, disk.unreadable) for disk in harness.store.status().disks] == [
        ("ok", (), 0)
    ] * disks
    assert len(harness.store._disks.access.frames(segment, records)) == 2


def test_entries_that_no_disk_has_yet_are_not_asked_for() -> None:
    harness = Harness.opened(1, 1, scrub_bytes_s=0)
    harness.late = "syncpoint-write-0"
    harness.note()
    turn(harness)
    harness.run(harness.late)
    harness.deliver()
    harness.note()
    answers: list[SegmentRows | Exception | None] = []
    harness.store.segment_rows(harness.store._log.segment.id, EntryKind.LEDGER, answers.append)
    harness.run("syncpoint-read")
    harness.deliver()
    (rows,) = answers
    assert isinstance(rows, SegmentRows), rows
    assert ([record.ordinal for record in rows.records], sorted(rows.payloads)) == ([0, 1], [0])


def test_a_disk_that_another_writer_has_taken_over_is_not_called_damaged() -> None:
    harness = Harness.opened(1, 1, segment_entries_max=20)
    harness.fill(50)
    harness.commit()

    def fence(operation: str, path: str) -> None:
        if operation in ("open", "pread") and path.startswith("/d0/logs"):
            raise DiskFenced(errno.ESTALE, "a higher epoch is known", path)

    harness.files.faults.append(fence)
    for _ in range(20):
        harness.run("syncpoint-keep-0")
        harness.deliver()
        harness.clock.advance(0.2)
    assert isinstance(harness.store.failure, Fenced), "it was met while the disk was read through"
    assert harness.store.disk_counts[0].damaged == 0
    assert harness.store.status().disks[0].unreadable == 0


def test_what_comes_while_the_segments_are_put_in_order_is_seen_by_the_next_look() -> None:
    catalog = SegmentCatalog(1, 1 << 20)
    first = catalog.add(1, 1, 1)

    class Slow(int):
        def __lt__(self, other: int) -> bool:
            if not late:
                late.append(catalog.add(1, 3, 30))
                catalog.remove(first)
            return int(self) < int(other)

    late: list[object] = []
    second = catalog.add(1, 2, 10)
    first.seq, second.seq = Slow(1), Slow(2)
    assert list(catalog) == [first, second]
    assert list(catalog) == [second, *late]
