"""One disk as the parts of its store see it that count, list and choose copies.

Place: what `disk_copies`, `disk_room` and `listed_segments` ask of a disk and note on it; `maintenance` is one.
"""

from __future__ import annotations

from typing import Protocol

from syncpoint.log.storage.disk.disk_jobs import DiskJobs
from syncpoint.log.storage.disk.disk_writer import DiskWriter
from syncpoint.log.storage.disk.segment_pool import SegmentPool


class MaintainedDisk(Protocol):
    """A disk of a store. `free`: bytes on it besides the pool; `damaged`: what was found so far, in words."""

    writer: DiskWriter | None
    pool: SegmentPool
    free: int
    damaged: list[str]
    jobs: DiskJobs

    @property
    def ok(self) -> bool:
        """Whether the disk is written."""
        ...

    @property
    def answers(self) -> bool:
        """Whether the disk is within reach and no commit of it hangs; any thread."""
        ...
