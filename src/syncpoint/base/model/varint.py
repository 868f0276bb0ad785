"""Varints as protobuf writes them: seven bits a byte, the low ones first.

Place: for what is read and written without message classes. The kernel, and HPACK's integers, have their own.
"""

from __future__ import annotations

from collections.abc import Iterator


def encode(value: int) -> bytes:
    """An unsigned number."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """The number at `at`, and where it ends. Raises `IndexError` at the end of the data, `ValueError` for one that is
    too long."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        if byte < 0x80:
            return value | byte << shift, at
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift > 63:
            raise ValueError("the number is too long")


def fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and content of the length-delimited fields of a message that has numbers beside them. Raises `IndexError`
    or `ValueError` where it is broken."""
    at = 0
    while at < len(data):
        tag, at = decode(data, at)
        size, at = decode(data, at)
        if tag & 7 == 2:
            if at + size > len(data):
                raise IndexError
            yield tag >> 3, data[at : at + size]
            at += size
        elif tag & 7:
            raise ValueError("a field of another kind")
