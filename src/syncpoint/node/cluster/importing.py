"""Taking over the data folder of one node: everything still needed of it becomes a chain, ids and acks intact.

Place: behind `syncpoint cluster import` and the first `syncpoint serve --workers` of a folder; the node is stopped.
How: the folder is opened as the node would open it, so that what it recovers is what the node would have served. Every
batch that somebody still needs is appended to a new chain under its own source, offsets and time, as a copy; behind
them stands a checkpoint with what the node knew: sources (sealed, their numbers make up the message ids), where
subscriptions began, what they and the snapshots have acknowledged, cursors, queries and links. The catalog goes to the
metadata, record by record, and the chain keeps the universe of the folder.
Promise: the folder is left as an ordinary stop leaves it. The chain and the catalog's head are written last, together:
before that nothing is imported, and the command can be given again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from syncpoint.metadata.catalog_replica import record_key
from syncpoint.metadata.contract import TXN_BYTES_MAX, TXN_OPS_MAX, Operation, Put, absent
from syncpoint.metadata.layout import (
    ACK_KEY,
    CHAINS,
    EPOCHS,
    HEAD,
    INCARNATION_COUNTER,
    KNOWN_DISKS,
    LOG_COUNTER,
    OPEN,
    UNIVERSE,
)
from syncpoint.metadata.mirror import Identities
from syncpoint.metadata.records import Record, Setting, Snapshot, Subscription, encode_record
from syncpoint.metadata.store_client import SharedStore
from syncpoint.model.cluster import ChainRecord
from syncpoint.model.errors import FailedPrecondition, Unavailable
from syncpoint.model.flow import FlowLimits
from syncpoint.node.locks import FolderLocks
from syncpoint.node.metadata import open_metadata
from syncpoint.pipeline import cursor_names
from syncpoint.pipeline.reading import LogReader
from syncpoint.pipeline.writing import EpochWriter
from syncpoint.publish import records
from syncpoint.publish.forwarder import PublishForwarder
from syncpoint.publish.recovery import recover
from syncpoint.publish.retention import is_needed
from syncpoint.publish.source import STAGING_TOPIC
from syncpoint.runtime.clock import Clock
from syncpoint.runtime.files import Files, OsFiles
from syncpoint.runtime.random import Random
from syncpoint.runtime.tasks import complete
from syncpoint.storage.disk.step_workers import notifier
from syncpoint.storage.layout import DISK_FILE
from syncpoint.storage.quorum import AckRule
from syncpoint.storage.record import EntryKind, StoredBatch
from syncpoint.storage.settings import StorageSettings
from syncpoint.storage.store import Store

NODE_ACK_KEY = "ack-id-key"  # the setting of one node that holds it
IN_USE = "the cluster has topics already: only a new cluster can take over a folder"
UNDERWAY_BYTES = 8 << 20  # appended and not yet persisted
READ_BYTES = 4 << 20
PERSIST_S = 120.0


class Copied(NamedTuple):
    """What became of a folder."""

    universe: int
    topics: int
    subscriptions: int
    snapshots: int
    batches: int
    messages: int


class OneNode:
    """The opened folder of a stopped node. `close` it at the end, whatever happened."""

    def __init__(self, data: Path, disks: Sequence[Path], clock: Clock, random: Random) -> None:
        """Raises `SyncpointError` when the folder is in use, is none, or cannot be recovered."""
        loop = asyncio.get_running_loop()
        missing = [disk for disk in disks if not (disk / DISK_FILE).exists()]
        if missing or not data.is_dir():
            raise FailedPrecondition(
                f"{missing[0] if missing else data} is no disk folder of a node; name the node's data folder, and its "
                "disks if they lie elsewhere"
            )
        self._locks = FolderLocks()
        self._locks.take(data)
        self._metadata = open_metadata(data / "metadata.sqlite", clock, random)
        try:
            identities = Identities(self._metadata, random)
            self.store = Store.open(
                disks,
                StorageSettings(),
                files=OsFiles(),
                clock=clock,
                random=random,
                counter_floor=identities.log_counter_floor,
                universe=identities.universe,
                notify=notifier(loop),
                known_disks=tuple(identities.disks.values()),
            )
        except BaseException:
            self._metadata.close()
            self._locks.release()
            raise
        identities.raise_log_counter_floor(self.store.log_counter)
        self.memory = recover(self.store)
        self.catalog = self.memory.catalog
        self.forwarder = PublishForwarder(
            self.store, self.memory, clock, FlowLimits(), soon=loop.call_soon, later=loop.call_later
        )

    async def finish_epochs(self) -> None:
        """Finish epochs that were decided before a crash, as the node's next start would; cursors hold what they need,
        queries and links are known. What is only staged is not taken over: its driver stages it again.
        """
        loop = asyncio.get_running_loop()
        self._reader = LogReader(self.forwarder, None, loop.call_soon)
        writer = EpochWriter(self.forwarder, loop.call_soon, loop.call_later)
        await writer.finish_decided()
        writer.forget_staged()

    def cursor_names(self) -> Iterator[Record]:
        """Settings of the catalog: the cursors of each topic."""
        topics = {cursor.topic for cursor in self._reader.cursors.all()}
        for topic in sorted(topics):
            cursors = {cursor.name: cursor.limits for cursor in self._reader.cursors.of_topic(topic)}
            yield cursor_names.put(topic, cursors).record

    async def close(self) -> None:
        """Give the folder back."""
        await close_store(self.store)
        self._metadata.close()
        self._locks.release()

    def batches(self) -> list[tuple[int, int, int]]:
        """(source, first offset, end) of everything stored, in the order of the sources."""
        found = [(source, self.store.bounds(source)) for source in sorted(self.memory.sources.by_number)]
        return [(source, *bounds) for source, bounds in found if bounds is not None]

    async def read(self, source: int, begin: int) -> Sequence[StoredBatch]:
        """Stored batches from an offset on. Raises what storage says."""
        answer: asyncio.Future[Sequence[StoredBatch]] = asyncio.get_running_loop().create_future()
        self.store.read(source, begin, READ_BYTES, partial(complete, answer))
        return await answer

    def facts(self) -> Iterator[bytes]:
        """What the chain must know beside the messages."""
        yield records.encode_revision(self.catalog.revision)
        for state in self.memory.ledgers.snapshots.values():
            yield records.encode_snapshot(state)
        yield from self.forwarder.facts()

    def record(self, record: Record) -> Record:
        """A record as it stands in a cluster: what a snapshot holds is known to the chain, and how often a subscription
        was sought to the catalog.
        """
        if isinstance(record, Snapshot):
            return replace(record, state=b"")
        if isinstance(record, Subscription) and (ledger := self.memory.ledgers.get(record.incarnation)) is not None:
            return replace(record, generation=ledger.generation)
        return record


async def copy_chain(node: OneNode, store: Store) -> tuple[int, int]:
    """Write everything that is still needed into an opened chain; returns batches and messages once it is persisted."""
    persisted = _Persisted(store)
    batches = messages = underway = 0
    for source, at, end in node.batches():
        while at < end:
            found = await node.read(source, at)
            if not found:
                break
            for batch in found:
                at = batch.first_offset + batch.count
                if not is_needed(node.forwarder, source, batch.first_offset, batch.count, batch.time_ns):
                    continue
                position = store.append(
                    EntryKind.COPY,
                    batch.payload,
                    source=source,
                    first_offset=batch.first_offset,
                    count=batch.count,
                    time_ns=batch.time_ns,
                )
                batches, messages, underway = batches + 1, messages + batch.count, underway + len(batch.payload)
                if underway >= UNDERWAY_BYTES:
                    await persisted.reach(position)
                    underway = 0
    checkpoint = store.checkpoint(records.bundles(node.facts()))
    while not checkpoint.step():
        pass
    await persisted.reach(store.appended)
    return batches, messages


async def import_node(
    node: OneNode,
    shared: SharedStore,
    record: ChainRecord,
    open_files: Callable[[], tuple[Files, Sequence[str]]],
    settings: StorageSettings,
    clock: Clock,
    random: Random,
) -> Copied:
    """Make the folder a chain and the catalog of a new cluster. `record` says where the chain lies; epoch 1 writes it.

    Raises `FailedPrecondition` when the cluster has a catalog, and what storage and metadata say.
    """
    await node.finish_epochs()
    await _raise_counters(shared, node)
    counter = await shared.counter(LOG_COUNTER)

    def open_store() -> Store:
        files, roots = open_files()
        return Store.open(
            roots,
            replace(settings, durability=record.durability),
            files=files,
            clock=clock,
            random=random,
            universe=node.store.universe,
            notify=notify,
            rule=AckRule.from_values(record.rule) if record.rule else None,
            counter=counter,
        )

    notify = notifier(asyncio.get_running_loop())
    store = await asyncio.to_thread(open_store)
    try:
        batches, messages = await copy_chain(node, store)
        disks = store.recovered.disks
    finally:
        await close_store(store)
    catalog, key = node.catalog, node.catalog.setting(NODE_ACK_KEY)
    if key is not None:
        await _put_all(shared, [Put(ACK_KEY, key.hex().encode())])
    await _put_all(shared, (_record_put(node.record(one)) for one in catalog.records() if not _is_ack_key(one)))
    await _put_all(shared, map(_record_put, node.cursor_names()))
    number = record.number
    topics = {source.topic for source in node.memory.sources.by_number.values() if source.topic != STAGING_TOPIC}
    await _put_all(shared, (Put(OPEN.key(topic, number), b"{}") for topic in sorted(topics)))
    record = replace(record, universe=node.store.universe)
    last: list[Operation] = [
        Put(EPOCHS.key(number), b"1"),
        Put(KNOWN_DISKS.key(number), json.dumps(list(disks)).encode()),
        Put(CHAINS.key(number), record.encode()),
        Put(HEAD, b"%d %d" % (catalog.revision, catalog.incarnation)),
    ]
    if not (await shared.txn([absent(HEAD)], last)).ok:
        raise FailedPrecondition(IN_USE)
    return Copied(node.store.universe, *catalog.counts(), batches, messages)


async def take_universe(shared: SharedStore, universe: int) -> None:
    """Give a new cluster the universe of a folder. Raises `FailedPrecondition` for a cluster that is not new."""
    found = await shared.get(UNIVERSE)
    chains = (await shared.range(CHAINS, limit=1)).items
    if await shared.get(HEAD) is not None or chains or (found is not None and int(found.value) != universe):
        raise FailedPrecondition("the cluster has been in use: only a new one, never started, can take over a folder")
    await shared.txn([absent(UNIVERSE)], [Put(UNIVERSE, b"%d" % universe)])


async def _raise_counters(shared: SharedStore, node: OneNode) -> None:
    for key, least in ((LOG_COUNTER, node.store.log_counter), (INCARNATION_COUNTER, node.catalog.incarnation)):
        known = await shared.get(key)
        behind = least - (int(known.value) if known is not None else 0)
        if behind > 0:
            await shared.counter(key, by=behind)


async def _put_all(shared: SharedStore, puts: Iterable[Put]) -> None:
    batch: list[Operation] = []
    size = 0
    for put in puts:
        more = len(put.key) + len(put.value)
        if batch and (len(batch) == TXN_OPS_MAX or size + more > TXN_BYTES_MAX):
            await _put_unfinished(shared, batch)
            batch, size = [], 0
        batch.append(put)
        size += more
    if batch:
        await _put_unfinished(shared, batch)


async def _put_unfinished(shared: SharedStore, batch: list[Operation]) -> None:
    """As long as there is no catalog, which is written last: what arrives after it must not undo later changes."""
    if not (await shared.txn([absent(HEAD)], batch)).ok:
        raise FailedPrecondition(IN_USE)


def _record_put(record: Record) -> Put:
    return Put(record_key(record), encode_record(record))


def _is_ack_key(record: Record) -> bool:
    return isinstance(record, Setting) and record.name == NODE_ACK_KEY


class _Persisted:
    """Waits for positions of a store."""

    def __init__(self, store: Store) -> None:
        self._store, self._reached, self._failed = store, 0, ""
        self._moved = asyncio.Event()
        store.on_persisted, store.on_failed = self._persisted, self._fail

    def _persisted(self, position: int) -> None:
        self._reached = max(self._reached, position)
        self._moved.set()

    def _fail(self, error: Exception) -> None:
        self._failed = str(error)
        self._moved.set()

    async def reach(self, position: int) -> None:
        self._store.flush()
        try:
            async with asyncio.timeout(PERSIST_S):
                while self._reached < position:
                    if self._failed:
                        raise Unavailable(f"the new chain cannot be written: {self._failed}")
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            raise Unavailable(f"the new chain was not written within {PERSIST_S:g} s") from None


async def close_store(store: Store) -> None:
    """Close it on a thread of its own. The loop still hears of its disks, and changes nothing any more."""
    store.begin_close()
    await asyncio.to_thread(store.close)
