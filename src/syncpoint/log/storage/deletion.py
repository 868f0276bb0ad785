"""Deletion of one store: what may go, what is copied forward before, and which facts a checkpoint made obsolete.

Place: between `store`, which is asked to collect, and `recovery.trim`, which judges segments a few entries at a time.
Promise: a segment goes only when no message of it is needed and a complete, persisted checkpoint replaces its facts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from syncpoint.log.storage.copy_reader import Gone
from syncpoint.log.storage.disk.disk_set import DiskSet
from syncpoint.log.storage.disk.segment_catalog import Segment
from syncpoint.log.storage.errors import CopiesUnreachable
from syncpoint.log.storage.index import DamagedIndex, IndexRecord
from syncpoint.log.storage.record import EntryKind, Header
from syncpoint.log.storage.recovery.checkpoints import CheckpointWriter
from syncpoint.log.storage.recovery.trim import CollectReport, Live, More, Trim
from syncpoint.log.storage.settings import StorageSettings
from syncpoint.log.storage.source_index import SourceIndex


class Deletion:
    """`append`: of `Store`; `in_reader`: has something done on the reader's thread; `checkpoint_place`: (log, position)
    at which the newest complete checkpoint begins.
    """

    def __init__(
        self,
        settings: StorageSettings,
        disks: DiskSet,
        sources: SourceIndex,
        append: Callable[..., int],
        in_reader: Callable[[Callable[[], None]], None],
        checkpoint_place: tuple[int, int],
    ) -> None:
        self._disks = disks
        self._log = disks.log
        self._catalog = disks.catalog
        self._sources = sources
        self._append = append
        self._control_floor = checkpoint_place
        self.begun_checkpoints: list[CheckpointWriter] = []
        self.trim = Trim(
            settings,
            disks.catalog,
            disks.access,
            self._copy_forward,
            lambda: disks.log.appended,
            lambda: disks.progress.synced,
            in_reader,
            self.removable,
            self.copied,
            lambda segment, source: sources.first(source, segment.id) is not None,
        )

    def begun(self, checkpoint: CheckpointWriter) -> None:
        """A checkpoint is being written; it counts once all of it is persisted."""
        self.begun_checkpoints.append(checkpoint)

    def on_persisted(self, position: int) -> None:
        """The log is persisted up to here."""
        for begun in self.begun_checkpoints[:]:
            if begun.broken:
                self.begun_checkpoints.remove(begun)
            elif begun.end is not None and begun.end <= position:
                begun.complete = True
                self.begun_checkpoints.remove(begun)
                self._control_floor = max(self._control_floor, (self._log.counter, begun.begin))

    @property
    def control_floor(self) -> tuple[int, int]:
        """Log and position where the newest complete checkpoint begins: it stands for all facts before it."""
        return self._control_floor

    def removable(self, segment: Segment) -> bool:
        """Whether everything but the messages is obsolete."""
        log, begin = self._control_floor
        return segment.controls == 0 or segment.log < log or (segment.log == log and segment.last_position < begin)

    def copied(self, segment: Segment, record: IndexRecord) -> Iterator[Segment]:
        """Where a life before this one has copied an entry of a segment to, on as many disks.

        What it sealed, or the recovery that sealed it, is synced. A copy in which damage was found does not count.
        """
        if segment.log + 1 >= self._log.counter:
            return
        if not self._sources.tangled(record.source):
            return
        for other in self._catalog.of_ids(self._sources.around(record.source, record.first_offset)):
            if not segment.log < other.log < self._log.counter or len(other.copies) < len(segment.copies):
                continue
            if other.unreadable:
                continue
            try:
                found = self._catalog.index_soon(other).records(record.source, record.first_offset, 1)
            except (DamagedIndex, CopiesUnreachable, Gone, OSError):
                continue  # nobody knows
            if found and found[0][:3] == record[:3] and found[0].count == record.count:
                yield other

    @property
    def earlier_logs(self) -> int:
        """How many logs of earlier lives are still there."""
        return len({segment.log for segment in self._catalog if segment.log < self._log.counter})

    @property
    def uncovered_logs(self) -> int:
        """How many of them the newest complete checkpoint does not replace: their facts have to be replayed."""
        floor, _ = self._control_floor
        return len({segment.log for segment in self._catalog if floor <= segment.log < self._log.counter})

    def collect(self, live: Live, basis: int, more: More) -> CollectReport:
        report = CollectReport()
        if self._disks.accepting:
            self.drop(self.trim.step(live, report, basis, more), report)
            if report.copied_entries:
                self._disks.wake()
            self._disks.reap()
        return report

    def _copy_forward(self, header: Header, payload: bytes) -> int:
        return self._append(
            EntryKind.COPY,
            payload,
            source=header.source,
            first_offset=header.first_offset,
            count=header.count,
            time_ns=header.time_ns,
        )

    def drop(self, segments: Sequence[Segment], report: CollectReport) -> None:
        """Delete segments nothing of which is needed."""
        holding: list[tuple[Segment, list[int]]] = []
        for segment in segments:
            assert segment.sealed_by, segment
            assert self.removable(segment), "its facts are in a checkpoint"
            try:
                holding.append((segment, [summary.source for summary in self._catalog.index_soon(segment).summaries()]))
            except (DamagedIndex, CopiesUnreachable, Gone):
                continue  # after its repair, once its disks are back, or once its index is built anew
        for segment, sources in holding:
            for source in sources:
                self._sources.remove(source, segment.id)
        dead = [segment for segment, _ in holding]
        if dead:
            report.removed += [(segment.log, segment.seq) for segment in dead]
            report.removed_logs += self._disks.delete(dead)
