"""What a disk has to write down and delete, in order: a file goes only after the marks say that it may.

Place: kept by `maintenance`; the owner's thread puts in, the maintainer's takes out.
Promise: a file that is deleted is one that this disk wrote; what is rotten or another's is set aside. Deleted files
become spare segments, as far as those are wanted.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable

from syncpoint.base.runtime.files import Files
from syncpoint.log.storage.disk.disk_identity import write_marks
from syncpoint.log.storage.layout import parse_log, parse_segment, quarantine_dir


class DiskJobs:
    """Jobs of the disk at `root`. `is_ours`: whether a segment file is one this disk wrote; `reuse` deletes one."""

    def __init__(self, files: Files, root: str, is_ours: Callable[[str], bool], reuse: Callable[[str], None]) -> None:
        self._files = files
        self._root = root
        self._is_ours = is_ours
        self._reuse = reuse
        self._jobs: deque[tuple[str, bytes]] = deque()  # (path to drop, b"") or ("", marks)

    def __len__(self) -> int:
        return len(self._jobs)

    def put_marks(self, content: bytes) -> None:
        """Write the marks; whatever is dropped afterwards waits for them."""
        self._jobs.append(("", content))

    def put_drop(self, path: str) -> None:
        """Delete a segment file."""
        self._jobs.append((path, b""))

    def clear(self) -> None:
        """Forget all: the next opening finds the tombstones or the segments."""
        self._jobs.clear()

    def run_one(self) -> None:
        """Do the oldest job; it stays the oldest if it fails. Raises `OSError`."""
        path, content = self._jobs[0]
        if path:
            self._drop(path)
        else:
            while len(self._jobs) > 1 and not self._jobs[1][0]:
                self._jobs.popleft()  # the later marks say all the earlier ones do
                content = self._jobs[0][1]
            write_marks(self._files, self._root, content)
        self._jobs.popleft()

    def _drop(self, path: str) -> None:
        try:
            if self._is_ours(path):
                self._reuse(path)
            else:  # rotten, or another's: it is in nobody's way
                log, seq = place_of(path)
                self._files.mkdir(quarantine_dir(self._root))
                self._files.rename(path, f"{quarantine_dir(self._root)}/{log:010d}-{seq:08d}.unreadable")
            self._files.rmdir(path.rpartition("/")[0])
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # the folder still has others
                raise


def place_of(path: str) -> tuple[int, int]:
    """Log and number that a segment file's path says."""
    _, folder, name = path.rsplit("/", 2)
    return parse_log(folder) or 0, parse_segment(name) or 0
