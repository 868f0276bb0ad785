"""A copy of a catalog that is changed by hand, for recorders that follow it."""

from __future__ import annotations

from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import CatalogChange
from syncpoint.cluster.control.solo_ownership import LogCatalog


class ListCatalog(LogCatalog):
    """See the module."""

    def __init__(self, catalog: Catalog | None = None) -> None:
        super().__init__()
        self.catalog = catalog or Catalog()

    def change(self, change: CatalogChange) -> None:
        """Commit a change, and say so."""
        for one in self.catalog.assign([change]):
            self.catalog.apply(one)
            for listener in self.on_change:
                listener(one)
