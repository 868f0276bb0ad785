"""The catalog of a cluster: in the metadata store for all, and in the memory of every process that asks for it.

Place: what the log is for one node, the metadata store is here. `records/KIND/NAME` hold the records, `head` the
revision and the highest incarnation, `change` the newest commit: its watch is the sequence of all commits.
Promise: a commit happens whole, at the revision its writer had seen, or raises `CatalogConflict`; by then the mirror
here is caught up, so that a caller that checked something checks again. The mirror passes through every revision in
order, unless it was cut off for longer than the store keeps events: then it takes over the differences at once. While
the store is down the mirror stays as it was.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from google.protobuf.message import DecodeError

from syncpoint.base.runtime.tasks import Tasks
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.commit_size import check_commit
from syncpoint.catalog.metadata.contract import (
    Delete,
    Event,
    Indeterminate,
    Operation,
    Put,
    Resync,
    StoreError,
    StoreUnavailable,
    TxnResult,
    unchanged,
)
from syncpoint.catalog.metadata.layout import CHANGE, HEAD, INCARNATION_COUNTER, RECORDS
from syncpoint.catalog.metadata.records import (
    CREATING,
    CatalogChange,
    ChangeOp,
    Record,
    Setting,
    Snapshot,
    Subscription,
    Topic,
    decode_commit,
    decode_record,
    encode_changes,
    encode_record,
)
from syncpoint.catalog.metadata.store_client import DEADLINE_S, RETRY_S, SharedStore, SharedWatch, read_all

BLOCK = 256  # incarnations drawn at once
_LOW = BLOCK // 2

log = logging.getLogger(__name__)


class CatalogConflict(Exception):
    """Somebody else changed the catalog first; nothing was applied. The mirror has caught up: check again."""


class SharedCatalog:
    """`catalog`: the mirror, always the same object. `on_change`: called with each change after it was applied."""

    def __init__(self, store: SharedStore) -> None:
        self._store = store
        self.catalog = Catalog()
        self.on_change: list[Callable[[CatalogChange], None]] = []
        self._head = 0  # the store's revision of `head` as far as it is known to stand for the mirror's
        self._free: list[int] = []
        self._writer, self._commits, self._last_of_mine = "", 0, ""
        self._loads = 0
        self._committing = asyncio.Lock()
        self._moved = asyncio.Event()
        self._watch: SharedWatch | None = None
        self._tasks = Tasks()
        self._drawing = False

    async def start(self) -> None:
        """Return when the whole catalog has been read. Raises the store's errors."""
        await self._draw()
        self._writer = str(self._free.pop())
        await self._load()
        self._tasks.start(self._follow())

    async def close(self) -> None:
        """No more changes."""
        await self._tasks.stop()
        if self._watch is not None:
            await self._watch.close()

    def next_incarnation(self) -> int:
        """A number that no record has or will ever have had, in the whole cluster. Raises `StoreUnavailable` when the
        store could not be reached until none was left."""
        if len(self._free) <= _LOW and not self._drawing:
            self._drawing = True
            self._tasks.start(self._draw_more())
        if not self._free:
            raise StoreUnavailable("no new ids can be drawn from the metadata store")
        return self._free.pop()

    async def at(self, revision: int) -> None:
        """Return once the mirror is at `revision` or above it."""
        while self.catalog.revision < revision:
            await self._moved.wait()

    async def commit(self, changes: Sequence[CatalogChange], *, deadline_s: float = DEADLINE_S) -> list[CatalogChange]:
        """Apply changes that were checked against the mirror as it is at the moment of the call.

        Returns them with their revisions; the mirror has them by then. A subscription that is still being created gets
        the revision of its change as `created_revision`. Raises `CatalogConflict`, the store's errors, and
        `InvalidArgument` for more than a transaction holds.
        """
        check_commit(changes)
        seen = self.catalog.revision
        try:
            await asyncio.wait_for(self._committing.acquire(), deadline_s)
        except TimeoutError:
            raise StoreUnavailable("earlier catalog changes are taking too long") from None
        try:
            if self.catalog.revision != seen:
                raise CatalogConflict("the catalog has changed")
            return await self._commit(changes, asyncio.get_running_loop().time() + deadline_s)
        finally:
            self._committing.release()

    # -- writing -----------------------------------------------------------------------------------------------------

    async def _commit(self, changes: Sequence[CatalogChange], deadline: float) -> list[CatalogChange]:
        seen = self.catalog.revision
        assigned = [_stamped(change) for change in self.catalog.assign(changes)]
        if not assigned:
            return []
        self._commits += 1
        mine = f"{self._writer}.{self._commits}"
        highest = max(self.catalog.incarnation, *(_incarnation(change.record) for change in assigned), 0)
        # The last write of a record counts, so that a transaction writes no key twice.
        operations: dict[str, Operation] = {operation.key: operation for operation in map(_operation, assigned)}
        then = [
            *operations.values(),
            Put(HEAD, b"%d %d" % (assigned[-1].revision, highest)),
            Put(CHANGE, encode_changes(assigned, mine)),
        ]
        while self.catalog.revision == seen:
            before = self._head
            try:
                result = await self._store.txn([unchanged(HEAD, before)], then, deadline_s=_rest(deadline))
            except Indeterminate as error:
                if not await self._happened(before, mine):
                    raise StoreUnavailable(f"the change was not applied: {error}") from error
                result = TxnResult(True, 0)
            if result.ok:
                self._head = max(self._head, result.revision)
                self._apply(assigned)
                return assigned
            # Either the catalog has changed, or a writer that had to know its outcome has only written `head` again.
            await self._catch_up(_rest(deadline))
        raise CatalogConflict("another process changed the catalog first")

    async def _happened(self, before: int, mine: str) -> bool:
        """Whether a commit on top of `before` was applied. Raises `Indeterminate` when that cannot be found out."""
        loads = self._loads
        try:
            head = await self._store.get(HEAD)
            now = 0 if head is None else head.revision
            if now == before:
                # It may still be under way. With a new revision of `head`, of the same value, it fails when it arrives.
                value = b"0 0" if head is None else head.value
                if (await self._store.txn([unchanged(HEAD, before)], [Put(HEAD, value)])).ok:
                    return False
            await self._catch_up(DEADLINE_S)
        except StoreUnavailable as error:
            raise Indeterminate(f"it is unknown whether the catalog change was applied: {error}") from error
        if self._last_of_mine == mine:
            return True
        if self._loads != loads:
            raise Indeterminate("it is unknown whether the catalog change was applied: its event was compacted")
        return False

    async def _catch_up(self, deadline_s: float) -> None:
        """Wait until the mirror is where the store is now."""
        head = await self._store.get(HEAD, deadline_s=deadline_s)
        if head is None:
            return
        revision, _ = _parse_head(head.value)
        try:
            await asyncio.wait_for(self.at(revision), deadline_s)
        except TimeoutError:
            raise StoreUnavailable("catalog changes are not arriving from the metadata store") from None
        if self.catalog.revision == revision:
            self._head = max(self._head, head.revision)

    # -- following ---------------------------------------------------------------------------------------------------

    async def _load(self) -> None:
        """Read everything, and begin to watch. Pages are read at different revisions: what changed in the meantime, the
        watch has reported by the time the last page is there."""
        found, begin = await read_all(self._store, HEAD)
        if self._watch is not None:
            await self._watch.close()
        self._watch = self._store.watch(CHANGE, from_revision=begin)
        listed, _ = await read_all(self._store, RECORDS)
        records = {item.key: decode_record(item.value) for item in listed}
        head = await self._store.get(HEAD)
        written, (revision, incarnation) = (0, (0, 0)) if head is None else (head.revision, _parse_head(head.value))
        reached = _parse_head(found[0].value)[0] if found else 0
        while reached < revision:
            try:
                events = await asyncio.wait_for(self._watch.next(), DEADLINE_S)
            except TimeoutError:
                raise StoreUnavailable("catalog changes are not arriving from the metadata store") from None
            if isinstance(events, Resync):
                raise StoreUnavailable("the catalog changes faster than it can be read")
            for event in events:
                for change in decode_commit(event.value or b"")[0]:
                    if change.op is ChangeOp.PUT:
                        records[record_key(change.record)] = change.record
                    else:
                        records.pop(record_key(change.record), None)
                    reached = change.revision
                written = max(written, event.revision)
        self._loads += 1
        self._head = written
        if max(reached, revision) > self.catalog.revision:
            self._notify(self.catalog.become(records.values(), max(reached, revision), incarnation))

    async def _follow(self) -> None:
        whole = True
        while True:
            try:
                if not whole:
                    await self._load()
                    whole = True
                assert self._watch is not None
                events = await self._watch.next()
                whole = not isinstance(events, Resync) and all(self._take(event) for event in events)
            except StoreError as error:
                log.info("the catalog cannot be read yet: %s", error)
                whole = False
                await asyncio.sleep(RETRY_S)
            except (ValueError, DecodeError):
                log.exception("the catalog cannot be understood; the copy here stays as it was")
                whole = False
                await asyncio.sleep(10 * RETRY_S)

    def _take(self, event: Event) -> bool:
        """Take one commit over; False when one before it is missing."""
        if event.value is None:
            return False
        changes, writer = decode_commit(event.value)
        if changes and changes[0].revision > self.catalog.revision + 1:
            return False
        if writer.partition(".")[0] == self._writer:
            self._last_of_mine = writer
        self._apply(changes)
        self._head = max(self._head, event.revision)
        return True

    def _apply(self, changes: Sequence[CatalogChange]) -> None:
        self._notify([change for change in changes if self.catalog.apply(change)])

    def _notify(self, changes: Sequence[CatalogChange]) -> None:
        for change in changes:
            for listener in list(self.on_change):
                try:
                    listener(change)
                except Exception:  # the mirror must not stop because one of many who look at it failed
                    log.exception("a listener failed at revision %d of the catalog", change.revision)
        if changes:
            moved, self._moved = self._moved, asyncio.Event()
            moved.set()

    # -- incarnations ------------------------------------------------------------------------------------------------

    async def _draw(self) -> None:
        highest = await self._store.counter(INCARNATION_COUNTER, by=BLOCK)
        self._free[:0] = range(highest, highest - BLOCK, -1)

    async def _draw_more(self) -> None:
        while len(self._free) <= _LOW:
            try:
                await self._draw()
            except StoreError as error:
                log.info("no incarnations can be drawn yet: %s", error)
                await asyncio.sleep(RETRY_S)
        self._drawing = False


def _rest(deadline: float) -> float:
    rest = deadline - asyncio.get_running_loop().time()
    if rest <= 0:
        raise StoreUnavailable("the catalog could not be changed in time")
    return rest


def _parse_head(value: bytes) -> tuple[int, int]:
    revision, incarnation = value.split()
    return int(revision), int(incarnation)


def _incarnation(record: Record) -> int:
    return 0 if isinstance(record, Setting) else record.incarnation


def _stamped(change: CatalogChange) -> CatalogChange:
    record = change.record
    if isinstance(record, Subscription) and record.state == CREATING and not record.created_revision:
        return replace(change, record=replace(record, created_revision=change.revision))
    return change


def _operation(change: CatalogChange) -> Operation:
    key = record_key(change.record)
    return Put(key, encode_record(change.record)) if change.op is ChangeOp.PUT else Delete(key)


_KINDS = {Topic: "topics", Subscription: "subscriptions", Snapshot: "snapshots", Setting: "settings"}


def record_key(record: Record) -> str:
    """Where a record stands in the metadata."""
    return RECORDS.key(_KINDS[type(record)], record.name)
