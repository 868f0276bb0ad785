"""The kernel's primitives, uncompiled: buffers, little-endian words, varints, protobuf fields, UTF-8, bits.

Place: under every other module of the kernel. Compiled modules do not use this file: they take the same names, inlined,
from `_bytes.pxd`. Whoever changes one changes the other; the tests compare them.
Promises: readers never look at or behind `end`; writers trust their caller about the size of the output.
In C a `ReadPtr` and a `WritePtr` are pointers; here they are the buffers themselves (bytes and bytearray).
"""

from __future__ import annotations

import math
import re
import struct
from typing import Any, NamedTuple

ReadPtr = bytes | bytearray
WritePtr = bytearray
u64 = u32 = i64 = int

_M64 = (1 << 64) - 1


class Field(NamedTuple):
    """One protobuf field: its value lies at [start, stop) (of a string, behind its length). Number 0: malformed."""

    number: int
    wire: int
    start: int
    stop: int


class Varint(NamedTuple):
    """A number below 2**64 and where the next byte stands; `next` is -1 if there was no varint."""

    value: int
    next: int


class Number(NamedTuple):
    """A number in decimal letters. Kind 0: there is none; 1: an integer of 64 bits; 2: a double."""

    kind: int
    whole: int
    real: float


# -- buffers ----------------------------------------------------------------------------------------------------------


def as_bytes(data: Any) -> bytes:
    """Anything bytes-like as bytes; only bytes themselves are not copied. Raises TypeError for anything else."""
    return data if type(data) is bytes else memoryview(data).tobytes()


def read_ptr(data: bytes) -> ReadPtr:
    """Where `data` lies."""
    return data


def new_buffer(size: int) -> WritePtr:
    """Room for exactly `size` bytes, contents undefined; to be written through write_ptr, then given to finished."""
    return bytearray(size)


def write_ptr(buffer: WritePtr) -> WritePtr:
    """Where a new buffer lies."""
    return buffer


def array_ptr(array: bytearray) -> WritePtr:
    """Where a bytearray lies; no longer true once its length changes."""
    return array


def make_longer(array: bytearray, size: int) -> None:
    """Let an array have `size` bytes, more than before; those added are undefined. It may lie elsewhere then."""
    array.extend(bytes(size - len(array)))


def finished(buffer: WritePtr) -> bytes:
    """The buffer as bytes, from now on unchangeable."""
    return bytes(buffer)


def copy(out: WritePtr, at: int, source: ReadPtr, start: int, size: int) -> None:
    """out[at:at+size] = source[start:start+size]; the two do not overlap."""
    out[at : at + size] = source[start : start + size]


def same(a: ReadPtr, start_a: int, b: ReadPtr, start_b: int, size: int) -> bool:
    """Whether `size` bytes are equal."""
    return a[start_a : start_a + size] == b[start_b : start_b + size]


def find_byte(p: ReadPtr, start: int, stop: int, byte: int) -> int:
    """Where the first such byte of p[start:stop] is; `stop`: there is none."""
    found = bytes(p[start:stop]).find(byte)
    return stop if found < 0 else start + found


def kinds_in(p: ReadPtr, start: int, stop: int) -> int:
    """What is among p[start:stop]: bit 0: bytes below 32; bit 1: bytes above 127; bit 2: backslashes."""
    found = bytes(p[start:stop])
    low, high = any(one < 0x20 for one in found), any(one > 0x7F for one in found)
    return low | high << 1 | (b"\\" in found) << 2


def order_of(a: ReadPtr, start_a: int, stop_a: int, b: ReadPtr, start_b: int, stop_b: int) -> int:
    """-1, 0, 1: the bytes of `a` come before those of `b`, are equal, come behind them."""
    one, other = a[start_a:stop_a], b[start_b:stop_b]
    return (one > other) - (one < other)


def cut(p: ReadPtr, start: int, stop: int) -> bytes:
    """A copy of p[start:stop]."""
    return bytes(p[start:stop])


# -- integers ---------------------------------------------------------------------------------------------------------


def low64(value: int) -> int:
    """The low 64 bits: what is left of a sum or a shift in C by itself."""
    return value & _M64


def get32(p: ReadPtr, at: int) -> int:
    """The u32 at `at`."""
    return int.from_bytes(p[at : at + 4], "little")


def get64(p: ReadPtr, at: int) -> int:
    """The u64 at `at`."""
    return int.from_bytes(p[at : at + 8], "little")


def get_signed64(p: ReadPtr, at: int) -> int:
    """The i64 at `at`."""
    return int.from_bytes(p[at : at + 8], "little", signed=True)


def get_double(p: ReadPtr, at: int) -> float:
    """The double at `at`."""
    value: float = struct.unpack_from("<d", p, at)[0]
    return value


def put32(out: WritePtr, at: int, value: int) -> None:
    """Write a u32."""
    out[at : at + 4] = value.to_bytes(4, "little")


def put64(out: WritePtr, at: int, value: int) -> None:
    """Write a u64."""
    out[at : at + 8] = value.to_bytes(8, "little")


def put_varint(out: WritePtr, at: int, value: int) -> int:
    """Write a varint; returns the place behind it."""
    while value > 127:
        out[at] = value & 127 | 128
        value >>= 7
        at += 1
    out[at] = value
    return at + 1


def varint_size(value: int) -> int:
    """Bytes a varint takes: 1 to 10."""
    return max(1, (value.bit_length() + 6) // 7)


def read_varint(p: ReadPtr, at: int, end: int) -> Varint:
    """The varint at `at`. Refused: no end before `end`, more than ten bytes, 2**64 and more."""
    value = shift = 0
    while at < end:
        byte = p[at]
        at += 1
        if shift == 63 and byte > 1:
            break
        value |= (byte & 127) << shift
        if byte < 128:
            return Varint(value, at)
        shift += 7
    return Varint(0, -1)


_NUMBER_MAX = 64
_WHOLE = re.compile(rb"[+-]?[0-9]+")
_REAL = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def read_number(p: ReadPtr, at: int, end: int) -> Number:
    """The number that all of p[at:end] spells, of at most 64 letters; none beyond 64 bits, or beyond a double."""
    text = bytes(p[at:end])
    if len(text) <= _NUMBER_MAX:
        if _WHOLE.fullmatch(text):
            whole = int(text)
            return Number(1, whole, float(whole)) if -(1 << 63) <= whole < 1 << 63 else Number(0, 0, 0.0)
        if _REAL.fullmatch(text) and math.isfinite(real := float(text)):
            return Number(2, 0, real)
    return Number(0, 0, 0.0)


# -- protobuf ---------------------------------------------------------------------------------------------------------


def read_field(p: ReadPtr, at: int, end: int) -> Field:
    """The field at `at`. Refused (number 0): torn fields, number 0, tags of more than 32 bits or 5 bytes, groups."""
    malformed = Field(0, 0, end, end)
    tag = read_varint(p, at, end)
    if tag.next < 0 or tag.next - at > 5 or tag.value > 0xFFFFFFFF or tag.value < 8:
        return malformed
    at = tag.next
    number, wire = tag.value >> 3, tag.value & 7
    if wire == 2:
        size = read_varint(p, at, end)
        if size.next < 0 or size.value > end - size.next:
            return malformed
        return Field(number, wire, size.next, size.next + size.value)
    if wire == 0:
        stop = read_varint(p, at, end).next
    elif wire in (1, 5):
        stop = at + (8 if wire == 1 else 4)
    else:
        return malformed
    return Field(number, wire, at, stop) if 0 <= stop <= end else malformed


def field_of(number: int, start: int, stop: int) -> Field:
    """A Field for a caller's own use of its parts."""
    return Field(number, 2, start, stop)


def utf8_ok(p: ReadPtr, at: int, end: int) -> bool:
    """Whether p[at:end] is UTF-8 (RFC 3629: no surrogates, no overlong forms, nothing above U+10FFFF)."""
    try:
        p[at:end].decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


# -- bits, least significant first ------------------------------------------------------------------------------------


def bit_at(p: ReadPtr, bit: int) -> int:
    """One bit."""
    return p[bit >> 3] >> (bit & 7) & 1


def _word(p: ReadPtr, begin: int, end: int) -> int:
    """Bits [begin, end) as one number."""
    return int.from_bytes(p[begin >> 3 : (end + 7) >> 3], "little") >> (begin & 7) & ((1 << (end - begin)) - 1)


def count_bits(p: ReadPtr, begin: int, end: int) -> int:
    """How many of the bits [begin, end) are set."""
    return _word(p, begin, end).bit_count() if begin < end else 0


def fill_bits(out: WritePtr, begin: int, end: int, value: bool) -> None:
    """Set or clear the bits [begin, end)."""
    if begin >= end:
        return
    first, last = begin >> 3, (end + 7) >> 3
    mask = ((1 << (end - begin)) - 1) << (begin & 7)
    held = int.from_bytes(out[first:last], "little")
    held = held | mask if value else held & ~mask
    out[first:last] = held.to_bytes(last - first, "little")


def find_bit(p: ReadPtr, begin: int, end: int, value: bool) -> int:
    """The first bit in [begin, end) that is `value`, or `end`."""
    while begin < end:
        until = min(end, begin + 1024)
        word = _word(p, begin, until)
        if not value:
            word ^= (1 << (until - begin)) - 1
        if word:
            return begin + (word & -word).bit_length() - 1
        begin = until
    return end


def or_bits(out: WritePtr, at: int, p: ReadPtr, begin: int, end: int) -> None:
    """Set those bits of `out` from `at` on that are set in [begin, end) of `p`."""
    if begin >= end:
        return
    first, last = at >> 3, (at + end - begin + 7) >> 3
    held = int.from_bytes(out[first:last], "little") | _word(p, begin, end) << (at & 7)
    out[first:last] = held.to_bytes(last - first, "little")
