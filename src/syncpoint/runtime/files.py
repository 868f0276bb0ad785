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
from typing import NamedTuple, Protocol

Buffer = bytes | bytearray | memoryview


class DiskUnreachable(OSError):
    """The way to a disk is gone, which says nothing about the disk: it may come back as itself.

    Threads named "syncpoint-write..." are not told before the disk is abandoned: their calls wait.
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

    def unlink(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None:
        """Make the names in a folder durable."""
        ...

    def free_bytes(self, path: str) -> int:
        """Room left on the file system that holds `path`."""
        ...

    def abandon(self, root: str) -> None:
        """Give up the disk at `root`: calls that hang on its files fail now, and its handles are dead.

        The disk may be opened anew. Where the kernel alone can end a call, nothing happens.
        """
        ...


IOV_MAX = 1024
_ZEROS = bytes(1 << 20)


class OsFiles:
    """The operating system's files."""

    __slots__ = ()

    def open(self, path: str, *, create: bool = False, write: bool = True) -> int:
        flags = os.O_CLOEXEC | (os.O_RDWR if write else os.O_RDONLY) | (os.O_CREAT if create else 0)
        return os.open(path, flags, 0o640)

    def close(self, handle: int) -> None:
        os.close(handle)

    def lock(self, handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        return os.pread(handle, size, offset)

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
        found = os.stat(path)
        return FileStat(found.st_size, found.st_ino, found.st_dev)

    def listdir(self, path: str) -> list[str]:
        return os.listdir(path)

    def mkdir(self, path: str) -> None:
        os.makedirs(path, mode=0o750, exist_ok=True)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def sync_dir(self, path: str) -> None:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def free_bytes(self, path: str) -> int:
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

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
