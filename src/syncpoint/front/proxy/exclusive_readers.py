"""Readers that have a subscription of a cluster to themselves.

Place: under `pipeline_reading`, around the positions it gathers from the chains of the topic.
Promise: a reader gets positions only when nobody else is delivered anything: its hold is in the catalog
(`metadata.reader_holds`), every subscribe forwarder knew it when it reported that nobody consumes there, and every
chain knew it when it reported that it delivers to none. Only then is it confirmed; what could not be is taken out
again. It outlives every process: who serves the reader next finds it in the catalog.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from syncpoint.base.model.errors import Aborted, Conflict, FailedPrecondition, SyncpointError, Unavailable
from syncpoint.base.runtime.clock import Clock
from syncpoint.broker.pipeline.exclusive_readers import others_consume
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.reader_holds import (
    ReaderHold,
    drop_hold,
    hold_of,
    new_hold,
    put_hold,
    wanted_s,
    written_hold,
)
from syncpoint.catalog.metadata.records import CatalogChange, Subscription
from syncpoint.cluster.control.cluster_queries import ClusterQueries

CONFLICTS_MAX = 20
NOTIFY_S = 5.0  # for subscribe forwarders; one that has died is a member for some seconds
AGAIN_S = 0.2

Commit = Callable[[Sequence[CatalogChange]], Awaitable[object]]

log = logging.getLogger(__name__)


class ClusterReaders:
    """Manage readers with exclusive use of a cluster's subscription.

    `commit`: changes the catalog, checked against the current local copy.
    """

    def __init__(self, catalog: Catalog, commit: Commit, queries: ClusterQueries, clock: Clock) -> None:
        self.catalog, self.clock = catalog, clock
        self._commit, self._queries = commit, queries

    @asynccontextmanager
    async def held(self, record: Subscription, reader: str, seconds: float) -> AsyncIterator[None]:
        """While the chains are asked: they know the hold, and what they say may be notified when this ends without an
        error. Raises `SyncpointError` where the subscription cannot be had.
        """
        wanted_s(seconds)
        now_ns = self.clock.time_ns()
        hold = self._of_others_or(record, reader, now_ns)
        if hold is not None and hold.confirmed:
            if not hold.lasts(seconds, now_ns):
                await self._write(record, new_hold(reader, seconds, now_ns))
                await self._queries.deliveries(record.incarnation, self.catalog.revision)  # it is used
            yield
            return
        hold = new_hold(reader, seconds, now_ns, confirmed=False)
        await self._write(record, hold)
        try:
            await self._check_consumers(record)
            yield
            await self._replace(record, hold, hold._replace(confirmed=True))
        except BaseException:
            with contextlib.suppress(SyncpointError):
                await self._replace(record, hold, None)
            raise

    async def release(self, record: Subscription, reader: str) -> None:
        """The reader is done. Idempotent; a reader that does not have it changes nothing."""
        for _ in range(CONFLICTS_MAX):
            hold = written_hold(self.catalog, record.incarnation)
            if hold is None or hold.reader != reader:
                return
            with contextlib.suppress(Conflict):
                await self._commit([drop_hold(record.incarnation)])
                return
        raise Unavailable("Other callers kept changing the catalog while this call ran. Try again.")

    def _of_others_or(self, record: Subscription, reader: str, now_ns: int) -> ReaderHold | None:
        """The reader's hold now. Raises `FailedPrecondition`, `Unavailable` for that of another one."""
        hold = hold_of(self.catalog, record.incarnation, now_ns)
        if hold is not None and hold.reader != reader:
            if not hold.confirmed:
                raise Unavailable(
                    f"The stream {hold.reader} is about to become the exclusive reader of {record.name}. Try again."
                )
            raise FailedPrecondition(
                f"The subscription {record.name} has an exclusive reader, the stream {hold.reader}. Stop that stream,"
                " or"
                " create another subscription."
            )
        return hold

    async def _write(self, record: Subscription, hold: ReaderHold) -> None:
        for _ in range(CONFLICTS_MAX):
            now_ns = self.clock.time_ns()
            self._of_others_or(record, hold.reader, now_ns)
            with contextlib.suppress(Conflict):
                await self._commit(put_hold(self.catalog, record.incarnation, hold, now_ns))
                return
        raise Unavailable("Other callers kept changing the catalog while this call ran. Try again.")

    async def _replace(self, record: Subscription, hold: ReaderHold, after: ReaderHold | None) -> None:
        """Confirm a hold, or take it out, if it is still the one that was written here."""
        for _ in range(CONFLICTS_MAX):
            if written_hold(self.catalog, record.incarnation) != hold:
                raise Aborted(f"Another call of {hold.reader} is taking {record.name} at the same time. Try again.")
            changes = [drop_hold(record.incarnation)]
            if after is not None:
                changes = put_hold(self.catalog, record.incarnation, after, self.clock.time_ns())
            with contextlib.suppress(Conflict):
                await self._commit(changes)
                return
        raise Unavailable("Other callers kept changing the catalog while this call ran. Try again.")

    async def _check_consumers(self, record: Subscription) -> None:
        """Every subscribe forwarder reports, knowing of the hold, that nobody consumes there. Raises
        `FailedPrecondition`, `Unavailable`.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + NOTIFY_S
        while True:
            found, silent = await self._queries.deliveries(record.incarnation, self.catalog.revision)
            if found.subscribers or found.messages:
                raise others_consume(record, found.subscribers, found.messages)
            if not silent:
                return
            if loop.time() >= end:
                raise Unavailable(
                    f"It is not known whether {record.name} has other consumers: {'; '.join(silent)}. Try again."
                )
            await asyncio.sleep(AGAIN_S)
