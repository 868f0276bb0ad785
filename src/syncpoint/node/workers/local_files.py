"""The files of a chain on disks of this machine, opened under an epoch.

Place: what workers have instead of the disk server and its clients; handed to `publish.chain` through the environment.
Promise: of several workers one at a time writes a chain. Opening stores the fencing token of its epoch, durably, and a
lower one is refused from then on; and storage locks the folder for as long as the process lives, so a worker that hangs
keeps all others out until it is dead: the parent kills workers that have lost their lease.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path

from syncpoint.base.model.cluster import ChainRecord
from syncpoint.base.runtime.files import DiskFenced, Files
from syncpoint.base.runtime.os_files import OsFiles
from syncpoint.log.diskserver.fencing import ChainFolders, FencingRecord, FencingToken
from syncpoint.log.storage.settings import Durability


def open_local(
    record: ChainRecord, epoch: int, disks: Mapping[str, Path], *, required: bool = False
) -> tuple[Files, list[str]]:
    """Files and, in slot order, the folders of a chain. Raises `DiskFenced` when a later epoch has begun, `OSError`;
    where disks are `required`, `FolderExchanged` for one that holds no chains.
    """
    files = OsFiles()
    roots = []
    for place in record.places:
        folders = ChainFolders(str(disks[place.disk]), files, "", required=required)
        if required:
            folders.refuse_empty()
        _store_token(folders, record.number, epoch)
        roots.append(folders.folder(record.number))
    return files, roots


def _store_token(folders: ChainFolders, chain: int, epoch: int) -> None:
    known = folders.load(chain)
    if known is not None and known.token.epoch > epoch:
        raise DiskFenced(errno.ESTALE, f"chain {chain} is written in epoch {known.token.epoch}, not {epoch}")
    if known is None or known.token.epoch < epoch:
        # What was not synced is lost with the machine, on every disk alike: no disk deserves distrust for it.
        OsFiles().mkdir(f"{folders.root}/chains")
        folders.store(chain, FencingRecord(FencingToken(epoch, 0), Durability.SYNC.value, "", clean=True))
