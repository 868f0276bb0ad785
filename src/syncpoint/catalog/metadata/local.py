"""A store of this process under the contract that many processes share.

Place: tests and simulations put one of these per imagined process over one `MemoryStore`; a process that holds the
SQLite file of an installation serves its own to others by `service`.
Promise: everything in `store_client`, in the time of the running loop, without a thread or a socket; a deadline never
passes, because every call is answered at once. `close` is what the death of a process is: its leases are renewed no
more and end in their time; the store itself stays open, it belongs to the caller that opened it. Leaves out: faults,
but for
`cut`: while it is set every call fails, watches are silent and leases run out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from syncpoint.base.runtime.clock import Clock
from syncpoint.catalog.metadata.contract import (
    RANGE_MAX,
    Compare,
    Event,
    KeyValue,
    MetadataStatus,
    Operation,
    Page,
    Resync,
    StoreError,
    StoreUnavailable,
    TxnResult,
)
from syncpoint.catalog.metadata.embedded import EmbeddedLease, EmbeddedStore
from syncpoint.catalog.metadata.lease import RENEWALS
from syncpoint.catalog.metadata.store_client import ATTEMPT_S, DEADLINE_S

log = logging.getLogger(__name__)


class LocalLease:
    """A lease of the store, kept alive by timers of the loop."""

    def __init__(self, shared: LocalShared, inner: EmbeddedLease) -> None:
        self._shared, self._inner = shared, inner
        self.lost = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._wait()

    @property
    def id(self) -> int:
        return self._inner.id

    def valid_until(self) -> float:
        return self._inner.valid_until()

    async def revoke(self) -> None:
        await self._shared.turn()
        self._inner.revoke()
        self.stop()
        self.lost.set()

    def stop(self) -> None:
        """Renew it no more."""
        self._shared.leases.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def renew(self) -> None:
        """Keep it alive now, or find that it is over."""
        if self.lost.is_set():
            return
        try:
            alive = self._inner.keep_alive() if not self._shared.cut else not self._over()
        except StoreError as error:
            log.info("lease %d is not renewed: %s", self.id, error)
            alive = not self._over()
        if alive:
            self._wait()
        else:
            self.stop()
            self.lost.set()

    def _over(self) -> bool:
        return self._shared.clock.monotonic() >= self._inner.ends

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        rest = self._inner.ends - self._shared.clock.monotonic()
        delay = max(0.0, min(rest, self._inner.ttl_s / RENEWALS))
        self._timer = asyncio.get_running_loop().call_later(delay, self.renew)


class LocalWatch:
    """A watch of the store that can be waited for."""

    def __init__(self, shared: LocalShared, prefix: str, from_revision: int) -> None:
        self._shared = shared
        self._some = asyncio.Event()
        self._some.set()
        self._loop = asyncio.get_running_loop()
        self._inner = shared.store.watch(prefix, from_revision=from_revision, notify=self.wake)
        self._closed = False

    def wake(self) -> None:
        """Look again."""
        self._some.set()

    async def next(self) -> list[Event] | Resync:
        while True:
            await self._some.wait()
            if self._closed:
                raise StoreUnavailable("the watch is closed")
            self._some.clear()
            if self._shared.cut:
                continue
            try:
                events = self._inner.poll()
            except StoreError as error:
                log.info("a watch waits for its store: %s", error)
                self._loop.call_later(ATTEMPT_S, self.wake)
                continue
            if events:
                self._some.set()  # there may be more
                return events

    async def close(self) -> None:
        self.stop()

    def stop(self) -> None:
        """No more events; a reader that waits for one is notified."""
        self._closed = True
        self.abandon()
        self.wake()

    def abandon(self) -> None:
        """Nobody waits for it any more."""
        self._inner.close()
        self._shared.watches.pop(self, None)


class LocalShared:
    """Adapt a store of this process to the contract of shared stores. Used from one event loop."""

    def __init__(self, store: EmbeddedStore, clock: Clock) -> None:
        self.store, self.clock = store, clock
        self.leases: dict[LocalLease, None] = {}  # in the order of their beginning, as `watches`
        self.watches: dict[LocalWatch, None] = {}
        self._cut = False
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        store.on_lease.append(self._arm)

    @property
    def cluster_id(self) -> str:
        return self.store.cluster_id

    @property
    def cut(self) -> bool:
        """Whether the store cannot be reached from here. May be set."""
        return self._cut

    @cut.setter
    def cut(self, cut: bool) -> None:
        self._cut = cut
        if not cut:
            for lease in list(self.leases):
                lease.renew()
            for watch in list(self.watches):
                watch.wake()

    async def get(self, key: str, *, deadline_s: float = DEADLINE_S) -> KeyValue | None:
        await self.turn()
        return self.store.get(key)

    async def range(
        self, prefix: str, *, after: str | None = None, limit: int = RANGE_MAX, deadline_s: float = DEADLINE_S
    ) -> Page:
        await self.turn()
        return self.store.range(prefix, after=after, limit=limit)

    async def txn(
        self,
        compares: Sequence[Compare],
        then: Sequence[Operation],
        orelse: Sequence[Operation] = (),
        *,
        deadline_s: float = DEADLINE_S,
    ) -> TxnResult:
        await self.turn()
        return self.store.txn(compares, then, orelse)

    async def counter(self, key: str, *, by: int = 1, deadline_s: float = DEADLINE_S) -> int:
        await self.turn()
        return self.store.counter(key, by=by)

    async def lease(self, ttl_s: float, *, deadline_s: float = DEADLINE_S) -> LocalLease:
        await self.turn()
        lease = LocalLease(self, self.store.lease(ttl_s))
        self.leases[lease] = None
        return lease

    def watch(self, prefix: str, *, from_revision: int) -> LocalWatch:
        watch = LocalWatch(self, prefix, from_revision)
        self.watches[watch] = None
        self._arm()
        return watch

    async def compact(self, before: int, *, deadline_s: float = DEADLINE_S) -> None:
        await self.turn()
        self.store.compact(before)

    async def status(self, *, deadline_s: float = DEADLINE_S) -> MetadataStatus:
        await self.turn()
        return self.store.status()

    async def close(self) -> None:
        self._closed = True
        for watch in list(self.watches):
            watch.stop()
        self.abandon()

    def abandon(self) -> None:
        """The process is gone that had it: nothing of it asks the store any more; its leases run out."""
        for lease in list(self.leases):
            lease.stop()
        for watch in list(self.watches):
            watch.abandon()
        if self._arm in self.store.on_lease:
            self.store.on_lease.remove(self._arm)
        self._disarm()

    async def turn(self) -> None:
        """Let others run before and see whether the store can be reached, as a call to a distant one would."""
        await asyncio.sleep(0)
        if self._cut or self._closed:
            raise StoreUnavailable("the metadata store is closed" if self._closed else "the metadata store is cut off")

    def _arm(self) -> None:
        """Be there when the next lease of any holder ends, so that watchers learn of it in time."""
        self._disarm()
        end = self.store.next_end()
        if end is not None and self.watches:
            delay = max(0.0, end - self.clock.monotonic())
            self._timer = asyncio.get_running_loop().call_later(delay, self._expire)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        try:
            self.store.expire()
        except StoreError as error:
            log.info("leases that are over cannot be ended yet: %s", error)
            self._timer = asyncio.get_running_loop().call_later(ATTEMPT_S, self._expire)
            return
        self._arm()
