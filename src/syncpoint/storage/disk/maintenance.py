"""Maintenance of one disk: everything about a disk that is not a commit.

Place: one worker per disk, so that a hung disk holds up nobody else. It deletes under tombstones, refills the pool,
looks whether the folder is still the same, re-admits a failed disk under a new incarnation, and copies whatever the
disk lacks.
Promise: a disk whose folder was deleted or exchanged is noticed although its open files still take writes. What is
set aside at re-admission is deleted only segment by segment, after a whole copy lies in its place; what no other disk
has stays. A disk out of reach is not taken for a broken one.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from syncpoint.runtime.clock import Clock
from syncpoint.runtime.files import (
    DiskFenced,
    DiskUnreachable,
    Files,
    FileStat,
    FolderExchanged,
    replace_file,
    write_all,
)
from syncpoint.runtime.random import Random
from syncpoint.storage.copy_reader import CopyReader, Gone
from syncpoint.storage.damage import Damage, SegmentPart, SegmentPlace
from syncpoint.storage.disk.disk_copies import DiskCopies
from syncpoint.storage.disk.disk_identity import DiskIdentity, Marks, decode_marks, write_identity, write_marks
from syncpoint.storage.disk.disk_room import DiskRoom
from syncpoint.storage.disk.disk_writer import DiskWriter
from syncpoint.storage.disk.listed_segments import ListedSegments
from syncpoint.storage.disk.readmit import is_ours, known_name, left_aside, refuse_foreign, refuse_nameless, sort_out
from syncpoint.storage.disk.segment_catalog import Segment, SegmentCatalog, SegmentCopy
from syncpoint.storage.disk.segment_pool import REFILL_STEP_BYTES, SegmentPool
from syncpoint.storage.errors import CopiesChanged, CopiesUnreachable
from syncpoint.storage.index import DamagedIndex, IndexRecord
from syncpoint.storage.layout import (
    DISK_FILE,
    LOCK_FILE,
    READMITTED_FILE,
    logs_dir,
    parse_log,
    parse_segment,
    quarantine_dir,
    segment_path,
)
from syncpoint.storage.recovery.repair import rebuild
from syncpoint.storage.recovery.scrub import Checking, check_copy
from syncpoint.storage.settings import StorageSettings


class DiskListener(Protocol):
    """What a maintainer may ask of the store. What returns nothing is called through `notify`, but for `damaged`."""

    catalog: SegmentCatalog
    access: CopyReader
    universe: int
    copies: DiskCopies
    listed: ListedSegments
    room: DiskRoom

    def notify(self, act: Callable[[], None]) -> None: ...

    @property
    def accepting(self) -> bool:
        """Whether a disk may come back: the log is alive."""
        ...

    @property
    def wants_spares(self) -> bool:
        """Whether the log will soon need another segment."""
        ...

    def joined(self, slot: int, writer: DiskWriter, kept: Mapping[tuple[int, int], SegmentCopy]) -> None: ...

    def hung(self, writer: DiskWriter) -> None: ...

    def fenced(self, error: Exception) -> None: ...

    def damaged(self, segment: Segment, slot: int, damage: Damage) -> None:
        """Any thread."""
        ...

    def spares(self, slot: int, since: float) -> bool:
        """Whether the name of a failed disk can be given up; any thread."""
        ...

    def make_writer(self, slot: int, incarnation: bytes, pool: SegmentPool) -> DiskWriter: ...


class DiskMaintainer:
    """`step` runs on the maintainer's thread, `put` and the attributes are for the owner's."""

    def __init__(
        self,
        slot: int,
        root: str,
        owner: DiskListener,
        settings: StorageSettings,
        files: Files,
        clock: Clock,
        random: Random,
        writer: DiskWriter | None,
        pool: SegmentPool,
        lock: int | None,
    ) -> None:
        self.slot = slot
        self.root = root
        self.writer = writer
        self.pool = pool
        self.free = 0  # room on the file system or in the quota, without the pool
        self.damaged: list[str] = []
        self._owner = owner
        self._settings = settings
        self._files = files
        self._clock = clock
        self._random = random
        self._lock = lock
        self.disks: set[bytes] = set()  # incarnations under which this disk wrote the segments it has
        self._jobs: deque[tuple[str, str, bytes]] = deque()
        self._next_probe = clock.monotonic()
        self.answered_at = 0.0  # when the last probe that succeeded began; any thread
        self._identity: FileStat | None = None
        self._given_up: set[int] = set()
        self._aside: dict[tuple[int, int], str] = {}
        self._joining = False
        self._tried: set[bytes] = set()  # under which coming back failed half-way: the folder is still the same
        self._away_since: float | None = None  # the disk cannot be reached
        self._lost_at: float | None = None  # when it was first seen that the disk is not written any more
        self._refill_at = 0.0
        self.scrub_rounds = 0  # how often all of this disk was read through
        self._scrubbing: tuple[Segment, Checking] | None = None
        self._scrubbed = (0, 0)
        self._scrub_due = clock.monotonic()

    def note_identity(self) -> None:
        """Remember which file says who the disk is. Raises `OSError`."""
        self._identity = self._files.stat(f"{self.root}/{DISK_FILE}")

    def put_marks(self, content: bytes) -> None:
        """Write the tombstones; whatever is dropped afterwards waits for them."""
        self._jobs.append(("marks", "", content))

    def put_drop(self, path: str) -> None:
        self._jobs.append(("drop", path, b""))

    @property
    def ok(self) -> bool:
        return self.writer is not None and self.writer.ok

    @property
    def answers(self) -> bool:
        """Whether the disk is within reach and no commit of it hangs; any thread."""
        return self._away_since is None and self._silent_s() < self._settings.hung_s / 2

    @property
    def hangs(self) -> bool:
        """Whether that has not been so for longer than is waited for, if the others suffice."""
        return self._silent_s() > self._settings.hung_s

    def _silent_s(self) -> float:
        """For how long a commit has been under way, or the disk out of reach."""
        now = self._clock.monotonic()
        writer, away = self.writer, self._away_since
        busy = None if writer is None else writer.busy_since
        return max(0.0 if busy is None else now - busy, 0.0 if away is None else now - away)

    def step(self) -> float | None:
        """One bounded piece of work."""
        interval = self._settings.probe_interval_s
        try:
            due = self._work(interval)
            self._away_since = None
            return due
        except DiskUnreachable:
            self._next_probe = self._clock.monotonic()  # first of all it is seen whether the disk is back
            if self._away_since is None:
                self._away_since = self._next_probe
            self._tell_if_it_hangs()
        except DiskFenced as error:
            fenced = error
            self._owner.notify(lambda: self._owner.fenced(fenced))
        except OSError as error:
            if self.ok and self.writer is not None:
                self.writer.fail(error)
        return interval

    def _work(self, interval: float) -> float | None:
        now = self._clock.monotonic()
        joining, writer = self._joining, self.writer
        if not self.ok:
            if not joining:
                self._jobs.clear()
            if self._lost_at is None:
                self._lost_at = now
            if now >= self._next_probe and not joining and self._owner.accepting:
                self._next_probe = now + interval
                if writer is None or writer.given_up:
                    self._readmit(self._lost_at)
            return interval
        self._probe_if_due()  # before all else: that the disk obeys may be waited for, deleting is not
        if self._jobs:
            self._job()
            return 0.0
        if now >= self._refill_at:
            spares = self._settings.pool_segments if self._owner.wants_spares else 0
            more = self.pool.refill(spares, self.free - self._settings.segment_bytes)
            step_s = min(REFILL_STEP_BYTES, self._settings.segment_bytes) / self._settings.prewrite_bytes_per_s
            self._refill_at = now + (step_s if more else interval)
        if self._complete_one():
            return 0.0
        due = self._scrub()
        now = self._clock.monotonic()
        return max(0.001, min(self._next_probe, now + due, self._refill_at) - now)

    def close(self) -> None:
        """Give the disk back; no step runs any more."""
        self._run_left()
        with suppress(OSError):
            self.pool.close(unlink=self.ok)
        if self._lock is not None:
            lock, self._lock = self._lock, None
            with suppress(OSError):
                self._files.close(lock)
        self._files.let_go(self.root)

    def _run_left(self) -> None:
        try:
            while self._jobs and self.ok:
                self._job()
        except OSError:
            pass  # the next opening finds the tombstones or the segments

    def refresh(self) -> None:
        """Count the room. Raises `OSError`."""
        free = self._files.free_bytes(self.root)
        if self._settings.bytes_max is not None:
            self.pool.count()
            free = min(free, self._settings.bytes_max - self.pool.used)
        self.free = max(0, free)

    def _job(self) -> None:
        what, path, content = self._jobs[0]
        if what == "marks":
            while len(self._jobs) > 1 and self._jobs[1][0] == "marks":
                self._jobs.popleft()  # the later marks say all the earlier ones do
                content = self._jobs[0][2]
            write_marks(self._files, self.root, content)
        else:
            self._drop(path)
        self._jobs.popleft()

    def _drop(self, path: str) -> None:
        try:
            if self._is_ours(path):
                self.pool.give(path, self._settings.pool_segments_max)
            else:  # rotten, or somebody else's: it is in nobody's way
                log, seq = _place(path)
                self._files.mkdir(quarantine_dir(self.root))
                self._files.rename(path, f"{quarantine_dir(self.root)}/{log:010d}-{seq:08d}.unreadable")
            self._files.rmdir(path.rpartition("/")[0])
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno not in (39, 17):  # the folder still has others: ENOTEMPTY, EEXIST
                raise

    def _is_ours(self, path: str) -> bool:
        return is_ours(self._files, path, self._owner.universe, _place(path), self.disks)

    def _tell_if_it_hangs(self) -> None:
        writer = self.writer
        if writer is not None and writer.ok and self.hangs:
            self._owner.notify(lambda: self._owner.hung(writer))

    def _probe_if_due(self) -> None:
        now = self._clock.monotonic()
        if now >= self._next_probe:
            self._next_probe = now + self._settings.probe_interval_s
            self._probe()

    def _probe(self) -> None:
        """Is the folder still ours? Open files would go on taking writes if it were not."""
        self._tell_if_it_hangs()
        writer = self.writer
        assert writer is not None
        begun = self._clock.monotonic()
        found = self._files.stat(f"{self.root}/{DISK_FILE}")
        if self._identity is not None and (found.inode, found.device) != self._identity[1:]:
            raise OSError(5, f"{self.root}/{DISK_FILE} was exchanged")
        active = writer.active
        if active is not None:
            try:
                found = self._files.stat(active[0])
                same = (found.inode, found.device) == active[1][1:]
            except FileNotFoundError:
                same = False
            if not same and writer.active is active:
                raise OSError(5, f"{active[0]} was deleted or exchanged")
        self.answered_at = begun
        self.refresh()
        self._owner.notify(self._owner.room.count)

    def _readmit(self, lost_at: float) -> None:
        """See whether the folder is usable again; if so, come back as a new incarnation. Raises `OSError`.

        Not yet where the folder has a name to lose and the others were not seen since to do without it; never where
        disks are required and the folder has not the name that failed.
        """
        files, root = self._files, self.root
        files.let_go(root)
        mine = set() if self.writer is None else self._tried | {self.writer.incarnation}
        try:
            if self._settings.require_disks:
                refuse_nameless(files, root, self._owner.universe, mine)
            else:
                files.mkdir(root)
            files.hold(root)
            self.disks = refuse_foreign(files, root, self._owner.universe)
            if self._settings.require_disks:  # of the folder that is held, whatever lay there before
                refuse_nameless(files, root, self._owner.universe, mine)
        except FolderExchanged as error:
            files.abandon(root)  # a server of disks looks anew at its next session
            if self.writer is not None:
                self.writer.error = error
            raise
        self._take_lock()
        probe = f"{root}/probe.tmp"
        handle = files.open(probe, create=True)
        try:
            write_all(files, handle, [bytes(4096)], 0)
            files.fdatasync(handle)
        finally:
            files.close(handle)
            files.unlink(probe)
        name = known_name(files, root, self._owner.universe, mine)
        known = name is not None
        if known and not self._owner.spares(self.slot, lost_at):
            return
        # The new name comes first: a folder whose content is being moved away must not pass for the old incarnation.
        incarnation = self._random.token(16)
        if name is not None:
            self._tried = {name, incarnation}  # one of these two it has, whatever becomes of this
        replace_file(files, f"{root}/{READMITTED_FILE}", b"")
        write_identity(files, root, DiskIdentity(self._owner.universe, incarnation))
        self.disks.add(incarnation)
        marks = decode_marks(self._owner.listed.content()) or Marks()
        kept = sort_out(files, self._random, root, self.slot, self._owner.catalog, marks, known)
        self._aside.update(left_aside(files, root))
        with suppress(OSError):
            self.pool.close(unlink=False)
        pool = SegmentPool(files, root, self._settings.segment_bytes, self._settings.bytes_max)
        pool.open()
        self.pool = pool
        self.refresh()
        if self.free + len(pool) * self._settings.segment_bytes < 2 * self._settings.segment_bytes:
            raise OSError(28, "no room for two segments")
        write_marks(files, root, self._owner.listed.content())
        files.mkdir(logs_dir(root))
        files.sync_dir(root)
        self.note_identity()
        writer = self._owner.make_writer(self.slot, incarnation, pool)
        self._given_up.clear()
        self._joining = True
        self._tried.clear()
        self._owner.notify(lambda: self._join(writer, kept))

    def _join(self, writer: DiskWriter, kept: Mapping[tuple[int, int], SegmentCopy]) -> None:
        self.writer = writer
        self._lost_at = None
        self._joining = False
        self._owner.joined(self.slot, writer, kept)

    def _take_lock(self) -> None:
        if self._lock is not None:
            lock, self._lock = self._lock, None
            with suppress(OSError):
                self._files.close(lock)
        self._lock = self._files.open(f"{self.root}/{LOCK_FILE}", create=True)
        self._files.lock(self._lock)

    def lacking(self) -> Segment | None:
        """The oldest sealed segment this disk has no copy of and another one has; or of whose copy, which no other disk
        has, the index alone is damaged.
        """
        for segment in self._owner.catalog:
            if (
                (self.slot not in segment.copies or (segment.unreadable and _lacks_index(segment, self.slot)))
                and segment.sealed_by
                and segment.active is None
                and segment.copies
                and segment.id not in self._given_up
                and not segment.removed
            ):
                return segment
        return None

    def _complete_one(self) -> bool:
        """Copy one segment from the other disks; True when there was one."""
        segment = self.lacking()
        writer = self.writer
        if segment is None or writer is None:
            return False
        owner = self._owner
        try:
            copy, lost = rebuild(
                self._files,
                self._random,
                owner.catalog,
                owner.access,
                segment,
                self.slot,
                self.root,
                writer.incarnation,
                self._is_ours,
                between=self._probe_if_due,
                again=segment.copies.get(self.slot),
                whole=self.slot in segment.copies,
            )
        except CopiesUnreachable:
            return False  # another segment's turn comes when the disks that have it are back
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            with suppress(OSError):
                self._files.unlink(segment_path(self.root, segment.log, segment.seq) + ".tmp")
            return False  # it writes what is new, as long as it can; the rest once there is room
        except (DamagedIndex, Gone, CopiesChanged) as error:
            with suppress(OSError):
                self._files.unlink(segment_path(self.root, segment.log, segment.seq) + ".tmp")
            self._given_up.add(segment.id)
            self.damaged.append(f"segment {segment.log}/{segment.seq} cannot be copied: {error}")
            return True
        old = self._aside.pop((segment.log, segment.seq), None)
        if old is not None:
            self._files.unlink(old)
        self._given_up.add(segment.id)  # until the owner has taken note of the copy
        owner.notify(lambda: self._completed(segment, copy, lost))
        return True

    def _scrub(self) -> float:
        """Read a little of what is sealed; returns the seconds until the next bit is due."""
        rate = self._settings.scrub_bytes_s
        wait = self._scrub_due - self._clock.monotonic()
        if rate <= 0 or wait > 0:
            return wait if rate > 0 else 3600.0
        if self._scrubbing is None:
            self._scrubbing = self._next_scrub()
            if self._scrubbing is None:
                self._scrub_due = self._clock.monotonic() + 1.0
                return 1.0
        segment, steps = self._scrubbing
        read = 0
        problem: Damage | None = None
        try:
            read, problem = next(steps, (-1, None))
        except (DiskUnreachable, FolderExchanged):
            self._scrubbing = None
            raise
        except OSError as error:
            problem = Damage(SegmentPlace(SegmentPart.FILE), f"read failed: {error}")
        except BaseException:
            self._scrubbing = None  # it would seem to have been read to its end
            raise
        if read < 0 or problem:
            self._scrubbing = None
        if read < 0 and segment.unreadable:
            self._owner.notify(lambda: self._owner.copies.sound(segment))
        if problem and not segment.removed:
            self._owner.damaged(segment, self.slot, problem)
        pause = max(0, read) / rate
        self._scrub_due = self._clock.monotonic() + pause
        return pause

    def _next_scrub(self) -> tuple[Segment, Checking] | None:
        for segment in self._owner.catalog:
            copy = segment.copies.get(self.slot)
            place = (segment.log, segment.seq)
            if copy is not None and copy.sealed and segment.active is None and place > self._scrubbed:
                self._scrubbed = place
                return segment, check_copy(self._files, segment, copy)
        self._scrubbed = (0, 0)
        self.scrub_rounds += 1
        return None

    def _completed(self, segment: Segment, copy: SegmentCopy, lost: Sequence[IndexRecord]) -> None:
        self._given_up.discard(segment.id)
        self._owner.copies.completed(self.slot, segment, copy, lost)


def _lacks_index(segment: Segment, slot: int) -> bool:
    """Whether this is the only copy, and of what was found damaged in it all is of its index."""
    places = segment.unreadable.get(slot)
    return (
        places is not None
        and len(segment.copies) == 1
        and all(
            one.part is SegmentPart.INDEX
            for one in list(places)  # the loop may add to them meanwhile
        )
    )


def _place(path: str) -> tuple[int, int]:
    """Log and number that a segment file's path says."""
    _, folder, name = path.rsplit("/", 2)
    return parse_log(folder) or 0, parse_segment(name) or 0
