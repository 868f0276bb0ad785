"""Tidy: put the files of one disk in order, once it is decided what they are.

Place: after the counter is reserved, before tails are sealed.
Promise: only what has a tombstone is deleted; void, unreadable and superfluous files go to quarantine. Dying half-way
is fine: at every moment each needed segment lies below `logs` under a name that the next scan looks at.
"""

from __future__ import annotations

from collections.abc import Collection

from syncpoint.base.runtime.file_content import write_all
from syncpoint.base.runtime.files import Files
from syncpoint.log.storage.disk.disk_identity import Marks
from syncpoint.log.storage.layout import log_dir, quarantine_dir, segment_path
from syncpoint.log.storage.recovery.scan import DiskScan, FoundCopy
from syncpoint.log.storage.segment import encode_header

_AWAY = 99_999_999  # numbers counted down from here are names for files on their way to another name


def tidy(files: Files, scan: DiskScan, marks: Marks, void: Collection[str], notes: list[str]) -> None:
    """Order the files of one disk; the paths in `scan` follow. `void`: paths that no longer count. Raises `OSError`."""
    places = {segment_path(scan.root, c.header.log, c.header.seq) for c in scan.copies if not c.misplaced}
    moving: list[FoundCopy] = []
    for copy in scan.copies:
        log, seq = copy.header.log, copy.header.seq
        place = segment_path(scan.root, log, seq)
        if marks.is_removed(log, seq):
            files.unlink(copy.path)
        elif copy.path in void:
            _set_aside(files, scan.root, copy.path, f"{log:010d}-{seq:08d}.void", notes)
        elif copy.misplaced and place in places:
            _set_aside(files, scan.root, copy.path, f"{log:010d}-{seq:08d}.double", notes)
        else:
            if copy.header_damaged:
                _mend_header(files, copy, notes)
            if copy.misplaced:
                places.add(place)
                moving.append(copy)
                # First away from a name that may be another one's place, then to the right one.
                _move(files, copy, log_dir(scan.root, log), segment_path(scan.root, log, _AWAY - seq))
    for copy in moving:
        place = segment_path(scan.root, copy.header.log, copy.header.seq)
        notes.append(f"segment {copy.header.log}/{copy.header.seq} had a wrong file name on {scan.root}; renamed")
        _move(files, copy, log_dir(scan.root, copy.header.log), place)
    for path in scan.unreadable:
        name = path.rpartition("/logs/")[2].replace("/", "-") + ".unreadable"
        _set_aside(files, scan.root, path, name, notes)


def _move(files: Files, copy: FoundCopy, folder: str, path: str) -> None:
    files.mkdir(folder)
    files.rename(copy.path, path)
    files.sync_dir(folder)
    copy.path = path


def _mend_header(files: Files, copy: FoundCopy, notes: list[str]) -> None:
    page = encode_header(copy.header)
    handle = files.open(copy.path)
    try:
        write_all(files, handle, [page, page], 0)
        files.fdatasync(handle)
    finally:
        files.close(handle)
    notes.append(f"rewrote the damaged header of {copy.path}")


def _set_aside(files: Files, root: str, path: str, name: str, notes: list[str]) -> None:
    files.mkdir(quarantine_dir(root))
    files.rename(path, f"{quarantine_dir(root)}/{name}")
    files.sync_dir(quarantine_dir(root))
    notes.append(f"moved {path} to quarantine/{name}")
