"""Every touch of a disk, as one small protocol.

Place: below storage and metadata, which never call `os` themselves. `os_files` are the operating system's; tests and
simulations hand in `testing.memory_files`, which lose, tear, reorder and refuse what a real disk may.
Promise: methods do what the system call of their name does and raise `OSError` where it fails. Nothing here retries: a
failed `fdatasync` may have thrown the dirty pages away, so a second call that "succeeds" would prove nothing.
Leaves to `file_content`: looping over short writes, syncing folders after creating, renaming and unlinking.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import NamedTuple, Protocol

from syncpoint.base.runtime.held import FolderExchanged

__all__ = ["Buffer", "DiskFenced", "DiskUnreachable", "FileStat", "Files", "FolderExchanged", "waits_for_disk"]

Buffer = bytes | bytearray | memoryview

#: Set in the context of a worker that waits for a disk that is away until it is back or abandoned.
waits_for_disk: ContextVar[bool] = ContextVar("waits_for_disk", default=False)


class DiskUnreachable(OSError):
    """The way to a disk is gone, which proves nothing about the disk: it may come back as itself.

    Where `waits_for_disk` is set, no call fails before the disk is abandoned: calls wait.
    """


class DiskFenced(OSError):
    """The disk knows a higher epoch than the caller's: somebody else writes now, and the caller never may again."""


class FileStat(NamedTuple):
    """What identifies a file: size in bytes, inode and device numbers."""

    size: int
    inode: int
    device: int


class Files(Protocol):
    """A file system. Paths are absolute texts, handles are small integers."""

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

    def pread_path(self, path: str, sizes: Sequence[int], offset: int, take: Callable[[bytes], None]) -> None:
        """Open a file, read adjacent pieces of these sizes from `offset` on, and close it. They are short only where
        the file ends. `take` is given each, on this thread, once it is there; it raises nothing. Some may have been
        given when this raises. Where the disk is served by another process, this is mostly one call to it.
        """
        ...

    def read_as_asked(self, handle: int) -> None:
        """From now on the disk reads what is asked for of this file, and nothing ahead of it."""
        ...

    def skip_zeros(self, handle: int, offset: int) -> int:
        """An offset up to which, from `offset` on, there is nothing but zeros: the file's end, or a little before the
        first other byte.
        """
        ...

    def pwritev(self, handle: int, buffers: Sequence[Buffer], offset: int) -> int:
        """Write buffers one after the other, at most `file_content.IOV_MAX`; returns the bytes written, which may be
        fewer.
        """
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
        """Check the file `name` of a held folder: if it is replaced, except by our own renaming, the folder counts as
        another one. Does nothing for a folder that is not held.
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
