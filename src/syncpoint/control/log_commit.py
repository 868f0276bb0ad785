"""Changes of one node's catalog: facts in the log beside the messages, which they must not outrun nor lag behind.

Place: `control.plane.Commit` over one publish forwarder; the catalog's only writer. The copy in SQLite follows once a
change is persisted: it is for looking at, the log is the truth.
Promise: a change is checked and applied without waiting in between, and what follows from it is persisted with it:
where a subscription begins and what a snapshot holds stand in their records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from syncpoint.metadata.mirror import CatalogMirror
from syncpoint.metadata.records import Change, Op, SeekTarget, Snapshot, Start, Subscription, encode_changes
from syncpoint.model.errors import NotFound, SyncpointError, Unavailable
from syncpoint.publish import records, seek
from syncpoint.publish.append import Settled
from syncpoint.publish.backlog import Backlog, backlog
from syncpoint.publish.forwarder import PublishForwarder
from syncpoint.storage.record import Kind

READ_S = 3.0  # for the oldest message, which stands on the disks


class LogCommit:
    """See the module."""

    staged = False

    def __init__(self, publish: PublishForwarder, mirror: CatalogMirror) -> None:
        self._publish, self.mirror = publish, mirror
        self.catalog = publish.catalog

    def next_incarnation(self) -> int:
        """A number for a new record."""
        return self.catalog.next_incarnation()

    async def refresh(self) -> None:
        """Nobody else changes this catalog."""

    async def commit(self, changes: Sequence[Change]) -> list[Change]:
        """See `Commit`: applied in this turn, persisted when it returns."""
        publish = self._publish
        assigned = [self._begun(change) for change in self.catalog.assign(changes)]
        persisted, told = _outcome("change")

        def settled(error: Exception | None) -> None:
            if error is None:
                self.mirror.note(assigned)
            told(error)

        publish.append_fact(Kind.CATALOG, encode_changes(assigned), settled)
        try:
            for change in assigned:
                self.catalog.apply(change)
                publish.changed(change)
        except Exception as error:  # it is on its way to the log, and not all of it is followed
            persisted.cancel()
            publish.divided(error)
            raise
        await persisted
        return assigned

    def _begun(self, change: Change) -> Change:
        """A record that begins now is written with what it begins from."""
        catalog, publish, record = self.catalog, self._publish, change.record
        if change.op is Op.DELETE:
            return change
        if isinstance(record, Subscription) and catalog.subscription_by_incarnation(record.incarnation) is None:
            start = tuple(Start(*pair) for pair in publish.sync_point(record.topic_incarnation))
            return replace(change, record=replace(record, start=start))
        if isinstance(record, Snapshot) and catalog.snapshot_by_incarnation(record.incarnation) is None:
            subscription = catalog.subscription_by_incarnation(record.subscription)
            if subscription is None:
                raise NotFound(record.name)
            state = records.encode_snapshot(seek.take_snapshot(publish, subscription))
            return replace(change, record=replace(record, state=state))
        return change

    async def confirm(self, topic: int, revision: int) -> None:
        """Persisted with the change."""

    async def seek(self, record: Subscription, target: SeekTarget) -> None:
        """A fact of the subscription's ledger; the record stays as it is."""
        persisted, told = _outcome("seek")
        if target.snapshot is not None:
            seek.seek_to_snapshot(self._publish, record, target.snapshot, told)
        else:
            seek.seek_to_time(self._publish, record, target.time_ns or 0, told)
        await persisted

    async def backlog(self, record: Subscription) -> Backlog:
        """Counted here; age and size are read off the disks."""
        try:
            async with asyncio.timeout(READ_S):
                return await backlog(self._publish, record)
        except TimeoutError:
            raise Unavailable("The disks do not answer in time. Try again.") from None
        except (SyncpointError, OSError) as error:
            raise Unavailable(f"The oldest message cannot be read: {error}") from error


def _outcome(what: str) -> tuple[asyncio.Future[None], Settled]:
    """A future, and what tells it whether `what` is persisted; its caller may have given up waiting by then."""
    persisted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def told(error: Exception | None) -> None:
        if persisted.done():
            return
        if error is None:
            persisted.set_result(None)
        else:
            persisted.set_exception(Unavailable(f"The {what} may or may not be stored: {error}"))

    return persisted, told
