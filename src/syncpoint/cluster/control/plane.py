"""The control plane: what the admin servicers need, of one node and of a cluster alike.

Place: between the servicers, which check requests, and `Commit`, which makes changes lasting: `log_commit` in the log
of one node, `head_commit` in the shared metadata of a cluster, where many processes change the catalog at once.
Promise: a subscription is active only after every log that holds something of its topic has persisted where it starts;
a seek, a snapshot and a change of retention return only after every one of them acts by them. What could not be
confirmed is UNAVAILABLE, and asking again, of any process, carries on: a change that finds what it asks for in the
catalog already is confirmed like any other, unless this process knows that it was. Methods that change something look
at the catalog, and change it, before they first suspend.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Protocol

from syncpoint.base.model.errors import Aborted, AlreadyExists, Conflict, NotFound, SyncpointError
from syncpoint.base.runtime.clock import Clock
from syncpoint.base.runtime.random import Random
from syncpoint.catalog.access.policy import orphaned_policies
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.entity_options import stopped_lanes, without_drained
from syncpoint.catalog.metadata.records import (
    ACTIVE,
    COPYING,
    CREATING,
    CatalogChange,
    ChangeOp,
    Feature,
    Record,
    SeekTarget,
    Snapshot,
    Subscription,
    Topic,
)

_CONFLICTS_MAX = 100
_CONFIRMED_MAX = 10_000
_TIME_NS_MAX = (1 << 63) - 1

log = logging.getLogger(__name__)


class Commit(Protocol):
    """How changes of the catalog become lasting. Errors are `SyncpointError`s: `Unavailable` says whether a change may
    have happened, `Conflict` that another process was first and `catalog` has caught up.

    `staged`: what follows from a change is persisted after it, by others. Then a subscription or a snapshot is CREATING
    until `confirm` has returned; otherwise it is persisted together with what follows from it.
    """

    @property
    def catalog(self) -> Catalog: ...
    @property
    def staged(self) -> bool: ...

    def next_incarnation(self) -> int:
        """A number for a new record."""
        ...

    async def refresh(self) -> None:
        """Let the catalog catch up with what other processes have changed. Raises `MetadataSilent`: it may be old."""
        ...

    async def commit(self, changes: Sequence[CatalogChange]) -> list[CatalogChange]:
        """Make changes, together; returns them with their revisions once they are persisted."""
        ...

    async def confirm(self, topic: int, revision: int) -> None:
        """Return once every log with something of the topic has persisted what follows from the catalog there."""
        ...

    async def confirm_leases(self, subscription: int, revision: int) -> None:
        """Return once whatever is lent of a subscription from now on goes where the catalog at this revision has it."""
        ...

    async def drained(self, record: Subscription) -> Collection[int]:
        """Stopped lanes of a subscription of which no log keeps anything, now or under a later owner."""
        ...

    async def oldest_age_s(self, record: Subscription) -> float:
        """Return the age of a subscription's oldest unacknowledged message in seconds, 0 if there is none."""
        ...


class ControlPlane:
    """Create, change and delete catalog resources."""

    def __init__(self, commits: Commit, clock: Clock, random: Random) -> None:
        self.commits, self.clock, self.random = commits, clock, random
        self.catalog: Catalog = commits.catalog
        self._confirmed: dict[int, Topic | Subscription] = {}  # what everything acts by, as far as it is known here

    def next_incarnation(self) -> int:
        """A number for a new record. Raises `Unavailable`."""
        return self.commits.next_incarnation()

    async def refresh(self) -> None:
        """Catch up with every change that any process has been answered for. Raises `MetadataSilent`."""
        await self.commits.refresh()

    async def commit(self, changes: Sequence[CatalogChange]) -> None:
        """Make the changes, together; what is deleted takes its policy along. Raises `Conflict` when others were first,
        and `Unavailable`.
        """
        changes = [*changes, *orphaned_policies(self.catalog, changes)]
        before = [self._known(change.record) for change in changes]
        for change, known in zip(await self.commits.commit(changes), before, strict=True):
            await self._confirm(change, known)

    async def create(self, record: Subscription | Snapshot) -> None:
        """Create a subscription that begins here and now, or a snapshot; or carry on with a subscription of this
        incarnation whose creation was not finished. An unfinished snapshot of the same name gives way.
        """
        if not self.commits.staged:
            await self.commits.commit([*self._giving_way(record), CatalogChange.put(record)])
            return
        await self.commits.confirm(record.topic_incarnation, await self._begin(record))
        for _ in range(_CONFLICTS_MAX):
            known = self._known(record)
            if not isinstance(known, Subscription | Snapshot):
                raise NotFound(record.name)  # deleted, or replaced, in the meantime
            if not is_creating(known):
                raise AlreadyExists(record.name)  # the same request, made twice at once: one has won
            try:
                (committed,) = await self.commits.commit([CatalogChange.put(_in_state(known, ACTIVE))])
                self._note(committed.record)
                return
            except Conflict:
                continue
        raise Aborted("Other callers kept changing the catalog while this request ran. Try again.")

    async def begin_copy(self, record: Snapshot, together: Sequence[CatalogChange]) -> None:
        """Keep from now on what a snapshot may hold that is COPYING; returns when every chain does."""
        changes = [*self._giving_way(record), *together, CatalogChange.put(record)]
        await self.commits.confirm(record.topic_incarnation, (await self.commits.commit(changes))[-1].revision)

    async def seek(
        self,
        record: Subscription,
        *,
        time_ns: int | None = None,
        snapshot: int | None = None,
        together: Sequence[CatalogChange] = (),
    ) -> None:
        """Move a subscription to a time or to a snapshot; returns when that is persisted. `together`: changes that are
        made with it. Raises `Conflict`.
        """
        if time_ns is not None:
            time_ns = bounded_time_ns(time_ns)
        target = SeekTarget(time_ns if snapshot is None else None, snapshot)
        moved = replace(record, generation=record.generation + 1, target=target, changed_ns=self.clock.time_ns())
        committed = (await self.commits.commit([*together, CatalogChange.put(moved)]))[-1]
        await self.commits.confirm(record.topic_incarnation, committed.revision)
        self._note(committed.record)

    async def forget_lanes(self, subscription: int) -> bool:
        """Remove the stopped lanes of a subscription of which nothing is kept any more; whether there were any. Raises
        `Unavailable` if not every log of the topic confirms it in time, and `Conflict`.
        """
        record = self.catalog.subscription_by_incarnation(subscription)
        if record is None or not stopped_lanes(record.options):
            return False
        drained = await self.commits.drained(record)
        known = self.catalog.subscription_by_incarnation(subscription)
        if known is None or known.options.lanes != record.options.lanes:
            return False  # changed in the meantime, so asked about something else
        rest = without_drained(known.options, drained)
        if rest == known.options:
            return False
        await self.commit([CatalogChange.put(replace(known, options=rest))])
        return True

    async def confirm(self, record: Subscription) -> None:
        """Return once everything acts by a subscription as it is in the catalog: before it is answered that there is
        nothing to change, which may be what an earlier try has done. Raises `Unavailable`.
        """
        if self._confirmed.get(record.incarnation) != record:
            await self._confirm_subscription(record, None, self.catalog.revision)

    async def oldest_age_s(self, record: Subscription) -> float:
        """Return the age of a subscription's oldest unacknowledged message in seconds, 0 if there is none.

        Raises `Unavailable` if it cannot be determined in time.
        """
        return await self.commits.oldest_age_s(record)

    # -- effects -----------------------------------------------------------------------------------------------------

    async def _begin(self, record: Subscription | Snapshot) -> int:
        """The revision at which the record came to be."""
        if isinstance(record, Subscription) and self._known(record) is not None:
            return record.created_revision
        changes = [*self._giving_way(record), CatalogChange.put(_in_state(record, CREATING))]
        return (await self.commits.commit(changes))[-1].revision

    def _giving_way(self, record: Subscription | Snapshot) -> list[CatalogChange]:
        """What is deleted for a new record: an unfinished snapshot of its name."""
        unfinished = self.catalog.snapshot(record.name) if isinstance(record, Snapshot) else None
        return [] if unfinished is None else [CatalogChange.delete(unfinished)]

    def _note(self, record: Record) -> None:
        """Note that everything acts by this record."""
        if isinstance(record, Topic | Subscription):
            self._confirmed.pop(record.incarnation, None)
            self._confirmed[record.incarnation] = record
            if len(self._confirmed) > _CONFIRMED_MAX:
                del self._confirmed[next(iter(self._confirmed))]

    def _known(self, record: Record) -> Record | None:
        match record:
            case Topic():
                return self.catalog.topic_by_incarnation(record.incarnation)
            case Subscription():
                return self.catalog.subscription_by_incarnation(record.incarnation)
            case Snapshot():
                return self.catalog.snapshot_by_incarnation(record.incarnation)
        return None

    async def _confirm_subscription(self, record: Subscription, known: Subscription | None, revision: int) -> None:
        """Wait for those who act by a subscription. `known`: what all of them act by already; None: that is unknown."""
        if known is None or _kept(record) != _kept(known):
            await self.commits.confirm(record.topic_incarnation, revision)
        if known is None or _lent(record) != _lent(known):
            await self.commits.confirm_leases(record.incarnation, revision)
        self._note(record)

    async def _confirm(self, change: CatalogChange, known: Record | None) -> None:
        """Wait for those who act by a record where the answer promises something about them."""
        match change.op, change.record, known:
            case ChangeOp.PUT, Subscription() as record, Subscription():
                sure = self._confirmed.get(record.incarnation) == known
                await self._confirm_subscription(record, known if sure else None, change.revision)
            case ChangeOp.PUT, Topic() as record, Topic():
                if _stored(record) != _stored(known) or self._confirmed.get(record.incarnation) != known:
                    await self.commits.confirm(record.incarnation, change.revision)
                self._note(record)
            case ChangeOp.PUT, Topic() as record, None:
                self._note(record)  # no log has anything of it
            case ChangeOp.DELETE, (Topic() | Subscription()) as record, _:
                topic = record.incarnation if isinstance(record, Topic) else record.topic_incarnation
                try:
                    await self.commits.confirm(topic, change.revision)
                except SyncpointError as error:
                    # It is gone from the catalog whatever they say; a log that is late learns of it from there.
                    log.info("%s is deleted, not every chain knows yet: %s", record.name, error)


def bounded_time_ns(time_ns: int) -> int:
    """A time as far as a record goes."""
    return max(-_TIME_NS_MAX, min(time_ns, _TIME_NS_MAX))


def is_creating(record: Subscription | Snapshot) -> bool:
    """Whether the creation of a record, or the copying of a snapshot, is not finished."""
    return (record.state if isinstance(record, Subscription) else record.status) in (CREATING, COPYING)


def _in_state(record: Subscription | Snapshot, state: str) -> Subscription | Snapshot:
    return replace(record, state=state) if isinstance(record, Subscription) else replace(record, status=state)


def _kept(record: Subscription) -> tuple[object, ...]:
    """What decides which messages must be kept for a subscription, in which lanes, and under which grants."""
    options = record.options._replace(receive_suspended=False, keys_elsewhere=b"")
    kept = record.retention_s, record.retain_acked, record.detached, options
    return *kept, record.exactly_once, record.dead_letter  # what runs out is kept for that


def _lent(record: Subscription) -> tuple[object, ...]:
    """What decides whether messages are lent at all, and where those go that the service consumes itself."""
    consumed = record.features & (Feature.PUSH | Feature.STORAGE | Feature.FORWARD)
    return record.options.receive_suspended, record.options.keys_elsewhere, record.destination if consumed else b""


def _stored(record: Topic) -> tuple[object, ...]:
    """What decides which messages of a topic are stored, where, and for how long."""
    return (
        record.retention_s,
        record.durability,
        record.regions,
        record.enforce_in_transit,
        record.stamp,
        record.options,
    )
