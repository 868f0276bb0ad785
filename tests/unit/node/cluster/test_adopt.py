"""The folder of a stopped node becomes a chain: wherever that is broken off, it is the node's or the cluster's."""

from __future__ import annotations

import asyncio
import errno
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from syncpoint.base.model.cluster import ChainRecord, DiskPlace
from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.base.runtime.clock import ManualClock, SystemClock
from syncpoint.base.runtime.environment import Environment
from syncpoint.base.runtime.os_files import OsFiles
from syncpoint.base.runtime.random import SystemRandom
from syncpoint.broker.pipeline import cursor_names
from syncpoint.broker.pipeline.cursors import CursorLimits, Cursors
from syncpoint.broker.pipeline.cursors_facts import encode
from syncpoint.broker.publish.facts import records
from syncpoint.broker.publish.facts.source import Source
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.contract import Put
from syncpoint.catalog.metadata.layout import CHAINS, EPOCHS, HEAD, KNOWN_DISKS, OPEN, RECORDS, USED
from syncpoint.catalog.metadata.local import LocalShared
from syncpoint.catalog.metadata.memory import MemoryStore
from syncpoint.catalog.metadata.records import (
    CatalogChange,
    Setting,
    Subscription,
    Topic,
    decode_record,
    encode_changes,
)
from syncpoint.catalog.metadata.store_client import read_all
from syncpoint.log.storage.layout import DISK_FILE
from syncpoint.log.storage.record import EntryKind
from syncpoint.log.storage.settings import KnownStore, StorageSettings
from syncpoint.log.storage.store import Store
from syncpoint.node.cluster.adopt import NodeFolder, move_disk, read_folder, register
from syncpoint.node.cluster.cluster_environment import ClusterEnvironment
from syncpoint.node.note import CLUSTER_NOTE, WORKERS_NOTE, noted_workers
from syncpoint.node.settings import ServeSettings
from syncpoint.node.uses import USES
from syncpoint.node.workers.folder import prepare
from syncpoint.node.workers.plan import Plan
from syncpoint.programs.clusters.import_folder import Adopted, import_folder, planned
from syncpoint.programs.clusters.local import LocalCluster, Shape
from syncpoint.testing.rigs.plain_tests import on_loop

pytestmark = pytest.mark.shows("import")

SMALL = StorageSettings(segment_bytes=1 << 20, pool_segments=0)
RECORD = ChainRecord(7, "w/default", "default", "local", "w", (DiskPlace("c", "d1", "s"), DiskPlace("c", "d2", "s")))


class Died(Exception):
    """The process ended here."""


class DyingShared(LocalShared):
    """Metadata of a process that ends at its nth write from now on."""

    left = 1_000

    async def txn(self, *args: Any, **kwargs: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise Died
        return await super().txn(*args, **kwargs)


class DyingFiles(OsFiles):
    """Files of a process that ends at its nth renaming."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left

    def rename(self, old: str, new: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise Died
        super().rename(old, new)


def metadata() -> DyingShared:
    clock = ManualClock()
    return DyingShared(MemoryStore(clock=clock, random=SystemRandom()), clock)


def folder_of(*changes: CatalogChange) -> NodeFolder:
    catalog = Catalog()
    for change in catalog.assign(changes):
        catalog.apply(change)
    cursors = (cursor_names.put(1, {"reader": CursorLimits()}).record,)
    return NodeFolder(10**12, 5, ("ab",), catalog, frozenset({1}), cursors)


async def content(shared: LocalShared, *without: str) -> dict[str, bytes]:
    return {item.key: item.value for item in (await read_all(shared, ""))[0] if item.key not in without}


ONE, TWO = Topic(1, "projects/p/topics/one"), Topic(2, "projects/p/topics/two")
SUB = Subscription(3, "projects/p/subscriptions/s", 1, ONE.name)
NOTED = Setting(USES, json.dumps({"reached_ns": 9, "used_ns": {"3": 8}}).encode())


def test_registering_is_begun_anew_wherever_it_was_broken_off() -> None:
    before = folder_of(*map(CatalogChange.put, (ONE, TWO, SUB, NOTED)))
    after = folder_of(*map(CatalogChange.put, (ONE, SUB, NOTED)))  # the node went on in the meantime

    async def run() -> int:
        expected = metadata()
        await register(after, expected, RECORD, [1])
        for steps in range(100):
            shared = metadata()
            shared.left = steps
            try:
                await register(before, shared, replace(RECORD, number=6), [1])
            except Died:
                assert await shared.get(HEAD) is None
            done = shared.left >= 0
            shared.left = 1_000
            await register(after, shared, RECORD, [1])
            counters = ("counter/incarnation",)  # `before` had more
            assert await content(shared, *counters) == await content(expected, *counters)
            if done:
                return steps
        return 0

    assert asyncio.run(run()) >= 3


@on_loop
async def test_what_a_cluster_keeps_of_a_node() -> None:
    shared = metadata()
    await register(folder_of(*map(CatalogChange.put, (ONE, SUB, NOTED))), shared, RECORD, [1])
    found = await content(shared)
    kept = [decode_record(value) for key, value in found.items() if key.startswith(RECORDS)]
    assert {one.name for one in kept} == {"cursors/1", SUB.name, ONE.name}
    assert found[KNOWN_DISKS.key(7)] == b'["", "ab"]'
    assert (found[USED.key(3)], found[OPEN.key(1, 7)], found[HEAD]) == (b"8", b"{}", b"3 3")
    assert ChainRecord.decode(found[CHAINS.key(7)]) == RECORD


@pytest.mark.parametrize("written", [HEAD, EPOCHS.key(7), CHAINS.key(8)])
@on_loop
async def test_a_cluster_that_has_been_in_use_is_refused(*, written: str) -> None:
    shared, folder = metadata(), folder_of(CatalogChange.put(ONE))
    await register(folder, shared, RECORD, [0])
    await shared.txn([], [Put(written, b"9 9")])
    before = await content(shared)
    with pytest.raises(FailedPrecondition, match="was started before"):
        await register(folder, shared, RECORD, [0])
    assert await content(shared) == before


def test_a_disk_is_the_chains_once_all_of_it_has_moved(tmp_path: Path) -> None:
    names = ["audit", DISK_FILE, "logs", "marks.json", "marks.json.spare", "pool"]
    for steps in range(len(names) + 1):
        disk, target = tmp_path / f"{steps}" / "disk", tmp_path / f"{steps}" / "other"
        disk.mkdir(parents=True)
        for name in (*names, "lock", "something else"):
            (disk / name).write_text(name)
        files = DyingFiles(steps)
        chain = target / "chains" / "0000000007"
        if steps < len(names):
            with pytest.raises(Died):
                move_disk(files, str(disk), str(target), 7)
            assert (disk / DISK_FILE).exists()
            assert not (chain / DISK_FILE).exists()
        move_disk(OsFiles(), str(disk), str(target), 7)
        move_disk(OsFiles(), str(disk), str(target), 7)
        assert sorted(path.name for path in chain.iterdir()) == names
        assert sorted(path.name for path in disk.iterdir()) == ["lock", "something else"]


def write_log(disk: Path) -> None:
    """A node's log: a topic, a message, a cursor."""
    acts: list[Any] = []
    store = Store.open([disk], SMALL, Environment(notify=acts.append))
    source = store.log_counter << 24
    store.append(EntryKind.CATALOG, encode_changes(Catalog().assign([CatalogChange.put(ONE)])))
    store.append(EntryKind.MESSAGES, b"\x01" * 16, source=source, first_offset=0, count=1, time_ns=1)
    for fact in (
        records.encode_source(Source(source, 1)),
        records.encode_extension(Cursors.number, encode(1, "reader", (60, 0, 0), 0, {}, (), ())),
    ):
        store.append(EntryKind.LEDGER, fact)
    store.close()


def test_workers_go_on_with_the_folder_of_one_server_wherever_taking_it_over_was_broken_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tmp_path / "first"
    (first / "disk-1").mkdir(parents=True)
    write_log(first / "disk-1")

    async def run(data: Path, renamed: int) -> None:
        settings = ServeSettings(data=data, workers=2, storage=SMALL)
        plan, shared = Plan(settings, "127.0.0.1:1", "127.0.0.1:2"), metadata()
        monkeypatch.setattr("syncpoint.node.workers.folder.OsFiles", lambda: DyingFiles(renamed))
        monkeypatch.setattr("syncpoint.node.note.OsFiles", lambda: DyingFiles(renamed))
        with pytest.raises(Died):
            await prepare(plan, shared, SystemClock(), SystemRandom())
        noted = (data / WORKERS_NOTE).exists()
        assert noted == bool(renamed)
        if not noted:  # it is the server's still
            found = read_folder(data, [data / "disk-1"], Environment())
            assert ([one.name for one in found.catalog.topics()], found.topics) == ([ONE.name], {1})
            assert [one.name for one in found.cursors if isinstance(one, Setting)] == ["cursors/1"]
        monkeypatch.undo()
        await prepare(plan, shared, SystemClock(), SystemRandom())
        chains = [ChainRecord.decode(item.value) for item in (await read_all(shared, CHAINS))[0]]
        adopted, new = sorted(chains, key=lambda one: one.home)
        assert (adopted.home, new.home, noted_workers(data)) == ("worker-1", "worker-2", 2)
        moved = data / "disk-1" / "chains" / f"{adopted.number:010d}"
        assert sorted(path.name for path in moved.glob("logs/*/*.seg"))
        store = Store.open([moved], SMALL, Environment(notify=lambda act: None), KnownStore(adopted.universe))
        assert [store.bounds(source) for source in store.sources()] == [(0, 1)]
        store.close()

    for renamed in (0, 1, 2):
        shutil.copytree(first, tmp_path / str(renamed))
        asyncio.run(run(tmp_path / str(renamed), renamed))


def test_a_folder_of_workers_is_refused_by_its_name(tmp_path: Path) -> None:
    (tmp_path / WORKERS_NOTE).touch()
    for reason in ("--workers", "not a disk folder of a node"):
        with pytest.raises(FailedPrecondition, match=reason):
            read_folder(tmp_path, [tmp_path / "disk-1"], Environment())
        (tmp_path / WORKERS_NOTE).unlink(missing_ok=True)


def test_an_import_goes_on_where_it_was_broken_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, shared = tmp_path / "data", metadata()
    (data / "disk-1").mkdir(parents=True)
    write_log(data / "disk-1")
    cluster = LocalCluster(tmp_path / "c")
    cluster.create(Shape(clusters=3, disks=1))

    async def opened(environment: ClusterEnvironment, settings: Any) -> LocalShared:
        return shared

    def imported(renamed: int) -> Adopted | None:
        # One to see that a disk of the cluster can be moved to, one for the file that keeps it from being started, one
        # for the note, then the files.
        monkeypatch.setattr("syncpoint.programs.clusters.import_folder.OsFiles", lambda: files)
        monkeypatch.setattr("syncpoint.node.note.OsFiles", lambda: files)
        files = DyingFiles(renamed)
        return import_folder(cluster, data, [data / "disk-1"])

    async def stay_open() -> None:
        """The store outlives a command."""

    monkeypatch.setattr(ClusterEnvironment, "metadata", opened)
    monkeypatch.setattr(shared, "close", stay_open)
    with pytest.raises(Died):
        imported(2)
    assert noted_workers(data) == 0  # the server may go on, and the cluster may not be started
    assert cluster.importing.exists()
    with pytest.raises(Died):
        imported(4)
    with pytest.raises(FailedPrecondition, match=str(cluster.folder)):
        noted_workers(data)
    assert cluster.importing.exists()
    assert imported(1_000) is None
    assert not cluster.importing.exists()
    (moved,) = (cluster.folder / "disks").glob("*/chains/*/disk.json")
    assert not (data / "disk-1" / "logs").exists()
    assert len(list((moved.parent / "logs").iterdir())) >= 2
    assert imported(1_000) is None, "what has ended well may be asked for again"


def test_disks_of_the_node_take_places_of_the_chain_on_their_file_system(tmp_path: Path) -> None:
    class Mounts(OsFiles):
        """The disks of failure domain c2 are mounted elsewhere."""

        def rename(self, old: str, new: str) -> None:
            if "c2-" in new:
                raise OSError(errno.EXDEV, "Invalid cross-device link")
            super().rename(old, new)

    cluster = LocalCluster(tmp_path / "c")
    cluster.create(Shape(clusters=3, disks=1))
    settings, folder = cluster.settings(), folder_of(CatalogChange.put(ONE))
    disks = [tmp_path / "a", tmp_path / "b", tmp_path / "x"]
    for disk in disks:
        disk.mkdir()
    record, moves = planned(settings, disks[:2], 7, folder, Mounts())
    taken = {settings.processes[record.places[slot].process].cluster: target for slot, target in moves}
    assert taken == {one: str(cluster.folder / "disks" / f"{one}-d1") for one in ("c1", "c3")}
    assert (len(record.places), record.universe, record.home) == (3, folder.universe, "publish-forwarder-1")
    with pytest.raises(FailedPrecondition, match="file system"):
        planned(settings, disks, 7, folder, Mounts())
    assert not any(list(disk.iterdir()) for disk in disks)
    with pytest.raises(FailedPrecondition, match="4 disks"):
        planned(settings, [*disks, tmp_path / "y"], 7, folder, Mounts())


def test_neither_half_of_an_import_is_started(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "c")
    cluster.create(Shape(clusters=1, disks=1))
    cluster.importing.write_text("/data\n")
    for start in (cluster.up, lambda: cluster.start("proxy-1")):
        with pytest.raises(FailedPrecondition, match=r"cluster import --dir .* /data` again"):
            start()
    (tmp_path / CLUSTER_NOTE).write_text('{"cluster": "/tmp/demo", "chain": 1, "moves": []}')
    with pytest.raises(FailedPrecondition, match="/tmp/demo"):
        noted_workers(tmp_path)
