"""What of a failed disk's files its next incarnation takes over.

Place: asked by `maintenance` when a failed disk's folder is usable again, after the new incarnation has its name and
before it writes anything.
Promise: a copy stays only if the folder is still that of the incarnation that failed and both ends of the file say what
the catalog lists; what no other disk has whole stays in any case; only what has a tombstone is deleted.
"""

from __future__ import annotations

import errno
from collections.abc import Collection

from syncpoint.base.runtime.file_content import read_exactly
from syncpoint.base.runtime.files import DiskFenced, DiskUnreachable, Files, FolderExchanged
from syncpoint.base.runtime.random import Random
from syncpoint.log.storage.disk.disk_identity import Marks, read_identity
from syncpoint.log.storage.disk.segment_catalog import Segment, SegmentCatalog, SegmentCopy
from syncpoint.log.storage.layout import DISK_FILE, logs_dir, parse_log, parse_segment, quarantine_dir
from syncpoint.log.storage.recovery.scrub import whole_copy
from syncpoint.log.storage.segment import DATA_START, SegmentHeader, decode_front

SegmentKey = tuple[int, int]  # log, segment


def known_name(files: Files, root: str, universe: int, mine: Collection[bytes]) -> bytes | None:
    """The incarnation a folder names, where it is the one which failed, or one that was away from the start; else None.

    `mine`: that incarnation, and those under which coming back was tried in vain; empty where none was seen yet.
    """
    found = read_identity(files, root)
    if found is None or found.universe != universe or (mine and found.incarnation not in mine):
        return None
    return found.incarnation


def refuse_foreign(files: Files, root: str, universe: int) -> set[bytes]:
    """Raises `FolderExchanged` where anything in the folder is another server's; nothing is changed.

    Returns the incarnations of disks that segments in it name.
    """
    try:
        found = read_identity(files, root)
    except ValueError as error:
        raise FolderExchanged(errno.ESTALE, f"{error}. The folder is left unchanged.", root) from None
    if found is not None and found.universe != universe:
        raise _foreign(root, found.universe)
    disks = set() if found is None else {found.incarnation}
    for folder in _list(files, logs_dir(root)):
        for name in _list(files, f"{logs_dir(root)}/{folder}"):
            if parse_segment(name) is not None:
                header = read_front(files, f"{logs_dir(root)}/{folder}/{name}")
                if header is not None and header.universe != universe:
                    raise _foreign(root, header.universe)
                if header is not None:
                    disks.add(header.disk)
    return disks


def refuse_nameless(files: Files, root: str, universe: int, mine: Collection[bytes]) -> None:
    """Raises `FolderExchanged` where the folder does not name the disk that failed: it was emptied, is another one, or
    the disk is not mounted. Nothing is changed.
    """
    try:
        found = read_identity(files, root)
    except ValueError:
        return  # `refuse_foreign` reports what it is
    if found is None:
        text = f"there is no {DISK_FILE}: the folder was emptied, or the disk is not mounted"
    elif found.universe == universe and known_name(files, root, universe, mine) is None:
        text = "the folder belongs to another disk"
    else:
        return
    text += ". Mount the disk (require_disks is set). The folder is left unchanged."
    raise FolderExchanged(errno.ESTALE, text, root)


def is_ours(files: Files, path: str, universe: int, place: SegmentKey, disks: Collection[bytes]) -> bool:
    """Whether the segment file at `path` is one that this disk wrote; False for one without a header to believe.

    Raises `FolderExchanged` for another disk's or another server's.
    """
    header = read_front(files, path)
    if header is None:
        return False
    if header.universe != universe or (header.log, header.seq) != place or header.disk not in disks:
        raise FolderExchanged(errno.ESTALE, "the segment there was not written by this disk", path)
    return True


def read_front(files: Files, path: str) -> SegmentHeader | None:
    """The header of a segment file. Raises `OSError`."""
    handle = files.open(path, write=False)
    try:
        return decode_front(read_exactly(files, handle, DATA_START, 0))
    finally:
        files.close(handle)


def _foreign(root: str, universe: int) -> FolderExchanged:
    return FolderExchanged(
        errno.ESTALE, f"the folder belongs to another server (universe {universe}) and is left unchanged", root
    )


def sort_out(
    files: Files, random: Random, root: str, slot: int, catalog: SegmentCatalog, marks: Marks, known: bool
) -> dict[SegmentKey, SegmentCopy]:
    """Move the old incarnation's segments to quarantine, except for those that no other disk has.

    Of a disk that is `known` these stay, too, and are returned: the sealed copies that are whole, and parts of segments
    that no other disk has whole. Raises `OSError`.
    """
    kept: dict[SegmentKey, SegmentCopy] = {}
    sole = {(segment.log, segment.seq) for segment in catalog if set(segment.copies) == {slot}}
    aside = quarantine_dir(root)
    stamp = random.token(4).hex()
    for folder in _list(files, logs_dir(root)):
        log = parse_log(folder)
        for name in _list(files, f"{logs_dir(root)}/{folder}"):
            seq = parse_segment(name)
            if log is None or seq is None:
                continue
            path = f"{logs_dir(root)}/{folder}/{name}"
            if marks.is_removed(log, seq):
                files.unlink(path)
                continue
            segment = catalog.at(log, seq) if known else None
            copy = None if segment is None else _whole(files, segment, path) or _part(segment, slot, path)
            if copy is not None:
                kept[log, seq] = copy
                continue
            if (log, seq) in sole:
                continue
            files.mkdir(aside)
            files.rename(path, f"{aside}/{stamp}-{log:010d}-{seq:08d}.old")
    return kept


def left_aside(files: Files, root: str) -> dict[SegmentKey, str]:
    """What lies in quarantine until a whole copy is in its place."""
    found: dict[SegmentKey, str] = {}
    aside = quarantine_dir(root)
    for name in _list(files, aside):
        part = name.removesuffix(".old").split("-")
        if name.endswith(".old") and len(part) == 3:
            found[int(part[1]), int(part[2])] = f"{aside}/{name}"
    return found


def _whole(files: Files, segment: Segment, path: str) -> SegmentCopy | None:
    try:
        return whole_copy(files, segment, path)
    except (DiskUnreachable, DiskFenced, FolderExchanged):
        raise
    except OSError:
        return None  # it cannot be read: it is copied anew


def _part(segment: Segment, slot: int, path: str) -> SegmentCopy | None:
    """What this disk had written when it failed, of a segment that the others are still writing or sealing."""
    mine = segment.copies.get(slot)
    if segment.active is None or mine is None or mine.path != path:
        return None
    others = [copy for other, copy in segment.copies.copy().items() if other != slot]
    return None if any(copy.sealed for copy in others) else mine


def _list(files: Files, folder: str) -> list[str]:
    try:
        return sorted(files.listdir(folder))
    except FileNotFoundError:
        return []
