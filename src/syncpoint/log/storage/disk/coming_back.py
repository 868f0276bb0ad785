"""A failed disk's way back: the folder is usable again, and gets the name of a new incarnation.

Place: asked by `maintenance` while a disk is not written; `readmit` sorts out what lies in its folder.
Promise: not as long as the folder has a name to lose and the others were not seen since to do without it; never where
disks are required and the folder has not the name that failed. The new name comes first: a folder whose content is
being moved away must not pass for the old incarnation.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from syncpoint.base.runtime.file_content import replace_file, write_all
from syncpoint.base.runtime.files import Files, FolderExchanged
from syncpoint.base.runtime.random import Random
from syncpoint.log.storage.disk.disk_identity import DiskIdentity, Marks, decode_marks, write_identity
from syncpoint.log.storage.disk.disk_listener import DiskListener
from syncpoint.log.storage.disk.disk_writer import DiskWriter
from syncpoint.log.storage.disk.readmit import (
    SegmentKey,
    known_name,
    left_aside,
    refuse_foreign,
    refuse_nameless,
    sort_out,
)
from syncpoint.log.storage.disk.segment_catalog import SegmentCopy
from syncpoint.log.storage.layout import LOCK_FILE, READMITTED_FILE


class NewIncarnation(NamedTuple):
    """What a folder has after it got a new name. `kept`: copies that stay; `aside`: files in quarantine."""

    name: bytes
    kept: dict[SegmentKey, SegmentCopy]
    aside: dict[SegmentKey, str]


class ComingBack:
    """The folder of disk `slot`. `disks`: incarnations under which this disk wrote the segments it has."""

    def __init__(
        self, slot: int, root: str, owner: DiskListener, files: Files, random: Random, lock: int | None, required: bool
    ) -> None:
        self.disks: set[bytes] = set()
        self.tried: set[bytes] = set()  # names under which this failed half-way: the folder is still the same
        self.standing_by: bytes | None = None  # the name of a folder that is usable and keeps it as yet; any thread
        self._slot = slot
        self._root = root
        self._owner = owner
        self._files = files
        self._random = random
        self._lock = lock
        self._required = required

    def attempt(self, failed: DiskWriter | None, lost_at: float) -> NewIncarnation | None:
        """Check whether the folder is usable again; if so, give it a new name.

        Raises `OSError`. `failed`: the writer that failed, at `lost_at`; None if the disk was missing from the start.
        """
        try:
            name = self._look(failed)
        except OSError:
            self.standing_by = None
            raise
        spared = name is None or self._owner.spares(self._slot, lost_at)
        self.standing_by = None if spared else name
        return self._renamed(name) if spared else None

    def _look(self, failed: DiskWriter | None) -> bytes | None:
        """Hold and try the folder; returns the name it has to lose. Raises `OSError`."""
        files, root, universe = self._files, self._root, self._owner.universe
        files.let_go(root)
        mine = set() if failed is None else self.tried | {failed.incarnation}
        try:
            if self._required:
                refuse_nameless(files, root, universe, mine)
            else:
                files.mkdir(root)
            files.hold(root)
            self.disks = refuse_foreign(files, root, universe)
            if self._required:  # of the folder that is held, whatever lay there before
                refuse_nameless(files, root, universe, mine)
        except FolderExchanged as error:
            files.abandon(root)  # a server of disks looks anew at its next session
            if failed is not None:
                failed.error = error
            raise
        self._take_lock()
        self._try_to_write()
        return known_name(files, root, universe, mine)

    def _renamed(self, name: bytes | None) -> NewIncarnation:
        """Give the folder a new name in place of `name`, if it has one to lose. Raises `OSError`."""
        files, root, universe = self._files, self._root, self._owner.universe
        incarnation = self._random.token(16)
        if name is not None:
            self.tried = {name, incarnation}  # one of these two it has, whatever becomes of this
        replace_file(files, f"{root}/{READMITTED_FILE}", b"")
        write_identity(files, root, DiskIdentity(universe, incarnation))
        self.disks.add(incarnation)
        marks = decode_marks(self._owner.listed.content()) or Marks()
        kept = sort_out(files, self._random, root, self._slot, self._owner.catalog, marks, name is not None)
        return NewIncarnation(incarnation, kept, left_aside(files, root))

    def done(self) -> None:
        """The new incarnation can be written."""
        self.tried.clear()

    def release(self) -> None:
        """Give the folder's lock back."""
        if self._lock is not None:
            lock, self._lock = self._lock, None
            with suppress(OSError):
                self._files.close(lock)

    def _take_lock(self) -> None:
        self.release()
        self._lock = self._files.open(f"{self._root}/{LOCK_FILE}", create=True)
        self._files.lock(self._lock)

    def _try_to_write(self) -> None:
        files, probe = self._files, f"{self._root}/probe.tmp"
        handle = files.open(probe, create=True)
        try:
            write_all(files, handle, [bytes(4096)], 0)
            files.fdatasync(handle)
        finally:
            files.close(handle)
            files.unlink(probe)
