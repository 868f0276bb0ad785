"""Disks that fail, hang, fall behind, vanish or are somebody else's: which are left out, come back, are refused."""

from __future__ import annotations

import errno

import pytest

from syncpoint.base.model.errors import ResourceExhausted, Unavailable
from syncpoint.base.runtime import step_workers
from syncpoint.log.storage.errors import CopiesUnreachable, DisksFailed, DisksMissing, ForeignDisk
from syncpoint.log.storage.quorum import AckRule
from tests.kit.disks import Harness


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


def test_the_end_of_a_turn_wakes_only_writers_that_have_something_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness.opened(5, 3)
    harness.persist()
    woken: list[str] = []
    monkeypatch.setattr(step_workers._Manual, "wake", lambda worker: woken.append(worker._name))
    harness.store.flush()
    assert not woken
    harness.publish(0, 2)
    harness.store.flush()
    assert sorted(woken) == ["syncpoint-write-0", "syncpoint-write-1", "syncpoint-write-2"]


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
    with pytest.raises(Unavailable, match="Repair the disks, then restart the server"):
        harness.publish()


def test_a_chain_of_a_cluster_that_fails_asks_for_no_restart() -> None:
    harness = Harness(5, rule=AckRule.single(3))
    harness.local = False  # its disks are other processes'; somebody else may open it
    harness.open()
    harness.fail(0)
    harness.fail(2)
    harness.persist()
    with pytest.raises(Unavailable, match="too few working disks") as caught:
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
    assert harness.states == ["ok"] * 3
    assert harness.store.status().disks[2].incarnation != harness.known[2]


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
    assert ": expected, /d1, /d2" in str(found.value)


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
    assert any("an old copy was" in note for note in store.recovered.notes)
    harness.judge()


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
    assert "lags by more than" in harness.store.status().disks[2].reason
    harness.heal()
    assert harness.states == ["ok"] * 3
    assert {path: harness.files.stat(path).inode for path in whole} == whole, "only what it was behind with is copied"


def test_a_disk_far_behind_leaves_as_soon_as_the_others_suffice_though_nothing_more_is_appended() -> None:
    harness = Harness.opened(5, 3, lag_bytes_max=50_000)
    harness.fill(30, 0, 1, 2_000)
    harness.store.flush()
    harness.deliver()
    assert harness.states == ["ok"] * 3, "all are equally far behind"
    for _ in range(5):  # commits of the size that one takes
        for name in ("syncpoint-write-0", "syncpoint-write-1"):
            harness.run(name)
        harness.deliver()
    assert "lags by more than" in harness.store.status().disks[2].reason
    assert not harness.waiting


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
    assert "no answer for" in store.status().disks[2].reason
    harness.persist()
    assert not harness.waiting


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
