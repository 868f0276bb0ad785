"""What a metadata store shared by many processes promises: the contract of `contract`, with time and a network in it.

Place: under everything that several processes must agree on: members, owners of chains, assignments, the catalog. etcd
implements it for clusters, `local` wraps a store of this process, `service` and `remote` carry one to other processes.
Promise: that of `contract`, point by point, and besides:
  - every call has a deadline in seconds; a call that fails raises `StoreUnavailable` (surely not applied) or
    `Indeterminate` (read before you go on);
  - a lease is kept alive in the background until it is revoked or `lost`. It is for liveness only: a process that must
    not act twice carries an epoch that the disks check;
  - a watch loses nothing: it resumes by itself after a lost connection, and yields `Resync` when the events are gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Protocol, TypeVar

from syncpoint.base.model.errors import MetadataSilent, Unavailable
from syncpoint.catalog.metadata.contract import (
    RANGE_MAX,
    Compare,
    Event,
    Indeterminate,
    KeyValue,
    MetadataStatus,
    Operation,
    Page,
    Resync,
    StoreUnavailable,
    TxnResult,
)

DEADLINE_S = 5.0
ATTEMPT_S = 0.1  # between two attempts of one call
RETRY_S = 0.2  # until a caller that needs the store asks again after an error
_T = TypeVar("_T")


class SharedLease(Protocol):
    """Keys written under it live while it is kept alive, which happens by itself."""

    lost: asyncio.Event  # set when it is over, for whatever reason; it never comes back

    @property
    def id(self) -> int:
        """Its number, for `Put.lease`."""
        ...

    def valid_until(self) -> float:
        """Monotonic seconds until which the holder may rely on it: (when the last renewal was sent) + 0.8 ttl."""
        ...

    async def revoke(self) -> None:
        """End it now; its keys are deleted."""
        ...


class SharedWatch(Protocol):
    """Events of the keys under one prefix, in order."""

    async def next(self) -> list[Event] | Resync:
        """Wait for what happens next; revisions are never parted over two answers."""
        ...

    async def close(self) -> None:
        """No more events."""
        ...


class SharedStore(Protocol):
    """A metadata store that may be far away."""

    @property
    def cluster_id(self) -> str:
        """Drawn when the store was created; another one means another store."""
        ...

    async def get(self, key: str, *, deadline_s: float = DEADLINE_S) -> KeyValue | None: ...

    async def range(
        self, prefix: str, *, after: str | None = None, limit: int = RANGE_MAX, deadline_s: float = DEADLINE_S
    ) -> Page: ...

    async def txn(
        self,
        compares: Sequence[Compare],
        then: Sequence[Operation],
        orelse: Sequence[Operation] = (),
        *,
        deadline_s: float = DEADLINE_S,
    ) -> TxnResult: ...

    async def counter(self, key: str, *, by: int = 1, deadline_s: float = DEADLINE_S) -> int:
        """Add `by` to a persistent counter and return it; a number that was given out never comes again."""
        ...

    async def lease(self, ttl_s: float, *, deadline_s: float = DEADLINE_S) -> SharedLease: ...

    def watch(self, prefix: str, *, from_revision: int) -> SharedWatch: ...

    async def compact(self, before: int, *, deadline_s: float = DEADLINE_S) -> None: ...

    async def status(self, *, deadline_s: float = DEADLINE_S) -> MetadataStatus: ...

    async def close(self) -> None: ...


async def read_all(store: SharedStore, prefix: str, *, deadline_s: float = DEADLINE_S) -> tuple[list[KeyValue], int]:
    """Every key under a prefix, and a revision from which a watch on it misses nothing (it may repeat)."""
    page = await store.range(prefix, deadline_s=deadline_s)
    items, revision = page.items, page.revision
    while page.more:
        page = await store.range(prefix, after=items[-1].key, deadline_s=deadline_s)
        items += page.items
    return items, revision + 1


async def answered(
    call: Awaitable[_T], unavailable: str = "The metadata store does not answer and nothing was changed"
) -> _T:
    """What a call of a store returns. Raises `Unavailable` for the store's errors, for those who know no store; it is
    `MetadataSilent` where the call surely had no effect.
    """
    try:
        return await call
    except StoreUnavailable as error:
        raise MetadataSilent(f"{unavailable}: {error}") from error
    except Indeterminate as error:
        raise Unavailable(f"The change may or may not be stored: {error}") from error
