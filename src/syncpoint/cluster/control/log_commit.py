"""Changes of one node's catalog: facts in the log beside the messages, which they must not outrun nor lag behind.

Place: `control.plane.Commit` over one publish forwarder; the catalog's only writer. The copy in SQLite follows once a
change is persisted: it is for looking at, the log is the truth.
Promise: a change is checked and applied without waiting in between, and what follows from it is persisted with it:
where a subscription begins, where it was moved to, what a snapshot holds (`publish.follow`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from syncpoint.base.model.errors import SyncpointError, Unavailable
from syncpoint.base.runtime.tasks import outcome_of
from syncpoint.broker.publish.intake.follow import Follower
from syncpoint.broker.publish.keep.backlog import backlog
from syncpoint.broker.publish.keep.lane_needs import drained_for_good
from syncpoint.catalog.metadata.commit_size import CHANGE_BYTES_MAX, check_commit
from syncpoint.catalog.metadata.mirror import CatalogMirror
from syncpoint.catalog.metadata.records import CatalogChange, ChangeOp, Subscription, encode_changes
from syncpoint.log.storage.record import EntryKind

READ_S = 3.0  # for the oldest message, which stands on the disks


class LogCommit:
    """Commit changes of a single node's catalog to its log."""

    staged = False

    def __init__(
        self, follower: Follower, mirror: CatalogMirror, listeners: Sequence[Callable[[CatalogChange], None]]
    ) -> None:
        """`listeners` are notified of each change after it was applied, the host of the chain first; also those that
        join later.
        """
        self._listeners = listeners
        self._follower, self._publish, self.mirror = follower, follower.forwarder, mirror
        self.catalog = follower.catalog
        self.act_by: Callable[[Subscription], None] = lambda record: None  # called before a change is answered

    def next_incarnation(self) -> int:
        """A number for a new record."""
        return self.catalog.next_incarnation()

    async def refresh(self) -> None:
        """Nobody else changes this catalog."""

    async def commit(self, changes: Sequence[CatalogChange]) -> list[CatalogChange]:
        """Apply the changes in this turn; returns once they are persisted."""
        publish = self._publish
        assigned = [self._stamped(change) for change in self.catalog.assign(changes)]
        for change in assigned:
            if isinstance(change.record, Subscription) and change.op is ChangeOp.PUT:
                self._follower.check(change.record)
        encoded = encode_changes(assigned)
        if len(encoded) > CHANGE_BYTES_MAX:
            check_commit(changes)
        publish.commit.append_fact(EntryKind.CATALOG, encoded)
        try:
            for change in assigned:
                self.catalog.apply(change)
                for listener in list(self._listeners):
                    listener(change)
        except Exception as error:  # it is on its way to the log, and not all of it is followed
            publish.commit.give_up(error)
            raise
        persisted, on_outcome = outcome_of("change")

        def on_persisted(error: Exception | None) -> None:
            if error is None:
                self.mirror.note(assigned)
            on_outcome(error)

        publish.commit.when_acks_persisted(on_persisted)
        await persisted
        return assigned

    def _stamped(self, change: CatalogChange) -> CatalogChange:
        """A new subscription begins after everything that was stored before its revision."""
        record = change.record
        if not isinstance(record, Subscription) or record.created_revision or change.op is ChangeOp.DELETE:
            return change
        if self.catalog.subscription_by_incarnation(record.incarnation) is not None:
            return change
        return replace(change, record=replace(record, created_revision=change.revision))

    async def confirm(self, topic: int, revision: int) -> None:
        """Persisted with the change."""

    async def confirm_leases(self, subscription: int, revision: int) -> None:
        """Let deliveries act by the catalog as it is now."""
        record = self.catalog.subscription_by_incarnation(subscription)
        if record is not None:
            self.act_by(record)

    async def drained(self, record: Subscription) -> Collection[int]:
        """The answer of the one log."""
        return await drained_for_good(self._publish, record.incarnation)

    async def oldest_age_s(self, record: Subscription) -> float:
        """Read off the disks."""
        try:
            async with asyncio.timeout(READ_S):
                return (await backlog(self._publish, record)).oldest_age_s
        except TimeoutError:
            raise Unavailable("The disks do not answer in time. Try again.") from None
        except (SyncpointError, OSError) as error:
            raise Unavailable(f"The oldest message cannot be read: {error}") from error
