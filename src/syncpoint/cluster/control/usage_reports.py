"""When subscriptions were last in use, reported by subscribe forwarders for `expiry`, which deletes those that are not.

Promise: what is stored is at most as old as the last use less `USED_S`, while the metadata can be reached; a report
that cannot be written is written as soon as they can. A time is never replaced by an earlier one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from syncpoint.base.runtime.clock import Clock
from syncpoint.base.runtime.periodic import Periodic
from syncpoint.base.runtime.trusted import TrustedClock
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.contract import (
    TXN_OPS_MAX,
    Compare,
    Delete,
    KeyValue,
    Operation,
    Put,
    StoreError,
    absent,
    unchanged,
)
from syncpoint.catalog.metadata.layout import USED
from syncpoint.catalog.metadata.records import Subscription
from syncpoint.catalog.metadata.store_client import SharedStore, read_all

USED_S = 3_600.0
LAG_S = 2 * USED_S  # so old may be what is known of the last use
AGAIN_S = 60.0
LAST_S = 1.0  # for the report of a process that ends
_NS = 1_000_000_000

log = logging.getLogger(__name__)


class UsageReporter(Periodic):
    """Writes used/SUBSCRIPTION every hour. `used`: gives the subscriptions that were in use since it was last asked;
    `clock`: one whose stamps do not go back.
    """

    def __init__(self, store: SharedStore, clock: Clock, used: Callable[[], Iterable[int]]) -> None:
        self._store, self._clock, self._used = store, clock, used
        self._waiting: dict[int, int] = {}  # subscription -> when it was in use, not written yet
        super().__init__(self._report, self._next_s, (StoreError,), "the use of subscriptions is not reported yet")

    async def stop(self) -> None:
        """Report once more, where the metadata answer at once, and then no more."""
        if not self.running:
            return
        await super().stop()
        try:
            async with asyncio.timeout(LAST_S):
                await self._report()
        except (StoreError, TimeoutError) as error:
            log.info("the last use of %d subscriptions is not reported: %s", len(self._waiting), error)

    def _next_s(self) -> float:
        return AGAIN_S if self._waiting else USED_S

    async def _report(self) -> None:
        now = self._clock.time_ns()
        self._waiting |= dict.fromkeys(self._used(), now)
        while self._waiting:
            items, _ = await read_all(self._store, USED)
            known = {item.key: item for item in items}
            numbers = sorted(self._waiting)
            for begin in range(0, len(numbers), TXN_OPS_MAX):
                await self._write(numbers[begin : begin + TXN_OPS_MAX], known)

    async def _write(self, numbers: list[int], known: dict[str, KeyValue]) -> None:
        """Write what is later than what is stored; where another process was faster it is checked again."""
        conditions: list[Compare] = []
        puts: list[Operation] = []
        for number in numbers:
            key, used = USED.key(number), self._waiting[number]
            found = known.get(key)
            if found is None or int(found.value) < used:
                conditions.append(absent(key) if found is None else unchanged(key, found.revision))
                puts.append(Put(key, b"%d" % used))
        if not puts or (await self._store.txn(conditions, puts)).ok:
            for number in numbers:
                del self._waiting[number]


class ReportedUses:
    """`expiry.LastUses` of a cluster. A report may be due for an hour, or have been lost with the process that owed it,
    so the time granted is that much longer, and nobody counts as idle until the metadata could be reached for as long:
    whoever was cut off from them, too, has reported by then. What was used when is stored, and does not begin anew.
    """

    def __init__(self, store: SharedStore, catalog: Catalog, trusted: TrustedClock) -> None:
        self._store, self._catalog, self._trusted = store, catalog, trusted
        self._used: dict[int, int] = {}
        self._looking = False
        self._steady_since = trusted.monotonic()  # since when the metadata have answered

    async def begin(self) -> None:
        if self._looking:  # the last look came to no end
            self._steady_since = self._trusted.monotonic()
        self._looking = True
        items, _ = await read_all(self._store, USED)
        self._used = {USED.number(item.key): int(item.value) for item in items}

    def idle_s(self, record: Subscription) -> float:
        if self._trusted.monotonic() < self._steady_since + LAG_S:
            return 0.0
        used_ns = max(record.touched_ns, self._used.get(record.incarnation, 0))
        return (self._trusted.sure_ns() - used_ns) / _NS - LAG_S

    async def end(self) -> None:
        gone = [number for number in self._used if self._catalog.subscription_by_incarnation(number) is None]
        for begin in range(0, len(gone), TXN_OPS_MAX):
            await self._store.txn([], [Delete(USED.key(number)) for number in gone[begin : begin + TXN_OPS_MAX]])
        self._looking = False
