"""One running node: a process with all roles, over one chain on disks of its own.

Order of start: the data folder, the chain (storage recovers the log, epochs that were decided and not finished are),
subscribe forwarder, the parts behind the port, upkeep, and last the port: `ready` is only said when it answers. Order
of stop: streams are asked to go elsewhere, open calls finish, a last checkpoint is written, the log is sealed.
"""

from __future__ import annotations

from syncpoint.broker.publish.chain.chain import Chain
from syncpoint.cluster.control.failure_domains import FailureDomains, PlacedDisk, PlacedProcess
from syncpoint.front.api.node_admin import SERVER
from syncpoint.node.node_environment import NodeEnvironment
from syncpoint.node.process import Process, Role
from syncpoint.node.process_metrics import CLIENTS, Measured, ProcessMetrics
from syncpoint.node.settings import ServeSettings
from syncpoint.node.solo.client_role import ClientRole
from syncpoint.node.solo.delivery_role import DeliveryRole
from syncpoint.node.solo.log_role import LogRole
from syncpoint.node.solo.solo_context import NODE, SoloContext
from syncpoint.watch.metrics.risk_families import WatchedChain
from syncpoint.watch.monitor.scrape_sources import TextSource


class Node(Process[Role]):
    """A server in one process. `endpoint`: HOST:PORT for clients."""

    def __init__(self, settings: ServeSettings, environment: NodeEnvironment | None = None) -> None:
        self.common = context = SoloContext(settings, environment or NodeEnvironment())
        self.log = LogRole(context)
        self.deliveries = DeliveryRole(context, self.log)
        self.clients = ClientRole(context, self.log, self.deliveries)
        super().__init__(context, {"log": self.log, "deliveries": self.deliveries, "clients": self.clients})
        context.opened = lambda: [self.endpoint, *self.metrics.listeners()]

    @property
    def endpoint(self) -> str:
        return self.clients.port.address

    def measured(self) -> ProcessMetrics:
        """All of it."""
        common, port = self.common, self.clients.port
        found = Measured(
            self.log.control.catalog,
            {CLIENTS: (port.methods, lambda: port.listening)},
            self.log.host,
            _watched,
            self.deliveries.forwarder,
            lambda: self.deliveries.streams.streams,
            port,
            self.clients.schemas,
            common.recorder,
        )
        return ProcessMetrics(common, NODE, (NODE,), found, common.settings.metrics_export, common.settings.metrics)

    async def watch(self) -> None:
        """Over itself."""
        settings, own = self.common.settings, TextSource(NODE, self.metrics.text.text, fresh=True)
        await self.common.monitor.start(settings.data, settings.monitor, lambda: [own])

    async def unwatch(self) -> None:
        """Look no more."""
        await self.common.monitor.stop()


def _watched(chain: Chain) -> WatchedChain:
    disks = [str(one.path) for one in chain.store.status().disks]
    domains = FailureDomains([PlacedDisk(one, one) for one in disks], [PlacedProcess(SERVER)])
    return WatchedChain(chain.forwarder, disks, domains, SERVER)
