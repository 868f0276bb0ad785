"""The files of a chain on disks of this machine, opened under an epoch.

Place: what workers have instead of the disk server and its clients; handed to `publish.chain` through the doors.
Promise: of several workers one at a time writes a chain. Opening claims the chain in an epoch, durably, and a lower one
is refused from then on; and storage locks the folder for as long as the process lives, so whoever hangs keeps everybody
else out until it is dead: the parent kills workers that have lost their lease.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path

from syncpoint.model.cluster import ChainRecord
from syncpoint.runtime.files import DiskFenced, Files, OsFiles
from syncpoint.storage.remote.claims import Claim, Claims, Record
from syncpoint.storage.settings import Durability


def open_local(
    record: ChainRecord, epoch: int, disks: Mapping[str, Path], *, required: bool = False
) -> tuple[Files, list[str]]:
    """Files and, in slot order, the folders of a chain. Raises `DiskFenced` when a later epoch has begun, `OSError`;
    where disks are `required`, `FolderExchanged` for one that holds no chains.
    """
    files = OsFiles()
    roots = []
    for place in record.places:
        claims = Claims(str(disks[place.disk]), files, "", required=required)
        if required:
            claims.refuse_empty()
        _claim(claims, record.number, epoch)
        roots.append(claims.folder(record.number))
    return files, roots


def _claim(claims: Claims, chain: int, epoch: int) -> None:
    known = claims.load(chain)
    if known is not None and known.claim.epoch > epoch:
        raise DiskFenced(errno.ESTALE, f"chain {chain} is written in epoch {known.claim.epoch}, not {epoch}")
    if known is None or known.claim.epoch < epoch:
        # What was not synced is lost with the machine, on every disk alike: no disk is to be distrusted for it.
        OsFiles().mkdir(f"{claims.root}/chains")
        claims.store(chain, Record(Claim(epoch, 0), Durability.SYNC.value, "", clean=True))
