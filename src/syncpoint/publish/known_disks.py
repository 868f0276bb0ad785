"""Known disks: which disk identities a chain had when it was last opened, kept in the metadata.

Place: asked before a chain is opened, told after. Disks that were all wiped have nothing to say about what was on them;
without this they would pass for those of a new chain, and everything acknowledged would be gone in silence.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from syncpoint.metadata.contract import Indeterminate, Put
from syncpoint.metadata.contract import Unavailable as StoreUnavailable
from syncpoint.metadata.shared import SharedStore
from syncpoint.model.errors import Unavailable

PREFIX = "disks/"


class KnownDisks:
    """Written by the owner of a chain alone, after its disks have let it in."""

    def __init__(self, store: SharedStore) -> None:
        self._store = store

    async def known(self, chain: int) -> list[str]:
        """Identities (hex) in slot order, "" for a disk that was never there. Raises `Unavailable`."""
        try:
            found = await self._store.get(f"{PREFIX}{chain}")
        except (StoreUnavailable, Indeterminate) as error:
            raise Unavailable(f"The metadata does not answer: {error}") from error
        return [str(one) for one in json.loads(found.value)] if found is not None else []

    async def note(self, chain: int, known: Sequence[str], now: Sequence[str]) -> None:
        """The chain was opened with these; where a disk was missing, what was known of it stays. Raises `Unavailable`,
        and may have written it all the same.
        """
        before = list(known) if len(known) == len(now) else [""] * len(now)
        merged = [new or old for new, old in zip(now, before, strict=True)]
        if merged != list(known):
            try:
                await self._store.txn([], [Put(f"{PREFIX}{chain}", json.dumps(merged).encode())])
            except (StoreUnavailable, Indeterminate) as error:
                raise Unavailable(f"The metadata does not answer: {error}") from error
