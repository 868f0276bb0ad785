"""A small commit falls on blocks that were written before, also in a file that was only allocated."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from syncpoint.base.runtime.files import Buffer
from syncpoint.log.storage.disk.disk_writer import SMALL_IN_A_ROW
from syncpoint.log.storage.segment import DATA_START
from tests.kit.disks import Harness

AHEAD = 32 * 1024


class Watched:
    """What is written behind the fixed pages of the files of segments: zeros, and all else."""

    def __init__(self, harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
        self.zeros: list[tuple[int, int]] = []
        self.entries: list[tuple[int, int]] = []
        files, plainly = harness.files, harness.files.pwritev

        def zero(handle: int, offset: int, size: int) -> None:
            if "/logs/" in files._file(handle)[1]:
                self.zeros.append((offset, offset + size))
            plainly(handle, [bytes(size)], offset)

        def pwritev(handle: int, buffers: Sequence[Buffer], offset: int) -> int:
            if "/logs/" in files._file(handle)[1] and offset >= DATA_START:
                self.entries.append((offset, offset + sum(map(len, buffers))))
            return plainly(handle, buffers, offset)

        monkeypatch.setattr(files, "zero", zero)
        monkeypatch.setattr(files, "pwritev", pwritev)


def test_zeros_are_written_ahead_of_small_commits_and_never_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness.opened(1, prewrite_ahead_bytes=AHEAD)
    seen = Watched(harness, monkeypatch)
    for _ in range(SMALL_IN_A_ROW):
        harness.persist(size=900)
    assert not seen.zeros, "not before it is known that commits are small"
    for _ in range(50):
        end = seen.entries[-1][1] if seen.entries else DATA_START
        zeros = len(seen.zeros)
        harness.persist(size=900)
        (begin, reached) = seen.entries[-1]
        assert begin == end
        assert all(one >= begin for one, _ in seen.zeros[zeros:]), "nothing that was written is written over"
        assert reached <= seen.zeros[-1][1], "the commit lies where zeros were"
    written = seen.entries[-1][1] - seen.zeros[0][0]
    assert written > AHEAD
    assert len(seen.zeros) <= written // AHEAD + 1, "one in many commits writes them"
    assert [end for _, end in seen.zeros[:-1]] == [begin for begin, _ in seen.zeros[1:]]
    harness.power_cut()
    harness.open()
    harness.judge()


def test_large_commits_and_recycled_files_need_no_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness.opened(1, prewrite_ahead_bytes=AHEAD)
    seen = Watched(harness, monkeypatch)
    for number in range(3 * SMALL_IN_A_ROW):
        harness.persist(size=AHEAD // 4 if number % SMALL_IN_A_ROW == 0 else 100)
    assert not seen.zeros
    harness.heal(3)  # a spare file is pre-written, since the segment is half full soon
    harness.persist(size=AHEAD)
    harness.heal(3)
    while harness.store.status().segments < 2:
        harness.persist(size=AHEAD // 4)
    seen.zeros.clear()
    for _ in range(2 * SMALL_IN_A_ROW):
        harness.persist(size=100)
    assert not seen.zeros, "this file came from the pool"


def test_without_the_setting_nothing_is_written_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness.opened(1)
    seen = Watched(harness, monkeypatch)
    for _ in range(2 * SMALL_IN_A_ROW):
        harness.persist(size=500)
    assert not seen.zeros
