"""One server per data folder: an advisory lock, held as long as the process lives. Storage locks its disks likewise."""

import fcntl
import os
from pathlib import Path

from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.base.runtime.private_files import FILE_MODE, private_folder


class FolderLocks:
    """Locks on folders. The files stay; the kernel drops the locks when the process ends, however it ends."""

    def __init__(self) -> None:
        self._open: list[int] = []

    def take(self, folder: Path) -> int:
        """Lock `folder`, creating it, and keep it from other users. Raises `FailedPrecondition` naming the holder if
        another server has it. Returns the descriptor by which processes that inherit it hold the lock, too."""
        private_folder(folder)
        path = folder / "lock"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(fd, 32).decode(errors="replace").strip() or "unknown"
            os.close(fd)
            raise FailedPrecondition(
                f"{folder} is in use by another server (process {holder}). Stop it first, or choose another folder."
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._open.append(fd)
        return fd

    def release(self) -> None:
        for fd in self._open:
            os.close(fd)
        self._open.clear()
