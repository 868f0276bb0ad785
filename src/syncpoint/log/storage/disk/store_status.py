"""Status of a store: what is in its log, and how each of its disks is.

Place: read by health checks, metrics and the console.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from syncpoint.log.storage.disk.disk_set import DiskSet
from syncpoint.log.storage.log import Log
from syncpoint.log.storage.settings import StorageSettings

NAMED_MAX = 3  # damaged places that a reason names


@dataclass(frozen=True, slots=True)
class DiskStatus:
    """One disk. `state`: "ok", "damaged" (something can be read neither here nor on another disk), "healing" (writes,
    but lacks something), "away" (nobody serves it, or it is waited for) or "failed" (it erred or hung).
    """

    path: str
    state: str
    reason: str
    incarnation: str
    position: int  # synced up to here
    queued_bytes: int
    free_bytes: int
    pool_segments: int
    lacking_segments: int
    damaged: tuple[str, ...]  # what was found so far, healed or not
    unreadable: int = 0  # places where this disk is not what was written, and no other one has it


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
    full: bool  # publishing is refused: disks that work have no room
    too_few: bool  # publishing is refused: too few disks work
    failure: str
    disks: tuple[DiskStatus, ...]


def disk_status(
    log: Log, disks_of: DiskSet, settings: StorageSettings, source_count: int, cached_bytes: int
) -> StoreStatus:
    """Collect the figures; owner's thread."""
    maintainers, room, full = disks_of.maintainers, disks_of.room.bytes, disks_of.room.full
    segments = list(disks_of.catalog)
    lacking = [0] * len(maintainers)
    unreadable: list[list[str]] = [[] for _ in maintainers]
    under = 0
    holds = [maintainer.ok for maintainer in maintainers]
    for segment in segments:
        for slot, places in segment.unreadable.items():
            if slot in segment.copies:
                unreadable[slot] += [f"segment {segment.log}/{segment.seq}: {place}" for place in sorted(places)]
        if segment.sealed_by and segment.active is None:
            missing = [slot for slot in range(len(maintainers)) if slot not in segment.copies or not holds[slot]]
            for slot in missing:
                lacking[slot] += 1
            if missing:
                under += segment.entries
    open_from = min((s.first_position for s in segments if s.log == log.counter and s.active is not None), default=1)
    reached = min((k.writer.synced if k.ok and k.writer is not None else 0 for k in maintainers), default=0)
    under += max(0, log.appended - max(reached, open_from - 1))
    disks = []
    for maintainer in maintainers:
        writer = maintainer.writer
        error = None if writer is None else writer.error
        given_up = "failed" if maintainer.reachable else "away"
        state = given_up if not maintainer.ok else "away" if not maintainer.answers else "ok"
        if state == "ok" and lacking[maintainer.slot]:
            state = "healing"
        lost = unreadable[maintainer.slot]
        if lost and state in ("ok", "healing"):
            state = "damaged"
        reason = _in_words(lost) if state == "damaged" else "" if maintainer.ok else str(error or "not usable")
        disks.append(
            DiskStatus(
                maintainer.root,
                state,
                reason,
                writer.incarnation.hex() if writer is not None else "",
                writer.synced if writer is not None else 0,
                writer.lag_bytes if writer is not None else 0,
                maintainer.free,
                len(maintainer.pool),
                lacking[maintainer.slot],
                tuple(maintainer.damaged),
                len(lost),
            )
        )
    return StoreStatus(
        disks_of.universe,
        log.counter,
        log.appended,
        log.persisted,
        under,
        len(segments),
        source_count,
        cached_bytes,
        room,
        full,
        room < settings.reserve and not full,
        str(disks_of.failure or ""),
        tuple(disks),
    )


def _in_words(lost: Sequence[str]) -> str:
    more = f" and {len(lost) - NAMED_MAX} more" if len(lost) > NAMED_MAX else ""
    return f"no good copy on any disk: {', '.join(lost[:NAMED_MAX])}{more}"
