"""Looking at disks that no process has open: `verify` judges them, `dump` shows their entries. Nothing is written.

Place: library of `syncpoint log verify` and `syncpoint log dump`; the same scan and the same decisions as recovery.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from syncpoint.base.runtime.files import Files
from syncpoint.base.runtime.os_files import OsFiles
from syncpoint.log.storage.disk.disk_identity import Marks, merge_marks
from syncpoint.log.storage.disk.segment_catalog import Segment, SegmentCopy
from syncpoint.log.storage.record import MESSAGE_KINDS, EntryKind, decode_frame
from syncpoint.log.storage.recovery.find_tail import LogTail, SegmentTail, find_tail
from syncpoint.log.storage.recovery.scan import DiskScan, FoundCopy, FrameTable, scan_disk, scan_frames
from syncpoint.log.storage.recovery.scrub import check_copy
from syncpoint.log.storage.segment import DATA_START

Report = dict[str, object]


def verify(disks: Sequence[Path | str], *, files: Files | None = None) -> Report:
    """Read every byte of every segment. The report is plain JSON data:

    `ok`: nothing acknowledged is damaged or missing; `problems`: one text each; `disks`; `logs` with their segments,
    and for each copy "good", "tail N" (N unsynced frames above the end), or what is wrong with it.
    """
    files = files or OsFiles()
    scans, problems = _scan(files, disks)
    marks = merge_marks(scan.marks for scan in scans if scan.marks is not None)
    logs: list[Report] = []
    found: dict[int, list[int]] = {}
    for tail in _tails(files, scans, marks):
        segments = [_verify_segment(files, segment, problems) for segment in tail.segments]
        found[tail.log] = [segment.seq for segment in tail.segments]
        problems += [f"segment {seq} of log {tail.log} is missing on every disk" for seq in tail.missing]
        logs.append({"log": tail.log, "segments": segments, "void": [copy.path for copy in tail.void]})
    problems += [f"segment {seq} of log {log} is missing on every disk" for log, seq in marks.missing(found)]
    problems = list(dict.fromkeys(problems))
    return {
        "ok": not problems,
        "problems": problems,
        "disks": [_disk(scan) for scan in scans],
        "reserved_log": marks.reserved,
        "removed_logs": [list(span) for span in marks.removed_logs],
        "logs": logs,
    }


def dump(
    disks: Sequence[Path | str],
    *,
    log: int | None = None,
    source: int | None = None,
    payloads: bool = False,
    files: Files | None = None,
) -> Iterator[Report]:
    """Every entry that is in good order on any disk, by log and position, as plain JSON data."""
    files = files or OsFiles()
    scans, _ = _scan(files, disks)
    marks = merge_marks(scan.marks for scan in scans if scan.marks is not None)
    for tail in _tails(files, scans, marks):
        if log is not None and tail.log != log:
            continue
        for segment in tail.segments:
            yield from _dump_segment(files, segment, source, payloads)


def _scan(files: Files, disks: Sequence[Path | str]) -> tuple[list[DiskScan], list[str]]:
    scans, problems = [], []
    for slot, disk in enumerate(disks):
        try:
            scans.append(scan_disk(files, str(disk), slot))
        except (OSError, ValueError) as error:
            problems.append(f"disk {disk} cannot be read: {error}")
            scans.append(DiskScan(slot, str(disk)))
    return scans, problems


def _tails(files: Files, scans: Sequence[DiskScan], marks: Marks) -> Iterator[LogTail]:
    by_log: dict[int, list[FoundCopy]] = {}
    for copy in sorted((copy for scan in scans for copy in scan.copies), key=lambda one: not one.misplaced):
        if not marks.is_removed(copy.header.log, copy.header.seq):
            by_log.setdefault(copy.header.log, []).append(copy)

    def scan_all(found: Sequence[FoundCopy]) -> list[FrameTable]:
        return [scan_frames(files, copy) for copy in found]

    for log in sorted(by_log):

        def removed(seq: int, log: int = log) -> bool:
            return marks.need_not_be_there(log, seq)

        def promised(seq: int, log: int = log) -> bool:
            return marks.is_live(log, seq)

        yield find_tail(log, by_log[log], removed, promised, scan_all, frozenset())


def _disk(scan: DiskScan) -> Report:
    return {
        "path": scan.root,
        "incarnation": scan.identity.incarnation.hex() if scan.identity else None,
        "universe": scan.identity.universe if scan.identity else None,
        "marks": scan.marks is not None,
        "segments": len(scan.copies),
        "unreadable": scan.unreadable,
    }


def _verify_segment(files: Files, tail: SegmentTail, problems: list[str]) -> Report:
    copies: dict[str, str] = {}
    good = 0
    for copy in tail.copies.values():
        verdict = _verify_copy(files, tail, copy)
        copies[copy.path] = verdict
        good += verdict == "good" or verdict.startswith("tail")
        if verdict != "good" and not verdict.startswith(("tail", "not sealed")):
            problems.append(f"{copy.path}: {verdict}")
    if tail.lost:
        problems.append(f"positions {tail.lost[0]}-{tail.lost[-1]} of log {tail.log} have no good copy on any disk")
    return {
        "segment": tail.seq,
        "first_position": tail.first_position,
        "last_position": tail.last_position,
        "sealed": tail.trailer is not None,
        "copies": copies,
        "good_copies": good,
        "lost": tail.lost,
    }


def _verify_copy(files: Files, tail: SegmentTail, copy: FoundCopy) -> str:
    if copy.misplaced:
        return "has the file name of another segment"
    if copy.header_damaged:
        return "one page of the header is damaged"
    if tail.trailer is None:
        if copy.slot in tail.complete:
            return f"tail {tail.cut[copy.slot]}" if copy.slot in tail.cut else "good"
        return "lacks entries that are on another disk"
    if copy.trailer != tail.trailer:
        return "not sealed like the others" if copy.trailer is None else "sealed at another position"
    segment = Segment(0, copy.header.universe, tail.log, tail.seq, tail.first_position, None)
    segment.seal(tail.trailer)
    try:
        for _, problem in check_copy(
            files, segment, SegmentCopy(copy.header.incarnation, copy.header.seed, copy.path, sealed=True)
        ):
            if problem is not None:
                return str(problem)
    except OSError as error:
        return f"cannot be read: {error}"
    return "good"


def _dump_segment(files: Files, tail: SegmentTail, source: int | None, payloads: bool) -> Iterator[Report]:
    tables = {slot: scan_frames(files, copy) for slot, copy in tail.copies.items()}
    for position in range(tail.first_position, tail.last_position + 1):
        for slot, table in tables.items():
            scanned = table.frames.get(position)
            if scanned is None:
                continue
            header = scanned.header
            if source is None or header.source == source:
                entry: Report = {
                    "log": tail.log,
                    "position": position,
                    "kind": EntryKind(header.kind).name,
                    "segment": tail.seq,
                    "file_offset": scanned.offset,
                    "bytes": header.length,
                    "synced": header.synced,
                }
                if header.kind in MESSAGE_KINDS:
                    entry |= {
                        "source": header.source,
                        "first_offset": header.first_offset,
                        "count": header.count,
                        "time_ns": header.time_ns,
                    }
                if payloads:
                    entry["payload"] = _payload(files, tail.copies[slot], scanned.offset, header.length)
                yield entry
            break
        else:
            yield {"log": tail.log, "position": position, "kind": "MISSING", "segment": tail.seq}


def _payload(files: Files, copy: FoundCopy, offset: int, length: int) -> str:
    handle = files.open(copy.path, write=False)
    try:
        data = files.pread(handle, 64 + length, max(offset, DATA_START))
    finally:
        files.close(handle)
    frame = decode_frame(data, 0, copy.header.seed)
    return frame[1].hex() if frame else ""
