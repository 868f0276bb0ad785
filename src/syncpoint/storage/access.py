"""Reading frames and index pages of segments from whichever disk has them in good order.

Place: below `reader`, replay, `recovery.repair` and `recovery.trim`; callable from any thread.
Promise: whatever is returned matched its checksum in its own place. A copy that fails is reported once per call by
`damaged(segment, slot, reason)`, and the next copy is tried; only when none is good is `StorageDamaged` raised. Of a
copy on a disk that cannot be reached nothing is known: then it is `CopiesUnreachable`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from syncpoint.runtime.files import DiskFenced, DiskUnreachable, Files, read_exactly
from syncpoint.storage.catalog import Copy, Segment
from syncpoint.storage.errors import CopiesUnreachable, StorageDamaged
from syncpoint.storage.index import DamagedIndex, Record, check_page
from syncpoint.storage.record import HEADER_BYTES, Header, decode_frame
from syncpoint.storage.segment import PAGE

Damaged = Callable[[Segment, int, str], None]
RUN_GAP = 64 * 1024  # frames that lie closer are fetched in one read


class Gone(Exception):
    """The segment was removed while it was being read; ask again."""


class Access:
    """`preference()` gives the slots in the order in which they should be tried, failed disks last."""

    def __init__(self, files: Files, preference: Callable[[Segment], Sequence[int]], damaged: Damaged) -> None:
        self._files = files
        self._preference = preference
        self._damaged = damaged

    def _copies(self, segment: Segment) -> list[tuple[int, Copy]]:
        found = []
        for slot in self._preference(segment):
            copy = segment.copies.get(slot)
            if copy is not None:
                found.append((slot, copy))
        return found

    def _read(self, copy: Copy, size: int, offset: int) -> bytes:
        handle = self._files.open(copy.path, write=False)
        try:
            return read_exactly(self._files, handle, size, offset)
        finally:
            self._files.close(handle)

    def page(self, segment: Segment, offset: int, seed: int) -> bytes:
        """One page of the segment's index.

        Raises `DamagedIndex` when no copy has it, `CopiesUnreachable`, and `Gone` for a removed segment.
        """
        away = None
        for slot, copy in self._copies(segment):
            if not copy.sealed:
                continue
            try:
                return check_page(self._read(copy, PAGE, offset), seed)
            except (DiskUnreachable, DiskFenced) as error:
                away = error
            except (DamagedIndex, OSError) as error:
                if segment.removed:
                    raise Gone from None
                self._damaged(segment, slot, f"index page at {offset}: {error or 'checksum'}")
        if segment.removed:
            raise Gone
        if away is not None:
            raise _unreachable(segment) from away
        raise DamagedIndex(f"the index page at {offset} of segment {segment.log}/{segment.seq} is on no disk")

    def frames(self, segment: Segment, records: Sequence[Record]) -> list[tuple[Header, bytes]]:
        """Header and payload of each record.

        Raises `StorageDamaged` naming the first that is nowhere, `CopiesUnreachable`, or `Gone`.
        """
        away = None
        found: list[tuple[Header, bytes] | None] = [None] * len(records)
        missing = list(range(len(records)))
        for slot, copy in self._copies(segment):
            try:
                missing = self._fill(segment, copy, records, found, missing)
            except (DiskUnreachable, DiskFenced) as error:
                away = error
                continue
            except OSError as error:
                if segment.removed:
                    raise Gone from None
                self._damaged(segment, slot, f"read failed: {error}")
                continue
            if not missing:
                return [frame for frame in found if frame is not None]
            if segment.removed:
                raise Gone
            self._damaged(segment, slot, f"frame at {records[missing[0]].offset}: checksum")
        if segment.removed:
            raise Gone
        if away is not None:
            raise _unreachable(segment) from away
        record = records[missing[0]]
        position = segment.first_position + record.ordinal
        raise StorageDamaged(
            f"entry {position} of log {segment.log} is on no disk in good order",
            resume_offset=record.first_offset + record.count,
            log=segment.log,
            segment=segment.seq,
            position=position,
            source=record.source,
            first_offset=record.first_offset,
        )

    def _fill(
        self,
        segment: Segment,
        copy: Copy,
        records: Sequence[Record],
        found: list[tuple[Header, bytes] | None],
        wanted: Sequence[int],
    ) -> list[int]:
        """Fetch what one copy has in good order; returns what is still missing."""
        missing: list[int] = []
        for run in _runs(records, wanted):
            begin = records[run[0]].offset
            end = records[run[-1]].offset + HEADER_BYTES + records[run[-1]].length
            data = self._read(copy, end - begin, begin)
            for number in run:
                record = records[number]
                frame = decode_frame(data, record.offset - begin, copy.seed)
                if frame is None or frame[0].position != segment.first_position + record.ordinal:
                    missing.append(number)
                else:
                    found[number] = frame
        return missing


def _unreachable(segment: Segment) -> CopiesUnreachable:
    return CopiesUnreachable(
        f"segment {segment.seq} of log {segment.log} is on disks that cannot be reached",
        log=segment.log,
        segment=segment.seq,
    )


def _runs(records: Sequence[Record], wanted: Sequence[int]) -> list[list[int]]:
    """Group records that lie close to each other in the file, in file order."""
    runs: list[list[int]] = []
    end = -RUN_GAP
    for number in sorted(wanted, key=lambda at: records[at].offset):
        record = records[number]
        if runs and 0 <= record.offset - end <= RUN_GAP:
            runs[-1].append(number)
        else:
            runs.append([number])
        end = record.offset + HEADER_BYTES + record.length
    return runs
