"""Checkpoints: the state of the room above, written between normal entries, so that older ones are not needed any more.

Place: `store.checkpoint` hands one out; the node calls `step` now and then until it returns True.
Promise: a checkpoint counts once its END entry is persisted, and is found again through the indexes alone: END names
BEGIN's position and the number of parts, every part names BEGIN. Parts are *fuzzy*: entries appended in the meantime
stand after BEGIN and are replayed after the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from syncpoint.log.storage.disk.segment_catalog import Segment
from syncpoint.log.storage.index import IndexRecord
from syncpoint.log.storage.record import EntryKind

_STEP_BYTES = 256 * 1024


class CheckpointWriter:
    """One checkpoint being written; owner's thread."""

    def __init__(self, append: Callable[[int, bytes, int, int, int], int], parts: Iterator[bytes]) -> None:
        self._append = append
        self._parts = parts
        self._number = 0
        self.begin = append(EntryKind.CHECKPOINT_BEGIN, b"", 0, 0, 0)
        self.end: int | None = None  # position of END once it is appended
        self.complete = False  # END is persisted
        self.broken = False  # a part is missing: it never ends, and another one must be begun

    def step(self, max_bytes: int = _STEP_BYTES) -> bool:
        """Append a few parts, at least one; True once END is appended and there is nothing left to do but wait.

        After an exception, from the parts or from the log, it is broken: parts that raised once would seem to be at
        their end.
        """
        if self.broken:
            raise ValueError("the checkpoint is incomplete")
        try:
            return self._step(max_bytes)
        except BaseException:
            self.broken = True
            raise

    def _step(self, max_bytes: int) -> bool:
        size = 0
        while self.end is None and size < max_bytes:
            part = next(self._parts, None)
            if part is None:
                self.end = self._append(EntryKind.CHECKPOINT_END, b"", 0, self.begin, self._number)
            else:
                self._append(EntryKind.CHECKPOINT_PART, part, self.begin, self._number, 0)
                self._number += 1
                size += len(part)
        return self.end is not None


@dataclass(slots=True)
class FoundCheckpoint:
    """A complete checkpoint in the logs."""

    log: int
    begin: int
    parts: list[tuple[Segment, IndexRecord]]


def find_newest(segments: Iterable[tuple[Segment, list[IndexRecord]]]) -> FoundCheckpoint | None:
    """The newest complete checkpoint. `segments`: oldest first, with the records of all entries but messages."""
    begins: dict[tuple[int, int], dict[int, tuple[Segment, IndexRecord]]] = {}
    newest: FoundCheckpoint | None = None
    for segment, records in segments:
        for record in records:
            if record.kind == EntryKind.CHECKPOINT_BEGIN:
                begins[segment.log, segment.first_position + record.ordinal] = {}
            elif record.kind == EntryKind.CHECKPOINT_PART:
                parts = begins.get((segment.log, record.source))
                if parts is not None:
                    parts[record.first_offset] = (segment, record)
            elif record.kind == EntryKind.CHECKPOINT_END:
                parts = begins.get((segment.log, record.first_offset))
                if parts is not None and len(parts) == record.count:
                    ordered = [parts[number] for number in sorted(parts)]
                    newest = FoundCheckpoint(segment.log, record.first_offset, ordered)
    return newest
