"""Spare segment files of one disk: pre-written, so that a commit's fdatasync finds no metadata to journal.

Place: `disk` takes a file when it opens a segment, `keeper` refills and gives back those of removed segments.
Promise: a file in the pool has the full size of a segment, written blocks, and no valid header. Taking never waits
for zeros to be written: an empty pool means a new, allocated file. The pool is also the room kept in reserve: while
admission refuses messages, acknowledgements and copies forward are written into these files. Two small files are kept
besides, made when the disk is opened first, for a file system that others filled to the last byte.
"""

from __future__ import annotations

import errno
from collections import deque
from contextlib import suppress

from syncpoint.runtime.files import Files
from syncpoint.storage.layout import logs_dir, pool_dir, quarantine_dir
from syncpoint.storage.segment import DATA_START, PAGE

REFILL_STEP_BYTES = 4 << 20  # written by one step of `refill`
_LAST = "last.keep"  # a small segment file, for the log of a disk without one free byte
_SLACK = "slack.keep"  # given back where a folder cannot be made for want of room
_SLACK_BYTES = 16 * 1024


class Pool:
    """The spare files of one disk folder. `take` is for the writer's thread, the rest for the keeper's."""

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
            if name in (_LAST, _SLACK) and self._files.stat(path).size:
                continue
            if name.endswith(".free") and self._files.stat(path).size == self._segment_bytes:
                self._spare.append(path)
            else:
                self._files.unlink(path)
        with suppress(OSError):  # a disk that is full already: what an earlier run kept is there
            self._keep_reserve()

    @property
    def _last_bytes(self) -> int:
        return max(self._segment_bytes // 16, 8 * PAGE)

    def _keep_reserve(self) -> None:
        """Have the files that stay until there is no room at all. Raises `OSError`."""
        there = set(self._files.listdir(self._dir))
        for name, size in ((_LAST, self._last_bytes), (_SLACK, _SLACK_BYTES)):
            if name in there or self._over_quota(size):
                continue
            path = f"{self._dir}/{name}"
            handle = self._files.open(path, create=True)
            try:
                self._files.allocate(handle, size)
                self._files.fdatasync(handle)
            except OSError:
                self._files.unlink(path)
                raise
            finally:
                self._files.close(handle)
            self.used += size
        self._reserved = True

    def make_folder(self, path: str) -> None:
        """Make a folder, if need be in what was kept for that. Raises `OSError`."""
        try:
            self._files.mkdir(path)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            self._reserved = False
            self._files.unlink(f"{self._dir}/{_SLACK}")
            self._files.mkdir(path)

    def take(self, path: str) -> int:
        """A handle on a file of full size, now called `path`. Raises `OSError`, among them ENOSPC."""
        while self._spare:
            spare = self._spare.popleft()
            try:
                self._files.rename(spare, path)
            except FileNotFoundError:
                continue
            return self._files.open(path)
        size = self._segment_bytes
        if self._over_quota(size):
            self.count()  # sealed segments have given room back meanwhile
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
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                return self._take_last(path, error)
            raise
        self.used += size
        return handle

    def _take_last(self, path: str, error: OSError) -> int:
        """The file kept for a full disk: small, and enough to acknowledge, which frees room."""
        try:
            self._files.rename(f"{self._dir}/{_LAST}", path)
        except FileNotFoundError:
            raise error from None
        self._reserved = False
        return self._files.open(path)

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
        """Recycle a removed segment's file; it is deleted when it is not whole or `keep` spare ones are there."""
        if len(self._spare) >= keep or self._files.stat(path).size != self._segment_bytes:
            self._files.unlink(path)
            return False
        handle = self._files.open(path)
        try:
            self._files.zero(handle, 0, DATA_START)  # no old header may be met under a new name
            self._files.fdatasync(handle)
        finally:
            self._files.close(handle)
        self._files.rename(path, self._next_path(".free"))
        self._spare.append(f"{self._dir}/{self._number:08d}.free")
        return True

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
