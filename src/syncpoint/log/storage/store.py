"""The store: one process's log on M disks, and everything still needed of the logs before it.

Place: the only module other rooms import from here, besides `record.EntryKind`, `settings` and `errors`. The publish
side appends message batches, acknowledgements and facts; it learns which positions are persisted; it reads by source
and offset.
Promise: `on_persisted(p)` means that p and everything before it is on the disks that the ack rule asks for (a majority
of them; see `quorum` for clusters of disks), under the durability that was set. Nothing that was promised is dropped
silently: opening refuses, reading answers `StorageDamaged`.
Threads: every method is for the owner's thread; every callback arrives there, through `notify`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from syncpoint.base.model.errors import ResourceExhausted, Unavailable
from syncpoint.base.runtime.environment import Environment
from syncpoint.base.runtime.files import Buffer
from syncpoint.base.runtime.step_workers import Workers
from syncpoint.log.storage.cache import TailCache
from syncpoint.log.storage.copy_reader import PART_BYTES, Gone
from syncpoint.log.storage.deletion import Deletion
from syncpoint.log.storage.disk.disk_set import DiskSet
from syncpoint.log.storage.disk.segment_catalog import Segment, SegmentCatalog
from syncpoint.log.storage.disk.store_status import DiskStatus, StoreStatus, disk_status
from syncpoint.log.storage.disk_counts import DiskCounts, StoreCounts
from syncpoint.log.storage.entries_at_risk import RowsReply, SegmentRows, StoreHoldings, holdings
from syncpoint.log.storage.errors import StorageDamaged
from syncpoint.log.storage.quorum import AckRule
from syncpoint.log.storage.reader import ReadRequest, Reply, StoreReader, Take
from syncpoint.log.storage.receipts import EntryReceipt, ReceiptReply, ReceiptRequest, disks_now, receipt
from syncpoint.log.storage.record import MESSAGE_KINDS, Entry, EntryKind, StoredBatch
from syncpoint.log.storage.recovery.checkpoints import CheckpointWriter
from syncpoint.log.storage.recovery.opening_disks import Recovered
from syncpoint.log.storage.recovery.recover import Recovery, recover
from syncpoint.log.storage.recovery.replay import Replay
from syncpoint.log.storage.recovery.trim import CollectReport, Live, More
from syncpoint.log.storage.settings import NOTHING_KNOWN, KnownStore, StorageSettings
from syncpoint.log.storage.source_index import SourceIndex
from syncpoint.log.storage.stored_offsets import StoredOffsets

__all__ = [
    "CheckpointWriter",
    "CollectReport",
    "DiskStatus",
    "Entry",
    "EntryKind",
    "Recovered",
    "StorageSettings",
    "Store",
    "StoreStatus",
    "StoredBatch",
]

_CANDIDATES = 8  # segments looked into by one read of an untangled source


class Store:
    """Open with `Store.open`; set `on_persisted` and `on_failed` before the first append."""

    def __init__(
        self,
        recovery: Recovery,
        settings: StorageSettings,
        environment: Environment,
        workers: Workers,
        local: bool,
    ) -> None:
        self.universe = recovery.disks.universe
        self.log_counter = recovery.counter
        self.recovered = recovery.disks.recovered
        self.on_persisted: Callable[[int], None] = lambda position: None
        self.on_failed: Callable[[Exception], None] = lambda error: None
        self.catalog: SegmentCatalog = recovery.loaded.catalog
        self.counts = StoreCounts()
        self._settings = settings
        self._closed = False
        self._notify = environment.notifier()
        self._sources = SourceIndex()
        self._cache = TailCache(settings.cache_bytes)
        for segment in self.catalog:
            for source, first, end in recovery.loaded.summaries.get(segment.id, ()):
                self._sources.add(source, segment.id, first, end)
        self._disks = DiskSet(recovery, settings, environment, workers, self, local)
        self._log = self._disks.log
        access = self._disks.access
        self._replay = Replay(self.catalog, access, self.log_counter)
        self._reader = StoreReader(
            self.catalog, access, settings.read_ahead_bytes, self._notify, self._read_again, self._unlisted
        )
        self.catalog.load_soon = partial(self._disks.reindexing.page_soon, self._in_reader)
        self._offsets = StoredOffsets(self._sources, self.catalog, self._log, lambda: self._disks.closed)
        self._deletion = Deletion(
            settings, self._disks, self._sources, self.append, self._in_reader, self._replay.checkpoint_place
        )
        self._reader_worker = workers.start("syncpoint-read", self._reader.step)
        self._disks.start()
        self._deletion.drop([one for one in self.catalog if one.sealed_by and not one.entries], CollectReport())

    @staticmethod
    def open(
        disks: Sequence[Path | str],
        settings: StorageSettings,
        environment: Environment,
        known: KnownStore = NOTHING_KNOWN,
    ) -> Store:
        """Recover what the disks hold, seal it, and begin a log.

        Raises `DisksMissing`, `StorageDamaged`, `ForeignDisk`, `Fenced`, `CounterTaken`, and `ValueError` for an even
        number of disks, or another one than the rule has. Disks that change while they are read are `CopiesChanged` at
        once where a counter was handed in, which is used up then; otherwise only if they do so again and again.
        """
        local = known.rule is None
        rule = known.rule or AckRule.single(len(disks))
        if len(rule) != len(disks):
            raise ValueError(f"the ack rule has {len(rule)} disks, but {len(disks)} are given")
        workers = environment.make_workers()
        known = known._replace(rule=rule)
        recovery = recover([str(disk) for disk in disks], settings, environment, workers.together, known)
        try:
            return Store(recovery, settings, environment, workers, local)
        except BaseException:
            recovery.disks.release()
            raise

    @property
    def failure(self) -> Exception | None:
        """Why no entry is taken any more, once too few disks are left."""
        return self._disks.failure

    def begin_close(self) -> None:
        """Take no more entries. Call it on the owner's thread where `close`, which may take long, runs on another one:
        from now on nothing that the owner does or receives changes the log. Idempotent.
        """
        self._disks.begin_close()

    def close(self, timeout_s: float = 10.0) -> None:
        """Write and seal what was appended, stop the threads, give the disks back. Idempotent.

        A hung disk is given up after `timeout_s`.
        """
        if not self._closed:
            self._closed = True
            self._disks.begin_close()
            self._reader_worker.stop(timeout_s)
            self._disks.close(timeout_s)

    def note_persisted(self, position: int) -> None:
        """For `DiskSet`: all up to this position is."""
        if self._deletion.begun_checkpoints:
            self._deletion.on_persisted(position)
        if self.failure is None:
            self.on_persisted(position)

    def note_failed(self, error: Exception) -> None:
        """For `DiskSet`: nothing is written any more."""
        self.on_failed(error)

    # ---------------------------------------------------------------------------------------------------- appending

    def append(
        self,
        kind: int,
        payload: bytes | Sequence[Buffer],
        *,
        source: int = 0,
        first_offset: int = 0,
        count: int = 0,
        time_ns: int = 0,
    ) -> int:
        """Queue one entry and return its position in log `log_counter`. Raises `Unavailable` once a quorum is lost.
        Whatever else is raised, as when memory runs out, ends the log: its outcome is unknown, nothing follows it.

        `payload`: bytes, or a sequence of buffers that stay unchanged. A disk whose commit is
        under way may take it before `flush`.
        """
        if not self._disks.accepting:
            raise Unavailable(f"the log accepts no entries: {self.failure or 'closed'}")
        buffers: tuple[Buffer, ...]
        buffers = (payload,) if isinstance(payload, (bytes, bytearray, memoryview)) else tuple(payload)
        try:
            entry = self._log.append(kind, buffers, source, first_offset, count, time_ns)
            if kind in MESSAGE_KINDS:
                self._sources.add(source, self._log.segment.id, first_offset, first_offset + count)
                if kind == EntryKind.MESSAGES:
                    self._cache.add(entry)
        except Exception as error:
            self._disks.broken(error)  # half of it may be done: nothing may follow
            raise
        return entry.position

    def flush(self) -> None:
        """End of a turn: let the disks write what was appended."""
        self._disks.wake()

    def admit(self, nbytes: int) -> None:
        """Raises `ResourceExhausted` while less than the reserve would remain after `nbytes` more."""
        if self._log.appended_bytes + nbytes > self._disks.room.messages_end:
            room = self._disks.room.bytes
            self.counts.refused_full += 1
            if room < self._settings.reserve and not self._disks.room.full:
                raise ResourceExhausted(
                    "too few disks work to store messages; publishing resumes when enough of them do"
                )
            raise ResourceExhausted(
                f"the disks are full: {max(0, room)} bytes are left, of which {self._settings.reserve} are reserved for"
                " acknowledgements and clean-up. Publishing resumes when messages are deleted or disks are enlarged."
            )

    # ------------------------------------------------------------------------------------------------------ reading

    def replay(self) -> Iterator[Entry]:
        """The newest complete checkpoint's parts, then every other entry from its BEGIN on, oldest first.

        Messages come without payload. Raises `StorageDamaged` for an entry that no disk has in good order.
        """
        return self._replay.entries()

    def read(
        self,
        source: int,
        begin: int,
        max_bytes: int,
        reply: Reply,
        *,
        early: bool = False,
        take: Take | None = None,
    ) -> None:
        """Hand `reply` the persisted batches from the first stored message at or after `begin`, in offset order.

        `early`: also what is appended and not persisted yet, as far as the tail cache has it.

        At least one batch if there is any, then as many as fit into `max_bytes`; [] when nothing is stored there. At
        once from the tail cache, otherwise later from disk; an exception is handed over, not raised.

        `take`: what comes from disk is given to it batch by batch, on the reader's thread, and `reply` gets [] when it
        says that it takes no more, or after the last; an exception that it raises is handed to `reply`. What comes
        from the tail cache goes to `reply`, in small parts.
        """
        at_once = max_bytes if take is None else min(max_bytes, PART_BYTES)
        cached = self._cache.get(source, begin, at_once, self._log.appended if early else self._log.persisted)
        if cached is not None:
            self.counts.cache_hits += 1
            reply(cached)
            return
        candidates = self._sources.candidates(source, begin, _CANDIDATES)
        if not candidates:
            reply([])
            return
        self.counts.cache_misses += 1
        self._reader.put(
            ReadRequest(
                source,
                begin,
                max_bytes,
                self._log.persisted,
                self.log_counter,
                self.catalog.of_ids(candidates),
                self._sources.tangled(source),
                reply,
                take,
            )
        )
        self._reader_worker.wake()

    def _read_again(self, request: ReadRequest) -> None:
        self.read(request.source, request.begin, request.max_bytes, request.reply, take=request.take)

    def _unlisted(self, request: ReadRequest, segment: Segment) -> None:
        """All that a segment may have of the source is passed over: nobody can say what of it is there."""
        end = self._sources.end(request.source, segment.id)
        request.reply(
            StorageDamaged(
                f"the index and some entries of segment {segment.seq} of log {segment.log} are missing on every disk",
                resume_offset=end if end is not None and end > request.begin else None,
                log=segment.log,
                segment=segment.seq,
                source=request.source,
            )
        )

    def _in_reader(self, job: Callable[[], None]) -> None:
        self._reader.put(job)
        self._reader_worker.wake()

    def receipt(self, source: int, offset: int, reply: ReceiptReply) -> None:
        """Hand `reply` which disks hold the entry with a message, each copy read and checked; None where no such
        message is stored and persisted. An exception is handed over, not raised.
        """
        candidates = self._sources.candidates(source, offset, _CANDIDATES)
        request = ReceiptRequest(
            source,
            offset,
            self.log_counter,
            self._log.persisted,
            self.catalog.of_ids(candidates),
            disks_now(self._disks.maintainers),
        )

        def examine() -> None:
            found: EntryReceipt | Exception | None
            try:
                found = receipt(request, self.catalog, self._disks.access)
            except Gone:
                self._notify(partial(self.receipt, source, offset, reply))
                return
            except Exception as error:  # for the one who asked
                found = error
            self._notify(partial(reply, found))

        self._in_reader(examine)

    def holdings(self) -> StoreHoldings:
        """Which disks hold what, for judging failures; see `at_risk`."""
        disks = self._disks
        floor, late = self._deletion.control_floor, disks.confirmed_late
        return holdings(self._log, self.catalog, disks.maintainers, floor, disks.failure, late)

    def segment_rows(self, segment_id: int, payloads_of: int, reply: RowsReply) -> None:
        """Hand `reply` the entries of a segment in the order of positions, with the payloads of one kind, of those that
        are persisted; None for one that is deleted. An exception is handed over, not raised.
        """
        segment = self.catalog.get(segment_id)
        if segment is None:
            reply(None)
            return
        written = segment.log != self.log_counter  # the rest may be on no disk yet
        end = self._log.persisted

        def read() -> None:
            found: SegmentRows | Exception | None
            try:
                index = self.catalog.index(segment)
                records = sorted([*index.messages(), *index.controls()], key=lambda record: record.ordinal)
                wanted = [
                    record
                    for record in records
                    if record.kind == payloads_of and (written or segment.first_position + record.ordinal <= end)
                ]
                frames = self._disks.access.frames(segment, wanted) if wanted else []
                payloads = {record.ordinal: frame[1] for record, frame in zip(wanted, frames, strict=True)}
                found = SegmentRows(records, payloads)
            except Gone:
                found = None
            except Exception as error:  # for the one who asked
                found = error
            self._notify(partial(reply, found))

        self._in_reader(read)

    def segments_of(self, source: int) -> list[int] | None:
        """The segments that hold a source some of whose messages are stored twice, copied forward; None for others."""
        return self._sources.segments(source) if self._sources.tangled(source) else None

    def sources(self) -> Iterable[int]:
        """Sources of which messages are stored."""
        return list(self._sources)

    def bounds(self, source: int) -> tuple[int, int] | None:
        """First stored offset and the end of what is persisted; None when nothing of the source is stored."""
        return self._offsets.bounds(source)

    def offset_at(self, source: int, time_ns: int) -> int:
        """First offset whose batch is not older than `time_ns`; the end if there is none, 0 for an unknown source.

        A lower one where an index is damaged.
        """
        return self._offsets.offset_at(source, time_ns)

    # ------------------------------------------------------------------------------------- checkpoints and deletion

    @property
    def appended(self) -> int:
        """Position of the last entry appended to this log."""
        return self._log.appended

    @property
    def persisted(self) -> int:
        """Position up to which this log is persisted."""
        return self._log.persisted

    @property
    def appended_bytes(self) -> int:
        """Bytes appended to this log so far."""
        return self._log.appended_bytes

    def checkpoint(self, parts: Iterator[bytes]) -> CheckpointWriter:
        """Begin a checkpoint; call its `step` until it returns True. Entries appended in the meantime count as after
        it."""

        def append(kind: int, payload: bytes, source: int, first_offset: int, count: int) -> int:
            return self.append(kind, payload, source=source, first_offset=first_offset, count=count)

        begun = CheckpointWriter(append, parts)
        self._deletion.begun(begun)
        self.counts.checkpoints += 1
        return begun

    @property
    def earlier_logs(self) -> int:
        """How many logs of earlier lives are still there."""
        return self._deletion.earlier_logs

    @property
    def uncovered_logs(self) -> int:
        """How many of them the newest complete checkpoint does not replace: their facts have to be replayed."""
        return self._deletion.uncovered_logs

    def collect(self, live: Live, basis: int = 0, more: More = lambda basis: None) -> CollectReport:
        """One bounded step of deletion. `live(source, first_offset, count, time_ns)`: is the batch still needed?
        `basis`: another number than at the last step where something may be needed now that was not; `more(earlier)`:
        of which sources, if not of any.
        """
        report, counts = self._deletion.collect(live, basis, more), self.counts
        counts.collect_steps += 1
        counts.judged_entries += report.looked_at
        counts.removed_segments += len(report.removed)
        counts.copied_entries += report.copied_entries
        counts.copied_bytes += report.copied_bytes
        return report

    # ------------------------------------------------------------------------------------------------------- status

    @property
    def source_count(self) -> int:
        return len(self._sources)

    @property
    def cached_bytes(self) -> int:
        return self._cache.bytes

    @property
    def disk_counts(self) -> Sequence[DiskCounts]:
        """Return the counters of each disk, in the order of `status`."""
        return self._disks.counts

    def answered_at(self) -> float:
        """As of when (monotonic seconds) it is known that no later writer had begun."""
        return self._disks.answered_at()

    def status(self) -> StoreStatus:
        """What an operator wants to know; cheap enough for every second."""
        return disk_status(self._log, self._disks, self._settings, self.source_count, self.cached_bytes)
