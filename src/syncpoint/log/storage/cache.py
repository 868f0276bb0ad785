"""Tail cache: the newest batches by source, so that subscribers who keep up never touch a disk.

Place: filled by `store` at every append with the very buffers that wait for the disks; asked first by every read.
Promise: bounded in bytes, oldest out first; a source's cached batches are always its newest ones without a gap, so
whatever lies at or after the first cached offset is answered from here alone. Owner's thread only.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque

from syncpoint.base.runtime.files import Buffer
from syncpoint.log.storage.record import Queued, StoredBatch

_ENTRY_BYTES = 400  # what an entry costs beside its payload


class _Tail:
    __slots__ = ("entries", "firsts", "start")

    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.entries: list[Queued | None] = []
        self.start = 0  # entries before it were let go


class TailCache:
    """Recent message entries."""

    __slots__ = ("_bytes", "_bytes_max", "_order", "_tails")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._order: deque[tuple[int, int]] = deque()  # source, size
        self._tails: dict[int, _Tail] = {}

    @property
    def bytes(self) -> int:
        return self._bytes

    def add(self, entry: Queued) -> None:
        """Take in the next batch of its source."""
        tail = self._tails.get(entry.source)
        if tail is None:
            tail = self._tails[entry.source] = _Tail()
        elif entry.first_offset < tail.firsts[-1]:
            return  # not in order: left to the disks
        tail.firsts.append(entry.first_offset)
        tail.entries.append(entry)
        size = entry.length + _ENTRY_BYTES
        self._order.append((entry.source, size))
        self._bytes += size
        while self._bytes > self._bytes_max:
            self._let_go()

    def _let_go(self) -> None:
        source, size = self._order.popleft()
        self._bytes -= size
        tail = self._tails[source]
        tail.entries[tail.start] = None
        tail.start += 1
        if tail.start == len(tail.entries):
            del self._tails[source]
        elif tail.start > 64 and tail.start * 2 > len(tail.entries):
            del tail.entries[: tail.start]
            del tail.firsts[: tail.start]
            tail.start = 0

    def get(self, source: int, begin: int, max_bytes: int, persisted: int) -> list[StoredBatch] | None:
        """Persisted batches from the one that holds `begin`; None when that may lie before what is cached.

        At least one batch, then as many as fit into `max_bytes`.
        """
        tail = self._tails.get(source)
        if tail is None or begin < tail.firsts[tail.start]:
            return None
        at = bisect_right(tail.firsts, begin, tail.start) - 1
        found: list[StoredBatch] = []
        size = 0
        entries = tail.entries
        while at < len(entries):
            entry = entries[at]
            at += 1
            if entry is None or entry.first_offset + entry.count <= begin:
                continue
            if entry.position > persisted or (found and size + entry.length > max_bytes):
                break
            size += entry.length
            found.append(StoredBatch(source, entry.first_offset, entry.count, entry.time_ns, joined(entry.buffers)))
            if size >= max_bytes:
                break
        return found


def joined(buffers: tuple[Buffer, ...]) -> bytes:
    """The payload as one `bytes`; no copy when it is that already."""
    if len(buffers) == 1 and type(buffers[0]) is bytes:
        return buffers[0]
    return b"".join(buffers)
