"""Where a rollout's state lies: in the metadata of production, with the lease of its controller.

Place: under `controller` and the commands. Any holder of a `SharedStore` of production can read how far a rollout is
(`read_state`): a proxy, too.
Promise: a state is written only by the controller that holds the lease, over the state that it wrote or read itself.
One that was replaced is refused, and does nothing more than the one restart that it may be in.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from syncpoint.base.model.errors import Aborted, FailedPrecondition
from syncpoint.catalog.metadata.contract import Delete, Indeterminate, Put, StoreUnavailable, absent, unchanged
from syncpoint.catalog.metadata.layout import ROLLOUT_ABORT, ROLLOUT_CONTROLLER, ROLLOUT_STATE
from syncpoint.catalog.metadata.store_client import SharedLease, SharedStore
from syncpoint.programs.rollout.progress import RolloutState

LEASE_S: Final = 15.0
AGAIN_S: Final = 1.0


async def read_state(store: SharedStore) -> RolloutState | None:
    """The newest rollout; None: there was none. Raises the store's errors."""
    found = await store.get(ROLLOUT_STATE)
    return None if found is None else _decode(found.value)


async def driven_by(store: SharedStore) -> str:
    """Who drives it now; empty: nobody."""
    found = await store.get(ROLLOUT_CONTROLLER)
    return "" if found is None else found.value.decode()


async def ask_to_abort(store: SharedStore, who: str) -> None:
    """Leave word for the controller. Raises the store's errors."""
    await store.txn([], [Put(ROLLOUT_ABORT, who.encode())])


class RolloutStore:
    """What one controller reads and writes. `who`: what it is called."""

    def __init__(
        self, store: SharedStore, who: str, *, sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep
    ) -> None:
        self._store, self.who, self._sleep = store, who, sleep
        self._revision = 0  # of the state that was read or written last
        self._claimed = 0
        self._lease: SharedLease | None = None

    async def claim(self) -> RolloutState | None:
        """Become the one that drives, and read how far it is. Raises `FailedPrecondition` naming who drives it already,
        and the store's errors."""
        self._lease = await self._store.lease(LEASE_S)
        done = await self._store.txn(
            [absent(ROLLOUT_CONTROLLER)], [Put(ROLLOUT_CONTROLLER, self.who.encode(), self._lease.id)]
        )
        if not done.ok:
            other = await driven_by(self._store)
            await self._lease.revoke()
            self._lease = None
            raise FailedPrecondition(f"{other or 'another controller'} already controls a rollout of this cluster")
        self._claimed = done.revision
        found = await self._store.get(ROLLOUT_STATE)
        self._revision = 0 if found is None else found.revision
        return None if found is None else _decode(found.value)

    async def begin(self, state: RolloutState) -> None:
        """Write the first state of a rollout, over one that is over. Raises as `save`."""
        await self._write(state, [Delete(ROLLOUT_ABORT)])

    async def save(self, state: RolloutState) -> None:
        """Write a state; waits while the metadata do not answer. Raises `Aborted` when another controller took over."""
        await self._write(state, [])

    async def _write(self, state: RolloutState, more: list[Delete]) -> None:
        value = json.dumps(state.encode(), separators=(",", ":")).encode()
        while True:
            try:
                before = unchanged(ROLLOUT_STATE, self._revision) if self._revision else absent(ROLLOUT_STATE)
                done = await self._store.txn(
                    [before, unchanged(ROLLOUT_CONTROLLER, self._claimed)], [Put(ROLLOUT_STATE, value), *more]
                )
            except (Indeterminate, StoreUnavailable) as error:
                if self._lease is not None and self._lease.lost.is_set():
                    raise self._replaced() from error
                await self._sleep(AGAIN_S)
                continue
            if done.ok:
                self._revision = done.revision
                return
            found = await self._store.get(ROLLOUT_STATE)  # written by an attempt whose answer was lost?
            driver = await self._store.get(ROLLOUT_CONTROLLER)
            mine = driver is not None and driver.revision == self._claimed
            if found is None or not mine or found.value != value:
                raise self._replaced()
            self._revision = found.revision
            return

    def _replaced(self) -> Aborted:
        return Aborted("this controller lost its lease or was replaced by another; it has stopped")

    async def aborted(self) -> str:
        """Who asked for an abort; empty: nobody."""
        found = await self._store.get(ROLLOUT_ABORT)
        return "" if found is None else found.value.decode()

    async def release(self) -> None:
        """Drive no more."""
        if self._lease is not None:
            await self._lease.revoke()


def _decode(data: bytes) -> RolloutState:
    return RolloutState.decode(json.loads(data))
