"""What a store says of itself. Place: read by health checks, metrics and the console."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from syncpoint.storage.keeper import Keeper
from syncpoint.storage.log import Log
from syncpoint.storage.settings import StorageSettings

if TYPE_CHECKING:
    from syncpoint.storage.store import Store


@dataclass(frozen=True, slots=True)
class DiskStatus:
    """One disk. `state`: "ok", "healing" (writes, but lacks something), "away" (waited for) or "failed"."""

    path: str
    state: str
    reason: str
    incarnation: str
    position: int  # synced up to here
    queued_bytes: int
    free_bytes: int
    pool_segments: int
    lacking_segments: int
    damaged: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """The whole store. `under_replicated`: entries that fewer than all disks hold."""

    universe: int
    log_counter: int
    appended: int
    persisted: int
    under_replicated: int
    segments: int
    sources: int
    cache_bytes: int
    room_bytes: int  # what an acknowledging set of the disks can take, the reserve included
    full: bool  # publishing is refused
    failure: str
    disks: tuple[DiskStatus, ...]


def disk_status(store: Store, log: Log, keepers: Sequence[Keeper], settings: StorageSettings, room: int) -> StoreStatus:
    """Collect the figures; owner's thread."""
    segments = list(store.catalog)
    lacking = [0] * len(keepers)
    under = 0
    holds = [keeper.ok for keeper in keepers]
    for segment in segments:
        if segment.sealed_by and segment.active is None:
            missing = [slot for slot in range(len(keepers)) if slot not in segment.copies or not holds[slot]]
            for slot in missing:
                lacking[slot] += 1
            if missing:
                under += segment.entries
    open_from = min((s.first_position for s in segments if s.log == log.counter and s.active is not None), default=1)
    reached = min((k.writer.synced if k.ok and k.writer is not None else 0 for k in keepers), default=0)
    under += max(0, log.appended - max(reached, open_from - 1))
    disks = []
    for keeper in keepers:
        writer = keeper.writer
        error = None if writer is None else writer.error
        state = "failed" if not keeper.ok else "away" if not keeper.answers else "ok"
        if state == "ok" and lacking[keeper.slot]:
            state = "healing"
        disks.append(
            DiskStatus(
                keeper.root,
                state,
                "" if keeper.ok else str(error or "not usable"),
                writer.incarnation.hex() if writer is not None else "",
                writer.synced if writer is not None else 0,
                writer.lag_bytes if writer is not None else 0,
                keeper.free,
                len(keeper.pool),
                lacking[keeper.slot],
                tuple(keeper.damaged),
            )
        )
    return StoreStatus(
        store.universe,
        store.log_counter,
        log.appended,
        log.persisted,
        under,
        len(segments),
        store.source_count,
        store.cached_bytes,
        room,
        room < settings.reserve,
        str(store.failure or ""),
        tuple(disks),
    )
