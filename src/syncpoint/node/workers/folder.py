"""The data folder of several workers: made from nothing, or taken over from a single server.

    DATA/workers.json              how many workers ran last; its presence says whose folder this is
    DATA/cluster.sqlite            what the workers agree on: catalog, members, chains (the parent serves it)
    DISK/chains/NUMBER/...         one chain of one worker
    DISK/before-workers/...        what a single server had written here, kept after it was taken over

Place: called by the parent before it starts a worker; nobody else has the folder open then.
Promise: every step may be broken off and done again. A message is copied, persisted and named in the metadata before
the server's own files are set aside.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import replace
from pathlib import Path

from syncpoint.metadata.contract import Operation, Put
from syncpoint.metadata.layout import CHAIN_COUNTER, CHAINS, HEAD, SETTINGS
from syncpoint.metadata.store_client import SharedStore, read_all
from syncpoint.model.cluster import ChainRecord, DiskPlace
from syncpoint.model.errors import FailedPrecondition
from syncpoint.node.cluster.importing import OneNode, import_node, take_universe
from syncpoint.node.cluster.settings import DEFAULT_CLASS
from syncpoint.node.settings import ServeSettings
from syncpoint.node.workers.local_files import open_local
from syncpoint.node.workers.note import NOTE
from syncpoint.node.workers.plan import PLACE, Plan, worker_name
from syncpoint.runtime.clock import Clock
from syncpoint.runtime.files import OsFiles, replace_file
from syncpoint.runtime.random import Random
from syncpoint.storage.layout import DISK_FILE

ASIDE = "before-workers"
_OURS = ("chains", ASIDE, "tombstones")

log = logging.getLogger(__name__)


async def prepare(plan: Plan, settings: ServeSettings, shared: SharedStore, clock: Clock, random: Random) -> None:
    """Leave a folder that workers can start on. Raises `SyncpointError` and `OSError`."""
    single = [path for path in plan.disks.values() if (path / DISK_FILE).exists()]
    if single and await shared.get(HEAD) is None:
        await _take_over(plan, settings, shared, clock, random)
    for path in single:
        _set_aside(path)
    await _agree(plan, shared)
    await _found(plan, shared)
    note = json.dumps({"workers": plan.workers, "disks": len(plan.disks)}).encode()
    replace_file(OsFiles(), str(settings.data / NOTE), note)


async def _take_over(plan: Plan, settings: ServeSettings, shared: SharedStore, clock: Clock, random: Random) -> None:
    node = OneNode(settings.data, list(plan.disks.values()), clock, random)
    try:
        await take_universe(shared, node.store.universe)
        record = _record(plan, await shared.counter(CHAIN_COUNTER), worker_name(1))
        done = await import_node(
            node, shared, record, lambda: open_local(record, 1, plan.disks), settings.storage, clock, random
        )
    finally:
        await node.close()
    log.info("%d messages of %d topics are taken over from a single server", done.messages, done.topics)


def _set_aside(disk: Path) -> None:
    """What a single server wrote; the file that says who the disk is goes last: until then this is done again."""
    aside = disk / ASIDE
    aside.mkdir(exist_ok=True)
    for name in sorted(os.listdir(disk), key=lambda one: one == DISK_FILE):
        if name not in _OURS:
            os.replace(disk / name, aside / name)
    OsFiles().sync_dir(str(aside))
    OsFiles().sync_dir(str(disk))
    log.info("what a single server had written is in %s and may be deleted", aside)


def _record(plan: Plan, number: int, home: str) -> ChainRecord:
    """A chain on all disks; without a rule of its own a majority of them acknowledges."""
    places = tuple(DiskPlace(PLACE, disk, home) for disk in plan.disks)
    return ChainRecord(number, f"{home}/{DEFAULT_CLASS}", DEFAULT_CLASS, PLACE, home, places, {}, plan.durability)


async def _agree(plan: Plan, shared: SharedStore) -> None:
    """The settings of the command line are those of all workers from now on."""
    chains = [ChainRecord.decode(item.value) for item in (await read_all(shared, CHAINS))[0]]
    for record in chains:
        if [place.disk for place in record.places] != list(plan.disks):
            raise FailedPrecondition(
                f"the messages lie on {len(record.places)} disks, and {len(plan.disks)} are given: give the same --disk"
                " folders as before, in the same order"
            )
    changed = [replace(record, durability=plan.durability) for record in chains]
    fingerprint = json.dumps(plan.settings().fingerprint(), sort_keys=True).encode()
    puts: list[Operation] = [Put(CHAINS.key(record.number), record.encode()) for record in changed]
    await shared.txn([], [*puts, Put(SETTINGS, fingerprint)])


async def _found(plan: Plan, shared: SharedStore) -> None:
    """One chain for each worker. Those of workers that are no more are opened by the others."""
    homes = {ChainRecord.decode(item.value).home for item in (await read_all(shared, CHAINS))[0]}
    for number in range(1, plan.workers + 1):
        if worker_name(number) not in homes:
            record = _record(plan, await shared.counter(CHAIN_COUNTER), worker_name(number))
            await shared.txn([], [Put(CHAINS.key(record.number), record.encode())])
