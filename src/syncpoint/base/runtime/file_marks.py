"""Marks of files, by which a process notices that an operator has replaced one.

Place: under whatever follows certificates, keys or settings on disk.
"""

from collections.abc import Iterable
from pathlib import Path

Mark = tuple[int, int, int]


def mark_of(path: Path) -> Mark | None:
    """What distinguishes a file from the one it replaces; None: it is not there, or cannot be looked up."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def marks_of(paths: Iterable[Path]) -> dict[Path, Mark]:
    """The marks of those that are there."""
    return {path: mark for path in paths if (mark := mark_of(path)) is not None}
