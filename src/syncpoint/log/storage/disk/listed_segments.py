"""Which segments must be there at the next opening, and which are deleted: the marks that every disk keeps.

Place: held by `disk_set`; `disk_identity` writes the marks down.
Promise: a segment is listed only once so many disks have sealed it that every opening finds it; it is listed as removed
on all disks before one of its files goes.
"""

from __future__ import annotations

from collections.abc import Sequence

from syncpoint.log.storage.disk.disk_identity import Marks, encode_marks, to_spans
from syncpoint.log.storage.disk.maintained_disk import MaintainedDisk
from syncpoint.log.storage.disk.segment_catalog import Segment, SegmentCatalog


class ListedSegments:
    """The marks of a store whose own log is `log`."""

    def __init__(self, marks: Marks, catalog: SegmentCatalog, log: int, maintainers: Sequence[MaintainedDisk]) -> None:
        self._marks = marks
        self._catalog = catalog
        self._log = log
        self._maintainers = maintainers
        self._content = encode_marks(marks)

    def content(self) -> bytes:
        """The newest marks; any thread."""
        return self._content

    def write(self, *, closed: bool) -> None:
        """Have every disk note which sealed segments there are, so that one missing later is noticed."""
        live: dict[int, list[int]] = {}
        for segment in self._catalog:
            if self._is_promised(segment, closed):
                live.setdefault(segment.log, []).append(segment.seq)
        self._marks.live = {log: to_spans(seqs) for log, seqs in live.items()}
        self._marks.version += 1
        content = self._content = encode_marks(self._marks)
        for maintainer in self._maintainers:
            maintainer.jobs.put_marks(content)

    def _is_promised(self, segment: Segment, closed: bool) -> bool:
        """Whether the segment must be found at every later opening.

        What recovery found it has sealed. Of this log a segment that is full in memory may be on no disk at all: it
        counts once an acknowledging set has sealed it, and while the log is written its own headers name it.
        """
        if segment.log != self._log:
            return segment.sealed_by > 0
        sealed = [slot for slot, copy in segment.copies.copy().items() if copy.sealed]
        return closed and segment.sealed_by > 0 and segment.rule.can_acknowledge(sealed)

    def delete(self, segments: Sequence[Segment], *, closed: bool) -> list[int]:
        """Tombstones first, then the files, on every disk by its maintainer; returns the logs that are gone whole."""
        for segment in segments:
            self._catalog.remove(segment)
            self._marks.remove(segment.log, segment.seq, final=segment.final)
        left = {segment.log for segment in self._catalog}
        gone = sorted({segment.log for segment in segments} - left - {self._log})
        for log in gone:
            self._marks.remove_log(log)
        self.write(closed=closed)
        for segment in segments:
            for slot, copy in segment.copies.items():
                self._maintainers[slot].jobs.put_drop(copy.path)
        return gone
