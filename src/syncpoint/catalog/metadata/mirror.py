"""What a server on one machine keeps in its metadata store: a replica of the catalog, and its identities.

Place: beside the log, which is the truth. The replica lets an operator look inside without the server, and shows at
start whether store and log belong together; the identities are what must be known before any disk is read.
Promise: the replica is the catalog at exactly the revision it names, and names none while it is rebuilt. One that
cannot be written is given up until the next start, and costs nobody anything else.
Leaves to the node: when to flush, and to call `rebuild` after a start that does not agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.contract import (
    TXN_BYTES_MAX,
    TXN_OPS_MAX,
    Delete,
    MetadataStore,
    Operation,
    Put,
    create,
)
from syncpoint.catalog.metadata.layout import NODE_DISKS, NODE_LOG_FLOOR, NODE_UNIVERSE, RECORDS, REVISION
from syncpoint.catalog.metadata.records import (
    CatalogChange,
    ChangeOp,
    Record,
    Setting,
    Snapshot,
    Subscription,
    decode_record,
    encode_record,
)

_EVENTS_KEPT = 1_000


class CatalogMirror:
    """The catalog's replica in a store."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._waiting: list[CatalogChange] = []
        self._compacted = 0
        self.failed = ""
        """Why it is given up; "": it is not."""
        found = store.get(REVISION)
        self.revision = 0 if found is None else int(found.value)

    def note(self, changes: Iterable[CatalogChange]) -> None:
        """Take changes over at the next flush. Those that are in already are passed over."""
        if self.failed:
            return
        self._waiting += [change for change in changes if change.revision > self.revision]

    def flush(self) -> None:
        """Write what was noted. Raises the store's errors; nothing is forgotten then: flush again."""
        while self._waiting:
            batch = _batch(self._waiting)
            # The last write of a record counts, so that a transaction writes no key twice.
            operations = {operation.key: operation for operation in map(_operation, batch)}
            revision = batch[-1].revision
            self._write([*operations.values(), Put(REVISION, b"%d" % revision)])
            self.revision = revision
            del self._waiting[: len(batch)]

    def give_up(self, error: Exception) -> None:
        """Follow the catalog no more."""
        self._waiting.clear()
        self.failed = f"{type(error).__name__}: {error}"

    def agrees(self, catalog: Catalog) -> bool:
        """Whether the replica, once flushed, is at the catalog's revision."""
        newest = self._waiting[-1].revision if self._waiting else self.revision
        return newest == catalog.revision

    def rebuild(self, catalog: Catalog) -> None:
        """Make the replica from the catalog anew, whatever it held. It names no revision until it is whole."""
        self._waiting.clear()
        self.revision = 0
        self._write([Delete(REVISION)])
        while items := self._store.range(RECORDS, limit=TXN_OPS_MAX).items:
            self._write([Delete(item.key) for item in items])
        puts = [CatalogChange.put(record) for record in catalog.records()]
        while puts:
            batch = _batch(puts)
            self._write([_operation(change) for change in batch])
            del puts[: len(batch)]
        self._write([Put(REVISION, b"%d" % catalog.revision)])
        self.revision = catalog.revision

    def records(self) -> Iterator[Record]:
        """The records in the replica, for tools."""
        after: str | None = None
        while True:
            page = self._store.range(RECORDS, after=after)
            for item in page.items:
                yield decode_record(item.value)
            if not page.more:
                return
            after = page.items[-1].key

    def _write(self, operations: Sequence[Operation]) -> None:
        newest = self._store.txn([], operations).revision
        # Nobody watches the replica for long; without this its events would grow for ever.
        if newest - self._compacted > 2 * _EVENTS_KEPT:
            self._compacted = newest - _EVENTS_KEPT
            self._store.compact(self._compacted)


def _batch(waiting: list[CatalogChange]) -> list[CatalogChange]:
    """The first changes that fit into one transaction together with the revision."""
    size = 0
    for count, change in enumerate(waiting[: TXN_OPS_MAX - 1]):
        operation = _operation(change)
        size += len(operation.key) + (len(operation.value) if isinstance(operation, Put) else 0)
        if count and size > TXN_BYTES_MAX - 1_024:
            return waiting[:count]
    return waiting[: TXN_OPS_MAX - 1]


def _operation(change: CatalogChange) -> Operation:
    record = change.record
    return Put(_key(record), encode_record(record)) if change.op is ChangeOp.PUT else Delete(_key(record))


def _key(record: Record) -> str:
    if isinstance(record, Setting):
        return RECORDS.key("settings", record.name)
    kind = "topics"
    if isinstance(record, Subscription):
        kind = "subscriptions"
    elif isinstance(record, Snapshot):
        kind = "snapshots"
    return RECORDS.key(kind, f"{record.incarnation:020d}")


class Identities:
    """Numbers of one installation, created at first use and never changed by mere opening."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    @property
    def universe(self) -> int | None:
        """The universe of this installation; None before `adopt_universe`."""
        found = self._store.get(NODE_UNIVERSE)
        return None if found is None else int(found.value)

    def adopt_universe(self, universe: int) -> None:
        """Take over the universe found on disks, when the store was lost. Raises `ValueError` if it has another one."""
        self._create(NODE_UNIVERSE, b"%d" % universe)
        if self.universe != universe:
            raise ValueError(f"the disks belong to universe {universe}, the metadata store to {self.universe}")

    @property
    def log_counter_floor(self) -> int:
        """Logs up to this counter have been minted; a new one must be higher."""
        found = self._store.get(NODE_LOG_FLOOR)
        return 0 if found is None else int(found.value)

    def raise_log_counter_floor(self, counter: int) -> None:
        """Remember a minted log counter; never goes down."""
        if counter > self.log_counter_floor:
            self._store.txn([], [Put(NODE_LOG_FLOOR, b"%d" % counter)])

    @property
    def disks(self) -> dict[str, str]:
        """Known disks: path as configured -> incarnation."""
        found = self._store.range(NODE_DISKS).items
        return {bytes.fromhex(NODE_DISKS.name(item.key)).decode(): item.value.decode() for item in found}

    def know_disk(self, path: str, incarnation: str) -> None:
        """Remember which disk lies at a path."""
        key = NODE_DISKS.key(path.encode().hex())
        found = self._store.get(key)
        if found is None or found.value != incarnation.encode():
            self._store.txn([], [Put(key, incarnation.encode())])

    def _create(self, key: str, value: bytes) -> None:
        create(self._store, key, value)
