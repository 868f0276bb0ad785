"""What a storage process says of its disks and of its addresses."""

from __future__ import annotations

import asyncio
import logging
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.base.runtime.files import FolderExchanged
from syncpoint.log.diskserver.disk_server import DiskServer, DiskServerSettings
from syncpoint.log.diskserver.protocol import Hello
from syncpoint.node.cluster.process import ClusterProcess
from syncpoint.node.cluster.settings import ProcessSettings, parse
from syncpoint.node.cluster.storage_role import StorageRole, announce_new


def storage(**more: Any) -> ProcessSettings:
    given = {"roles": ["storage"], "cluster": "c1", "disks": {"d1": "disks/1", "d2": "disks/2"}, **more}
    settings = parse({"metadata": {"etcd": ["127.0.0.1:2379"]}, "processes": {"s1": given}})
    return settings.process("s1")


def at(tmp_path: Path, process: ProcessSettings) -> ProcessSettings:
    return replace(process, disks={name: tmp_path / folder for name, folder in process.disks.items()})


def test_new_disks_are_said_and_known_ones_are_not(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    process = at(tmp_path, storage())
    server = DiskServer(DiskServerSettings({"d1": process.disks["d1"]}))  # as it was served before
    server.stop_now()
    with caplog.at_level(logging.WARNING):
        announce_new(process)
    assert [record.args for record in caplog.records] == [("d2", tmp_path / "disks/2")]


def test_new_disks_are_refused_where_none_may_be_new(tmp_path: Path) -> None:
    process = at(tmp_path, storage(require_disks=True))
    assert process.require_disks
    with pytest.raises(FailedPrecondition, match=r"disk d1 at .* not mounted"):
        announce_new(process)
    assert not list(tmp_path.iterdir()), "nothing was written"
    DiskServer(DiskServerSettings(process.disks)).stop_now()
    announce_new(process)


@pytest.mark.parametrize("required", [False, True])
def test_a_required_disk_is_one_while_it_is_served(tmp_path: Path, required: bool) -> None:
    process = at(tmp_path, storage(disks_listen="127.0.0.1:0", require_disks=required))
    DiskServer(DiskServerSettings(process.disks)).stop_now()
    role = StorageRole(SimpleNamespace(process=process, environment=SimpleNamespace(tls=None)))  # type: ignore[arg-type]

    async def exchange() -> None:
        await role.start()
        try:
            process.disks["d1"].rename(tmp_path / "away")
            process.disks["d1"].mkdir()
            with pytest.raises(FolderExchanged) if required else nullcontext():
                role._server.service.hello(Hello("d1", 7, 1, 100, "sync", 1, 1))
        finally:
            await role.stop()

    asyncio.run(exchange())
    assert (process.disks["d1"] / "chains").exists() != required


def address_of(process: ProcessSettings) -> str:
    found = ClusterProcess.__new__(ClusterProcess)
    found.process = process
    found.roles = {"storage": SimpleNamespace(disk_address=process.disks_listen)}  # type: ignore[dict-item]
    port = int(process.listen.rpartition(":")[2])
    found.listening = SimpleNamespace(host="127.0.0.1", port=port or 45_678)  # type: ignore[assignment]
    return found.named_address


def test_the_ready_line_names_the_port_of_the_file() -> None:
    assert address_of(storage(listen="127.0.0.1:7000")) == "127.0.0.1:7000"
    both = storage(listen="127.0.0.1:7000", disks_listen="127.0.0.1:7001")
    assert (both.listen, both.disks_listen) == ("127.0.0.1:7000", "127.0.0.1:7001"), "none is left to chance"
    assert address_of(both) == "127.0.0.1:7000"


def test_an_empty_cluster_takes_less_than_a_gigabyte() -> None:
    """Three publish forwarders with a chain each on nine disks, nothing set; even with all spare files."""
    settings = parse({"metadata": {"etcd": ["127.0.0.1:2379"]}}).storage
    each = settings.segment_bytes * (1 + settings.pool_segments) + settings.segment_bytes // 16
    assert 27 * each < 10**9
