"""Reading frames and index pages of segments from whichever disk has them in good order.

Place: below `reader`, replay, `recovery.repair` and `recovery.trim`; callable from any thread.
Promise: whatever is returned matched its checksum in its own place. A copy that fails is reported once per call by
`damaged(segment, slot, damage)`, and the next copy is tried; `StorageDamaged` is raised only when every copy known was
asked and none is good. Of a copy on a disk that cannot be reached or was given up nothing is known, and a disk that is
late with its writes has said nothing yet: then it is `CopiesUnreachable`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from syncpoint.runtime.files import DiskFenced, DiskUnreachable, Files, FolderExchanged, read_exactly
from syncpoint.storage.catalog import Copy, Segment
from syncpoint.storage.damage import Damage, Part, Place
from syncpoint.storage.errors import CopiesUnreachable, StorageDamaged
from syncpoint.storage.index import DamagedIndex, Record, check_page
from syncpoint.storage.lanes import Lane
from syncpoint.storage.record import HEADER_BYTES, Header, decode_frame
from syncpoint.storage.segment import PAGE

Damaged = Callable[[Segment, int, Damage], None]
SLOWEST_BYTES_S = 1 << 20  # a disk that hands out this much does not hang, however large a message is
RUN_GAP = 64 * 1024  # frames that lie closer are fetched in one read


class Gone(Exception):
    """The segment was removed while it was being read; ask again."""


def _nobody_late(segment: Segment, position: int) -> bool:
    return False


def _all_answer(slot: int) -> bool:
    return True


class Access:
    """`preference()` gives the slots in the order in which they should be tried, failed disks last.

    `late(segment, position)`: whether a disk is still going to write the entry. `answers(slot)`: whether what a read of
    this disk fails with is the disk's word about the copy; not so for a disk that was given up. `lanes`, by slot: where
    there are several copies, a disk that hangs is waited for no longer than `patience_s`.
    """

    def __init__(
        self,
        files: Files,
        preference: Callable[[Segment], Sequence[int]],
        damaged: Damaged,
        late: Callable[[Segment, int], bool] = _nobody_late,
        answers: Callable[[int], bool] = _all_answer,
        lanes: Sequence[Lane] = (),
        patience_s: float = 0.0,
    ) -> None:
        self._files = files
        self._preference = preference
        self._damaged = damaged
        self._late = late
        self._answers = answers
        self._lanes = lanes
        self._patience_s = patience_s

    def _copies(self, segment: Segment) -> list[tuple[int, Copy]]:
        found = []
        for slot in self._preference(segment):
            copy = segment.copies.get(slot)
            if copy is not None:
                found.append((slot, copy))
        return found

    def _read(self, segment: Segment, slot: int, copy: Copy, size: int, offset: int) -> bytes:
        if not self._lanes or len(segment.copies) < 2:
            return self._read_now(copy, size, offset)
        patience_s = self._patience_s + size / SLOWEST_BYTES_S
        return self._lanes[slot].run(lambda: self._read_now(copy, size, offset), patience_s)

    def _read_now(self, copy: Copy, size: int, offset: int) -> bytes:
        handle = self._files.open(copy.path, write=False)
        try:
            return read_exactly(self._files, handle, size, offset)
        finally:
            self._files.close(handle)

    def page(self, segment: Segment, offset: int, seed: int) -> bytes:
        """One page of the segment's index.

        Raises `DamagedIndex` when no copy has it, `CopiesUnreachable`, and `Gone` for a removed segment.
        """
        away: Exception | None = None
        for slot, copy in self._copies(segment):
            if not copy.sealed:
                continue
            try:
                return check_page(self._read(segment, slot, copy, PAGE, offset), seed)
            except (DiskUnreachable, DiskFenced, FolderExchanged) as error:
                away = error
            except (DamagedIndex, OSError) as error:
                if segment.removed:
                    raise Gone from None
                if isinstance(error, OSError) and not self._answers(slot):
                    away = error
                else:
                    self._damaged(segment, slot, Damage(Place(Part.INDEX, offset), str(error) or "checksum"))
        if segment.removed:
            raise Gone
        if away is not None:
            raise _unreachable(segment) from away
        raise DamagedIndex(f"the index page at {offset} of segment {segment.log}/{segment.seq} is on no disk")

    def frames(self, segment: Segment, records: Sequence[Record]) -> list[tuple[Header, bytes]]:
        """Header and payload of each record.

        Raises `StorageDamaged` naming the first that is nowhere, `CopiesUnreachable`, or `Gone`.
        """
        away: Exception | None = None
        found: list[tuple[Header, bytes] | None] = [None] * len(records)
        missing = list(range(len(records)))
        for slot, copy in self._copies(segment):
            try:
                missing = self._fill(segment, slot, copy, records, found, missing)
            except (DiskUnreachable, DiskFenced, FolderExchanged) as error:
                away = error
                continue
            except OSError as error:
                if segment.removed:
                    raise Gone from None
                if self._answers(slot):
                    self._damaged(segment, slot, Damage(Place(Part.FILE), f"read failed: {error}"))
                else:
                    away = error
                continue
            if not missing:
                return [frame for frame in found if frame is not None]
            if segment.removed:
                raise Gone
            bad = [at for at in missing if copy.has(segment.first_position + records[at].ordinal)]
            if bad:
                self._damaged(segment, slot, Damage(Place(Part.FRAME, records[bad[0]].offset), "checksum"))
        if segment.removed:
            raise Gone
        record = records[missing[0]]
        position = segment.first_position + record.ordinal
        if away is not None or self._late(segment, position):
            raise _unreachable(segment) from away
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
        slot: int,
        copy: Copy,
        records: Sequence[Record],
        found: list[tuple[Header, bytes] | None],
        wanted: Sequence[int],
    ) -> list[int]:
        """Fetch what one copy has in good order; returns what is still missing."""
        first = segment.first_position
        missing = [at for at in wanted if not copy.has(first + records[at].ordinal)]
        for run in _runs(records, [at for at in wanted if copy.has(first + records[at].ordinal)]):
            begin = records[run[0]].offset
            end = records[run[-1]].offset + HEADER_BYTES + records[run[-1]].length
            data = self._read(segment, slot, copy, end - begin, begin)
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
        f"segment {segment.seq} of log {segment.log} is on disks that cannot be reached or have not written it yet",
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
