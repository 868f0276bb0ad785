"""Files of which what is read of some folders is read piece by piece, each when `cold_reads` lets it.

Place: between `Files` and what reads segments: the readers, maintenance and scrubbing of a store on disks of this
machine, and the reads that a storage process is asked for. What is written goes straight to the files.
Promise: all readers of a disk take turns, a piece each, in the order in which they came. No call waits long enough
for its caller to take the disk for one that hangs.
Threads: any.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from syncpoint.base.runtime.clock import Clock
from syncpoint.base.runtime.file_content import read_opened
from syncpoint.base.runtime.files import Files
from syncpoint.log.storage.disk.cold_reads import ColdReads

Result = TypeVar("Result")
SMALL = 8192  # bytes that are read at once: pages of indexes, for which an event loop may wait
HELD_UP_S = 0.5  # that a call waits for its turns, all together,
HANGS_S = 2.0  # a piece that takes longer: others do not wait for it
HELD_UP_BYTES_S = 8 << 20  # beside what this rate takes: both less than `copy_reader` has patience for


class DiskTurns:
    """The turns of one disk. `under_way`: commits at present; a single writer sets it, several use `writes`."""

    def __init__(self, clock: Clock) -> None:
        self.reads = ColdReads()
        self.under_way = 0
        self.watched = False  # whether anybody wants to hear of commits
        self.waited_s = 0.0  # that readers waited for their turns
        self.clock = clock
        self._changed = threading.Condition()
        self._line: deque[object] = deque()  # readers; only the first one reads
        self._began: float | None = None  # when it did

    def figures(self) -> dict[str, float]:
        """What operators are shown."""
        reads = self.reads
        return {
            "cold_read_bytes_total": reads.bytes,
            "cold_read_wait_seconds_total": self.waited_s,
            "cold_read_share": reads.share,
        }

    def committed(self, took: float) -> None:
        """A commit has ended; only where `watched`."""
        with self._changed:
            self._note(took)

    def _note(self, took: float) -> None:
        now = self.clock.monotonic()
        self.reads.committed(now, took)
        self.watched = bool(self._line) or self.reads.watches(now)
        self._changed.notify_all()

    def write(self, call: Callable[[], Result]) -> Result:
        """Make a call that writes: one of many that may be under way."""
        with self._changed:
            self.under_way += 1
        began = self.clock.monotonic()
        try:
            return call()
        finally:
            with self._changed:
                self.under_way -= 1
                if self.watched:
                    self._note(self.clock.monotonic() - began)

    def piece(self, files: Files, handle: int, size: int, offset: int, patience_s: float) -> tuple[bytes, float]:
        """Read the next up to `size` bytes when it is this reader's turn, or `patience_s` are over; what is left of
        them is returned as well.
        """
        me = object()
        with self._changed:
            self._line.append(me)
            left = self._wait(me, patience_s)
            if self._line[0] is me:
                self._began = self.clock.monotonic()
                size = min(size, self.reads.begin(self._began, commits=self.under_way > 0))
            else:
                self._line.remove(me)
        data = b""
        try:
            data = files.pread(handle, size, offset)
        finally:
            with self._changed:
                if self._line and self._line[0] is me:
                    self._next(len(data))
        return data, left

    def _wait(self, me: object, patience_s: float) -> float:
        """Wait for the turn of `me`, `patience_s` at most; returns what is left of them."""
        came = now = self.clock.monotonic()
        self.watched = True
        while (left := patience_s - (now - came)) > 0:
            wait = left
            if self._line[0] is me:
                wait = min(left, self.reads.wait(now, commits=self.under_way > 0))
                if wait <= 0:
                    break
            self._changed.wait(wait)
            now = self.clock.monotonic()
            if self._began is not None and now - self._began > HANGS_S:
                self._next(0)  # the disk hangs, or did: nobody waits for the one who reads
        self.waited_s += now - came
        return left

    def _next(self, size: int) -> None:
        self.reads.end(self.clock.monotonic(), size)
        self._began = None
        self._line.popleft()
        self._changed.notify_all()


class _PacedFiles:
    """Everything but reading is what `files` do."""

    def __init__(self, files: Files, turns: Mapping[str, DiskTurns]) -> None:
        self._files = files
        self._turns = {root + "/": of for root, of in turns.items()}
        self._handles: dict[int, DiskTurns] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def open(self, path: str, *, create: bool = False, write: bool = True) -> int:
        handle = self._files.open(path, create=create, write=write)
        if not write:
            for root, turns in self._turns.items():
                if path.startswith(root):
                    self._handles[handle] = turns
                    self._files.read_as_asked(handle)
        return handle

    def close(self, handle: int) -> None:
        self._handles.pop(handle, None)
        self._files.close(handle)

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        turns = self._handles.get(handle)
        if turns is None or size <= SMALL:
            return self._files.pread(handle, size, offset)
        return self._read(turns, handle, size, offset, _patience(size))[0]

    def pread_pieces(self, handle: int, sizes: Sequence[int], offset: int) -> list[bytes]:
        turns = self._handles.get(handle)
        if turns is None or sum(sizes) <= SMALL:
            return self._files.pread_pieces(handle, sizes, offset)
        pieces = []
        patience_s = _patience(sum(sizes))
        for size in sizes:
            data, patience_s = self._read(turns, handle, size, offset, patience_s)
            pieces.append(data)
            offset += size
        return pieces

    def _read(self, turns: DiskTurns, handle: int, size: int, offset: int, patience_s: float) -> tuple[bytes, float]:
        parts: list[bytes] = []
        got = 0
        while got < size:
            data, patience_s = turns.piece(self._files, handle, size - got, offset + got, patience_s)
            if not data:
                break
            parts.append(data)
            got += len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts), patience_s

    def pread_path(self, path: str, sizes: Sequence[int], offset: int, take: Callable[[bytes], None]) -> None:
        read_opened(cast(Files, self), path, sizes, offset, take)


def _patience(size: int) -> float:
    return HELD_UP_S + size / HELD_UP_BYTES_S


def paced(files: Files, turns: Mapping[str, DiskTurns]) -> Files:
    """Wrap files: what is read below the folders named takes turns."""
    return cast(Files, _PacedFiles(files, turns)) if turns else files
