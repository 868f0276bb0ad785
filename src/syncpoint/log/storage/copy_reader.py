"""Reading frames and index pages of segments from whichever disk has them in good order.

Place: below `reader`, replay, `recovery.repair` and `recovery.trim`; callable from any thread.
Promise: whatever is returned matched its checksum in its own place. A copy that fails is reported once per call by
`damaged(segment, slot, damage)`, and the next copy is tried; `StorageDamaged` is raised only when every copy known was
asked and none is good. Of a copy on a disk that cannot be reached or was given up nothing is known, and a disk that is
late with its writes has said nothing yet: then it is `CopiesUnreachable`. What a disk had when it was asked counts,
not what it has got since.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

from syncpoint.base.runtime.call_queues import CallQueue
from syncpoint.base.runtime.file_content import read_pieces
from syncpoint.base.runtime.files import DiskFenced, DiskUnreachable, Files, FolderExchanged
from syncpoint.log.storage.damage import Damage, SegmentPart, SegmentPlace
from syncpoint.log.storage.disk.segment_catalog import Segment, SegmentCopy
from syncpoint.log.storage.errors import CopiesUnreachable, StorageDamaged
from syncpoint.log.storage.index import DamagedIndex, IndexRecord, check_page
from syncpoint.log.storage.record import HEADER_BYTES, Header, check_payload, decode_frame, decode_header
from syncpoint.log.storage.segment import PAGE

log = logging.getLogger(__name__)

Damaged = Callable[[Segment, int, Damage], None]
TakeFrame = Callable[[IndexRecord, bytes], bool]
"""Is given the payload of a record, and says whether it takes another."""
SLOWEST_BYTES_S = 1 << 20  # a disk that hands out this much does not hang, however large a message is
RUN_GAP = 64 * 1024  # frames that lie closer are fetched in one read
PART_BYTES = 256 * 1024  # read, verified and used before the next; fits into a processor's cache
FAR_PART_BYTES = 8 << 20  # the same where each read costs two changes of threads, and mostly a trip to another process
LARGE = 64 * 1024  # payloads from this size on are pieces of their own: a call costs less than copying them out


class Gone(Exception):
    """The segment was removed while it was being read; ask again."""


def _nobody_late(segment: Segment, position: int) -> bool:
    return False


def _all_answer(slot: int) -> bool:
    return True


class CopyReader:
    """`preference()` gives the slots in the order in which they should be tried, failed disks last.

    `late(segment, position)`: whether a disk is still going to write the entry. `answers(slot)`: whether what a read of
    this disk fails with is the disk's word about the copy; not so for a disk that was given up. `queues`, by slot:
    where there are several copies, a disk that hangs is waited for no longer than `patience_s`. `page_queues`: the same
    for pages of indexes, which an event loop may wait for: they pass frames that are being read.
    """

    def __init__(
        self,
        files: Files,
        preference: Callable[[Segment], Iterable[int]],
        damaged: Damaged,
        late: Callable[[Segment, int], bool] = _nobody_late,
        answers: Callable[[int], bool] = _all_answer,
        queues: Sequence[CallQueue] = (),
        patience_s: float = 0.0,
        page_queues: Sequence[CallQueue] = (),
    ) -> None:
        self._page_queues = page_queues or queues
        self._files = files
        self._preference = preference
        self._damaged = damaged
        self._late = late
        self._answers = answers
        self._queues = queues
        self._patience_s = patience_s

    def _copies(self, segment: Segment) -> Iterator[tuple[int, SegmentCopy]]:
        for slot in self._preference(segment):
            copy = segment.copies.get(slot)
            if copy is not None:
                yield slot, copy

    def _read(
        self,
        segment: Segment,
        slot: int,
        copy: SegmentCopy,
        sizes: Sequence[int],
        offset: int,
        queues: Sequence[CallQueue] = (),
    ) -> list[bytes]:
        if not self._queued(segment):
            return self._read_now(copy, sizes, offset)
        patience_s = self._patience_s + sum(sizes) / SLOWEST_BYTES_S
        queue = (queues or self._queues)[slot]
        return queue.run(lambda: self._read_now(copy, sizes, offset), patience_s)

    def part_bytes(self, segment: Segment) -> int:
        """How much of a segment to ask for at once, where it is used part by part."""
        return FAR_PART_BYTES if self._queued(segment) else PART_BYTES

    def _queued(self, segment: Segment) -> bool:
        return bool(self._queues) and len(segment.copies) > 1

    def _read_now(self, copy: SegmentCopy, sizes: Sequence[int], offset: int) -> list[bytes]:
        pieces: list[bytes] = []
        self._files.pread_path(copy.path, sizes, offset, pieces.append)
        return pieces

    def page(self, segment: Segment, offset: int, seed: int) -> bytes:
        """One page of the segment's index.

        Raises `DamagedIndex` when no copy has it, `CopiesUnreachable`, and `Gone` for a removed segment.
        """
        away: Exception | None = None
        for slot, copy in self._copies(segment):
            if not copy.sealed:
                continue
            try:
                return check_page(self._read(segment, slot, copy, (PAGE,), offset, self._page_queues)[0], seed)
            except (DiskUnreachable, DiskFenced, FolderExchanged) as error:
                away = error
            except (DamagedIndex, OSError) as error:
                if segment.removed:
                    raise Gone from None
                if isinstance(error, OSError) and not self._answers(slot):
                    away = error
                else:
                    self._damaged(
                        segment, slot, Damage(SegmentPlace(SegmentPart.INDEX, offset), str(error) or "checksum")
                    )
        if segment.removed:
            raise Gone
        if away is not None:
            raise _unreachable(segment) from away
        raise DamagedIndex(f"index page {offset} of segment {segment.log}/{segment.seq} is missing on every disk")

    def frames(self, segment: Segment, records: Sequence[IndexRecord]) -> list[tuple[Header, bytes]]:
        """Header and payload of each record.

        Raises `StorageDamaged` naming the first that is nowhere, `CopiesUnreachable`, or `Gone`.
        """
        away: Exception | None = None
        found: list[tuple[Header, bytes] | None] = [None] * len(records)
        missing = list(range(len(records)))
        coming: set[int] = set()  # what some disk had yet to write when it was asked
        for slot, copy in self._copies(segment):
            held = [at for at in missing if copy.has(segment.first_position + records[at].ordinal)]
            if len(held) < len(missing):
                coming.update(self._coming(segment, copy, records, set(missing).difference(held)))
            try:
                bad = self._fill(segment, slot, copy, records, found, held)
            except (DiskUnreachable, DiskFenced, FolderExchanged) as error:
                away = error
                continue
            except OSError as error:
                if segment.removed:
                    raise Gone from None
                if self._answers(slot):
                    self._damaged(segment, slot, Damage(SegmentPlace(SegmentPart.FILE), f"read failed: {error}"))
                else:
                    away = error
                continue
            missing = [at for at in missing if found[at] is None]
            if not missing:
                return [frame for frame in found if frame is not None]
            if segment.removed:
                raise Gone
            if bad:
                self._damaged(
                    segment, slot, Damage(SegmentPlace(SegmentPart.FRAME, records[bad[0]].offset), "checksum")
                )
        if segment.removed:
            raise Gone
        record = records[missing[0]]
        position = segment.first_position + record.ordinal
        if away is not None or missing[0] in coming or self._late(segment, position):
            raise _unreachable(segment) from away
        raise StorageDamaged(
            f"entry {position} of log {segment.log} has no good copy on any disk",
            resume_offset=record.first_offset + record.count,
            log=segment.log,
            segment=segment.seq,
            position=position,
            source=record.source,
            first_offset=record.first_offset,
        )

    def _coming(
        self, segment: Segment, copy: SegmentCopy, records: Sequence[IndexRecord], lacking: Iterable[int]
    ) -> Iterator[int]:
        """Which of these the disk is going to write, or has written since it was seen to lack them."""
        for at in lacking:
            position = segment.first_position + records[at].ordinal
            if self._late(segment, position) or copy.has(position):
                yield at

    def frame_of(
        self, segment: Segment, slot: int, copy: SegmentCopy, record: IndexRecord
    ) -> tuple[Header, bytes] | None:
        """What one copy has of a record; None: not what was written. Raises `OSError`. Nothing is reported."""
        sizes = _sizes([record])
        pieces = self._read(segment, slot, copy, sizes, record.offset)
        frame = next(_frames([record], sizes, pieces, copy.seed))
        return frame if frame is not None and frame[0].position == segment.first_position + record.ordinal else None

    def hand_over(self, segment: Segment, records: Sequence[IndexRecord], take: TakeFrame) -> tuple[int, bool]:
        """Give `take` the frames of records, each while it comes from a disk, as far as the first copy asked has them
        in good order: how many it got, and whether it wants more. It is called by another thread, never after this has
        returned; what it raises is raised here. Whatever may be wrong with the rest is left to `frames`.

        Only where reads are queued: elsewhere it is none, since a small part is read as fast as the next one.
        """
        if not self._queued(segment):
            return 0, True
        first = segment.first_position
        whole = (one for one in self._copies(segment) if all(one[1].has(first + record.ordinal) for record in records))
        slot, copy = next(whole, (0, None))
        if copy is None or _runs(records, range(len(records))) != [list(range(len(records)))]:
            return 0, True
        sizes = _sizes(records)
        coming = _Coming(records, sizes, copy.seed, first, take)
        patience_s = self._patience_s + sum(sizes) / SLOWEST_BYTES_S
        try:
            self._queues[slot].run(
                lambda: self._files.pread_path(copy.path, sizes, records[0].offset, coming.piece), patience_s
            )
        except OSError as error:
            log.debug("segment %d of log %d is read from another disk: %s", segment.seq, segment.log, error)
        return coming.stop()

    def opened(self, segment: Segment) -> Opened:
        """For many calls of `frames` in a row; to be closed."""
        return Opened(self, self._files, segment)

    def _fill(
        self,
        segment: Segment,
        slot: int,
        copy: SegmentCopy,
        records: Sequence[IndexRecord],
        found: list[tuple[Header, bytes] | None],
        wanted: Sequence[int],
    ) -> list[int]:
        """Fetch these from one copy that has them; returns those that are not in good order."""
        bad: list[int] = []
        for run in _runs(records, wanted):
            part = [records[number] for number in run]
            sizes = _sizes(part)
            pieces = self._read(segment, slot, copy, sizes, part[0].offset)
            for number, frame in zip(run, _frames(part, sizes, pieces, copy.seed), strict=True):
                record = records[number]
                if frame is None or frame[0].position != segment.first_position + record.ordinal:
                    bad.append(number)
                else:
                    found[number] = frame
        return bad


class _Coming:
    """Frames that are verified and used piece by piece, as they come; their bytes are let go of at once."""

    def __init__(
        self, records: Sequence[IndexRecord], sizes: Sequence[int], seed: int, first: int, take: TakeFrame
    ) -> None:
        self._records, self._first, self._take = records, first, take
        self._pieces: list[bytes] = []
        self._frames = _frames(records, sizes, self._pieces, seed)
        self._ends = _ends(records)
        self._lock = threading.Lock()  # a call that was given up may still go on in its thread
        self._taken = 0
        self._over = False
        self._wants = True
        self._error: Exception | None = None

    def piece(self, data: bytes) -> None:
        """On the thread of the disk."""
        with self._lock:
            if self._over:
                return
            self._pieces.append(data)
            try:
                while not self._over and self._taken < len(self._records):
                    if self._ends[self._taken] >= len(self._pieces):
                        return
                    self._use()
            except Exception as error:  # for the one who waits
                self._error = error
            self._over = True

    def _use(self) -> None:
        record, frame = self._records[self._taken], next(self._frames)
        if frame is None or frame[0].position != self._first + record.ordinal:
            self._over = True
            return
        if record.length >= LARGE:
            self._pieces[-1] = b""
        self._taken += 1
        self._over = not self._take(record, frame[1])
        self._wants = not self._over

    def stop(self) -> tuple[int, bool]:
        """Nothing is taken any more. How many frames were, and whether more are wanted."""
        with self._lock:
            self._over = True
        if self._error is not None:
            raise self._error
        return self._taken, self._wants


class Opened:
    """The frames of one segment. A file that is the only copy stays open from call to call; whatever may be wrong with
    it is left to `CopyReader.frames`, which reads again, reports and raises.
    """

    def __init__(self, access: CopyReader, files: Files, segment: Segment) -> None:
        self._access, self._files, self._segment = access, files, segment
        self._copy = next(iter(segment.copies.values())) if len(segment.copies) == 1 else None
        self._handle: int | None = None

    def frames(self, records: Sequence[IndexRecord]) -> list[tuple[Header, bytes]]:
        found = None
        if self._copy is not None:
            try:
                found = self._read(self._copy, records)
            except OSError as error:
                log.debug("segment %d of log %d is reopened: %s", self._segment.seq, self._segment.log, error)
        if found is None:
            self._copy = None
            return self._access.frames(self._segment, records)
        return found

    def _read(self, copy: SegmentCopy, records: Sequence[IndexRecord]) -> list[tuple[Header, bytes]] | None:
        first = self._segment.first_position
        if len(records) > 1 and len(_runs(records, range(len(records)))) > 1:
            return None
        if not all(copy.has(first + record.ordinal) for record in records):
            return None
        if self._handle is None:
            self._handle = self._files.open(copy.path, write=False)
        sizes = _sizes(records)
        pieces = read_pieces(self._files, self._handle, sizes, records[0].offset)
        found = []
        for record, frame in zip(records, _frames(records, sizes, pieces, copy.seed), strict=True):
            if frame is None or frame[0].position != first + record.ordinal:
                return None
            found.append(frame)
        return found

    def close(self) -> None:
        if self._handle is not None:
            handle, self._handle = self._handle, None
            self._files.close(handle)


def _unreachable(segment: Segment) -> CopiesUnreachable:
    return CopiesUnreachable(
        f"segment {segment.seq} of log {segment.log} is only on disks that are unreachable or have not written it yet",
        log=segment.log,
        segment=segment.seq,
    )


def _sizes(records: Sequence[IndexRecord]) -> list[int]:
    """Into which pieces a run is cut: every large payload is one, and whatever lies between two of them."""
    sizes = []
    at = records[0].offset
    for record in records:
        begin = record.offset + HEADER_BYTES
        if record.length >= LARGE:
            sizes += [begin - at, record.length]
            at = begin + record.length
    end = records[-1].offset + HEADER_BYTES + records[-1].length
    if at < end:
        sizes.append(end - at)
    return sizes


def _ends(records: Sequence[IndexRecord]) -> list[int]:
    """The number of the piece with which each record is whole."""
    ends, number = [], 0
    for record in records:
        large = record.length >= LARGE
        ends.append(number + large)
        number += 2 * large
    return ends


def _frames(
    records: Sequence[IndexRecord], sizes: Sequence[int], pieces: list[bytes], seed: int
) -> Iterator[tuple[Header, bytes] | None]:
    """The frames of a run, from its pieces; None: one is not in good order."""
    number, begin = 0, records[0].offset
    for record in records:
        if record.length < LARGE:
            yield decode_frame(pieces[number], record.offset - begin, seed)
            continue
        header = decode_header(pieces[number], record.offset - begin, seed)
        yield None if header is None else check_payload(header, pieces[number + 1])
        begin += sizes[number] + sizes[number + 1]
        number += 2


def _runs(records: Sequence[IndexRecord], wanted: Sequence[int]) -> list[list[int]]:
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
