"""Reads through all that a disk has sealed, round after round, at a bounded rate.

Place: one for each disk, asked by `maintenance` when there is nothing more urgent.
Promise: damage is found before the last good copy rots, too; a disk out of reach, or one that another writer has taken
over, is not taken for a damaged one.
Leaves to `disk_copies`: what becomes of a damaged copy.
"""

from __future__ import annotations

from syncpoint.base.runtime.clock import Clock
from syncpoint.base.runtime.files import DiskFenced, DiskUnreachable, Files, FolderExchanged
from syncpoint.log.storage.damage import Damage, SegmentPart, SegmentPlace
from syncpoint.log.storage.disk.disk_listener import DiskListener
from syncpoint.log.storage.disk.segment_catalog import Segment
from syncpoint.log.storage.recovery.scrub import Checking, check_copy

_OFF_S = 3600.0
_IDLE_S = 1.0


class Scrubber:
    """Reads the copies of disk `slot`. `rounds`: how often all of them were read."""

    def __init__(self, slot: int, owner: DiskListener, files: Files, clock: Clock, bytes_per_s: float) -> None:
        self.rounds = 0
        self._slot = slot
        self._owner = owner
        self._files = files
        self._clock = clock
        self._bytes_per_s = bytes_per_s
        self._reading: tuple[Segment, Checking] | None = None
        self._last = (0, 0)
        self._due = clock.monotonic()

    def step(self) -> float:
        """Read a little; returns the seconds until the next bit is due."""
        rate = self._bytes_per_s
        wait = self._due - self._clock.monotonic()
        if rate <= 0 or wait > 0:
            return wait if rate > 0 else _OFF_S
        if self._reading is None:
            self._reading = self._next()
            if self._reading is None:
                self._due = self._clock.monotonic() + _IDLE_S
                return _IDLE_S
        segment, steps = self._reading
        read = 0
        problem: Damage | None = None
        try:
            read, problem = next(steps, (-1, None))
        except (DiskUnreachable, DiskFenced, FolderExchanged):
            self._reading = None
            raise
        except OSError as error:
            problem = Damage(SegmentPlace(SegmentPart.FILE), f"read failed: {error}")
        except BaseException:
            self._reading = None  # it would seem to have been read to its end
            raise
        if read < 0 or problem:
            self._reading = None
        if read < 0 and segment.unreadable:
            self._owner.notify(lambda: self._owner.copies.sound(segment))
        if problem and not segment.removed:
            self._owner.damaged(segment, self._slot, problem)
        pause = max(0, read) / rate
        self._due = self._clock.monotonic() + pause
        return pause

    def _next(self) -> tuple[Segment, Checking] | None:
        for segment in self._owner.catalog:
            copy = segment.copies.get(self._slot)
            place = (segment.log, segment.seq)
            if copy is not None and copy.sealed and segment.active is None and place > self._last:
                self._last = place
                return segment, check_copy(self._files, segment, copy)
        self._last = (0, 0)
        self.rounds += 1
        return None
