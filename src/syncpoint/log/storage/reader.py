"""Reads from disk: find the batches of a source, fetch them in few large reads, verify, answer.

Place: for what the tail cache lacks; a worker thread calls `step`, answers go to the owner's thread by `notify`.
Promise: batches in offset order without holes as far as they are stored, each verified against its checksum; a bad
copy is reported and another disk's is served. Where a source goes on, more than was asked for is fetched and kept for
the next read.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from typing import NamedTuple

from syncpoint.log.storage.copy_reader import CopyReader, Gone, Opened
from syncpoint.log.storage.disk.segment_catalog import Segment, SegmentCatalog
from syncpoint.log.storage.errors import CopiesUnreachable
from syncpoint.log.storage.index import DamagedIndex, IndexRecord
from syncpoint.log.storage.record import StoredBatch

Reply = Callable[[list[StoredBatch] | Exception], None]
Take = Callable[[StoredBatch], bool]
"""Is given a batch, while the reader's thread is at this read, and returns whether it takes another. It may be called
by another thread, for which that one waits."""
_FIRST_LOOK = 8  # records taken from an index at first: entries are mostly large, or there are few
_LOOK = 64  # and at once later on


class ReadRequest(NamedTuple):
    """One read: look into `segments` in order.

    With `take`, which gets the batches in place of `reply` (that gets an empty list after them), nothing is fetched
    beyond the batch with which `max_bytes` are full; without, at least one batch is, and what fits.
    """

    source: int
    begin: int
    max_bytes: int
    persisted: int  # nothing of the log `log` above it is shown
    log: int
    segments: Sequence[Segment]
    tangled: bool
    reply: Reply
    take: Take | None = None


class _Found(NamedTuple):
    segment: Segment
    record: IndexRecord


class ReadAhead:
    """Batches fetched beyond what was asked; the least recently used source goes first."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._sources: OrderedDict[int, list[StoredBatch]] = OrderedDict()

    def put(self, source: int, batches: list[StoredBatch]) -> None:
        self.drop(source)
        if batches:
            self._sources[source] = batches
            self._bytes += sum(len(batch.payload) for batch in batches)
        while self._bytes > self._bytes_max and self._sources:
            self.drop(next(iter(self._sources)))

    def drop(self, source: int) -> None:
        gone = self._sources.pop(source, None)
        if gone:
            self._bytes -= sum(len(batch.payload) for batch in gone)

    def take(self, source: int, begin: int, max_bytes: int) -> list[StoredBatch]:
        """Batches from the one that holds `begin`, if it is here; what is left stays."""
        held = self._sources.get(source)
        if not held or not held[0].first_offset <= begin < held[-1].first_offset + held[-1].count:
            return []
        wanted = [batch for batch in held if batch.first_offset + batch.count > begin]
        if not wanted[0].first_offset <= begin:
            return []
        taken = limit(wanted, max_bytes)
        self.put(source, wanted[len(taken) :])
        return taken


def limit(batches: list[StoredBatch], max_bytes: int) -> list[StoredBatch]:
    """At least one batch, then as many as fit."""
    size = 0
    for number, batch in enumerate(batches):
        size += len(batch.payload)
        if size > max_bytes and number:
            return batches[:number]
    return batches


class _NoIndex(Exception):
    """A segment's index is on no disk, and cannot be built again."""

    def __init__(self, segment: Segment) -> None:
        super().__init__(segment)
        self.segment = segment


class StoreReader:
    """The queue of reads and the thread's step."""

    def __init__(
        self,
        catalog: SegmentCatalog,
        access: CopyReader,
        ahead_bytes: int,
        notify: Callable[[Callable[[], None]], None],
        retry: Callable[[ReadRequest], None],
        unlisted: Callable[[ReadRequest, Segment], None],
    ) -> None:
        """On the owner's thread: `retry` a request whose segments were removed; `unlisted`: what a segment has of the
        source is unknown, its index is gone and so are some of its frames.
        """
        self._catalog = catalog
        self._access = access
        self._ahead_bytes = ahead_bytes
        self._notify = notify
        self._retry = retry
        self._unlisted = unlisted
        self._queue: deque[ReadRequest | Callable[[], None]] = deque()
        self._ahead = ReadAhead(8 * ahead_bytes)

    def put(self, request: ReadRequest | Callable[[], None]) -> None:
        """Queue a read, or any other job that waits for disks and reports by itself."""
        self._queue.append(request)

    def step(self) -> float | None:
        """Answer one read, or run one job."""
        try:
            request = self._queue.popleft()
        except IndexError:
            return None
        if not isinstance(request, ReadRequest):
            request()
            return 0.0 if self._queue else None
        answer: list[StoredBatch] | Exception
        try:
            answer = self._serve(request)
        except Gone:
            self._notify(lambda: self._retry(request))
            return 0.0
        except _NoIndex as error:
            segment = error.segment
            self._notify(lambda: self._unlisted(request, segment))
            return 0.0
        except Exception as error:  # reported to the caller, the thread goes on
            answer = error
        self._notify(lambda: request.reply(answer))
        return 0.0 if self._queue else None

    def _serve(self, request: ReadRequest) -> list[StoredBatch]:
        if not request.tangled:
            ahead = self._ahead.take(request.source, request.begin, request.max_bytes)
            if ahead:
                return ahead
        wanted = request.max_bytes if request.take is not None else max(request.max_bytes, self._ahead_bytes)
        begin, size = request.begin, 0
        found: list[_Found] = []
        try:
            for part in self._parts(request, begin):
                for one in part:
                    found.append(one)
                    size += one.record.length
                if size >= wanted:
                    break
        except (_NoIndex, CopiesUnreachable):
            if not found:
                raise  # else the next read meets it first
        if not found:
            return []
        if request.take is not None:
            return self._hand_over(request.take, _filling(found, wanted))
        return self._fetch(request, _up_to(found, wanted))

    def _parts(self, request: ReadRequest, begin: int) -> _Parts:
        return _Parts(self._catalog, request, begin)

    def _hand_over(self, take: Take, found: list[_Found]) -> list[StoredBatch]:
        """What comes out of the disk's cache is used while it is in the processor's, and then let go of."""

        def took(record: IndexRecord, payload: bytes) -> bool:
            return take(StoredBatch(record.source, record.first_offset, record.count, record.time_ns, payload))

        at = 0
        while at < len(found):
            segment = found[at].segment
            run = _run(found, at, self._access.part_bytes(segment))
            taken, wants = self._access.hand_over(segment, run, took)
            at += taken
            if not wants:
                return []
            if taken < len(run):
                break
        for part in self._in_parts(found, self._access.part_bytes, at):
            while part:
                if not take(part.pop(0)):
                    return []
        return []

    def _fetch(self, request: ReadRequest, found: list[_Found]) -> list[StoredBatch]:
        batches = [batch for part in self._in_parts(found, lambda segment: sys.maxsize) for batch in part]
        asked = limit(batches, request.max_bytes)
        if not request.tangled:
            self._ahead.put(request.source, batches[len(asked) :])
        return asked

    def _in_parts(
        self, found: list[_Found], part_bytes: Callable[[Segment], int], at: int = 0
    ) -> Iterator[list[StoredBatch]]:
        """The batches from number `at` on, so many bytes of a segment at a time. It ends where trouble begins, and
        raises if that is at the very first batch: what was found before is good, and the next read meets the trouble
        first.
        """
        with ExitStack() as opened:
            here: Opened | None = None
            while at < len(found):
                segment, run = found[at].segment, _run(found, at, part_bytes(found[at].segment))
                if here is None or found[at - 1].segment is not segment:
                    opened.close()
                    here = opened.enter_context(closing(self._access.opened(segment)))
                try:
                    frames = here.frames(run)
                except Exception:
                    if at:
                        return
                    if len(run) == 1:
                        raise
                    run = run[:1]
                    frames = here.frames(run)
                    found = found[:1]
                batches = [
                    StoredBatch(record.source, record.first_offset, record.count, record.time_ns, frame[1])
                    for record, frame in zip(run, frames, strict=True)
                ]
                at += len(run)
                del frames
                yield batches


def _run(found: list[_Found], at: int, bytes_max: int) -> list[IndexRecord]:
    """From `at` on: at least one record, then as many of the same segment as fit."""
    segment, size = found[at].segment, 0
    run: list[IndexRecord] = []
    for one in found[at:]:
        size += one.record.length
        if run and (one.segment is not segment or size > bytes_max):
            break
        run.append(one.record)
    return run


def _up_to(found: list[_Found], wanted: int) -> list[_Found]:
    size = 0
    for number, one in enumerate(found):
        size += one.record.length
        if size > wanted and number:
            return found[:number]
    return found


def _filling(found: list[_Found], wanted: int) -> list[_Found]:
    """The fewest that together have this many bytes."""
    size = 0
    for number, one in enumerate(found):
        size += one.record.length
        if size >= wanted:
            return found[: number + 1]
    return found


class _Parts:
    """Records in offset order, part by part."""

    def __init__(self, catalog: SegmentCatalog, request: ReadRequest, begin: int) -> None:
        self._catalog = catalog
        self._request = request
        self._begin = begin
        self._look = _FIRST_LOOK

    def __iter__(self) -> _Parts:
        return self

    def __next__(self) -> list[_Found]:
        part = self._merged() if self._request.tangled else self._straight()
        if not part:
            raise StopIteration
        last = part[-1].record
        self._begin = last.first_offset + last.count
        self._look = min(2 * self._look, _LOOK)
        return part

    def _records(self, segment: Segment) -> tuple[list[IndexRecord], int | None]:
        """The next ones that are shown, and up to which offset that is all; None: there are no more, shown or not. What
        was just copied forward lies among what is shown, in any order.
        """
        request = self._request
        if segment.removed:
            raise Gone
        try:
            records = self._catalog.index(segment).records(request.source, self._begin, self._look)
        except DamagedIndex as error:
            raise _NoIndex(segment) from error
        upto = records[-1].first_offset if len(records) == self._look else None
        if segment.log == request.log and segment.last_position > request.persisted:
            records = [r for r in records if segment.first_position + r.ordinal <= request.persisted]
        return records, upto

    def _straight(self) -> list[_Found]:
        for segment in self._request.segments:
            records, _ = self._records(segment)
            if records:
                return [_Found(segment, record) for record in records]
        return []

    def _merged(self) -> list[_Found]:
        """Several segments may hold the next offsets; an original and its copy hold the same ones."""
        while True:
            looked = [(segment, *self._records(segment)) for segment in self._request.segments]
            part, safe = self._merge(looked)
            if part or safe is None:
                return part
            self._begin = safe + 1  # nothing up to there is shown

    def _merge(self, looked: list[tuple[Segment, list[IndexRecord], int | None]]) -> tuple[list[_Found], int | None]:
        """Those up to the offset that all were read to, and that one."""
        safe = min((upto for *_, upto in looked if upto is not None), default=None)
        lists = [[_Found(segment, record) for record in records] for segment, records, _ in looked]
        merged = sorted(
            (one for some in lists for one in some),
            key=lambda one: (one.record.first_offset, one.segment.log, one.segment.seq),
        )
        part: list[_Found] = []
        begin = self._begin
        for one in merged:
            if safe is not None and one.record.first_offset > safe:
                break
            if one.record.first_offset + one.record.count > begin:
                part.append(one)
                begin = one.record.first_offset + one.record.count
        return part, safe
