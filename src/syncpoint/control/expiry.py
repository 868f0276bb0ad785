"""Deleting what has expired in a cluster: old snapshots, subscriptions nobody uses, creations nobody finished.

Place: in any number of processes of a cluster; on one node `node.upkeep` does it. Changes are made by the control
plane, so two processes that see the same at once do it once.
Promise: what is too old is judged by a clock that several witnesses agree on (`runtime.trusted`). A subscription
counts as used when it was created and whenever a forwarder reported it; a report may be due for an hour, or have been
lost with the process that owed it, so the time granted is that much longer, and nothing is deleted until the metadata
could be reached for as long: whoever was cut off from them, too, has reported by then. All of that is stored, so it
does not begin anew when processes do.
"""

from __future__ import annotations

import asyncio
import logging

from syncpoint.control.plane import ControlPlane
from syncpoint.control.usage_reports import USED_S, write_all
from syncpoint.metadata.contract import Delete, StoreError
from syncpoint.metadata.layout import USED
from syncpoint.metadata.records import CREATING, Change, Subscription
from syncpoint.metadata.shared import SharedStore, read_all
from syncpoint.model.errors import SyncpointError
from syncpoint.runtime.tasks import Tasks
from syncpoint.runtime.trusted import TrustedClock

EXPIRE_S = 60.0
LAG_S = 2 * USED_S  # so old may be what is known of the last use
UNFINISHED_S = 3_600
BATCH = 20
_NS = 1_000_000_000

log = logging.getLogger(__name__)


class Expiry:
    """Looks once a minute. `trusted`: the clock of this process that others are witnesses of."""

    def __init__(self, control: ControlPlane, store: SharedStore, trusted: TrustedClock | None = None) -> None:
        self._control, self._store = control, store
        self._trusted = trusted or TrustedClock(control.clock)
        self._steady_since = self._trusted.monotonic()  # since when the metadata have answered
        self._tasks = Tasks()

    def start(self) -> None:
        """Begin."""
        self._tasks.start(self._run())

    async def stop(self) -> None:
        """Delete no more."""
        await self._tasks.stop()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(EXPIRE_S * (0.5 + self._control.random.random()))  # not all processes at once
            try:
                await self.expire()
            except (SyncpointError, StoreError) as error:
                self._steady_since = self._trusted.monotonic()
                log.info("what has expired is not deleted yet: %s", error)

    async def expire(self) -> int:
        """Delete what has expired; returns how many records. Raises `SyncpointError` and the store's errors."""
        control = self._control
        catalog, now_ns = control.catalog, self._trusted.sure_ns()
        items, _ = await read_all(self._store, USED)
        used = {USED.number(item.key): int(item.value) for item in items}
        gone = [
            Change.delete(one)
            for one in catalog.snapshots()
            if one.expire_ns <= now_ns or (one.status == CREATING and _older(one.created_ns, now_ns, UNFINISHED_S))
        ]
        subscriptions = catalog.subscriptions()
        gone += [Change.delete(one) for one in subscriptions if self._unused(one, used.get(one.incarnation, 0), now_ns)]
        for begin in range(0, len(gone), BATCH):
            await control.commit(gone[begin : begin + BATCH])
        if gone:
            log.info("%d expired snapshots and subscriptions are deleted", len(gone))
        left = [number for number in used if catalog.subscription_by_incarnation(number) is None]
        await write_all(self._store, [Delete(USED.key(number)) for number in left])
        return len(gone)

    def _unused(self, record: Subscription, used_ns: int, now_ns: int) -> bool:
        if record.state == CREATING:
            return _older(record.created_ns, now_ns, UNFINISHED_S)
        if record.expiration_s is None or self._trusted.monotonic() < self._steady_since + LAG_S:
            return False
        return _older(max(record.created_ns, used_ns), now_ns, record.expiration_s + LAG_S)


def _older(then_ns: int, now_ns: int, seconds: float) -> bool:
    return now_ns - then_ns > seconds * _NS
