"""The control plane of one node: the catalog's only writer.

A change is checked and applied without waiting in between, so two racing creates can not both win; the caller's
answer waits until the change is persisted in the log. The copy in SQLite follows after that: it is for looking at and
for identities, the log is the truth.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from syncpoint.metadata.catalog import Catalog
from syncpoint.metadata.mirror import CatalogMirror
from syncpoint.metadata.records import Change, Snapshot, Start, Subscription, encode_changes
from syncpoint.model.errors import Unavailable
from syncpoint.publish import records, seek
from syncpoint.publish.backlog import oldest
from syncpoint.publish.forwarder import PublishForwarder
from syncpoint.runtime.clock import Clock
from syncpoint.runtime.random import Random
from syncpoint.storage.record import Kind


class ControlPlane:
    """What the admin servicers need of the node."""

    def __init__(self, publish: PublishForwarder, mirror: CatalogMirror, clock: Clock, random: Random) -> None:
        self.publish, self.mirror, self.clock, self.random = publish, mirror, clock, random
        self.catalog: Catalog = publish.catalog

    def next_incarnation(self) -> int:
        return self.catalog.next_incarnation()

    async def refresh(self) -> None:
        """Nobody else changes this catalog."""

    async def create_subscription(self, record: Subscription) -> None:
        """Create a subscription that begins here and now."""
        start = tuple(Start(*pair) for pair in self.publish.sync_point(record.topic_incarnation))
        await self.commit([Change.put(replace(record, start=start))])

    async def create_snapshot(self, record: Snapshot) -> None:
        """Create a snapshot whose state was taken in this very turn."""
        await self.commit([Change.put(record)])

    async def commit(self, changes: Sequence[Change]) -> None:
        """Apply the changes now, return when they are persisted. Raises `Unavailable` when that is unknown."""
        assigned = self.catalog.assign(changes)
        persisted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settled(error: Exception | None) -> None:
            if error is None:
                self.mirror.note(assigned)
            if persisted.done():
                return  # the caller gave up waiting
            if error is None:
                persisted.set_result(None)
            else:
                persisted.set_exception(Unavailable(f"the change may or may not be stored: {error}"))

        self.publish.append_fact(Kind.CATALOG, encode_changes(assigned), settled)
        try:
            for change in assigned:
                self.catalog.apply(change)
                self.publish.changed(change)
        except Exception as error:  # it is on its way to the log, and not all of it is followed
            self.publish.divided(error)
            raise
        await persisted

    async def snapshot(self, record: Subscription) -> tuple[bytes, float]:
        """What a subscription has acknowledged, as of the return, and the age of its oldest unacknowledged message."""
        oldest = await self.oldest_unacked(record)
        state = seek.take_snapshot(self.publish, record)
        return records.encode_snapshot(state), oldest[0] if oldest is not None else 0.0

    async def oldest_unacked(self, record: Subscription) -> tuple[float, float] | None:
        """Age in seconds of the oldest unacknowledged message, and mean bytes of the messages stored with it."""
        return await oldest(self.publish, record)

    async def seek(self, record: Subscription, *, time_ns: int | None = None, snapshot: int | None = None) -> None:
        """Move a subscription to a time or to a snapshot; returns when that is persisted."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settled(error: Exception | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(Unavailable(f"the seek may or may not be stored: {error}"))

        if snapshot is not None:
            seek.seek_to_snapshot(self.publish, record, snapshot, settled)
        else:
            seek.seek_to_time(self.publish, record, time_ns or 0, settled)
        await done
