"""An open remote file: what was changed and not synced yet, and how much of it the server's present life has got.

Place: a part of `remote_files`; knows requests, no sockets.
Promise: the changes kept here are all that a restarted server may lack; they are sent again in their order, and doing
one twice changes nothing. After an error the file is broken for good: no later `fdatasync` pretends otherwise.
"""

from __future__ import annotations

import errno
import threading

from syncpoint.log.diskserver.protocol import REOPEN, WRITE, ChangeKind, FileChange, Reply, Request
from syncpoint.log.diskserver.remote_disk import RemoteDisk

KEEP_MAX = 8 << 20  # more than this is synced at once, so that it need not be kept


class RemoteFile:
    """`lock` is held while changes are added or sent; lookups need none."""

    def __init__(self, number: int, disk: RemoteDisk, path: str, *, writable: bool) -> None:
        self.number = number
        self.disk = disk
        self.path = path
        self.writable = writable
        self.generation = disk.generation
        self.lock = threading.RLock()
        self.changes: list[FileChange] = []
        self.kept_bytes = 0
        self.broken: OSError | None = None
        self.locked = False
        self._sent = 0  # of the changes
        self._server = 0  # the life of the server that has the file open and got them
        self._asking = 0
        self._file = ""

    @property
    def unsent(self) -> bool:
        return self._sent < len(self.changes)

    def add(self, change: FileChange) -> None:
        """Keep a change until it is synced."""
        self.changes.append(change)
        self.kept_bytes += len(change.data)

    def check(self) -> None:
        """Raises `OSError` once a change failed."""
        if self.broken is not None:
            raise OSError(self.broken.errno or errno.EIO, f"an earlier write failed: {self.broken}")

    def opening(self, server: int, request: Request) -> Request:
        """The request that opens the file for the first time."""
        self._asking = server
        return request._replace(handle=self.number)

    def opened(self, reply: Reply) -> None:
        self._server = self._asking
        self._file = f"{reply.b}:{reply.c}"

    def same_file(self, other: RemoteFile) -> bool:
        return self._file == other._file and self.disk is other.disk

    def lookup(self, request: Request) -> Request:
        """A request that changes nothing."""
        return self._reopening(request)

    def request(self, server: int, request: Request) -> Request:
        """A request with every change that this life of the server has not got."""
        self._asking = server
        changes = self.changes[self._sent :] if server == self._server else self.changes[:]
        return self._reopening(request)._replace(changes=changes)

    def _reopening(self, request: Request) -> Request:
        flags = REOPEN | (WRITE if self.writable else 0)
        return request._replace(handle=self.number, path=self.path, other=self._file, flags=flags)

    def done(self, reply: Reply, count: int, *, synced: bool) -> None:
        """The server got the first `count` changes."""
        self._server = self._asking
        self._sent = count
        if synced:
            self.kept_bytes -= sum(len(change.data) for change in self.changes[:count])
            del self.changes[:count]
            self._sent = 0

    def size_after(self, size: int) -> int:
        """The length of the file once all changes are done to one of `size` bytes."""
        for change in self.changes:
            if change.kind == ChangeKind.TRUNCATE:
                size = change.size
            else:
                size = max(size, change.offset + change.size)
        return size
