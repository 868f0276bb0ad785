"""Scrub: read sealed copies through, slowly, to find rot while another disk still has what it destroyed.

Place: a `maintenance` with nothing else to do takes one step after the other; a copy that fails is forgotten and then
written anew.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

from syncpoint.base.runtime.file_content import read_exactly
from syncpoint.base.runtime.files import Files, FolderExchanged
from syncpoint.log.storage.checksum import crc32c
from syncpoint.log.storage.damage import Damage, SegmentPart, SegmentPlace
from syncpoint.log.storage.disk.segment_catalog import Segment, SegmentCopy, index_seed
from syncpoint.log.storage.index import RECORDS_PAGE, SUMMARIES_PAGE, DamagedIndex, check_page
from syncpoint.log.storage.record import HEADER_BYTES, decode_header
from syncpoint.log.storage.segment import DATA_START, PAGE, decode_trailer
from syncpoint.log.storage.segment import decode_header as decode_segment_header

_CHUNK = 256 * 1024

Checking = Iterator[tuple[int, Damage | None]]
"""Steps: how many bytes were read, and what is wrong with them; the first damage is the last step."""


def check_copy(files: Files, segment: Segment, copy: SegmentCopy) -> Checking:
    """Raises `OSError` in a step."""
    handle = files.open(copy.path, write=False)
    try:
        for read, problem in _check_ends(files, handle, segment, copy):
            yield read, problem
            if problem:
                return
        offset, position = DATA_START, segment.first_position
        while offset < segment.data_end:
            data = read_exactly(files, handle, min(_CHUNK, segment.data_end - offset), offset)
            at = 0
            while True:
                header = decode_header(data, at, copy.seed)
                if header is None and len(data) - at >= HEADER_BYTES:
                    yield len(data), Damage(SegmentPlace(SegmentPart.FRAME, offset + at), "header")
                    return
                if header is None or len(data) - at < HEADER_BYTES + header.length:
                    break
                begin = at + HEADER_BYTES
                if crc32c(data[begin : begin + header.length]) != header.payload_crc or header.position != position:
                    yield len(data), Damage(SegmentPlace(SegmentPart.FRAME, offset + at), "payload")
                    return
                at = begin + header.length
                position += 1
            if at == 0:  # one frame larger than a chunk
                if header is None:
                    yield len(data), Damage(SegmentPlace(SegmentPart.FRAME, offset), "cut off")
                    return
                payload = read_exactly(files, handle, header.length, offset + HEADER_BYTES)
                if crc32c(payload) != header.payload_crc:
                    yield len(payload), Damage(SegmentPlace(SegmentPart.FRAME, offset), "payload")
                    return
                at = HEADER_BYTES + header.length
                position += 1
            offset += at
            yield at, None
    finally:
        files.close(handle)


def whole_copy(files: Files, segment: Segment, path: str) -> SegmentCopy | None:
    """The copy at `path`, when its ends say that it is the whole sealed segment. Raises `OSError`.

    While other disks are late with the segment that is known, too: the process that sealed it has built its index.
    """
    if not segment.sealed_by or segment.removed:
        return None
    handle = files.open(path, write=False)
    try:
        size = files.fstat(handle).size
        header = decode_segment_header(read_exactly(files, handle, PAGE, 0))
        sealed = decode_trailer(read_exactly(files, handle, PAGE, size - PAGE)) if size >= DATA_START + PAGE else None
    finally:
        files.close(handle)
    if header is None or sealed is None or sealed != (header, segment.trailer()):
        return None
    if (header.universe, header.log, header.seq) != (segment.universe, segment.log, segment.seq):
        return None
    return SegmentCopy(header.incarnation, header.seed, path, sealed=True)


def _check_ends(files: Files, handle: int, segment: Segment, copy: SegmentCopy) -> Checking:
    size = files.fstat(handle).size
    front = read_exactly(files, handle, 2 * PAGE, 0)
    first, second = decode_segment_header(front[:PAGE]), decode_segment_header(front[PAGE:])
    for header in (first, second):
        if header is not None and header.universe != segment.universe:
            raise FolderExchanged(errno.ESTALE, "the segment there belongs to another server", copy.path)
    if first is None or first != second or first.incarnation != copy.incarnation:
        yield len(front), Damage(SegmentPlace(SegmentPart.HEADER))
        return
    sealed = decode_trailer(read_exactly(files, handle, PAGE, size - PAGE))
    if sealed is None or sealed[0] != first or sealed[1].last_position != segment.last_position:
        yield PAGE, Damage(SegmentPlace(SegmentPart.TRAILER))
        return
    trailer = sealed[1]
    seed = index_seed(segment.universe, segment.log, segment.seq)
    offset = trailer.index_offset
    for _ in range(index_pages(trailer.messages, trailer.controls, trailer.sources)):
        try:
            check_page(read_exactly(files, handle, PAGE, offset), seed)
        except DamagedIndex:
            yield PAGE, Damage(SegmentPlace(SegmentPart.INDEX, offset))
            return
        offset += PAGE
    yield offset - trailer.index_offset, None


def index_pages(messages: int, controls: int, sources: int) -> int:
    """How many pages the three sections of an index take."""
    return -(-messages // RECORDS_PAGE) - (-controls // RECORDS_PAGE) - (-sources // SUMMARIES_PAGE)
