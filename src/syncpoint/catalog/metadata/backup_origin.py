"""The origin of a backup, checked before a restore removes anything.

Place: beside `backup`. A cluster is recognized by the name in its settings, and by its universe: the number that its
message ids begin with. A restore draws the universe anew, so earlier ones count as well: those that chains carry.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from syncpoint.catalog.metadata.backup import Backup
from syncpoint.catalog.metadata.layout import CHAINS, SETTINGS, UNIVERSE
from syncpoint.catalog.metadata.store_client import SharedStore, read_all


async def differences(store: SharedStore, backup: Backup, name: str) -> list[str]:
    """Why the backup is not of the cluster called `name` whose store this is; empty when it is, or when nothing speaks
    against it: a store that is new has no universe.
    """
    known = {item.key: item.value for item in (await read_all(store, ""))[0]}
    found = []
    theirs = name_of(backup.items)
    if theirs and theirs != name:
        found.append(f"it is of the cluster {theirs!r}, this one is {name!r}")
    ours, others = _universes(known), _universes(backup.items)
    if store.cluster_id != backup.store and ours and others and not ours & others:
        listed = " and ".join(str(one) for one in sorted(others))
        found.append(
            f"its messages are of universe {listed}, those here of {', '.join(str(one) for one in sorted(ours))}"
        )
    return found


def name_of(items: Mapping[str, bytes]) -> str:
    """The name of a cluster, as its settings say it; empty when they are not there."""
    found = items.get(SETTINGS)
    return str(json.loads(found).get("name", "")) if found is not None else ""


def _universes(items: Mapping[str, bytes]) -> set[int]:
    """The one that ids are given in now, and those of older chains."""
    of_chains = {int(json.loads(value).get("universe", 0)) for key, value in items.items() if key.startswith(CHAINS)}
    return {int(items.get(UNIVERSE, b"0")), *of_chains} - {0}
