"""Whole contents of files: written all, read all, replaced at once.

Place: above `files`, of which single calls may write or read less than was asked for.
Promise: a file that is replaced has its old content or its new one, whenever the machine stops.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from contextlib import suppress

from syncpoint.base.runtime.files import Buffer, Files

IOV_MAX = 1024
"""Buffers that one call writes at most."""


def write_all(files: Files, handle: int, buffers: Sequence[Buffer], offset: int) -> int:
    """Write all `buffers` at `offset`, however short the single writes come; returns the offset after the last byte.

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
            raise OSError(errno.EIO, "a write made no progress")
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


def read_pieces(files: Files, handle: int, sizes: Sequence[int], offset: int) -> list[bytes]:
    """Adjacent pieces of these sizes from `offset` on, or shorter ones only where the file ends."""
    pieces = files.pread_pieces(handle, sizes, offset)
    for number, size in enumerate(sizes):
        got = len(pieces[number])
        if got < size:
            pieces[number] += read_exactly(files, handle, size - got, offset + got)
        offset += size
    return pieces


def read_opened(files: Files, path: str, sizes: Sequence[int], offset: int, take: Callable[[bytes], None]) -> None:
    """What `Files.pread_path` promises, with a handle."""
    handle = files.open(path, write=False)
    try:
        pieces = read_pieces(files, handle, sizes, offset)
    finally:
        files.close(handle)
    for piece in pieces:
        take(piece)


def cut(data: bytes, sizes: Sequence[int]) -> list[bytes]:
    """Pieces of these sizes, the last ones short or empty where there is less."""
    pieces, at = [], 0
    for size in sizes:
        pieces.append(data[at : at + size])
        at += size
    return pieces


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


def overwrite_file(files: Files, path: str, content: bytes, room: int) -> None:
    """As `replace_file`, and without asking a full file system for anything from the second time on.

    Two files of at least `room` bytes take turns: the content goes into the one that is spare, which then exchanges
    its name with the other. Behind the content there are spaces.
    """
    spare, beside = path + ".spare", path + ".tmp"
    if not _exists(files, spare):
        with suppress(FileNotFoundError):
            files.rename(beside, spare)  # an earlier exchange was cut short: this is the other one of the two
    _fill(files, spare, content, room)
    with suppress(FileNotFoundError):
        files.unlink(beside)
    try:
        files.link(path, beside)
    except FileNotFoundError:
        _fill(files, beside, b"", room)
    files.rename(spare, path)
    files.rename(beside, spare)
    files.sync_dir(path.rpartition("/")[0])


def _exists(files: Files, path: str) -> bool:
    try:
        files.stat(path)
    except FileNotFoundError:
        return False
    return True


def _fill(files: Files, path: str, content: bytes, room: int) -> None:
    handle = files.open(path, create=True)
    try:
        while room < len(content):
            room *= 2
        write_all(files, handle, [content.ljust(max(room, files.fstat(handle).size))], 0)
        files.fdatasync(handle)
    finally:
        files.close(handle)


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
