"""Scan: what lies on a disk. Nothing is changed and nothing is believed without its checksum.

Place: first step of opening, and of the offline tools. Sealed segments cost two small reads each; only segments
without a trailer (at most a few: the ones being written at the end) have their frames read by `scan_frames`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from syncpoint.base.runtime.file_content import read_exactly
from syncpoint.base.runtime.files import Files
from syncpoint.log.storage.disk.disk_identity import DiskIdentity, Marks, read_identity, read_marks
from syncpoint.log.storage.errors import GO_ON, ForeignDisk
from syncpoint.log.storage.layout import READMITTED_FILE, UNCLEAN_FILE, logs_dir, parse_log, parse_segment
from syncpoint.log.storage.record import (
    HEADER_BYTES,
    MAGIC_BYTES,
    VERSION,
    Header,
    decode_frame,
    decode_header,
    other_version,
)
from syncpoint.log.storage.segment import (
    DATA_START,
    FORMAT,
    PAGE,
    SegmentHeader,
    Trailer,
    decode_front,
    decode_mark,
    decode_trailer,
    other_format,
)

STEP_BYTES = 1 << 20  # of one read through a segment's frames


@dataclass(slots=True)
class FoundCopy:
    """One segment file with a header that can be believed."""

    slot: int
    path: str
    size: int
    header: SegmentHeader
    trailer: Trailer | None
    marked: int  # highest position its mark page knows to be synced
    misplaced: bool  # the file lies under the name of another segment
    header_damaged: bool  # the header was taken from its second page or from the trailer


@dataclass(slots=True)
class DiskScan:
    """What one disk folder holds."""

    slot: int
    root: str
    identity: DiskIdentity | None = None
    marks: Marks | None = None
    copies: list[FoundCopy] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)  # segment files without a header
    empty: bool = True  # no identity and no segment: a new or wiped disk
    named: bool = False  # the identity was read from its file


@dataclass(slots=True)
class Scanned:
    """One valid frame found by reading through a segment."""

    offset: int
    header: Header


@dataclass(slots=True)
class FrameTable:
    """All valid frames of one copy, by position, and what they witness."""

    frames: dict[int, Scanned] = field(default_factory=dict)
    synced: int = 0  # highest position any of them knows to be synced
    bad: list[int] = field(default_factory=list)  # file offsets where a frame began to be bad and later ones were good
    end: int = DATA_START  # offset after the last valid frame


def scan_disk(files: Files, root: str, slot: int) -> DiskScan:
    """Identity, marks and segment copies of one disk. Raises `OSError` when the folder cannot be read, and
    `ForeignDisk` for what is in another format.
    """
    scan = DiskScan(slot, root)
    try:
        files.stat(root)
    except FileNotFoundError:
        return scan
    scan.identity = read_identity(files, root)
    scan.named = scan.identity is not None
    scan.marks = read_marks(files, root)
    try:
        names = files.listdir(logs_dir(root))
    except FileNotFoundError:
        names = []
    for name in sorted(names):
        log = parse_log(name)
        if log is None:
            continue
        folder = f"{logs_dir(root)}/{name}"
        for file in sorted(files.listdir(folder)):
            seq = parse_segment(file)
            if seq is not None:
                _scan_file(files, f"{folder}/{file}", log, seq, scan)
    scan.empty = scan.identity is None and not scan.copies
    taken = any(_exists(files, f"{root}/{name}") for name in (READMITTED_FILE, UNCLEAN_FILE))
    if scan.identity is None and scan.copies and not taken:
        # Only the small file was lost: the segments themselves say whose they are. Not so where an earlier incarnation
        # left segments to a later one, or where the identity was set aside because the disk lost what was not synced.
        newest = max(scan.copies, key=lambda copy: (copy.header.log, copy.header.seq)).header
        scan.identity = DiskIdentity(newest.universe, newest.disk)
    return scan


def newest_header(copies: Iterable[FoundCopy]) -> SegmentHeader | None:
    """The header of the newest fragment in which anything can have been acknowledged; None without one.

    A log that was begun by too few disks holds nothing, and its header says nothing about who has what.
    """
    headers = [copy.header for copy in copies if copy.header.could_acknowledge]
    return max(headers, key=lambda header: (header.log, header.seq), default=None)


def _exists(files: Files, path: str) -> bool:
    try:
        files.stat(path)
    except FileNotFoundError:
        return False
    return True


def _scan_file(files: Files, path: str, log: int, seq: int, scan: DiskScan) -> None:
    handle = files.open(path, write=False)
    try:
        size = files.fstat(handle).size
        front = read_exactly(files, handle, DATA_START, 0)
        last = read_exactly(files, handle, PAGE, size - PAGE) if size >= DATA_START + PAGE else b""
    finally:
        files.close(handle)
    header = decode_front(front)
    sealed = decode_trailer(last)
    if sealed is not None and header is not None and sealed[0] != header:
        sealed = None  # left behind by what the file was before
    if header is None and sealed is not None:
        header = sealed[0]
    if header is None and (found := other_format(front)) is not None:
        raise ForeignDisk(f"{path} has format {found}; this version reads {FORMAT}. {GO_ON}")
    if header is None:
        scan.unreadable.append(path)
        return
    scan.copies.append(
        FoundCopy(
            scan.slot,
            path,
            size,
            header,
            sealed[1] if sealed else None,
            decode_mark(front, header.seed),
            (header.log, header.seq) != (log, seq),
            front[:PAGE] != front[PAGE : 2 * PAGE],
        )
    )


def scan_frames(files: Files, copy: FoundCopy) -> FrameTable:
    """Read through one copy. Behind a bad frame the search goes on at the next valid header, since a power cut may
    leave later pages of one unsynced commit, and since damage does not reach what follows it."""
    return frames_of(files, copy.path, copy.size, copy.header.seed)


def frames_of(files: Files, path: str, size: int, seed: int) -> FrameTable:
    """Read the frames in the first `size` bytes of a copy with this seed. Raises `OSError`."""
    handle = files.open(path, write=False)
    try:
        return _read_frames(_Window(files, path, handle, size), seed)
    finally:
        files.close(handle)


def _read_frames(window: _Window, seed: int) -> FrameTable:
    table = FrameTable()
    offset, gap = DATA_START, -1
    while offset + HEADER_BYTES <= window.size:
        header = window.header(offset, seed)
        if header is None:
            if gap < 0:
                gap = offset
            offset = window.find(MAGIC_BYTES, offset + 1)
            if offset < 0:
                break
            continue
        if gap >= 0:
            table.bad.append(gap)
            gap = -1
        table.frames.setdefault(header.position, Scanned(offset, header))
        table.synced = max(table.synced, header.synced)
        offset += HEADER_BYTES + header.length
        table.end = offset
    return table


class _Window:
    """The part of a file that is checked, read on in steps: segments are large, and all copies of one are read at the
    same time. Offsets are those of the file, and only go forward.
    """

    def __init__(self, files: Files, path: str, handle: int, size: int) -> None:
        self.size = size
        self._files, self._path, self._handle = files, path, handle
        self._begin, self._data = 0, b""

    def header(self, offset: int, seed: int) -> Header | None:
        """The header of a whole valid frame, or None. Raises `ForeignDisk` for one in a format unknown here."""
        at = self._at(offset, HEADER_BYTES)
        header = decode_header(self._data, at, seed)
        if header is None:
            if (found := other_version(self._data, at, seed)) is not None:
                raise ForeignDisk(
                    f"{self._path} has an entry of version {found} at byte {offset}; this version reads"
                    f" {VERSION}. {GO_ON}"
                )
            return None
        at = self._at(offset, HEADER_BYTES + header.length)
        return None if decode_frame(self._data, at, seed) is None else header

    def find(self, what: bytes, offset: int) -> int:
        """Where these bytes, of which the first is not zero, come next; -1: nowhere."""
        while offset + len(what) <= self.size:
            at = self._at(offset, len(what))
            found = self._data.find(what, at)
            if found >= 0:
                return self._begin + found
            offset = max(offset, self._begin + len(self._data) - len(what) + 1)
            offset = self._files.skip_zeros(self._handle, offset)  # most of a segment may never have been written
        return -1

    def _at(self, offset: int, count: int) -> int:
        """Where an offset is in the data, with `count` bytes from there on, or as many as the file has."""
        end = self._begin + len(self._data)
        if offset + count > end and end < self.size:
            kept = self._data[offset - self._begin :]
            begin = offset + len(kept)
            more = read_exactly(self._files, self._handle, min(self.size - begin, max(STEP_BYTES, count)), begin)
            if not more:
                self.size = begin  # the file is shorter than its recorded size
            self._begin, self._data = offset, kept + more
        return offset - self._begin
