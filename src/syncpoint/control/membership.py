"""Being a member: one key under a lease that says that this process lives, what it does and where.

Place: in every process of a cluster. The lease is for liveness only: nothing that must not happen twice rests on it.
Promise: while the process lives and reaches the metadata its key is there, again and again after an outage. When
another process registers the same name, this one is `superseded` and registers no more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from syncpoint.control.view import MEMBERS, View
from syncpoint.metadata.contract import Compare, Indeterminate, Put, Unavailable, absent
from syncpoint.metadata.shared import SharedLease, SharedStore
from syncpoint.model.cluster import Member
from syncpoint.runtime.random import Random

TTL_S = 4.0
_RETRY_S = 0.2

log = logging.getLogger(__name__)


def new_incarnation(random: Random) -> int:
    """A number that tells this life of a process from every other."""
    return random.randrange(1, 1 << 64)


class Membership:
    """`me` as registered. `lease`: what further keys of this process hang on; None while there is none."""

    def __init__(self, store: SharedStore, me: Member, *, ttl_s: float = TTL_S) -> None:
        self.store, self.me, self.ttl_s = store, me, ttl_s
        self.lease: SharedLease | None = None
        self.registered_at = 0
        self.superseded = asyncio.Event()
        self.on_lease: list[Callable[[SharedLease | None], None]] = []
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Register, in place of an earlier life of the same name. Raises the store's `Unavailable`."""
        await self._register(first=True)
        self._task = asyncio.get_running_loop().create_task(self._keep())

    async def stop(self) -> None:
        """Leave: the key goes at once, and every other key under the lease with it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        lease, self.lease = self.lease, None
        if lease is not None:
            try:
                await lease.revoke()
            except (Unavailable, Indeterminate) as error:
                log.info("the lease of %s ends by itself: %s", self.me.name, error)

    def heed(self, members: View[Member]) -> None:
        """Notice in a view of all members that another process has registered this name."""

        def changed(names: set[str]) -> None:
            found = members.get(self.me.name) if self.me.name in names else None
            if found is not None and found.incarnation != self.me.incarnation:
                newer = self.registered_at and members.items[self.me.name].revision > self.registered_at
                if newer and not self.superseded.is_set():
                    log.error("another process has registered as %s: this one takes no more part", self.me.name)
                    self.superseded.set()

        members.listeners.append(changed)

    async def announce(self, *, draining: bool) -> None:
        """Say whether this process takes new work. Raises `Unavailable` or `Indeterminate`; it holds all the same for
        the next registration."""
        before = self.me
        self.me = replace(before, draining=draining)
        if self.lease is not None:
            await self._put(self.lease, before)

    async def _register(self, *, first: bool = False) -> None:
        lease = await self.store.lease(self.ttl_s)
        if first:
            result = await self.store.txn([], [Put(self._key, self.me.encode(), lease.id)])
            self.registered_at = result.revision
        elif not await self._put(lease, self.me):
            self.superseded.set()
            log.error("another process has registered as %s: this one takes no more part", self.me.name)
            await lease.revoke()
            return
        self.lease = lease
        self._tell()

    async def _put(self, lease: SharedLease, before: Member) -> bool:
        """Write the key where it is gone or still of this life; False when it is of another life."""
        put = Put(self._key, self.me.encode(), lease.id)
        for known in ([absent(self._key)], [Compare(self._key, "value", "=", before.encode())]):
            if (await self.store.txn(known, [put])).ok:
                return True
        found = await self.store.get(self._key)
        if found is None or Member.decode(found.value).incarnation == self.me.incarnation:
            return (await self.store.txn([], [put])).ok
        return False

    async def _keep(self) -> None:
        while not self.superseded.is_set():
            if self.lease is not None:
                await self.lease.lost.wait()
                log.warning("the lease of %s is lost", self.me.name)
                self.lease = None
                self._tell()
            try:
                await self._register()
            except (Unavailable, Indeterminate, ValueError) as error:  # ValueError: the new lease has ended already
                log.info("%s cannot register yet: %s", self.me.name, error)
                await asyncio.sleep(_RETRY_S)

    @property
    def _key(self) -> str:
        return MEMBERS + self.me.name

    def _tell(self) -> None:
        for listener in list(self.on_lease):
            listener(self.lease)
