"""What a store holds of a source, in offsets and in time.

Place: asked by `store`; of indexes and the log's tail it reads only what the question needs.
Promise: an end is never before what is persisted; where an index is damaged, a time is answered with a lower offset
than the right one, never with a higher one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from syncpoint.log.storage.copy_reader import Gone
from syncpoint.log.storage.disk.segment_catalog import Segment, SegmentCatalog
from syncpoint.log.storage.index import DamagedIndex
from syncpoint.log.storage.log import Log
from syncpoint.log.storage.record import EntryKind, Queued
from syncpoint.log.storage.source_index import SourceIndex


class StoredOffsets:
    """Offsets of the sources of one store. `closing`: whether another thread may be changing the log."""

    def __init__(self, sources: SourceIndex, catalog: SegmentCatalog, log: Log, closing: Callable[[], bool]) -> None:
        self._sources = sources
        self._catalog = catalog
        self._log = log
        self._closing = closing

    def bounds(self, source: int) -> tuple[int, int] | None:
        """First stored offset and the end of what is persisted; None when nothing of the source is stored."""
        known = self._sources.bounds(source)
        if known is None:
            return None
        first, end = known
        waiting: Iterable[Queued] = self._log.unpersisted
        for entry in list(waiting) if self._closing() else waiting:  # another thread may be closing the log
            if entry.source == source and entry.kind == EntryKind.MESSAGES:
                end = min(end, entry.first_offset)
                break
        return (first, end) if first < end else None

    def offset_at(self, source: int, time_ns: int) -> int:
        """First offset whose batch is not older than `time_ns`; the end if there is none, 0 for an unknown source.

        A lower one where an index is damaged.
        """
        known = self.bounds(source)
        if known is None:
            return 0
        best = known[1]
        segments = self._catalog.of_ids(self._sources.segments(source))
        if not self._sources.tangled(source):
            segments = self._narrow(segments, source, time_ns)
        for segment in segments:
            record = self._at_time(segment, source, time_ns)
            if record is not None:
                best = min(best, record)
                if not self._sources.tangled(source):
                    break
        return best

    def _at_time(self, segment: Segment, source: int, time_ns: int) -> int | None:
        try:
            record = self._catalog.index(segment).at_time(source, time_ns)
        except Gone:
            return None
        except DamagedIndex:
            # A seek to there acknowledges what is earlier: of what is unknown nothing counts as earlier.
            return self._sources.first(source, segment.id)
        return None if record is None else record.first_offset

    def _narrow(self, segments: list[Segment], source: int, time_ns: int) -> list[Segment]:
        """Times rise with offsets: find the first segment that holds one late enough."""
        low, high = 0, len(segments)
        while low < high:
            middle = (low + high) // 2
            if self._at_time(segments[middle], source, time_ns) is None:
                low = middle + 1
            else:
                high = middle
        return segments[low : low + 1]
