"""A folder that is held open, so that its path means this very folder and no other.

Place: used by `os_files.OsFiles`, for folders of disks.
Promise: what is done through `fd` is done in the folder that was opened, wherever it was moved to; `check` reports when
another one lies at its path, or another file at the name that says whose folder it is. The handle is closed with the
last reference: a call under way never finds its number used for something else.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence


class FolderExchanged(OSError):
    """At the path of a folder there is another one now, or none. Nothing in it is touched."""


class HeldFolder:
    """One folder. `anchor`: a file in it that must stay the same file."""

    __slots__ = ("_anchor", "_anchor_fd", "_identity", "fd", "root")

    def __init__(self, root: str) -> None:
        self.root = root
        self.fd = self._anchor_fd = -1
        self.fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        found = os.fstat(self.fd)
        self._identity = found.st_ino, found.st_dev
        self._anchor: tuple[str, int, int] | None = None

    def __del__(self) -> None:
        for handle in (self.fd, self._anchor_fd):
            if handle >= 0:
                os.close(handle)

    def anchor(self, name: str) -> None:
        """Note which file is called `name`; held open, its number does not come again. Raises `OSError`."""
        handle = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.fd)
        if self._anchor_fd >= 0:
            os.close(self._anchor_fd)
        self._anchor_fd = handle
        found = os.fstat(handle)
        self._anchor = name, found.st_ino, found.st_dev

    def renamed(self, name: str) -> None:
        """A file was given this name by ourselves."""
        if self._anchor is not None and self._anchor[0] == name:
            self.anchor(name)

    def refuse(self, names: Sequence[str]) -> None:
        """Raises `FolderExchanged` where one of these is in the folder."""
        there = sorted(set(names).intersection(os.listdir(self.fd)))
        if there:
            raise FolderExchanged(errno.ESTALE, f"another folder lies there, with {', '.join(there)}", self.root)

    def check(self) -> None:
        """Raises `FolderExchanged`."""
        try:
            found = os.stat(self.root)
            same = (found.st_ino, found.st_dev) == self._identity
        except (FileNotFoundError, NotADirectoryError):
            same = False
        if not same:
            raise FolderExchanged(errno.ESTALE, "the folder was deleted or exchanged", self.root)
        if self._anchor is not None:
            name, inode, device = self._anchor
            try:
                found = os.stat(name, dir_fd=self.fd)
                same = (found.st_ino, found.st_dev) == (inode, device)
            except FileNotFoundError:
                same = False
            if not same:
                raise FolderExchanged(errno.ESTALE, f"{name} in it was deleted or exchanged", self.root)
