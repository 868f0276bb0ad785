"""Load the catalog of segments from what was decided, with proof that every index can be read.

Place: between the decision about the tails and sealing them.
Promise: changes nothing on disk. Segments whose index is gone on all disks are scanned. A seal is believed without
reading what it covers; where losses are accepted it is read, and a segment lacking some of it is scanned and sealed
anew: otherwise no later opening could get past the hole.
"""

from __future__ import annotations

from syncpoint.log.storage.copy_reader import CopyReader
from syncpoint.log.storage.damage import Damage
from syncpoint.log.storage.disk.segment_catalog import Segment, SegmentCatalog, SegmentCopy
from syncpoint.log.storage.index import DamagedIndex, IndexRecord
from syncpoint.log.storage.recovery.decide_tails import TailDecision
from syncpoint.log.storage.recovery.find_tail import SegmentTail
from syncpoint.log.storage.recovery.opening_disks import OpeningDisks
from syncpoint.log.storage.recovery.repair import broken_records
from syncpoint.log.storage.settings import StorageSettings


class LoadedSegments:
    """`segments`: each with what was decided about it; `summaries`: by segment, (source, first offset, end offset);
    `holes`: of sealed segments, what their index knows and no disk has.
    """

    def __init__(self, disks: OpeningDisks, settings: StorageSettings) -> None:
        self.holes: dict[tuple[int, int], list[IndexRecord]] = {}
        self._disks = disks
        self._settings = settings
        self._begin()

    def _begin(self) -> None:
        self.catalog = SegmentCatalog(self._disks.universe, self._settings.index_cache_bytes)
        self.access = CopyReader(self._disks.files, lambda segment: sorted(segment.copies), self._note_damage)
        self.catalog.load = self.access.page
        self.segments: list[tuple[Segment, SegmentTail]] = []
        self.summaries: dict[int, list[tuple[int, int, int]]] = {}

    def load(self, decision: TailDecision) -> None:
        """Load all segments; once more where some have to be scanned. Raises `StorageError`."""
        rescanned: set[tuple[int, int]] = set()
        for _ in range(2):
            self._begin()
            damaged: set[tuple[int, int]] = set()
            for tail in decision.tails:
                for found in tail.segments:
                    if not self._add(found):
                        damaged.add((tail.log, found.seq))
            damaged |= {place for place in self.holes if place not in rescanned}
            rescanned |= damaged
            if not damaged:
                return
            decision.make_again(frozenset(rescanned))

    def _add(self, found: SegmentTail) -> bool:
        """Take in a segment; whether its index can be read."""
        segment = self._segment(found)
        self.segments.append((segment, found))
        try:
            rows = []
            for summary in self.catalog.index(segment).summaries():
                rows.append((summary.source, summary.first_offset, summary.end_offset))
                segment.bytes += summary.payload_bytes
            self.summaries[segment.id] = rows
            if self._settings.accept_loss and found.trailer is not None:
                holes = broken_records(self.catalog, self.access, segment)
                if holes:
                    self.holes[segment.log, segment.seq] = holes
        except (DamagedIndex, OSError):
            return False
        return True

    def _segment(self, found: SegmentTail) -> Segment:
        segment = self.catalog.add(found.log, found.seq, found.first_position, found.index)
        header = next(iter(found.copies.values())).header
        segment.members, segment.rule, segment.away = header.members, header.rule, header.away
        recovered = self._disks.recovered
        if found.trailer is not None:
            segment.seal(found.trailer)
        else:
            segment.last_position = found.last_position
            segment.data_end = found.data_end
            recovered.scanned.append(f"{found.log}/{found.seq}")
        for slot, above in found.cut.items():
            recovered.cut.append(f"{above} frames above {found.last_position} in {found.copies[slot].path}")
        for slot, copy in found.copies.items():
            # While nothing is sealed even an incomplete copy is a source; see `seal_tails`.
            if found.trailer is None or slot in found.complete:
                sealed = found.trailer is not None
                segment.copies[slot] = SegmentCopy(copy.header.incarnation, copy.header.seed, copy.path, sealed)
        return segment

    def _note_damage(self, segment: Segment, slot: int, damage: Damage) -> None:
        root = self._disks.all[slot].root
        self._disks.recovered.notes.append(f"segment {segment.log}/{segment.seq} on {root}: {damage}")
