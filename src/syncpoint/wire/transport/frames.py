"""HTTP/2 frames as bytes (RFC 9113, sections 4, 6 and 7).

Place: lowest layer of the transport; used by both ends of a connection.
Promise: writers give exactly the bytes of one frame; `parse` reads any byte string back into whole frames.
Leaves to `connection`: what a frame means, and the loop that reads frames without an object for each.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
WINDOW_MAX = (1 << 31) - 1
WINDOW_DEFAULT = 65_535
FRAME_BYTES_MIN = 16_384
FRAME_BYTES_MAX = (1 << 24) - 1
HEAD_BYTES = 9

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)

END_STREAM = 0x1
ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
PRIORITIZED = 0x20


class SettingId(IntEnum):
    """Identifiers of SETTINGS (6.5.2)."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class ErrorCode(IntEnum):
    """Reasons of RST_STREAM and GOAWAY (section 7)."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


class ConnectionFault(Exception):
    """The peer broke a rule in a way that ends the connection."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason


class StreamFault(Exception):
    """The peer broke a rule in a way that ends one stream."""

    def __init__(self, sid: int, code: ErrorCode, reason: str) -> None:
        super().__init__(sid, code, reason)
        self.sid = sid
        self.code = code
        self.reason = reason


class Frame(NamedTuple):
    """One frame; `payload` still holds padding and priority fields."""

    kind: int
    flags: int
    sid: int
    payload: bytes


_HEAD = struct.Struct(">BHBBI")
_PAIR = struct.Struct(">HI")
unpack_head = _HEAD.unpack_from
"""(length >> 16, length & 0xffff, kind, flags, stream with the reserved bit)."""
pack_data = struct.Struct(">BHBBIBI").pack
"""Head of a DATA frame together with the 5 bytes before a gRPC message."""
u32 = struct.Struct(">I").pack


def frame(kind: int, flags: int, sid: int, payload: bytes = b"") -> bytes:
    """The bytes of one frame. `len(payload)` must be below 2**24."""
    size = len(payload)
    return _HEAD.pack(size >> 16, size & 0xFFFF, kind, flags, sid) + payload


def data_head(size: int, sid: int, flags: int = 0) -> bytes:
    """Head of a DATA frame whose `size` bytes follow."""
    return _HEAD.pack(size >> 16, size & 0xFFFF, DATA, flags, sid)


def headers(sid: int, block: bytes, *, end: bool, frame_bytes: int) -> bytes:
    """HEADERS, with as many CONTINUATION frames as a peer accepting `frame_bytes` needs."""
    flags = END_STREAM if end else 0
    if len(block) <= frame_bytes:
        return frame(HEADERS, flags | END_HEADERS, sid, block)
    pieces = [block[at : at + frame_bytes] for at in range(0, len(block), frame_bytes)]
    last = len(pieces) - 1
    out = [frame(HEADERS, flags, sid, pieces[0])]
    out += [frame(CONTINUATION, END_HEADERS if i == last else 0, sid, p) for i, p in enumerate(pieces) if i]
    return b"".join(out)


def settings(values: dict[int, int]) -> bytes:
    """SETTINGS with these values."""
    return frame(SETTINGS, 0, 0, b"".join(_PAIR.pack(key, value) for key, value in values.items()))


def read_settings(payload: bytes) -> list[tuple[int, int]]:
    """The pairs of a SETTINGS payload, in order. Its length must be a multiple of 6."""
    return list(_PAIR.iter_unpack(payload))


def window_update(sid: int, more: int) -> bytes:
    """WINDOW_UPDATE by `more` bytes (1 .. 2**31-1); stream 0 is the connection."""
    return frame(WINDOW_UPDATE, 0, sid, u32(more))


def rst_stream(sid: int, code: ErrorCode) -> bytes:
    """RST_STREAM."""
    return frame(RST_STREAM, 0, sid, u32(code))


def goaway(last_sid: int, code: ErrorCode, reason: str = "") -> bytes:
    """GOAWAY naming the last stream that was or may be served."""
    return frame(GOAWAY, 0, 0, u32(last_sid) + u32(code) + reason.encode()[:256])


def parse(data: bytes) -> Iterator[Frame]:
    """The whole frames at the start of `data`; a rest that is not whole is left out. For tools and tests."""
    at = 0
    while len(data) - at >= HEAD_BYTES:
        high, low, kind, flags, sid = unpack_head(data, at)
        end = at + HEAD_BYTES + (high << 16 | low)
        if end > len(data):
            return
        yield Frame(kind, flags, sid & WINDOW_MAX, data[at + HEAD_BYTES : end])
        at = end
