"""What a metadata store promises, whichever it is: one process's SQLite file, plain memory, or a cluster's etcd.

Place: holds what servers must agree over and find again: identities, leases, a replica of the catalog.
Promise, the same for every store and checked by one conformance suite:
  1. every call sees all transactions that ended before it began;
  2. a transaction is the only way to write; it happens whole or not at all, and gets one revision, which all its events
     share;
  3. revisions are dense, start at 1 and never go back;
  4. a watch yields every event from its revision on, in order, never parting one revision over two answers; when those
     events are gone it yields `Resync`, and the watcher must list again;
  5. a key written under a lease is deleted when the lease ends. A missing key permits a takeover; authority comes only
     from a counter, which is never leased and never deleted;
  6. `StoreUnavailable` means surely not applied; `Indeterminate` means that the caller must read to know.
Calls are plain functions that answer at once: stores of this kind live in the process. A remote one is wrapped by
the driver that runs it, with deadlines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol

TXN_OPS_MAX = 100
TXN_BYTES_MAX = 1024 * 1024  # keys and values together
RANGE_MAX = 1_000
RANGE_BYTES = 4 * 1024 * 1024  # of values, after which a page ends; processes take 20 MiB in one message


class StoreError(Exception):
    """A call of a store failed. It may do so at any time: the store may be elsewhere."""


class Indeterminate(StoreError):
    """The transaction may or may not have been applied."""


class StoreUnavailable(StoreError):
    """The store cannot answer, and nothing was applied."""


class KeyValue(NamedTuple):
    """A key as of the revision it was read at. `version` counts writes since creation, from 1."""

    key: str
    value: bytes
    create_revision: int
    revision: int
    version: int
    lease: int | None


class Page(NamedTuple):
    """Keys in order, the revision at which they were read, and whether there are more."""

    items: list[KeyValue]
    revision: int
    more: bool


class Compare(NamedTuple):
    """A condition on one key. An absent key has revision, create_revision and version 0 and the value b""."""

    key: str
    what: Literal["value", "revision", "create_revision", "version"]
    relation: Literal["=", "!=", "<", ">"]
    operand: bytes | int


class Put(NamedTuple):
    """Write a key, under a lease or not."""

    key: str
    value: bytes
    lease: int | None = None


class Delete(NamedTuple):
    """Remove a key; nothing happens when it is absent."""

    key: str


Operation = Put | Delete


class TxnResult(NamedTuple):
    """Whether the conditions held, and the store's revision afterwards."""

    ok: bool
    revision: int


class Event(NamedTuple):
    """A key got a value, or (None) was deleted."""

    revision: int
    key: str
    value: bytes | None


class Resync(NamedTuple):
    """Events were compacted away. List again; the watch goes on with what comes after `revision`."""

    revision: int


class MetadataStatus(NamedTuple):
    """Numbers for operators."""

    revision: int
    compacted: int
    keys: int
    bytes: int


class Lease(Protocol):
    """Keys written under it live as long as it is kept alive."""

    @property
    def id(self) -> int:
        """Its number in the store."""
        ...

    def valid_until(self) -> float:
        """Monotonic seconds until which the holder may rely on it: well before the store would end it."""
        ...

    def keep_alive(self) -> bool:
        """Start the time anew; False when the lease is already lost."""
        ...

    def revoke(self) -> None:
        """End it now; its keys are deleted."""
        ...


class Watch(Protocol):
    """Events of the keys under one prefix."""

    def poll(self) -> list[Event] | Resync:
        """What happened since the last poll, oldest first; [] when nothing did."""
        ...

    def close(self) -> None:
        """No more events, no more notifications."""
        ...


class MetadataStore(Protocol):
    """A metadata store."""

    @property
    def cluster_id(self) -> str:
        """Drawn when the store was created; another one means another store."""
        ...

    def get(self, key: str) -> KeyValue | None:
        """The key now."""
        ...

    def range(self, prefix: str, *, after: str | None = None, limit: int = RANGE_MAX) -> Page:
        """Keys that start with `prefix`, in order of code points, those after `after`: up to `limit` or `RANGE_BYTES`,
        and at least one."""
        ...

    def txn(
        self, compares: Sequence[Compare], then: Sequence[Operation], orelse: Sequence[Operation] = ()
    ) -> TxnResult:
        """Carry out `then` if all conditions hold, else `orelse`.

        A key may be written once. No event and no new revision when nothing is written. Raises `ValueError` for more
        than `TXN_OPS_MAX` operations or `TXN_BYTES_MAX` bytes, or a lease that does not exist.
        """
        ...

    def counter(self, key: str, *, by: int = 1) -> int:
        """Add to a persistent counter, and return it: 1, 2, 3, ..., never the same number twice."""
        ...

    def lease(self, ttl_s: float) -> Lease:
        """A new lease that ends `ttl_s` seconds after it was last kept alive."""
        ...

    def watch(self, prefix: str, *, from_revision: int, notify: Callable[[], None] | None = None) -> Watch:
        """Events from `from_revision` on. `notify` is called, on the writer's thread, when a poll would yield some."""
        ...

    def compact(self, before: int) -> None:
        """Forget events of revisions lower than `before`."""
        ...

    def status(self) -> MetadataStatus:
        """Numbers for operators."""
        ...

    def close(self) -> None:
        """Let go of files and locks."""
        ...


def check_size(operations: Sequence[Operation]) -> None:
    """Raises `ValueError` for what no store takes as one transaction."""
    size = sum(len(op.key.encode()) + (len(op.value) if isinstance(op, Put) else 0) for op in operations)
    if len(operations) > TXN_OPS_MAX or size > TXN_BYTES_MAX:
        raise ValueError(f"a transaction of {len(operations)} operations and {size} bytes is too large")
    if len({op.key for op in operations}) < len(operations):
        raise ValueError("a transaction may write a key once")


def absent(key: str) -> Compare:
    """The key does not exist."""
    return Compare(key, "revision", "=", 0)


def unchanged(key: str, revision: int) -> Compare:
    """The key was last written at `revision`."""
    return Compare(key, "revision", "=", revision)


def create(store: MetadataStore, key: str, value: bytes, lease: int | None = None) -> bool:
    """Write a key that must not exist; False when it does."""
    return store.txn([absent(key)], [Put(key, value, lease)]).ok


def replace(store: MetadataStore, key: str, revision: int, value: bytes) -> bool:
    """Write a key that nobody has written since `revision`; False otherwise."""
    return store.txn([unchanged(key, revision)], [Put(key, value)]).ok
