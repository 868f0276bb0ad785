"""Every touch of a disk, as one small protocol.

Place: below storage and metadata, which never call `os` themselves; tests and simulations hand in `MemoryFiles` (see
`memory_files`), which loses, tears, reorders and refuses what a real disk may.
Promise: methods do what the system call of their name does and raise `OSError` where it fails. Nothing here retries: a
failed `fdatasync` may have thrown the dirty pages away, so a second call that "succeeds" would prove nothing.
Leaves to the caller: looping over short writes, syncing folders after creating, renaming and unlinking.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from contextlib import suppress
from contextvars import ContextVar
from threading import Lock
from typing import NamedTuple, Protocol

from syncpoint.runtime.held import FolderExchanged, HeldFolder

__all__ = [
    "IOV_MAX",
    "Buffer",
    "DiskFenced",
    "DiskUnreachable",
    "FileStat",
    "Files",
    "FolderExchanged",
    "OsFiles",
    "cut",
    "overwrite_file",
    "read_exactly",
    "read_file",
    "read_pieces",
    "replace_file",
    "write_all",
]

Buffer = bytes | bytearray | memoryview

#: Set in the context of a worker that waits for a disk that is away until it is back or abandoned.
waits_for_disk: ContextVar[bool] = ContextVar("waits_for_disk", default=False)


class DiskUnreachable(OSError):
    """The way to a disk is gone, which says nothing about the disk: it may come back as itself.

    Where `waits_for_disk` is set, nobody is told before the disk is abandoned: calls wait.
    """


class DiskFenced(OSError):
    """The disk knows a higher epoch than the caller's: somebody else writes now, and the caller never may again."""


class FileStat(NamedTuple):
    """What identifies a file: size in bytes, inode and device numbers."""

    size: int
    inode: int
    device: int


class Files(Protocol):
    """The door to a file system. Paths are absolute texts, handles are small integers."""

    def open(self, path: str, *, create: bool = False, write: bool = True) -> int:
        """A handle on an existing file, or a new one with `create` (an existing one is kept as it is)."""
        ...

    def close(self, handle: int) -> None: ...

    def lock(self, handle: int) -> None:
        """Take the exclusive lock of an open file; raises `BlockingIOError` when another process holds it."""
        ...

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        """Up to `size` bytes; fewer at the end of the file."""
        ...

    def pread_pieces(self, handle: int, sizes: Sequence[int], offset: int) -> list[bytes]:
        """What `pread` of all the sizes together gives, cut into pieces of these sizes; each may be short. Where the
        disk is near, no byte is copied for the cutting.
        """
        ...

    def skip_zeros(self, handle: int, offset: int) -> int:
        """An offset up to which, from `offset` on, there is nothing but zeros: the file's end, or a little before the
        first other byte.
        """
        ...

    def pwritev(self, handle: int, buffers: Sequence[Buffer], offset: int) -> int:
        """Write at most `IOV_MAX` buffers one after the other; returns the bytes written, which may be fewer."""
        ...

    def zero(self, handle: int, offset: int, size: int) -> None:
        """Write `size` zeros at `offset`, all of them, without sending them where the disk is far away."""
        ...

    def fdatasync(self, handle: int) -> None: ...

    def truncate(self, handle: int, size: int) -> None: ...

    def allocate(self, handle: int, size: int) -> None:
        """Reserve room for `size` bytes and make the file that long."""
        ...

    def fstat(self, handle: int) -> FileStat: ...

    def stat(self, path: str) -> FileStat: ...

    def listdir(self, path: str) -> list[str]: ...

    def mkdir(self, path: str) -> None:
        """Make a folder and those above it; an existing one is fine."""
        ...

    def rmdir(self, path: str) -> None: ...

    def rename(self, old: str, new: str) -> None: ...

    def link(self, old: str, new: str) -> None:
        """A second name for a file, in the same folder."""
        ...

    def unlink(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None:
        """Make the names in a folder durable."""
        ...

    def free_bytes(self, path: str) -> int:
        """Room left on the file system that holds `path`."""
        ...

    def hold(self, root: str) -> None:
        """From now on paths below `root` mean the folder that is there now. Once another one lies there, calls that
        name a path raise `FolderExchanged`, and what is there stays as it is. Holding again takes what is there then.
        """
        ...

    def hold_new(self, root: str, strange: Sequence[str]) -> None:
        """Hold the folder that lies at `root` now, made if need be, unless one of the names `strange` is in it: then
        `FolderExchanged` is raised, and what was held is held.
        """
        ...

    def anchor(self, root: str, name: str) -> None:
        """The same of the file `name` in a held folder: another file there, but by our own renaming, means another
        folder. Of a folder that is not held, nothing.
        """
        ...

    def let_go(self, root: str) -> None:
        """The folder is not held any more."""
        ...

    def restarts(self, root: str) -> int:
        """How often the machine of this disk was seen to have started anew, as of the last call that reached it. What
        was found there before may not be there any more.
        """
        ...

    def abandon(self, root: str) -> None:
        """Give up the disk at `root`: calls that hang on its files fail now, and its handles are dead.

        The disk may be opened anew. Where the kernel alone can end a call, nothing happens.
        """
        ...


IOV_MAX = 1024
_ZEROS = bytes(1 << 20)
_LOOK_BYTES = 1 << 17  # looked through for zeros at a time: what a processor's cache takes


class OsFiles:
    """The operating system's files."""

    _held: tuple[HeldFolder, ...] = ()  # longest paths first; replaced as a whole, so any thread may look
    _replacing = Lock()  # folders of several disks are held by several threads at once

    def _at(self, path: str) -> tuple[HeldFolder | None, int | None, str]:
        """The folder to start from and the path from there. Keep the first while its handle, the second, is used."""
        for held in self._held:
            root = held.root
            if path.startswith(root) and (len(path) == len(root) or path[len(root)] == "/"):
                held.check()
                return held, held.fd, path[len(root) + 1 :] or "."
        return None, None, path

    def hold(self, root: str) -> None:
        self.let_go(root)
        self._replace(root, HeldFolder(root))

    def hold_new(self, root: str, strange: Sequence[str]) -> None:
        with suppress(FileExistsError):
            os.makedirs(root, mode=0o750, exist_ok=True)
        new = HeldFolder(root)
        new.refuse(strange)
        self._replace(root, new)

    def anchor(self, root: str, name: str) -> None:
        for held in self._held:
            if held.root == root:
                held.anchor(name)

    def let_go(self, root: str) -> None:
        self._replace(root)

    def _replace(self, root: str, *new: HeldFolder) -> None:
        with self._replacing:
            others = (held for held in self._held if held.root != root)
            self._held = tuple(sorted((*others, *new), key=lambda held: -len(held.root)))

    def open(self, path: str, *, create: bool = False, write: bool = True) -> int:
        flags = os.O_CLOEXEC | (os.O_RDWR if write else os.O_RDONLY) | (os.O_CREAT if create else 0)
        _held, fd, inner = self._at(path)
        return os.open(inner, flags, 0o640, dir_fd=fd)

    def close(self, handle: int) -> None:
        os.close(handle)

    def lock(self, handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        return os.pread(handle, size, offset)

    def pread_pieces(self, handle: int, sizes: Sequence[int], offset: int) -> list[bytes]:
        pieces = []
        for size in sizes:
            pieces.append(self.pread(handle, size, offset))
            offset += size
        return pieces

    def skip_zeros(self, handle: int, offset: int) -> int:
        end = os.fstat(handle).st_size
        room = bytearray(_LOOK_BYTES)
        while offset < end:
            got = os.preadv(handle, [room], offset)
            if got == 0 or not _ZEROS.startswith(room if got == len(room) else room[:got]):
                break
            offset += got
        return offset

    def pwritev(self, handle: int, buffers: Sequence[Buffer], offset: int) -> int:
        return os.pwritev(handle, buffers, offset)

    def zero(self, handle: int, offset: int, size: int) -> None:
        end = offset + size
        while offset < end:
            offset = write_all(self, handle, [memoryview(_ZEROS)[: end - offset]], offset)

    def fdatasync(self, handle: int) -> None:
        os.fdatasync(handle)

    def truncate(self, handle: int, size: int) -> None:
        os.ftruncate(handle, size)

    def allocate(self, handle: int, size: int) -> None:
        os.posix_fallocate(handle, 0, size)

    def fstat(self, handle: int) -> FileStat:
        found = os.fstat(handle)
        return FileStat(found.st_size, found.st_ino, found.st_dev)

    def stat(self, path: str) -> FileStat:
        _held, fd, inner = self._at(path)
        found = os.stat(inner, dir_fd=fd)
        return FileStat(found.st_size, found.st_ino, found.st_dev)

    def listdir(self, path: str) -> list[str]:
        handle = self._open_folder(path)
        try:
            return os.listdir(handle)
        finally:
            os.close(handle)

    def _open_folder(self, path: str) -> int:
        _held, fd, inner = self._at(path)
        return os.open(inner, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=fd)

    def mkdir(self, path: str) -> None:
        held, fd, inner = self._at(path)
        if held is None:
            os.makedirs(path, mode=0o750, exist_ok=True)
            return
        parts = inner.split("/")
        for count in range(1, len(parts) + 1):
            with suppress(FileExistsError):
                os.mkdir("/".join(parts[:count]), 0o750, dir_fd=fd)

    def rmdir(self, path: str) -> None:
        _held, fd, inner = self._at(path)
        os.rmdir(inner, dir_fd=fd)

    def rename(self, old: str, new: str) -> None:
        _held, fd, inner = self._at(old)
        place, other_fd, other = self._at(new)
        os.rename(inner, other, src_dir_fd=fd, dst_dir_fd=other_fd)
        if place is not None:
            place.renamed(other)

    def link(self, old: str, new: str) -> None:
        _held, fd, inner = self._at(old)
        os.link(inner, self._at(new)[2], src_dir_fd=fd, dst_dir_fd=fd)

    def unlink(self, path: str) -> None:
        _held, fd, inner = self._at(path)
        os.unlink(inner, dir_fd=fd)

    def sync_dir(self, path: str) -> None:
        handle = self._open_folder(path)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def free_bytes(self, path: str) -> int:
        held, fd, _inner = self._at(path)
        found = os.statvfs(path) if held is None else os.statvfs(fd)  # type: ignore[arg-type]
        return found.f_bavail * found.f_frsize

    def restarts(self, root: str) -> int:
        """With its machine this process ends, too."""
        return 0

    def abandon(self, root: str) -> None:
        """A call in the kernel ends when the kernel says so."""


def write_all(files: Files, handle: int, buffers: Sequence[Buffer], offset: int) -> int:
    """Write all `buffers` at `offset`, however short the single writes come; returns the offset behind the last byte.

    Raises `OSError` of the failing write, and `OSError` when a write makes no progress at all.
    """
    for start in range(0, len(buffers), IOV_MAX):
        part = buffers if len(buffers) <= IOV_MAX else buffers[start : start + IOV_MAX]
        total = sum(map(len, part))
        written = files.pwritev(handle, part, offset)
        offset += written
        if written < total:
            offset = _write_rest(files, handle, b"".join(part)[written:], offset)
    return offset


def _write_rest(files: Files, handle: int, rest: bytes, offset: int) -> int:
    while rest:
        written = files.pwritev(handle, [rest], offset)
        if written <= 0:
            raise OSError(5, "a write made no progress")
        offset += written
        rest = rest[written:]
    return offset


def read_exactly(files: Files, handle: int, size: int, offset: int) -> bytes:
    """`size` bytes at `offset`, or fewer only where the file ends."""
    data = files.pread(handle, size, offset)
    if len(data) == size or not data:
        return data
    parts = [data]
    got = len(data)
    while got < size:
        data = files.pread(handle, size - got, offset + got)
        if not data:
            break
        parts.append(data)
        got += len(data)
    return b"".join(parts)


def read_pieces(files: Files, handle: int, sizes: Sequence[int], offset: int) -> list[bytes]:
    """Adjacent pieces of these sizes from `offset` on, or shorter ones only where the file ends."""
    pieces = files.pread_pieces(handle, sizes, offset)
    for number, size in enumerate(sizes):
        got = len(pieces[number])
        if got < size:
            pieces[number] += read_exactly(files, handle, size - got, offset + got)
        offset += size
    return pieces


def cut(data: bytes, sizes: Sequence[int]) -> list[bytes]:
    """Pieces of these sizes, the last ones short or empty where there is less."""
    pieces, at = [], 0
    for size in sizes:
        pieces.append(data[at : at + size])
        at += size
    return pieces


def replace_file(files: Files, path: str, content: bytes) -> None:
    """Put `content` at `path` atomically and durably: written beside it, synced, renamed, the folder synced."""
    beside = path + ".tmp"
    handle = files.open(beside, create=True)
    try:
        files.truncate(handle, 0)
        write_all(files, handle, [content], 0)
        files.fdatasync(handle)
    finally:
        files.close(handle)
    files.rename(beside, path)
    files.sync_dir(path.rpartition("/")[0])


def overwrite_file(files: Files, path: str, content: bytes, room: int) -> None:
    """As `replace_file`, and without asking a full file system for anything from the second time on.

    Two files of at least `room` bytes take turns: the content goes into the one that is spare, which then exchanges
    its name with the other. Behind the content there are spaces.
    """
    spare, beside = path + ".spare", path + ".tmp"
    if not _exists(files, spare):
        with suppress(FileNotFoundError):
            files.rename(beside, spare)  # an earlier exchange was cut short: this is the other one of the two
    _fill(files, spare, content, room)
    with suppress(FileNotFoundError):
        files.unlink(beside)
    try:
        files.link(path, beside)
    except FileNotFoundError:
        _fill(files, beside, b"", room)
    files.rename(spare, path)
    files.rename(beside, spare)
    files.sync_dir(path.rpartition("/")[0])


def _exists(files: Files, path: str) -> bool:
    try:
        files.stat(path)
    except FileNotFoundError:
        return False
    return True


def _fill(files: Files, path: str, content: bytes, room: int) -> None:
    handle = files.open(path, create=True)
    try:
        while room < len(content):
            room *= 2
        write_all(files, handle, [content.ljust(max(room, files.fstat(handle).size))], 0)
        files.fdatasync(handle)
    finally:
        files.close(handle)


def read_file(files: Files, path: str) -> bytes | None:
    """The whole content of a small file, or None when there is no such file."""
    try:
        handle = files.open(path, write=False)
    except FileNotFoundError:
        return None
    try:
        return read_exactly(files, handle, files.fstat(handle).size, 0)
    finally:
        files.close(handle)
