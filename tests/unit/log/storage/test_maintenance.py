"""What maintainers owe beside their work: to be seen to obey in time, and to remember no more than can matter."""

from __future__ import annotations

import errno

import pytest

from tests.kit.disks import Harness

INTERVAL_S = 1.0  # between two probes


def with_history(seed: int = 1) -> Harness:
    harness = Harness.opened(seed, disks=3, segment_bytes=64 * 1024, segment_entries_max=1000)
    for _ in range(60):
        harness.persist(0, 1, 3_000)
    return harness


def test_a_disk_that_has_much_to_delete_is_seen_to_obey_all_the_same() -> None:
    harness = with_history()
    maintainer = harness.store._disks.maintainers[0]
    harness.clock.advance(INTERVAL_S)
    for number in range(40):
        maintainer.jobs.put_drop(f"/d0/logs/9/{number:08d}.seg")
    while maintainer.jobs:
        left = len(maintainer.jobs)
        harness.run("syncpoint-keep-0")
        assert harness.clock.monotonic() - maintainer.answered_at < INTERVAL_S, f"{left} files are left to delete"
        harness.clock.advance(INTERVAL_S / 4)


def test_a_disk_that_copies_a_segment_is_seen_to_obey_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncpoint.log.storage.recovery.repair._CHUNK", 4096)
    harness = with_history()
    fault = harness.fail(1, errno.EIO, ("pwritev",))
    harness.persist()
    harness.files.faults.remove(fault)
    maintainer, began, copied = harness.store._disks.maintainers[1], [], []

    def slow(operation: str, path: str) -> None:
        if operation == "pwritev" and path.startswith("/d1/logs") and path.endswith(".tmp"):
            began.append(harness.clock.monotonic())
            copied.append(harness.clock.monotonic() - max(maintainer.answered_at, began[0]))
            harness.clock.advance(INTERVAL_S / 4)

    for path in harness.files.paths("/d1/logs"):
        harness.files.unlink(path)
    harness.files.faults.append(slow)
    harness.heal()
    assert harness.states == ["ok"] * 3
    assert len(copied) > 20
    assert max(copied) <= INTERVAL_S + INTERVAL_S / 4


def test_names_under_which_coming_back_failed_are_forgotten_but_for_those_the_folder_may_have() -> None:
    harness = with_history()
    before = [path for path in harness.files.paths("/d1/logs") if path in sealed(harness)]
    fault = harness.fail(1, errno.EIO, ("pwritev",))
    harness.persist()
    harness.files.faults.remove(fault)
    maintainer, names = harness.store._disks.maintainers[1], set()

    def no_marks(operation: str, path: str) -> None:
        if operation == "rename" and path.startswith("/d1/marks"):
            raise OSError(errno.EIO, "no marks", path)

    harness.files.faults.append(no_marks)
    for _ in range(20):
        harness.clock.advance(1.1)
        harness.quiesce()
        names |= maintainer.coming_back.tried
        assert len(maintainer.coming_back.tried) <= 2
    assert len(names) > 10, "it was tried again and again"
    harness.files.faults.remove(no_marks)
    harness.heal()
    assert harness.states == ["ok"] * 3
    assert set(before) <= sealed(harness), "the folder was known all the time"


def sealed(harness: Harness) -> set[str]:
    return {copy.path for segment in harness.store.catalog for slot, copy in segment.copies.items() if slot == 1}
