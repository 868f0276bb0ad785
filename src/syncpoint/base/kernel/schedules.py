"""Times at which messages are to be published: the attribute `sys.ScheduledEnqueueTimeUtc`, read off bytes.

Place: `publish` refuses values that cannot be read as it scans a request; the publish forwarder divides requests that
have such messages, keeps those, and frames each anew when its time has come.
A time is written as RFC 3339 has it: `2026-11-23T18:00:00Z`, with up to nine digits of a fraction, and `Z` or an offset
such as `+01:00`. Of attributes with equal keys the last one counts, as in protobuf.
"""

from __future__ import annotations

import cython

from .errors import Malformed

if not cython.compiled:
    from ._bytes import (
        Field,
        ReadPtr,
        WritePtr,
        as_bytes,
        copy,
        cut,
        finished,
        i64,
        new_buffer,
        put32,
        read_field,
        read_ptr,
        same,
        write_ptr,
    )
    from .frames import next_message

_NAME: bytes = b"sys.ScheduledEnqueueTimeUtc"
_NAME_SIZE = cython.declare(cython.Py_ssize_t, 27)
_DAYS: bytes = bytes((31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31))
_YEAR_MAX = cython.declare(cython.int, 2261)  # what is later is as late as 64 bits of nanoseconds go
_LATEST_NS = (1 << 63) - 1


@cython.cfunc
@cython.exceptval(check=False)
def is_schedule(p: ReadPtr, start: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.bint:
    """Whether a key of an attribute is that of a time to be published at."""
    return size == _NAME_SIZE and same(p, start, read_ptr(_NAME), 0, _NAME_SIZE)


@cython.cfunc
@cython.exceptval(check=False)
def _digits(p: ReadPtr, at: cython.Py_ssize_t, count: cython.int) -> cython.int:
    """The number that so many digits spell; -1 if they are none."""
    number: cython.int = 0
    index: cython.int
    for index in range(count):
        if not 48 <= p[at + index] <= 57:
            return -1
        number = number * 10 + (p[at + index] - 48)
    return number


@cython.cfunc
@cython.exceptval(check=False)
def due_ns(p: ReadPtr, at: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> i64:
    """Nanoseconds since 1970 of a time, at least 1; -1 if p[at:stop] is none."""
    if stop - at < 20 or stop - at > 35 or p[at + 4] != 45 or p[at + 7] != 45 or (p[at + 10] | 32) != 116:
        return -1
    if p[at + 13] != 58 or p[at + 16] != 58:
        return -1
    year: cython.int = _digits(p, at, 4)
    month: cython.int = _digits(p, at + 5, 2)
    day: cython.int = _digits(p, at + 8, 2)
    hour: cython.int = _digits(p, at + 11, 2)
    minute: cython.int = _digits(p, at + 14, 2)
    second: cython.int = _digits(p, at + 17, 2)
    leap: cython.bint = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if year < 1 or month < 1 or month > 12 or hour < 0 or hour > 23 or minute < 0 or minute > 59:
        return -1
    if second < 0 or second > 59 or day < 1 or day > read_ptr(_DAYS)[month - 1] + (1 if leap and month == 2 else 0):
        return -1
    nanos: i64 = 0
    left: cython.int = 9
    at += 19
    if p[at] == 46:
        at += 1
        while at < stop and 48 <= p[at] <= 57:
            if left == 0:
                return -1
            nanos = nanos * 10 + (p[at] - 48)
            left -= 1
            at += 1
        if left == 9:
            return -1
        while left > 0:
            nanos *= 10
            left -= 1
    offset: cython.int = 0  # in minutes
    if stop - at == 1:
        if (p[at] | 32) != 122:
            return -1
    elif stop - at == 6:
        if (p[at] != 43 and p[at] != 45) or p[at + 3] != 58:
            return -1
        hours: cython.int = _digits(p, at + 1, 2)
        offset = _digits(p, at + 4, 2)
        if hours < 0 or hours > 23 or offset < 0 or offset > 59:
            return -1
        offset += hours * 60
        if p[at] == 45:
            offset = -offset
    else:
        return -1
    if year < 1970:
        return 1
    if year > _YEAR_MAX:
        return _LATEST_NS
    # Days since 1970, of a year that begins in March.
    if month <= 2:
        year -= 1
        month += 12
    days: i64 = 365 * year + year // 4 - year // 100 + year // 400 + (153 * (month - 3) + 2) // 5 + day - 1 - 719468
    nanos += (((days * 24 + hour) * 60 + minute - offset) * 60 + second) * 1_000_000_000
    return nanos if nanos > 0 else 1


def due_text_ns(text: object) -> int:
    """Nanoseconds since 1970 of a time as text, at least 1; -1 if it is none."""
    data: bytes = as_bytes(text)
    return due_ns(read_ptr(data), 0, len(data))


def due_times(payload: object) -> list:
    """When each message of a payload is due, 0 for those that do not say. Raises Malformed."""
    data: bytes = as_bytes(payload)
    p: ReadPtr = read_ptr(data)
    end: cython.Py_ssize_t = len(data)
    at: cython.Py_ssize_t = 0
    stop: cython.Py_ssize_t
    due: i64
    found: list = []
    while at < end:
        stop = next_message(p, at, end)
        due = _own_due(p, at + 4, stop)
        if due < 0:
            raise Malformed("a message in a batch is not a PubsubMessage")
        found.append(due)
        at = stop
    return found


def divided(request: object) -> tuple:
    """A PublishRequest as two: (with the messages that are due at once, with those that say when, one byte a message:
    1 where it says). Raises Malformed.
    """
    data: bytes = as_bytes(request)
    p: ReadPtr = read_ptr(data)
    end: cython.Py_ssize_t = len(data)
    at: cython.Py_ssize_t = 0
    due: i64
    field: Field
    plain: list = []
    later: list = []
    says: bytearray = bytearray()
    while at < end:
        field = read_field(p, at, end)
        if field.number == 0:
            raise Malformed("the request is not a PublishRequest")
        piece: bytes = cut(p, at, field.stop)
        if field.number == 2 and field.wire == 2:
            due = _own_due(p, field.start, field.stop)
            if due < 0:
                raise Malformed("a message of the request is not a PubsubMessage")
            says.append(1 if due else 0)
            if due:
                later.append(piece)
            else:
                plain.append(piece)
        else:
            plain.append(piece)
            later.append(piece)
        at = field.stop
    return b"".join(plain), b"".join(later), bytes(says)


def unstamped(payload: object, index: cython.Py_ssize_t, added: bytes) -> bytes:
    """One message of a payload, by number from 0, framed alone: without its id and time, and with fields behind it.
    Raises Malformed; ValueError where it has no such message.
    """
    data: bytes = as_bytes(payload)
    p: ReadPtr = read_ptr(data)
    end: cython.Py_ssize_t = len(data)
    at: cython.Py_ssize_t = 0
    while index > 0 and at < end:
        at = next_message(p, at, end)
        index -= 1
    if at >= end or index < 0:
        raise ValueError("the batch has no such message")
    stop: cython.Py_ssize_t = next_message(p, at, end)
    start: cython.Py_ssize_t = at + 4
    size: cython.Py_ssize_t = len(added)
    field: Field
    at = start
    while at < stop:
        field = read_field(p, at, stop)
        if field.number == 0:
            raise Malformed("a message in a batch is not a PubsubMessage")
        if field.number != 3 and field.number != 4:
            size += field.stop - at
        at = field.stop
    framed = new_buffer(size + 4)
    out: WritePtr = write_ptr(framed)
    put32(out, 0, size)
    o: cython.Py_ssize_t = 4
    at = start
    while at < stop:
        field = read_field(p, at, stop)
        if field.number != 3 and field.number != 4:
            copy(out, o, p, at, field.stop - at)
            o += field.stop - at
        at = field.stop
    copy(out, o, read_ptr(added), 0, len(added))
    return finished(framed)


@cython.cfunc
@cython.exceptval(check=False)
def _own_due(p: ReadPtr, at: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> i64:
    """When the message in p[at:stop] is due; 0 if it does not say, -1 if it is malformed."""
    field: Field
    entry: Field
    found: i64 = 0
    within: cython.Py_ssize_t
    named: cython.bint
    value_start: cython.Py_ssize_t
    value_stop: cython.Py_ssize_t
    while at < stop:
        field = read_field(p, at, stop)
        if field.number == 0:
            return -1
        at = field.stop
        if field.number != 2 or field.wire != 2:
            continue
        within = field.start
        named = False
        value_start = value_stop = field.start
        while within < field.stop:
            entry = read_field(p, within, field.stop)
            if entry.number == 0:
                return -1
            within = entry.stop
            if entry.wire == 2 and entry.number == 1:
                named = is_schedule(p, entry.start, entry.stop - entry.start)
            elif entry.wire == 2 and entry.number == 2:
                value_start = entry.start
                value_stop = entry.stop
        if named:
            found = due_ns(p, value_start, value_stop)
            if found < 0:
                found = 0
    return found
