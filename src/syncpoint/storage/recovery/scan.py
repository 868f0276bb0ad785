"""Scan: what lies on a disk. Nothing is changed and nothing is believed without its checksum.

Place: first step of opening, and of the offline tools. Sealed segments cost two small reads each; only segments
without a trailer (at most a few: the ones being written at the end) have their frames read by `scan_frames`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from syncpoint.runtime.files import Files, read_exactly
from syncpoint.storage.identity import Identity, Marks, read_identity, read_marks
from syncpoint.storage.layout import READMITTED_FILE, UNCLEAN_FILE, logs_dir, parse_log, parse_segment
from syncpoint.storage.record import HEADER_BYTES, MAGIC_BYTES, Header, decode_frame
from syncpoint.storage.segment import (
    DATA_START,
    PAGE,
    SegmentHeader,
    Trailer,
    decode_front,
    decode_mark,
    decode_trailer,
)


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
    identity: Identity | None = None
    marks: Marks | None = None
    copies: list[FoundCopy] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)  # segment files without a header
    empty: bool = True  # no identity and no segment: a new or wiped disk


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
    end: int = DATA_START  # offset behind the last valid frame


def scan_disk(files: Files, root: str, slot: int) -> DiskScan:
    """Identity, marks and segment copies of one disk. Raises `OSError` when the folder cannot be read."""
    scan = DiskScan(slot, root)
    try:
        files.stat(root)
    except FileNotFoundError:
        return scan
    scan.identity = read_identity(files, root)
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
        scan.identity = Identity(newest.universe, newest.disk)
    return scan


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
    leave later pages of one unsynced commit, and since damage does not reach what lies behind it."""
    handle = files.open(copy.path, write=False)
    try:
        data = read_exactly(files, handle, copy.size, 0)
    finally:
        files.close(handle)
    table = FrameTable()
    seed = copy.header.seed
    offset, gap = DATA_START, -1
    while offset + HEADER_BYTES <= len(data):
        frame = decode_frame(data, offset, seed)
        if frame is None:
            if gap < 0:
                gap = offset
            offset = data.find(MAGIC_BYTES, offset + 1)
            if offset < 0:
                break
            continue
        if gap >= 0:
            table.bad.append(gap)
            gap = -1
        header = frame[0]
        table.frames.setdefault(header.position, Scanned(offset, header))
        table.synced = max(table.synced, header.synced)
        offset += HEADER_BYTES + header.length
        table.end = offset
    return table
