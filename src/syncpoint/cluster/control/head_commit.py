"""Changes of a cluster's catalog: a compare-and-set of the catalog's head, then a question to every chain.

Place: `control.plane.Commit` over shared metadata, in every process that changes the catalog.
Promise: while the metadata is down nothing changes; what is known can still be read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from syncpoint.base.model.errors import Conflict, MetadataSilent, Unavailable
from syncpoint.catalog.metadata.catalog_replica import CatalogConflict, SharedCatalog
from syncpoint.catalog.metadata.contract import StoreError, StoreUnavailable
from syncpoint.catalog.metadata.records import CatalogChange, Subscription
from syncpoint.catalog.metadata.store_client import SharedStore, answered
from syncpoint.cluster.control.barrier import Barrier
from syncpoint.cluster.control.registration import head_revision

REFRESH_S = 2.0


class HeadCommit:
    """Commit changes of a cluster's catalog to its metadata store."""

    staged = True

    def __init__(self, store: SharedStore, shared: SharedCatalog, barrier: Barrier) -> None:
        self._store, self._shared, self._barrier = store, shared, barrier
        self.catalog = shared.catalog

    def next_incarnation(self) -> int:
        """A number for a new record. Raises `Unavailable` when the metadata has been away for long."""
        try:
            return self._shared.next_incarnation()
        except StoreUnavailable as error:
            raise Unavailable(f"The metadata store does not answer: {error}") from error

    async def refresh(self) -> None:
        """Read the head anew, and follow up to there."""
        try:
            async with asyncio.timeout(REFRESH_S):
                await self._shared.at(await head_revision(self._store))
        except (StoreError, TimeoutError) as error:
            raise MetadataSilent(
                f"The metadata store does not answer and the local copy may be stale: {error}"
            ) from error

    async def commit(self, changes: Sequence[CatalogChange]) -> list[CatalogChange]:
        try:
            return await answered(self._shared.commit(changes))
        except CatalogConflict as error:
            raise Conflict("Another process has changed the catalog at the same time. Try again.") from error

    async def confirm(self, topic: int, revision: int) -> None:
        """Ask every chain of the topic."""
        await self._barrier.confirm(topic, revision)

    async def confirm_leases(self, subscription: int, revision: int) -> None:
        """Ask every subscribe forwarder."""
        await self._barrier.confirm_leases(subscription, revision)

    async def drained(self, record: Subscription) -> Collection[int]:
        """The answers of every chain of the topic, none missing, for the catalog as it is now."""
        return await self._barrier.drained(record, self.catalog.revision)

    async def oldest_age_s(self, record: Subscription) -> float:
        """Return the oldest age over all chains of the topic, in seconds."""
        return await self._barrier.oldest_age_s(record.incarnation, record.topic_incarnation)
