"""One disk's writer: group commit of everything that waits, sealing and opening of segments.

Place: `log` queues entries and rolls; a worker thread calls `step`, which takes all that waits, writes it with one
call and syncs it with another; the positions reached go back to `log` on the owner's thread.
Promise: `synced` is said only after fdatasync returned without an error. The first error of any kind ends this writer
for good (a failed sync may have lost what was written before it); the disk comes back only as a new incarnation, see
`maintenance`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from syncpoint.base.runtime.environment import Environment
from syncpoint.base.runtime.file_content import write_all
from syncpoint.base.runtime.files import Buffer, Files, FileStat
from syncpoint.log.storage.disk.disk_identity import DiskIdentity
from syncpoint.log.storage.disk.paced_files import DiskTurns
from syncpoint.log.storage.disk.segment_catalog import Segment, SegmentCopy
from syncpoint.log.storage.disk.segment_pool import SegmentPool
from syncpoint.log.storage.disk_counts import DiskCounts
from syncpoint.log.storage.index import index_bytes
from syncpoint.log.storage.layout import log_dir, segment_path
from syncpoint.log.storage.quorum import AckRule
from syncpoint.log.storage.record import HEADER_BYTES, Queued, encode_header
from syncpoint.log.storage.segment import (
    DATA_START,
    PAGE,
    SegmentHeader,
    align,
    encode_front,
    encode_mark,
    encode_trailer,
)
from syncpoint.log.storage.settings import Durability, StorageSettings

SMALL_IN_A_ROW = 8  # commits after which blocks are written ahead


class Roll(NamedTuple):
    """In the queue of every disk: seal one segment, open the next. Either may be None."""

    seal: Segment | None
    next: Segment | None
    members: tuple[bytes, ...]
    rule: AckRule
    away: int


class LogProgress:
    """What the log knows, read by the writers while they build headers."""

    __slots__ = ("synced",)

    def __init__(self) -> None:
        self.synced = 0


class DiskWriter:
    """The live writer of one disk incarnation; `report(self)` and `failed(self, error)` come on its own thread."""

    def __init__(
        self,
        slot: int,
        identity: DiskIdentity,
        settings: StorageSettings,
        environment: Environment,
        pool: SegmentPool,
        progress: LogProgress,
        report: Callable[[DiskWriter], None],
        failed: Callable[[DiskWriter, Exception], None],
        counts: DiskCounts | None = None,
    ) -> None:
        self.slot = slot
        self.counts = counts or DiskCounts()
        self._turns = self.counts.turns or DiskTurns(environment.clock)
        self.root = pool.root
        self.incarnation = identity.incarnation
        self.pool = pool
        self.written = 0  # highest position handed to the file
        self.synced = 0  # highest position fdatasync confirmed
        self.opened = 0  # number of the newest segment whose header is synced
        self.file_bytes = 0  # that its file has: less than a segment where the disk is full
        self.first_seq = 1  # the first segment of this log it was a member of
        self.error: Exception | None = None
        self.queued_bytes = 0  # counted by the owner
        self.done_bytes = 0  # counted by the writer
        self.busy_since: float | None = None
        self.answered_at = 0.0  # when the last commit that succeeded began
        self.resting = False  # waits for company and wakes by itself
        self.given_up = False  # nothing hangs on its files any more: the disk may be opened anew
        self.active: tuple[str, FileStat] | None = None  # path and identity of the file being written
        self._universe = identity.universe
        self._settings = settings
        self._files = environment.files
        self._clock = environment.clock
        self._random = environment.random
        self._progress = progress
        self._report = report
        self._failed = failed
        self._durability = Durability(settings.durability)
        self._sync_mode = self._durability is Durability.SYNC
        self._queue: deque[Queued | Roll] = deque()
        self._began = self._took = 0.0  # when the last commit did, and how long it took
        self._draining = False
        self._handle: int | None = None
        self._segment: Segment | None = None
        self._copy: SegmentCopy | None = None
        self._header: SegmentHeader | None = None
        self._seed = 0
        self._offset = 0
        self._small_commits = 0  # since the last large one
        self._written_blocks = 0  # up to here the file's blocks were written before
        self._marked = 0
        self._mark_turn = 0
        self._unsynced_since: float | None = None
        self._idle_since: float | None = None

    @property
    def ok(self) -> bool:
        return self.error is None

    @property
    def queued(self) -> bool:
        """Whether something waits to be written; any thread."""
        return bool(self._queue)

    @property
    def lag_bytes(self) -> int:
        """Bytes queued and not yet written."""
        return self.queued_bytes - self.done_bytes

    def put(self, entry: Queued) -> None:
        """Queue one entry; owner's thread. Nothing is written before the worker is woken."""
        self._queue.append(entry)
        self.queued_bytes += HEADER_BYTES + entry.length

    def roll(self, roll: Roll) -> None:
        self._queue.append(roll)

    def step(self) -> float | None:
        """One group commit, or what an idle disk does. Returns when to call again."""
        if self.error is not None:
            return None
        self.resting = False
        try:
            if self._queue:
                self.busy_since = None
                rest = self._rest()
                if rest > 0:
                    self.resting = True
                    return rest
                self.busy_since = self._began = self._clock.monotonic()
                self._idle_since = None
                turns = self._turns
                turns.under_way = 1
                self._commit()
                turns.under_way = 0
                self._took = self._clock.monotonic() - self._began
                if turns.watched:
                    turns.committed(self._took)
                self.counts.commit.note(self._took)
                self.answered_at = self._began
                self.busy_since = None
                if self._queue:
                    return 0.0
            return self._idle()
        except Exception as error:  # any error, also one of ours, ends this writer: it never guesses what was written
            self.fail(error)
            return None

    def _rest(self) -> float:
        """How long to wait for company: twice as long as the last commit took lies between the beginnings of two, up to
        a bound, unless much waits already. An idle disk begins at once.
        """
        spacing = min(self._settings.commit_spacing_s, 2 * self._took)
        if not spacing or self._draining or self.lag_bytes >= self._settings.commit_full_bytes:
            return 0.0
        return self._began + spacing - self._clock.monotonic()

    def fail(self, error: Exception) -> None:
        """Give this incarnation up. Idempotent; any thread."""
        if self.error is None:
            self.error = error
            self._turns.under_way = 0
            self.counts.failures += 1
            self._failed(self, error)

    def drain(self) -> None:
        """Commit all that is queued; for the end, when no thread calls `step` any more."""
        self._draining = True
        while self._queue and self.error is None:
            self.step()

    def release(self) -> None:
        """Close the open file; only once no step can be running."""
        if self._handle is not None:
            handle, self._handle = self._handle, None
            with suppress(OSError):  # nothing was promised by it
                self._files.close(handle)

    def _commit(self) -> None:
        queue, seed = self._queue, self._seed
        synced = self._progress.synced
        buffers: list[Buffer] = []
        size, left, position = 0, self._settings.commit_bytes_max, self.written
        before = position
        done = 0  # of `size`, what is in the file already
        rolled = False
        while queue and left > 0:
            entry = queue.popleft()
            if type(entry) is Queued:
                assert entry.position == position + 1, (entry.position, position)  # as `Log.append` numbered them
                buffers.append(encode_header(seed, entry, synced))
                buffers += entry.buffers
                taken = HEADER_BYTES + entry.length
                size += taken
                left -= taken
                position = entry.position
            else:
                self._write(buffers, size - done, position)
                buffers, done = [], size
                self._reached(position)
                assert isinstance(entry, Roll)
                assert entry.seal is None or entry.seal.last_position == position, (entry.seal, position)
                self._roll(entry)
                seed = self._seed
                rolled = True
        self._write(buffers, size - done, position)
        if self.error is not None:
            return  # given up by the owner while the write was under way
        self._reached(position)
        self.done_bytes += size
        self.counts.commits += 1
        self.counts.entries += position - before
        self.counts.bytes += size
        if self._sync_mode or rolled:
            self._sync()
        elif self._unsynced_since is None:
            self._unsynced_since = self._clock.monotonic()
        self._report(self)

    def _write(self, buffers: list[Buffer], size: int, position: int) -> None:
        if buffers:
            assert self._handle is not None
            self._have_room(size, position)
            self._prewrite(self._offset + size, size)
            self._offset = write_all(self._files, self._handle, buffers, self._offset)

    def _prewrite(self, end: int, size: int) -> None:
        """Have a commit of `size` bytes that ends there fall on written blocks, if it and those before it are small: in
        blocks that are only allocated, each sync writes that they are written now, too. Zeros cost one in a few hundred
        commits; among large commits they would only be written over.
        """
        ahead = self._settings.prewrite_ahead_bytes
        self._small_commits = self._small_commits + 1 if size <= ahead // 8 else 0
        if end > self._written_blocks and self._small_commits > SMALL_IN_A_ROW and self._sync_mode:
            begin = max(self._offset, self._written_blocks)
            self._written_blocks = min(align(begin + ahead), self.file_bytes)
            if self._written_blocks > begin:
                assert self._handle is not None
                self._files.zero(self._handle, begin, self._written_blocks - begin)

    def _have_room(self, size: int, position: int) -> None:
        """The file has room for this many bytes of entries up to `position`, and after them for their index: whatever
        is written can be sealed, on a full disk as well. Raises `OSError`.
        """
        handle, segment = self._handle, self._segment
        assert handle is not None
        assert segment is not None
        sources = 0 if segment.active is None else segment.active.sources
        needed = align(self._offset + size) + index_bytes(position - segment.first_position + 1, sources) + PAGE
        if needed > self.file_bytes:
            self._files.allocate(handle, needed)
            self.file_bytes = needed

    def _reached(self, position: int) -> None:
        """Readers learn of it before anybody can call it persisted."""
        if self._copy is not None:
            self._copy.written = position
        self.written = position

    def _sync(self) -> None:
        position = self.written
        if self._handle is not None:
            began = self._clock.monotonic()
            self._files.fdatasync(self._handle)
            self.counts.sync.note(self._clock.monotonic() - began)
        self._unsynced_since = None
        if self.error is None:
            self.synced = position

    def _idle(self) -> float | None:
        """Sync what is due, then note how far this disk is synced; returns the time until something is due."""
        if self._unsynced_since is not None:
            due = self._unsynced_since + self._settings.sync_interval_s - self._clock.monotonic()
            if due > 0:
                return due
            self._sync()
            self._report(self)
        if self.synced <= self._marked or self._handle is None:
            return None
        if self._idle_since is None:
            self._idle_since = self._clock.monotonic()
        due = self._idle_since + self._settings.idle_mark_s - self._clock.monotonic()
        if due > 0:
            return due
        self._idle_since = None
        known = min(self.synced, self._progress.synced)
        if known > self._marked:
            self._mark(known)
        return None if known == self.synced else self._settings.idle_mark_s

    def _mark(self, known: int) -> None:
        assert self._handle is not None
        self._mark_turn += 1
        offset, data = encode_mark(self._seed, known, self._mark_turn)
        write_all(self._files, self._handle, [data], offset)
        self._files.fdatasync(self._handle)
        self._marked = known

    def _roll(self, roll: Roll) -> None:
        if roll.seal is not None and self._handle is not None:
            self._seal(roll.seal)
        if roll.next is not None:
            self._open(roll.next, roll.members, roll.rule, roll.away)

    def _seal(self, segment: Segment) -> None:
        handle, header = self._handle, self._header
        assert handle is not None
        assert header is not None
        write_seal(self._files, handle, header, segment, self._settings.segment_bytes)
        self._sync()
        self.active = None
        self._handle = self._copy = None
        self._files.close(handle)
        copy = segment.copies.get(self.slot)
        if copy is not None and copy.incarnation == header.incarnation:
            copy.sealed = True

    def _open(self, segment: Segment, members: tuple[bytes, ...], rule: AckRule, away: int) -> None:
        files = self._files
        path = segment_path(self.root, segment.log, segment.seq)
        folder = log_dir(self.root, segment.log)
        if segment.seq == 1:
            self.pool.make_folder(folder)
            files.sync_dir(folder.rpartition("/")[0])
        header = SegmentHeader(
            self._universe,
            segment.log,
            segment.seq,
            int.from_bytes(self._random.token(8), "little"),
            segment.first_position,
            self.incarnation,
            members,
            rule,
            away,
        )
        self.pool.make_folder(folder)
        self._handle = handle = self.pool.take(path, first=segment.seq == 1)
        write_all(files, handle, [encode_front(header)], 0)
        files.fdatasync(handle)
        files.sync_dir(folder)
        self._header, self._seed, self._offset = header, header.seed, DATA_START
        self._marked, self._mark_turn = segment.first_position - 1, 0
        found = files.fstat(handle)
        self.active, self.file_bytes, self._segment = (path, found), found.size, segment
        self._written_blocks = found.size if self.pool.took_written else DATA_START
        before = segment.first_position - 1
        self._copy = segment.copies[self.slot] = SegmentCopy(header.incarnation, header.seed, path, False, before)
        self.opened = segment.seq

    def open_now(self, segment: Segment, members: tuple[bytes, ...], rule: AckRule, away: int) -> None:
        """Open the first segment before the worker is started. Raises `OSError`."""
        self._open(segment, members, rule, away)


def write_seal(files: Files, handle: int, header: SegmentHeader, segment: Segment, segment_bytes: int) -> None:
    """Write the index after the frames, sync, and then the trailer; the caller syncs that.

    A trailer is believed without reading the frames, so it must not reach the disk before them. A half-empty file gives
    its room back.
    """
    body = segment.footer()
    used = segment.index_offset + len(body) + PAGE
    size = segment_bytes if segment_bytes // 2 < used <= segment_bytes else used
    write_all(files, handle, [bytes(segment.index_offset - segment.data_end), body], segment.data_end)
    files.truncate(handle, size)
    files.fdatasync(handle)
    write_all(files, handle, [encode_trailer(header, segment.trailer())], size - PAGE)
