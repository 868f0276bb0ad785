"""Frames: the 64-byte header before every entry, and the entries themselves.

Place: built when a disk's writer commits, taken apart by recovery, reader and tools.
Promise (protocol rule 4): a header's checksum is seeded with (universe, log, segment incarnation) and covers position
and payload checksum, so that a frame is valid in its own place only; old frames in a recycled file are not. `synced`
is the highest position known to be synced on an acknowledging set before the frame was written: whatever is bad at or
below the highest such mark is damage, what is bad above it is a tail that nobody was promised.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from syncpoint.base.runtime.files import Buffer
from syncpoint.log.storage.checksum import crc32c

MAGIC = 0x4E595346  # "FSYN" on disk
MAGIC_BYTES = struct.pack("<I", MAGIC)
VERSION = 1
HEADER_BYTES = 64

_BODY = struct.Struct("<IBBHIQQQQIQI")
_CRC = struct.Struct("<I")
_SEED = struct.Struct("<QQQ")
_pack_body = _BODY.pack
_pack_crc = _CRC.pack


class EntryKind(IntEnum):
    """What an entry is. Storage looks into none of the payloads."""

    MESSAGES = 1
    ACKS = 2
    CATALOG = 3
    CHECKPOINT_BEGIN = 4
    CHECKPOINT_PART = 5
    CHECKPOINT_END = 6
    COPY = 7  # messages copied forward: source, offsets and time are the original's
    LEDGER = 8


MESSAGE_KINDS = frozenset((EntryKind.MESSAGES, EntryKind.COPY))
CHECKPOINT_KINDS = frozenset((EntryKind.CHECKPOINT_BEGIN, EntryKind.CHECKPOINT_PART, EntryKind.CHECKPOINT_END))


class Entry(NamedTuple):
    """One entry as replay gives it. `payload` is empty for messages, which are read by source and offset."""

    kind: int
    position: int
    log: int
    source: int
    first_offset: int
    count: int  # type: ignore[assignment]  # shadows tuple.count, which nobody wants here
    time_ns: int
    payload: bytes


class StoredBatch(NamedTuple):
    """Messages of one source, offsets [first_offset, first_offset + count); `time_ns`: when they were accepted."""

    source: int
    first_offset: int
    count: int  # type: ignore[assignment]  # shadows tuple.count, which nobody wants here
    time_ns: int
    payload: bytes


class Header(NamedTuple):
    """A frame's header, taken apart."""

    kind: int
    flags: int
    length: int
    position: int
    synced: int
    source: int
    first_offset: int
    count: int  # type: ignore[assignment]  # shadows tuple.count, which nobody wants here
    time_ns: int
    payload_crc: int


class Queued:
    """An entry on its way to the disks; shared by the queues of all of them."""

    __slots__ = ("buffers", "count", "crc", "first_offset", "kind", "length", "position", "source", "time_ns")

    def __init__(
        self,
        kind: int,
        position: int,
        source: int,
        first_offset: int,
        count: int,
        time_ns: int,
        length: int,
        crc: int,
        buffers: tuple[Buffer, ...],
    ) -> None:
        self.kind = kind
        self.position = position
        self.source = source
        self.first_offset = first_offset
        self.count = count
        self.time_ns = time_ns
        self.length = length
        self.crc = crc
        self.buffers = buffers


def place_seed(universe: int, log: int, incarnation: int) -> int:
    """The checksum seed of everything in one copy of one segment."""
    return crc32c(_SEED.pack(universe, log, incarnation))


def encode_header(seed: int, entry: Queued, synced: int) -> bytes:
    """The 64 bytes before `entry`'s payload in the copy that `seed` stands for."""
    body = _pack_body(
        MAGIC,
        entry.kind,
        VERSION,
        0,
        entry.length,
        entry.position,
        synced,
        entry.source,
        entry.first_offset,
        entry.count,
        entry.time_ns,
        entry.crc,
    )
    return body + _pack_crc(crc32c(body, seed))


def decode_header(data: bytes, offset: int, seed: int) -> Header | None:
    """The header at `offset` of `data`, or None where there is none that belongs to this place."""
    if len(data) - offset < HEADER_BYTES or data[offset : offset + 4] != MAGIC_BYTES:
        return None
    body = data[offset : offset + HEADER_BYTES - 4]
    if _CRC.unpack_from(data, offset + HEADER_BYTES - 4)[0] != crc32c(body, seed):
        return None
    fields = _BODY.unpack(body)
    if fields[2] != VERSION:
        return None
    return Header(fields[1], *fields[3:])


def other_version(data: bytes, offset: int, seed: int) -> int | None:
    """The version that an intact header names, if it is another one than this version writes."""
    if len(data) - offset < HEADER_BYTES or data[offset : offset + 4] != MAGIC_BYTES:
        return None
    body = data[offset : offset + HEADER_BYTES - 4]
    found = int(_BODY.unpack(body)[2])
    whole = _CRC.unpack_from(data, offset + HEADER_BYTES - 4)[0] == crc32c(body, seed)
    return found if whole and found != VERSION else None


def decode_frame(data: bytes, offset: int, seed: int) -> tuple[Header, bytes] | None:
    """Header and payload of a whole valid frame at `offset`, or None."""
    header = decode_header(data, offset, seed)
    if header is None:
        return None
    begin = offset + HEADER_BYTES
    return check_payload(header, data[begin : begin + header.length])


def check_payload(header: Header, payload: bytes) -> tuple[Header, bytes] | None:
    """Both, if the payload is the header's."""
    if len(payload) != header.length or crc32c(payload) != header.payload_crc:
        return None
    return header, payload
