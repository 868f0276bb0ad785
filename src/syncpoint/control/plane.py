"""The control plane of a cluster: what `node.control.ControlPlane` is to one node, over shared metadata.

Place: under the admin servicers in every proxy; any number of them work at once. A change is one compare-and-set on the
catalog's head; who loses hears `Conflict`, with the copy caught up, and checks its request again.
Promise: a subscription is active only after every chain of its topic has persisted where it starts; a seek, a snapshot
and a change of retention return only after every chain acts by them. What could not be confirmed in time is
UNAVAILABLE, and asking again carries on. While the metadata is down nothing changes; what is known can still be read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace

from syncpoint.control.barrier import Backlog, Barrier
from syncpoint.control.registration import head_revision
from syncpoint.metadata.catalog import Catalog
from syncpoint.metadata.contract import StoreError, StoreUnavailable
from syncpoint.metadata.records import ACTIVE, CREATING, Change, Op, Record, SeekTarget, Snapshot, Subscription, Topic
from syncpoint.metadata.shared import SharedStore, answered
from syncpoint.metadata.shared_catalog import CatalogConflict, SharedCatalog
from syncpoint.model.errors import Aborted, AlreadyExists, Conflict, NotFound, SyncpointError, Unavailable
from syncpoint.runtime.clock import Clock
from syncpoint.runtime.random import Random

REFRESH_S = 2.0
_CONFLICTS_MAX = 100
_TIME_NS_MAX = (1 << 63) - 1

log = logging.getLogger(__name__)


class SharedControl:
    """What the admin servicers need of a cluster."""

    def __init__(
        self, store: SharedStore, shared: SharedCatalog, barrier: Barrier, clock: Clock, random: Random
    ) -> None:
        self.store, self.shared, self.barrier, self.clock, self.random = store, shared, barrier, clock, random
        self.catalog: Catalog = shared.catalog

    def next_incarnation(self) -> int:
        """A number for a new record. Raises `Unavailable` when the metadata has been away for long."""
        try:
            return self.shared.next_incarnation()
        except StoreUnavailable as error:
            raise Unavailable(f"The metadata does not answer: {error}") from error

    async def refresh(self) -> None:
        """Catch up with every change that any process has been answered for. What is known stands in when the metadata
        does not answer.
        """
        try:
            async with asyncio.timeout(REFRESH_S):
                await self.shared.at(await head_revision(self.store))
        except (StoreError, TimeoutError) as error:
            log.info("the catalog may be old: %s", error)

    async def commit(self, changes: Sequence[Change]) -> None:
        """Make the changes, together. Raises `Conflict` when others were first, and `Unavailable`."""
        before = [self._known(change.record) for change in changes]
        for change, known in zip(await self._commit(changes), before, strict=True):
            await self._settle(change, known)

    async def create_subscription(self, record: Subscription) -> None:
        """Create a subscription, or carry on with the one of this incarnation whose creation was not finished."""
        revision = record.created_revision
        if self.catalog.subscription_by_incarnation(record.incarnation) is None:
            revision = (await self._commit([Change.put(replace(record, state=CREATING))]))[0].revision
        await self.barrier.confirm(record.topic_incarnation, revision)
        for _ in range(_CONFLICTS_MAX):
            known = self.catalog.subscription_by_incarnation(record.incarnation)
            if known is None:
                raise NotFound(record.name)  # deleted meanwhile
            if known.state != CREATING:
                raise AlreadyExists(record.name)  # the same request, made twice at once: one has won
            try:
                await self._commit([Change.put(replace(known, state=ACTIVE))])
                return
            except Conflict:
                continue
        raise Aborted("Too many changes at once. Try again.")

    async def snapshot(self, record: Subscription) -> tuple[bytes, float]:
        """No state: every chain keeps its own. And the age of the oldest unacknowledged message."""
        oldest = await self.oldest_unacked(record)
        return b"", oldest[0] if oldest is not None else 0.0

    async def create_snapshot(self, record: Snapshot) -> None:
        """Create a snapshot; one of the same name that was never finished gives way."""
        changes = [Change.put(replace(record, status=CREATING))]
        unfinished = self.catalog.snapshot(record.name)
        if unfinished is not None:
            changes.insert(0, Change.delete(unfinished))
        revision = (await self._commit(changes))[-1].revision
        await self.barrier.confirm(record.topic_incarnation, revision)
        for _ in range(_CONFLICTS_MAX):
            known = self.catalog.snapshot_by_incarnation(record.incarnation)
            if known is None:
                raise Aborted(f"Another request has replaced the snapshot (resource={record.name}).")
            try:
                await self._commit([Change.put(replace(known, status=ACTIVE))])
                return
            except Conflict:
                continue
        raise Aborted("Too many changes at once. Try again.")

    async def seek(self, record: Subscription, *, time_ns: int | None = None, snapshot: int | None = None) -> None:
        """Move a subscription to a time or to a snapshot; returns when every chain has. Raises `Conflict`."""
        if time_ns is not None:
            time_ns = max(-_TIME_NS_MAX, min(time_ns, _TIME_NS_MAX))  # as far as a record goes
        target = SeekTarget(time_ns, None) if snapshot is None else SeekTarget(None, snapshot)
        moved = replace(record, generation=record.generation + 1, target=target)
        committed = await self._commit([Change.put(moved)])
        await self.barrier.confirm(record.topic_incarnation, committed[0].revision)

    async def backlog(self, record: Subscription) -> Backlog:
        """What a subscription has not acknowledged."""
        return await self.barrier.backlog(record.incarnation, record.topic_incarnation)

    async def oldest_unacked(self, record: Subscription) -> tuple[float, float] | None:
        """Age in seconds of the oldest unacknowledged message, and mean bytes of the messages stored with it."""
        backlog = await self.backlog(record)
        return (backlog.oldest_age_s, backlog.mean_bytes) if backlog.messages else None

    # -- shared ------------------------------------------------------------------------------------------------------

    async def _commit(self, changes: Sequence[Change]) -> list[Change]:
        try:
            return await answered(self.shared.commit(changes))
        except CatalogConflict as error:
            raise Conflict("Another process has changed the catalog at the same time. Try again.") from error

    def _known(self, record: Record) -> Record | None:
        match record:
            case Topic():
                return self.catalog.topic_by_incarnation(record.incarnation)
            case Subscription():
                return self.catalog.subscription_by_incarnation(record.incarnation)
        return None

    async def _settle(self, change: Change, known: Record | None) -> None:
        """Wait for the chains where the answer promises something about them."""
        revision = change.revision
        match change.op, change.record, known:
            case Op.PUT, Subscription() as record, Subscription():
                if _kept(record) != _kept(known):
                    await self.barrier.confirm(record.topic_incarnation, revision)
            case Op.PUT, Topic() as record, Topic():
                if _stored(record) != _stored(known):
                    await self.barrier.confirm(record.incarnation, revision)
            case Op.DELETE, (Topic() | Subscription()) as record, _:
                topic = record.incarnation if isinstance(record, Topic) else record.topic_incarnation
                try:
                    await self.barrier.confirm(topic, revision)
                except SyncpointError as error:
                    # It is gone from the catalog whatever they say; whoever is late hears of it from there.
                    log.info("%s is deleted, not every chain knows yet: %s", record.name, error)


def _kept(record: Subscription) -> tuple[int, bool, bool]:
    """What decides which messages must be kept for a subscription."""
    return record.retention_s, record.retain_acked, record.detached


def _stored(record: Topic) -> tuple[object, ...]:
    """What decides where, and for how long, a topic's messages are stored."""
    return record.retention_s, record.durability, record.regions, record.enforce_in_transit
