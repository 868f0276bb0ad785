"""Where the entries of one segment are: in memory while it is written, in paged form behind its frames once sealed.

Place: `log` fills an `ActiveIndex` at every append; a disk's writer turns it into pages when the segment is sealed;
`reader`, replay and `recovery.trim` look entries up in either form.
Form on disk: three sections of 4 KiB pages, each with a checksum seeded by (universe, log, number), hence equal on
all disks: message records by (source, first offset); records of the other entries by position; one summary per
source.
Promise: a sealed index costs no memory but the pages checked lately, all under one cap in bytes.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from typing import NamedTuple, Protocol

from syncpoint.log.storage.checksum import crc32c
from syncpoint.log.storage.record import MESSAGE_KINDS
from syncpoint.log.storage.segment import PAGE

_PAGE_HEAD = struct.Struct("<IHHQ")
_RECORD = struct.Struct("<QQQIIIII")
_KEY = struct.Struct("<QQ")
_SUMMARY = struct.Struct("<QQQQQII")
_HEAD_BYTES = _PAGE_HEAD.size
RECORDS_PAGE = (PAGE - _HEAD_BYTES) // _RECORD.size
SUMMARIES_PAGE = (PAGE - _HEAD_BYTES) // _SUMMARY.size
RECORD_BYTES = _RECORD.size
_OFFSET_MAX = (1 << 64) - 1
SUMMARY_BYTES = _SUMMARY.size


class IndexRecord(NamedTuple):
    """One entry of a segment; its position is the segment's first one plus `ordinal`."""

    source: int
    first_offset: int
    time_ns: int
    count: int  # type: ignore[assignment]  # shadows tuple.count, which nobody wants here
    offset: int  # of the frame's header in the file
    length: int  # of the payload
    ordinal: int
    kind: int


class Summary(NamedTuple):
    """What a segment holds of one source."""

    source: int
    first_offset: int
    end_offset: int
    first_time_ns: int
    payload_bytes: int
    first_record: int
    records: int


class DamagedIndex(Exception):
    """A page of a sealed index is not what was written."""


class Index(Protocol):
    """Both forms answer the same questions."""

    def records(self, source: int, begin: int, limit: int) -> list[IndexRecord]:
        """Up to `limit` message records of `source` in offset order, from the first that ends after `begin`."""
        ...

    def at_time(self, source: int, time_ns: int) -> IndexRecord | None:
        """The first message record of `source`, in offset order, not older than `time_ns`."""
        ...

    def messages(self) -> Iterator[IndexRecord]:
        """All message records by (source, first offset)."""
        ...

    def of_source(self, source: int) -> Iterator[IndexRecord]:
        """Those of one source."""
        ...

    def controls(self) -> Iterator[IndexRecord]:
        """The records of all other entries by position."""
        ...

    def summaries(self) -> Iterator[Summary]: ...


class ActiveIndex:
    """The index of a segment that is being written, or was recovered by scanning."""

    __slots__ = ("_by_source", "_controls", "_count", "_first", "_kind", "_length", "_offset", "_ordinal", "_source",
                 "_time")  # fmt: skip

    def __init__(self) -> None:
        self._source = array("Q")
        self._first = array("Q")
        self._time = array("Q")
        self._count = array("I")
        self._offset = array("I")
        self._length = array("I")
        self._ordinal = array("I")
        self._kind = array("B")
        self._by_source: dict[int, array[int]] = {}
        self._controls = array("I")

    def __len__(self) -> int:
        return len(self._kind)

    @property
    def sources(self) -> int:
        return len(self._by_source)

    def add(
        self, kind: int, source: int, first: int, count: int, time_ns: int, offset: int, length: int, ordinal: int
    ) -> None:
        """Take in the next entry."""
        number = len(self._kind)
        self._source.append(source)
        self._first.append(first)
        self._time.append(time_ns)
        self._count.append(count)
        self._offset.append(offset)
        self._length.append(length)
        self._ordinal.append(ordinal)
        self._kind.append(kind)  # last: its length shows other threads that the row is complete
        if kind in MESSAGE_KINDS:
            rows = self._by_source.get(source)
            if rows is None:
                self._by_source[source] = array("I", (number,))
            elif self._first[rows[-1]] <= first:
                rows.append(number)
            else:  # copied forward after later ones
                insort(rows, number, key=self._first.__getitem__)
        else:
            self._controls.append(number)

    def _row(self, number: int) -> IndexRecord:
        return IndexRecord(
            self._source[number],
            self._first[number],
            self._time[number],
            self._count[number],
            self._offset[number],
            self._length[number],
            self._ordinal[number],
            self._kind[number],
        )

    def all(self) -> Iterator[IndexRecord]:
        """Every record in the order of positions."""
        return map(self._row, range(len(self)))

    def records(self, source: int, begin: int, limit: int) -> list[IndexRecord]:
        rows = self._by_source.get(source)
        if rows is None:
            return []
        at = bisect_right(rows, begin, key=self._first.__getitem__)
        if at and self._first[rows[at - 1]] + self._count[rows[at - 1]] > begin:
            at -= 1
        return [self._row(number) for number in rows[at : at + limit]]

    def at_time(self, source: int, time_ns: int) -> IndexRecord | None:
        rows = self._by_source.get(source)
        if rows is None:
            return None
        at = bisect_left(rows, time_ns, key=self._time.__getitem__)
        return self._row(rows[at]) if at < len(rows) else None

    def messages(self) -> Iterator[IndexRecord]:
        for source in sorted(self._by_source):
            yield from self.of_source(source)

    def of_source(self, source: int) -> Iterator[IndexRecord]:
        return map(self._row, self._by_source.get(source, ()))

    def controls(self) -> Iterator[IndexRecord]:
        return map(self._row, self._controls[:])

    def summaries(self) -> Iterator[Summary]:
        start = 0
        for source in sorted(self._by_source):
            rows = self._by_source[source]
            end = max(self._first[row] + self._count[row] for row in rows)
            size = sum(self._length[row] for row in rows)
            yield Summary(source, self._first[rows[0]], end, self._time[rows[0]], size, start, len(rows))
            start += len(rows)


def encode_index(index: Index, seed: int) -> tuple[bytes, int, int, int]:
    """The pages of an index, and the numbers of its message records, other records and summaries."""
    messages = [_RECORD.pack(*record) for record in index.messages()]
    controls = [_RECORD.pack(*record) for record in index.controls()]
    summaries = [_SUMMARY.pack(*summary) for summary in index.summaries()]
    pages = [
        *_pages(messages, RECORDS_PAGE, 1, seed),
        *_pages(controls, RECORDS_PAGE, 2, seed),
        *_pages(summaries, SUMMARIES_PAGE, 3, seed),
    ]
    return b"".join(pages), len(messages), len(controls), len(summaries)


def index_bytes(entries: int, sources: int) -> int:
    """An upper bound for the size of the pages of the given numbers of entries and sources."""
    return PAGE * (entries // RECORDS_PAGE + sources // SUMMARIES_PAGE + 4)


def _pages(rows: Sequence[bytes], per_page: int, section: int, seed: int) -> Iterator[bytes]:
    for start in range(0, len(rows), per_page):
        part = rows[start : start + per_page]
        body = (_PAGE_HEAD.pack(0, len(part), section, start)[4:] + b"".join(part)).ljust(PAGE - 4, b"\0")
        yield struct.pack("<I", crc32c(body, seed)) + body


def check_page(page: bytes, seed: int) -> bytes:
    """The page itself if its checksum matches. Raises `DamagedIndex`."""
    if len(page) != PAGE or crc32c(page[4:], seed) != int.from_bytes(page[:4], "little"):
        raise DamagedIndex
    return page


class PageCache:
    """The pages of all sealed indexes checked lately, under one cap in bytes. Used by several threads."""

    __slots__ = ("_lock", "_pages", "_pages_max")

    def __init__(self, bytes_max: int) -> None:
        self._pages: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._pages_max = max(4, bytes_max // PAGE)
        self._lock = Lock()

    def get(self, segment: int, number: int, load: Callable[[int], bytes]) -> bytes:
        """Page `number` of a segment's index, loaded where it is not cached."""
        key = (segment, number)
        with self._lock:
            page = self._pages.get(key)
            if page is not None:
                self._pages.move_to_end(key)
                return page
        page = load(number)
        with self._lock:
            self._pages[key] = page
            if len(self._pages) > self._pages_max:
                self._pages.popitem(last=False)
        return page

    def __len__(self) -> int:
        return len(self._pages)


class SealedIndex:
    """The index at the end of a sealed segment, read page by page. `page(n)` gives its n-th page, checked."""

    __slots__ = ("_controls", "_messages", "_page", "_sources")

    def __init__(self, messages: int, controls: int, sources: int, page: Callable[[int], bytes]) -> None:
        self._messages = messages
        self._controls = controls
        self._sources = sources
        self._page = page

    def _record(self, number: int) -> IndexRecord:
        page, row = divmod(number, RECORDS_PAGE)
        return IndexRecord(*_RECORD.unpack_from(self._page(page), _HEAD_BYTES + row * RECORD_BYTES))

    def _lower(self, key: tuple[int, int]) -> int:
        """How many message records have a (source, first offset) up to and including `key`."""
        low, high = 0, self._messages
        while low < high:
            middle = (low + high) // 2
            page, row = divmod(middle, RECORDS_PAGE)
            if _KEY.unpack_from(self._page(page), _HEAD_BYTES + row * RECORD_BYTES) <= key:
                low = middle + 1
            else:
                high = middle
        return low

    def records(self, source: int, begin: int, limit: int) -> list[IndexRecord]:
        at = self._lower((source, begin))
        if at:
            before = self._record(at - 1)
            if before.source == source and before.first_offset + before.count > begin:
                at -= 1
        found: list[IndexRecord] = []
        end = min(at + limit, self._messages)
        while at < end:
            page, row = divmod(at, RECORDS_PAGE)
            rows = min(RECORDS_PAGE - row, end - at)
            for record in self._rows(page, row, rows):
                if record.source != source:
                    return found
                found.append(record)
            at += rows
        return found

    def _rows(self, page: int, row: int, rows: int) -> Iterator[IndexRecord]:
        """Records of one page, from its `row`-th on."""
        begin = _HEAD_BYTES + row * RECORD_BYTES
        view = memoryview(self._page(page))[begin : begin + rows * RECORD_BYTES]
        return map(IndexRecord._make, _RECORD.iter_unpack(view))

    def at_time(self, source: int, time_ns: int) -> IndexRecord | None:
        low, end = self._lower((source, 0)), self._lower((source + 1, 0))
        if low and self._record(low - 1).source == source:
            low -= 1
        if end and self._record(end - 1).source != source:
            end -= 1
        high = end
        while low < high:
            middle = (low + high) // 2
            if self._record(middle).time_ns < time_ns:
                low = middle + 1
            else:
                high = middle
        return self._record(low) if low < end else None

    def messages(self) -> Iterator[IndexRecord]:
        return self._section(0, self._messages)

    def of_source(self, source: int) -> Iterator[IndexRecord]:
        for number in range(self._lower((source - 1, _OFFSET_MAX)) if source else 0, self._messages):
            record = self._record(number)
            if record.source != source:
                return
            yield record

    def controls(self) -> Iterator[IndexRecord]:
        return self._section(-(-self._messages // RECORDS_PAGE), self._controls)

    def _section(self, page: int, left: int) -> Iterator[IndexRecord]:
        while left > 0:
            rows = min(left, RECORDS_PAGE)
            yield from self._rows(page, 0, rows)
            left -= rows
            page += 1

    def summaries(self) -> Iterator[Summary]:
        page = -(-self._messages // RECORDS_PAGE) - (-self._controls // RECORDS_PAGE)
        left = self._sources
        while left > 0:
            rows = min(left, SUMMARIES_PAGE)
            data = self._page(page)
            yield from map(
                Summary._make, _SUMMARY.iter_unpack(memoryview(data)[_HEAD_BYTES : _HEAD_BYTES + rows * SUMMARY_BYTES])
            )
            left -= rows
            page += 1
