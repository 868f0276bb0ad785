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
from tests.kit.disks import Harness


def test_an_even_number_of_disks_is_refused() -> None:
    with pytest.raises(ValueError, match="odd"):
        Harness(1, 2).open()


def test_counters_rise_and_respect_the_floor() -> None:
    harness = Harness(1)
    assert harness.open().log_counter == 1
    harness.stop()
    assert harness.open().log_counter == 2
    assert 10**12 <= harness.universe < 10**13


def test_payloads_may_come_in_pieces() -> None:
    harness = Harness(1, cache_bytes=1)
    store = harness.open()
    store.append(EntryKind.MESSAGES, [b"ab", bytearray(b"cd"), memoryview(b"ef")], source=5, first_offset=0, count=2)
    store.append(EntryKind.MESSAGES, memoryview(b"gh"), source=5, first_offset=2, count=1)
    harness.commit()
    assert harness.read_all(5) == [(0, 2, b"abcdef"), (2, 1, b"gh")]


@pytest.mark.parametrize("failing", ["syncpoint.storage.log.Log.roll", "syncpoint.storage.index.ActiveIndex.add"])
def test_an_entry_that_is_appended_by_half_ends_the_log(failing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness.opened(1, 3)
    kept = [harness.publish(0, 2)]
    harness.commit()

    def out_of_memory(*args: object, **fields: object) -> None:
        raise MemoryError("not now")

    def fill_a_segment() -> None:
        for _ in range(harness.settings.segment_entries_max + 1):
            kept.append(harness.publish(0, 2))

    with monkeypatch.context() as patched:
        patched.setattr(failing, out_of_memory)
        with pytest.raises(MemoryError):
            fill_a_segment()
    assert [type(one) for one in harness.failures] == [DisksFailed]
    with pytest.raises(Unavailable, match="could not be appended"):
        harness.store.append(EntryKind.LEDGER, b"later")
    harness.stop()
    harness.open()
    found = harness.read_all(kept[0][0])
    assert found[0] == (0, 2, harness.appended[kept[0]][1])
    assert [first for first, _, _ in found] == [2 * at for at in range(len(found))]


def test_reads_show_only_what_is_persisted() -> None:
    harness = Harness(1)
    store = harness.open()
    harness.publish(0, 2)
    source = store.log_counter << 24
    assert harness.read_all(source) == []
    assert store.bounds(source) is None
    harness.commit()
    harness.publish(0, 2)
    assert [first for first, _, _ in harness.read_all(source)] == [0]
    assert store.bounds(source) == (0, 2)
    assert store.bounds(99) is None


def test_reads_are_bounded_and_start_inside_a_batch() -> None:
    harness = Harness.opened(1, cache_bytes=1)
    harness.fill(200, 1, 4, 700)
    harness.commit()
    source = harness.store.log_counter << 24 | 1
    answers: list = []
    harness.store.read(source, 402, 3_000, answers.append)
    harness.run("syncpoint-read")
    harness.deliver()
    assert [batch.first_offset for batch in answers[0]] == [400, 404, 408, 412]
    assert [first for first, _, _ in harness.read_all(source, 2)] == list(range(0, 800, 4))
    assert len(list(harness.store.catalog)) > 2, "the test should span segments"


def given(
    harness: Harness, source: int, take: Callable[[StoredBatch], bool], size: int = 1 << 20, begin: int = 0
) -> list[object]:
    """What a read with `take` is answered."""
    answers: list[object] = []
    harness.store.read(source, begin, size, answers.append, take=take)
    harness.quiesce()
    return answers


@pytest.mark.parametrize("disks", [1, 3])
def test_who_takes_batches_one_by_one_gets_them_from_disk_in_order(disks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_reader, "PART_BYTES", 1_200)
    harness = Harness.opened(1, disks, cache_bytes=1, segment_entries_max=14)
    source = harness.store.log_counter << 24
    for _ in range(20):
        harness.publish(0, 2, size=500)
        harness.publish(1, 1, size=30)
    harness.commit()
    stored = harness.read_all(source)
    taken: list[StoredBatch] = []
    assert given(harness, source, lambda batch: not taken.append(batch)) == [[]]
    assert [(one.first_offset, one.count, one.payload) for one in taken] == stored
    del taken[:]
    assert given(harness, source, lambda batch: taken.append(batch) or len(taken) < 3) == [[]]
    assert len(taken) == 3
    del taken[:]
    assert given(harness, source, lambda batch: not taken.append(batch), size=9_000, begin=3) == [[]]
    assert [one.first_offset for one in taken] == list(range(2, 2 + 2 * len(taken), 2))
    assert 1 < len(taken) < len(stored) - 1
    del taken[:]
    assert given(harness, 99, lambda batch: not taken.append(batch)) == [[]]
    assert not taken

    def refuse(batch: StoredBatch) -> bool:
        raise ValueError("no room")

    (refused,) = given(harness, source, refuse)
    assert isinstance(refused, ValueError)


def test_who_takes_batches_is_answered_from_the_cache_as_everybody_is() -> None:
    harness = Harness.opened(1, cache_bytes=100_000)
    source = harness.store.log_counter << 24
    keys = [harness.publish(0, 2) for _ in range(3)]
    harness.commit()
    (answer,) = given(harness, source, lambda batch: pytest.fail("it comes from no disk"))
    assert [one.first_offset for one in answer] == [first for _, first in keys]  # type: ignore[attr-defined]


@pytest.mark.parametrize("part", [1, 1_200, 1 << 20])
def test_batches_are_taken_up_to_a_damaged_one_and_the_next_read_meets_it(
    part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_reader, "PART_BYTES", part)
    harness = Harness.opened(1, 1, cache_bytes=1)
    source = harness.store.log_counter << 24
    keys = [harness.publish(0, 2, size=500) for _ in range(4)]
    harness.commit()
    sizes = [HEADER_BYTES + len(harness.appended[key][1]) for key in keys]
    harness.files.flip(harness.files.paths("/d0/logs")[0], DATA_START + sum(sizes[:3]) - 1)
    taken = [-2]
    answer: object = []
    while answer == []:
        (answer,) = given(harness, source, lambda one: not taken.append(one.first_offset), begin=taken[-1] + 2)
    assert taken[1:] == [first for _, first in keys[:2]]
    assert isinstance(answer, StorageDamaged)
    assert answer.resume_offset == keys[3][1]


def test_time_is_found() -> None:
    harness = Harness(1, cache_bytes=1)
    store = harness.open()
    source = store.log_counter << 24
    for number in range(300):
        store.append(
            EntryKind.MESSAGES, b"x" * 400, source=source, first_offset=number * 2, count=2, time_ns=10 * number
        )
    harness.commit()
    for time_ns, offset in [(0, 0), (1, 2), (10, 2), (1_555, 312), (2_990, 598), (2_991, 600)]:
        assert store.offset_at(source, time_ns) == offset
    assert store.offset_at(77, 1) == 0
    store.close()
    harness.kill()
    store = harness.open()
    assert store.offset_at(source, 1_555) == 312


def test_a_checkpoint_makes_older_facts_unnecessary() -> None:
    harness = Harness.opened(1)
    first = harness.note()
    harness.commit()
    harness.take_checkpoint()
    second = harness.note()
    harness.commit()
    assert harness.checkpoint.complete
    harness.power_cut()
    harness.open()
    entries = list(harness.store.replay())
    assert [entry.payload for entry in entries] == [first, second]
    assert [entry.kind for entry in entries] == [EntryKind.CHECKPOINT_PART, EntryKind.LEDGER]


def test_an_unfinished_checkpoint_does_not_count() -> None:
    harness = Harness.opened(1)
    first = harness.note()
    checkpoint = harness.store.checkpoint(iter([b"part"] * 3))
    checkpoint.step(1)
    harness.commit()
    harness.power_cut()
    harness.open()
    assert [entry.payload for entry in harness.store.replay()] == [first]


def test_dead_segments_go_and_live_rests_are_copied_forward() -> None:
    harness = Harness.opened(1, cache_bytes=1)
    for number in range(600):
        harness.publish(number % 5, 2, 300)
    harness.commit()
    before = len(list(harness.store.catalog))
    harness.dead.update(key for key in harness.acked if key[1] % 40)
    copied = 0
    for _ in range(60):
        copied += harness.store.collect(harness.live).copied_entries
        harness.quiesce()
    assert copied
    assert len(list(harness.store.catalog)) < before
    harness.judge()
    for _ in range(3):
        harness.kill()
        harness.open()
        harness.judge()
        harness.accept_recovered()
    stored = {first for first, _, _ in harness.read_all(1 << 24)}
    assert {key[1] for key in harness.acked if key[0] == 1 << 24 and key not in harness.dead} <= stored


def test_a_thousand_restarts_leave_nothing_behind() -> None:
    harness = Harness(1)
    calls = []
    files = 0
    for number in range(1_000):
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
        if number in (100, 999):
            harness.open()
            calls.append(harness.files.calls - before)
            files = len(harness.files.paths("/d0"))
            harness.kill()
    assert files < 20
    assert calls[1] <= calls[0] + 20
    assert len(harness.files.content("/d0/marks.json").rstrip()) < 1_000


def test_full_disks_refuse_messages_and_take_acknowledgements() -> None:
    harness = Harness(1, bytes_max=1_500_000, segment_bytes=128 * 1024, reserve_bytes=600_000)
    store = harness.open()
    harness.clock.advance(2)
    harness.quiesce()
    published = 0
    while not store.status().full:
        harness.publish(0, 2, 3_000)
        published += 1
        harness.commit()
        harness.clock.advance(0.2)
        harness.quiesce(2)
    assert published > 100
    with pytest.raises(ResourceExhausted, match="reserved"):
        store.admit(3_000)
    assert not store.status().too_few
    for _ in range(200):
        harness.note(300)
        harness.commit()
    assert not harness.failures
    harness.take_checkpoint()
    harness.commit()
    harness.dead.update(harness.acked)
    for _ in range(40):
        store.collect(harness.live)
        harness.clock.advance(1.1)
        harness.quiesce()
    store.admit(3_000)
    assert not store.status().full


def test_disks_that_failed_are_not_called_full() -> None:
    harness = Harness(5, 3)
    store = harness.open()
    harness.clock.advance(2)
    harness.quiesce()
    assert not store.status().too_few
    harness.fail(1)
    harness.fail(2)
    harness.persist()
    harness.clock.advance(2)
    harness.quiesce()
    status = store.status()
    assert [disk.state for disk in status.disks] == ["ok", "failed", "failed"]
    assert status.room_bytes < 3_000
    assert (status.full, status.too_few) == (False, True)
    with pytest.raises(ResourceExhausted, match="too few disks work"):
        store.admit(3_000)


@pytest.mark.parametrize("operation", ["pwritev", "fdatasync", "open", "rename"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EROFS, errno.EMFILE])
def test_one_of_three_disks_fails_and_comes_back(operation: str, number: int) -> None:
    harness = Harness.opened(5, 3)
    old = harness.known[1]
    fault = harness.fail(1, number, (operation,))
    for at in range(150):
        harness.persist(at % 2)
        harness.clock.advance(0.02)
    assert not harness.waiting
    status = harness.store.status()
    assert [disk.state for disk in status.disks] == ["ok", "failed", "ok"]
    assert status.under_replicated
    harness.files.faults.remove(fault)
    harness.heal()
    status = harness.store.status()
    assert [disk.state for disk in status.disks] == ["ok"] * 3
    assert status.under_replicated == 0
    assert status.disks[1].incarnation not in ("", old)
    assert not harness.files.paths("/d1/quarantine"), "what others have is not kept twice"
    harness.persist()
    harness.stop()
    harness.fail(0)
    harness.open()
    harness.judge()


def test_a_failed_sync_is_never_tried_again() -> None:
    harness = Harness.opened(5, 1)
    harness.persist()
    harness.fail(0, errno.EIO, ("fdatasync",)).times = 1
    harness.persist()
    harness.clock.advance(5)
    harness.quiesce()
    assert isinstance(harness.failures[0], DisksFailed)
    assert harness.waiting
    with pytest.raises(Unavailable):
        harness.publish()
    harness.power_cut()
    harness.open()
    harness.judge()


def test_a_log_that_has_failed_is_read_on() -> None:
    """What is persisted is read off the disks, or is out of reach: it is never said not to be there."""
    harness = Harness.opened(5, 1, cache_bytes=1)
    source, _ = harness.publish()
    harness.persist()
    known = harness.read_all(source)
    harness.fail(0, errno.EIO, ("fdatasync",))
    harness.persist()
    assert harness.failures
    assert harness.read_all(source) == known
    harness.fail(0)
    with pytest.raises(CopiesUnreachable):
        harness.read_all(source)


def test_a_majority_that_fails_says_unknown() -> None:
    harness = Harness.opened(5, 3)
    harness.fail(0)
    harness.fail(2)
    harness.persist()
    assert len(harness.failures) == 1
    assert harness.waiting
    with pytest.raises(Unavailable, match="repair the disks, then start the server again"):
        harness.publish()


def test_a_chain_of_a_cluster_that_fails_asks_for_no_restart() -> None:
    harness = Harness(5, rule=AckRule.single(3))
    harness.local = False  # its disks are other processes'; somebody else may open it
    harness.open()
    harness.fail(0)
    harness.fail(2)
    harness.persist()
    with pytest.raises(Unavailable, match="too few disks are left") as caught:
        harness.publish()
    assert "start" not in str(caught.value)


@pytest.mark.parametrize("wipe", ["all", "segment"])
def test_a_folder_that_vanishes_is_noticed_without_a_failing_write(wipe: str) -> None:
    harness = Harness.opened(5, 3)
    harness.persist()
    if wipe == "all":
        harness.files.wipe("/d2")
    else:
        harness.files.unlink(harness.files.paths("/d2/logs")[0])
    harness.clock.advance(1.1)
    harness.quiesce()
    assert (
        harness.store.status().disks[2].state != "ok" or harness.store.status().disks[2].incarnation != harness.known[2]
    )
    harness.heal()
    assert [disk.state for disk in harness.store.status().disks] == ["ok"] * 3
    assert harness.store.status().disks[2].incarnation != harness.known[2]


def test_rot_is_found_healed_and_reported() -> None:
    harness = Harness.opened(5, 3, cache_bytes=1)
    harness.fill(130, 0, 2, 600)
    harness.commit()
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
    harness = Harness.opened(5, 1, cache_bytes=1)
    harness.fill(130, 0, 2, 600)
    harness.commit()
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
    harness = Harness.opened(5, 3, cache_bytes=1)
    harness.fill(130, 0, 2, 600)
    harness.commit()
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
    paths = [harness.files.paths(f"/d{disk}/logs")[0] for disk in range(3)]
    at = DATA_START
    for number, (_, _, payload) in enumerate(stored):  # its header is bad on one disk, its payload on another
        harness.files.flip(paths[number % 3], at + 40)
        harness.files.flip(paths[(number + 1) % 3], at + HEADER_BYTES + len(payload) // 2)
        at += HEADER_BYTES + len(payload)
    assert harness.read_all(source) == stored
    harness.files.flip(paths[0], at - 1)
    harness.files.flip(paths[1], at - 1)
    harness.files.flip(paths[2], at - 1)
    with pytest.raises(StorageDamaged):
        harness.read_all(source)


def test_rot_on_every_disk_in_different_places() -> None:
    harness = Harness.opened(5, 3, cache_bytes=1, scrub_bytes_s=0)
    harness.fill(100, 0, 2, 600)
    harness.commit()
    harness.stop()
    for slot in range(3):
        harness.files.flip(f"/d{slot}/logs/0000000001/00000001.seg", DATA_START + 100 + 2_000 * slot)
    harness.open()
    harness.judge()


def test_rot_without_a_replica_is_reported_and_the_rest_is_served() -> None:
    harness = Harness.opened(5, 1, cache_bytes=1)
    harness.fill(20, 0, 2, 600)
    harness.commit()
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
    with pytest.raises(StorageDamaged, match="segment 1 of log 1 is on no disk"):
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
    harness = Harness.opened(5, 1, cache_bytes=1)
    harness.fill(150, 0, 2, 300)
    harness.commit()
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


def test_two_processes_do_not_share_a_disk() -> None:
    harness = Harness.opened(5, 1)
    with pytest.raises(ForeignDisk, match="in use"):
        harness.open()


def test_disks_of_two_universes_do_not_mix() -> None:
    harness = Harness.opened(5, 3)
    other = Harness.opened(6, 1)
    other.store.close()
    backup = other.files.snapshot("/d0")
    harness.stop()
    harness.files.restore("/d0", backup)
    with pytest.raises(ForeignDisk, match="universe") as found:
        harness.open()
    assert ": /d0" in str(found.value)
    assert ": the one wanted, /d1, /d2" in str(found.value)


def test_a_wiped_only_disk_is_not_a_new_store() -> None:
    harness = Harness.opened(5, 1)
    harness.stop()
    harness.files.wipe("/d0")
    with pytest.raises(DisksMissing, match="missing"):
        harness.open()


def test_a_disk_put_back_in_time_joins_as_a_new_one() -> None:
    harness = Harness.opened(5, 3)
    harness.persist()
    harness.stop()
    backup = harness.files.snapshot("/d1")
    old = harness.known[1]
    harness.open()
    harness.persist()
    harness.stop()
    harness.files.restore("/d1", backup)
    store = harness.open()
    assert store.recovered.disks[1] != old
    assert any("old state" in note for note in store.recovered.notes)
    harness.judge()


def test_async_acknowledges_before_and_syncs_soon_after() -> None:
    harness = Harness.opened(5, 1, durability="async", sync_interval_s=0.05)
    harness.publish()
    harness.store.flush()
    before = harness.store.status().disks[0].position
    harness.run("syncpoint-write-0")
    harness.deliver()
    assert not harness.waiting
    assert harness.store.status().disks[0].position == before
    harness.clock.advance(0.06)
    harness.run("syncpoint-write-0")
    assert harness.store.status().disks[0].position == 1


def test_memory_acknowledges_at_once() -> None:
    harness = Harness.opened(5, 3, durability="memory")
    harness.publish()
    harness.store.flush()
    harness.deliver()
    assert not harness.waiting
    harness.quiesce(seconds=0.1, rounds=5)
    assert harness.store.status().under_replicated == 0


def test_a_disk_far_behind_leaves_the_stream_and_comes_back() -> None:
    harness = Harness.opened(5, 3, lag_bytes_max=50_000)
    for _ in range(200):
        harness.persist(0, 1, 2_000)
    whole = {path: harness.files.stat(path).inode for path in harness.files.paths("/d2/logs")[:-1]}
    assert len(whole) > 2
    for _ in range(60):
        harness.publish(0, 1, 2_000)
        harness.store.flush()
        for name in ("syncpoint-write-0", "syncpoint-write-1"):
            harness.run(name)
        harness.deliver()
    assert harness.store.status().disks[2].state == "failed"
    assert "behind" in harness.store.status().disks[2].reason
    harness.heal()
    assert [disk.state for disk in harness.store.status().disks] == ["ok"] * 3
    assert {path: harness.files.stat(path).inode for path in whole} == whole, "only what it was behind with is copied"


def test_a_disk_far_behind_leaves_as_soon_as_the_others_suffice_though_nothing_more_is_appended() -> None:
    harness = Harness.opened(5, 3, lag_bytes_max=50_000)
    harness.fill(30, 0, 1, 2_000)
    harness.store.flush()
    harness.deliver()
    assert [disk.state for disk in harness.store.status().disks] == ["ok"] * 3, "all are equally far behind"
    for _ in range(5):  # commits of the size that one takes
        for name in ("syncpoint-write-0", "syncpoint-write-1"):
            harness.run(name)
        harness.deliver()
    assert "behind" in harness.store.status().disks[2].reason
    assert not harness.waiting


def test_close_seals_so_that_nothing_is_scanned() -> None:
    harness = Harness.opened(5, 3)
    harness.publish()
    harness.store.flush()
    harness.store.close()
    harness.deliver()
    assert not harness.waiting
    harness.kill()
    assert harness.open().recovered.scanned == []


def test_a_commit_that_does_not_end_costs_the_disk_and_nothing_else() -> None:
    harness = Harness(5, 3)
    store = harness.open()
    writer = store._disks.log.live[2]
    writer.busy_since = harness.clock.monotonic()
    harness.clock.advance(16)
    for _ in range(5):  # what is queued for the maintainer comes before its look round
        harness.run("syncpoint-keep-2")
    harness.deliver()
    assert store.status().disks[2].state == "failed"
    assert "longer" in store.status().disks[2].reason
    harness.persist()
    assert not harness.waiting


def test_what_the_owner_learns_while_another_thread_closes_the_store_changes_nothing() -> None:
    harness = Harness(1, 3)
    store = harness.open()
    harness.fill(5)
    store.flush()
    for slot in (0, 1):
        harness.run(f"syncpoint-write-{slot}")
    assert harness.inbox, "what the writers reported is still to be received"
    store.begin_close()
    with pytest.raises(Unavailable):
        store.append(EntryKind.LEDGER, b"too late")
    seen: list[tuple[int, int]] = []

    def owner_goes_on(operation: str, path: str) -> None:
        """In the middle of what the other thread does."""
        if operation == "fdatasync":
            before = store._log.persisted
            harness.deliver()
            store.collect(harness.live)
            seen.append((before, store._log.persisted))

    harness.files.faults.append(owner_goes_on)
    store.close()
    assert seen
    assert all(before == after for before, after in seen)
    assert not harness.waiting, "all was reported in the end, by whoever closed"
    harness.kill()
    harness.files.faults.clear()
    harness.open()
    harness.judge()


def test_spare_files_are_made_once_a_segment_is_half_full() -> None:
    """So an idle log takes the room of one segment; and the spare one is there before it is needed."""
    harness = Harness(1, 3)
    store = harness.open()

    def spares() -> list[str]:
        return [
            path for root in harness.roots for path in harness.files.paths(f"{root}/pool") if path.endswith(".free")
        ]

    harness.persist()
    harness.quiesce(40, seconds=1.0)
    assert not spares()
    while store._log.room_in_segment >= harness.settings.segment_bytes // 2:
        harness.publish(size=5_000)
    harness.commit()
    harness.quiesce(40, seconds=1.0)
    assert store._log.segment.seq == 1
    assert len(spares()) == 3
