"""Spare segment files of one disk: pre-written, so that a commit's fdatasync finds no metadata to journal.

Place: `disk_writer` takes a file when it opens a segment, `maintenance` refills and gives back those of removed
segments.
Promise: a file in the pool has the full size of a segment, written blocks, and no valid header. Taking never waits
for zeros to be written: an empty pool means a new, allocated file. The pool is also the room kept in reserve: while
admission refuses messages, acknowledgements and copies forward are written into these files. Some small files are kept
besides, made when the disk is opened first, for a file system that others filled to the last byte: each can begin a
log. A log that is written already gets what is beyond `_LOGS` of them, so that so many owners in a row can open the
disk although each ended before it deleted anything; what is deleted makes up for them first.
"""

from __future__ import annotations

import errno
from collections import deque
from contextlib import suppress

from syncpoint.base.runtime.files import Files
from syncpoint.log.storage.layout import logs_dir, pool_dir, quarantine_dir
from syncpoint.log.storage.segment import DATA_START, PAGE

REFILL_STEP_BYTES = 4 << 20  # written by one step of `refill`
_LOGS = 4  # that can begin on a disk without one free byte, whatever else was written on it
_SMALL = tuple(f"small-{number}.keep" for number in range(_LOGS + 1))  # segment files for that, and one to go on
_SLACK = "slack.keep"  # given back block by block where a folder cannot be made for want of room
_SLACK_BYTES = 32 * 1024
_BLOCK = 4096


class SegmentPool:
    """The spare files of one disk folder. `take` is for the writer's thread, the rest for the maintainer's."""

    def __init__(self, files: Files, root: str, segment_bytes: int, bytes_max: int | None) -> None:
        self.root = root
        self._files = files
        self._dir = pool_dir(root)
        self._segment_bytes = segment_bytes
        self._bytes_max = bytes_max
        self._spare: deque[str] = deque()
        self._number = 0
        self._filling: tuple[int, str, int] | None = None  # handle, path, next offset
        self._reserved = False
        self._small: list[str] = []  # those of `_SMALL` that are there
        self._slack = 0  # bytes of `_SLACK`
        self.took_written = False  # whether the file that was taken last has written blocks
        self.used = 0  # bytes of the folder's files when last counted, for the quota

    def __len__(self) -> int:
        return len(self._spare)

    def open(self) -> None:
        """Find the files of an earlier run; what is not whole is deleted."""
        self._files.mkdir(self._dir)
        for name in sorted(self._files.listdir(self._dir)):
            path = f"{self._dir}/{name}"
            stem = name.removesuffix(".free")
            if stem.isdecimal():
                self._number = max(self._number, int(stem))
            if name in _SMALL and self._files.stat(path).size == self._small_bytes:
                self._small.append(name)
                continue
            if name == _SLACK:
                self._slack = self._files.stat(path).size
                continue
            if name.endswith(".free") and self._files.stat(path).size == self._segment_bytes:
                self._spare.append(path)
            else:
                self._files.unlink(path)
        with suppress(OSError):  # a disk that is full already: what an earlier run kept is there
            self._keep_reserve()

    @property
    def _small_bytes(self) -> int:
        return min(self._segment_bytes, max(self._segment_bytes // 16, 16 * PAGE))

    def _keep_reserve(self) -> None:
        """Have the files that stay until there is no room at all. Raises `OSError`."""
        for name in _SMALL:
            if name not in self._small and not self._over_quota(self._small_bytes):
                self._allocate(name, self._small_bytes)
                self._small.append(name)
                self.used += self._small_bytes
        if self._slack < _SLACK_BYTES and not self._over_quota(_SLACK_BYTES):
            self._allocate(_SLACK, _SLACK_BYTES)
            self._slack = _SLACK_BYTES
        self._reserved = True

    def _allocate(self, name: str, size: int) -> None:
        path = f"{self._dir}/{name}"
        handle = self._files.open(path, create=True)
        try:
            self._files.allocate(handle, size)
            self._files.fdatasync(handle)
        except OSError:
            if name != _SLACK:
                self._files.unlink(path)
            raise
        finally:
            self._files.close(handle)

    def make_folder(self, path: str) -> None:
        """Make a folder, if need be in what was kept for that. Raises `OSError`."""
        while True:
            try:
                self._files.mkdir(path)
                return
            except OSError as error:
                if error.errno != errno.ENOSPC or not self._give_back():
                    raise

    def _give_back(self) -> bool:
        """Hand out a block of the slack; False if none is left."""
        if not self._slack:
            return False
        handle = self._files.open(f"{self._dir}/{_SLACK}")
        try:
            self._files.truncate(handle, max(0, self._slack - _BLOCK))
        finally:
            self._files.close(handle)
        self._slack, self._reserved = max(0, self._slack - _BLOCK), False
        return True

    def take(self, path: str, *, first: bool = False) -> int:
        """A handle on a file, now called `path`: of full size, or as much as there is. `first`: of a log, which may
        take what others may not. Raises `OSError`, among them ENOSPC.
        """
        self.took_written = False
        if first and self._free() < self._segment_bytes and self._take_small(path):
            return self._files.open(path)  # spares go to who has written more than that
        while self._spare:
            spare = self._spare.popleft()
            try:
                self._files.rename(spare, path)
            except FileNotFoundError:
                continue
            self.took_written = True
            return self._files.open(path)
        size = self._segment_bytes
        if self._over_quota(size):
            self.count()  # sealed segments have given room back in the meantime
            if self._over_quota(size):
                size = self._segment_bytes // 8  # what is left is for acknowledgements; the file grows as it is written
                if self._over_quota(size):
                    raise OSError(errno.ENOSPC, "the quota of this disk folder is used up")
        handle = self._files.open(path, create=True)
        try:
            self._files.allocate(handle, size)
        except BaseException as error:
            self._files.close(handle)
            self._files.unlink(path)
            full = isinstance(error, OSError) and error.errno == errno.ENOSPC
            if full and len(self._small) > (0 if first else _LOGS) and self._take_small(path):
                return self._files.open(path)
            raise
        self.used += size
        return handle

    def _take_small(self, path: str) -> bool:
        """Have a file kept for a full disk there: enough to acknowledge, which frees room. False where none is left."""
        self._reserved = False
        while self._small:
            name = self._small[-1]
            try:
                self._files.rename(f"{self._dir}/{name}", path)
                return True
            except FileNotFoundError:
                continue
            finally:
                self._small.remove(name)  # only now may the maintainer make another one
        return False

    def _free(self) -> int:
        free = self._files.free_bytes(self.root)
        return free if self._bytes_max is None else min(free, self._bytes_max - self.used)

    def _over_quota(self, more: int) -> bool:
        return self._bytes_max is not None and self.used + more > self._bytes_max

    def count(self) -> None:
        """Count what the folder's files take."""
        used = 0
        folders = [self._dir, quarantine_dir(self.root)]
        folders += [f"{logs_dir(self.root)}/{name}" for name in self._list(logs_dir(self.root))]
        for folder in folders:
            for name in self._list(folder):
                with suppress(FileNotFoundError):
                    used += self._files.stat(f"{folder}/{name}").size
        self.used = used

    def _list(self, folder: str) -> list[str]:
        try:
            return self._files.listdir(folder)
        except FileNotFoundError:
            return []

    def give(self, path: str, keep: int) -> bool:
        """Recycle a removed segment's file; it is deleted when it is not whole or `keep` spare ones are there. First of
        all it makes up for what a full disk has taken.
        """
        size = self._files.stat(path).size
        if len(self._small) < len(_SMALL) and size >= self._small_bytes:
            name = next(name for name in _SMALL if name not in self._small)
            self._clear(path, self._small_bytes)
            self._files.rename(path, f"{self._dir}/{name}")
            self._small.append(name)
            return True
        if len(self._spare) >= keep or size != self._segment_bytes:
            self._files.unlink(path)
            return False
        self._clear(path, size)
        self._files.rename(path, self._next_path(".free"))
        self._spare.append(f"{self._dir}/{self._number:08d}.free")
        return True

    def _clear(self, path: str, size: int) -> None:
        """No old header may be met under a new name."""
        handle = self._files.open(path)
        try:
            self._files.zero(handle, 0, DATA_START)
            self._files.truncate(handle, size)
            self._files.fdatasync(handle)
        finally:
            self._files.close(handle)

    def refill(self, keep: int, free_bytes: int) -> bool:
        """One bounded step of pre-writing; True while there is more to do. A full disk has no spares, and lives."""
        try:
            return self._refill(keep, free_bytes)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            self.close()
            return False

    def _refill(self, keep: int, free_bytes: int) -> bool:
        if not self._reserved and free_bytes > 0:
            self._keep_reserve()
        if self._filling is None:
            if len(self._spare) >= keep or free_bytes < self._segment_bytes:
                return False
            path = self._next_path(".new")
            self._filling = (self._files.open(path, create=True), path, 0)
        handle, path, offset = self._filling
        size = min(REFILL_STEP_BYTES, self._segment_bytes - offset)
        self._files.zero(handle, offset, size)
        offset += size
        self._files.fdatasync(handle)  # a little at a time: a commit that waits for the same disk waits for little
        self._filling = (handle, path, offset)
        if offset < self._segment_bytes:
            return True
        self._filling = None
        self._files.close(handle)
        ready = path.removesuffix(".new") + ".free"
        self._files.rename(path, ready)
        self._files.sync_dir(self._dir)
        self._spare.append(ready)
        self.used += self._segment_bytes
        return len(self._spare) < keep

    def close(self, *, unlink: bool = True) -> None:
        """Drop a half-written file; on a disk that may not be written any more the next opening finds it."""
        if self._filling is not None:
            handle, path, _ = self._filling
            self._filling = None
            self._files.close(handle)
            if unlink:
                self._files.unlink(path)

    def _next_path(self, suffix: str) -> str:
        self._number += 1
        return f"{self._dir}/{self._number:08d}{suffix}"
