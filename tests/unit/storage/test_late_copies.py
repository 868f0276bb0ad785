"""What is told to be damaged: only what every copy known says. A disk that is late, away or given up has not spoken."""

from __future__ import annotations

import errno

import pytest

from syncpoint.runtime.memory_files import FailOn
from syncpoint.storage.errors import CopiesUnreachable, StorageDamaged
from syncpoint.storage.record import StoredBatch
from tests.kit.disks import World


def late_world(late: int = 2) -> World:
    """Three disks; the writer of one of them runs only when a test says so."""
    world = World.opened(1, disks=3, segment_entries_max=20, scrub_bytes_s=0, cache_bytes=2_000, read_ahead_bytes=1_000)
    world.late = f"syncpoint-write-{late}"
    return world


def turn(world: World, rounds: int = 30, seconds: float = 0.0) -> None:
    world.store.flush()
    for _ in range(rounds):
        for name in list(world.workers.steps):
            if name != world.late:
                world.run(name)
        world.deliver()
        world.clock.advance(seconds)


def away_and_back(world: World, slot: int) -> None:
    fault = world.fail(slot, errno.EIO)
    world.publish()
    turn(world)
    world.files.faults.remove(fault)
    turn(world, 40, 0.5)
    assert world.store.status().disks[slot].state in ("ok", "healing")


def read(world: World, source: int, first: int) -> list[StoredBatch] | Exception:
    answers: list[list[StoredBatch] | Exception] = []
    world.store.read(source, first, 100, answers.append)
    for _ in range(20):
        world.run("syncpoint-read")
        world.deliver()
    return answers[0]


def assert_served(world: World, key: tuple[int, int]) -> None:
    answer = read(world, *key)
    assert isinstance(answer, list), answer
    assert answer[0].first_offset == key[1]


def test_copies_of_disks_that_come_back_count_although_another_disk_is_late() -> None:
    world = late_world()
    keys = [world.publish() for _ in range(30)]
    turn(world)
    away_and_back(world, 0)
    keys += [world.publish() for _ in range(30)]
    turn(world)
    away_and_back(world, 1)
    whole = {(segment.log, segment.seq): sorted(segment.copies) for segment in world.store.catalog}
    assert {0, 1} <= set(whole[1, 1]), "sealed on both before they failed"
    for key in keys[:30]:
        assert_served(world, key)
    assert [disk.damaged for disk in world.store.status().disks] == [(), (), ()]
    world.late = ""
    turn(world, 50, 0.5)
    world.judge()


def test_the_part_of_a_segment_that_nobody_has_whole_stays_at_readmission() -> None:
    world = late_world()
    keys = [world.publish() for _ in range(10)]
    turn(world)
    away_and_back(world, 0)
    away_and_back(world, 1)
    world.fail(2, errno.EIO)  # the late disk will never write them
    world.late = ""
    turn(world, 10)
    for key in keys:
        assert_served(world, key)
    world.kill()
    world.open()
    world.judge()


def test_a_late_copy_at_the_hot_end_is_not_called_damaged() -> None:
    world = late_world(late=0)
    keys = [world.publish() for _ in range(15)]
    turn(world)
    assert world.store._log.persisted == 15
    for key in keys:
        assert_served(world, key)
    assert [disk.damaged for disk in world.store.status().disks] == [(), (), ()]


def test_what_only_a_late_disk_will_have_is_not_lost_yet() -> None:
    world = late_world()
    key = world.publish()
    world.fill(9)
    turn(world)
    segment = next(iter(world.store.catalog))
    for slot in (0, 1):
        world.files.flip(segment.copies[slot].path, 3 * 4096 + 100)
    assert isinstance(read(world, *key), CopiesUnreachable)
    world.late = ""
    turn(world, 50, 0.5)
    assert_served(world, key)


def test_damage_is_told_once_every_disk_has_spoken() -> None:
    world = late_world()
    world.late = ""
    key = world.publish()
    world.fill(9)
    turn(world)
    segment = next(iter(world.store.catalog))
    assert segment.active is not None
    for slot in (0, 1, 2):
        world.files.flip(segment.copies[slot].path, 3 * 4096 + 100)
    assert isinstance(read(world, *key), StorageDamaged)


def test_a_disk_that_was_given_up_has_not_spoken() -> None:
    world = late_world()
    world.late = ""
    keys = [world.publish() for _ in range(30)]
    turn(world)
    segment = next(iter(world.store.catalog))
    assert segment.active is None
    fault = world.fail(2, errno.EIO)
    turn(world, 10, 0.5)
    assert world.store.status().disks[2].state == "failed"
    for slot in (0, 1):
        world.files.flip(segment.copies[slot].path, 3 * 4096 + 100)
    assert isinstance(read(world, *keys[0]), CopiesUnreachable)
    world.files.faults.remove(fault)
    turn(world, 60, 0.5)
    assert_served(world, keys[0])


@pytest.mark.parametrize("operation", ["listdir", "rename"])
def test_a_readmission_that_was_cut_short_knows_its_folder_again(operation: str) -> None:
    world = late_world()
    world.late = ""
    world.fill(50)
    turn(world)
    segment = next(iter(world.store.catalog))
    path = segment.copies[0].path
    inode = world.files.stat(path).inode
    fault = world.fail(0, errno.EIO)
    world.publish()
    turn(world, 10, 0.5)
    world.files.faults.remove(fault)
    again = FailOn("/d0/marks.json" if operation == "rename" else "/d0/pool", errno.EIO, (operation,), times=2)
    world.files.faults.append(again)
    turn(world, 60, 0.5)
    assert again.times == 0, "it was cut short"
    assert world.store.status().disks[0].state == "ok"
    assert world.files.stat(path).inode == inode, "the whole copy stayed where it was"
