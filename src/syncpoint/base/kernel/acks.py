"""Acknowledged offsets of one subscription on one source, as a set that costs a bit per offset or less; and runs.

Place: the ledger keeps one AckSet per subscription and source, the log carries runs, `leases` writes runs.
An offset is in [0, 2**62). Chunks of 65,536 offsets are bitmaps that grow with their highest offset to 8 KiB; a full
chunk has no bitmap, and full chunks side by side are one range, so what is acknowledged in order costs nothing.
Runs format: per run varint(zigzag(begin - previous end)), varint(length > 0); the previous end starts at 0, runs may
come in any order and overlap.
Promises: equal sets have equal encodings; broken runs and encodings raise Malformed before anything has changed.
Union is all that merging takes; what a seek generation is, is left to the ledger.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import cython

from .errors import Malformed

if not cython.compiled:
    from ._bytes import (
        ReadPtr,
        Varint,
        array_ptr,
        as_bytes,
        count_bits,
        cut,
        fill_bits,
        find_bit,
        i64,
        or_bits,
        read_ptr,
        read_varint,
        u64,
        varint_size,
    )

OFFSET_END = 1 << 62
_FULL = cython.declare(cython.Py_ssize_t, 65_536)  # offsets of a chunk
_CHUNK_BYTES = cython.declare(cython.Py_ssize_t, 8_192)
_END = cython.declare(cython.longlong, OFFSET_END)
_VERSION = 1
_KIND_RANGE, _KIND_RUNS, _KIND_BITMAP = 0, 1, 2


@cython.final
@cython.cclass
class Chunk:
    """A bitmap of up to 65,536 offsets and how many of them are held."""

    def __init__(self) -> None:
        self.bits = bytearray(64)
        self.held = 0

    def make_room(self, bits: cython.Py_ssize_t):
        """Let the bitmap reach as far as bit `bits`."""
        size: cython.Py_ssize_t = len(self.bits)
        if bits > size << 3:
            size = min(max((bits + 511) >> 9 << 6, 2 * size), _CHUNK_BYTES)
            self.bits.extend(bytes(size - len(self.bits)))

    def size(self):
        """Bits there is room for."""
        return len(self.bits) << 3


@cython.final
@cython.cclass
class RunWriter:
    """Runs being written, one after the other; the result is `data`."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.previous_end = 0

    def add(self, begin: i64, length: i64):
        """Append one run."""
        delta: i64 = begin - self.previous_end
        zigzag: u64 = -2 * delta - 1 if delta < 0 else 2 * delta
        self.varint(zigzag)
        self.varint(length)
        self.previous_end = begin + length

    def varint(self, value: u64):
        """Append a number."""
        while value > 127:
            self.data.append((value & 127) | 128)
            value >>= 7
        self.data.append(value)


def encode_runs(runs: object) -> bytes:
    """Runs (begin, length) as bytes, in the order given. Raises ValueError for a run that is empty or out of range."""
    writer: RunWriter = RunWriter()
    for begin, length in runs:
        if begin < 0 or length < 1 or begin + length > OFFSET_END:
            raise ValueError(f"no run: {begin}, {length}")
        writer.add(begin, length)
    return bytes(writer.data)


def decode_runs(runs: object) -> list:
    """Runs as a list of (begin, length). Raises Malformed."""
    data: bytes = as_bytes(runs)
    p: ReadPtr = read_ptr(data)
    end: cython.Py_ssize_t = len(data)
    at: cython.Py_ssize_t = 0
    begin: i64 = 0
    delta: Varint
    length: Varint
    found: list = []
    while at < end:
        delta = read_varint(p, at, end)
        if delta.next < 0:
            raise Malformed("a run is cut off")
        length = read_varint(p, delta.next, end)
        if length.next < 0:
            raise Malformed("a run is cut off")
        at = length.next
        if not _is_run(begin, delta.value, length.value):
            raise Malformed("a run is empty or out of range")
        begin = _moved(begin, delta.value)
        found.append((begin, length.value))
        begin += length.value
    return found


@cython.cfunc
@cython.exceptval(check=False)
def _moved(previous_end: i64, zigzag: u64) -> i64:
    """Where a run begins, of a number already checked."""
    half: i64 = zigzag >> 1
    return previous_end - half - 1 if zigzag & 1 else previous_end + half


@cython.cfunc
@cython.exceptval(check=False)
def _is_run(previous_end: i64, zigzag: u64, length: u64) -> cython.bint:
    limit: u64 = _END
    begin: i64
    if zigzag >> 1 >= limit or length < 1 or length > limit:
        return False
    begin = _moved(previous_end, zigzag)
    return 0 <= begin <= _END - cython.cast(i64, length)


def _check(begin: object, end: object) -> None:
    if not 0 <= begin <= end <= OFFSET_END:
        raise ValueError(f"no range of offsets: {begin}, {end}")


@cython.final
@cython.cclass
class AckSet:
    """A set of offsets. Ranges are [begin, end); out of range, or end before begin, is a ValueError."""

    def __init__(self) -> None:
        self._starts = []  # ranges of full chunks, sorted, apart from each other
        self._ends = []
        self._chunks = {}  # chunk number -> Chunk, for those neither full nor empty
        self._total = 0

    def __len__(self) -> int:
        return self._total

    def __repr__(self) -> str:
        return f"<AckSet {self._total} offsets, first gap {self._first_gap(0)}, {len(self._chunks)} bitmaps>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AckSet):
            return NotImplemented
        return self.encode() == other.encode()

    __hash__ = None

    # -- changing ------------------------------------------------------------------------------------------------------

    def add(self, begin: int, end: int) -> int:
        """Add a range; returns how many offsets are new."""
        _check(begin, end)
        return self._add(begin, end)

    def add_runs(self, runs: object) -> int:
        """Add encoded runs; returns how many offsets are new. Raises Malformed before anything has changed."""
        data: bytes = as_bytes(runs)
        p: ReadPtr = read_ptr(data)
        end: cython.Py_ssize_t = len(data)
        at: cython.Py_ssize_t = 0
        begin: i64 = 0
        stop: i64
        newly: i64 = 0
        delta: Varint
        length: Varint
        while at < end:
            delta = read_varint(p, at, end)
            if delta.next < 0:
                raise Malformed("a run is cut off")
            length = read_varint(p, delta.next, end)
            if length.next < 0 or not _is_run(begin, delta.value, length.value):
                raise Malformed("a run is cut off, empty or out of range")
            begin = _moved(begin, delta.value) + length.value
            at = length.next
        at = begin = 0
        while at < end:
            delta = read_varint(p, at, end)
            length = read_varint(p, delta.next, end)
            begin = _moved(begin, delta.value)
            stop = begin + length.value
            newly += self._add(begin, stop)
            begin = stop
            at = length.next
        return newly

    def union(self, other: AckSet) -> int:
        """Add everything of another set; returns how many offsets are new."""
        newly: i64 = 0
        before: cython.Py_ssize_t
        mine: Chunk
        theirs: Chunk
        for first, last in zip(other._starts, other._ends, strict=True):
            newly += self._add_whole(first, last)
        for number, theirs in list(other._chunks.items()):
            if self._full_at(number) >= 0:
                continue
            mine = self._chunks.get(number)
            if mine is None:
                mine = self._chunks[number] = Chunk()
            mine.make_room(theirs.size())
            before = mine.held
            or_bits(array_ptr(mine.bits), 0, array_ptr(theirs.bits), 0, theirs.size())
            mine.held = count_bits(array_ptr(mine.bits), 0, mine.size())
            newly += mine.held - before
            self._total += mine.held - before
            if mine.held == _FULL:
                del self._chunks[number]
                self._mark_full(number, number + 1)
        return newly

    def remove(self, begin: int, end: int) -> int:
        """Take a range out; returns how many offsets were held."""
        _check(begin, end)
        gone: i64 = 0
        first: i64 = begin >> 16
        last: i64 = end >> 16  # the chunk `end` falls into
        start: cython.Py_ssize_t = begin & 65_535
        stop: cython.Py_ssize_t = end & 65_535
        if first == last:
            gone = self._remove_in_chunk(first, start, stop)
        else:
            if start:
                gone += self._remove_in_chunk(first, start, _FULL)
                first += 1
            gone += self._remove_whole(first, last)
            gone += self._remove_in_chunk(last, 0, stop)
        self._total -= gone
        return gone

    # -- asking --------------------------------------------------------------------------------------------------------

    def contains(self, offset: int) -> bool:
        """Whether an offset is held."""
        _check(offset, offset + 1)
        return self._count(offset, offset + 1) == 1

    def count(self, begin: int, end: int) -> int:
        """How many offsets of a range are held."""
        _check(begin, end)
        return self._count(begin, end)

    def first_gap(self, offset: int) -> int:
        """The first offset at or behind `offset` that is not held."""
        _check(offset, offset)
        return self._first_gap(offset)

    def covers(self, begin: int, end: int) -> bool:
        """Whether all of a range is held; an empty one is."""
        _check(begin, end)
        return self._first_gap(begin) >= end

    def mask(self, begin: int, end: int) -> bytes | None:
        """Bit i (of byte i // 8, lowest first) is set if begin + i is held; None if none is."""
        _check(begin, end)
        size: i64 = end - begin
        at: i64 = begin
        stop: i64
        number: i64
        start: cython.Py_ssize_t
        until: cython.Py_ssize_t
        chunk: Chunk
        if self._total == 0 or self._count(begin, end) == 0:
            return None
        out: bytearray = bytearray((size + 7) >> 3)
        first: i64 = begin
        last: i64 = end
        while at < last:
            number = at >> 16
            stop = min(last, (number + 1) << 16)
            if self._full_at(number) >= 0:
                fill_bits(array_ptr(out), at - first, stop - first, True)
            else:
                chunk = self._chunks.get(number)
                if chunk is not None:
                    start = at & 65_535
                    until = min(stop - (number << 16), chunk.size())
                    if start < until:
                        or_bits(array_ptr(out), at - first, array_ptr(chunk.bits), start, until)
            at = stop
        return bytes(out)

    def runs(self) -> object:
        """All of the set as (begin, length), in order, as few as possible; for tools."""
        begin: i64 = -1
        end: i64 = -1
        base: i64
        at: cython.Py_ssize_t
        stop: cython.Py_ssize_t
        chunk: Chunk
        for first, last in self._pieces():
            base = first << 16
            chunk = self._chunks.get(first)
            if chunk is None:
                if base != end:
                    if begin >= 0:
                        yield begin, end - begin
                    begin = base
                end = last << 16
                continue
            at = 0
            while True:
                at = find_bit(array_ptr(chunk.bits), at, chunk.size(), True)
                if at == chunk.size():
                    break
                stop = find_bit(array_ptr(chunk.bits), at, chunk.size(), False)
                if base + at != end:
                    if begin >= 0:
                        yield begin, end - begin
                    begin = base + at
                end = base + stop
                at = stop
        if begin >= 0:
            yield begin, end - begin

    # -- keeping -------------------------------------------------------------------------------------------------------

    def copy(self) -> AckSet:
        """An independent set with the same offsets."""
        twin: AckSet = AckSet()
        chunk: Chunk
        fresh: Chunk
        twin._starts = list(self._starts)
        twin._ends = list(self._ends)
        twin._total = self._total
        for number, chunk in self._chunks.items():
            fresh = Chunk()
            fresh.bits = bytearray(chunk.bits)
            fresh.held = chunk.held
            twin._chunks[number] = fresh
        return twin

    def encode(self) -> bytes:
        """The set as bytes: version 1, then per piece, in order, varint(gap in chunks), kind, and

        kind 0 (full chunks) varint(chunks); kind 1 (runs in a chunk) varint(runs), then varint(gap), varint(length)
        each; kind 2 (bitmap) varint(bytes), the bytes up to the last that is not 0. Of 1 and 2 the shorter; 1 if equal.
        """
        writer: RunWriter = RunWriter()
        chunk: Chunk
        runs: RunWriter
        previous: i64 = 0
        at: cython.Py_ssize_t
        stop: cython.Py_ssize_t
        behind: cython.Py_ssize_t
        found: cython.Py_ssize_t
        size: cython.Py_ssize_t
        writer.data.append(_VERSION)
        for first, last in self._pieces():
            writer.varint(first - previous)
            previous = last
            chunk = self._chunks.get(first)
            if chunk is None:
                writer.data.append(_KIND_RANGE)
                writer.varint(last - first)
                continue
            bitmap = bytes(chunk.bits).rstrip(b"\0")
            runs = RunWriter()
            found = behind = at = 0
            size = len(bitmap) << 3
            while len(runs.data) <= len(bitmap) + 1:  # once they are longer than any bitmap with its length, give up
                at = find_bit(array_ptr(chunk.bits), at, size, True)
                if at == size:
                    break
                stop = find_bit(array_ptr(chunk.bits), at, size, False)
                runs.varint(at - behind)
                runs.varint(stop - at)
                found += 1
                behind = at = stop
            if len(runs.data) + varint_size(found) <= len(bitmap) + varint_size(len(bitmap)):
                writer.data.append(_KIND_RUNS)
                writer.varint(found)
                writer.data += runs.data
            else:
                writer.data.append(_KIND_BITMAP)
                writer.varint(len(bitmap))
                writer.data += bitmap
        return bytes(writer.data)

    @classmethod
    def decode(cls, encoded: object) -> AckSet:
        """The set `encode` wrote. Raises Malformed."""
        data: bytes = as_bytes(encoded)
        p: ReadPtr = read_ptr(data)
        end: cython.Py_ssize_t = len(data)
        at: cython.Py_ssize_t = 1
        number: i64 = 0
        kind: cython.int
        limit: u64 = 1
        made: AckSet = AckSet()
        gap: Varint
        size: Varint
        if end < 1 or p[0] != _VERSION:
            raise Malformed("an unknown version of an AckSet")
        limit <<= 46  # chunks there can be
        while at < end:
            gap = read_varint(p, at, end)
            if gap.next < 0 or gap.next >= end or gap.value >= limit:
                raise Malformed("an AckSet is cut off or out of range")
            kind = p[gap.next]
            size = read_varint(p, gap.next + 1, end)
            if size.next < 0 or size.value < 1 or size.value > limit:
                raise Malformed("an AckSet is cut off or out of range")
            number += gap.value
            at = size.next
            if kind == _KIND_RANGE:
                _check_pieces(number, number + size.value)
                made._add_whole(number, number + size.value)
                number += size.value
                continue
            _check_pieces(number, number + 1)
            if kind == _KIND_RUNS:
                at = _decode_chunk_runs(made, number, p, at, end, size.value)
            elif kind == _KIND_BITMAP and size.value <= cython.cast(u64, min(_CHUNK_BYTES, end - at)):
                _decode_bitmap(made, number, cut(p, at, at + size.value))
                at += size.value
            else:
                raise Malformed("an AckSet is cut off or of an unknown kind")
            number += 1
        return made

    # -- inside --------------------------------------------------------------------------------------------------------

    def _full_at(self, number: i64):
        """Index of the range of full chunks that holds a chunk, or -1."""
        if not self._starts:
            return -1
        at: cython.Py_ssize_t = bisect_right(self._starts, number) - 1
        return at if at >= 0 and number < self._ends[at] else -1

    def _add(self, begin: i64, end: i64):
        newly: i64 = 0
        first: i64 = begin >> 16
        last: i64 = end >> 16  # the chunk `end` falls into
        start: cython.Py_ssize_t = begin & 65_535
        stop: cython.Py_ssize_t = end & 65_535
        if first == last:
            return self._add_in_chunk(first, start, stop)
        if start:
            newly += self._add_in_chunk(first, start, _FULL)
            first += 1
        newly += self._add_whole(first, last)
        newly += self._add_in_chunk(last, 0, stop)
        return newly

    def _add_in_chunk(self, number: i64, begin: cython.Py_ssize_t, end: cython.Py_ssize_t):
        newly: cython.Py_ssize_t
        chunk: Chunk
        if begin == end or self._full_at(number) >= 0:
            return 0
        chunk = self._chunks.get(number)
        if chunk is None:
            chunk = self._chunks[number] = Chunk()
        chunk.make_room(end)
        newly = end - begin - count_bits(array_ptr(chunk.bits), begin, end)
        if newly:
            fill_bits(array_ptr(chunk.bits), begin, end, True)
            chunk.held += newly
            self._total += newly
            if chunk.held == _FULL:
                del self._chunks[number]
                self._mark_full(number, number + 1)
        return newly

    def _add_whole(self, first: i64, last: i64):
        newly: i64
        if first >= last:
            return 0
        newly = ((last - first) << 16) - self._count(first << 16, last << 16)
        for number in self._numbers(first, last):
            del self._chunks[number]
        self._mark_full(first, last)
        self._total += newly
        return newly

    def _mark_full(self, first: i64, last: i64):
        """Put chunks [first, last) into the ranges of full ones."""
        i: cython.Py_ssize_t = bisect_left(self._ends, first)
        j: cython.Py_ssize_t = bisect_right(self._starts, last)
        if i < j:
            first = min(first, self._starts[i])
            last = max(last, self._ends[j - 1])
        self._starts[i:j] = [first]
        self._ends[i:j] = [last]

    def _cut_full(self, first: i64, last: i64):
        """Take chunks [first, last) out of the ranges of full ones."""
        i: cython.Py_ssize_t = bisect_right(self._ends, first)
        j: cython.Py_ssize_t = bisect_left(self._starts, last)
        starts: list = []
        ends: list = []
        if i >= j:
            return
        if self._starts[i] < first:
            starts.append(self._starts[i])
            ends.append(first)
        if self._ends[j - 1] > last:
            starts.append(last)
            ends.append(self._ends[j - 1])
        self._starts[i:j] = starts
        self._ends[i:j] = ends

    def _remove_in_chunk(self, number: i64, begin: cython.Py_ssize_t, end: cython.Py_ssize_t):
        gone: cython.Py_ssize_t
        chunk: Chunk
        if begin == end:
            return 0
        if self._full_at(number) >= 0:
            self._cut_full(number, number + 1)
            chunk = self._chunks[number] = Chunk()
            chunk.make_room(_FULL)
            fill_bits(array_ptr(chunk.bits), 0, _FULL, True)
            chunk.held = _FULL
        else:
            chunk = self._chunks.get(number)
            if chunk is None:
                return 0
            end = min(end, chunk.size())
            if begin >= end:
                return 0
        gone = count_bits(array_ptr(chunk.bits), begin, end)
        fill_bits(array_ptr(chunk.bits), begin, end, False)
        chunk.held -= gone
        if chunk.held == 0:
            del self._chunks[number]
        return gone

    def _remove_whole(self, first: i64, last: i64):
        gone: i64
        if first >= last:
            return 0
        gone = self._count(first << 16, last << 16)
        for number in self._numbers(first, last):
            del self._chunks[number]
        self._cut_full(first, last)
        return gone

    def _numbers(self, first: i64, last: i64):
        """Numbers of the bitmaps among chunks [first, last), in no order; as cheap as the fewer of the two."""
        if last - first < len(self._chunks):
            return [number for number in range(first, last) if number in self._chunks]
        return [number for number in self._chunks if first <= number < last]

    def _count(self, begin: i64, end: i64):
        total: i64 = 0
        base: i64
        i: cython.Py_ssize_t
        start: cython.Py_ssize_t
        stop: cython.Py_ssize_t
        low: i64
        high: i64
        chunk: Chunk
        if begin >= end:
            return 0
        if self._starts:
            for i in range(max(0, bisect_right(self._starts, begin >> 16) - 1), len(self._starts)):
                low = self._starts[i] << 16
                high = self._ends[i] << 16
                if low >= end:
                    break
                low = max(low, begin)
                high = min(high, end)
                if low < high:
                    total += high - low
        for number in self._numbers(begin >> 16, ((end - 1) >> 16) + 1):
            chunk = self._chunks[number]
            base = number << 16
            start = max(begin - base, 0)
            stop = min(end - base, chunk.size())
            if start < stop:
                total += count_bits(array_ptr(chunk.bits), start, stop)
        return total

    def _first_gap(self, offset: i64):
        i: cython.Py_ssize_t
        at: cython.Py_ssize_t
        number: i64
        chunk: Chunk
        while offset < _END:
            number = offset >> 16
            i = self._full_at(number)
            if i >= 0:
                offset = self._ends[i] << 16
                continue
            chunk = self._chunks.get(number)
            if chunk is None:
                break
            at = offset & 65_535
            if at < chunk.size():
                at = find_bit(array_ptr(chunk.bits), at, chunk.size(), False)
            offset = (number << 16) + at
            if at < _FULL:
                break
        return offset

    def _pieces(self):
        """(first, last) of all ranges of full chunks and (number, number + 1) of all bitmaps, in order."""
        pieces: list = list(zip(self._starts, self._ends, strict=True))
        pieces += [(number, number + 1) for number in self._chunks]
        pieces.sort()
        return pieces


def _check_pieces(first: int, last: int) -> None:
    if last > OFFSET_END >> 16:
        raise Malformed("an AckSet is out of range")


@cython.cfunc
def _decode_chunk_runs(
    made: AckSet, number: i64, p: ReadPtr, at: cython.Py_ssize_t, end: cython.Py_ssize_t, runs: u64
) -> cython.Py_ssize_t:
    """Read the runs of one chunk; returns the place behind them."""
    behind: u64 = 0
    gap: Varint
    length: Varint
    if runs > 32_768:
        raise Malformed("an AckSet has more runs than a chunk can")
    while runs > 0:
        gap = read_varint(p, at, end)
        if gap.next < 0 or gap.value > 65_535:
            raise Malformed("an AckSet is cut off or out of range")
        length = read_varint(p, gap.next, end)
        if length.next < 0 or length.value < 1 or length.value > 65_536:
            raise Malformed("an AckSet is cut off or out of range")
        behind += gap.value
        if behind + length.value > 65_536:
            raise Malformed("an AckSet is out of range")
        made._add_in_chunk(number, behind, behind + length.value)
        behind += length.value
        at = length.next
        runs -= 1
    return at


def _decode_bitmap(made: AckSet, number: int, bitmap: bytes) -> None:
    chunk: Chunk = Chunk()
    chunk.make_room(len(bitmap) * 8)
    chunk.bits[: len(bitmap)] = bitmap
    chunk.held = count_bits(array_ptr(chunk.bits), 0, chunk.size())
    made._total += chunk.held
    if chunk.held == 65_536:
        made._mark_full(number, number + 1)
    elif chunk.held:
        made._chunks[number] = chunk
