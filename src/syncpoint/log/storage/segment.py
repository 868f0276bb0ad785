"""The fixed pages of a segment file: header, mark page, trailer.

    page 0       header            who this copy is: universe, log, number, incarnation, members of its fragment
    page 1       header again      so that one rotten page does not lose the seed of every checksum after it
    page 2       marks             two slots, written in turn when the disk goes idle: synced up to here
    page 3 ...   frames            positions first_position, first_position + 1, ...
    then         index             see `index`; aligned to a page
    last page    trailer           sealed: where the index is, the last position, who sealed, the header once more

Place: written by `disk_writer` and `recovery.repair`, read by recovery, `index` and tools.
Promise: a page is believed only if its CRC32C matches; trailer and marks are seeded with the copy's incarnation, so
those left behind in a recycled file are void.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from syncpoint.log.storage.checksum import crc32c
from syncpoint.log.storage.quorum import AckRule
from syncpoint.log.storage.record import place_seed

PAGE = 4096
MARK_OFFSET = 2 * PAGE
MARK_SLOT = 512  # slots lie in different sectors: a torn write spoils one of them
DATA_START = 3 * PAGE
FORMAT = 1
NOBODY = bytes(16)  # stands in for a member that was absent when the fragment began, and of which nothing was known

_MAGIC_HEADER = b"SYNCSEGM"
_MAGIC_TRAILER = b"SYNCSEAL"
_HEADER = struct.Struct("<8sIQQQQQ16sHH")
_TRAILER = struct.Struct("<8sQQQQIIIIH")
_MARK = struct.Struct("<QQ")
_CRC = struct.Struct("<I")
_FORMAT = struct.Struct("<I")  # after the magic, in every format


class SegmentHeader(NamedTuple):
    """Identity of one disk's copy of one segment."""

    universe: int
    log: int
    seq: int
    incarnation: int  # random u64, drawn whenever a copy is begun
    first_position: int
    disk: bytes  # incarnation of the disk that holds this copy, 16 bytes
    members: tuple[bytes, ...]  # the fragment: disk incarnations, NOBODY for an unknown one
    rule: AckRule  # which sets of the members could acknowledge
    away: int = 0  # bit by slot: members that were not there when the fragment began, so they never held any of it

    @property
    def seed(self) -> int:
        """Checksum seed of frames, marks and trailer of this copy."""
        return place_seed(self.universe, self.log, self.incarnation)

    @property
    def writing(self) -> list[int]:
        """Slots of the members that were there: only these can have acknowledged anything."""
        return [slot for slot, one in enumerate(self.members) if one != NOBODY and not self.away >> slot & 1]

    @property
    def could_acknowledge(self) -> bool:
        """Whether anything in the fragment can ever have been acknowledged."""
        return self.rule.can_acknowledge(self.writing)


class Trailer(NamedTuple):
    """Says that a segment is sealed, and where its index is."""

    sealed_by: int  # log counter of the incarnation that sealed; of two seals the higher one holds
    last_position: int  # first_position - 1 for an empty segment
    data_end: int  # file offset after the last frame
    index_offset: int
    messages: int  # records of each section of the index
    controls: int
    sources: int
    final: bool  # the log ends here: segments with higher numbers are void


def encode_header(header: SegmentHeader) -> bytes:
    """One page."""
    body = _pack_header(header)
    page = body.ljust(PAGE - 4, b"\0")
    return page + _CRC.pack(crc32c(page))


def decode_header(page: bytes) -> SegmentHeader | None:
    """The header in a page, or None."""
    if len(page) < PAGE or page[:8] != _MAGIC_HEADER:
        return None
    if _CRC.unpack_from(page, PAGE - 4)[0] != crc32c(page[: PAGE - 4]):
        return None
    return _unpack_header(page, 0)


def other_format(front: bytes) -> int | None:
    """The format that an intact header names, if it is another one than this version writes."""
    for page in (front[:PAGE], front[PAGE : 2 * PAGE]):
        whole = len(page) == PAGE and _CRC.unpack_from(page, PAGE - 4)[0] == crc32c(page[: PAGE - 4])
        if whole and page[:8] == _MAGIC_HEADER and (found := _FORMAT.unpack_from(page, 8)[0]) != FORMAT:
            return int(found)
    return None


def encode_front(header: SegmentHeader) -> bytes:
    """Everything before the first frame: both headers and an empty mark page."""
    page = encode_header(header)
    return page + page + bytes(PAGE)


def decode_front(front: bytes) -> SegmentHeader | None:
    """The header from either of its two pages."""
    return decode_header(front[:PAGE]) or decode_header(front[PAGE : 2 * PAGE])


def encode_mark(seed: int, synced: int, turn: int) -> tuple[int, bytes]:
    """File offset and bytes of the `turn`-th note that everything up to `synced` is synced."""
    body = _MARK.pack(synced, turn)
    return MARK_OFFSET + (turn & 1) * MARK_SLOT, body + _CRC.pack(crc32c(body, seed))


def decode_mark(front: bytes, seed: int) -> int:
    """The highest position the mark page knows to be synced; 0 without a valid mark."""
    best = 0
    for slot in (0, 1):
        begin = MARK_OFFSET + slot * MARK_SLOT
        body = front[begin : begin + _MARK.size]
        if len(front) < begin + _MARK.size + 4:
            continue
        if _CRC.unpack_from(front, begin + _MARK.size)[0] == crc32c(body, seed):
            best = max(best, _MARK.unpack(body)[0])
    return best


def encode_trailer(header: SegmentHeader, trailer: Trailer) -> bytes:
    """One page, the last one of the file."""
    fields = _TRAILER.pack(
        _MAGIC_TRAILER,
        trailer.sealed_by,
        trailer.last_position,
        trailer.data_end,
        trailer.index_offset,
        trailer.messages,
        trailer.controls,
        trailer.sources,
        1 if trailer.final else 0,
        0,
    )
    page = (fields + _pack_header(header)).ljust(PAGE - 4, b"\0")
    return page + _CRC.pack(crc32c(page, header.seed))


def decode_trailer(page: bytes) -> tuple[SegmentHeader, Trailer] | None:
    """Header and trailer from the last page of a file, or None. The caller compares the header with the file's own."""
    if len(page) < PAGE or page[:8] != _MAGIC_TRAILER:
        return None
    header = _unpack_header(page, _TRAILER.size)
    if header is None or _CRC.unpack_from(page, PAGE - 4)[0] != crc32c(page[: PAGE - 4], header.seed):
        return None
    fields = _TRAILER.unpack_from(page)
    return header, Trailer._make((*fields[1:8], bool(fields[8] & 1)))


def _pack_header(header: SegmentHeader) -> bytes:
    count, rest = header.rule.encode()
    fields = _HEADER.pack(
        _MAGIC_HEADER,
        FORMAT,
        header.universe,
        header.log,
        header.seq,
        header.incarnation,
        header.first_position,
        header.disk,
        len(header.members),
        count,
    )
    return fields + b"".join(header.members) + rest + header.away.to_bytes(_away_bytes(len(header.members)), "little")


def _unpack_header(page: bytes, offset: int) -> SegmentHeader | None:
    fields = _HEADER.unpack_from(page, offset)
    if fields[0] != _MAGIC_HEADER or fields[1] != FORMAT:
        return None
    begin = offset + _HEADER.size
    members = tuple(page[begin + 16 * i : begin + 16 * i + 16] for i in range(fields[8]))
    try:
        rule = AckRule.decode(fields[9], fields[8], page[begin + 16 * fields[8] :])
    except ValueError:
        return None
    end = begin + 16 * fields[8] + len(rule.encode()[1])
    away = int.from_bytes(page[end : end + _away_bytes(fields[8])], "little")
    return SegmentHeader._make((*fields[2:8], members, rule, away))


def _away_bytes(members: int) -> int:
    return -(-members // 8)


def align(offset: int) -> int:
    """`offset` rounded up to a page."""
    return -(-offset // PAGE) * PAGE
