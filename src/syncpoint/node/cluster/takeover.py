"""`syncpoint cluster import`: a new cluster on this machine takes over the folder of a stopped node.

Place: over `importing`, which does the copying, and `local`, whose etcd and storage processes run meanwhile; nobody
else does, so nobody sees half of it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from syncpoint.control.chain_placement import planner
from syncpoint.metadata.layout import CHAIN_COUNTER
from syncpoint.metadata.store_client import SharedStore
from syncpoint.metadata.view import ClusterView
from syncpoint.model.cluster import PUBLISH, STORAGE, ChainRecord, Member
from syncpoint.model.errors import FailedPrecondition, Unavailable
from syncpoint.node.cluster.doors import Doors
from syncpoint.node.cluster.importing import Copied, OneNode, import_node, take_universe
from syncpoint.node.cluster.local import LocalCluster
from syncpoint.node.cluster.publish_role import kind_of
from syncpoint.node.cluster.settings import DEFAULT_CLASS, ClusterSettings, ProcessSettings
from syncpoint.node.cluster.tls import operator_tls

_MEMBERS_S = 20.0


def import_folder(cluster: LocalCluster, data: Path, disks: list[Path]) -> Copied:
    """Take over a folder. Raises `SyncpointError` and `OSError`; etcd runs, and goes on to."""
    settings = cluster.settings()
    running = [state.name for state in cluster.states() if state.state != "down" and "etcd" not in state.roles]
    if running:
        raise FailedPrecondition(f"{', '.join(running)} run: a folder is taken over before the cluster's first start")
    started: list[str] = []
    try:
        return asyncio.run(_import(cluster, settings, data, disks, started))
    finally:
        for name in reversed(started):
            cluster.stop(name)


async def _import(
    cluster: LocalCluster, settings: ClusterSettings, data: Path, disks: list[Path], started: list[str]
) -> Copied:
    doors = Doors.of(operator_tls(settings))
    shared = await doors.metadata(settings)
    view = ClusterView(shared)
    try:
        node = OneNode(data, disks, doors.clock, doors.random)
        try:
            await take_universe(shared, node.store.universe)
            for name, process in settings.processes.items():
                if STORAGE in process.roles:
                    await asyncio.to_thread(cluster.start, name)
                    started.append(name)
            await view.start()
            await _present(view, started)
            record = await _plan(settings, shared, view)
            return await import_node(
                node,
                shared,
                record,
                lambda: doors.files(record, 1, lambda name: _disk_address(view, name)),
                settings.storage,
                doors.clock,
                doors.random,
            )
        finally:
            await node.close()
    finally:
        await view.close()
        await shared.close()


async def _present(view: ClusterView, names: list[str]) -> None:
    try:
        async with asyncio.timeout(_MEMBERS_S):
            while not all(_disk_address(view, name) for name in names):
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise Unavailable("the storage processes did not become members") from None


async def _plan(settings: ClusterSettings, shared: SharedStore, view: ClusterView) -> ChainRecord:
    """The first chain of the first publish forwarder, which is its home from now on."""
    home = _home(settings)
    me = Member(home.name, home.roles, "", 0, home.region, home.zone, home.rack)
    plan = planner(view, me, {DEFAULT_CLASS: kind_of(settings.classes[DEFAULT_CLASS])})(DEFAULT_CLASS, [])
    return ChainRecord(
        await shared.counter(CHAIN_COUNTER),
        f"{home.name}/{DEFAULT_CLASS}",
        DEFAULT_CLASS,
        home.region,
        home.name,
        plan.places,
        plan.rule,
        plan.durability,
        plan.below_policy,
        weight=home.weight,
    )


def _home(settings: ClusterSettings) -> ProcessSettings:
    for process in settings.processes.values():
        if PUBLISH in process.roles:
            return process
    raise FailedPrecondition("the cluster's file names no publish forwarder")


def _disk_address(view: ClusterView, name: str) -> str | None:
    member = view.members.get(name)
    return member.disk_address if member is not None else None
