"""Reading through a segment in steps finds what reading it at once finds."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.log.storage import record
from syncpoint.log.storage.checksum import crc32c
from syncpoint.log.storage.errors import ForeignDisk
from syncpoint.log.storage.quorum import AckRule
from syncpoint.log.storage.record import MAGIC_BYTES, EntryKind, Queued, encode_header
from syncpoint.log.storage.recovery import scan
from syncpoint.log.storage.segment import DATA_START, SegmentHeader
from syncpoint.testing.rigs.memory_files import MemoryFiles

HEADER = SegmentHeader(1, 2, 3, 4, 1, b"d" * 16, (b"d" * 16,), AckRule.single(1))


def frame(position: int, payload: bytes, seed: int) -> bytes:
    """One entry as it is on disk."""
    entry = Queued(EntryKind.MESSAGES, position, 7, position, 1, 0, len(payload), crc32c(payload), ())
    return encode_header(seed, entry, position - 1) + payload


parts = st.one_of(
    st.tuples(st.just("frame"), st.binary(max_size=300)),
    st.tuples(st.just("stale"), st.binary(max_size=300)),  # left behind by what the file was before
    st.tuples(st.just("damaged"), st.binary(min_size=1, max_size=300)),
    st.tuples(st.just("bytes"), st.binary(max_size=90)),
    st.tuples(st.just("magic"), st.just(MAGIC_BYTES)),
    st.tuples(st.just("zeros"), st.integers(0, 400).map(bytes)),
)


def test_an_entry_of_another_version_is_refused_not_taken_for_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    files = MemoryFiles()
    handle = files.open("/segment", create=True)
    with monkeypatch.context() as later:
        later.setattr(record, "VERSION", 2)
        data = bytes(DATA_START) + frame(1, b"x" * 100, HEADER.seed)
    files.pwritev(handle, [data], 0)
    copy = scan.FoundCopy(0, "/segment", len(data), HEADER, None, 0, False, False)
    with pytest.raises(ForeignDisk, match=r"/segment has an entry of version 2 at byte 12288; this version reads 1\."):
        scan.scan_frames(files, copy)
    files.pwritev(handle, [b"y"], DATA_START + 8)  # with a damaged header nobody knows whose it was
    assert list(scan.scan_frames(files, copy).frames) == []


@given(st.lists(parts, max_size=12), st.integers(1, 200), st.integers(0, 500))
def test_steps_of_any_size_find_the_same_frames(laid, step, missing):
    data, good = bytearray(DATA_START), []
    for position, (kind, content) in enumerate(laid, 1):
        if kind == "frame":
            good.append(position)
            data += frame(position, content, HEADER.seed)
        elif kind == "stale":
            data += frame(position, content, HEADER.seed ^ 1)
        elif kind == "damaged":
            data += frame(position, content, HEADER.seed)
            data[-1] ^= 1
        else:
            data += content
    files = MemoryFiles()
    handle = files.open("/segment", create=True)
    files.pwritev(handle, [bytes(data)], 0)
    copy = scan.FoundCopy(0, "/segment", len(data) + missing, HEADER, None, 0, False, False)
    whole = scan.scan_frames(files, copy)
    assert list(whole.frames) == good
    with patch.object(scan, "STEP_BYTES", step):
        assert scan.scan_frames(files, copy) == whole


def test_what_was_never_written_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of a segment, often: of what lies behind the last entry only as much is read as came with it."""
    files = MemoryFiles()
    handle = files.open("/segment", create=True)
    size = 64 * scan.STEP_BYTES
    files.allocate(handle, size)
    files.pwritev(handle, [frame(1, b"x" * 100, HEADER.seed)], DATA_START)
    files.pwritev(handle, [frame(2, b"y" * 100, HEADER.seed)], size - 1000)
    asked: list[int] = []
    pread = files.pread

    def counted(handle: int, size: int, offset: int) -> bytes:
        asked.append(size)
        return pread(handle, size, offset)

    monkeypatch.setattr(files, "pread", counted)
    table = scan.scan_frames(files, scan.FoundCopy(0, "/segment", size, HEADER, None, 0, False, False))
    assert list(table.frames) == [1, 2]
    assert sum(asked) <= 3 * scan.STEP_BYTES
