"""What the maintenance of a disk asks of the store, and reports to it.

Place: between `disk_set`, which is one, and `maintenance` with its parts.
Promise: what returns nothing is called through `notify`, but for `damaged`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from syncpoint.log.storage.copy_reader import CopyReader
from syncpoint.log.storage.damage import Damage
from syncpoint.log.storage.disk.disk_copies import DiskCopies
from syncpoint.log.storage.disk.disk_room import DiskRoom
from syncpoint.log.storage.disk.disk_writer import DiskWriter
from syncpoint.log.storage.disk.listed_segments import ListedSegments
from syncpoint.log.storage.disk.segment_catalog import Segment, SegmentCatalog, SegmentCopy
from syncpoint.log.storage.disk.segment_pool import SegmentPool


class DiskListener(Protocol):
    """The store, as the maintainer of one disk knows it."""

    catalog: SegmentCatalog
    access: CopyReader
    universe: int
    copies: DiskCopies
    listed: ListedSegments
    room: DiskRoom

    def notify(self, act: Callable[[], None]) -> None: ...

    @property
    def accepting(self) -> bool:
        """Whether a disk may come back: the log is alive."""
        ...

    @property
    def wants_spares(self) -> bool:
        """Whether the log will soon need another segment."""
        ...

    def joined(self, slot: int, writer: DiskWriter, kept: Mapping[tuple[int, int], SegmentCopy]) -> None: ...

    def hung(self, writer: DiskWriter) -> None: ...

    def fenced(self, error: Exception) -> None: ...

    def damaged(self, segment: Segment, slot: int, damage: Damage) -> None:
        """Any thread."""
        ...

    def spares(self, slot: int, since: float) -> bool:
        """Whether the name of a failed disk can be given up; any thread."""
        ...

    def make_writer(self, slot: int, incarnation: bytes, pool: SegmentPool) -> DiskWriter: ...
