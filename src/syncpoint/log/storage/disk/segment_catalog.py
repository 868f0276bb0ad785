"""The segments a store knows, and which disk holds a copy of each.

Place: one `SegmentCatalog` per store, changed on the owner's thread only; writers, maintainers and the reader look at
it.
Promise: a copy that is not listed here is not read and not counted; a segment marked `removed` is never read again.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from threading import Lock
from typing import NamedTuple

from syncpoint.log.storage.checksum import crc32c
from syncpoint.log.storage.damage import SegmentPlace
from syncpoint.log.storage.index import ActiveIndex, Index, PageCache, SealedIndex, encode_index
from syncpoint.log.storage.quorum import AckRule
from syncpoint.log.storage.segment import PAGE, Trailer, align

_ONE = AckRule.single(1)
_UNKNOWN = 1 << 63  # found by a scan: it may have anything
_SEED = struct.Struct("<5sQQQ")


def index_seed(universe: int, log: int, seq: int) -> int:
    """Checksum seed of a segment's index pages, the same on every disk."""
    return crc32c(_SEED.pack(b"index", universe, log, seq))


class SegmentCopy:
    """One disk's copy of a segment. `written`: the last position in it, while it is being written."""

    __slots__ = ("incarnation", "path", "sealed", "seed", "written")

    def __init__(self, incarnation: int, seed: int, path: str, sealed: bool, written: int = _UNKNOWN) -> None:
        self.incarnation = incarnation
        self.seed = seed
        self.path = path
        self.sealed = sealed
        self.written = written

    def has(self, position: int) -> bool:
        """Whether the entry was ever written here: what a disk is late with is not damaged."""
        return self.sealed or position <= self.written


class Lacking(NamedTuple):
    """What reading through some copies of a segment has left to be found."""

    copies: Sequence[SegmentCopy]
    positions: Collection[int]  # of the entries that none of them has
    until: float  # when that is to be seen anew (monotonic)


class Segment:
    """One segment of one log; `copies` by disk slot."""

    __slots__ = (
        "_body",
        "active",
        "away",
        "bytes",
        "controls",
        "copies",
        "data_end",
        "final",
        "first_position",
        "id",
        "index_offset",
        "lacking",
        "last_position",
        "log",
        "members",
        "messages",
        "removed",
        "rule",
        "sealed_by",
        "seq",
        "sources",
        "universe",
        "unreadable",
    )

    def __init__(self, number: int, universe: int, log: int, seq: int, first_position: int, active: ActiveIndex | None):
        self.id = number
        self.universe = universe
        self.log = log
        self.seq = seq
        self.first_position = first_position
        self.last_position = first_position - 1
        self.data_end = 0
        self.index_offset = 0
        self.messages = self.controls = self.sources = 0
        self.active = active
        self.copies: dict[int, SegmentCopy] = {}
        self.unreadable: dict[
            int, set[SegmentPlace]
        ] = {}  # by slot: places of that copy which are in good order nowhere
        self.members: tuple[bytes, ...] = ()  # the fragment it was written in
        self.rule = _ONE
        self.away = 0  # which of the members were not there
        self.removed = False
        self.final = False  # the log ends with it
        self.sealed_by = 0  # 0: still written
        self.bytes = 0  # of message payloads
        self.lacking: Lacking | None = None  # what no copy read through so far has
        self._body: bytes | None = None

    def __repr__(self) -> str:
        return (
            f"<Segment {self.log}/{self.seq} positions {self.first_position}-{self.last_position}"
            f" copies={sorted(self.copies)}{' removed' if self.removed else ''}>"
        )

    @property
    def entries(self) -> int:
        return self.last_position - self.first_position + 1

    def seal(self, trailer: Trailer) -> None:
        """Take over the content of a trailer."""
        self.last_position = trailer.last_position
        self.data_end = trailer.data_end
        self.index_offset = trailer.index_offset
        self.messages, self.controls, self.sources = trailer.messages, trailer.controls, trailer.sources
        self.sealed_by, self.final = trailer.sealed_by, trailer.final

    def footer(self) -> bytes:
        """The index pages, built once for all disks; any thread."""
        with _FOOTER_LOCK:
            if self._body is None:
                assert self.active is not None, "the index of a sealed segment is on disk already"
                self._body, self.messages, self.controls, self.sources = encode_index(
                    self.active, index_seed(self.universe, self.log, self.seq)
                )
                self.index_offset = align(self.data_end)
            return self._body

    def forget_active(self) -> None:
        """The index is on disk everywhere it has to be; look it up there from now on."""
        with _FOOTER_LOCK:
            self.active = None
            self._body = None

    def trailer(self) -> Trailer:
        return Trailer(
            self.sealed_by,
            self.last_position,
            self.data_end,
            self.index_offset,
            self.messages,
            self.controls,
            self.sources,
            self.final,
        )


_FOOTER_LOCK = Lock()

PageLoader = Callable[[Segment, int, int], bytes]


class SegmentCatalog:
    """All segments by id and by (log, number)."""

    def __init__(self, universe: int, cache_bytes: int) -> None:
        self.universe = universe
        self._pages = PageCache(cache_bytes)
        self._by_id: dict[int, Segment] = {}
        self._by_place: dict[tuple[int, int], Segment] = {}
        self._changes = 0  # how often a segment came or went
        self._sorted: tuple[int, tuple[Segment, ...]] = (0, ())  # as of which change
        self._number = 0
        self.load: PageLoader | None = None  # set by the store: reads a page of an index from any copy
        self.load_soon: PageLoader | None = None  # the same, where nobody may wait for more than a page

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Segment]:
        """All segments, oldest log first; a snapshot, safe on any thread."""
        changes = self._changes  # first: what comes or goes in the meantime makes this one old
        of, found = self._sorted
        if of != changes:
            found = tuple(sorted(self._by_id.values(), key=lambda segment: (segment.log, segment.seq)))
            self._sorted = (changes, found)
        return iter(found)

    def add(self, log: int, seq: int, first_position: int, active: ActiveIndex | None = None) -> Segment:
        """A new segment without copies."""
        self._number += 1
        segment = Segment(self._number, self.universe, log, seq, first_position, active)
        self._by_id[segment.id] = segment
        self._by_place[log, seq] = segment
        self._changes += 1
        return segment

    def get(self, number: int) -> Segment | None:
        return self._by_id.get(number)

    def at(self, log: int, seq: int) -> Segment | None:
        return self._by_place.get((log, seq))

    def of_ids(self, numbers: Iterable[int]) -> list[Segment]:
        return [self._by_id[number] for number in numbers if number in self._by_id]

    def remove(self, segment: Segment) -> None:
        segment.removed = True
        self._by_id.pop(segment.id, None)
        self._by_place.pop((segment.log, segment.seq), None)
        self._changes += 1

    def index(self, segment: Segment) -> Index:
        """The segment's index in whichever form it has now. Its methods raise `DamagedIndex` or `OSError`."""
        return self._index(segment, self.load)

    def index_soon(self, segment: Segment) -> Index:
        """Return a segment's index on the owner's thread.

        Raises `CopiesUnreachable` while a page is being rebuilt; the caller tries again later.
        """
        return self._index(segment, self.load_soon)

    def _index(self, segment: Segment, load: PageLoader | None) -> Index:
        active = segment.active
        if active is not None:
            return active
        seed = index_seed(segment.universe, segment.log, segment.seq)
        assert load is not None

        def fetch(number: int) -> bytes:
            return load(segment, segment.index_offset + number * PAGE, seed)

        def page(number: int) -> bytes:
            return self._pages.get(segment.id, number, fetch)

        return SealedIndex(segment.messages, segment.controls, segment.sources, page)
