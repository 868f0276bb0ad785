"""Ids that messages were published under, as 128-bit hashes, each with the place and the second of its message.

Place: the memory of `publish.message_ids`, one table for each topic whose duplicates are dropped. Hashes are made by
the caller and are taken for equal only as a whole; places are any u64, seconds u32. Entries are kept in the order in
which they were added, and leave in that order.
Memory: 28 bytes an id in chunks that never move, and 4 to 8 bytes in the index of open addressing (linear probing).
Promises: an id that is added again is found with its newest place; no hash is lost when others leave.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from ._bytes import ReadPtr, WritePtr, array_ptr, get32, get64, i64, put32, put64, read_ptr, u32, u64

ENTRY = 28  # hash 16, place 8, second 4
_ENTRY = cython.declare(cython.Py_ssize_t, ENTRY)
_CHUNK = cython.declare(cython.Py_ssize_t, 1 << 12)  # entries of a chunk
_ROUND = cython.declare(cython.longlong, 0xFFFFFFFF)  # an index slot holds 1 + the entry's number modulo this; 0: free
_SLOTS_MIN = cython.declare(cython.longlong, 1 << 6)


@cython.final
@cython.cclass
class IdTable:
    """See the module. `len` is the number of entries, those of ids that were added again included."""

    def __init__(self) -> None:
        self._chunks: list = []
        self._first = 0  # number of the oldest entry
        self._end = 0
        self._dropped = 0  # entries of the first chunk's number
        self._slots = _SLOTS_MIN
        self._index = bytearray(4 * _SLOTS_MIN)

    def __len__(self) -> int:
        return self._end - self._first

    def _entry(self, number: i64) -> WritePtr:
        chunk: bytearray = self._chunks[(number - self._dropped) // _CHUNK]
        return array_ptr(chunk)

    def _at(self, number: i64) -> cython.Py_ssize_t:
        return ((number - self._dropped) % _CHUNK) * _ENTRY

    def _number(self, held: u32) -> i64:
        """The entry that an index slot speaks of."""
        behind: i64 = (cython.cast(i64, held) - 1 - self._first % _ROUND) % _ROUND
        if behind < 0:
            behind += _ROUND
        return self._first + behind

    def _slot_of(self, high: u64, low: u64) -> i64:
        """The slot that holds a hash, or the free one where it belongs."""
        index: WritePtr = array_ptr(self._index)
        mask: i64 = self._slots - 1
        slot: i64 = cython.cast(i64, high & cython.cast(u64, mask))
        held: u32
        number: i64
        entry: WritePtr
        at: cython.Py_ssize_t
        while True:
            held = get32(index, 4 * slot)
            if held == 0:
                return slot
            number = self._number(held)
            entry = self._entry(number)
            at = self._at(number)
            if get64(entry, at) == high and get64(entry, at + 8) == low:
                return slot
            slot = (slot + 1) & mask

    def find(self, hashed: bytes) -> tuple | None:
        """(place, second) of the newest entry of a hash of 16 bytes; None if there is none."""
        p: ReadPtr = read_ptr(hashed)
        slot: i64 = self._slot_of(get64(p, 0), get64(p, 8))
        held: u32 = get32(array_ptr(self._index), 4 * slot)
        if held == 0:
            return None
        number: i64 = self._number(held)
        entry: WritePtr = self._entry(number)
        at: cython.Py_ssize_t = self._at(number)
        return get64(entry, at + 16), get32(entry, at + 24)

    def add(self, hashed: bytes, place: u64, second: u32) -> None:
        """An entry behind all others."""
        p: ReadPtr = read_ptr(hashed)
        high: u64 = get64(p, 0)
        low: u64 = get64(p, 8)
        if 4 * (self._end - self._first + 1) > 3 * self._slots:
            self._grow()
        number: i64 = self._end
        if number - self._dropped == len(self._chunks) * _CHUNK:
            self._chunks.append(bytearray(_CHUNK * _ENTRY))
        entry: WritePtr = self._entry(number)
        at: cython.Py_ssize_t = self._at(number)
        put64(entry, at, high)
        put64(entry, at + 8, low)
        put64(entry, at + 16, place)
        put32(entry, at + 24, second)
        slot: i64 = self._slot_of(high, low)
        put32(array_ptr(self._index), 4 * slot, cython.cast(u32, number % _ROUND + 1))
        self._end = number + 1

    def _grow(self) -> None:
        while 4 * (self._end - self._first + 1) > 3 * self._slots:
            self._slots *= 2
        self._index = bytearray(4 * self._slots)
        index: WritePtr = array_ptr(self._index)
        number: i64
        entry: WritePtr
        at: cython.Py_ssize_t
        for number in range(self._first, self._end):
            entry = self._entry(number)
            at = self._at(number)
            put32(
                index, 4 * self._slot_of(get64(entry, at), get64(entry, at + 8)), cython.cast(u32, number % _ROUND + 1)
            )

    def drop_before(self, second: u32, most: int) -> int:
        """Let go of the oldest entries of earlier seconds, `most` at once; returns how many went."""
        gone: i64 = 0
        number: i64
        entry: WritePtr
        at: cython.Py_ssize_t
        while self._first < self._end and gone < most:
            number = self._first
            entry = self._entry(number)
            at = self._at(number)
            if get32(entry, at + 24) >= second:
                break
            self._leave(number, get64(entry, at), get64(entry, at + 8))
            self._first = number + 1
            gone += 1
            if self._first - self._dropped == _CHUNK:
                self._chunks.pop(0)
                self._dropped = self._first
        if self._first == self._end and self._slots > _SLOTS_MIN:
            self._slots = _SLOTS_MIN
            self._index = bytearray(4 * _SLOTS_MIN)
        return gone

    def _leave(self, number: i64, high: u64, low: u64) -> None:
        """Take an entry's slot out of the index, unless a newer one of its hash has it; close the gap behind it."""
        index: WritePtr = array_ptr(self._index)
        mask: i64 = self._slots - 1
        slot: i64 = self._slot_of(high, low)
        held: u32 = get32(index, 4 * slot)
        if held == 0 or self._number(held) != number:
            return
        free: i64 = slot
        entry: WritePtr
        home: i64
        while True:
            slot = (slot + 1) & mask
            held = get32(index, 4 * slot)
            if held == 0:
                break
            number = self._number(held)
            entry = self._entry(number)
            home = cython.cast(i64, get64(entry, self._at(number)) & cython.cast(u64, mask))
            if ((slot - home) & mask) >= ((slot - free) & mask):
                put32(index, 4 * free, held)
                free = slot
        put32(index, 4 * free, 0)

    def entries(self, begin: int, most: int) -> tuple:
        """(entries as bytes, where to go on): so many from the one that is number `begin` of those there ever were."""
        at: i64 = max(begin, self._first)
        end: i64 = min(self._end, at + most)
        parts: list = []
        while at < end:
            chunk: bytearray = self._chunks[(at - self._dropped) // _CHUNK]
            start: cython.Py_ssize_t = (at - self._dropped) % _CHUNK
            count: i64 = min(end - at, _CHUNK - start)
            parts.append(bytes(chunk[start * _ENTRY : (start + count) * _ENTRY]))
            at += count
        return b"".join(parts), at

    @property
    def end(self) -> int:
        """How many entries there ever were."""
        return self._end
