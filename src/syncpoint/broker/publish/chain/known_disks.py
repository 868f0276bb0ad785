"""Known disks: which disk identities a chain had when it was last opened, kept in the metadata.

Place: asked before a chain is opened, updated after. Disks that were all wiped have nothing to say about what was on
them; without this they would pass for those of a new chain, and everything acknowledged would be gone in silence.
Promise: written by the owner of a chain alone, after its disks have let it in, and only over what it has read: what an
earlier owner still had under way changes nothing any more.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from syncpoint.base.model.errors import Unavailable
from syncpoint.catalog.metadata.contract import Put, unchanged
from syncpoint.catalog.metadata.layout import KNOWN_DISKS
from syncpoint.catalog.metadata.store_client import SharedStore, answered


class Known(NamedTuple):
    """Identities (hex) in slot order, "" for a disk that was never there, as of a revision of the key (0: absent)."""

    disks: tuple[str, ...] = ()
    revision: int = 0


class DiskRegistry(Protocol):
    """Who remembers them."""

    async def known(self, chain: int) -> Known: ...
    async def note(self, chain: int, known: Known, now: Sequence[str]) -> None: ...


class KnownDisks:
    """Store the disks of each chain as of its last opening."""

    def __init__(self, store: SharedStore) -> None:
        self._store = store

    async def known(self, chain: int) -> Known:
        """What is known of a chain's disks. Raises `Unavailable`."""
        found = await answered(self._store.get(KNOWN_DISKS.key(chain)))
        return Known(tuple(map(str, json.loads(found.value))), found.revision) if found is not None else Known()

    async def note(self, chain: int, known: Known, now: Sequence[str]) -> None:
        """The chain was opened with these; where a disk was missing, what was known of it stays. Raises `Unavailable`,
        and may have written it all the same.
        """
        before = known.disks if len(known.disks) == len(now) else ("",) * len(now)
        merged = tuple(new or old for new, old in zip(now, before, strict=True))
        if merged == known.disks:
            return
        key = KNOWN_DISKS.key(chain)
        put = Put(key, json.dumps(merged).encode())
        if not (await answered(self._store.txn([unchanged(key, known.revision)], [put]))).ok:
            raise Unavailable(f"Another owner of chain {chain} has noted its disks.")
