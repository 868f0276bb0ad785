"""Being a member: one key under a lease, which shows that this process lives, its roles and its address.

Place: in every process of a cluster. The lease is for liveness only: nothing that must not happen twice rests on it.
Promise: while the process lives and reaches the metadata its key is there, again and again after an outage. A name that
another living process has is not taken from it: this one waits until that one's lease has ended, and is refused where
it goes on. Only of a process of the same network it is known sooner that it is dead. When another process has the name
after all, this one is `superseded` and registers no more. Every write says which revision of the key it replaces, so
one that arrives late changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

from syncpoint.base.model.cluster import Member
from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.base.runtime.random import Random
from syncpoint.base.runtime.tasks import Tasks
from syncpoint.catalog.metadata.contract import Compare, Indeterminate, KeyValue, Put, StoreError, unchanged
from syncpoint.catalog.metadata.layout import MEMBERS
from syncpoint.catalog.metadata.store_client import RETRY_S, SharedLease, SharedStore
from syncpoint.catalog.metadata.view import View
from syncpoint.cluster.control.peer_channels import Reach

TTL_S = 4.0
GRACE_S = 2.0  # a lease ends this much after its time at the latest, then it was renewed

log = logging.getLogger(__name__)

Ping = Callable[[str], Awaitable[Reach]]


class NameTaken(FailedPrecondition):
    """Another living process has this name."""


def new_incarnation(random: Random) -> int:
    """A number that distinguishes this life of a process from every other."""
    return random.randrange(1, 1 << 64)


class Membership:
    """`me` as registered. `lease`: what further keys of this process hang on; None while there is none. `ping`: whether
    somebody answers at an address; without it only the end of a lease shows that an earlier life is over.
    """

    def __init__(self, store: SharedStore, me: Member, *, ttl_s: float = TTL_S, ping: Ping | None = None) -> None:
        self.store, self.me, self.ttl_s, self._ping = store, me, ttl_s, ping
        self.lease: SharedLease | None = None
        self.registered_at = 0
        self.superseded = asyncio.Event()
        self.successor: Member | None = None  # who has the name, once this process is superseded
        self.on_lease: list[Callable[[SharedLease | None], None]] = []
        self._tasks = Tasks()

    async def start(self) -> None:
        """Register, in place of an earlier life of the same name. Raises `NameTaken` when that is not over, and the
        store's errors.
        """
        await self._register(first=True)
        self._tasks.start(self._keep())

    async def stop(self) -> None:
        """Leave: the key goes at once, and every other key under the lease with it."""
        await self._tasks.stop()
        lease, self.lease = self.lease, None
        if lease is not None:
            try:
                await lease.revoke()
            except StoreError as error:
                log.info("the lease of %s ends by itself: %s", self.me.name, error)

    def heed(self, members: View[Member]) -> None:
        """Notice in a view of all members that another process has registered this name."""

        def changed(names: set[str]) -> None:
            found = members.get(self.me.name) if self.me.name in names else None
            if found is None or found.incarnation == self.me.incarnation:
                return
            if self.registered_at and members.items[self.me.name].revision > self.registered_at:
                self._supersede(found)

        members.listeners.append(changed)
        changed({self.me.name})  # it may have come before

    async def announce(self, *, draining: bool) -> None:
        """Say whether this process takes new work. Raises the store's errors; it holds all the same for the next
        registration."""
        self.me = replace(self.me, draining=draining)
        if self.lease is not None:
            await self._put(self.lease)

    # -- the key -----------------------------------------------------------------------------------------------------

    async def _register(self, *, first: bool = False) -> None:
        lease = await self.store.lease(self.ttl_s)
        try:
            written = await (self._put_first(lease) if first else self._put(lease))
        except (Exception, asyncio.CancelledError):
            await _give_back(lease)
            raise
        if written:
            self.registered_at = max(self.registered_at, written)
            self.lease = lease
            self._notify()
        else:
            await _give_back(lease)

    async def _put_first(self, lease: SharedLease) -> int:
        """Take the name, at once where its holder is surely dead, else as soon as its lease has ended."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self.ttl_s + GRACE_S
        while True:
            found = await self.store.get(self._key)
            holder = None if found is None else _holder(found)
            if holder is None or await self._is_over(holder):
                try:
                    result = await self.store.txn([self._as(found)], [self._value(lease)])
                    if result.ok:
                        return result.revision
                except Indeterminate as error:
                    log.info("%s does not know whether it is registered: %s", self.me.name, error)
                continue  # check the process that was faster
            if loop.time() >= end:
                raise NameTaken(
                    f"the name {self.me.name} is taken: a living process at {holder.address}"
                    f"{f' on host {holder.host}' if holder.host != self.me.host else ''} has it. "
                    "Stop that one, or give this one another name."
                )
            await asyncio.sleep(RETRY_S)

    async def _is_over(self, holder: Member) -> bool:
        """Whether an earlier holder of the name is dead, whatever its lease says. An address that is refused here, or
        is our own, may be that of another process elsewhere: 127.0.0.1, say, or behind a firewall. What a machine is
        called proves nothing.
        """
        if holder.incarnation == self.me.incarnation:
            return True  # this very process
        if holder.network != self.me.network:
            return False
        if holder.address == self.me.address:
            return True  # it listened where this one listens now
        return self._ping is not None and await self._ping(holder.address) is Reach.REFUSED

    async def _put(self, lease: SharedLease) -> int:
        """Write the key where it is gone or still of this life, and return its revision; 0 when it is of another life,
        which supersedes this one.
        """
        while True:
            found = await self.store.get(self._key)
            holder = None if found is None else _holder(found)
            if holder is not None and holder.incarnation != self.me.incarnation:
                self._supersede(holder)
                return 0
            result = await self.store.txn([self._as(found)], [self._value(lease)])
            if result.ok:
                return result.revision

    async def _keep(self) -> None:
        while not self.superseded.is_set():
            if self.lease is not None:
                await self.lease.lost.wait()
                log.warning("the lease of %s is lost", self.me.name)
                self.lease = None
                self._notify()
            try:
                await self._register()
            except (StoreError, ValueError) as error:  # ValueError: the new lease has ended already
                log.info("%s cannot register yet: %s", self.me.name, error)
                await asyncio.sleep(RETRY_S)

    def _supersede(self, by: Member) -> None:
        if not self.superseded.is_set():
            self.successor = by
            log.error("another process, at %s, has registered as %s: this one ends", by.address, self.me.name)
            self.superseded.set()

    @property
    def _key(self) -> str:
        return MEMBERS.key(self.me.name)

    def _as(self, found: KeyValue | None) -> Compare:
        return unchanged(self._key, 0 if found is None else found.revision)

    def _value(self, lease: SharedLease) -> Put:
        return Put(self._key, self.me.encode(), lease.id)

    def _notify(self) -> None:
        for listener in list(self.on_lease):
            listener(self.lease)


def _holder(found: KeyValue) -> Member | None:
    """Who has registered; None for what is no member."""
    try:
        return Member.decode(found.value)
    except ValueError:
        return None


async def _give_back(lease: SharedLease) -> None:
    """Revoke an unneeded lease; if the store is unreachable, the lease expires unrenewed."""
    with contextlib.suppress(StoreError):
        await lease.revoke()
