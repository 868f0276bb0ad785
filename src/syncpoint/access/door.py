"""Access control of one door, put together from the file of `--auth`.

Place: made by `node` for a server, a worker or a proxy, when there is such a file.
"""

from __future__ import annotations

from pathlib import Path

from syncpoint.access.gate import Gate
from syncpoint.access.policy import Policies
from syncpoint.access.settings import load
from syncpoint.access.tokens import Authenticator
from syncpoint.access.upkeep import AccessUpkeep
from syncpoint.metadata.catalog import Catalog
from syncpoint.runtime.clock import Clock


class Access:
    """The gate of a door, and what keeps it up to date. Raises `InvalidArgument` and `OSError` for a file that can not
    be used."""

    def __init__(self, path: Path, catalog: Catalog, clock: Clock) -> None:
        settings = load(path)
        self.gate = Gate(Authenticator(settings, catalog, clock), Policies(catalog), catalog, clock)
        self._upkeep = AccessUpkeep(path, self.gate)

    async def start(self) -> None:
        """Before the door opens."""
        await self._upkeep.start()

    async def stop(self) -> None:
        """After it has closed."""
        await self._upkeep.stop()
