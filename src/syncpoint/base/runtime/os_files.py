"""The operating system's files, with folders held by their handles.

Place: handed to storage and metadata by every real process.
Promise: paths below a held folder mean the folder that was there when it was held, whatever is mounted or moved there
later.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock

from syncpoint.base.runtime.file_content import read_opened, write_all
from syncpoint.base.runtime.files import Buffer, FileStat
from syncpoint.base.runtime.held import HeldFolder
from syncpoint.base.runtime.private_files import FILE_MODE, FOLDER_MODE

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
            os.makedirs(root, mode=FOLDER_MODE, exist_ok=True)
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
        return os.open(inner, flags, FILE_MODE, dir_fd=fd)

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

    def pread_path(self, path: str, sizes: Sequence[int], offset: int, take: Callable[[bytes], None]) -> None:
        read_opened(self, path, sizes, offset, take)

    def read_as_asked(self, handle: int) -> None:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_RANDOM)

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
            os.makedirs(path, mode=FOLDER_MODE, exist_ok=True)
            return
        parts = inner.split("/")
        for count in range(1, len(parts) + 1):
            with suppress(FileExistsError):
                os.mkdir("/".join(parts[:count]), FOLDER_MODE, dir_fd=fd)

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
        """A call in the kernel ends only when the kernel ends it."""
