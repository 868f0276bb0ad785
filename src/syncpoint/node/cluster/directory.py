"""Where chains are, for those who fetch from them: kept from the metadata.

Place: what a subscribe forwarder's gatherer asks (`subscribe.chain_peers.ChainDirectory`), and what proxies route by.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from syncpoint.base.runtime.tasks import Tasks
from syncpoint.catalog.metadata.contract import StoreError
from syncpoint.catalog.metadata.layout import OPEN
from syncpoint.catalog.metadata.store_client import SharedStore
from syncpoint.catalog.metadata.view import ClusterView, View
from syncpoint.cluster.control.registration import registered_chains


class Directory:
    """`on_change` listeners are called when a chain has another owner, or a topic has another chain."""

    def __init__(self, store: SharedStore, view: ClusterView) -> None:
        self._store, self._view = store, view
        self._registered: View[None] = View(store, OPEN, lambda data: None)
        self._registered.listeners.append(self._keys_changed)
        self._chains: dict[int, set[int]] = {}  # by topic
        self._topics: dict[int, set[int]] = {}  # by chain
        self.on_change: list[Callable[[], None]] = []
        self._looking = Tasks()

    async def start(self) -> None:
        """Return when all of it has been read. The view has been started."""
        await self._registered.start()
        self._keys_changed(set(self._registered.items))
        self._view.owners.listeners.append(self._owners_changed)

    async def close(self) -> None:
        """No more changes."""
        self._looking.cancel()
        await self._registered.close()

    def owners(self) -> Mapping[int, str]:
        """Chain -> address of the process that has it open."""
        return {int(key): seen.value.address for key, seen in self._view.owners.items.items()}

    def chains_of(self, topic: int) -> Collection[int]:
        """Chains registered for a topic, as far as it is known here."""
        return self._chains.get(topic, ())

    def topics_of(self, chain: int) -> Collection[int]:
        """Topics that a chain is registered for, as far as it is known here."""
        return self._topics.get(chain, frozenset())

    def read_chains(self, topic: int, reply: Callable[[Collection[int] | None], None]) -> None:
        """Read them anew; None: it cannot be read now."""

        async def read() -> None:
            try:
                found: Collection[int] | None = await registered_chains(self._store, topic)
            except StoreError:
                found = None
            reply(found)

        self._looking.start(read())

    def _keys_changed(self, keys: set[str]) -> None:
        for key in keys:
            topic, _, chain = key.partition("/")
            if key in self._registered.items:
                self._chains.setdefault(int(topic), set()).add(int(chain))
                self._topics.setdefault(int(chain), set()).add(int(topic))
            else:
                left = self._chains.get(int(topic), set())
                left.discard(int(chain))
                self._topics.get(int(chain), set()).discard(int(topic))
                if not left:
                    self._chains.pop(int(topic), None)
        self._notify()

    def _owners_changed(self, keys: set[str]) -> None:
        self._notify()

    def _notify(self) -> None:
        for listener in list(self.on_change):
            listener()
