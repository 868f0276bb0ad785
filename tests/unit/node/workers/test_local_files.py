"""Chains on local disks are opened by one epoch after the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from syncpoint.base.model.cluster import ChainRecord, DiskPlace
from syncpoint.base.runtime.environment import Environment
from syncpoint.base.runtime.files import DiskFenced, FolderExchanged
from syncpoint.log.storage.errors import ForeignDisk
from syncpoint.log.storage.settings import KnownStore, StorageSettings
from syncpoint.log.storage.store import Store
from syncpoint.node.workers.local_files import open_local

pytestmark = pytest.mark.shows("workers")


def chain(number: int, *disks: str) -> ChainRecord:
    return ChainRecord(number, "c", "default", "local", "w", tuple(DiskPlace("local", disk, "w") for disk in disks))


def test_a_lower_epoch_is_refused_for_ever(tmp_path: Path) -> None:
    disks = {"d1": tmp_path / "1", "d2": tmp_path / "2"}
    _, roots = open_local(chain(1, "d1", "d2"), 3, disks)
    assert [Path(root).parent.parent for root in roots] == [tmp_path / "1", tmp_path / "2"]
    assert open_local(chain(1, "d1", "d2"), 3, disks)[1] == roots
    open_local(chain(1, "d1", "d2"), 5, disks)
    with pytest.raises(DiskFenced):
        open_local(chain(1, "d1", "d2"), 4, disks)
    open_local(chain(2, "d1", "d2"), 1, disks)  # another chain has epochs of its own


def test_a_required_disk_without_chains_is_refused(tmp_path: Path) -> None:
    disks = {"d1": tmp_path / "1", "d2": tmp_path / "2"}
    open_local(chain(1, "d1", "d2"), 1, disks)
    open_local(chain(1, "d1", "d2"), 2, disks, required=True)
    disks["d2"].rename(tmp_path / "away")
    with pytest.raises(FolderExchanged, match="require_disks"):
        open_local(chain(1, "d1", "d2"), 3, disks, required=True)
    assert not disks["d2"].exists()


def test_whoever_is_there_keeps_others_out(tmp_path: Path) -> None:
    def opened(epoch: int, counter: int) -> Store:
        files, roots = open_local(chain(1, "d1"), epoch, {"d1": tmp_path})
        return Store.open(
            roots,
            StorageSettings(segment_bytes=1 << 20, pool_segments=0),
            Environment(files=files, notify=lambda act: None),
            KnownStore(10**12, counter=counter),
        )

    first = opened(1, 1)
    with pytest.raises(ForeignDisk):
        opened(2, 2)
    first.close()
    opened(3, 3).close()
