"""Settings of a store: what an operator may tune. Components (files, clock, randomness) are handed in beside them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from syncpoint.log.storage.quorum import AckRule

MIB = 1 << 20
PREWRITE_AHEAD_BYTES = 256 * 1024  # of `prewrite_ahead_bytes`, for disks of this machine
OPENINGS_MAX = 5  # of disks that change while they are opened: each time it is decided anew


class KnownStore(NamedTuple):
    """What is known of a store before its disks are read.

    `disks`: incarnations (hex) that are remembered, so that wiped disks do not pass for a new store. `counter`: the new
    log's, where somebody else hands counters out; otherwise it is above any seen and `counter_floor`. `rule`: which
    sets of the disks acknowledge; None: a majority of disks that all are this machine's, where entries of durability
    memory count at once, and not only once the disks' processes have them.
    """

    universe: int | None = None
    disks: Collection[str] = ()
    counter: int | None = None
    counter_floor: int = 0
    rule: AckRule | None = None


NOTHING_KNOWN = KnownStore()


class Durability(StrEnum):
    """When a disk counts an entry as held."""

    SYNC = "sync"  # after fdatasync
    ASYNC = "async"  # after the write; synced every `sync_interval_s`
    MEMORY = "memory"  # at once, written in the background; in a cluster once the disks' processes have it


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """Values with their units. All sizes in bytes, all times in seconds."""

    durability: Durability | str = Durability.SYNC
    segment_bytes: int = 64 * MIB  # a segment is sealed before it outgrows this (one larger entry may)
    segment_entries_max: int = 65_536  # keeps sealing a segment of tiny entries short
    commit_bytes_max: int = 4 * MIB  # of one write + sync; more waiting entries make further commits
    commit_spacing_s: float = 0.0  # commits of a busy disk begin up to this far apart: few large ones, for far disks
    commit_full_bytes: int = MIB  # ... unless this much waits
    sync_interval_s: float = 0.05  # durability async and memory: age of the oldest unsynced write
    idle_mark_s: float = 0.2  # an idle disk notes how far it is synced, so that rot in the last commit is known as rot
    cache_bytes: int = 192 * MIB  # newest batches kept in memory
    index_cache_bytes: int = 8 * MIB  # pages of sealed indexes kept in memory
    read_ahead_bytes: int = MIB  # a read from disk fetches at least this much where the source goes on
    pool_segments: int = 2  # spare pre-written segments kept ready; they are also the room reserved for a full disk
    prewrite_bytes_per_s: int = 16 * MIB  # under load, segments that were not pre-written in time are only allocated
    prewrite_ahead_bytes: int = 0  # so far ahead of small commits a file that was only allocated is pre-written
    pool_segments_max: int = 8  # recycled segments beyond this are deleted
    reserve_bytes: int | None = None  # admission stops below this much room; default: two segments
    bytes_max: int | None = None  # quota of one disk folder; default: the file system's free space
    lag_bytes_max: int = 64 * MIB  # a disk that lags more leaves the live stream and is completed from the others
    read_patience_s: float = 2.0  # a read that takes longer is tried on another disk that has a copy
    hung_s: float = 10.0  # a disk whose commit takes longer is given up, if the others suffice
    probe_interval_s: float = 1.0  # how often identity, room and failed disks are checked
    scrub_bytes_s: int = 8 * MIB  # of each disk's sealed segments, read through in the background; 0: never
    copy_live_share_max: float = 0.25  # a segment of which less is live is copied forward and freed
    collect_entries_step: int = 300  # entries checked per step of deletion
    copy_bytes_step: int = 2 * MIB  # copied forward per step of deletion
    copy_entries_step: int = 1_000  # ... if they are not more entries than this
    require_disks: bool = False  # a failed disk comes back only with the name it had: never in an emptied folder
    accept_loss: bool = False  # open although acknowledged entries are on no disk; they are listed in `recovered.lost`

    def __post_init__(self) -> None:
        Durability(self.durability)  # raises ValueError for an unknown word
        if self.segment_bytes < 64 * 1024:
            raise ValueError("segment_bytes must be at least 65536")

    @property
    def reserve(self) -> int:
        """Room in bytes that only acknowledgements, checkpoints and copies forward may use."""
        return 2 * self.segment_bytes if self.reserve_bytes is None else self.reserve_bytes
