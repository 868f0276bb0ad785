"""Times to live that messages carry: the attribute `sys.TimeToLive`, read off batches without an object per message.

Place: `publish` refuses values that cannot be read as it scans a request; the publish forwarder asks, once for a batch
with such messages, which span of times they cover, and later which of them have run out.
A time is written as a span of .NET is: `[days.]hours:minutes[:seconds[.fraction]]`, hours up to 23, minutes and seconds
up to 59, at most seven digits of a fraction; more than 0. Of attributes with equal keys the last one counts, as in
protobuf.
"""

from __future__ import annotations

import cython

from .errors import Malformed

if not cython.compiled:
    from ._bytes import Field, ReadPtr, as_bytes, i64, read_field, read_ptr, same
    from .frames import next_message

_NAME: bytes = b"sys.TimeToLive"
_NAME_SIZE = cython.declare(cython.Py_ssize_t, 14)
_DAYS_DIGITS = cython.declare(cython.int, 8)


@cython.cfunc
@cython.exceptval(check=False)
def is_name(p: ReadPtr, start: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.bint:
    """Whether a key of an attribute is that of the time to live."""
    return size == _NAME_SIZE and same(p, start, read_ptr(_NAME), 0, _NAME_SIZE)


@cython.cfunc
@cython.exceptval(check=False)
def span_ms(p: ReadPtr, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> i64:
    """The milliseconds of a time to live, what is left of one rounded up; -1 if p[start:stop] is none."""
    at: cython.Py_ssize_t = start
    parts: cython.int = 0  # read so far, days not counted
    digits: cython.int
    number: i64
    days: i64 = 0
    seconds: i64 = 0
    ticks: i64 = 0  # of 100 ns
    dotted: cython.bint = False
    while True:
        number = 0
        digits = 0
        while at < stop and 48 <= p[at] <= 57:
            if digits == _DAYS_DIGITS:
                return -1
            number = number * 10 + (p[at] - 48)
            digits += 1
            at += 1
        if digits == 0:
            return -1
        if parts == 0 and not dotted and at < stop and p[at] == 46:  # "days."
            days = number
            dotted = True
            at += 1
            continue
        if digits > 2 or number > (23 if parts == 0 else 59):
            return -1
        seconds = seconds * 60 + number
        parts += 1
        if at == stop or parts == 3:
            break
        if p[at] != 58:
            return -1
        at += 1
    if parts == 1:
        return -1
    if parts == 2:
        seconds *= 60
    if at < stop:
        if p[at] != 46 or stop - at < 2 or stop - at > 8:
            return -1
        digits = 7
        at += 1
        while at < stop:
            if not 48 <= p[at] <= 57:
                return -1
            ticks = ticks * 10 + (p[at] - 48)
            digits -= 1
            at += 1
        while digits > 0:
            ticks *= 10
            digits -= 1
    number = (days * 86_400 + seconds) * 1000 + (ticks + 9_999) // 10_000
    return number if number > 0 else -1


def span_text_ms(text: object) -> int:
    """The milliseconds of a time to live as text; -1 if it is none."""
    data: bytes = as_bytes(text)
    return span_ms(read_ptr(data), 0, len(data))


def spans(payload: object) -> tuple:
    """(shortest, longest, messages without one): the times to live in a payload, in milliseconds; 0, 0 if there is
    none. Raises Malformed.
    """
    data: bytes = as_bytes(payload)
    p: ReadPtr = read_ptr(data)
    end: cython.Py_ssize_t = len(data)
    at: cython.Py_ssize_t = 0
    stop: cython.Py_ssize_t
    without: cython.Py_ssize_t = 0
    found: i64
    shortest: i64 = 0
    longest: i64 = 0
    while at < end:
        stop = next_message(p, at, end)
        found = _own_ms(p, at + 4, stop)
        if found < 0:
            raise Malformed("a message in a batch is not a PubsubMessage")
        if found == 0:
            without += 1
        else:
            if shortest == 0 or found < shortest:
                shortest = found
            if found > longest:
                longest = found
        at = stop
    return shortest, longest, without


def expired(payload: object, age_ms: object) -> tuple:
    """Which messages of a payload have a time to live of `age_ms` or less: runs of (first, behind the last), by number
    from 0; and the shortest time to live of the others, 0 if they have none. Raises Malformed.
    """
    data: bytes = as_bytes(payload)
    p: ReadPtr = read_ptr(data)
    end: cython.Py_ssize_t = len(data)
    at: cython.Py_ssize_t = 0
    stop: cython.Py_ssize_t
    index: cython.Py_ssize_t = 0
    begin: cython.Py_ssize_t = -1
    found: i64
    age: i64 = age_ms
    shortest: i64 = 0
    runs: list = []
    while at < end:
        stop = next_message(p, at, end)
        found = _own_ms(p, at + 4, stop)
        if found < 0:
            raise Malformed("a message in a batch is not a PubsubMessage")
        if found != 0 and found <= age:
            if begin < 0:
                begin = index
        else:
            if begin >= 0:
                runs.append((begin, index))
                begin = -1
            if found != 0 and (shortest == 0 or found < shortest):
                shortest = found
        index += 1
        at = stop
    if begin >= 0:
        runs.append((begin, index))
    return runs, shortest


@cython.cfunc
@cython.exceptval(check=False)
def _own_ms(p: ReadPtr, at: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> i64:
    """The time to live of the message in p[at:stop]; 0 if it has none, -1 if it is malformed."""
    field: Field
    entry: Field
    found: i64 = 0
    read: i64
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
                named = is_name(p, entry.start, entry.stop - entry.start)
            elif entry.wire == 2 and entry.number == 2:
                value_start = entry.start
                value_stop = entry.stop
        if named:
            read = span_ms(p, value_start, value_stop)
            found = read if read > 0 else 0
    return found
