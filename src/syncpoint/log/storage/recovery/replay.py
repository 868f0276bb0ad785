"""Replay: what the room above needs to be what it was.

Place: built when the store opens; read once by the publish side.
"""

from __future__ import annotations

from collections.abc import Iterator

from syncpoint.log.storage.copy_reader import CopyReader
from syncpoint.log.storage.disk.segment_catalog import Segment, SegmentCatalog
from syncpoint.log.storage.index import IndexRecord
from syncpoint.log.storage.record import CHECKPOINT_KINDS, MESSAGE_KINDS, Entry, EntryKind
from syncpoint.log.storage.recovery.checkpoints import find_newest

_READ_BYTES = 1 << 20


class Replay:
    """Entries of the logs before `counter`."""

    def __init__(self, catalog: SegmentCatalog, access: CopyReader, counter: int) -> None:
        self._catalog = catalog
        self._access = access
        self._counter = counter
        segments = [(segment, list(catalog.index(segment).controls())) for segment in self._segments()]
        self._checkpoint = find_newest(segments)

    def _segments(self) -> list[Segment]:
        return [segment for segment in self._catalog if segment.log < self._counter]

    @property
    def checkpoint_place(self) -> tuple[int, int]:
        """Log and position of the newest complete checkpoint's BEGIN; (0, 0) without one."""
        found = self._checkpoint
        return (0, 0) if found is None else (found.log, found.begin)

    def entries(self) -> Iterator[Entry]:
        """The checkpoint's parts, then everything else after its BEGIN, in order of log and position."""
        if self._checkpoint is not None:
            for segment, record in self._checkpoint.parts:
                yield from self._read(segment, [record])
        log, begin = self.checkpoint_place
        for segment in self._segments():
            if segment.log < log or (segment.log == log and segment.last_position <= begin):
                continue
            index = self._catalog.index(segment)
            records = sorted([*index.messages(), *index.controls()], key=lambda record: record.ordinal)
            if segment.log == log:
                records = [record for record in records if segment.first_position + record.ordinal > begin]
            yield from self._segment_entries(segment, records)

    def _segment_entries(self, segment: Segment, records: list[IndexRecord]) -> Iterator[Entry]:
        batch: list[IndexRecord] = []
        size = 0
        for record in records:
            if record.kind in CHECKPOINT_KINDS:
                continue
            batch.append(record)
            size += 0 if record.kind in MESSAGE_KINDS else record.length + 64
            if size >= _READ_BYTES:
                yield from self._read(segment, batch)
                batch, size = [], 0
        yield from self._read(segment, batch)

    def _read(self, segment: Segment, records: list[IndexRecord]) -> Iterator[Entry]:
        wanted = [record for record in records if record.kind not in MESSAGE_KINDS]
        payloads = iter(self._access.frames(segment, wanted)) if wanted else iter(())
        for record in records:
            payload = b"" if record.kind in MESSAGE_KINDS else next(payloads)[1]
            yield Entry(
                EntryKind(record.kind),
                segment.first_position + record.ordinal,
                segment.log,
                record.source,
                record.first_offset,
                record.count,
                record.time_ns,
                payload,
            )
