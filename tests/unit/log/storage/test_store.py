"""The contract of the store, one promise per test, on disks in memory."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from functools import partial

import pytest

from syncpoint.base.model.errors import Unavailable
from syncpoint.base.runtime.files import DiskUnreachable
from syncpoint.log.storage import copy_reader
from syncpoint.log.storage.errors import DisksFailed, StorageDamaged
from syncpoint.log.storage.record import HEADER_BYTES, EntryKind, StoredBatch
from syncpoint.log.storage.segment import DATA_START
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


@pytest.mark.parametrize(
    "failing", ["syncpoint.log.storage.log.Log.roll", "syncpoint.log.storage.index.ActiveIndex.add"]
)
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
    with pytest.raises(Unavailable, match="appending an entry failed"):
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
    assert sum(len(one.payload) for one in taken) >= 9_000 > sum(len(one.payload) for one in taken[:-1])
    del taken[:]
    assert given(harness, 99, lambda batch: not taken.append(batch)) == [[]]
    assert not taken

    def refuse(batch: StoredBatch) -> bool:
        raise ValueError("no room")

    (refused,) = given(harness, source, refuse)
    assert isinstance(refused, ValueError)


@pytest.mark.parametrize("came", [0, 1, 3, 4, 8])
def test_a_disk_that_is_given_up_within_a_read_gives_nothing_any_more(
    came: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_reader, "LARGE", 300)
    harness = Harness.opened(1, 3, cache_bytes=1)
    source = harness.store.log_counter << 24
    for _ in range(4):
        harness.publish(0, 2, size=500)
    harness.commit()
    stored = harness.read_all(source)
    late: list[Callable[[], None]] = []
    whole = harness.files.pread_path

    def hang(path: str, sizes: Sequence[int], offset: int, take: Callable[[bytes], None]) -> None:
        monkeypatch.setattr(harness.files, "pread_path", whole)
        pieces: list[bytes] = []
        whole(path, sizes, offset, pieces.append)
        for piece in pieces[:came]:
            take(piece)
        late.extend(partial(take, piece) for piece in pieces[came:])
        raise DiskUnreachable(errno.ETIMEDOUT, "it hangs")

    monkeypatch.setattr(harness.files, "pread_path", hang)
    taken: list[tuple[int, int, bytes]] = []

    def take(one: StoredBatch) -> bool:
        if len(taken) == came // 2:
            for call in late:
                call()  # on the thread that hung, while others are asked
        taken.append((one.first_offset, one.count, one.payload))
        return True

    assert given(harness, source, take) == [[]]
    for call in late:
        call()
    assert len(late) == 8 - came
    assert taken == stored


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


def test_close_seals_so_that_nothing_is_scanned() -> None:
    harness = Harness.opened(5, 3)
    harness.publish()
    harness.store.flush()
    harness.store.close()
    harness.deliver()
    assert not harness.waiting
    harness.kill()
    assert harness.open().recovered.scanned == []


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
