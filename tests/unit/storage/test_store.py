"""The contract of the store, one promise per test, on disks in memory."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from syncpoint.model.errors import ResourceExhausted, Unavailable
from syncpoint.storage import copy_reader
from syncpoint.storage.errors import CopiesUnreachable, DisksFailed, DisksMissing, ForeignDisk, StorageDamaged
from syncpoint.storage.quorum import AckRule
from syncpoint.storage.record import HEADER_BYTES, EntryKind, StoredBatch
from syncpoint.storage.segment import DATA_START, PAGE, decode_trailer
from syncpoint.storage.store import DiskStatus
from tests.kit.disks import World


def test_an_even_number_of_disks_is_refused() -> None:
    with pytest.raises(ValueError, match="odd"):
        World(1, 2).open()


def test_counters_rise_and_respect_the_floor() -> None:
    world = World(1)
    assert world.open().log_counter == 1
    world.stop()
    assert world.open().log_counter == 2
    assert 10**12 <= world.universe < 10**13


def test_payloads_may_come_in_pieces() -> None:
    world = World(1, cache_bytes=1)
    store = world.open()
    store.append(EntryKind.MESSAGES, [b"ab", bytearray(b"cd"), memoryview(b"ef")], source=5, first_offset=0, count=2)
    store.append(EntryKind.MESSAGES, memoryview(b"gh"), source=5, first_offset=2, count=1)
    world.commit()
    assert world.read_all(5) == [(0, 2, b"abcdef"), (2, 1, b"gh")]


@pytest.mark.parametrize("failing", ["syncpoint.storage.log.Log.roll", "syncpoint.storage.index.ActiveIndex.add"])
def test_an_entry_that_is_appended_by_half_ends_the_log(failing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World.opened(1, 3)
    kept = [world.publish(0, 2)]
    world.commit()

    def out_of_memory(*args: object, **fields: object) -> None:
        raise MemoryError("not now")

    def fill_a_segment() -> None:
        for _ in range(world.settings.segment_entries_max + 1):
            kept.append(world.publish(0, 2))

    with monkeypatch.context() as patched:
        patched.setattr(failing, out_of_memory)
        with pytest.raises(MemoryError):
            fill_a_segment()
    assert [type(one) for one in world.failures] == [DisksFailed]
    with pytest.raises(Unavailable, match="could not be appended"):
        world.store.append(EntryKind.LEDGER, b"later")
    world.stop()
    world.open()
    found = world.read_all(kept[0][0])
    assert found[0] == (0, 2, world.appended[kept[0]][1])
    assert [first for first, _, _ in found] == [2 * at for at in range(len(found))]


def test_reads_show_only_what_is_persisted() -> None:
    world = World(1)
    store = world.open()
    world.publish(0, 2)
    source = store.log_counter << 24
    assert world.read_all(source) == []
    assert store.bounds(source) is None
    world.commit()
    world.publish(0, 2)
    assert [first for first, _, _ in world.read_all(source)] == [0]
    assert store.bounds(source) == (0, 2)
    assert store.bounds(99) is None


def test_reads_are_bounded_and_start_inside_a_batch() -> None:
    world = World.opened(1, cache_bytes=1)
    world.fill(200, 1, 4, 700)
    world.commit()
    source = world.store.log_counter << 24 | 1
    answers: list = []
    world.store.read(source, 402, 3_000, answers.append)
    world.run("syncpoint-read")
    world.deliver()
    assert [batch.first_offset for batch in answers[0]] == [400, 404, 408, 412]
    assert [first for first, _, _ in world.read_all(source, 2)] == list(range(0, 800, 4))
    assert len(list(world.store.catalog)) > 2, "the test should span segments"


def given(
    world: World, source: int, take: Callable[[StoredBatch], bool], size: int = 1 << 20, begin: int = 0
) -> list[object]:
    """What a read with `take` is answered."""
    answers: list[object] = []
    world.store.read(source, begin, size, answers.append, take=take)
    world.settle()
    return answers


@pytest.mark.parametrize("disks", [1, 3])
def test_who_takes_batches_one_by_one_gets_them_from_disk_in_order(disks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_reader, "PART_BYTES", 1_200)
    world = World.opened(1, disks, cache_bytes=1, segment_entries_max=14)
    source = world.store.log_counter << 24
    for _ in range(20):
        world.publish(0, 2, size=500)
        world.publish(1, 1, size=30)
    world.commit()
    stored = world.read_all(source)
    taken: list[StoredBatch] = []
    assert given(world, source, lambda batch: not taken.append(batch)) == [[]]
    assert [(one.first_offset, one.count, one.payload) for one in taken] == stored
    del taken[:]
    assert given(world, source, lambda batch: taken.append(batch) or len(taken) < 3) == [[]]
    assert len(taken) == 3
    del taken[:]
    assert given(world, source, lambda batch: not taken.append(batch), size=9_000, begin=3) == [[]]
    assert [one.first_offset for one in taken] == list(range(2, 2 + 2 * len(taken), 2))
    assert 1 < len(taken) < len(stored) - 1
    del taken[:]
    assert given(world, 99, lambda batch: not taken.append(batch)) == [[]]
    assert not taken

    def refuse(batch: StoredBatch) -> bool:
        raise ValueError("no room")

    (refused,) = given(world, source, refuse)
    assert isinstance(refused, ValueError)


def test_who_takes_batches_is_answered_from_the_cache_as_everybody_is() -> None:
    world = World.opened(1, cache_bytes=100_000)
    source = world.store.log_counter << 24
    keys = [world.publish(0, 2) for _ in range(3)]
    world.commit()
    (answer,) = given(world, source, lambda batch: pytest.fail("it comes from no disk"))
    assert [one.first_offset for one in answer] == [first for _, first in keys]  # type: ignore[attr-defined]


@pytest.mark.parametrize("part", [1, 1_200, 1 << 20])
def test_batches_are_taken_up_to_a_damaged_one_and_the_next_read_meets_it(
    part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_reader, "PART_BYTES", part)
    world = World.opened(1, 1, cache_bytes=1)
    source = world.store.log_counter << 24
    keys = [world.publish(0, 2, size=500) for _ in range(4)]
    world.commit()
    sizes = [HEADER_BYTES + len(world.appended[key][1]) for key in keys]
    world.files.flip(world.files.paths("/d0/logs")[0], DATA_START + sum(sizes[:3]) - 1)
    taken = [-2]
    answer: object = []
    while answer == []:
        (answer,) = given(world, source, lambda one: not taken.append(one.first_offset), begin=taken[-1] + 2)
    assert taken[1:] == [first for _, first in keys[:2]]
    assert isinstance(answer, StorageDamaged)
    assert answer.resume_offset == keys[3][1]


def test_time_is_found() -> None:
    world = World(1, cache_bytes=1)
    store = world.open()
    source = store.log_counter << 24
    for number in range(300):
        store.append(
            EntryKind.MESSAGES, b"x" * 400, source=source, first_offset=number * 2, count=2, time_ns=10 * number
        )
    world.commit()
    for time_ns, offset in [(0, 0), (1, 2), (10, 2), (1_555, 312), (2_990, 598), (2_991, 600)]:
        assert store.offset_at(source, time_ns) == offset
    assert store.offset_at(77, 1) == 0
    store.close()
    world.kill()
    store = world.open()
    assert store.offset_at(source, 1_555) == 312


def test_a_checkpoint_makes_older_facts_unnecessary() -> None:
    world = World.opened(1)
    first = world.note()
    world.commit()
    world.take_checkpoint()
    second = world.note()
    world.commit()
    assert world.checkpoint.complete
    world.power_cut()
    world.open()
    entries = list(world.store.replay())
    assert [entry.payload for entry in entries] == [first, second]
    assert [entry.kind for entry in entries] == [EntryKind.CHECKPOINT_PART, EntryKind.LEDGER]


def test_an_unfinished_checkpoint_does_not_count() -> None:
    world = World.opened(1)
    first = world.note()
    checkpoint = world.store.checkpoint(iter([b"part"] * 3))
    checkpoint.step(1)
    world.commit()
    world.power_cut()
    world.open()
    assert [entry.payload for entry in world.store.replay()] == [first]


def test_dead_segments_go_and_live_rests_are_copied_forward() -> None:
    world = World.opened(1, cache_bytes=1)
    for number in range(600):
        world.publish(number % 5, 2, 300)
    world.commit()
    before = len(list(world.store.catalog))
    world.dead.update(key for key in world.acked if key[1] % 40)
    copied = 0
    for _ in range(60):
        copied += world.store.collect(world.live).copied_entries
        world.settle()
    assert copied
    assert len(list(world.store.catalog)) < before
    world.judge()
    for _ in range(3):
        world.kill()
        world.open()
        world.judge()
        world.settle_facts()
    stored = {first for first, _, _ in world.read_all(1 << 24)}
    assert {key[1] for key in world.acked if key[0] == 1 << 24 and key not in world.dead} <= stored


def test_a_thousand_restarts_leave_nothing_behind() -> None:
    world = World(1)
    calls = []
    files = 0
    for number in range(1_000):
        world.open()
        world.note()
        if number % 50 == 0:
            world.publish(0, 1, 100)
        world.take_checkpoint()
        world.commit()
        for _ in range(3):
            world.store.collect(lambda *batch: False)
            world.settle(5)
        if number % 2:
            world.store.close()
        before = world.files.calls
        world.kill()
        world.acked_facts.clear()
        if number in (100, 999):
            world.open()
            calls.append(world.files.calls - before)
            files = len(world.files.paths("/d0"))
            world.kill()
    assert files < 20
    assert calls[1] <= calls[0] + 20
    assert len(world.files.content("/d0/marks.json").rstrip()) < 1_000


def test_full_disks_refuse_messages_and_take_acknowledgements() -> None:
    world = World(1, bytes_max=1_500_000, segment_bytes=128 * 1024, reserve_bytes=600_000)
    store = world.open()
    world.clock.advance(2)
    world.settle()
    published = 0
    while not store.status().full:
        world.publish(0, 2, 3_000)
        published += 1
        world.commit()
        world.clock.advance(0.2)
        world.settle(2)
    assert published > 100
    with pytest.raises(ResourceExhausted, match="reserved"):
        store.admit(3_000)
    assert not store.status().too_few
    for _ in range(200):
        world.note(300)
        world.commit()
    assert not world.failures
    world.take_checkpoint()
    world.commit()
    world.dead.update(world.acked)
    for _ in range(40):
        store.collect(world.live)
        world.clock.advance(1.1)
        world.settle()
    store.admit(3_000)
    assert not store.status().full


def test_disks_that_failed_are_not_called_full() -> None:
    world = World(5, 3)
    store = world.open()
    world.clock.advance(2)
    world.settle()
    assert not store.status().too_few
    world.fail(1)
    world.fail(2)
    world.persist()
    world.clock.advance(2)
    world.settle()
    status = store.status()
    assert [disk.state for disk in status.disks] == ["ok", "failed", "failed"]
    assert status.room_bytes < 3_000
    assert (status.full, status.too_few) == (False, True)
    with pytest.raises(ResourceExhausted, match="too few disks work"):
        store.admit(3_000)


@pytest.mark.parametrize("operation", ["pwritev", "fdatasync", "open", "rename"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EROFS, errno.EMFILE])
def test_one_of_three_disks_fails_and_comes_back(operation: str, number: int) -> None:
    world = World.opened(5, 3)
    old = world.known[1]
    fault = world.fail(1, number, (operation,))
    for at in range(150):
        world.persist(at % 2)
        world.clock.advance(0.02)
    assert not world.waiting
    status = world.store.status()
    assert [disk.state for disk in status.disks] == ["ok", "failed", "ok"]
    assert status.under_replicated
    world.files.faults.remove(fault)
    world.heal()
    status = world.store.status()
    assert [disk.state for disk in status.disks] == ["ok"] * 3
    assert status.under_replicated == 0
    assert status.disks[1].incarnation not in ("", old)
    assert not world.files.paths("/d1/quarantine"), "what others have is not kept twice"
    world.persist()
    world.stop()
    world.fail(0)
    world.open()
    world.judge()


def test_a_failed_sync_is_never_tried_again() -> None:
    world = World.opened(5, 1)
    world.persist()
    world.fail(0, errno.EIO, ("fdatasync",)).times = 1
    world.persist()
    world.clock.advance(5)
    world.settle()
    assert isinstance(world.failures[0], DisksFailed)
    assert world.waiting
    with pytest.raises(Unavailable):
        world.publish()
    world.power_cut()
    world.open()
    world.judge()


def test_a_log_that_has_failed_is_read_on() -> None:
    """What is persisted is read off the disks, or is out of reach: it is never said not to be there."""
    world = World.opened(5, 1, cache_bytes=1)
    source, _ = world.publish()
    world.persist()
    known = world.read_all(source)
    world.fail(0, errno.EIO, ("fdatasync",))
    world.persist()
    assert world.failures
    assert world.read_all(source) == known
    world.fail(0)
    with pytest.raises(CopiesUnreachable):
        world.read_all(source)


def test_a_majority_that_fails_says_unknown() -> None:
    world = World.opened(5, 3)
    world.fail(0)
    world.fail(2)
    world.persist()
    assert len(world.failures) == 1
    assert world.waiting
    with pytest.raises(Unavailable, match="repair the disks, then start the server again"):
        world.publish()


def test_a_chain_of_a_cluster_that_fails_asks_for_no_restart() -> None:
    world = World(5, rule=AckRule.single(3))
    world.local = False  # its disks are other processes'; somebody else may open it
    world.open()
    world.fail(0)
    world.fail(2)
    world.persist()
    with pytest.raises(Unavailable, match="too few disks are left") as caught:
        world.publish()
    assert "start" not in str(caught.value)


@pytest.mark.parametrize("wipe", ["all", "segment"])
def test_a_folder_that_vanishes_is_noticed_without_a_failing_write(wipe: str) -> None:
    world = World.opened(5, 3)
    world.persist()
    if wipe == "all":
        world.files.wipe("/d2")
    else:
        world.files.unlink(world.files.paths("/d2/logs")[0])
    world.clock.advance(1.1)
    world.settle()
    assert world.store.status().disks[2].state != "ok" or world.store.status().disks[2].incarnation != world.known[2]
    world.heal()
    assert [disk.state for disk in world.store.status().disks] == ["ok"] * 3
    assert world.store.status().disks[2].incarnation != world.known[2]


def test_rot_is_found_healed_and_reported() -> None:
    world = World.opened(5, 3, cache_bytes=1)
    world.fill(130, 0, 2, 600)
    world.commit()
    path = world.files.paths("/d0/logs")[0]
    good = world.files.content(path)
    for offset in (DATA_START + 70, 50, len(good) - 60, DATA_START + 64 + 5):
        world.files.flip(path, offset)
        world.heal(20)
        world.clock.advance(3)
        world.heal(20)
        assert any("segment 1/1" in text for text in world.store.status().disks[0].damaged)
        assert world.store.status().under_replicated == 0
    world.judge()


def scrubbed(world: World, slot: int = 0) -> DiskStatus:
    """How a disk is once all of it was read through."""
    maintainer = world.store._disks.maintainers[slot]
    rounds = maintainer.scrubber.rounds + 2  # one may be half done
    for _ in range(600):
        world.clock.advance(0.2)
        world.settle()
        if maintainer.scrubber.rounds >= rounds:
            return world.store.status().disks[slot]
    raise AssertionError("the disk is not read through")


def test_what_a_single_disk_has_lost_is_counted_until_it_can_be_read_again_or_is_deleted() -> None:
    world = World.opened(5, 1, cache_bytes=1)
    world.fill(130, 0, 2, 600)
    world.commit()
    assert scrubbed(world).state == "ok"
    first, second = world.files.paths("/d0/logs")[:2]
    spoilt = ((first, DATA_START + 70), (first, DATA_START + 5000), (second, DATA_START + 70))
    for path, offset in spoilt:
        world.files.flip(path, offset)
    with pytest.raises(StorageDamaged):
        world.read_all(world.store.log_counter << 24)
    world.settle()
    disk = world.store.status().disks[0]
    assert (disk.state, disk.unreadable) == ("damaged", 1), "met by a reader"
    assert f"segment 1/1: frame at {DATA_START}" in disk.reason
    assert "checksum" not in disk.reason, "found in another way it is the same place"
    disk = scrubbed(world)
    assert (disk.state, disk.unreadable) == ("damaged", 2), "the first place of each copy is met by looking through it"
    world.files.flip(*spoilt[0])
    world.files.flip(*spoilt[1])
    disk = scrubbed(world)
    assert (disk.state, disk.unreadable) == ("damaged", 1)
    assert "segment 1/2" in disk.reason
    world.dead = set(world.appended)
    for _ in range(200):
        world.store.collect(world.live)
        world.settle()
    disk = world.store.status().disks[0]
    assert (disk.state, disk.unreadable, disk.reason) == ("ok", 0, "")


def test_what_all_disks_have_lost_is_counted_on_each() -> None:
    world = World.opened(5, 3, cache_bytes=1)
    world.fill(130, 0, 2, 600)
    world.commit()
    places = [world.files.paths(f"/d{slot}/logs")[0] for slot in range(3)]
    written = [world.files.stat(path).inode for path in places]
    for path in places:
        world.files.flip(path, DATA_START + 70)
    with pytest.raises(StorageDamaged):
        world.read_all(world.store.log_counter << 24)
    world.heal(10)
    assert [(disk.state, disk.unreadable) for disk in world.store.status().disks] == [("damaged", 1)] * 3
    again = [world.files.stat(path).inode for path in places]
    with pytest.raises(StorageDamaged):
        world.read_all(world.store.log_counter << 24)
    world.heal(10)
    assert [world.files.stat(path).inode for path in places] == again, "what no disk has is not copied for ever"
    (kept,) = (path for path, old, new in zip(places, written, again, strict=True) if old == new)
    world.files.flip(kept, DATA_START + 70)
    for slot in range(3):
        scrubbed(world, slot)
    world.heal()
    assert [(disk.state, disk.unreadable) for disk in world.store.status().disks] == [("ok", 0)] * 3
    world.judge()


@pytest.mark.parametrize("sizes", [(500, 20, 20, 500, 500, 20), (20, 500, 20), (500,), (20, 20)])
def test_large_payloads_among_small_ones_are_read_whole_and_their_rot_is_found(
    sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_reader, "LARGE", 300)
    world = World.opened(1, 3, cache_bytes=1)
    source = world.store.log_counter << 24
    keys = [world.publish(0, 2, size) for size in sizes]
    world.commit()
    stored = [(first, *world.appended[source, first]) for _, first in keys]
    assert world.read_all(source) == stored
    assert world.read_all(source, stored[-1][0]) == stored[-1:]
    paths = [world.files.paths(f"/d{disk}/logs")[0] for disk in range(3)]
    at = DATA_START
    for number, (_, _, payload) in enumerate(stored):  # its header is bad on one disk, its payload on another
        world.files.flip(paths[number % 3], at + 40)
        world.files.flip(paths[(number + 1) % 3], at + HEADER_BYTES + len(payload) // 2)
        at += HEADER_BYTES + len(payload)
    assert world.read_all(source) == stored
    world.files.flip(paths[0], at - 1)
    world.files.flip(paths[1], at - 1)
    world.files.flip(paths[2], at - 1)
    with pytest.raises(StorageDamaged):
        world.read_all(source)


def test_rot_on_every_disk_in_different_places() -> None:
    world = World.opened(5, 3, cache_bytes=1, scrub_bytes_s=0)
    world.fill(100, 0, 2, 600)
    world.commit()
    world.stop()
    for slot in range(3):
        world.files.flip(f"/d{slot}/logs/0000000001/00000001.seg", DATA_START + 100 + 2_000 * slot)
    world.open()
    world.judge()


def test_rot_without_a_replica_is_told_and_the_rest_is_served() -> None:
    world = World.opened(5, 1, cache_bytes=1)
    world.fill(20, 0, 2, 600)
    world.commit()
    world.stop()
    world.files.flip("/d0/logs/0000000001/00000001.seg", DATA_START + 100)
    world.open()
    with pytest.raises(StorageDamaged) as told:
        world.read_all(1 << 24)
    assert told.value.resume_offset == 2
    assert len(world.read_all(1 << 24, 2)) == 19


def test_a_lost_segment_is_missed() -> None:
    world = World.opened(5, 1)
    world.persist()
    world.stop()
    world.files.unlink("/d0/logs/0000000001/00000001.seg")
    with pytest.raises(StorageDamaged, match="segment 1 of log 1 is on no disk"):
        world.open()
    world.settings = world.settings.__class__(segment_bytes=128 * 1024, accept_loss=True)
    world.kill()
    store = world.open()
    assert store.recovered.lost


@pytest.mark.parametrize("name", ["marks.json", "disk.json"])
@pytest.mark.parametrize("how", ["unlink", "flip"])
def test_small_files_may_rot(name: str, how: str) -> None:
    world = World.opened(5, 1)
    world.persist()
    world.stop()
    if how == "unlink":
        world.files.unlink(f"/d0/{name}")
    else:
        world.files.flip(f"/d0/{name}", 60)
    store = world.open()
    assert store.log_counter == 2
    world.judge()


def test_swapped_and_renamed_segments_are_put_right() -> None:
    world = World.opened(5, 1, cache_bytes=1)
    world.fill(150, 0, 2, 300)
    world.commit()
    world.stop()
    one, two = "/d0/logs/0000000001/00000001.seg", "/d0/logs/0000000001/00000002.seg"
    world.files.rename(one, "/d0/x")
    world.files.rename(two, one)
    world.files.rename("/d0/x", two)
    world.open()
    world.judge()
    world.stop()
    world.files.rename(one, "/d0/logs/0000000001/00000077.seg")
    world.open()
    world.judge()


def test_a_damaged_index_is_built_again() -> None:
    world = World.opened(5, 1, cache_bytes=1)
    world.fill(150, 0, 2, 300)
    world.note()
    world.commit()
    world.stop()
    path = "/d0/logs/0000000001/00000001.seg"
    whole = world.files.content(path)
    size = len(whole)
    for at in (size - 10, size - PAGE - 50, size - 2 * PAGE):  # the trailer, and the index before it
        world.files.flip(path, at)
        world.open()
        assert world.store.recovered.scanned == ["1/1"]
        world.judge()
        world.stop()
        again = world.files.content(path)
        assert again[:-PAGE] == whole[:-PAGE], "the index is what it was"
        sealed = decode_trailer(again[-PAGE:])
        assert sealed is not None
        assert sealed[1].index_offset == decode_trailer(whole[-PAGE:])[1].index_offset
    world.open()
    assert "1/1" not in world.store.recovered.scanned
    world.judge()


def test_two_processes_do_not_share_a_disk() -> None:
    world = World.opened(5, 1)
    with pytest.raises(ForeignDisk, match="in use"):
        world.open()


def test_disks_of_two_universes_do_not_mix() -> None:
    world = World.opened(5, 3)
    other = World.opened(6, 1)
    other.store.close()
    backup = other.files.snapshot("/d0")
    world.stop()
    world.files.restore("/d0", backup)
    with pytest.raises(ForeignDisk, match="universe") as found:
        world.open()
    assert ": /d0" in str(found.value)
    assert ": the one wanted, /d1, /d2" in str(found.value)


def test_a_wiped_only_disk_is_not_a_new_store() -> None:
    world = World.opened(5, 1)
    world.stop()
    world.files.wipe("/d0")
    with pytest.raises(DisksMissing, match="missing"):
        world.open()


def test_a_disk_put_back_in_time_joins_as_a_new_one() -> None:
    world = World.opened(5, 3)
    world.persist()
    world.stop()
    backup = world.files.snapshot("/d1")
    old = world.known[1]
    world.open()
    world.persist()
    world.stop()
    world.files.restore("/d1", backup)
    store = world.open()
    assert store.recovered.disks[1] != old
    assert any("old state" in note for note in store.recovered.notes)
    world.judge()


def test_async_acknowledges_before_and_syncs_soon_after() -> None:
    world = World.opened(5, 1, durability="async", sync_interval_s=0.05)
    world.publish()
    world.store.flush()
    before = world.store.status().disks[0].position
    world.run("syncpoint-write-0")
    world.deliver()
    assert not world.waiting
    assert world.store.status().disks[0].position == before
    world.clock.advance(0.06)
    world.run("syncpoint-write-0")
    assert world.store.status().disks[0].position == 1


def test_memory_acknowledges_at_once() -> None:
    world = World.opened(5, 3, durability="memory")
    world.publish()
    world.store.flush()
    world.deliver()
    assert not world.waiting
    world.settle(seconds=0.1, rounds=5)
    assert world.store.status().under_replicated == 0


def test_a_disk_far_behind_leaves_the_stream_and_comes_back() -> None:
    world = World.opened(5, 3, lag_bytes_max=50_000)
    for _ in range(200):
        world.persist(0, 1, 2_000)
    whole = {path: world.files.stat(path).inode for path in world.files.paths("/d2/logs")[:-1]}
    assert len(whole) > 2
    for _ in range(60):
        world.publish(0, 1, 2_000)
        world.store.flush()
        for name in ("syncpoint-write-0", "syncpoint-write-1"):
            world.run(name)
        world.deliver()
    assert world.store.status().disks[2].state == "failed"
    assert "behind" in world.store.status().disks[2].reason
    world.heal()
    assert [disk.state for disk in world.store.status().disks] == ["ok"] * 3
    assert {path: world.files.stat(path).inode for path in whole} == whole, "only what it was behind with is copied"


def test_a_disk_far_behind_leaves_as_soon_as_the_others_suffice_though_nothing_more_is_appended() -> None:
    world = World.opened(5, 3, lag_bytes_max=50_000)
    world.fill(30, 0, 1, 2_000)
    world.store.flush()
    world.deliver()
    assert [disk.state for disk in world.store.status().disks] == ["ok"] * 3, "all are equally far behind"
    for _ in range(5):  # commits of the size that one takes
        for name in ("syncpoint-write-0", "syncpoint-write-1"):
            world.run(name)
        world.deliver()
    assert "behind" in world.store.status().disks[2].reason
    assert not world.waiting


def test_close_seals_so_that_nothing_is_scanned() -> None:
    world = World.opened(5, 3)
    world.publish()
    world.store.flush()
    world.store.close()
    world.deliver()
    assert not world.waiting
    world.kill()
    assert world.open().recovered.scanned == []


def test_a_commit_that_does_not_end_costs_the_disk_and_nothing_else() -> None:
    world = World(5, 3)
    store = world.open()
    writer = store._disks.log.live[2]
    writer.busy_since = world.clock.monotonic()
    world.clock.advance(16)
    for _ in range(5):  # what is queued for the maintainer comes before its look round
        world.run("syncpoint-keep-2")
    world.deliver()
    assert store.status().disks[2].state == "failed"
    assert "longer" in store.status().disks[2].reason
    world.persist()
    assert not world.waiting


def test_what_the_owner_hears_while_another_thread_closes_the_store_changes_nothing() -> None:
    world = World(1, 3)
    store = world.open()
    world.fill(5)
    store.flush()
    for slot in (0, 1):
        world.run(f"syncpoint-write-{slot}")
    assert world.inbox, "what the writers reported is still to be heard"
    store.begin_close()
    with pytest.raises(Unavailable):
        store.append(EntryKind.LEDGER, b"too late")
    seen: list[tuple[int, int]] = []

    def owner_goes_on(operation: str, path: str) -> None:
        """In the middle of what the other thread does."""
        if operation == "fdatasync":
            before = store._log.persisted
            world.deliver()
            store.collect(world.live)
            seen.append((before, store._log.persisted))

    world.files.faults.append(owner_goes_on)
    store.close()
    assert seen
    assert all(before == after for before, after in seen)
    assert not world.waiting, "all was told in the end, by whoever closed"
    world.kill()
    world.files.faults.clear()
    world.open()
    world.judge()


def test_spare_files_are_made_once_a_segment_is_half_full() -> None:
    """So an idle log takes the room of one segment; and the spare one is there before it is needed."""
    world = World(1, 3)
    store = world.open()

    def spares() -> list[str]:
        return [path for root in world.roots for path in world.files.paths(f"{root}/pool") if path.endswith(".free")]

    world.persist()
    world.settle(40, seconds=1.0)
    assert not spares()
    while store._log.room_in_segment >= world.settings.segment_bytes // 2:
        world.publish(size=5_000)
    world.commit()
    world.settle(40, seconds=1.0)
    assert store._log.segment.seq == 1
    assert len(spares()) == 3
