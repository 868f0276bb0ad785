"""The store: one process's log on M disks, and everything still needed of the logs before it.

Place: the only module other rooms import from here, besides `record.Kind`, `settings` and `errors`. The publish side
appends message batches, acknowledgements and facts; it hears which positions are persisted; it reads by source and
offset.
Promise: `on_persisted(p)` means that p and everything before it survives any minority of the disks, under the
durability that was set. Nothing that was promised is dropped silently: opening refuses, reading answers
`StorageDamaged`.
Threads: every method is for the owner's thread; every callback arrives there, through `notify`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path

from syncpoint.model.errors import ResourceExhausted, Unavailable
from syncpoint.runtime.clock import Clock
from syncpoint.runtime.files import Buffer, Files
from syncpoint.runtime.random import Random
from syncpoint.storage.access import Access, Gone
from syncpoint.storage.cache import TailCache
from syncpoint.storage.catalog import Catalog, Copy, Segment
from syncpoint.storage.checkpoint import Checkpoint
from syncpoint.storage.disk import DiskWriter, Progress
from syncpoint.storage.errors import DisksFailed, DisksMissing
from syncpoint.storage.identity import encode_marks, to_spans
from syncpoint.storage.index import DamagedIndex
from syncpoint.storage.keeper import Keeper
from syncpoint.storage.log import Log
from syncpoint.storage.pool import Pool
from syncpoint.storage.quorum import kth_largest, majority
from syncpoint.storage.reader import Reader, Reply, Request
from syncpoint.storage.record import MESSAGE_KINDS, Batch, Entry, Header, Kind
from syncpoint.storage.recovery.recover import Recovered, Recovery
from syncpoint.storage.recovery.trim import CollectReport, Live, Trim
from syncpoint.storage.replay import Replay
from syncpoint.storage.settings import Durability, StorageSettings
from syncpoint.storage.sources import SourceMap
from syncpoint.storage.status import DiskStatus, StoreStatus, disk_status
from syncpoint.storage.workers import ThreadWorkers, Worker, Workers

__all__ = [
    "Batch",
    "Checkpoint",
    "CollectReport",
    "DiskStatus",
    "Entry",
    "Kind",
    "Recovered",
    "StorageSettings",
    "Store",
    "StoreStatus",
]

_CANDIDATES = 8  # segments looked into by one read of an untangled source
Notify = Callable[[Callable[[], None]], None]


class Store:
    """Open with `Store.open`; set `on_persisted` and `on_failed` before the first append."""

    def __init__(
        self,
        recovery: Recovery,
        settings: StorageSettings,
        files: Files,
        clock: Clock,
        random: Random,
        notify: Notify,
        workers: Workers,
    ) -> None:
        self.universe = recovery.universe
        self.log_counter = recovery.counter
        self.recovered = recovery.recovered
        self.on_persisted: Callable[[int], None] = lambda position: None
        self.on_failed: Callable[[Exception], None] = lambda error: None
        self.catalog: Catalog = recovery.catalog
        self.failure: Exception | None = None
        self._settings = settings
        self._files = files
        self._clock = clock
        self._random = random
        self._post = notify
        self._workers = workers
        self._closed = False
        self._marks = recovery.marks
        self._progress = Progress()
        self._reported = False
        self._sources = SourceMap()
        self._cache = TailCache(settings.cache_bytes)
        self._checkpoints: list[Checkpoint] = []
        self._memory = Durability(settings.durability) is Durability.MEMORY
        self.access = Access(files, self._preference, self.damaged)
        self.catalog.load = self.access.page
        for segment in self.catalog:
            for source, first, end in recovery.summaries.get(segment.id, ()):
                self._sources.add(source, segment.id, first, end)
        self._open_disks(recovery)
        self._replay = Replay(self.catalog, self.access, self.log_counter)
        self._control_floor = self._replay.checkpoint_place
        self._reader = Reader(self.catalog, self.access, settings.read_ahead_bytes, self.notify, self._read_again)
        self._trim = Trim(
            settings,
            self.catalog,
            self.access,
            self._copy_forward,
            lambda: self._progress.synced,
            self._in_reader,
            self._removable,
        )
        self._start()

    @staticmethod
    def open(
        disks: Sequence[Path | str],
        settings: StorageSettings,
        *,
        files: Files,
        clock: Clock,
        random: Random,
        counter_floor: int = 0,
        universe: int | None = None,
        notify: Notify,
        known_disks: Collection[str] = (),
        workers: Workers | None = None,
    ) -> Store:
        """Recover what the disks hold, seal it, and begin a log with a counter above any seen and `counter_floor`.

        `notify(fn)` runs `fn` on the owner's thread soon. `known_disks`: incarnations (hex) the caller remembers, so
        that wiped disks do not pass for a new store. Raises `DisksMissing`, `StorageDamaged`, `ForeignDisk`, and
        `ValueError` for an even number of disks.
        """
        majority(len(disks))
        recovery = Recovery([str(disk) for disk in disks], settings, files, random)
        recovery.run(counter_floor, universe, known_disks)
        try:
            return Store(recovery, settings, files, clock, random, notify, workers or ThreadWorkers())
        except BaseException:
            recovery.release()
            raise

    # ------------------------------------------------------------------------------------------------ opening and end

    def _open_disks(self, recovery: Recovery) -> None:
        self._keepers: list[Keeper] = []
        writers: list[DiskWriter | None] = []
        for disk in recovery.disks:
            pool = Pool(self._files, disk.root, self._settings.segment_bytes, self._settings.bytes_max)
            writer = None
            keeper = Keeper(
                disk.slot,
                disk.root,
                self,
                self._settings,
                self._files,
                self._clock,
                self._random,
                None,
                pool,
                disk.lock,
            )
            if disk.error is None and disk.identity is not None:
                try:
                    pool.open()
                    keeper.refresh()
                    keeper.note_identity()
                    writer = self.make_writer(disk.slot, disk.identity.incarnation, pool)
                except OSError as error:
                    disk.error = error
            keeper.writer = writer
            self._keepers.append(keeper)
            writers.append(writer)
        self._log = Log(self.log_counter, self._settings, self.catalog, writers, self._progress, self._retired)
        fragment, segment = self._log.fragment, self._log.segment
        opened = []
        for writer in writers:
            if writer is not None:
                try:
                    writer.open_now(segment, fragment.members, fragment.quorum)
                    opened.append(writer)
                except OSError as error:
                    writer.error = error
                    self._log.dropped(writer)
        held = {writer.incarnation for writer in opened}
        if len(opened) < fragment.quorum or len(held.intersection(recovery.old_members)) < recovery.old_quorum:
            raise DisksMissing("the new log could not be begun on a majority of the disks")
        self.recovered.disks = ["" if w is None or w.error else w.incarnation.hex() for w in writers]
        self._writer_workers: dict[DiskWriter, Worker] = {}
        self._stale: list[DiskWriter] = []

    def _start(self) -> None:
        self.room_changed()
        for writer in self._log.live:
            self._start_writer(writer)
        self._reader_worker = self._workers.start("syncpoint-read", self._reader.step)
        self._list_live()
        empty = [segment for segment in self.catalog if segment.sealed_by and not segment.entries]
        self._drop(empty, CollectReport())
        self._keeper_workers = [
            self._workers.start(f"syncpoint-keep-{keeper.slot}", keeper.step) for keeper in self._keepers
        ]

    def _start_writer(self, writer: DiskWriter) -> None:
        self._writer_workers[writer] = self._workers.start(f"syncpoint-write-{writer.slot}", writer.step)

    def close(self, timeout_s: float = 10.0) -> None:
        """Write and seal what was appended, stop the threads, give the disks back. Idempotent.

        A hung disk is left behind after `timeout_s`.
        """
        if self._closed:
            return
        self._closed = True
        if self.failure is None:
            self._log.roll(final=True)
        for worker in [*self._keeper_workers, self._reader_worker]:
            worker.stop(timeout_s)
        for writer, worker in self._writer_workers.items():
            if worker.stop(timeout_s):
                writer.drain()  # whatever was still queued, on this thread
                writer.release()
        self._advance()
        self._list_live()
        for keeper in self._keepers:
            keeper.close()

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

        `payload`: bytes, or a sequence of buffers that stay unchanged. Nothing is written before `flush`, except when
        much is queued.
        """
        if not self.accepting:
            raise Unavailable(f"the log takes no entries: {self.failure or 'closed'}")
        buffers: tuple[Buffer, ...]
        buffers = (payload,) if isinstance(payload, (bytes, bytearray, memoryview)) else tuple(payload)
        entry = self._log.append(kind, buffers, source, first_offset, count, time_ns)
        if kind in MESSAGE_KINDS:
            self._sources.add(source, self._log.segment.id, first_offset, first_offset + count)
            if kind == Kind.MESSAGES:
                self._cache.add(entry)
        return entry.position

    def flush(self) -> None:
        """End of a turn: let the disks write what was appended."""
        lag_max = self._settings.lag_bytes_max
        for writer in self._log.live:
            worker = self._writer_workers.get(writer)
            if worker is not None:
                worker.wake()
            if writer.lag_bytes > lag_max:
                self._shed(writer)
        if self._memory and not self._reported:
            self._reported = True
            self.notify(self._advance)

    def _shed(self, writer: DiskWriter) -> None:
        """A disk that lags far behind leaves the live stream, if the others can acknowledge without it."""
        fragment = self._log.fragment
        faster = [w for w in self._log.live if w is not writer and w.lag_bytes < self._settings.lag_bytes_max // 2]
        if len(faster) >= fragment.quorum:
            writer.fail(OSError(110, f"more than {self._settings.lag_bytes_max} bytes behind"))

    def hung(self, writer: DiskWriter) -> None:
        """A keeper saw a commit that does not end."""
        if writer.ok and self._log.fragment.live - 1 >= self._log.fragment.quorum:
            writer.fail(OSError(110, f"a commit took longer than {self._settings.hung_s} s"))

    def admit(self, nbytes: int) -> None:
        """Raises `ResourceExhausted` while less than the reserve would remain after `nbytes` more."""
        room = self._room - (self._log.appended_bytes - self._room_at)
        if room - nbytes < self._settings.reserve:
            raise ResourceExhausted(
                f"the disks are full: {max(0, room)} bytes are left, {self._settings.reserve} of them are reserved for"
                " acknowledgements and clean-up; publishing resumes when messages are deleted or disks are enlarged"
            )

    def room_changed(self) -> None:
        """A keeper counted the room again."""
        self._room, self._room_at = self._count_room(), self._log.appended_bytes

    @property
    def accepting(self) -> bool:
        """Whether entries are taken: not closed, and enough disks are left."""
        return self.failure is None and not self._closed

    def _count_room(self) -> int:
        rest = self._log.room_in_segment
        rooms = [
            keeper.free + len(keeper.pool) * self._settings.segment_bytes + rest
            for keeper in self._keepers
            if keeper.ok
        ]
        return kth_largest(rooms, self._log.fragment.quorum)

    # ------------------------------------------------------------------------------------------ what the disks say

    def notify(self, act: Callable[[], None]) -> None:
        """Run `act` on the owner's thread; any thread."""
        self._post(act)

    def make_writer(self, slot: int, incarnation: bytes, pool: Pool) -> DiskWriter:
        return DiskWriter(
            slot,
            pool.root,
            incarnation,
            self.universe,
            self._settings,
            self._files,
            self._clock,
            self._random,
            pool,
            self._progress,
            self._report,
            self._writer_failed,
        )

    def _report(self, writer: DiskWriter) -> None:
        if not self._reported:
            self._reported = True
            self.notify(self._advance)

    def _advance(self) -> None:
        self._reported = False
        if self._log.advance():
            persisted = self._log.persisted
            self._finish_checkpoints(persisted)
            if self.failure is None:
                self.on_persisted(persisted)
        if self._log.held:
            for writer in self._log.ready_writers():
                self._start_writer(writer)

    def _writer_failed(self, writer: DiskWriter, error: Exception) -> None:
        self.notify(lambda: self._drop_writer(writer, error))

    def _drop_writer(self, writer: DiskWriter, error: Exception) -> None:
        enough = self._log.dropped(writer)
        self._stale.append(writer)
        if not enough and self.failure is None:
            self.failure = DisksFailed(
                f"too few disks are left to acknowledge: {error}",
                disks=[keeper.root for keeper in self._keepers if not keeper.ok],
            )
            self.on_failed(self.failure)
        self._advance()
        self._bury()

    def _bury(self) -> None:
        """Close the files of failed writers whose thread has ended."""
        for writer in self._stale[:]:
            worker = self._writer_workers.get(writer)
            if worker is None or worker.stop(0.0):
                self._stale.remove(writer)
                self._writer_workers.pop(writer, None)
                writer.release()

    def joined(self, slot: int, writer: DiskWriter) -> None:
        """A failed disk is usable again: from the next segment on it is a member, under a new incarnation."""
        if not self.accepting:
            return
        for segment in self.catalog:
            copy = segment.copies.get(slot)
            if copy is not None and (len(segment.copies) > 1 or segment.active is not None):
                del segment.copies[slot]
        self._log.join(slot, writer)
        self._bury()
        self.flush()

    def completed(self, slot: int, segment: Segment, copy: Copy, lost: Sequence[int]) -> None:
        """A keeper copied a segment."""
        keeper = self._keepers[slot]
        if segment.removed or self.catalog.get(segment.id) is not segment:
            keeper.put_drop(copy.path)
            return
        segment.copies[slot] = copy
        for position in lost:
            keeper.damaged.append(f"entry {position} of log {segment.log} is on no disk in good order")

    def marks_content(self) -> bytes:
        return encode_marks(self._marks)

    def _retired(self, segment: Segment) -> None:
        """A segment is sealed on all live disks; failed ones do not hold it whole."""
        for slot, copy in list(segment.copies.items()):
            if not copy.sealed:
                del segment.copies[slot]
        for worker in self._keeper_workers:
            worker.wake()

    def _preference(self, segment: Segment) -> list[int]:
        return sorted(segment.copies, key=lambda slot: not self._keepers[slot].ok)

    def damaged(self, segment: Segment, slot: int, reason: str) -> None:
        """A copy is not what was written; any thread."""
        self.notify(lambda: self._note_damage(segment, slot, reason))

    def _note_damage(self, segment: Segment, slot: int, reason: str) -> None:
        """Forget a bad copy where another one is left; the keeper then writes it anew."""
        keeper = self._keepers[slot]
        keeper.damaged.append(f"segment {segment.log}/{segment.seq}: {reason}")
        del keeper.damaged[:-100]
        if segment.active is None and len(segment.copies) > 1 and slot in segment.copies:
            del segment.copies[slot]

    # ------------------------------------------------------------------------------------------------------ reading

    def replay(self) -> Iterator[Entry]:
        """The newest complete checkpoint's parts, then every other entry from its BEGIN on, oldest first.

        Messages come without payload. Raises `StorageDamaged` for an entry that no disk has in good order.
        """
        return self._replay.entries()

    def read(self, source: int, begin: int, max_bytes: int, reply: Reply, *, early: bool = False) -> None:
        """Hand `reply` the persisted batches from the first stored message at or behind `begin`, in offset order.

        `early`: also what is appended and not persisted yet, as far as the tail cache has it.

        At least one batch if there is any, then as many as fit into `max_bytes`; [] when nothing is stored there. At
        once from the tail cache, otherwise later from disk; an exception is handed over, not raised.
        """
        cached = self._cache.get(source, begin, max_bytes, self._log.appended if early else self._log.persisted)
        if cached is not None:
            reply(cached)
            return
        candidates = self._sources.candidates(source, begin, _CANDIDATES)
        if not candidates:
            reply([])
            return
        written = max((writer.written for writer in self._log.live), default=0)
        self._reader.put(
            Request(
                source,
                begin,
                max_bytes,
                min(self._log.persisted, written),
                self.log_counter,
                self.catalog.of_ids(candidates),
                self._sources.tangled(source),
                reply,
            )
        )
        self._reader_worker.wake()

    def _read_again(self, request: Request) -> None:
        self.read(request.source, request.begin, request.max_bytes, request.reply)

    def _in_reader(self, job: Callable[[], None]) -> None:
        self._reader.put(job)
        self._reader_worker.wake()

    def sources(self) -> Iterable[int]:
        """Sources of which messages are stored."""
        return list(self._sources)

    def bounds(self, source: int) -> tuple[int, int] | None:
        """First stored offset and the end of what is persisted; None when nothing of the source is stored."""
        known = self._sources.bounds(source)
        if known is None:
            return None
        first, end = known
        for entry in self._log.unpersisted:
            if entry.source == source and entry.kind == Kind.MESSAGES:
                end = min(end, entry.first_offset)
                break
        return (first, end) if first < end else None

    def offset_at(self, source: int, time_ns: int) -> int:
        """First offset whose batch is not older than `time_ns`; the end if there is none, 0 for an unknown source."""
        known = self.bounds(source)
        if known is None:
            return 0
        best = known[1]
        segments = self.catalog.of_ids(self._sources.segments(source))
        if not self._sources.tangled(source):
            segments = self._narrow(segments, source, time_ns)
        for segment in segments:
            record = self._at_time(segment, source, time_ns)
            if record is not None:
                best = min(best, record)
                if not self._sources.tangled(source):
                    break
        return best

    def _at_time(self, segment: Segment, source: int, time_ns: int) -> int | None:
        try:
            record = self.catalog.index(segment).at_time(source, time_ns)
        except (DamagedIndex, Gone):
            return None
        return None if record is None else record.first_offset

    def _narrow(self, segments: list[Segment], source: int, time_ns: int) -> list[Segment]:
        """Times rise with offsets: find the first segment that holds one late enough."""
        low, high = 0, len(segments)
        while low < high:
            middle = (low + high) // 2
            if self._at_time(segments[middle], source, time_ns) is None:
                low = middle + 1
            else:
                high = middle
        return segments[low : low + 1]

    # ------------------------------------------------------------------------------------- checkpoints and deletion

    @property
    def appended(self) -> int:
        """Position of the last entry appended to this log."""
        return self._log.appended

    @property
    def appended_bytes(self) -> int:
        """Bytes appended to this log so far."""
        return self._log.appended_bytes

    def checkpoint(self, parts: Iterator[bytes]) -> Checkpoint:
        """Begin a checkpoint; call its `step` until it returns True. Entries appended meanwhile count as behind it."""

        def append(kind: int, payload: bytes, source: int, first_offset: int, count: int) -> int:
            return self.append(kind, payload, source=source, first_offset=first_offset, count=count)

        begun = Checkpoint(append, parts)
        self._checkpoints.append(begun)
        return begun

    def _finish_checkpoints(self, persisted: int) -> None:
        for begun in self._checkpoints[:]:
            if begun.end is not None and begun.end <= persisted:
                begun.complete = True
                self._checkpoints.remove(begun)
                self._control_floor = max(self._control_floor, (self.log_counter, begun.begin))

    def _removable(self, segment: Segment) -> bool:
        """Whether everything but the messages is obsolete."""
        log, begin = self._control_floor
        return segment.controls == 0 or segment.log < log or (segment.log == log and segment.last_position < begin)

    def collect(self, live: Live) -> CollectReport:
        """One bounded step of deletion. `live(source, first_offset, count, time_ns)`: is the batch still needed?"""
        report = CollectReport()
        if self.accepting:
            self._drop(self._trim.step(live, report), report)
            if report.copied_entries:
                self.flush()
        self._bury()
        return report

    def _copy_forward(self, header: Header, payload: bytes) -> int:
        return self.append(
            Kind.COPY,
            payload,
            source=header.source,
            first_offset=header.first_offset,
            count=header.count,
            time_ns=header.time_ns,
        )

    def _drop(self, segments: Sequence[Segment], report: CollectReport) -> None:
        """Tombstones first, then the files, on every disk by its keeper."""
        if not segments:
            return
        paths: list[tuple[int, str]] = []
        for segment in segments:
            try:
                held = [summary.source for summary in self.catalog.index(segment).summaries()]
            except (DamagedIndex, Gone):
                continue
            for source in held:
                self._sources.remove(source, segment.id)
            self.catalog.remove(segment)
            self._marks.remove(segment.log, segment.seq)
            paths += [(slot, copy.path) for slot, copy in segment.copies.items()]
            report.removed.append((segment.log, segment.seq))
        left: dict[int, list[int]] = {}
        for segment in self.catalog:
            left.setdefault(segment.log, []).append(segment.seq)
        for log in sorted({log for log, _ in report.removed}):
            if log not in left and log != self.log_counter:
                self._marks.remove_log(log)
                report.removed_logs.append(log)
        self._list_live()
        for slot, path in paths:
            self._keepers[slot].put_drop(path)
        for worker in getattr(self, "_keeper_workers", ()):
            worker.wake()

    def _list_live(self) -> None:
        """Have every disk note which sealed segments there are, so that one missing later is noticed."""
        live: dict[int, list[int]] = {}
        for segment in self.catalog:
            if segment.sealed_by and (segment.log != self.log_counter or self._closed):
                live.setdefault(segment.log, []).append(segment.seq)
        self._marks.live = {log: to_spans(seqs) for log, seqs in live.items()}
        self._marks.version += 1
        content = self.marks_content()
        for keeper in self._keepers:
            keeper.put_marks(content)

    # ------------------------------------------------------------------------------------------------------- status

    @property
    def source_count(self) -> int:
        return len(self._sources)

    @property
    def cached_bytes(self) -> int:
        return self._cache.bytes

    def status(self) -> StoreStatus:
        """What an operator wants to know; cheap enough for every second."""
        return disk_status(self, self._log, self._keepers, self._settings, self._count_room())
