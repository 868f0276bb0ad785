"""One running node: a process with all roles, over one chain on disks of its own.

Order of start: the data folder, the chain (storage recovers the log, epochs that were decided and not finished are),
subscribe forwarder, the services of the port, upkeep, and last the port: `ready` is only said when it answers. Order
of stop: streams are asked to go elsewhere, open calls finish, a last checkpoint is written, the log is sealed.
"""

from __future__ import annotations

from syncpoint.base.model.cluster import PUBLISH, SUBSCRIBE
from syncpoint.node.node_environment import NodeEnvironment
from syncpoint.node.process import Process
from syncpoint.node.process_metrics import CLIENTS, ProcessMetrics
from syncpoint.node.publish_role import PublishRole
from syncpoint.node.settings import ServeSettings
from syncpoint.node.solo.client_role import ClientRole
from syncpoint.node.solo.own_chain import OwnChain, OwnLog
from syncpoint.node.solo.solo_context import NODE, SoloContext
from syncpoint.node.subscribe_role import SubscribeRole
from syncpoint.watch.monitor.scrape_sources import TextSource


class Node(Process):
    """A server in one process. `endpoint`: HOST:PORT for clients."""

    def __init__(self, settings: ServeSettings, environment: NodeEnvironment | None = None) -> None:
        self.common = context = SoloContext(settings, environment or NodeEnvironment())
        self.log = OwnChain(context)
        self.deliveries = SubscribeRole(context, OwnLog(context, self.log))
        self.clients = ClientRole(context, self.log, self.deliveries)
        publish = PublishRole(context, self.log)
        super().__init__(context, {PUBLISH: publish, SUBSCRIBE: self.deliveries, CLIENTS: self.clients})
        context.opened = lambda: [self.endpoint, *self.metrics.listeners()]

    @property
    def endpoint(self) -> str:
        return self.clients.port.address

    def measured(self) -> ProcessMetrics:
        settings = self.common.settings
        return ProcessMetrics(self.common, NODE, (NODE,), self.collect(), settings.metrics_export, settings.metrics)

    async def watch(self) -> None:
        """Over itself."""
        settings, own = self.common.settings, TextSource(NODE, self.metrics.text.text, fresh=True)
        await self.common.monitor.start(settings.data, settings.monitor, lambda: [own])

    async def unwatch(self) -> None:
        """Look no more."""
        await self.common.monitor.stop()
