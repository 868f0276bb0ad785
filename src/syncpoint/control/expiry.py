"""Deleting what has expired in a cluster: old snapshots, subscriptions nobody uses, creations nobody finished.

Place: in any number of processes of a cluster; on one node `node.upkeep` does it. Changes are made by the control
plane, so two processes that see the same at once do it once.
Promise: a subscription counts as used when it was created, whenever a forwarder reported it, and, since an older report
may have been lost with the process that owed it, when this process began to look.
"""

from __future__ import annotations

import asyncio
import logging

from syncpoint.control.plane import SharedControl
from syncpoint.control.reports import USED, write_all
from syncpoint.metadata.contract import Delete, Indeterminate
from syncpoint.metadata.contract import Unavailable as StoreUnavailable
from syncpoint.metadata.records import CREATING, Change, Subscription
from syncpoint.metadata.shared import read_all
from syncpoint.model.errors import SyncpointError

EXPIRE_S = 60.0
UNFINISHED_S = 3_600
BATCH = 20
_NS = 1_000_000_000

log = logging.getLogger(__name__)


class Expiry:
    """Looks once a minute."""

    def __init__(self, control: SharedControl) -> None:
        self._control = control
        self._began_ns = control.clock.time_ns()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Delete no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(EXPIRE_S * (0.5 + self._control.random.random()))  # not all processes at once
            try:
                await self.expire()
            except (SyncpointError, StoreUnavailable, Indeterminate) as error:
                log.info("what has expired is not deleted yet: %s", error)

    async def expire(self) -> int:
        """Delete what has expired; returns how many records. Raises `SyncpointError` and the store's errors."""
        control = self._control
        catalog, now_ns = control.catalog, control.clock.time_ns()
        items, _ = await read_all(control.store, USED)
        used = {int(item.key[len(USED) :]): int(item.value) for item in items}
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
        await write_all(control.store, [Delete(f"{USED}{number}") for number in left])
        return len(gone)

    def _unused(self, record: Subscription, used_ns: int, now_ns: int) -> bool:
        if record.state == CREATING:
            return _older(record.created_ns, now_ns, UNFINISHED_S)
        newest = max(record.created_ns, used_ns, self._began_ns)
        return record.expiration_s is not None and _older(newest, now_ns, record.expiration_s)


def _older(then_ns: int, now_ns: int, seconds: int) -> bool:
    return now_ns - then_ns > seconds * _NS
