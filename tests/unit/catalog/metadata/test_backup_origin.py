"""A backup of another cluster is reported before anything is removed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from syncpoint.base.model.identity import UNIVERSE_MIN
from syncpoint.base.runtime.clock import SystemClock
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.catalog.metadata.backup import Backup, read_backup, restore, take_backup
from syncpoint.catalog.metadata.backup_origin import differences
from syncpoint.catalog.metadata.contract import Put
from syncpoint.catalog.metadata.layout import UNIVERSE
from syncpoint.catalog.metadata.local import LocalShared
from syncpoint.catalog.metadata.memory import MemoryStore
from syncpoint.catalog.metadata.store_client import SharedStore
from syncpoint.programs.cli import cluster_metadata
from syncpoint.programs.cli.main import cli
from syncpoint.programs.clusters.local import LocalCluster, Shape
from syncpoint.testing.rigs.plain_tests import on_loop


def store(seed: int) -> LocalShared:
    clock = SystemClock()
    return LocalShared(MemoryStore(clock=clock, random=SeededRandom(seed)), clock)


async def founded(seed: int, name: str = "shop") -> LocalShared:
    made = store(seed)
    settings = json.dumps({"name": name}).encode()
    universe = b"%d" % (UNIVERSE_MIN + seed)
    await made.txn([], [Put(UNIVERSE, universe), Put("cluster/settings", settings), Put("chains/1", b"{}")])
    return made


async def backup(of: SharedStore) -> Backup:
    return read_backup(await take_backup(of, SystemClock()))


@on_loop
async def test_its_own_and_a_new_store_take_it_others_do_not() -> None:
    mine, other = await founded(1), await founded(2)
    saved = await backup(mine)
    assert await differences(mine, saved, "shop") == []
    assert await differences(store(3), saved, "shop") == []
    (reported,) = await differences(other, saved, "shop")
    assert str(UNIVERSE_MIN + 1) in reported
    assert str(UNIVERSE_MIN + 2) in reported
    (reported,) = await differences(store(3), saved, "mall")
    assert "'shop'" in reported


@on_loop
async def test_a_cluster_that_was_restored_into_another_store_is_still_itself() -> None:
    saved = await backup(await founded(1))
    restored = store(3)
    await restore(restored, saved, SeededRandom(5), SystemClock())
    assert await differences(restored, saved, "shop") == []  # its chains carry the universe of the backup


def test_the_command_refuses_and_with_force_keeps_what_it_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    local = LocalCluster(tmp_path / "mall")
    local.create(Shape(clusters=1, disks=1, forwarders=1, routers=1, proxies=1))
    monkeypatch.setattr(LocalCluster, "up_metadata", lambda made: [])
    here, saved = asyncio.run(founded(2, "mall")), asyncio.run(_content(1))
    (tmp_path / "saved").write_bytes(saved)
    monkeypatch.setattr(cluster_metadata, "_in_store", lambda made, act: asyncio.run(act(here)))
    words = ["cluster", "restore", "--dir", str(local.folder), str(tmp_path / "saved")]

    found = CliRunner().invoke(cli, words)
    assert found.exit_code == 1
    assert "'shop'" in found.output
    assert "--force" in found.output
    assert asyncio.run(_universe(here)) == UNIVERSE_MIN + 2
    assert list(local.folder.glob("replaced-*")) == []

    found = CliRunner().invoke(cli, [*words, "--force"])
    assert found.exit_code == 0, found.output
    (kept,) = local.folder.glob("replaced-*.backup")
    assert read_backup(kept.read_bytes()).items[UNIVERSE] == b"%d" % (UNIVERSE_MIN + 2)


async def _content(seed: int) -> bytes:
    return await take_backup(await founded(seed), SystemClock())


async def _universe(of: SharedStore) -> int:
    found = await of.get(UNIVERSE)
    assert found is not None
    return int(found.value)
