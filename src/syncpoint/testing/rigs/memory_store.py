"""A log in memory: what the forwarders need of `storage.store.Store`, without disks or threads.

For tests of the forwarders alone. Entries are persisted when `persist` is called, so a test decides what a disk would
have decided; `fail` is the loss of the quorum. `reopened` is the same log after a restart: what was persisted, under
the next log counter.
"""

from collections.abc import Callable, Iterator, Sequence

from syncpoint.base.model.identity import UNIVERSE_MIN
from syncpoint.log.storage.disk.store_status import DiskStatus, StoreStatus
from syncpoint.log.storage.disk_counts import DiskCounts, StoreCounts
from syncpoint.log.storage.entries_at_risk import FragmentHolding, RowsReply, SegmentHolding, SegmentRows, StoreHoldings
from syncpoint.log.storage.errors import StorageDamaged
from syncpoint.log.storage.index import IndexRecord
from syncpoint.log.storage.quorum import AckRule
from syncpoint.log.storage.receipts import CopyState, EntryCopy, EntryReceipt, ReceiptReply
from syncpoint.log.storage.record import CHECKPOINT_KINDS, MESSAGE_KINDS, Entry, EntryKind, StoredBatch
from syncpoint.log.storage.recovery.checkpoints import CheckpointWriter
from syncpoint.log.storage.recovery.trim import CollectReport, Live, More


class StoreInMemory:
    """A log in memory."""

    def __init__(self, entries: Sequence[Entry] = (), log_counter: int = 1) -> None:
        self.universe = UNIVERSE_MIN
        self.log_counter = log_counter
        self.on_persisted: Callable[[int], None] = lambda position: None
        self.on_failed: Callable[[Exception], None] = lambda error: None
        self.on_flush: Callable[[], None] = lambda: None  # a test's disks may begin to work
        self.entries = list(entries)
        self.flushes = 0
        self._persisted = len(self.entries)
        self._deleted: set[int] = set()  # positions of messages that were collected
        self.on_disk = True  # what is read is given to who takes it batch by batch
        self.damaged: set[int] = set()  # positions that cannot be read now
        self._before = len(self.entries)  # of earlier logs
        self.counts, self.disk_counts = StoreCounts(), (DiskCounts(),)
        self.state = DiskStatus("memory", "ok", "", "00" * 16, 0, 0, 1 << 40, 0, 0, ())

    def append(
        self,
        kind: EntryKind,
        payload: bytes | Sequence[bytes],
        *,
        source: int = 0,
        first_offset: int = 0,
        count: int = 0,
        time_ns: int = 0,
    ) -> int:
        data = payload if isinstance(payload, bytes) else b"".join(payload)
        position = len(self.entries) + 1
        self.entries.append(Entry(kind, position, self.log_counter, source, first_offset, count, time_ns, data))
        return self.appended  # the positions of a log begin at 1; those of `entries` go on over all logs

    def flush(self) -> None:
        self.flushes += 1
        self.on_flush()

    def admit(self, nbytes: int) -> None:
        """There is always room."""

    def persist(self) -> None:
        """Everything appended so far is on the disks."""
        if len(self.entries) > self._persisted:
            self._persisted = len(self.entries)
            self.on_persisted(self._persisted - self._before)

    def fail(self, error: Exception) -> None:
        """The disks are gone; what was not persisted is lost."""
        del self.entries[self._persisted :]
        self.on_failed(error)

    def reopened(self) -> "StoreInMemory":
        """The store after a crash and a restart."""
        again = StoreInMemory(self.entries[: self._persisted], self.log_counter + 1)
        again._deleted = set(self._deleted)
        return again

    def replay(self) -> Iterator[Entry]:
        begin = self._checkpoint()
        parts = [entry for entry in self.entries if entry.kind == EntryKind.CHECKPOINT_PART and entry.source == begin]
        yield from parts
        for entry in self.entries[begin:]:
            if entry.kind not in CHECKPOINT_KINDS:
                yield entry._replace(payload=b"") if entry.kind in (EntryKind.MESSAGES, EntryKind.COPY) else entry

    def _checkpoint(self) -> int:
        """Position of the newest complete checkpoint's beginning, 0 when there is none."""
        ends = [entry.first_offset for entry in self.entries if entry.kind == EntryKind.CHECKPOINT_END]
        return ends[-1] if ends else 0

    @property
    def appended(self) -> int:
        return len(self.entries) - self._before

    @property
    def appended_bytes(self) -> int:
        return sum(len(entry.payload) for entry in self.entries[self._before :])

    def checkpoint(self, parts: Iterator[bytes]) -> CheckpointWriter:
        def append(kind: int, payload: bytes, source: int, first_offset: int, count: int) -> int:
            self.append(EntryKind(kind), payload, source=source, first_offset=first_offset, count=count)
            return len(self.entries)

        return CheckpointWriter(append, parts)

    @property
    def earlier_logs(self) -> int:
        """Earlier logs with messages, or with facts that no checkpoint holds."""
        begin = self._checkpoint()
        return len({one.log for one in self._left() if one.kind in MESSAGE_KINDS or one.position > begin})

    @property
    def uncovered_logs(self) -> int:
        begin = self._checkpoint()
        return len({one.log for one in self._left() if one.position > begin})

    def _left(self) -> Iterator[Entry]:
        """Entries of earlier logs."""
        return (one for one in self.entries if one.log < self.log_counter and one.position not in self._deleted)

    def collect(self, live: Live, basis: int = 0, more: More = lambda basis: None) -> CollectReport:
        """Delete every message entry that is not live, at once."""
        report = CollectReport()
        for entry in self.entries:
            if entry.kind == EntryKind.MESSAGES and entry.position not in self._deleted:
                report.looked_at += 1
                if not live(entry.source, entry.first_offset, entry.count, entry.time_ns):
                    self._deleted.add(entry.position)
                    report.removed.append((entry.log, entry.position))
        return report

    def status(self) -> StoreStatus:
        """One disk called `memory`, in the `state` a test gave it."""
        lag = len(self.entries) - self._persisted
        return StoreStatus(
            self.universe,
            self.log_counter,
            len(self.entries),
            self._persisted,
            lag,
            1,
            0,
            0,
            1 << 40,
            False,
            False,
            "",
            (self.state,),
        )

    def _of(self, source: int) -> list[Entry]:
        return [
            entry
            for entry in self.entries
            if entry.kind == EntryKind.MESSAGES and entry.source == source and entry.position not in self._deleted
        ]

    def receipt(self, source: int, offset: int, reply: ReceiptReply) -> None:
        """On the one disk there is."""
        for entry in self._of(source):
            if entry.position <= self._persisted and entry.first_offset <= offset < entry.first_offset + entry.count:
                state = CopyState.DAMAGED if entry.position in self.damaged else CopyState.HELD
                copies = [EntryCopy(self.state.path, state)]
                reply(
                    EntryReceipt(
                        entry.log, entry.position, entry.first_offset, entry.count, len(entry.payload), entry.time_ns,
                        state is CopyState.HELD, 1, copies,
                    )
                )  # fmt: skip
                return
        reply(None)

    def holdings(self) -> StoreHoldings:
        """On the one disk there is."""
        one = frozenset((0,))
        end = self._persisted
        segment = SegmentHolding(1, self.log_counter, 1, end, {0: end}, frozenset(), {}, one)
        fragment = FragmentHolding(AckRule.single(1), one, one, frozenset())
        return StoreHoldings(one, frozenset(), frozenset(), one, [segment], [fragment], [], (0, 0), "")

    def segment_rows(self, segment_id: int, payloads_of: int, reply: RowsReply) -> None:
        """All entries are in one segment."""
        records, payloads = [], {}
        for entry in self.entries:
            if entry.position in self._deleted:
                continue
            ordinal = entry.position - 1
            records.append(
                IndexRecord(
                    entry.source, entry.first_offset, entry.time_ns, entry.count, ordinal, len(entry.payload), ordinal,
                    entry.kind,
                )
            )  # fmt: skip
            if entry.kind == payloads_of:
                payloads[ordinal] = entry.payload
        reply(SegmentRows(records, payloads))

    def segments_of(self, source: int) -> list[int] | None:
        """Nothing is stored twice."""
        return None

    def read(
        self,
        source: int,
        begin: int,
        max_bytes: int,
        reply: Callable[[Sequence[StoredBatch] | Exception], None],
        *,
        early: bool = False,
        take: Callable[[StoredBatch], bool] | None = None,
    ) -> None:
        batches: list[StoredBatch] = []
        size = 0
        for entry in self._of(source):
            known = early or entry.position <= self._persisted
            if known and entry.first_offset + entry.count > begin and size < max_bytes:
                if entry.position in self.damaged:
                    if not batches:
                        end = entry.first_offset + entry.count
                        reply(StorageDamaged(f"entry {entry.position} is on no disk in good order", resume_offset=end))
                        return
                    break
                batches.append(StoredBatch(source, entry.first_offset, entry.count, entry.time_ns, entry.payload))
                size += len(entry.payload)
        if take is None or not self.on_disk:
            reply(batches)
            return
        try:
            for batch in batches:
                if not take(batch):
                    break
        except Exception as error:  # the asker is notified
            reply(error)
        else:
            reply([])

    def sources(self) -> set[int]:
        """Sources of which messages are stored."""
        kept = (entry for entry in self.entries if entry.position not in self._deleted)
        return {entry.source for entry in kept if entry.kind == EntryKind.MESSAGES}

    def bounds(self, source: int) -> tuple[int, int] | None:
        held = self._of(source)
        return (held[0].first_offset, held[-1].first_offset + held[-1].count) if held else None

    def offset_at(self, source: int, time_ns: int) -> int:
        held = self._of(source)
        for entry in held:
            if entry.time_ns >= time_ns:
                return entry.first_offset
        return held[-1].first_offset + held[-1].count if held else 0
