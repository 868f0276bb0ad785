"""Repair: make a copy of a segment whole, durably.

Place: recovery seals the segments that were being written when the process ended; maintainers complete disks that
lack segments or hold damaged ones, for ever, without new traffic.
Promise: what is accepted is synced before it is served. Completing *writes the accepted bytes again*, since after a
failed fdatasync the page cache may show what the disk never got, and a second sync alone would prove nothing. A
rebuilt copy is made beside the old file and takes its name only when it is complete and synced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

from syncpoint.base.runtime.file_content import read_exactly, write_all
from syncpoint.base.runtime.files import Files
from syncpoint.base.runtime.random import Random
from syncpoint.log.storage.copy_reader import CopyReader
from syncpoint.log.storage.disk.disk_writer import write_seal
from syncpoint.log.storage.disk.segment_catalog import Segment, SegmentCatalog, SegmentCopy, index_seed
from syncpoint.log.storage.errors import CopiesChanged, StorageDamaged
from syncpoint.log.storage.index import ActiveIndex, IndexRecord, encode_index
from syncpoint.log.storage.layout import log_dir, logs_dir, segment_path
from syncpoint.log.storage.record import HEADER_BYTES, Header, Queued, decode_frame, encode_header
from syncpoint.log.storage.segment import PAGE, SegmentHeader, align, decode_front, encode_front, encode_trailer

_CHUNK = 1 << 20


def seal_tail(files: Files, path: str, header: SegmentHeader, segment: Segment) -> None:
    """Write the accepted part of a copy again, seal it and sync it.

    The very bytes that are written are checked first: since they were found, a machine that stopped may have lost what
    it had not synced. Raises `OSError`, and `CopiesChanged` before anything is sealed.
    """
    handle = files.open(path)
    try:
        check = _Check(segment, header, path)
        offset = 0
        while offset < segment.data_end:
            data = read_exactly(files, handle, min(_CHUNK, segment.data_end - offset), offset)
            if not data:
                if check.complete:
                    break  # of a segment without entries a crash may have left the header alone
                raise CopiesChanged(f"{path} was truncated while the store was being opened")
            check.take(data)
            offset = write_all(files, handle, [data], offset)
        check.end()
        write_seal(files, handle, header, segment, segment_bytes=0)
        files.fdatasync(handle)
    finally:
        files.close(handle)


class _Check:
    """Every accepted entry is in its place, in bytes that come one piece after the other."""

    def __init__(self, segment: Segment, header: SegmentHeader, path: str) -> None:
        assert segment.active is not None, "only a segment whose scan made an index is sealed"
        self._segment, self._header, self._path = segment, header, path
        self._records = segment.active.all()
        self._record = next(self._records, None)
        self._data, self._begin = b"", 0

    def take(self, data: bytes) -> None:
        first = not self._begin and not self._data
        self._data += data
        if first and decode_front(data) != self._header:
            raise self._changed("header")
        record = self._record
        at = 0
        while record is not None:
            at = record.offset - self._begin
            if at + HEADER_BYTES + record.length > len(self._data):
                break
            frame = decode_frame(self._data, at, self._header.seed)
            if frame is None or frame[0].position != self._segment.first_position + record.ordinal:
                raise self._changed(f"frame at {record.offset}")
            at += HEADER_BYTES + record.length
            self._record = record = next(self._records, None)
        done = min(at, len(self._data))
        self._data = self._data[done:]
        self._begin += done

    @property
    def complete(self) -> bool:
        """Whether the header and every accepted entry were seen."""
        return self._record is None and self._begin + len(self._data) > 0

    def end(self) -> None:
        if self._record is not None:
            raise self._changed(f"frame at {self._record.offset}")

    def _changed(self, what: str) -> CopiesChanged:
        return CopiesChanged(
            f"{self._path} changed after it was scanned ({what}); open the store again",
            log=self._segment.log,
            segment=self._segment.seq,
        )


def seal_again(files: Files, path: str, header: SegmentHeader, segment: Segment) -> None:
    """Replace the trailer of a sealed copy, to say that the log ends here. Raises `OSError`."""
    handle = files.open(path)
    try:
        size = files.fstat(handle).size
        write_all(files, handle, [encode_trailer(header, segment.trailer())], size - PAGE)
        files.fdatasync(handle)
    finally:
        files.close(handle)


def rebuild(
    files: Files,
    random: Random,
    catalog: SegmentCatalog,
    access: CopyReader,
    segment: Segment,
    slot: int,
    root: str,
    disk: bytes,
    may_replace: Callable[[str], object] = lambda path: None,
    whole: bool = False,
    between: Callable[[], object] = lambda: None,
    again: SegmentCopy | None = None,
) -> tuple[SegmentCopy, list[IndexRecord]]:
    """Write a fresh copy on one disk from the others; returns it and what no disk has in good order.

    `may_replace(path)` raises where what lies in the copy's place is not this disk's. `whole`: positions that are in no
    good order are `CopiesChanged`, and the copy's place stays as it was. `between`: called before each piece of it.
    `again`: the copy that lies in that place is written anew as it was, for whoever is reading it.

    Raises `OSError` of the target, `copy_reader.Gone` when the segment was removed in the meantime, `DamagedIndex` when
    no disk has its index.
    """
    index = catalog.index(segment)
    records = sorted([*index.messages(), *index.controls()], key=lambda record: record.ordinal)
    path = segment_path(root, segment.log, segment.seq)
    folder = log_dir(root, segment.log)
    incarnation = int.from_bytes(random.token(8), "little") if again is None else again.incarnation
    header = SegmentHeader(
        segment.universe,
        segment.log,
        segment.seq,
        incarnation,
        segment.first_position,
        disk,
        segment.members,
        segment.rule,
        segment.away,
    )
    files.mkdir(folder)
    files.sync_dir(logs_dir(root))
    beside = path + ".tmp"
    handle = files.open(beside, create=True)
    lost: list[IndexRecord] = []
    try:
        files.truncate(handle, 0)
        write_all(files, handle, [encode_front(header)], 0)
        seed = header.seed
        for part in _chunks(records):
            between()
            frames, missing = _frames(access, segment, part)
            lost += missing
            if lost and whole:
                position = segment.first_position + lost[0].ordinal
                raise CopiesChanged(
                    f"position {position} of log {segment.log} was readable when it was scanned and is not any more;"
                    " open the store again",
                    log=segment.log,
                    segment=segment.seq,
                )
            for record, (found, payload) in frames:
                # The old mark of sync stays true in the new place.
                write_all(files, handle, [encode_header(seed, _queued(found), found.synced), payload], record.offset)
        body, messages, controls, sources = encode_index(
            _as_active(records), index_seed(segment.universe, segment.log, segment.seq)
        )
        offset = align(segment.data_end)
        write_all(files, handle, [body], offset)
        end = offset + len(body)
        trailer = segment.trailer()._replace(index_offset=offset, messages=messages, controls=controls, sources=sources)
        write_all(files, handle, [encode_trailer(header, trailer)], end)
        files.truncate(handle, end + PAGE)
        files.fdatasync(handle)
    finally:
        files.close(handle)
    with suppress(FileNotFoundError):
        may_replace(path)
    files.rename(beside, path)
    files.sync_dir(folder)
    return SegmentCopy(incarnation, header.seed, path, sealed=True), lost


def broken_records(catalog: SegmentCatalog, access: CopyReader, segment: Segment) -> list[IndexRecord]:
    """Read all of a sealed segment: the records of its index that are on no disk in good order.

    Raises `DamagedIndex`, `CopiesUnreachable`, `OSError`.
    """
    index = catalog.index(segment)
    records = sorted([*index.messages(), *index.controls()], key=lambda record: record.ordinal)
    return [record for part in _chunks(records) for record in _frames(access, segment, part)[1]]


def _queued(header: Header) -> Queued:
    return Queued(
        header.kind,
        header.position,
        header.source,
        header.first_offset,
        header.count,
        header.time_ns,
        header.length,
        header.payload_crc,
        (),
    )


def _chunks(records: list[IndexRecord]) -> Iterator[list[IndexRecord]]:
    part: list[IndexRecord] = []
    size = 0
    for record in records:
        part.append(record)
        size += record.length + 64
        if size >= _CHUNK:
            yield part
            part, size = [], 0
    if part:
        yield part


def _frames(
    access: CopyReader, segment: Segment, part: list[IndexRecord]
) -> tuple[list[tuple[IndexRecord, tuple[Header, bytes]]], list[IndexRecord]]:
    try:
        return list(zip(part, access.frames(segment, part), strict=True)), []
    except StorageDamaged:
        pass
    found, missing = [], []
    for record in part:  # one by one, to keep all that is left
        try:
            found.append((record, access.frames(segment, [record])[0]))
        except StorageDamaged:
            missing.append(record)
    return found, missing


def _as_active(records: list[IndexRecord]) -> ActiveIndex:
    index = ActiveIndex()
    for record in records:
        index.add(
            record.kind,
            record.source,
            record.first_offset,
            record.count,
            record.time_ns,
            record.offset,
            record.length,
            record.ordinal,
        )
    return index
