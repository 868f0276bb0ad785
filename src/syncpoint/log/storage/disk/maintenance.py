"""Maintenance of one disk: what is done next, of everything about a disk that is not a commit.

Place: one worker per disk, so that a hung disk holds up nobody else. In this order: whether the folder is still the
same, `disk_jobs`, spare segments, `missing_copies`, `scrubber`; while the disk is not written only `coming_back`.
Promise: a disk whose folder was deleted or exchanged is noticed although its open files still take writes. A disk out
of reach is not taken for a broken one.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from contextlib import suppress

from syncpoint.base.runtime.environment import Environment
from syncpoint.base.runtime.files import DiskFenced, DiskUnreachable, FileStat
from syncpoint.log.storage.disk.coming_back import ComingBack
from syncpoint.log.storage.disk.disk_identity import write_marks
from syncpoint.log.storage.disk.disk_jobs import DiskJobs, place_of
from syncpoint.log.storage.disk.disk_listener import DiskListener
from syncpoint.log.storage.disk.disk_writer import DiskWriter
from syncpoint.log.storage.disk.missing_copies import MissingCopies
from syncpoint.log.storage.disk.readmit import is_ours
from syncpoint.log.storage.disk.scrubber import Scrubber
from syncpoint.log.storage.disk.segment_catalog import SegmentCopy
from syncpoint.log.storage.disk.segment_pool import REFILL_STEP_BYTES, SegmentPool
from syncpoint.log.storage.layout import DISK_FILE, logs_dir
from syncpoint.log.storage.settings import StorageSettings


class DiskMaintainer:
    """`step` runs on the maintainer's thread; `jobs` and the other attributes are for the owner's."""

    def __init__(
        self,
        slot: int,
        root: str,
        lock: int | None,
        owner: DiskListener,
        settings: StorageSettings,
        environment: Environment,
    ) -> None:
        files, clock, random = environment.files, environment.clock, environment.random
        self.slot = slot
        self.root = root
        self.writer: DiskWriter | None = None
        self.pool = SegmentPool(files, root, settings.segment_bytes, settings.bytes_max)
        self.free = 0  # room on the file system or in the quota, without the pool
        self.damaged: list[str] = []
        self._owner = owner
        self._settings = settings
        self._files = files
        self._clock = clock
        self.answered_at = 0.0  # when the last probe that succeeded began; any thread
        self.jobs = DiskJobs(files, root, self._is_ours, self._reuse)
        self.coming_back = ComingBack(slot, root, owner, files, random, lock, settings.require_disks)
        self.scrubber = Scrubber(slot, owner, files, clock, settings.scrub_bytes_s)
        self._missing = MissingCopies(slot, root, owner, files, random, self._is_ours, self._probe_if_due, self.damaged)
        self._next_probe = clock.monotonic()
        self._identity: FileStat | None = None
        self._joining = False
        self._away_since: float | None = None  # the disk cannot be reached
        self._lost_at: float | None = None  # when it was first seen that the disk is not written any more
        self._refill_at = 0.0

    def note_identity(self) -> None:
        """Remember which file names the disk. Raises `OSError`."""
        self._identity = self._files.stat(f"{self.root}/{DISK_FILE}")

    @property
    def ok(self) -> bool:
        return self.writer is not None and self.writer.ok

    @property
    def reachable(self) -> bool:
        """Whether the disk's server answered the last check; any thread."""
        return self._away_since is None

    @property
    def answers(self) -> bool:
        """Whether the disk is within reach and no commit of it hangs; any thread."""
        return self._away_since is None and self._silent_s() < self._settings.hung_s / 2

    @property
    def hangs(self) -> bool:
        """Whether that has not been so for longer than is waited for, if the others suffice."""
        return self._silent_s() > self._settings.hung_s

    @property
    def stands_by(self) -> bool:
        """Whether the disk failed, can be used again, and keeps the name it failed under as yet: too few of the others
        answer. Only a new opening can make use of it; any thread.
        """
        writer = self.writer
        return (
            writer is not None
            and not writer.ok
            and self.reachable
            and self.coming_back.standing_by == writer.incarnation
        )

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
            self._report_hanging()
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
                self.jobs.clear()
            if self._lost_at is None:
                self._lost_at = now
            if now >= self._next_probe and not joining and self._owner.accepting:
                self._next_probe = now + interval
                if writer is None or writer.given_up:
                    self._come_back(self._lost_at)
            return interval
        self._probe_if_due()  # before all else: that the disk obeys may be waited for, deleting is not
        if self.jobs:
            self.jobs.run_one()
            return 0.0
        if now >= self._refill_at:
            spares = self._settings.pool_segments if self._owner.wants_spares else 0
            more = self.pool.refill(spares, self.free - self._settings.segment_bytes)
            step_s = min(REFILL_STEP_BYTES, self._settings.segment_bytes) / self._settings.prewrite_bytes_per_s
            self._refill_at = now + (step_s if more else interval)
        if writer is not None and self._missing.copy_one(writer.incarnation):
            return 0.0
        due = self.scrubber.step()
        now = self._clock.monotonic()
        return max(0.001, min(self._next_probe, now + due, self._refill_at) - now)

    def close(self) -> None:
        """Give the disk back; no step runs any more."""
        with suppress(OSError):  # the next opening finds the tombstones or the segments
            while self.jobs and self.ok:
                self.jobs.run_one()
        with suppress(OSError):
            self.pool.close(unlink=self.ok)
        self.coming_back.release()
        self._files.let_go(self.root)

    def refresh(self) -> None:
        """Count the room. Raises `OSError`."""
        free = self._files.free_bytes(self.root)
        if self._settings.bytes_max is not None:
            self.pool.count()
            free = min(free, self._settings.bytes_max - self.pool.used)
        self.free = max(0, free)

    def _is_ours(self, path: str) -> bool:
        return is_ours(self._files, path, self._owner.universe, place_of(path), self.coming_back.disks)

    def _reuse(self, path: str) -> None:
        self.pool.give(path, self._settings.pool_segments_max)

    def _report_hanging(self) -> None:
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
        self._report_hanging()
        writer = self.writer
        assert writer is not None
        begun = self._clock.monotonic()
        found = self._files.stat(f"{self.root}/{DISK_FILE}")
        if self._identity is not None and (found.inode, found.device) != self._identity[1:]:
            raise OSError(errno.EIO, f"{self.root}/{DISK_FILE} was replaced")
        active = writer.active
        if active is not None:
            try:
                found = self._files.stat(active[0])
                same = (found.inode, found.device) == active[1][1:]
            except FileNotFoundError:
                same = False
            if not same and writer.active is active:
                raise OSError(errno.EIO, f"{active[0]} was deleted or replaced")
        self.answered_at = begun
        self.refresh()
        self._owner.notify(self._owner.room.count)

    def _come_back(self, lost_at: float) -> None:
        """Where the folder is usable again, have a new incarnation join the log. Raises `OSError`."""
        new = self.coming_back.attempt(self.writer, lost_at)
        if new is None:
            return
        files, root, settings = self._files, self.root, self._settings
        self._missing.set_aside(new.aside)
        with suppress(OSError):
            self.pool.close(unlink=False)
        pool = SegmentPool(files, root, settings.segment_bytes, settings.bytes_max)
        pool.open()
        self.pool = pool
        self.refresh()
        if self.free + len(pool) * settings.segment_bytes < 2 * settings.segment_bytes:
            raise OSError(errno.ENOSPC, "not enough space for two segments")
        write_marks(files, root, self._owner.listed.content())
        files.mkdir(logs_dir(root))
        files.sync_dir(root)
        self.note_identity()
        writer = self._owner.make_writer(self.slot, new.name, pool)
        self._missing.begin_again()
        self._joining = True
        self.coming_back.done()
        self._owner.notify(lambda: self._join(writer, new.kept))

    def _join(self, writer: DiskWriter, kept: Mapping[tuple[int, int], SegmentCopy]) -> None:
        self.writer = writer
        self._lost_at = None
        self._joining = False
        self._owner.joined(self.slot, writer, kept)
