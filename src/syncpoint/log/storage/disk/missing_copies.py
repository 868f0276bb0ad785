"""Copies to a disk what it lacks and others have, one segment at a time, the oldest first.

Place: one for each disk, asked by `maintenance` when nothing is to be deleted.
Promise: what was set aside when the disk came back is deleted only after a whole copy lies in its place; what no other
disk has stays. A full disk goes on writing what is new.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from contextlib import suppress

from syncpoint.base.runtime.files import Files
from syncpoint.base.runtime.random import Random
from syncpoint.log.storage.copy_reader import Gone
from syncpoint.log.storage.damage import SegmentPart
from syncpoint.log.storage.disk.disk_listener import DiskListener
from syncpoint.log.storage.disk.segment_catalog import Segment, SegmentCopy
from syncpoint.log.storage.errors import CopiesChanged, CopiesUnreachable
from syncpoint.log.storage.index import DamagedIndex, IndexRecord
from syncpoint.log.storage.layout import segment_path
from syncpoint.log.storage.recovery.repair import rebuild


class MissingCopies:
    """What disk `slot` lacks. `between`: called while a segment is copied; `damaged`: where failures are noted."""

    def __init__(
        self,
        slot: int,
        root: str,
        owner: DiskListener,
        files: Files,
        random: Random,
        is_ours: Callable[[str], bool],
        between: Callable[[], None],
        damaged: list[str],
    ) -> None:
        self._slot = slot
        self._root = root
        self._owner = owner
        self._files = files
        self._random = random
        self._is_ours = is_ours
        self._between = between
        self._damaged = damaged
        self._passed: set[int] = set()  # segments not to be tried now
        self._aside: dict[tuple[int, int], str] = {}

    def begin_again(self) -> None:
        """The disk came back: everything it lacks is tried anew."""
        self._passed.clear()

    def set_aside(self, paths: dict[tuple[int, int], str]) -> None:
        """These files lie in quarantine until whole copies are in their places."""
        self._aside.update(paths)

    def copy_one(self, incarnation: bytes) -> bool:
        """Copy one segment from the other disks; True when there was one. Raises `OSError`."""
        segment = self._next()
        if segment is None:
            return False
        owner = self._owner
        try:
            copy, lost = rebuild(
                self._files,
                self._random,
                owner.catalog,
                owner.access,
                segment,
                self._slot,
                self._root,
                incarnation,
                self._is_ours,
                between=self._between,
                again=segment.copies.get(self._slot),
                whole=self._slot in segment.copies,
            )
        except CopiesUnreachable:
            return False  # another segment's turn comes when the disks that have it are back
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            self._remove_partial(segment)
            return False  # it writes what is new, as long as it can; the rest once there is room
        except (DamagedIndex, Gone, CopiesChanged) as error:
            self._remove_partial(segment)
            self._passed.add(segment.id)
            self._damaged.append(f"segment {segment.log}/{segment.seq} cannot be copied: {error}")
            return True
        old = self._aside.pop((segment.log, segment.seq), None)
        if old is not None:
            self._files.unlink(old)
        self._passed.add(segment.id)  # until the owner has taken note of the copy
        owner.notify(lambda: self._completed(segment, copy, lost))
        return True

    def _next(self) -> Segment | None:
        """The oldest sealed segment this disk has no copy of and another one has; or of whose copy, which no other disk
        has, the index alone is damaged.
        """
        for segment in self._owner.catalog:
            if (
                (self._slot not in segment.copies or (segment.unreadable and _lacks_index(segment, self._slot)))
                and segment.sealed_by
                and segment.active is None
                and segment.copies
                and segment.id not in self._passed
                and not segment.removed
            ):
                return segment
        return None

    def _remove_partial(self, segment: Segment) -> None:
        with suppress(OSError):
            self._files.unlink(segment_path(self._root, segment.log, segment.seq) + ".tmp")

    def _completed(self, segment: Segment, copy: SegmentCopy, lost: Sequence[IndexRecord]) -> None:
        self._passed.discard(segment.id)
        self._owner.copies.completed(self._slot, segment, copy, lost)


def _lacks_index(segment: Segment, slot: int) -> bool:
    """Whether this is the only copy, and of what was found damaged in it all is of its index."""
    places = segment.unreadable.get(slot)
    return (
        places is not None
        and len(segment.copies) == 1
        # The loop may add to them in the meantime.
        and all(one.part is SegmentPart.INDEX for one in list(places))
    )
