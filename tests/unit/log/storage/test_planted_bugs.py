"""Bugs planted on purpose: each breaks a rule of the protocol, and the schedules of this suite notice it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import pytest

from syncpoint.log.storage import quorum, record, segment
from syncpoint.log.storage.disk import disk_writer
from syncpoint.log.storage.disk.disk_writer import DiskWriter
from syncpoint.log.storage.errors import DisksMissing, StorageDamaged
from syncpoint.log.storage.quorum import AckRule
from syncpoint.log.storage.recovery import find_tail
from tests.kit.disks import Harness
from tests.unit.log.storage.test_crashes import DieAt, Died, Schedule


def noticed(act: Callable[[int], None], seeds: int) -> bool:
    for seed in range(seeds):
        try:
            act(seed)
        except (AssertionError, StorageDamaged, DisksMissing):
            return True
    return False


def power_cuts(seed: int) -> None:
    harness = Harness(seed, 1)
    for _ in range(3):
        harness.open()
        harness.judge()
        harness.accept_recovered()
        for number in range(20):
            harness.publish(number % 2)
            if number % 4 == 0:
                harness.commit()
        harness.power_cut()
    harness.open()
    harness.judge()


def test_ack_before_sync_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not noticed(power_cuts, 5)

    def pretend(self: DiskWriter) -> None:
        self.synced = self.written

    monkeypatch.setattr(DiskWriter, "_sync", pretend)
    assert noticed(power_cuts, 20)


def rot_below_the_mark(seed: int) -> None:
    """A byte of an acknowledged entry rots in the segment being written; later entries know that it was synced."""
    harness = Harness.opened(seed, 1)
    for _ in range(10):
        harness.persist()
    path = next(path for path in harness.files.paths("/d0/logs") if path.endswith(".seg"))
    harness.kill()
    harness.files.flip(path, segment.DATA_START + 200 + seed)
    harness.open()
    harness.judge()


def test_truncating_at_any_bad_checksum_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StorageDamaged, match="acknowledged but are damaged"):
        rot_below_the_mark(1)
    right = find_tail._scanned

    def cut(log, seq, found, tables, must_end, synced):  # type: ignore[no-untyped-def]
        return right(log, seq, found, tables, must_end, 0)

    monkeypatch.setattr(find_tail, "_scanned", cut)
    with pytest.raises(AssertionError, match="is lost"):
        rot_below_the_mark(1)


def wiped_disk(seed: int) -> None:
    """Rule 3: X is on A and B while C is dead; A is wiped and comes back; B is away. A' and C know nothing of X."""
    harness = Harness.opened(seed, 3)
    harness.persist()
    harness.fail(2)
    harness.persist()
    assert not harness.waiting, "two of three disks acknowledge"
    identity = harness.files.content("/d0/disk.json")
    harness.kill()
    harness.files.wipe("/d0")
    harness.files.restore("/d0", {"/d0/disk.json": identity} if harness.forged else {})
    harness.fail(1)
    harness.open()
    harness.judge()


@pytest.mark.parametrize("forged", [False, True])
def test_a_wiped_disk_does_not_pass_for_itself(forged: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Harness, "forged", forged, raising=False)
    if not forged:
        with pytest.raises(DisksMissing):
            wiped_disk(1)
    else:  # the planted bug: the same name, empty
        with pytest.raises(AssertionError, match="lost"):
            wiped_disk(1)


def recycled(seed: int) -> None:
    """Rule 4: a recycled segment of an earlier log holds whole frames, of the same size, behind the few new ones."""
    harness = Harness(seed, 1, cache_bytes=1, pool_segments=0, pool_segments_max=4)
    for turn in range(6):
        harness.open()
        harness.judge()
        harness.accept_recovered()
        harness.take_checkpoint()
        for _ in range(60 if turn < 3 else 5):
            harness.persist(0, 1, 1500)
        harness.dead.update(key for key in harness.acked if turn < 3)
        for _ in range(4):
            harness.store.collect(harness.live)
            harness.quiesce()
        if turn < 3:
            harness.store.close()
        harness.kill()


def test_old_frames_in_a_recycled_segment_are_void(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(5):
        recycled(seed)

    def unseeded(universe: int, log: int, incarnation: int) -> int:
        return 0

    for module in (record, segment):
        monkeypatch.setattr(module, "place_seed", unseeded)
    assert noticed(recycled, 30)


def test_taking_one_disk_for_a_majority_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quorum, "majority", lambda members: 1)

    def act(seed: int) -> None:
        Schedule(seed, 3).run(500)

    assert noticed(act, 60)


def test_sealing_without_reading_the_other_disks_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recovery keeps anything found anywhere; one that believes the first disk alone loses entries."""
    right = find_tail._scanned

    def first_only(log, seq, found, tables, must_end, synced):  # type: ignore[no-untyped-def]
        slot = min(tables)
        return right(log, seq, found, {slot: tables[slot]}, must_end, 0)

    monkeypatch.setattr(find_tail, "_scanned", first_only)

    def act(seed: int) -> None:
        Schedule(seed, 3).run(500)

    assert noticed(act, 60)


def test_any_four_disks_of_nine_taken_for_a_quorum_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four is how many disks the smallest acknowledging set has, and not what it is."""
    right = AckRule.persisted

    def counted(self: AckRule, positions: Sequence[int]) -> int:
        if max(positions, default=0) <= 1:
            return right(self, positions)  # a question about sets
        return quorum.kth_largest(positions, 4)

    monkeypatch.setattr(AckRule, "persisted", counted)

    def act(seed: int) -> None:
        harness = Harness.opened(seed, rule=AckRule.grid(3, 3))
        harness.fill(3)
        harness.commit()
        harness.lose_sight(1, 4, 5, 7, 8)
        harness.persist()
        harness.kill()
        harness.regain(1, 4, 5, 7, 8)
        harness.lose_sight(0, 2, 3, 6)
        harness.open()
        harness.judge()

    assert noticed(act, 3)
    monkeypatch.setattr(AckRule, "persisted", right)
    assert not noticed(act, 3)


def torn_seals(seed: int) -> None:
    """The power goes at every call around the sealing of a segment; what is found then must be readable."""
    for call in range(3, 14):
        harness = Harness.opened(seed * 100 + call, 1, cache_bytes=1, commit_bytes_max=1 << 20)
        harness.fill(50, 0, 1, 900)
        harness.commit()
        harness.fill(20, 0, 1, 900)
        harness.files.faults.append(DieAt(call))
        harness.store.flush()
        with suppress(Died):
            harness.run("syncpoint-write-0")
        harness.power_cut()
        harness.open()
        harness.judge()


def test_a_seal_does_not_reach_the_disk_before_its_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(4):
        torn_seals(seed)
    right = disk_writer.write_seal

    def hasty(files, *rest, **named):  # type: ignore[no-untyped-def]
        monkeypatch.setattr(files, "fdatasync", lambda handle: None)
        right(files, *rest, **named)
        monkeypatch.undo()
        monkeypatch.setattr(disk_writer, "write_seal", hasty)

    monkeypatch.setattr(disk_writer, "write_seal", hasty)
    assert noticed(torn_seals, 60)
