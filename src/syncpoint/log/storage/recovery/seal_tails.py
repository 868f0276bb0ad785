"""Seal every log that an earlier life left open: on an acknowledging set of disks, synced, before anything is served.

Place: the last step of an opening; `repair` rewrites and seals one copy.
Promise: what was decided about a tail holds from here on, whichever disks the next opening finds. A copy that cannot be
written stays a source until enough others are sealed. What other disks lack is completed in the background.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from syncpoint.base.runtime.files import Files
from syncpoint.base.runtime.random import Random
from syncpoint.log.storage.disk.segment_catalog import Segment, SegmentCopy
from syncpoint.log.storage.errors import DisksMissing
from syncpoint.log.storage.recovery.find_tail import SegmentTail
from syncpoint.log.storage.recovery.load import LoadedSegments
from syncpoint.log.storage.recovery.opening_disks import OpeningDisks
from syncpoint.log.storage.recovery.repair import rebuild, seal_again, seal_tail
from syncpoint.log.storage.segment import SegmentHeader

OnCopy = Callable[[Files, str, SegmentHeader, Segment], None]


def seal_tails(disks: OpeningDisks, loaded: LoadedSegments, random: Random, counter: int) -> None:
    """Seal what is not sealed, by the log `counter`. Raises `StorageError`."""
    last = {segment.log: segment for segment, _ in loaded.segments}
    ended = {segment.log for segment, found in loaded.segments if found.trailer is not None and found.trailer.final}
    recovered = disks.recovered
    for segment, found in loaded.segments:
        ends = last[segment.log] is segment
        recovered.logs[segment.log] = segment.last_position
        if found.trailer is None:
            segment.sealed_by, segment.final = counter, ends
            _seal_on_enough(disks, loaded, random, segment, found)
        elif ends and segment.log not in ended:
            segment.sealed_by, segment.final = counter, True
            _on_copies(disks, list(segment.copies), segment, found, seal_again)
        lacking = [disk.root for disk in disks.good if disk.slot not in segment.copies]
        recovered.incomplete += [f"{segment.log}/{segment.seq} on {root}" for root in lacking]


def _on_copies(
    disks: OpeningDisks, slots: Sequence[int], segment: Segment, found: SegmentTail, act: OnCopy
) -> list[int]:
    """Change copies of a segment, at once; the slots on which it succeeded. The other disks are given up."""
    copies = [found.copies[slot] for slot in slots]
    done = []
    calls = [partial(act, disks.files, copy.path, copy.header, segment) for copy in copies]
    for slot, outcome in zip(slots, disks.together(calls), strict=True):
        if isinstance(outcome, OSError):
            segment.copies.pop(slot, None)
            disks.fail(disks.all[slot], outcome)
        elif isinstance(outcome, Exception):
            raise outcome
        else:
            done.append(slot)
    return done


def _seal_on_enough(
    disks: OpeningDisks, loaded: LoadedSegments, random: Random, segment: Segment, found: SegmentTail
) -> None:
    done: dict[int, SegmentCopy] = {}
    slots = [slot for slot in sorted(found.complete) if disks.all[slot].error is None]
    sources = segment.copies.copy()
    for slot in _on_copies(disks, slots, segment, found, seal_tail):
        done[slot] = segment.copies[slot]
        done[slot].sealed = True
    segment.copies.update(sources)  # what cannot be written, of a full disk perhaps, can still be read
    segment.footer()
    for disk in disks.good:
        if disks.rule.can_acknowledge(done):
            break
        if disk.slot in done or disk.identity is None:
            continue
        try:
            copy, _ = rebuild(
                disks.files,
                random,
                loaded.catalog,
                loaded.access,
                segment,
                disk.slot,
                disk.root,
                disk.identity.incarnation,
                whole=not found.lost,
            )
        except OSError as error:
            disks.fail(disk, error)
            continue
        # It took the place of a copy that may have been the only one to hold some entry.
        done[disk.slot] = segment.copies[disk.slot] = copy
    if not disks.rule.can_acknowledge(done):
        raise DisksMissing(f"too few disks could seal segment {segment.seq} of log {segment.log}")
    segment.copies.clear()
    segment.copies.update(done)
    segment.forget_active()
