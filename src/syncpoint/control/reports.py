"""Which subscriptions are in use, told by subscribe forwarders for `expiry`, which deletes those that are not.

Promise: a report that cannot be written is written with the next one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from syncpoint.metadata.contract import (
    TXN_OPS_MAX,
    Delete,
    Indeterminate,
    Operation,
    Put,
    Unavailable,
)
from syncpoint.metadata.shared import SharedStore
from syncpoint.runtime.clock import Clock

USED = "used/"
USED_S = 3_600.0

log = logging.getLogger(__name__)


class UseReporter:
    """Writes used/SUBSCRIPTION every hour. `used`: gives the subscriptions that were in use since it was last asked."""

    def __init__(self, store: SharedStore, clock: Clock, used: Callable[[], Iterable[int]]) -> None:
        self._store, self._clock, self._used = store, clock, used
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Report no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        waiting: set[int] = set()
        while True:
            await asyncio.sleep(USED_S)
            waiting |= set(self._used())
            now = b"%d" % self._clock.time_ns()
            try:
                await write_all(self._store, [Put(f"{USED}{number}", now) for number in sorted(waiting)])
                waiting.clear()
            except (Unavailable, Indeterminate) as error:
                log.info("the use of %d subscriptions is not reported yet: %s", len(waiting), error)


async def write_all(store: SharedStore, operations: list[Put] | list[Delete]) -> None:
    """Any number of writes without conditions, in as many transactions as it takes."""
    for begin in range(0, len(operations), TXN_OPS_MAX):
        part: list[Operation] = [*operations[begin : begin + TXN_OPS_MAX]]
        await store.txn([], part)
