"""Files (`runtime.files.Files`) of disks that other processes serve.

Place: handed to `storage.store.Store` instead of `OsFiles` where the disks of a chain are remote; one object per opened
chain and epoch.
Promise: what was written and not synced is kept here and sent again to a server that was restarted, so that
`fdatasync` means the same as on a local disk. Under `sync` a write travels together with the `fdatasync` after it;
under `async` and `memory` it is sent at once. An owner with a higher epoch ends this one: `DiskFenced`. A server that
is away makes writers wait and everybody else fail after a while with `DiskUnreachable`.
Leaves to the caller: `abandon(root)` for a disk that is given up, and `close` at the end.
"""

from __future__ import annotations

import errno
import itertools
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence

from syncpoint.base.runtime.clock import Clock
from syncpoint.base.runtime.file_content import cut, read_opened
from syncpoint.base.runtime.files import Buffer, DiskUnreachable, FileStat, waits_for_disk
from syncpoint.log.diskserver.command_channel import Patience
from syncpoint.log.diskserver.payload_cache import SHARE_MIN, SentPayloads
from syncpoint.log.diskserver.protocol import (
    AGAIN,
    CREATE,
    READ_MAX,
    WRITE,
    ChangeKind,
    DiskOp,
    FileChange,
    Hello,
    Reply,
    Request,
)
from syncpoint.log.diskserver.remote_disk import DiskAddress, Make, RemoteDisk, Silent, Where
from syncpoint.log.diskserver.remote_file import KEEP_MAX, RemoteFile
from syncpoint.log.storage.settings import Durability

__all__ = ["DiskAddress", "Patience", "RemoteFiles"]

_WRITE_MAX = 16 << 20  # by one call; the caller writes the rest


class RemoteFiles:
    """The disks of one chain under one epoch: root path -> where it is served. Paths begin with one of the roots."""

    def __init__(
        self,
        places: Mapping[str, DiskAddress | Where],
        chain: int,
        epoch: int,
        clock: Clock,
        *,
        durability: Durability | str = Durability.SYNC,
        patience: Patience | None = None,
        tls: ssl.SSLContext | None = None,
        waits: Callable[[], bool] = waits_for_disk.get,
        share_min: int = SHARE_MIN,
    ) -> None:
        """A place may be a function, which is asked whenever a connection is made: servers move.

        `waits()`: whether the calling thread waits for a disk that is away until it is back or abandoned. `share_min`:
        written bytes objects of this size travel once to all disks of a server.
        """
        self._clock = clock
        self._waits = waits
        self._at_once = Durability(durability) is not Durability.SYNC
        self._session = clock.time_ns()
        self._lock = threading.Lock()
        self._disks: dict[str, RemoteDisk] = {}
        self._silent: Silent = {}
        self._sent = SentPayloads(self._session, share_min)
        for root, place in places.items():
            hello = Hello("", chain, epoch, self._session, str(Durability(durability)), 0, 0)
            self._disks[root] = RemoteDisk(
                root, _where(place), hello, clock, patience or Patience(), tls, self._silent, self._sent
            )
        self._handles: dict[int, RemoteFile] = {}
        self._numbers = itertools.count(1)
        self._unsynced_names: dict[str, int] = {}  # folder -> starts of the machine seen when its names were changed
        self._clean = dict.fromkeys(self._disks, True)

    # --------------------------------------------------------------------------------------------------- the interface

    def open(self, path: str, *, create: bool = False, write: bool = True) -> int:
        disk, inner = self._find(path)
        handle = RemoteFile(next(self._numbers), disk, inner, writable=write)
        flags = (CREATE if create else 0) | (WRITE if write else 0)
        request = Request(DiskOp.OPEN, handle.number, path=inner, flags=flags)
        if create:
            self._names_change(disk, path)
        reply = self._call(disk, lambda server, again: handle.opening(server, request), handle.generation)
        handle.opened(reply)
        self._handles[handle.number] = handle
        return handle.number

    def close(self, handle: int) -> None:
        found = self._handles.pop(handle, None)
        if found is None or found.generation != found.disk.generation:
            return
        with found.lock:
            if found.broken is not None or not found.unsent:
                found.disk.close_later(found.number)
            else:
                self._on(found, Request(DiskOp.CLOSE))
            if found.changes:
                self._clean[found.disk.root] = False
        if found.locked:
            self._leave(found.disk)

    def lock(self, handle: int) -> None:
        """Closing a locked file means that the caller is done with its disk: the server learns so, the connection ends.

        The lock ends when the server does; what really keeps others out is the epoch.
        """
        found = self._handle(handle)
        self._change(found, Request(DiskOp.LOCK))
        found.locked = True

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        found, size = self._handle(handle), min(size, READ_MAX)
        unsynced = [one.changes[:] for one in list(self._handles.values()) if one.changes and one.same_file(found)]
        reply = self._look_up(found, Request(DiskOp.PREAD, a=size, b=offset))
        data = bytes(reply.payload) or bytes(reply.a)  # so many zeros
        for changes in unsynced:
            data = overlay(data, offset, size, changes)
        return data

    def pread_pieces(self, handle: int, sizes: Sequence[int], offset: int) -> list[bytes]:
        """One call to the server, however many pieces; each is received where it stays."""
        found, size = self._handle(handle), sum(sizes)
        if size > READ_MAX or self._unsynced(found):
            return cut(self.pread(handle, size, offset), sizes)
        reply = self._look_up(found, Request(DiskOp.PREAD, a=size, b=offset, sizes=sizes))
        if reply.pieces and not reply.a:
            return list(reply.pieces)
        return cut(bytes(reply.payload) or bytes(reply.a), sizes)

    def pread_path(self, path: str, sizes: Sequence[int], offset: int, take: Callable[[bytes], None]) -> None:
        """With a handle where something on the disk is not synced: only an open file says which one it is."""
        (disk, inner), size = self._find(path), sum(sizes)
        if size > READ_MAX or any(one.changes and one.disk is disk for one in list(self._handles.values())):
            read_opened(self, path, sizes, offset, take)
            return
        pieces = _OnceEach(take)

        def made(server: int, again: bool) -> Request:
            pieces.begin()
            return Request(DiskOp.PREAD, a=size, b=offset, path=inner, sizes=sizes, take=pieces.came)

        reply = self._call(disk, made, disk.generation)
        if not pieces.at:
            for piece in cut(bytes(reply.a), sizes):  # so many zeros
                take(piece)

    def _unsynced(self, found: RemoteFile) -> bool:
        """Whether the server may not have all that was written to a file."""
        return any(one.changes and one.same_file(found) for one in list(self._handles.values()))

    def _look_up(self, found: RemoteFile, request: Request) -> Reply:
        """The answer to a request that changes nothing."""
        made = found.lookup(request)
        return self._call(found.disk, lambda server, again: made, found.generation)

    def read_as_asked(self, handle: int) -> None:
        """The disk's process sees to that."""

    def skip_zeros(self, handle: int, offset: int) -> int:
        """The server looks: nothing is sent. Where something is written and not synced yet, nothing is skipped."""
        found = self._handle(handle)
        if self._unsynced(found):
            return offset
        return self._look_up(found, Request(DiskOp.SKIP_ZEROS, b=offset)).a

    def pwritev(self, handle: int, buffers: Sequence[Buffer], offset: int) -> int:
        changes = as_changes(buffers, offset, self._sent.share_min)
        self._add(self._handle(handle), changes)
        return sum(change.size for change in changes)

    def zero(self, handle: int, offset: int, size: int) -> None:
        """Write zeros, without sending them."""
        self._add(self._handle(handle), [FileChange(ChangeKind.ZERO, offset, size)])

    def _add(self, found: RemoteFile, changes: Sequence[FileChange]) -> None:
        if not found.writable:
            raise OSError(errno.EBADF, "not open for writing")
        with found.lock:
            for change in changes:
                found.add(change)
            if found.kept_bytes > KEEP_MAX:
                self._on(found, Request(DiskOp.FDATASYNC))
            elif self._at_once:
                self._on(found, Request(DiskOp.CHANGE))

    def fdatasync(self, handle: int) -> None:
        self._change(self._handle(handle), Request(DiskOp.FDATASYNC))

    def truncate(self, handle: int, size: int) -> None:
        self._change(self._handle(handle), Request(DiskOp.CHANGE), FileChange(ChangeKind.TRUNCATE, 0, size))

    def allocate(self, handle: int, size: int) -> None:
        self._change(self._handle(handle), Request(DiskOp.CHANGE), FileChange(ChangeKind.ALLOCATE, 0, size))

    def fstat(self, handle: int) -> FileStat:
        found = self._handle(handle)
        with found.lock:
            reply = self._look_up(found, Request(DiskOp.FSTAT))
            return FileStat(found.size_after(reply.a), reply.b, reply.c)

    def stat(self, path: str) -> FileStat:
        reply = self._on_path(DiskOp.STAT, path)
        return FileStat(reply.a, reply.b, reply.c)

    def listdir(self, path: str) -> list[str]:
        text = bytes(self._on_path(DiskOp.LISTDIR, path).payload).decode()
        return text.split("\0") if text else []

    def mkdir(self, path: str) -> None:
        self._names_change(self._find(path)[0], path)
        self._on_path(DiskOp.MKDIR, path)

    def rmdir(self, path: str) -> None:
        self._on_path(DiskOp.RMDIR, path)
        self._unsynced_names.pop(path, None)

    def rename(self, old: str, new: str) -> None:
        disk, inner = self._find(new)
        if self._find(old)[0] is not disk:
            raise OSError(errno.EXDEV, "cannot rename from one disk to another")
        self._names_change(disk, old, new)
        self._on_path(DiskOp.RENAME, old, inner)
        before = self._find(old)[1]
        for handle in list(self._handles.values()):
            if handle.disk is disk and (handle.path == before or handle.path.startswith(before + "/")):
                handle.path = inner + handle.path[len(before) :]

    def link(self, old: str, new: str) -> None:
        disk, inner = self._find(new)
        self._names_change(disk, new)
        self._on_path(DiskOp.LINK, old, inner)

    def unlink(self, path: str) -> None:
        self._names_change(self._find(path)[0], path)
        self._on_path(DiskOp.UNLINK, path)

    def _names_change(self, disk: RemoteDisk, *paths: str) -> None:
        for path in paths:
            self._unsynced_names.setdefault(path.rpartition("/")[0], disk.restarts)

    def sync_dir(self, path: str) -> None:
        """Fails where the machine was restarted since the names were changed: they may be the old ones again."""
        disk = self._find(path)[0]
        since = self._unsynced_names.get(path)
        self._on_path(DiskOp.SYNC_DIR, path)
        if since is not None:
            self._unsynced_names.pop(path, None)
            if since != disk.restarts:
                raise OSError(errno.EIO, "the machine restarted before names were synced", path)

    def free_bytes(self, path: str) -> int:
        return self._on_path(DiskOp.FREE_BYTES, path).a

    # ------------------------------------------------------------------------------------------------ beyond files

    def hold(self, root: str) -> None:
        """The server holds the folders of its disks."""

    def hold_new(self, root: str, strange: Sequence[str]) -> None:
        pass

    def anchor(self, root: str, name: str) -> None:
        pass

    def let_go(self, root: str) -> None:
        pass

    def restarts(self, root: str) -> int:
        return self._disks[root].restarts

    def abandon(self, root: str) -> None:
        """Give a disk up: calls that wait for it fail now, its handles are dead; it may be opened anew."""
        disk = self._disks[root]
        disk.abandon(self._new_session())
        for folder in list(self._unsynced_names):
            if folder == root or folder.startswith(root + "/"):
                self._unsynced_names.pop(folder, None)
        for number, handle in list(self._handles.items()):
            if handle.disk is disk and handle.generation != disk.generation:
                self._clean[root] = self._clean[root] and not handle.changes
                del self._handles[number]

    def tombstone(self, root: str) -> None:
        """Allow that the chain's folder on this disk is deleted."""
        self._on_path(DiskOp.TOMBSTONE, root)

    def delete(self, root: str) -> None:
        """Delete the chain's folder. Raises `PermissionError` without a tombstone."""
        self._on_path(DiskOp.DELETE, root)

    def close_all(self) -> None:
        """Leave all disks. What was written and not synced is lost, as with any process that ends."""
        for disk in self._disks.values():
            self._leave(disk)

    # ------------------------------------------------------------------------------------------------------ inside

    def _new_session(self) -> int:
        """Above every session of any of the disks; none comes twice."""
        with self._lock:
            self._session = max(self._session + 1, self._clock.time_ns())
            return self._session

    def _leave(self, disk: RemoteDisk) -> None:
        held = [handle for handle in list(self._handles.values()) if handle.disk is disk]
        disk.leave(self._new_session, clean=self._clean[disk.root] and not any(handle.changes for handle in held))
        for handle in held:
            self._handles.pop(handle.number, None)

    def _find(self, path: str) -> tuple[RemoteDisk, str]:
        for root, disk in self._disks.items():
            if path == root:
                return disk, ""
            if path.startswith(root) and path[len(root)] == "/":
                return disk, path[len(root) + 1 :]
        raise FileNotFoundError(errno.ENOENT, "not on any disk", path)

    def _handle(self, number: int) -> RemoteFile:
        try:
            found = self._handles[number]
        except KeyError:
            raise OSError(errno.EBADF, "no such handle") from None
        if found.generation != found.disk.generation:
            raise DiskUnreachable(errno.ETIMEDOUT, f"this process gave up disk {found.disk.root}")
        return found

    def _call(self, disk: RemoteDisk, make: Make, generation: int) -> Reply:
        return disk.call(make, forever=self._waits(), generation=generation)

    def _on_path(self, op: DiskOp, path: str, other: str = "") -> Reply:
        disk, inner = self._find(path)
        request = Request(op, path=inner, other=other)
        again = request._replace(flags=AGAIN)
        return self._call(disk, lambda server, repeated: again if repeated else request, disk.generation)

    def _change(self, found: RemoteFile, request: Request, change: FileChange | None = None) -> None:
        with found.lock:
            if change is not None:
                found.add(change)
            self._on(found, request)

    def _on(self, found: RemoteFile, request: Request) -> None:
        """Send what is unsent with a command; under the handle's lock."""
        found.check()
        count = len(found.changes)
        try:
            reply = self._call(found.disk, lambda server, again: found.request(server, request), found.generation)
        except DiskUnreachable:
            raise
        except OSError as error:
            found.broken = error
            raise
        found.done(reply, count, synced=request.op == DiskOp.FDATASYNC)


def _where(place: DiskAddress | Where) -> Where:
    return (lambda: place) if isinstance(place, DiskAddress) else place


class _OnceEach:
    """Passes on pieces of which the first ones may come again, with a command that had to be sent again."""

    __slots__ = ("_passed", "_take", "at")

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take
        self._passed = 0
        self.at = 0

    def begin(self) -> None:
        self.at = 0

    def came(self, piece: bytes) -> None:
        self.at += 1
        if self.at > self._passed:
            self._passed = self.at
            self._take(piece)


def as_changes(buffers: Sequence[Buffer], offset: int, share_min: int) -> list[FileChange]:
    """The writes of `buffers`, one after the other from `offset` on, at most `_WRITE_MAX` bytes.

    Large `bytes` stay what they are: nothing is copied, and `payload_cache` knows them again. The rest is joined.
    """
    changes: list[FileChange] = []
    small: list[Buffer] = []
    begin = at = offset
    end = offset + _WRITE_MAX
    for data in buffers:
        if at + len(data) > end:
            data = data[: end - at]
        if type(data) is bytes and len(data) >= share_min:
            if at > begin:
                changes.append(_joined(small, begin, at))
            small = []
            changes.append(FileChange(ChangeKind.WRITE, at, len(data), data))
            begin = at + len(data)
        else:
            small.append(data)
        at += len(data)
    if at > begin:
        changes.append(_joined(small, begin, at))
    return changes


def _joined(parts: Sequence[Buffer], begin: int, end: int) -> FileChange:
    """One write. Its data is this disk's own: a view, so that nobody takes it for something to share."""
    return FileChange(ChangeKind.WRITE, begin, end - begin, memoryview(b"".join(parts)))


def overlay(data: bytes, offset: int, size: int, changes: Sequence[FileChange]) -> bytes:
    """What a read of `size` bytes at `offset` finds once `changes` were done to a file that has `data` there."""
    held = bytearray(data)
    for change in changes:
        reach = change.size if change.kind == ChangeKind.TRUNCATE else change.offset + change.size
        end = max(0, min(reach - offset, size))  # where the file ends now, as far as it is read
        if change.kind == ChangeKind.TRUNCATE:
            del held[end:]
        if len(held) < end and change.size:
            held.extend(bytes(end - len(held)))
        begin = max(change.offset, offset)
        if begin - offset >= end or change.kind not in (ChangeKind.WRITE, ChangeKind.ZERO):
            continue
        if change.kind == ChangeKind.WRITE:
            held[begin - offset : end] = change.data[begin - change.offset : end + offset - change.offset]
        else:
            held[begin - offset : end] = bytes(end + offset - begin)
    return bytes(held)
