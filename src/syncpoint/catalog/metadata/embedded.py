"""What the stores inside a process have in common: conditions, leases, watches, counters. Others do the keeping.

Place: between the contract and the two embedded stores.
Promise: everything in `contract.py`, given something that reads and atomically writes keys. Leases end by the monotonic
clock and start anew at full length when a store is opened, because nobody knows how long it was closed.
"""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Sequence
from operator import eq, gt, lt, ne

from syncpoint.base.runtime.clock import Clock
from syncpoint.catalog.metadata.contract import (
    RANGE_BYTES,
    RANGE_MAX,
    Compare,
    Delete,
    Event,
    Indeterminate,
    KeyValue,
    MetadataStatus,
    Operation,
    Page,
    Put,
    Resync,
    StoreUnavailable,
    TxnResult,
    check_size,
)

_RELATIONS = {"=": eq, "!=": ne, "<": lt, ">": gt}
_SAFETY = 0.8  # the part of a lease's length its holder may rely on
_POLL_MAX = 1_000  # events of one poll, give or take the rest of the last revision
PREFIX_END = chr(0x10FFFF)  # sorts after every other character


class Written(abc.ABC):
    """What a subclass must do. Every method runs on the owner's thread."""

    @abc.abstractmethod
    def read(self, key: str) -> KeyValue | None:
        """The key now."""

    @abc.abstractmethod
    def read_range(self, begin: str, after: bool, end: str, limit: int) -> list[KeyValue]:
        """Up to `limit` keys from `begin` (or, if `after`, following it) to before `end`, in order."""

    @abc.abstractmethod
    def write(
        self, revision: int, puts: Sequence[KeyValue], deletes: Sequence[str], leases: dict[int, float | None]
    ) -> None:
        """Take all of this over at once, with its events, and `revision` as the newest. `leases`: id -> ttl or None."""

    @abc.abstractmethod
    def newest(self) -> int:
        """The revision of the last `write`."""

    @abc.abstractmethod
    def events(self, prefix: str, from_revision: int, limit: int) -> list[Event]:
        """About `limit` events under a prefix in order, the last revision whole."""

    @abc.abstractmethod
    def compact(self, before: int) -> None:
        """Drop events of revisions below `before`, and remember that."""

    @abc.abstractmethod
    def size(self) -> tuple[int, int]:
        """(keys, bytes)."""


class EmbeddedLease:
    """A lease kept by the store's own clock."""

    def __init__(self, store: EmbeddedStore, number: int, ttl_s: float) -> None:
        self._store = store
        self.id = number
        self.ttl_s = ttl_s
        self.ends = 0.0

    def valid_until(self) -> float:
        return self.ends - self.ttl_s * (1 - _SAFETY)

    def keep_alive(self) -> bool:
        return self._store._keep_alive(self)

    def revoke(self) -> None:
        self._store._end([self])


class EmbeddedWatch:
    """A position in the stream of events."""

    def __init__(
        self, store: EmbeddedStore, prefix: str, from_revision: int, notify: Callable[[], None] | None
    ) -> None:
        self._store = store
        self.prefix = prefix
        self._next = from_revision
        self.notify = notify

    def poll(self) -> list[Event] | Resync:
        store = self._store
        store.expire()
        if self._next < store.compacted:
            self._next = store.revision + 1
            return Resync(store.revision)
        events = store.kept.events(self.prefix, self._next, _POLL_MAX)
        self._next = (events[-1].revision if len(events) >= _POLL_MAX else max(store.revision, self._next - 1)) + 1
        return events

    def close(self) -> None:
        self._store._watches.pop(id(self), None)


class EmbeddedStore:
    """The contract over something that keeps keys."""

    def __init__(
        self, kept: Written, clock: Clock, cluster_id: str, revision: int, compacted: int, leases: dict[int, float]
    ) -> None:
        self.kept = kept
        self.cluster_id = cluster_id
        self.revision = revision
        self.compacted = compacted
        self._clock = clock
        self._watches: dict[int, EmbeddedWatch] = {}
        self._leases: dict[int, EmbeddedLease] = {}
        self.on_lease: list[Callable[[], None]] = []  # called when a lease was given
        for number, ttl_s in leases.items():
            self._begin(EmbeddedLease(self, number, ttl_s))

    def get(self, key: str) -> KeyValue | None:
        self.expire()
        return self.kept.read(key)

    def range(self, prefix: str, *, after: str | None = None, limit: int = RANGE_MAX) -> Page:
        self.expire()
        limit = min(limit, RANGE_MAX)
        begin = prefix if after is None else max(prefix, after)
        found = self.kept.read_range(begin, after is not None and after >= prefix, prefix + PREFIX_END, limit + 1)
        size, taken = 0, 0
        for taken, item in enumerate(found[:limit], 1):  # noqa: B007 - the count is wanted after the loop
            size += len(item.value)
            if size >= RANGE_BYTES:
                break
        return Page(found[:taken], self.revision, len(found) > taken)

    def txn(
        self, compares: Sequence[Compare], then: Sequence[Operation], orelse: Sequence[Operation] = ()
    ) -> TxnResult:
        self.expire()
        for operations in (then, orelse):
            self._check(operations)
        ok = all(self._holds(compare) for compare in compares)
        self._commit(then if ok else orelse)
        return TxnResult(ok, self.revision)

    def counter(self, key: str, *, by: int = 1) -> int:
        if by < 1:
            raise ValueError("a counter only goes up")
        known = self.get(key)
        value = (0 if known is None else int(known.value)) + by
        self._commit([Put(key, b"%d" % value)])
        return value

    def lease(self, ttl_s: float) -> EmbeddedLease:
        if not ttl_s > 0:
            raise ValueError("a lease needs a length")
        # Numbered by revision, which is never reused, so that an ended lease cannot be mistaken for a new one.
        lease = EmbeddedLease(self, self.revision + 1, ttl_s)
        self._commit([], {lease.id: ttl_s})
        self._begin(lease)
        for listener in list(self.on_lease):
            listener()
        return lease

    def watch(self, prefix: str, *, from_revision: int, notify: Callable[[], None] | None = None) -> EmbeddedWatch:
        watch = EmbeddedWatch(self, prefix, from_revision, notify)
        self._watches[id(watch)] = watch
        return watch

    def compact(self, before: int) -> None:
        before = min(before, self.revision + 1)
        if before > self.compacted:
            self.kept.compact(before)
            self.compacted = before

    def status(self) -> MetadataStatus:
        keys, size = self.kept.size()
        return MetadataStatus(self.revision, self.compacted, keys, size)

    def close(self) -> None:
        self._watches.clear()

    def keep_alive(self, number: int) -> bool:
        """Start the time of a lease anew, by its number; False when it is over."""
        lease = self._leases.get(number)
        return lease is not None and self._keep_alive(lease)

    def revoke(self, number: int) -> bool:
        """End a lease by its number; False when it is over already."""
        lease = self._leases.get(number)
        if lease is not None:
            self._end([lease])
        return lease is not None

    def next_end(self) -> float | None:
        """When the first lease ends if nobody keeps it alive, in the clock's monotonic seconds."""
        return min((lease.ends for lease in self._leases.values()), default=None)

    def expire(self) -> None:
        """End the leases whose time has come. Every access does it; calling it more often notifies watchers in time."""
        now = self._clock.monotonic()
        ended = [lease for lease in self._leases.values() if lease.ends <= now]
        if ended:
            self._end(ended)

    def _check(self, operations: Sequence[Operation]) -> None:
        check_size(operations)
        for op in operations:
            if isinstance(op, Put) and op.lease is not None and op.lease not in self._leases:
                raise ValueError(f"there is no lease {op.lease}")

    def _holds(self, compare: Compare) -> bool:
        known = self.kept.read(compare.key)
        if known is None:
            actual: bytes | int = b"" if compare.what == "value" else 0
        else:
            actual = getattr(known, compare.what)
        return bool(_RELATIONS[compare.relation](actual, compare.operand))

    def _commit(self, operations: Sequence[Operation], leases: dict[int, float | None] | None = None) -> None:
        """Write and count one revision up, or nothing at all when there is nothing to write."""
        revision = self.revision + 1
        puts, deletes = [], []
        for op in operations:
            known = self.kept.read(op.key)
            if isinstance(op, Delete):
                if known is not None:
                    deletes.append(op.key)
            elif known is None:
                puts.append(KeyValue(op.key, op.value, revision, revision, 1, op.lease))
            else:
                version = known.version + 1
                puts.append(KeyValue(op.key, op.value, known.create_revision, revision, version, op.lease))
        if not (puts or deletes or leases):
            return
        try:
            self.kept.write(revision, puts, deletes, leases or {})
        except Indeterminate:
            with contextlib.suppress(StoreUnavailable):
                self.revision = self.kept.newest()
            raise
        self.revision = revision
        keys = [put.key for put in puts] + deletes
        for watch in list(self._watches.values()):
            if watch.notify is not None and any(key.startswith(watch.prefix) for key in keys):
                watch.notify()

    def _begin(self, lease: EmbeddedLease) -> None:
        lease.ends = self._clock.monotonic() + lease.ttl_s
        self._leases[lease.id] = lease

    def _keep_alive(self, lease: EmbeddedLease) -> bool:
        self.expire()
        if lease.id not in self._leases:
            return False
        self._begin(lease)
        return True

    def _end(self, leases: list[EmbeddedLease]) -> None:
        numbers = {lease.id for lease in leases if self._leases.pop(lease.id, None) is not None}
        if not numbers:
            return
        keys = [Delete(found.key) for found in self._leased(numbers)]
        try:
            self._commit(keys, dict.fromkeys(numbers))
        except BaseException:
            # Not ended in the store, so not ended: it is tried again at the next access.
            self._leases.update({lease.id: lease for lease in leases if lease.id in numbers})
            raise

    def _leased(self, numbers: set[int]) -> list[KeyValue]:
        found, begin, after = [], "", False
        while page := self.kept.read_range(begin, after, PREFIX_END, RANGE_MAX):
            found += [item for item in page if item.lease in numbers]
            begin, after = page[-1].key, True
        return found
