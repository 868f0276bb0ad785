"""A metadata store in plain memory, for tests and simulations: everything in the contract except for surviving.

Place: stands in for SQLite and for a cluster's store.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from itertools import islice

from syncpoint.base.runtime.clock import Clock
from syncpoint.base.runtime.random import Random
from syncpoint.catalog.metadata.contract import Event, KeyValue
from syncpoint.catalog.metadata.embedded import EmbeddedStore, Written


class _Memory(Written):
    def __init__(self) -> None:
        self._items: dict[str, KeyValue] = {}
        self._keys: list[str] = []
        self._events: list[Event] = []
        self._newest = 0

    def read(self, key: str) -> KeyValue | None:
        return self._items.get(key)

    def read_range(self, begin: str, after: bool, end: str, limit: int) -> list[KeyValue]:
        first = (bisect_right if after else bisect_left)(self._keys, begin)
        last = bisect_left(self._keys, end)
        return [self._items[key] for key in islice(self._keys, first, min(last, first + limit))]

    def write(
        self, revision: int, puts: Sequence[KeyValue], deletes: Sequence[str], leases: dict[int, float | None]
    ) -> None:
        for put in puts:
            if put.key not in self._items:
                insort(self._keys, put.key)
            self._items[put.key] = put
            self._events.append(Event(revision, put.key, put.value))
        for key in deletes:
            del self._items[key]
            del self._keys[bisect_left(self._keys, key)]
            self._events.append(Event(revision, key, None))
        self._newest = revision

    def newest(self) -> int:
        return self._newest

    def events(self, prefix: str, from_revision: int, limit: int) -> list[Event]:
        found: list[Event] = []
        for event in self._events[bisect_left(self._events, from_revision, key=lambda event: event.revision) :]:
            if len(found) >= limit and event.revision != found[-1].revision:
                break
            if event.key.startswith(prefix):
                found.append(event)
        return found

    def compact(self, before: int) -> None:
        del self._events[: bisect_left(self._events, before, key=lambda event: event.revision)]

    def size(self) -> tuple[int, int]:
        return len(self._items), sum(len(item.key) + len(item.value) for item in self._items.values())


class MemoryStore(EmbeddedStore):
    """A store that is gone with its process."""

    def __init__(self, *, clock: Clock, random: Random) -> None:
        super().__init__(_Memory(), clock, random.token(16).hex(), 0, 0, {})
