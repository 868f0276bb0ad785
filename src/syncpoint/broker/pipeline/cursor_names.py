"""Which cursors a topic of a cluster has, by name: one setting of the catalog for each topic that has any.

Place: written by proxies before a cursor exists anywhere, read by chains. Each chain keeps the cursor for its own
sources; one that takes its first message of the topic later learns its name with the catalog, which it reads anew when
it registers for the topic, and begins the cursor before that message.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from syncpoint.broker.pipeline.cursors import CursorLimits
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import CatalogChange, Setting

PREFIX = "cursors/"


def cursors_of(catalog: Catalog, topic: int) -> dict[str, CursorLimits]:
    """Names and limits of a topic's cursors, by the topic's incarnation."""
    stored = catalog.setting(f"{PREFIX}{topic}")
    return {} if stored is None else {name: CursorLimits(*limits) for name, limits in json.loads(stored).items()}


def put(topic: int, cursors: Mapping[str, CursorLimits]) -> CatalogChange:
    """The change that makes these the topic's cursors."""
    name = f"{PREFIX}{topic}"
    if not cursors:
        return CatalogChange.delete(Setting(name))
    return CatalogChange.put(Setting(name, json.dumps(cursors, sort_keys=True).encode()))


def topics_with_cursors(catalog: Catalog) -> list[int]:
    """Incarnations of topics that have or had cursors."""
    return [int(name.removeprefix(PREFIX)) for name in catalog.settings_named(PREFIX)]
