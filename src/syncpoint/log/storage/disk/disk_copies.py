"""Which disk has a copy of which segment, and which copies are read first.

Place: held by `disk_set`; maintainers report here what they copied and found damaged, readers ask for an order.
Promise: a bad copy is forgotten only where another one is left, and is then written anew; the last copy is kept, with
the places that are unreadable in it.
Threads: owner's thread, but for what says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from syncpoint.base.runtime.call_queues import CallQueue
from syncpoint.log.storage.damage import Damage, SegmentPart, SegmentPlace
from syncpoint.log.storage.disk.maintained_disk import MaintainedDisk
from syncpoint.log.storage.disk.segment_catalog import Segment, SegmentCatalog, SegmentCopy
from syncpoint.log.storage.disk_counts import DiskCounts
from syncpoint.log.storage.index import IndexRecord

UNREADABLE_MAX = 1000  # places remembered of one copy
_DAMAGES_MAX = 100  # remembered of one disk, in words


class DiskCopies:
    """The copies of all segments of a store, by disk."""

    def __init__(
        self,
        catalog: SegmentCatalog,
        maintainers: Sequence[MaintainedDisk],
        queues: Sequence[CallQueue],
        patience_s: float,
        counts: Sequence[DiskCounts],
    ) -> None:
        self._catalog = catalog
        self._maintainers = maintainers
        self._queues = queues
        self._patience_s = patience_s
        self._counts = counts

    def answers(self, slot: int) -> bool:
        """Whether a disk can be read; any thread."""
        return self._maintainers[slot].ok

    def preference(self, segment: Segment) -> Iterator[int]:
        """Copies on disks that answer come first; any thread. A disk is checked when those before it have failed."""
        worse: list[tuple[bool, bool, int]] = []
        for number, slot in enumerate(slots := list(segment.copies.copy())):
            maintainer = self._maintainers[slot]
            lost, slow = not maintainer.ok, not maintainer.answers or self._queues[slot].hangs(self._patience_s)
            if lost or slow:
                worse.append((lost, slow, number))
            else:
                yield slot
        for _, _, number in sorted(worse):
            yield slots[number]

    def rejoined(self, slot: int, kept: Mapping[tuple[int, int], SegmentCopy]) -> None:
        """A disk is a member again, and has these copies of its earlier incarnation and no others."""
        for segment in self._catalog:
            copy = kept.get((segment.log, segment.seq))
            if copy is not None and (copy.sealed or segment.active is not None):
                segment.copies[slot] = copy
                segment.unreadable.clear()  # what no disk had it may have
            elif slot in segment.copies and (len(segment.copies) > 1 or segment.active is not None):
                del segment.copies[slot]
                segment.unreadable.pop(slot, None)
        for place, copy in kept.items():
            if self._catalog.at(*place) is None:
                self._maintainers[slot].jobs.put_drop(copy.path)

    def completed(self, slot: int, segment: Segment, copy: SegmentCopy, lost: Sequence[IndexRecord]) -> None:
        """A maintainer copied a segment; `lost`: what no disk has of it."""
        maintainer = self._maintainers[slot]
        if segment.removed or self._catalog.get(segment.id) is not segment:
            maintainer.jobs.put_drop(copy.path)
            return
        segment.copies[slot] = copy
        self._counts[slot].healed += 1
        segment.unreadable.pop(slot, None)
        if not lost:
            self.sound(segment)
        for record in lost:
            position = segment.first_position + record.ordinal
            maintainer.damaged.append(f"entry {position} of log {segment.log} has no good copy on any disk")
            _note_unreadable(segment, slot, SegmentPlace(SegmentPart.FRAME, record.offset))

    def sound(self, segment: Segment) -> None:
        """All of some copy is what was written: a disk with another one that is not can write it anew."""
        segment.unreadable.clear()

    def sealed(self, segment: Segment) -> None:
        """A segment is sealed on all live disks; failed ones do not hold it whole."""
        for slot, copy in list(segment.copies.items()):
            if not copy.sealed:
                del segment.copies[slot]

    def note_damage(self, segment: Segment, slot: int, damage: Damage) -> None:
        """Forget a bad copy where another one is left; it is then written anew. Not for a place that no disk had
        when this copy was written: it would be as it is.
        """
        maintainer = self._maintainers[slot]
        if maintainer.writer is not None and not maintainer.ok:
            return  # the disk was given up, and with it what was open there
        found = f"segment {segment.log}/{segment.seq}: {damage}"
        if found not in maintainer.damaged:
            self._counts[slot].damaged += 1
            maintainer.damaged.append(found)
            del maintainer.damaged[:-_DAMAGES_MAX]
        place = damage.place
        if slot not in segment.copies or place in segment.unreadable.get(slot, ()):
            return
        if len(segment.copies) == 1:
            _note_unreadable(segment, slot, place)
        elif segment.active is None:
            del segment.copies[slot]
            segment.unreadable.pop(slot, None)


def _note_unreadable(segment: Segment, slot: int, place: SegmentPlace) -> None:
    places = segment.unreadable.setdefault(slot, set())
    if len(places) < UNREADABLE_MAX:
        places.add(place)
