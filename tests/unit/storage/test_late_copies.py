"""What is reported to be damaged: only what every copy known says. A disk that is late, away or given up has not
spoken."""

from __future__ import annotations

import errno

import pytest

from syncpoint.storage.errors import CopiesUnreachable, StorageDamaged
from syncpoint.storage.record import StoredBatch
from syncpoint.testing.memory_files import FailOn
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
