"""The buffers of Arrow columns in, framed messages out: the writing side of data pipelines.

Place: makes what is staged out of a batch that a program sent (`pipeline.staging`); `wire.arrow` has located its
buffers. Ids and times come later, see `stamps`.
Promises: every rule of the API that concerns single messages is checked as in `publish`, and the refusal names row and
field. Every place, offset and length is compared with the batch before it is used: they come from outside. No object
is made per row. What passes can be parsed by any client; `origin` and `visited` are fields 1001 and 1002, which
official clients pass over.
What is left to the caller: which column is which, topics, identity of the epoch.
"""

from __future__ import annotations

import cython

from syncpoint.base.model import limits, publish_rules

from .errors import Invalid, Malformed

if not cython.compiled:
    from ._bytes import (
        ReadPtr,
        WritePtr,
        array_ptr,
        as_bytes,
        bit_at,
        copy,
        finished,
        get32,
        get64,
        new_buffer,
        put32,
        put_varint,
        read_ptr,
        same,
        u64,
        utf8_ok,
        varint_size,
        write_ptr,
    )

NAME_MAX = 256  # bytes of an id, or of a server's name
VISITED_MAX = 100  # servers a message came through
ROWS_MAX = 4096  # of one piece
_NAME_MAX = cython.declare(cython.Py_ssize_t, NAME_MAX)
_VISITED_MAX = cython.declare(cython.Py_ssize_t, VISITED_MAX)
_ROWS_MAX = cython.declare(cython.Py_ssize_t, ROWS_MAX)
_MESSAGE_MAX = cython.declare(cython.Py_ssize_t, limits.PUBLISH_REQUEST_BYTES_MAX)
_ATTRIBUTES_MAX = cython.declare(cython.Py_ssize_t, limits.MESSAGE_ATTRIBUTES_MAX)
_KEY_MAX = cython.declare(cython.Py_ssize_t, limits.ATTRIBUTE_KEY_BYTES_MAX)
_VALUE_MAX = cython.declare(cython.Py_ssize_t, limits.ATTRIBUTE_VALUE_BYTES_MAX)
_ORDERING_KEY_MAX = cython.declare(cython.Py_ssize_t, limits.ORDERING_KEY_BYTES_MAX)
_MICROS = cython.declare(u64, 1_000_000)
_TIME_END = cython.declare(u64, 253_402_300_800_000_000)  # the year 10000, in microseconds
_OFFSETS_END = cython.declare(u64, 10**12)
_GOOG: bytes = b"googclient_"

_PROBLEMS: list = [
    ("", ""),
    (".data", publish_rules.EMPTY),
    *publish_rules.FIELD_PROBLEMS,
    (".message_id", f"must not be longer than {NAME_MAX} bytes"),
    (".message_id", publish_rules.NOT_UTF8),
    (".publish_time", "must be in the years 1970 to 9999"),
    (".origin", f"must be valid UTF-8 of at most {NAME_MAX} bytes"),
    (".visited", f"names must be valid UTF-8 of 1 to {NAME_MAX} bytes"),
    (".visited", f"must not have more than {VISITED_MAX} servers"),
    (".offset", f"must be greater than the offset of the row before, and less than {10**12}"),
    ("", f"must not be larger than {limits.PUBLISH_REQUEST_BYTES_MAX} bytes"),
]


@cython.final
@cython.cclass
class Texts:
    """A column of strings: where its bitmap (-1: none), its offsets and its bytes lie in the batch."""

    def __init__(self) -> None:
        self.count = self.offsets = self.values = 0
        self.valid = -1


@cython.final
@cython.cclass
class ListColumn:
    """A column of lists: where its bitmap and its offsets lie."""

    def __init__(self) -> None:
        self.offsets = 0
        self.valid = -1


@cython.final
@cython.cclass
class RowBatch:
    """All columns; one that is absent has its flag unset."""

    def __init__(self) -> None:
        self.has_attributes = self.has_key = self.has_id = self.has_time = self.has_origin = self.has_visited = False
        self.has_offset = False
        self.times = self.offsets = 0
        self.times_valid = -1


def frame(
    batch: object,
    rows: cython.Py_ssize_t,
    columns: dict,
    via: bytes,
    here: bytes,
    keep: cython.bint,
    room: cython.Py_ssize_t,
) -> tuple:
    """Rows of a batch as stored messages, in pieces of about `room` bytes and at most 4096 messages.

    `columns`: by name (data, attributes, ordering_key, message_id, publish_time, offset, origin, visited), its buffers
    as (place in `batch`, bytes) in Arrow's order, behind its nodes as (length, nulls). `data` must be there. With
    `offset` its values, which must rise, are recorded as runs (`pipeline.offset_runs`). `via`: each message gets it as
    its origin where it has none, and behind its visited list; b"" changes neither. Rows that came through `here` are
    dropped. `keep`: ids and times of the columns become those of the messages.

    Returns ([(payload, messages, runs, complete)], dropped); `complete`: every message of a piece has its id and time.
    Raises Invalid, whose field begins with `rows[i]`, for a message that must not be; Malformed for columns whose
    buffers contradict each other or the batch.
    """
    data: bytes = as_bytes(batch)
    p: ReadPtr = read_ptr(data)
    b: RowBatch = _batch(p, len(data), rows, columns, keep)
    v: ReadPtr = read_ptr(via)
    h: ReadPtr = read_ptr(here)
    v_size: cython.Py_ssize_t = len(via)
    h_size: cython.Py_ssize_t = len(here)
    out: WritePtr
    r: WritePtr
    row: cython.Py_ssize_t = 0
    first: cython.Py_ssize_t
    at: cython.Py_ssize_t
    i: cython.Py_ssize_t
    size: cython.Py_ssize_t
    one: cython.Py_ssize_t
    count: cython.Py_ssize_t
    dropped: cython.Py_ssize_t = 0
    runs_at: cython.Py_ssize_t
    problem: cython.int
    complete: cython.bint
    begin: u64
    end: u64
    last: u64
    value: u64
    expected: u64 = 0
    pieces: list = []
    while row < rows:
        first = row
        size = 0
        count = 0
        while row < rows and size < room and count < _ROWS_MAX:
            if b.has_offset:
                value = get64(p, b.offsets + 8 * row)
                if value < expected or value >= _OFFSETS_END:
                    raise _refusal(16, row)
                expected = value + 1
            if h_size > 0 and _came_through(p, b, row, h, h_size):
                dropped += 1
            else:
                problem = _problem(p, b, row)
                if problem != 0:
                    raise _refusal(problem, row)
                one = _message_size(p, b, row, v_size)
                if one > _MESSAGE_MAX:
                    raise _refusal(17, row)
                size += 4 + one
                count += 1
            row += 1
        if count == 0:
            continue
        payload = new_buffer(size)
        out = write_ptr(payload)
        runs: bytearray = bytearray(20 * count if b.has_offset else 0)
        r = array_ptr(runs)
        runs_at = 0
        begin = end = last = 0
        at = 0
        complete = b.has_id and b.has_time
        for i in range(first, row):
            if h_size > 0 and _came_through(p, b, i, h, h_size):
                continue
            one = _message_size(p, b, i, v_size)
            put32(out, at, one)
            _write(out, at + 4, p, b, i, v, v_size)
            at += 4 + one
            if complete and (_size(p, b.ids, i) == 0 or _null(p, b.times_valid, i)):
                complete = False
            if b.has_offset:
                value = get64(p, b.offsets + 8 * i)
                if value != end or end == begin:
                    if end != begin:
                        runs_at = put_varint(r, put_varint(r, runs_at, begin - last), end - begin)
                        last = end
                    begin = value
                end = value + 1
        if end != begin:
            runs_at = put_varint(r, put_varint(r, runs_at, begin - last), end - begin)
        pieces.append((finished(payload), count, bytes(runs[:runs_at]), complete))
    return pieces, dropped


def _refusal(problem: int, row: int) -> Exception:
    field, text = _PROBLEMS[problem]
    return Invalid(f"rows[{row}]{field}", text)


# -- where the columns lie ---------------------------------------------------------------------------------------------


@cython.cfunc
def _batch(p: ReadPtr, end: cython.Py_ssize_t, rows: cython.Py_ssize_t, columns: dict, keep: cython.bint) -> RowBatch:
    """The columns, each checked from end to end."""
    b: RowBatch = RowBatch()
    if rows < 0:
        raise Malformed("the number of rows must not be negative")
    if "data" not in columns:
        raise Malformed("column data is missing")
    nodes: list
    buffers: list
    nodes, buffers = columns["data"]
    b.data = _texts(p, end, "data", nodes[0], buffers[0:3], rows)
    if "ordering_key" in columns:
        nodes, buffers = columns["ordering_key"]
        b.keys = _texts(p, end, "ordering_key", nodes[0], buffers[0:3], rows)
        b.has_key = True
    if keep and "message_id" in columns:
        nodes, buffers = columns["message_id"]
        b.ids = _texts(p, end, "message_id", nodes[0], buffers[0:3], rows)
        b.has_id = True
    if keep and "publish_time" in columns:
        nodes, buffers = columns["publish_time"]
        b.times_valid = _bitmap(end, "publish_time", nodes[0], buffers[0], rows)
        b.times = _fixed(end, "publish_time", buffers[1], rows)
        b.has_time = True
    if "offset" in columns:
        nodes, buffers = columns["offset"]
        if nodes[0][1]:
            raise Malformed("column offset must not have nulls")
        _bitmap(end, "offset", nodes[0], buffers[0], rows)
        b.offsets = _fixed(end, "offset", buffers[1], rows)
        b.has_offset = True
    if "origin" in columns:
        nodes, buffers = columns["origin"]
        b.origins = _texts(p, end, "origin", nodes[0], buffers[0:3], rows)
        b.has_origin = True
    if "visited" in columns:
        nodes, buffers = columns["visited"]
        b.visited = _lists(p, end, "visited", nodes[0], buffers[0:2], rows, nodes[1][0])
        b.servers = _texts(p, end, "visited", nodes[1], buffers[2:5], nodes[1][0])
        b.has_visited = True
    if "attributes" in columns:
        nodes, buffers = columns["attributes"]
        b.attributes = _lists(p, end, "attributes", nodes[0], buffers[0:2], rows, nodes[1][0])
        if nodes[1][1] or nodes[2][1]:
            raise Malformed("entries and keys of column attributes must not be null")
        b.names = _texts(p, end, "attributes", nodes[2], buffers[3:6], nodes[1][0])
        b.values = _texts(p, end, "attributes", nodes[3], buffers[6:9], nodes[1][0])
        b.has_attributes = True
    return b


def _place(end: int, name: str, buffer: tuple, needed: int) -> int:
    """Where a buffer of at least `needed` bytes begins. Raises Malformed where it is shorter, or leaves the batch."""
    start, size = buffer
    if size < needed or start < 0 or start > end - size:
        raise Malformed(f"column {name}: a buffer of {size} bytes is too short or lies outside the batch")
    return start


def _bitmap(end: int, name: str, node: tuple, buffer: tuple, count: int) -> int:
    """Where the bitmap of what is not null begins; -1 where nothing is null."""
    length, nulls = node
    if length != count:
        raise Malformed(f"column {name} must have {count} values, not {length}")
    return _place(end, name, buffer, (count + 7) // 8) if nulls else -1


def _fixed(end: int, name: str, buffer: tuple, count: int) -> int:
    return _place(end, name, buffer, 8 * count)


@cython.cfunc
def _texts(
    p: ReadPtr, end: cython.Py_ssize_t, name: str, node: tuple, buffers: list, count: cython.Py_ssize_t
) -> Texts:
    t: Texts = Texts()
    t.count = count
    t.valid = _bitmap(end, name, node, buffers[0], count)
    t.values = _place(end, name, buffers[2], 0)
    if count > 0:
        t.offsets = _place(end, name, buffers[1], 4 * (count + 1))
        _check_offsets(p, t.offsets, count, buffers[2][1], name)
    return t


@cython.cfunc
def _lists(
    p: ReadPtr, end: cython.Py_ssize_t, name: str, node: tuple, buffers: list, count: cython.Py_ssize_t, inside: object
) -> ListColumn:
    found: ListColumn = ListColumn()
    found.valid = _bitmap(end, name, node, buffers[0], count)
    if count > 0:
        found.offsets = _place(end, name, buffers[1], 4 * (count + 1))
        _check_offsets(p, found.offsets, count, inside, name)
    return found


@cython.cfunc
def _check_offsets(p: ReadPtr, offsets: cython.Py_ssize_t, count: cython.Py_ssize_t, inside: object, name: str):
    """They must rise, and end within what they divide. Raises Malformed."""
    limit: u64 = min(inside, 0x7FFFFFFF)
    last: u64 = 0
    value: u64
    i: cython.Py_ssize_t
    good: cython.bint = True
    for i in range(count + 1):
        value = get32(p, offsets + 4 * i)
        if value < last:
            good = False
        last = value
    if not good or last > limit:
        raise Malformed(f"column {name}: offsets must not fall or point outside the values")


# -- single rows -------------------------------------------------------------------------------------------------------


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _null(p: ReadPtr, valid: cython.Py_ssize_t, i: cython.Py_ssize_t) -> cython.bint:
    return valid >= 0 and bit_at(p, 8 * valid + i) == 0


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _start(p: ReadPtr, t: Texts, i: cython.Py_ssize_t) -> cython.Py_ssize_t:
    return t.values + get32(p, t.offsets + 4 * i)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _size(p: ReadPtr, t: Texts, i: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Bytes of a value; nothing where it is null."""
    if _null(p, t.valid, i):
        return 0
    return get32(p, t.offsets + 4 * i + 4) - get32(p, t.offsets + 4 * i)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _first(p: ReadPtr, lists: ListColumn, i: cython.Py_ssize_t) -> cython.Py_ssize_t:
    return get32(p, lists.offsets + 4 * i)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _behind(p: ReadPtr, lists: ListColumn, i: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Where the entries of a row end: where they begin, if the row is null."""
    if _null(p, lists.valid, i):
        return get32(p, lists.offsets + 4 * i)
    return get32(p, lists.offsets + 4 * i + 4)


@cython.cfunc
@cython.exceptval(check=False)
def _came_through(
    p: ReadPtr, b: RowBatch, row: cython.Py_ssize_t, h: ReadPtr, h_size: cython.Py_ssize_t
) -> cython.bint:
    """Whether a row names `here` as its origin, or among the servers it visited."""
    i: cython.Py_ssize_t
    if b.has_origin and _size(p, b.origins, row) == h_size and same(p, _start(p, b.origins, row), h, 0, h_size):
        return True
    if b.has_visited:
        for i in range(_first(p, b.visited, row), _behind(p, b.visited, row)):
            if _size(p, b.servers, i) == h_size and same(p, _start(p, b.servers, i), h, 0, h_size):
                return True
    return False


@cython.cfunc
@cython.exceptval(check=False)
def _problem(p: ReadPtr, b: RowBatch, row: cython.Py_ssize_t) -> cython.int:
    """What is wrong with a row; 0 if nothing."""
    i: cython.Py_ssize_t
    at: cython.Py_ssize_t
    size: cython.Py_ssize_t
    first: cython.Py_ssize_t = 0
    behind: cython.Py_ssize_t = 0
    if b.has_attributes:
        first = _first(p, b.attributes, row)
        behind = _behind(p, b.attributes, row)
        if behind - first > _ATTRIBUTES_MAX:
            return 2
        for i in range(first, behind):
            at = _start(p, b.names, i)
            size = _size(p, b.names, i)
            if size == 0:
                return 3
            if size > _KEY_MAX:
                return 4
            if not utf8_ok(p, at, at + size):
                return 7
            if size >= 4 and same(p, at, read_ptr(_GOOG), 0, 4):
                if size < 11 or not same(p, at, read_ptr(_GOOG), 0, 11):
                    return 6
            at = _start(p, b.values, i)
            size = _size(p, b.values, i)
            if size > _VALUE_MAX:
                return 5
            if not utf8_ok(p, at, at + size):
                return 7
    if behind == first and _size(p, b.data, row) == 0:
        return 1
    if b.has_key:
        at = _start(p, b.keys, row)
        size = _size(p, b.keys, row)
        if size > _ORDERING_KEY_MAX:
            return 8
        if not utf8_ok(p, at, at + size):
            return 9
    if b.has_id:
        at = _start(p, b.ids, row)
        size = _size(p, b.ids, row)
        if size > _NAME_MAX:
            return 10
        if not utf8_ok(p, at, at + size):
            return 11
    if b.has_time and not _null(p, b.times_valid, row) and get64(p, b.times + 8 * row) >= _TIME_END:
        return 12
    if b.has_origin:
        at = _start(p, b.origins, row)
        size = _size(p, b.origins, row)
        if size > _NAME_MAX or not utf8_ok(p, at, at + size):
            return 13
    if b.has_visited:
        if _behind(p, b.visited, row) - _first(p, b.visited, row) >= _VISITED_MAX:
            return 15
        for i in range(_first(p, b.visited, row), _behind(p, b.visited, row)):
            at = _start(p, b.servers, i)
            size = _size(p, b.servers, i)
            if size == 0 or size > _NAME_MAX or not utf8_ok(p, at, at + size):
                return 14
    return 0


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _text_size(size: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """What a string takes as a field with a tag of one byte; nothing if it is empty."""
    return 1 + varint_size(size) + size if size > 0 else 0


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _entry_size(p: ReadPtr, b: RowBatch, i: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """What an entry of the attributes takes, without its own tag and length."""
    value: cython.Py_ssize_t = _size(p, b.values, i)
    return _text_size(_size(p, b.names, i)) + 1 + varint_size(value) + value


@cython.cfunc
@cython.exceptval(check=False)
def _message_size(p: ReadPtr, b: RowBatch, row: cython.Py_ssize_t, via: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Bytes of a row as a message; what `_write` writes."""
    i: cython.Py_ssize_t
    size: cython.Py_ssize_t = _text_size(_size(p, b.data, row))
    one: cython.Py_ssize_t
    micros: u64
    if b.has_attributes:
        for i in range(_first(p, b.attributes, row), _behind(p, b.attributes, row)):
            one = _entry_size(p, b, i)
            size += 1 + varint_size(one) + one
    if b.has_key:
        size += _text_size(_size(p, b.keys, row))
    if b.has_id:
        size += _text_size(_size(p, b.ids, row))
    if b.has_time and not _null(p, b.times_valid, row):
        micros = get64(p, b.times + 8 * row)
        size += 4 + varint_size(micros // _MICROS) + varint_size(micros % _MICROS * 1000)
    one = _size(p, b.origins, row) if b.has_origin else 0
    if one == 0:
        one = via
    if one > 0:
        size += 1 + _text_size(one)
    if b.has_visited:
        for i in range(_first(p, b.visited, row), _behind(p, b.visited, row)):
            size += 1 + _text_size(_size(p, b.servers, i))
    if via > 0:
        size += 1 + _text_size(via)
    return size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_text(
    out: WritePtr, at: cython.Py_ssize_t, tag: cython.int, p: ReadPtr, start: cython.Py_ssize_t, size: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Write a field with a tag of one byte; returns the place behind it."""
    out[at] = tag
    at = put_varint(out, at + 1, size)
    copy(out, at, p, start, size)
    return at + size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_far(
    out: WritePtr, at: cython.Py_ssize_t, tag: cython.int, p: ReadPtr, start: cython.Py_ssize_t, size: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Write field 1001 or 1002: the first byte of their tags differs, the second does not."""
    out[at] = tag
    return _put_text(out, at + 1, 0x3E, p, start, size)


@cython.cfunc
@cython.exceptval(check=False)
def _write(
    out: WritePtr,
    at: cython.Py_ssize_t,
    p: ReadPtr,
    b: RowBatch,
    row: cython.Py_ssize_t,
    v: ReadPtr,
    via: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Write a row as a message; returns the place behind it."""
    i: cython.Py_ssize_t
    size: cython.Py_ssize_t = _size(p, b.data, row)
    seconds: u64
    nanos: u64
    if size > 0:
        at = _put_text(out, at, 0x0A, p, _start(p, b.data, row), size)
    if b.has_attributes:
        for i in range(_first(p, b.attributes, row), _behind(p, b.attributes, row)):
            out[at] = 0x12
            at = put_varint(out, at + 1, _entry_size(p, b, i))
            at = _put_text(out, at, 0x0A, p, _start(p, b.names, i), _size(p, b.names, i))
            at = _put_text(out, at, 0x12, p, _start(p, b.values, i), _size(p, b.values, i))
    if b.has_id:
        size = _size(p, b.ids, row)
        if size > 0:
            at = _put_text(out, at, 0x1A, p, _start(p, b.ids, row), size)
    if b.has_time and not _null(p, b.times_valid, row):
        seconds = get64(p, b.times + 8 * row) // _MICROS
        nanos = get64(p, b.times + 8 * row) % _MICROS * 1000
        out[at] = 0x22
        out[at + 1] = 2 + varint_size(seconds) + varint_size(nanos)
        out[at + 2] = 0x08
        at = put_varint(out, at + 3, seconds)
        out[at] = 0x10
        at = put_varint(out, at + 1, nanos)
    if b.has_key:
        size = _size(p, b.keys, row)
        if size > 0:
            at = _put_text(out, at, 0x2A, p, _start(p, b.keys, row), size)
    size = _size(p, b.origins, row) if b.has_origin else 0
    if size > 0:
        at = _put_far(out, at, 0xCA, p, _start(p, b.origins, row), size)
    elif via > 0:
        at = _put_far(out, at, 0xCA, v, 0, via)
    if b.has_visited:
        for i in range(_first(p, b.visited, row), _behind(p, b.visited, row)):
            at = _put_far(out, at, 0xD2, p, _start(p, b.servers, i), _size(p, b.servers, i))
    if via > 0:
        at = _put_far(out, at, 0xD2, v, 0, via)
    return at
