"""The data folder of several workers: made from nothing, or the one that a single server left.

    DATA/workers.json              how many workers ran last; its presence marks the folder as one of workers
    DATA/cluster.sqlite            what the workers agree on: catalog, members, chains (the parent serves it)
    DATA/workers/lock              held by the parent; workers/life/lock by it and all that it has started
    DISK/chains/NUMBER/...         one chain of one worker

Place: called by the parent before it starts a worker; nobody else has the folder open then.
Promise: every step may be broken off and done again, see `node.cluster.adopt`.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from syncpoint.base.model.cluster import ChainRecord, DiskPlace
from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.base.runtime.clock import Clock
from syncpoint.base.runtime.environment import Environment
from syncpoint.base.runtime.os_files import OsFiles
from syncpoint.base.runtime.random import Random
from syncpoint.broker.router.location import DEFAULT_CLASS
from syncpoint.catalog.metadata.contract import Operation, Put
from syncpoint.catalog.metadata.layout import CHAIN_COUNTER, CHAINS, SETTINGS
from syncpoint.catalog.metadata.store_client import SharedStore, read_all
from syncpoint.log.storage.layout import DISK_FILE
from syncpoint.node.cluster.adopt import move_disk, read_folder, register
from syncpoint.node.locks import FolderLocks
from syncpoint.node.note import WORKERS_NOTE, workers_note, write_note
from syncpoint.node.workers.plan import PLACE, Plan, worker_name

log = logging.getLogger(__name__)


async def prepare(plan: Plan, shared: SharedStore, clock: Clock, random: Random) -> None:
    """Leave a folder that workers can start on. Raises `SyncpointError` and `OSError`."""
    disks, data = list(plan.disks.values()), plan.serve.data
    if any((disk / DISK_FILE).exists() for disk in disks):
        locks = FolderLocks()
        locks.take(data)
        try:
            await _adopt(plan, disks, shared, clock, random)
        finally:
            locks.release()
    await _agree(plan, shared)
    await _found(plan, shared)
    write_note(data, WORKERS_NOTE, {"workers": plan.serve.workers, "disks": len(plan.disks)})


async def _adopt(plan: Plan, disks: Sequence[Path], shared: SharedStore, clock: Clock, random: Random) -> None:
    """What a single server left becomes the chain of the first worker."""
    data = plan.serve.data
    number = workers_note(data).get("adopting")
    if number is None:
        folder = await asyncio.to_thread(read_folder, data, disks, Environment(clock, random))
        number = await shared.counter(CHAIN_COUNTER)
        record = replace(_record(plan, number, worker_name(1)), universe=folder.universe)
        await register(folder, shared, record, range(len(disks)))
        write_note(data, WORKERS_NOTE, {"workers": plan.serve.workers, "disks": len(disks), "adopting": number})
    for disk in disks:
        move_disk(OsFiles(), str(disk), str(disk), number)
    log.info("data of the single server is now chain %d of the workers", number)


def _record(plan: Plan, number: int, home: str) -> ChainRecord:
    """A chain on all disks; without a rule of its own a majority of them acknowledges."""
    places = tuple(DiskPlace(PLACE, disk, home) for disk in plan.disks)
    return ChainRecord(number, f"{home}/{DEFAULT_CLASS}", DEFAULT_CLASS, PLACE, home, places, {}, plan.serve.durability)


async def _agree(plan: Plan, shared: SharedStore) -> None:
    """The settings of the command line are those of all workers from now on."""
    chains = [ChainRecord.decode(item.value) for item in (await read_all(shared, CHAINS))[0]]
    for record in chains:
        if [place.disk for place in record.places] != list(plan.disks):
            raise FailedPrecondition(
                f"messages are stored on {len(record.places)} disks, but {len(plan.disks)} are given. Give the same"
                " --disk folders as before, in the same order."
            )
    changed = [replace(record, durability=plan.serve.durability) for record in chains]
    fingerprint = json.dumps(plan.cluster().fingerprint(), sort_keys=True).encode()
    puts: list[Operation] = [Put(CHAINS.key(record.number), record.encode()) for record in changed]
    await shared.txn([], [*puts, Put(SETTINGS, fingerprint)])


async def _found(plan: Plan, shared: SharedStore) -> None:
    """One chain for each worker. Those of workers that are no more are opened by the others."""
    homes = {ChainRecord.decode(item.value).home for item in (await read_all(shared, CHAINS))[0]}
    for number in range(1, plan.serve.workers + 1):
        if worker_name(number) not in homes:
            record = _record(plan, await shared.counter(CHAIN_COUNTER), worker_name(number))
            await shared.txn([], [Put(CHAINS.key(record.number), record.encode())])
