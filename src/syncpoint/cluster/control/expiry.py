"""Deleting what has expired: old snapshots, subscriptions nobody uses, creations nobody finished, lanes of rules that
hold nothing any more.

Place: on one node, and in any number of processes of a cluster. Changes are made by the control plane, so two processes
that see the same at once do it once. Who knows when subscriptions were last in use is `LastUses`: `usage_reports` of a
cluster, `node.uses` of one node.
Promise: what is too old is judged by a clock that several witnesses agree on, or that one wrong reading does not move
(`runtime.trusted`), and a subscription as used until surely nobody can have used it for as long as its policy allows.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from syncpoint.base.model.errors import Conflict, SyncpointError, Unavailable
from syncpoint.base.runtime.periodic import Periodic, about
from syncpoint.base.runtime.trusted import TrustedClock
from syncpoint.catalog.metadata.commit_size import in_parts
from syncpoint.catalog.metadata.contract import StoreError
from syncpoint.catalog.metadata.entity_options import stopped_lanes
from syncpoint.catalog.metadata.records import COPYING, CREATING, CatalogChange, Snapshot, Subscription
from syncpoint.cluster.control.plane import ControlPlane

EXPIRE_S = 60.0
UNFINISHED_S = 3_600
BATCH = 20
STEP = 1000
"""Records that are checked before others have their turn."""
_NS = 1_000_000_000

log = logging.getLogger(__name__)


class LastUses(Protocol):
    """Who knows when subscriptions were last in use. Both ends of a look raise errors of their store or log."""

    async def begin(self) -> None:
        """Somebody is about to ask for all of them."""
        ...

    def idle_s(self, record: Subscription) -> float:
        """For how long nobody has used it, at least."""
        ...

    async def end(self) -> None:
        """What has expired is deleted; what is known of subscriptions that are gone need not be kept."""
        ...


class Expiry(Periodic):
    """Looks about once a minute. `trusted`: the clock to delete by."""

    def __init__(self, control: ControlPlane, uses: LastUses, trusted: TrustedClock) -> None:
        self._control, self._uses, self._trusted = control, uses, trusted
        pauses, expected = about(EXPIRE_S, control.random), (SyncpointError, StoreError)
        super().__init__(self.expire, pauses, expected, "what has expired is not deleted yet")

    async def expire(self) -> int:
        """Delete what has expired; returns how many records. Raises `SyncpointError` and the store's errors."""
        control = self._control
        await self._uses.begin()
        catalog, now_ns = control.catalog, self._trusted.sure_ns()
        over, records = list[Snapshot | Subscription](), list[Snapshot | Subscription](catalog.snapshots())
        records += catalog.subscriptions()
        for number, one in enumerate(records, 1):
            if number % STEP == 0:
                await asyncio.sleep(0)
            if self._is_over(one, now_ns):
                over.append(one)
        # Others had their turn in the meantime; from here to the commit nobody has.
        gone = [CatalogChange.delete(one) for one in over if self._is_known(one) and self._is_over(one, now_ns)]
        for part in in_parts(gone):
            await control.commit(part)
        if gone:
            log.info("%d expired snapshots and subscriptions are deleted", len(gone))
        await self._uses.end()
        await self._forget_lanes()
        return len(gone)

    async def _forget_lanes(self) -> None:
        """Forget empty lanes of some subscriptions, chosen anew on each run."""
        control = self._control
        ruled = (one for one in control.catalog.subscriptions() if one.options.lanes)
        having = [one.incarnation for one in ruled if stopped_lanes(one.options)]
        first = control.random.randrange(0, len(having)) if len(having) > BATCH else 0
        for number in (having[first:] + having[:first])[:BATCH]:
            try:
                await control.forget_lanes(number)
            except (Conflict, Unavailable) as error:
                log.info("stopped lanes of subscription %d are not removed yet: %s", number, error)

    def _is_over(self, record: Snapshot | Subscription, now_ns: int) -> bool:
        if isinstance(record, Subscription):
            return self._is_unused(record, now_ns)
        if record.status == COPYING and self._control.catalog.subscription_by_incarnation(record.subscription) is None:
            return True  # nobody can fill it in any more
        return record.expire_ns <= now_ns or (record.status == CREATING and _unfinished(record.created_ns, now_ns))

    def _is_known(self, record: Snapshot | Subscription) -> bool:
        catalog, number = self._control.catalog, record.incarnation
        if isinstance(record, Subscription):
            return catalog.subscription_by_incarnation(number) is record
        return catalog.snapshot_by_incarnation(number) is record

    def _is_unused(self, record: Subscription, now_ns: int) -> bool:
        if record.state == CREATING:
            return _unfinished(record.created_ns, now_ns)
        return record.expiration_s is not None and self._uses.idle_s(record) > record.expiration_s


def _unfinished(created_ns: int, now_ns: int) -> bool:
    return now_ns - created_ns > UNFINISHED_S * _NS
