"""What a store counts of its work, for operators: plain numbers, one set for a store and one for each of its disks.

Place: written where the work is done, read by `metrics`.
Promise: a disk's numbers outlive its writers: they go on where it comes back under a new identity. Those that a disk's
thread writes may be slightly out of date for readers.
"""

from __future__ import annotations

from syncpoint.base.model.histogram import Histogram
from syncpoint.log.storage.disk.paced_files import DiskTurns


class StoreCounts:
    """Counters of one store since it was opened."""

    __slots__ = (
        "cache_hits", "cache_misses", "checkpoints", "collect_steps", "copied_bytes",
        "copied_entries", "judged_entries", "refused_full", "removed_segments",
    )  # fmt: skip

    def __init__(self) -> None:
        self.cache_hits = self.cache_misses = 0  # reads that the tail cache answered, and those it could not
        self.checkpoints = 0  # begun
        self.collect_steps = self.judged_entries = self.removed_segments = 0
        self.copied_entries = self.copied_bytes = 0  # forward, so that what held them could be deleted
        self.refused_full = 0  # publishes, because the disks had no room


class DiskCounts:
    """Counters of one disk of a store.

    `sync`: times of the calls that make entries durable; `commit`: times of whole group commits. `turns`: of its
    reads, where they are decided about in this process.
    """

    __slots__ = ("bytes", "commit", "commits", "damaged", "entries", "failures", "healed", "sync", "turns")

    def __init__(self, turns: DiskTurns | None = None) -> None:
        self.turns = turns
        self.commits = self.entries = self.bytes = 0
        self.commit, self.sync = Histogram(), Histogram()
        self.failures = 0  # how often it was given up
        self.damaged = self.healed = 0  # places found damaged; segments copied from other disks
