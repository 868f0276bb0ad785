"""The storage role: this process's disks, served to the owners of chains."""

from __future__ import annotations

import logging
from typing import Any

from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.log.diskserver.disk_server import DiskServer, DiskServerSettings, serve_disks
from syncpoint.log.diskserver.fencing import CHAINS
from syncpoint.node.cluster.context import ClusterContext
from syncpoint.node.cluster.settings import ProcessSettings
from syncpoint.node.process import Role
from syncpoint.node.process_metrics import Measured
from syncpoint.watch.metrics.role_families import DiskServerRoom
from syncpoint.wire.transport.network import address_called, split_address

log = logging.getLogger(__name__)


def announce_new(process: ProcessSettings) -> None:
    """Say which disks hold no chains. Where none may be new, raises `FailedPrecondition` before it writes."""
    for name, folder in process.disks.items():
        if (folder / CHAINS).exists():
            continue
        if process.require_disks:
            raise FailedPrecondition(
                f"disk {name} at {folder} has no {CHAINS} folder: it is new, was wiped, or is not mounted. Mount the"
                " right disk. To accept a new disk, start once without `require_disks`."
            )
        log.warning(
            "disk %s at %s is new: it has no chains; they are restored from the other disks if possible",
            name,
            folder,
        )


class StorageRole(Role):
    """Serve disks to chains. `diskserver` handles epochs and fencing."""

    def __init__(self, context: ClusterContext) -> None:
        self._context = context

    async def start(self) -> None:
        """Serve the disks at `disk_address`. Raises `OSError`, `FailedPrecondition`."""
        process = self._context.process
        announce_new(process)
        host, port = split_address(process.disks_listen)
        tls = self._context.environment.tls.server() if self._context.environment.tls is not None else None
        settings = DiskServerSettings(process.disks, host, port, tls=tls, require_disks=process.require_disks)
        self._server: DiskServer = await serve_disks(settings)
        self.disk_address = address_called(process.disks_listen, *split_address(self._server.address))

    async def stop(self) -> None:
        """Owners notice by themselves."""
        await self._server.stop()

    def hang_up(self) -> None:
        """Have everybody connect again, and show a certificate that is trusted now."""
        self._server.hang_up()

    def status(self) -> dict[str, Any]:
        return self._server.status()

    def measure(self, found: Measured) -> None:
        found.further.append(DiskServerRoom(self.status))
