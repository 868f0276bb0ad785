"""Views of the metadata: values below a prefix, kept in memory by watching them.

Place: under everything in a process of a cluster that asks who is there and who owns what.
Promise: a view is what the store held at `revision`, some milliseconds ago; while the metadata is down it stays as it
was. Listeners are called once per revision or more rarely, on the loop, after the view has changed.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from syncpoint.base.model.cluster import ChainOwner, ChainRecord, Member
from syncpoint.base.runtime.tasks import Tasks
from syncpoint.catalog.metadata.contract import Event, Resync, StoreError, StoreUnavailable
from syncpoint.catalog.metadata.layout import CHAINS, DRAINS, LOADS, MEMBERS, OWNERS
from syncpoint.catalog.metadata.store_client import RETRY_S, SharedStore, SharedWatch, read_all

_V = TypeVar("_V")

log = logging.getLogger(__name__)


class Versioned(NamedTuple, Generic[_V]):
    """A value and the revision it was written at."""

    value: _V
    revision: int


class View(Generic[_V]):
    """The keys under one prefix, without the prefix, each decoded once. A value that cannot be decoded is left out."""

    def __init__(self, store: SharedStore, prefix: str, decode: Callable[[bytes], _V]) -> None:
        self._store, self._prefix, self._decode = store, prefix, decode
        self._watch: SharedWatch | None = None
        self._tasks = Tasks()
        self.items: dict[str, Versioned[_V]] = {}
        self.revision = 0
        self.listeners: list[Callable[[set[str]], None]] = []

    def get(self, key: str) -> _V | None:
        """The value now, None when there is none."""
        found = self.items.get(key)
        return None if found is None else found.value

    async def start(self) -> None:
        """Return when everything has been read once. Raises `StoreUnavailable`."""
        self._watch = self._store.watch(self._prefix, from_revision=await self._list())
        self._tasks.start(self._follow(self._watch))

    async def read_again(self) -> None:
        """Return with all that was written before this call. Raises the store's errors."""
        await self._list()

    async def close(self) -> None:
        """No more changes."""
        await self._tasks.stop()
        if self._watch is not None:
            await self._watch.close()

    async def _list(self) -> int:
        found, begin = await read_all(self._store, self._prefix)
        listed = {item.key[len(self._prefix) :]: item for item in found}
        changed = {key for key in self.items if key not in listed}
        for key in changed:
            del self.items[key]
        for key, item in listed.items():
            known = self.items.get(key)
            if known is None or known.revision != item.revision:
                self._put(key, item.value, item.revision)
                changed.add(key)
        self.revision = max(self.revision, begin - 1)
        self._notify(changed)
        return begin

    async def _follow(self, watch: SharedWatch) -> None:
        while True:
            try:
                events = await watch.next()
            except StoreUnavailable:
                return  # the store is closed
            if not isinstance(events, Resync):
                self._apply(events)
                continue
            while True:  # the watch goes on after what is listed now, or a little before it
                try:
                    await self._list()
                    break
                except StoreError as error:
                    log.info("metadata: %s cannot be listed yet: %s", self._prefix, error)
                    await asyncio.sleep(RETRY_S)

    def _apply(self, events: list[Event]) -> None:
        changed = set()
        for event in events:
            key = event.key[len(self._prefix) :]
            known = self.items.get(key)
            if known is not None and event.revision <= known.revision:
                continue  # listed later than it happened
            if event.value is not None:
                self._put(key, event.value, event.revision)
            elif known is None:
                continue
            else:
                del self.items[key]
            changed.add(key)
        if events:
            self.revision = max(self.revision, events[-1].revision)
            self._notify(changed)

    def _put(self, key: str, value: bytes, revision: int) -> None:
        try:
            self.items[key] = Versioned(self._decode(value), revision)
        except (ValueError, TypeError, KeyError) as error:
            self.items.pop(key, None)
            log.warning("metadata: %s%s cannot be read: %s", self._prefix, key, error)

    def _notify(self, changed: set[str]) -> None:
        if changed:
            for listener in list(self.listeners):
                listener(changed)


class ClusterView:
    """Members, drains, chains, owners and loads. `on_change` listeners learn of any change to any of them but loads."""

    def __init__(self, store: SharedStore) -> None:
        self.store = store
        self.members: View[Member] = View(store, MEMBERS, Member.decode)
        self.drains: View[Mapping[str, Any]] = View(store, DRAINS, _mapping)
        self.chains: View[ChainRecord] = View(store, CHAINS, ChainRecord.decode)
        self.owners: View[ChainOwner] = View(store, OWNERS, ChainOwner.decode)
        self.loads: View[Mapping[str, Any]] = View(store, LOADS, _mapping)
        self.on_change: list[Callable[[], None]] = []
        self._views: tuple[View[Any], ...] = (self.members, self.drains, self.chains, self.owners, self.loads)
        for view in self._views[:-1]:
            view.listeners.append(self._changed)

    async def start(self) -> None:
        """Return when all of it has been read. Raises `StoreUnavailable`."""
        await asyncio.gather(*(view.start() for view in self._views))

    async def close(self) -> None:
        """No more changes."""
        for view in self._views:
            await view.close()

    def draining(self, member: Member) -> bool:
        """Whether a member takes nothing new, by its own word or by a drain."""
        return member.draining or any(member.covered_by(target) for target in self.drains.items)

    def with_role(self, role: str) -> list[Member]:
        """Living members of a role, by name."""
        found = (seen.value for _, seen in sorted(self.members.items.items()))
        return [member for member in found if role in member.roles]

    def chain(self, number: int) -> ChainRecord | None:
        """A chain by its number."""
        return self.chains.get(str(number))

    def owner(self, chain: int) -> ChainOwner | None:
        """Who has a chain open, None while nobody has."""
        return self.owners.get(str(chain))

    def _changed(self, keys: set[str]) -> None:
        for listener in list(self.on_change):
            listener()


def _mapping(data: bytes) -> Mapping[str, Any]:
    found = json.loads(data)
    if not isinstance(found, dict):
        raise ValueError("not an object in JSON")
    return found
