"""Files and folders that nobody but the user of the process reads, whatever the umask is.

Place: where a process or a command begins to use a folder of the project.
Promise: what is made within it is made private; what earlier versions left readable is tightened at the next start.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

FILE_MODE, FOLDER_MODE = 0o600, 0o700


_given_umask: list[int] = []  # before the first `keep_private`


def keep_private(*folders: Path) -> None:
    """From now on this process, and processes it starts, make files for their own user alone; `folders` that are there
    become private. Raises `OSError`."""
    old = os.umask(0o077)
    if not _given_umask:
        _given_umask.append(old)
    for folder in folders:
        if folder.is_dir():
            tighten(folder)


def share(path: Path) -> None:
    """Give a file or a folder that is for others the rights that it had without `keep_private`."""
    if _given_umask:
        path.chmod((0o777 if path.is_dir() else 0o666) & ~_given_umask[0])


def private_folder(folder: Path) -> None:
    """Make a folder, and folders above it, or tighten the one that is there with all that lies in it. What belongs to
    another user, and links, stay as they are."""
    old = os.umask(0o077)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    finally:
        os.umask(old)
    tighten(folder)


def tighten(folder: Path) -> None:
    """Take everybody else's rights from a folder and all that lies in it."""
    _take_rights(folder, FOLDER_MODE)
    for root, folders, files in os.walk(folder):
        for name in folders:
            _take_rights(Path(root, name), FOLDER_MODE)
        for name in files:
            _take_rights(Path(root, name), FOLDER_MODE)  # what its owner may do stays


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner reads, over one that is there."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE), "wb") as file:
        os.fchmod(file.fileno(), FILE_MODE)
        file.write(content)


def _take_rights(path: Path, allowed: int) -> None:
    try:
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode) or found.st_uid != os.geteuid() or not found.st_mode & 0o077:
            return
        path.chmod(stat.S_IMODE(found.st_mode) & allowed)
    except FileNotFoundError:
        return  # removed in the meantime
