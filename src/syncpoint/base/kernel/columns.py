"""Stored messages in, the buffers of Arrow columns out, in one walk over each message.

Place: the read side of data pipelines gathers batches of a source with it and sends what comes out; the metadata around
it is `wire.arrow`'s. A column is named by its number, as in `syncpoint.pipeline.v1.Column`.
Promises: a value is what a parser of PubsubMessage would find: the last occurrence of a field counts, publish_time
is merged from its occurrences. Entries of attributes stay in their order, also if a key comes twice. No column has
nulls. Strings of stored messages were checked when they were stored; `origin` and `visited` (fields 1001 and 1002,
which the API does not know) are passed over where they are not valid UTF-8.
Left to the caller: which batches, in which order, and that one gathering stays below 2 GiB.
"""

from __future__ import annotations

import cython

from .errors import Malformed

if not cython.compiled:
    from ._bytes import (
        Field,
        ReadPtr,
        Varint,
        array_ptr,
        as_bytes,
        bit_at,
        copy,
        i64,
        low64,
        make_longer,
        put32,
        put64,
        read_field,
        read_ptr,
        read_varint,
        same,
        u32,
        u64,
        utf8_ok,
    )
    from .filters import match_at
    from .frames import next_message

# The buffers. A buffer of ends (offsets, as Arrow calls them) stands right before that of the bytes it divides.
_ID = cython.declare(cython.int, 0)
_OFFSET = cython.declare(cython.int, 2)
_TIME = cython.declare(cython.int, 3)
_DATA = cython.declare(cython.int, 4)
_KEYS = cython.declare(cython.int, 6)  # of attributes
_VALUES = cython.declare(cython.int, 8)
_ENTRIES = cython.declare(cython.int, 10)  # where the entries of each row end
_ORDERING_KEY = cython.declare(cython.int, 11)
_ORIGIN = cython.declare(cython.int, 13)
_ITEMS = cython.declare(cython.int, 15)  # of visited
_VISITED = cython.declare(cython.int, 17)
_SIZE = cython.declare(cython.int, 18)
_BUFFERS = 19

# By column: its buffers in Arrow's order, -1 standing for a bitmap of what is not null, which is empty.
_LAYOUT: dict = {
    1: (-1, 0, 1),
    2: (-1, 2),
    3: (-1, 3),
    4: (-1, 4, 5),
    5: (-1, 10, -1, -1, 6, 7, -1, 8, 9),
    6: (-1, 11, 12),
    7: (-1, 13, 14),
    8: (-1, 17, -1, 15, 16),
    9: (-1, 18),
}
_ENDS: tuple = (0, 4, 6, 8, 10, 11, 13, 15, 17)
_FIRST_ROOM = 4096


@cython.final
@cython.cclass
class Gathering:
    """The columns of the messages taken so far. `rows`: how many; `size`: their bytes as stored, with lengths."""

    def __init__(self, columns: object, room: int = 0, program: bytes = b"", origins: object = None, here: bytes = b""):
        """`columns`: numbers, in the order wanted. `room`: bytes of messages that are expected.

        What is left out: messages that the filter `program` does not match; with `origins`, those whose origin is
        not in this list (b"": originals); with `here`, those that came through there. Raises ValueError for an
        unknown column.
        """
        index: cython.int
        self._columns = tuple(columns)
        if not cython.compiled:
            self._out, self._used, self._room = [bytearray()] * 19, [0] * 19, [0] * 19
        wanted: set = set()
        for number in self._columns:
            if number not in _LAYOUT:
                raise ValueError(f"{number} is not a column")
            wanted.update(_LAYOUT[number])
        self._buffers = [bytearray(_FIRST_ROOM) if one in wanted else None for one in range(_BUFFERS)]
        for index in range(19):
            self._used[index] = self._room[index] = 0
            if self._buffers[index] is not None:
                self._room[index] = _FIRST_ROOM
                self._out[index] = array_ptr(self._buffers[index])
                if index in _ENDS:
                    self._used[index] = 4  # the first value begins at 0
        if room > 0 and self._room[_DATA + 1] > 0:
            self._make_room(_DATA + 1, room)
        self._program = program
        self._origins = None if origins is None else list(origins)
        self._here = here
        self.rows = 0
        self.size = 0

    def take(
        self,
        payload: object,
        first_offset: i64,
        begin: i64,
        end: i64,
        skip: object = None,
        bytes_max: cython.Py_ssize_t = 1 << 30,
    ) -> int:
        """Gather the messages of a batch with offsets in [begin, end), until `bytes_max` bytes are gathered in all.

        `first_offset`: of the first message in the payload. `skip`: messages whose bit is set are left out, bit i
        standing for `first_offset` + i. Returns the first offset that was not checked; a message is
        taken whole, so `size` may be more than `bytes_max`. Raises Malformed, also when the batch has fewer messages.
        """
        data: bytes = as_bytes(payload)
        mask: bytes = b"" if skip is None else as_bytes(skip)
        program: bytes = self._program
        p: ReadPtr = read_ptr(data)
        m: ReadPtr = read_ptr(mask)
        code: ReadPtr = read_ptr(program)
        code_size: cython.Py_ssize_t = len(program)
        masked: i64 = len(mask) * 8
        size: cython.Py_ssize_t = len(data)
        at: cython.Py_ssize_t = 0
        stop: cython.Py_ssize_t
        offset: i64 = first_offset
        verdict: cython.int
        if begin < first_offset:
            raise ValueError("the messages asked for begin before the batch")
        while offset < end and (offset < begin or self.size < bytes_max):
            stop = next_message(p, at, size)
            if offset >= begin and not (offset - first_offset < masked and bit_at(m, offset - first_offset)):
                verdict = match_at(code, code_size, p, at + 4, stop)
                if verdict > 0:
                    verdict = self._take(p, at + 4, stop, offset)
                if verdict < 0:
                    raise Malformed(f"the stored message at offset {offset} is not a PubsubMessage")
            at = stop
            offset += 1
        return offset

    def finish(self) -> tuple:
        """(rows, nodes, lengths, buffers): what `wire.arrow.encode_batch` needs, and the body: the buffers, each with
        its padding to 8 bytes. Nothing can be taken afterwards.
        """
        nodes: list = []
        lengths: list = []
        body: list = []
        entries: cython.Py_ssize_t
        for number in self._columns:
            nodes.append((self.rows, 0))
            if number == 5:
                entries = self._used[_KEYS] // 4 - 1
                nodes += [(entries, 0)] * 3
            elif number == 8:
                nodes.append((self._used[_ITEMS] // 4 - 1, 0))
            for index in _LAYOUT[number]:
                if index < 0:
                    lengths.append(0)
                else:
                    lengths.append(self._used[index])
                    body.append(self._padded(index))
        self._columns = ()
        return self.rows, nodes, lengths, body

    def _padded(self, index: cython.int) -> bytearray:
        """A buffer of what is used, and zeros up to a multiple of 8."""
        buffer: bytearray = self._buffers[index]
        used: cython.Py_ssize_t = self._used[index]
        self._room[index] = 0
        del buffer[used:]
        if used % 8:
            buffer += bytes(8 - used % 8)
        return buffer

    def _take(self, p: ReadPtr, start: cython.Py_ssize_t, stop: cython.Py_ssize_t, offset: i64):
        """Gather one message: 1; 0 if it is left out, -1 if it is malformed."""
        field: Field
        at: cython.Py_ssize_t = start
        id_start: cython.Py_ssize_t = 0
        id_size: cython.Py_ssize_t = 0
        data_start: cython.Py_ssize_t = 0
        data_size: cython.Py_ssize_t = 0
        key_start: cython.Py_ssize_t = 0
        key_size: cython.Py_ssize_t = 0
        origin_start: cython.Py_ssize_t = 0
        origin_size: cython.Py_ssize_t = 0
        entries_start: cython.Py_ssize_t = stop
        entries_stop: cython.Py_ssize_t = start
        visited_start: cython.Py_ssize_t = stop
        visited_stop: cython.Py_ssize_t = start
        seconds: u64 = 0
        nanos: u64 = 0
        here: bytes = self._here
        here_size: cython.Py_ssize_t = len(here)
        inner: cython.Py_ssize_t
        part: Field
        number: Varint
        while at < stop:
            field = read_field(p, at, stop)
            if field.number == 0:
                return -1
            if field.wire == 2:
                if field.number == 1:
                    data_start = field.start
                    data_size = field.stop - field.start
                elif field.number == 2:
                    if entries_start == stop:
                        entries_start = at
                    entries_stop = field.stop
                elif field.number == 3:
                    id_start = field.start
                    id_size = field.stop - field.start
                elif field.number == 4:
                    inner = field.start
                    while inner < field.stop:
                        part = read_field(p, inner, field.stop)
                        if part.number == 0:
                            return -1
                        if part.wire == 0 and part.number <= 2:
                            number = read_varint(p, part.start, part.stop)
                            if part.number == 1:
                                seconds = number.value
                            else:
                                nanos = number.value
                        inner = part.stop
                elif field.number == 5:
                    key_start = field.start
                    key_size = field.stop - field.start
                elif field.number == 1001:
                    if utf8_ok(p, field.start, field.stop):
                        origin_start = field.start
                        origin_size = field.stop - field.start
                elif field.number == 1002:
                    if visited_start == stop:
                        visited_start = at
                    visited_stop = field.stop
                    if (
                        here_size > 0
                        and here_size == field.stop - field.start
                        and same(p, field.start, read_ptr(here), 0, here_size)
                    ):
                        return 0
            at = field.stop
        if self._origins is not None and not self._is_wanted(p, origin_start, origin_size):
            return 0
        if self._room[_KEYS] > 0 and not self._take_entries(p, entries_start, entries_stop):
            return -1
        if self._room[_ITEMS] > 0:
            self._take_visited(p, visited_start, visited_stop)
        if self._room[_ID] > 0:
            self._put(_ID, p, id_start, id_size)
        if self._room[_DATA] > 0:
            self._put(_DATA, p, data_start, data_size)
        if self._room[_ORDERING_KEY] > 0:
            self._put(_ORDERING_KEY, p, key_start, key_size)
        if self._room[_ORIGIN] > 0:
            self._put(_ORIGIN, p, origin_start, origin_size)
        if self._room[_OFFSET] > 0:
            self._put_number(_OFFSET, offset)
        if self._room[_TIME] > 0:
            self._put_number(_TIME, low64(low64(seconds * 1000000) + (nanos // 1000 if nanos < 1000000000 else 0)))
        if self._room[_SIZE] > 0:
            self._put_size(_SIZE, stop - start)
        self.rows += 1
        self.size += stop - start + 4
        return 1

    def _is_wanted(self, p: ReadPtr, start: cython.Py_ssize_t, size: cython.Py_ssize_t):
        """Whether an origin is one of those asked for."""
        one: bytes
        for one in self._origins:
            if len(one) == size and same(p, start, read_ptr(one), 0, size):
                return True
        return False

    def _take_entries(self, p: ReadPtr, at: cython.Py_ssize_t, stop: cython.Py_ssize_t):
        """Gather the attributes among the fields in p[at:stop]. False: one is malformed."""
        field: Field
        part: Field
        key_start: cython.Py_ssize_t
        key_size: cython.Py_ssize_t
        value_start: cython.Py_ssize_t
        value_size: cython.Py_ssize_t
        inner: cython.Py_ssize_t
        while at < stop:
            field = read_field(p, at, stop)
            at = field.stop
            if field.number != 2 or field.wire != 2:
                continue
            key_start = value_start = inner = field.start
            key_size = value_size = 0
            while inner < field.stop:
                part = read_field(p, inner, field.stop)
                if part.number == 0:
                    return False
                if part.wire == 2:
                    if part.number == 1:
                        key_start = part.start
                        key_size = part.stop - part.start
                    elif part.number == 2:
                        value_start = part.start
                        value_size = part.stop - part.start
                inner = part.stop
            self._put(_KEYS, p, key_start, key_size)
            self._put(_VALUES, p, value_start, value_size)
        self._put_size(_ENTRIES, self._used[_KEYS] // 4 - 1)
        return True

    def _take_visited(self, p: ReadPtr, at: cython.Py_ssize_t, stop: cython.Py_ssize_t):
        """Gather the visited list among the fields in p[at:stop]."""
        field: Field
        while at < stop:
            field = read_field(p, at, stop)
            at = field.stop
            if field.number == 1002 and field.wire == 2 and utf8_ok(p, field.start, field.stop):
                self._put(_ITEMS, p, field.start, field.stop - field.start)
        self._put_size(_VISITED, self._used[_ITEMS] // 4 - 1)

    def _put(self, index: cython.int, p: ReadPtr, start: cython.Py_ssize_t, size: cython.Py_ssize_t):
        """Append a value to the bytes behind `index`, and its end to `index`."""
        used: cython.Py_ssize_t = self._used[index + 1]
        if used + size > self._room[index + 1]:
            self._make_room(index + 1, used + size)
        copy(self._out[index + 1], used, p, start, size)
        self._used[index + 1] = used + size
        self._put_size(index, used + size)

    def _put_size(self, index: cython.int, value: cython.Py_ssize_t):
        used: cython.Py_ssize_t = self._used[index]
        if used + 4 > self._room[index]:
            self._make_room(index, used + 4)
        put32(self._out[index], used, cython.cast(u32, value))
        self._used[index] = used + 4

    def _put_number(self, index: cython.int, value: u64):
        used: cython.Py_ssize_t = self._used[index]
        if used + 8 > self._room[index]:
            self._make_room(index, used + 8)
        put64(self._out[index], used, value)
        self._used[index] = used + 8

    def _make_room(self, index: cython.int, wanted: cython.Py_ssize_t):
        """Let a buffer have room for `wanted` bytes, and for as much again as it had."""
        buffer: bytearray = self._buffers[index]
        wanted = max(wanted, 2 * self._room[index])
        make_longer(buffer, wanted)
        self._out[index] = array_ptr(buffer)
        self._room[index] = wanted
