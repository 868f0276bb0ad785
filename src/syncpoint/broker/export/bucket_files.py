"""How a file gets into a bucket: in one put while it is small, in pieces otherwise.

Place: under `buckets`; all of it waits, and runs in threads.
Promise: a file appears under its name whole or not at all. Object stores take a put, or a multipart upload that is
completed; on local folders and elsewhere a file has another name, in one folder beside the others, until it is whole;
on local folders it is durable then. What is discarded leaves nothing; what a crash left is found by `remove_left`. No
file lies outside the bucket's place, whatever it is called.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from syncpoint.base.runtime.private_files import share
from syncpoint.broker.export.contents import Contents
from syncpoint.broker.inner.lent import Lent
from syncpoint.broker.subscribe.confirm import CopyId

OBJECT_STORES: Final = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"})
PIECE: Final = 8 << 20  # of a multipart upload
OURS: Final = ".syncpoint-"  # no folder of an object begins so
UNFINISHED: Final = f"{OURS}unfinished"
_OURS: Final = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")


class StoreFailed(Exception):
    """The place rejected it, for `reason`."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


class BucketFile:
    """One file, made of messages. `where`: its file system, and the bucket's place there."""

    def __init__(self, where: Callable[[], tuple[Any, str]], name: str, contents: Contents) -> None:
        self._where, self._name, self._contents = where, name, contents
        self._open: Any = None
        self._temporary = ""  # what it is called until it is whole; "": its own name
        self._system: Any = None
        self._path = ""

    def add(self, lent: Sequence[Lent], *, last: bool) -> frozenset[CopyId]:
        """Write these messages, and, if they are the last, give the file its name; one without messages is not stored.
        Those that do not fit come back. Raises `StoreFailed`, or what the contents raise."""
        data, unfit = self._contents.piece(lent)
        try:
            if last and self._open is None:
                if data or not unfit:
                    put_whole(*self._where(), self._name, data)
            else:
                if data:
                    self._write(data)
                if last:
                    self._finish()
        except Exception as error:
            raise StoreFailed(error) from error
        return unfit

    def discard(self) -> None:
        """Nothing of it remains. Raises whatever the place does."""
        opened, self._open = self._open, None
        if opened is None:
            return
        if self._temporary:
            try:
                opened.close()  # which writes what it has kept, if a full disk lets it
            finally:
                self._system.rm_file(self._temporary)
        else:
            opened.discard()

    def _write(self, data: bytes) -> None:
        if self._open is None:
            self._system, root = self._where()
            if is_object_store(self._system):
                self._path = object_path(root, self._name)
                self._open = self._system.open(self._path, "wb", block_size=PIECE)
                self._open.closed = True
            else:
                self._path, self._temporary = _path(root, self._name), _unfinished(root, self._name)
                self._system.makedirs(self._temporary.rpartition("/")[0], exist_ok=True)
                self._open = self._system.open(self._temporary, "wb")
        if self._temporary:
            self._open.write(data)
            return
        self._open.closed = False
        try:
            self._open.write(data)
        finally:
            self._open.closed = True  # or it would complete itself whenever it is collected

    def _finish(self) -> None:
        if self._open is None:
            return
        if self._temporary:
            if is_local(self._system):
                self._open.flush()
                os.fsync(self._open.fileno())
            self._open.close()
            _rename(self._system, self._temporary, self._path)
        else:
            self._open.closed = False
            self._open.close()
        self._open = None


def put_whole(system: Any, root: str, name: str, data: bytes) -> None:
    """Store a file that is in memory."""
    if is_object_store(system):
        system.pipe_file(object_path(root, name), data)
        return
    temporary = _unfinished(root, name)
    system.makedirs(temporary.rpartition("/")[0], exist_ok=True)
    try:
        if is_local(system):
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        else:
            system.pipe_file(temporary, data)
        _rename(system, temporary, _path(root, name))
    except BaseException:
        if system.exists(temporary):
            system.rm_file(temporary)
        raise


def remove_left(system: Any, root: str, before_s: float) -> int:
    """Remove unfinished files that nobody has written to since then; returns how many."""
    if is_local(system):
        left = [path for path in Path(root, UNFINISHED).glob("*") if path.stat().st_mtime < before_s]
        for path in left:
            path.unlink(missing_ok=True)
        return len(left)
    if not hasattr(system, "list_multipart_uploads"):
        return 0  # other stores forget uploads by themselves
    bucket, _, start = root.partition("/")
    count = 0
    for one in system.list_multipart_uploads(bucket):
        key = one["Key"]
        if key.startswith(start) and _OURS.search(key) and one["Initiated"].timestamp() < before_s:
            system.call_s3("abort_multipart_upload", Bucket=bucket, Key=key, UploadId=one["UploadId"])
            count += 1
    return count


def protocols(system: Any) -> tuple[str, ...]:
    """What a file system calls itself."""
    named = system.protocol
    return (named,) if isinstance(named, str) else tuple(named)


def is_local(system: Any) -> bool:
    """Whether it is the one of this machine."""
    return "file" in protocols(system)


def is_object_store(system: Any) -> bool:
    """Whether it takes files whole."""
    return not OBJECT_STORES.isdisjoint(protocols(system))


def object_path(root: str, name: str) -> str:
    """Where an object is. Clients of stores take what follows this mark for a version, and not for a part of the name:
    all objects would have the one name in front of it."""
    return f"{root}/{name}".replace("?versionId=", "%3FversionId=").replace("?versionid=", "%3Fversionid=")


def _path(root: str, name: str) -> str:
    """The name of an object as folders and a file: what means another folder on file systems, or is one of ours, is
    written as hexadecimal digits, and empty parts are left out."""
    *folders, last = (part for part in name.split("/") if part)
    escaped = [one.replace(".", "%2E", 1) if one.startswith(OURS) else one for one in folders]
    parts = [part.replace(".", "%2E") if part in (".", "..") else part for part in (*escaped, last)]
    return "/".join((root.rstrip("/"), *parts))


def _unfinished(root: str, name: str) -> str:
    return f"{root.rstrip('/')}/{UNFINISHED}/{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def _rename(system: Any, temporary: str, path: str) -> None:
    folder = path.rpartition("/")[0]
    if not is_local(system):
        system.makedirs(folder, exist_ok=True)
        system.mv(temporary, path)
        return
    _make_durable_folder(Path(folder))
    share(Path(temporary))
    os.replace(temporary, path)
    _sync(folder)


def _make_durable_folder(folder: Path) -> None:
    """A folder is there after a loss of power only when the one that holds it was synced."""
    if not folder.is_dir():
        _make_durable_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        share(folder)
        _sync(folder.parent)


def _sync(folder: str | Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
