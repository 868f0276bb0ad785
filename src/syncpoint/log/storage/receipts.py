"""Receipts: which disks hold one entry, each copy read and checked by its checksum.

Place: beside `reader`, on whose thread disks are read; `Store.receipt` asks.
Promise: a disk is said to hold an entry only if the entry was read from that disk in good order just now and was
synced there. What could not be asked is `unreachable`, never `absent`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple

from syncpoint.base.runtime.files import DiskFenced, DiskUnreachable, FolderExchanged
from syncpoint.log.storage.copy_reader import CopyReader, Gone
from syncpoint.log.storage.disk.maintenance import DiskMaintainer
from syncpoint.log.storage.disk.segment_catalog import Segment, SegmentCatalog
from syncpoint.log.storage.index import IndexRecord


class CopyState(StrEnum):
    """What is known of one disk's copy of an entry."""

    HELD = "held"  # read just now, in good order, and synced
    LATE = "late"  # a member that has not synced it yet
    DAMAGED = "damaged"  # not what was written
    UNREACHABLE = "unreachable"  # nobody can say
    ABSENT = "absent"  # the disk has no copy of the segment


class EntryCopy(NamedTuple):
    """One disk's copy. `disk`: its folder, `reason`: why it is not held, in words."""

    disk: str
    state: CopyState
    reason: str = ""


class EntryReceipt(NamedTuple):
    """One entry of the log, with one of `copies` for each disk of the store. `suffices`: the disks that hold it could
    have acknowledged it. `needed`: how many disks the smallest such set has.
    """

    log: int
    position: int
    first_offset: int
    messages: int
    bytes: int
    time_ns: int
    suffices: bool
    needed: int
    copies: Sequence[EntryCopy]


class DiskNow(NamedTuple):
    """A disk as the owner's thread sees it. `answers`: it has not failed, and is not being waited for. `synced`: up to
    which position of the log that is written now."""

    folder: str
    answers: bool
    synced: int


def disks_now(maintainers: Sequence[DiskMaintainer]) -> list[DiskNow]:
    """All disks of a store, by slot; owner's thread."""
    return [
        DiskNow(one.root, one.ok and one.answers, 0 if one.writer is None else one.writer.synced) for one in maintainers
    ]


ReceiptReply = Callable[[EntryReceipt | Exception | None], None]
"""None: no such message is stored any more, or none is persisted yet."""


class ReceiptRequest(NamedTuple):
    """Which message, and what was known when it was asked for. `log`: the one that is written now."""

    source: int
    offset: int
    log: int
    persisted: int
    segments: Sequence[Segment]
    disks: Sequence[DiskNow]


def receipt(request: ReceiptRequest, catalog: SegmentCatalog, access: CopyReader) -> EntryReceipt | None:
    """Read every copy. On the reader's thread; raises `Gone`, `DamagedIndex` and `CopiesUnreachable`."""
    for segment in request.segments:
        if segment.removed:
            raise Gone
        records = catalog.index(segment).records(request.source, request.offset, 1)
        if not records or records[0].first_offset > request.offset:
            continue
        position = segment.first_position + records[0].ordinal
        if segment.log == request.log and position > request.persisted:
            return None
        return _examined(request, segment, records[0], access)
    return None


def _examined(request: ReceiptRequest, segment: Segment, record: IndexRecord, access: CopyReader) -> EntryReceipt:
    position = segment.first_position + record.ordinal
    copies = [
        EntryCopy(disk.folder, *_state(request, segment, slot, record, access))
        for slot, disk in enumerate(request.disks)
    ]
    if segment.removed:
        raise Gone
    held = [slot for slot, copy in enumerate(copies) if copy.state is CopyState.HELD]
    return EntryReceipt(
        segment.log,
        position,
        record.first_offset,
        record.count,
        record.length,
        record.time_ns,
        segment.rule.can_acknowledge(held),
        segment.rule.smallest,
        copies,
    )


def _state(
    request: ReceiptRequest, segment: Segment, slot: int, record: IndexRecord, access: CopyReader
) -> tuple[CopyState, str]:
    disk, copy = request.disks[slot], segment.copies.get(slot)
    if not disk.answers:
        return CopyState.UNREACHABLE, "the disk failed or does not answer"
    if copy is None:
        return CopyState.ABSENT, "the disk joined later and has not caught up yet"
    position = segment.first_position + record.ordinal
    if not copy.sealed and (not copy.has(position) or (segment.log == request.log and disk.synced < position)):
        return CopyState.LATE, "not written yet"
    try:
        found = access.frame_of(segment, slot, copy, record)
    except (DiskUnreachable, DiskFenced, FolderExchanged) as error:
        return CopyState.UNREACHABLE, str(error) or "the disk does not answer"
    except OSError as error:
        return CopyState.DAMAGED, f"read failed: {error}"
    return (CopyState.HELD, "") if found else (CopyState.DAMAGED, "checksum mismatch")
