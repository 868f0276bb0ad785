"""One command on the files of one chain's folder.

Place: called by `disk_service`, which has decided that it may be executed.
Promise: no path leaves the chain's folder, and the token in it is out of reach. A command that an earlier life of the
server may have executed is not an error for having been done.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from syncpoint.base.runtime.file_content import read_exactly, write_all
from syncpoint.base.runtime.files import Buffer, Files, FileStat
from syncpoint.log.diskserver.fencing import FENCING_FILE
from syncpoint.log.diskserver.protocol import (
    AGAIN,
    CREATE,
    READ_MAX,
    REOPEN,
    WRITE,
    ChangeKind,
    DiskOp,
    FileChange,
    Reply,
    Request,
)

Handles = dict[int, tuple[int, bool]]
"""The caller's number -> our handle, and whether it may be written."""

_ZEROS = bytes(1 << 20)


def execute(files: Files, folder: str, handles: Handles, request: Request) -> Reply:
    """Do what the request asks for. Raises `OSError`."""
    for number in request.closes:
        _close(files, handles, number)
    op, again = request.op, bool(request.flags & AGAIN)
    if request.handle:
        return _on_handle(files, folder, handles, request)
    path = _inside(folder, request.path)
    if op == DiskOp.PREAD:
        handle = files.open(path, write=False)
        try:
            return _pread(files, handle, request)
        finally:
            files.close(handle)
    if op == DiskOp.STAT:
        found = files.stat(path)
        return Reply(a=found.size, b=found.inode, c=found.device)
    if op == DiskOp.LISTDIR:
        names = [name for name in files.listdir(path) if request.path or not name.startswith(FENCING_FILE)]
        return Reply(payload="\0".join(names).encode())
    if op == DiskOp.FREE_BYTES:
        return Reply(a=files.free_bytes(path))
    if op == DiskOp.MKDIR:
        files.mkdir(path)
    elif op == DiskOp.SYNC_DIR:
        files.sync_dir(path)
    elif op == DiskOp.RENAME:
        _rename(files, path, _inside(folder, request.other), again=again)
    elif op == DiskOp.LINK:
        try:
            files.link(path, _inside(folder, request.other))
        except FileExistsError:
            if not again:
                raise
    elif op in (DiskOp.RMDIR, DiskOp.UNLINK):
        try:
            (files.rmdir if op == DiskOp.RMDIR else files.unlink)(path)
        except FileNotFoundError:
            if not again:
                raise
    else:
        raise OSError(errno.EINVAL, f"operation {op} needs a handle")
    return Reply()


def _on_handle(files: Files, folder: str, handles: Handles, request: Request) -> Reply:
    op, number = request.op, request.handle
    if op == DiskOp.OPEN or (request.flags & REOPEN and number not in handles):
        _open(files, folder, handles, request)
    try:
        handle, writable = handles[number]
    except KeyError:
        raise OSError(errno.EBADF, "no such handle") from None
    if op == DiskOp.PREAD:
        return _pread(files, handle, request)
    if op == DiskOp.SKIP_ZEROS:
        return Reply(a=files.skip_zeros(handle, request.b))
    if request.changes:
        if not writable:
            raise OSError(errno.EBADF, "not open for writing")
        _change(files, handle, request.changes)
    if op == DiskOp.FDATASYNC:
        files.fdatasync(handle)
    elif op == DiskOp.LOCK:
        files.lock(handle)
    elif op == DiskOp.CLOSE:
        _close(files, handles, number)
        return Reply()
    elif op not in (DiskOp.OPEN, DiskOp.FSTAT, DiskOp.CHANGE):
        raise OSError(errno.EINVAL, f"operation {op} takes no handle")
    if op in (DiskOp.OPEN, DiskOp.FSTAT):
        found = files.fstat(handle)
        return Reply(a=found.size, b=found.inode, c=found.device)
    return Reply()


def _pread(files: Files, handle: int, request: Request) -> Reply:
    data = read_exactly(files, handle, min(request.a, READ_MAX), request.b)
    # The opening of a chain reads the part of segments that was never written: nothing but zeros, not worth sending.
    return Reply(a=len(data)) if _ZEROS.startswith(data) else Reply(payload=data)


def _open(files: Files, folder: str, handles: Handles, request: Request) -> None:
    """Open what the request names. With REOPEN it must be the very file it was; `other` says which."""
    _close(files, handles, request.handle)
    writable = bool(request.flags & WRITE)
    reopen = bool(request.flags & REOPEN)
    path = _inside(folder, request.path)
    try:
        handle = files.open(path, create=bool(request.flags & CREATE) and not reopen, write=writable)
    except FileNotFoundError:
        if reopen:
            raise OSError(errno.EIO, f"{path} was deleted while open") from None
        raise
    found = files.fstat(handle)
    if reopen and request.other != file_id(found):
        files.close(handle)
        raise OSError(errno.EIO, f"{path} was replaced while open")
    handles[request.handle] = handle, writable


def file_id(found: FileStat) -> str:
    """Which file it is, in words of the wire."""
    return f"{found.inode}:{found.device}"


def _close(files: Files, handles: Handles, number: int) -> None:
    found = handles.pop(number, None)
    if found is not None:
        files.close(found[0])


def _change(files: Files, handle: int, changes: Sequence[FileChange]) -> None:
    """Do the changes in their order; writes that follow each other in the file are one."""
    writes: list[Buffer] = []
    begin = end = 0
    for change in changes:
        if writes and (change.kind != ChangeKind.WRITE or change.offset != end):
            write_all(files, handle, writes, begin)
            writes = []
        if change.kind == ChangeKind.WRITE:
            begin = begin if writes else change.offset
            end = change.offset + change.size
            writes.append(change.data)
        elif change.kind == ChangeKind.ZERO:
            offset, upto = change.offset, change.offset + change.size
            while offset < upto:
                offset = write_all(files, handle, [_ZEROS[: upto - offset]], offset)
        elif change.kind == ChangeKind.TRUNCATE:
            files.truncate(handle, change.size)
        elif change.kind == ChangeKind.ALLOCATE:
            files.allocate(handle, change.size)
        else:
            raise OSError(errno.EINVAL, f"unknown kind of change: {change.kind}")
    if writes:
        write_all(files, handle, writes, begin)


def _rename(files: Files, old: str, new: str, *, again: bool) -> None:
    try:
        files.rename(old, new)
    except FileNotFoundError:
        if not again:
            raise
        files.stat(new)  # raises if it was not done before


def _inside(folder: str, path: str) -> str:
    """The place of a chain's path. Raises `PermissionError` for one that leads out of the folder or to the token."""
    if not path:
        return folder
    parts = path.split("/")
    if "\0" in path or any(part in ("", ".", "..") for part in parts) or parts[0].startswith(FENCING_FILE):
        raise PermissionError(errno.EACCES, f"{path!r} is not a path inside a chain")
    return f"{folder}/{path}"
