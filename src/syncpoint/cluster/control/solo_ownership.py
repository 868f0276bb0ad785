"""Who owns a chain where nobody else could: one node, whose disks are locked by its process.

Place: beside `ownership_driver`, which claims chains of a cluster in the metadata; what a chain asks of its process is
answered here by what one node knows by itself.
Promise: the chain of a node is the folder it always was. Its number and epoch do not change, the numbers of its logs
come from the disks, and what is known of these lies in the node's own metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from syncpoint.broker.publish.chain.known_disks import Known
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.mirror import Identities
from syncpoint.catalog.metadata.records import CatalogChange

SOLO_CHAIN, SOLO_EPOCH = 0, 0


class LogCatalog:
    """`metadata.catalog.CatalogCopy` of a catalog that lies in the one log: never behind, changed by nobody else."""

    def __init__(self) -> None:
        self.catalog = Catalog()
        self.on_change: list[Callable[[CatalogChange], None]] = []

    async def at(self, revision: int) -> None:
        """Return immediately: the log's catalog is always current."""


class NobodyAsks:
    """`publish.ingress.Registrar` of one node: all topics have this one chain."""

    def __init__(self, shared: LogCatalog) -> None:
        self._shared = shared

    async def register(self, topic: int, chain: int) -> int:
        """The revision of now."""
        return self._shared.catalog.revision

    async def unregister(self, topic: int, chain: int, epoch: int, still: Callable[[], bool]) -> bool:
        """There is nothing to take back."""
        return still()

    async def registered(self, chain: int) -> Collection[int]:
        """Whatever there is."""
        return [record.incarnation for record in self._shared.catalog.topics()]


class OwnDisks:
    """`publish.known_disks.DiskRegistry` in the identities of one node, by folder."""

    def __init__(self, identities: Identities, folders: Sequence[Path]) -> None:
        self._identities, self._folders = identities, folders

    async def known(self, chain: int) -> Known:
        """All that were ever noted, also of folders that are not given any more."""
        return Known(tuple(self._identities.disks.values()))

    async def note(self, chain: int, known: Known, now: Sequence[str]) -> None:
        """The disks that are there."""
        for folder, incarnation in zip(self._folders, now, strict=True):
            if incarnation:
                self._identities.know_disk(str(folder), incarnation)
