"""What processes tell the others about themselves: their load, and which subscriptions are in use.

Place: beside the membership. Loads are for routers and operators, a few seconds old at most, and go with the process's
lease. Uses are for `expiry`, and stay.
Promise: a report that cannot be written is left out; the next one comes soon.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from syncpoint.control.membership import Membership
from syncpoint.control.view import LOADS
from syncpoint.metadata.contract import TXN_OPS_MAX, Delete, Indeterminate, Operation, Put, Unavailable
from syncpoint.metadata.shared import SharedStore
from syncpoint.runtime.clock import Clock

USED = "used/"
LOAD_S = 2.0
USED_S = 3_600.0

log = logging.getLogger(__name__)


class LoadReporter:
    """Writes load/MEMBER every two seconds. `measure`: connections, messages_s, bytes_s, topics, as in the metadata."""

    def __init__(self, membership: Membership, measure: Callable[[], Mapping[str, Any]]) -> None:
        self._membership, self._measure = membership, measure
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin. The membership has been started."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Report no more."""
        await _ended(self._task)

    async def _run(self) -> None:
        member = self._membership
        while True:
            if member.lease is not None:
                load = json.dumps(self._measure(), separators=(",", ":")).encode()
                try:
                    await member.store.txn([], [Put(LOADS + member.me.name, load, member.lease.id)])
                except (Unavailable, Indeterminate, ValueError) as error:  # ValueError: the lease has ended
                    log.debug("the load of %s is not reported: %s", member.me.name, error)
            await asyncio.sleep(LOAD_S)


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
        await _ended(self._task)

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


async def _ended(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
