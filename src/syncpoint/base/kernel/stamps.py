"""Ids and times for messages that have none, in one pass over a payload.

Place: what a program staged gets them when its epoch is committed (`pipeline.epoch_apply`); what `publish` frames has
them from the start.
Promise: a message keeps an id or a time of its own; nothing else of it is touched, and fields that are not known stay.
"""

from __future__ import annotations

import cython

from .errors import Malformed

if not cython.compiled:
    from ._bytes import (
        Field,
        ReadPtr,
        WritePtr,
        array_ptr,
        as_bytes,
        copy,
        finished,
        new_buffer,
        put32,
        put_varint,
        read_field,
        read_ptr,
        u64,
        write_ptr,
    )
    from .frames import next_message

_OFFSET_END = 10**12


def stamp(
    payload: object, prefix: bytes, first_offset: int, seconds: int, nanos: int, skip: cython.Py_ssize_t = 0
) -> tuple:
    """Ids and times for the messages of a payload that have none; the first `skip` messages are left out.

    Ids are `prefix` and the offset in 12 digits; the first message that is kept has `first_offset`, also where it
    keeps an id of its own. Returns (messages, payload). Raises Malformed for a payload that is none; ValueError for a
    prefix, offset or time out of range.
    """
    data: bytes = as_bytes(payload)
    p: ReadPtr = read_ptr(data)
    end: cython.Py_ssize_t = len(data)
    if not 0 <= first_offset <= _OFFSET_END or len(prefix) > 64 or skip < 0:
        raise ValueError("prefix or offset out of range")
    if not 0 <= seconds < 1 << 62 or not 0 <= nanos < 1_000_000_000:
        raise ValueError("time out of range")
    head: bytes = b"\x1a" + bytes((len(prefix) + 12,)) + prefix
    n: ReadPtr = read_ptr(head)
    head_size: cython.Py_ssize_t = len(head)
    time: bytearray = bytearray(24)
    t: WritePtr = array_ptr(time)
    t[0] = 0x22
    t[2] = 0x08
    inner: cython.Py_ssize_t = put_varint(t, 3, seconds)
    t[inner] = 0x10
    time_size: cython.Py_ssize_t = put_varint(t, inner + 1, nanos)
    t[1] = time_size - 2
    whole_time: bytes = bytes(time[:time_size])
    w: ReadPtr = read_ptr(whole_time)
    at: cython.Py_ssize_t = 0
    start: cython.Py_ssize_t
    stop: cython.Py_ssize_t
    total: cython.Py_ssize_t = 0
    count: cython.Py_ssize_t = 0
    has: cython.int
    while skip > 0 and at < end:
        at = next_message(p, at, end)
        skip -= 1
    start = at
    while at < end:
        stop = next_message(p, at, end)
        has = _has(p, at + 4, stop)
        if has < 0:
            raise Malformed("a message in a batch is not a PubsubMessage")
        total += stop - at
        if not has & 1:
            total += head_size + 12
        if not has & 2:
            total += time_size
        count += 1
        at = stop
    if first_offset + count > _OFFSET_END:
        raise ValueError("prefix or offset out of range")
    stamped = new_buffer(total)
    out: WritePtr = write_ptr(stamped)
    o: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t
    digit: cython.Py_ssize_t
    number: u64 = first_offset
    left: u64
    ten: u64 = 10
    at = start
    while at < end:
        stop = next_message(p, at, end)
        has = _has(p, at + 4, stop)
        size = stop - at - 4
        copy(out, o + 4, p, at + 4, size)
        if not has & 1:
            copy(out, o + 4 + size, n, 0, head_size)
            size += head_size + 12
            left = number
            for digit in range(12):
                out[o + 3 + size - digit] = 48 + left % ten
                left = left // ten
        if not has & 2:
            copy(out, o + 4 + size, w, 0, time_size)
            size += time_size
        put32(out, o, size)
        o += 4 + size
        number += 1
        at = stop
    return count, finished(stamped)


@cython.cfunc
@cython.exceptval(check=False)
def _has(p: ReadPtr, at: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.int:
    """Bit 0: the message has an id, bit 1: it has a time; -1: it is no message."""
    field: Field
    has: cython.int = 0
    while at < stop:
        field = read_field(p, at, stop)
        if field.number == 0:
            return -1
        if field.wire == 2:
            if field.number == 3:
                has |= 1
            elif field.number == 4:
                has |= 2
        at = field.stop
    return has
