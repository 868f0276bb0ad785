"""Homes: in which chain's log a query has its epochs, and a link its intervals, as it stands in the metadata.

Place: under a proxy, which chooses a home at first sight, and under the chain that is one.
Promise: a query and its link have one home, whoever asks first: it is written on the condition that there is none. A
chain takes nothing of a query that it does not know before the metadata say that it is at home there, so a proxy that
has looked long ago cannot give a query a second home.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from urllib.parse import quote

from syncpoint.catalog.metadata.contract import Compare, Delete, Put, absent
from syncpoint.catalog.metadata.layout import LINK_HOMES, QUERY_HOMES
from syncpoint.catalog.metadata.store_client import SharedStore, answered, read_all


def query_key(query: str) -> str:
    """The metadata's key of a query."""
    return QUERY_HOMES.key(quote(query, safe=""))


def link_key(link: str) -> str:
    """The metadata's key of a link."""
    return LINK_HOMES.key(quote(link, safe=""))


class Homes:
    """Questions to the metadata. All raise `Unavailable` where they do not answer."""

    def __init__(self, store: SharedStore) -> None:
        self._store = store

    async def chain_at(self, key: str) -> int | None:
        """The chain that a key names; None: it has no home yet."""
        found = await answered(self._store.get(key))
        return None if found is None else int(found.value)

    async def link_chains(self) -> list[int]:
        """The chains in which links are at home."""
        found, _ = await answered(read_all(self._store, LINK_HOMES))
        return sorted({int(item.value) for item in found})

    async def place(self, keys: Sequence[str], chain: int) -> bool:
        """Give all these keys a home, together; False: one of them has one."""
        puts = [Put(key, b"%d" % chain) for key in keys]
        return (await answered(self._store.txn([absent(key) for key in keys], puts))).ok

    async def claim(self, chain: int, keys: Collection[str]) -> set[str]:
        """Write the missing records of keys that a chain's log names; returns those that name another chain."""
        if not keys:
            return set()
        known: dict[str, int] = {}
        for prefix in (QUERY_HOMES, LINK_HOMES):
            items, _ = await answered(read_all(self._store, prefix))
            known |= {item.key: int(item.value) for item in items}
        for key in sorted(key for key in keys if key not in known):
            placed = await self.place([key], chain)
            known[key] = chain if placed else await self.chain_at(key) or 0
        return {key for key in keys if known[key] != chain}

    async def release(self, chain: int, keys: Iterable[str]) -> None:
        """These have no home any more, where it was this chain."""
        for key in keys:
            await answered(self._store.txn([Compare(key, "value", "=", b"%d" % chain)], [Delete(key)]))
