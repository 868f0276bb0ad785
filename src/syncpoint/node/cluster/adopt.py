"""The folder of a stopped node becomes a chain of a cluster: registered as it is, and its files renamed.

Place: used by `syncpoint cluster import` and the first `syncpoint serve --workers` of a folder; the node is stopped.
How: the folder is opened and closed as the node would do it. What its log says of the catalog goes to the metadata,
record by record, and what else a cluster keeps there; the chain and the catalog's head are written last, together. Then
the caller notes in the folder that it is the cluster's, and only then the files of each disk move.
Promise: before the note the folder is the node's, whatever was registered: registering it again begins anew. Behind it
the folder is the cluster's, and moving goes on where it was broken off. No message is copied: the chain goes on with
the node's universe, sources, acknowledgements, cursors, links and epochs, those that are only staged among them.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from syncpoint.base.model.cluster import ChainRecord
from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.base.runtime.environment import Environment
from syncpoint.base.runtime.files import Files
from syncpoint.base.runtime.trusted import TrustedClock
from syncpoint.broker.pipeline import cursor_names
from syncpoint.broker.pipeline.cursors import Cursors
from syncpoint.broker.publish.facts.recovery import replay
from syncpoint.broker.publish.facts.source import INNER_TOPICS
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.catalog_replica import record_key
from syncpoint.catalog.metadata.contract import (
    TXN_BYTES_MAX,
    TXN_OPS_MAX,
    Compare,
    Delete,
    Operation,
    Put,
    absent,
    unchanged,
)
from syncpoint.catalog.metadata.layout import (
    ACK_KEY,
    CHAINS,
    EPOCHS,
    HEAD,
    INCARNATION_COUNTER,
    KNOWN_DISKS,
    LOG_COUNTER,
    OPEN,
    RECORDS,
    UNIVERSE,
    USED,
)
from syncpoint.catalog.metadata.mirror import Identities
from syncpoint.catalog.metadata.records import Record, Setting, encode_record
from syncpoint.catalog.metadata.store_client import SharedStore, read_all
from syncpoint.log.diskserver.fencing import ChainFolders
from syncpoint.log.storage.layout import DISK_FILE, is_of_disk
from syncpoint.log.storage.settings import KnownStore, StorageSettings
from syncpoint.log.storage.store import Store
from syncpoint.node.metadata import open_metadata
from syncpoint.node.note import WORKERS_NOTE
from syncpoint.node.solo.own_chain import ACK_KEY as NODE_ACK_KEY
from syncpoint.node.uses import USES, noted_uses

IN_USE = "The cluster was started before. Only a new cluster can import a folder."
PROBE = "adopting"
SETTINGS = StorageSettings(segment_bytes=1 << 20, pool_segments=0)  # for a log that nothing is written to


class NodeFolder(NamedTuple):
    """What the folder of a node says. `disks`: their identities in order; `topics`: those its log has sources of;
    `cursors`: which cursors topics have, as records of the catalog.
    """

    universe: int
    log_counter: int
    disks: tuple[str, ...]
    catalog: Catalog
    topics: frozenset[int]
    cursors: tuple[Record, ...]


def read_folder(data: Path, disks: Sequence[Path], environment: Environment) -> NodeFolder:
    """Open the folder, which nobody else may use in the meantime, and leave it as an ordinary stop does. Raises
    `FailedPrecondition` where it is none, and storage errors if it cannot be recovered.
    """
    missing = [disk for disk in disks if not _is_disk(environment.files, disk)]
    if missing and (data / WORKERS_NOTE).exists():
        raise FailedPrecondition(f"{data} is a folder of `serve --workers`, which a cluster cannot import")
    if missing or not data.is_dir():
        raise FailedPrecondition(
            f"{missing[0] if missing else data} is not a disk folder of a node. Give the node's data folder, and its "
            "disk folders if they are elsewhere."
        )
    clock = environment.clock
    metadata = open_metadata(data / "metadata.sqlite", clock, environment.random)
    try:
        identities = Identities(metadata)
        store = Store.open(
            disks,
            SETTINGS,
            replace(environment, notify=lambda act: None),
            KnownStore(
                identities.universe,
                tuple(identities.disks.values()),
                counter_floor=identities.log_counter_floor,
            ),
        )
        try:
            identities.raise_log_counter_floor(store.log_counter)
            memory = replay(store)
        finally:
            store.close()
    finally:
        metadata.close()
    sources = memory.sources
    cursors = Cursors(
        sources, memory.catalog, TrustedClock(clock), lambda topic: 0.0, memory.extensions.get(Cursors.number, [])
    )
    by_topic = {cursor.topic: cursors.of_topic(cursor.topic) for cursor in cursors.all()}
    return NodeFolder(
        store.universe,
        store.log_counter,
        tuple(store.recovered.disks),
        memory.catalog,
        frozenset(source.topic for source in sources.by_number.values()) - INNER_TOPICS,
        tuple(
            cursor_names.put(topic, {cursor.name: cursor.limits for cursor in found}).record
            for topic, found in sorted(by_topic.items())
        ),
    )


def _is_disk(files: Files, folder: Path) -> bool:
    try:
        files.stat(str(folder / DISK_FILE))
    except FileNotFoundError:
        return False
    return True


# -- the metadata ------------------------------------------------------------------------------------------------------


async def register(folder: NodeFolder, shared: SharedStore, record: ChainRecord, slots: Sequence[int]) -> None:
    """Make the folder a chain, which lies where `record` says, and the catalog of a new cluster. `slots`: those of the
    node's disks. Raises `FailedPrecondition` when the cluster is not new, and the store's errors.
    """
    await begin_anew(shared, folder.universe)
    unclaimed = absent(HEAD)  # what arrives after the head, which is written last, must not undo later changes
    stale = [item.key for prefix in (RECORDS, OPEN, USED) for item in (await read_all(shared, prefix))[0]]
    await _write(shared, unclaimed, (Delete(key) for key in stale))
    for counter, least in ((LOG_COUNTER, folder.log_counter), (INCARNATION_COUNTER, folder.catalog.incarnation)):
        known = await shared.get(counter)
        behind = least - (int(known.value) if known is not None else 0)
        if behind > 0:
            await shared.counter(counter, by=behind)
    key = folder.catalog.setting(NODE_ACK_KEY)
    kept = [] if key is None else [Put(ACK_KEY, key.hex().encode())]
    kept += [Put(record_key(one), encode_record(one)) for one in folder.catalog.records() if not _is_nodes_own(one)]
    kept += [Put(record_key(one), encode_record(one)) for one in folder.cursors]
    kept += [Put(USED.key(number), b"%d" % used) for number, used in noted_uses(folder.catalog).items()]
    kept += [Put(OPEN.key(topic, record.number), b"{}") for topic in sorted(folder.topics)]
    await _write(shared, unclaimed, kept)
    named = dict(zip(slots, folder.disks, strict=True))
    disks = [named.get(slot, "") for slot in range(len(record.places))]
    last: list[Operation] = [
        Put(KNOWN_DISKS.key(record.number), json.dumps(disks).encode()),
        Put(CHAINS.key(record.number), record.encode()),
        Put(HEAD, b"%d %d" % (folder.catalog.revision, folder.catalog.incarnation)),
    ]
    await _write(shared, unclaimed, last)


async def begin_anew(shared: SharedStore, universe: int) -> None:
    """Check that the cluster is new, and give it the folder's universe.

    Removes registrations of an earlier, interrupted attempt. Raises `FailedPrecondition`.
    """
    found, head = await shared.get(UNIVERSE), await shared.get(HEAD)
    chains, _ = await read_all(shared, CHAINS)
    begun = head is not None and len(chains) == 1 and chains[0].revision == head.revision
    if (found is not None and int(found.value) != universe) or not (begun or (head is None and not chains)):
        raise FailedPrecondition(IN_USE)
    if head is not None:
        number = CHAINS.number(chains[0].key)
        taking_back = [Delete(HEAD), Delete(chains[0].key), Delete(KNOWN_DISKS.key(number))]
        if not (await shared.txn([unchanged(HEAD, head.revision), absent(EPOCHS.key(number))], taking_back)).ok:
            raise FailedPrecondition(IN_USE)
    await shared.txn([absent(UNIVERSE)], [Put(UNIVERSE, b"%d" % universe)])


def _is_nodes_own(record: Record) -> bool:
    """Whether a cluster keeps it elsewhere."""
    return isinstance(record, Setting) and record.name.partition(":")[0] in (NODE_ACK_KEY, USES)


async def _write(shared: SharedStore, condition: Compare, operations: Iterable[Operation]) -> None:
    batch: list[Operation] = []
    size = 0
    for operation in [*operations, None]:
        more = 0
        if isinstance(operation, Put):
            more = len(operation.key) + len(operation.value)
        if batch and (operation is None or len(batch) == TXN_OPS_MAX or size + more > TXN_BYTES_MAX):
            if not (await shared.txn([condition], batch)).ok:
                raise FailedPrecondition(IN_USE)
            batch, size = [], 0
        if operation is not None:
            batch.append(operation)
            size += more


# -- the files ---------------------------------------------------------------------------------------------------------


def can_move(files: Files, disk: str, target: str) -> bool:
    """Whether what lies in one folder can be renamed into the other, which is made: both are on one file system."""
    files.mkdir(target)
    here, there = f"{disk}/{PROBE}", f"{target}/{PROBE}"
    files.close(files.open(here, create=True))
    try:
        files.rename(here, there)
    except OSError as error:
        files.unlink(here)
        if error.errno != errno.EXDEV:
            raise
        return False
    files.unlink(there)
    return True


def move_disk(files: Files, disk: str, target: str, chain: int) -> None:
    """Rename what storage keeps in `disk` into a chain's folder on the disk `target`; broken off, this goes on with it.
    The file that says who the disk is goes last and makes it the chain's. Raises `OSError`.
    """
    folder = ChainFolders(target, files, "").folder(chain)
    files.mkdir(folder)
    for made in (folder.rpartition("/")[0], target):
        files.sync_dir(made)
    for name in sorted(filter(is_of_disk, files.listdir(disk)), key=lambda one: one == DISK_FILE):
        if name == DISK_FILE:
            files.sync_dir(folder)
            files.sync_dir(disk)
        files.rename(f"{disk}/{name}", f"{folder}/{name}")
    files.sync_dir(folder)
    files.sync_dir(disk)
