"""Which metrics a node shows: the collectors of its rooms, put together.

Place: used by `process`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.routing import BaseRoute

import syncpoint
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.cluster.control.failure_domains import FailureDomains, PlacedDisk, PlacedProcess
from syncpoint.cluster.control.solo_ownership import SOLO_CHAIN
from syncpoint.front.api.node_admin import SERVER
from syncpoint.watch.metrics.backlogs import Backlogs
from syncpoint.watch.metrics.call_families import CallRoom, ListenerRoom
from syncpoint.watch.metrics.exposition import Exposition
from syncpoint.watch.metrics.family import RoomCollector
from syncpoint.watch.metrics.family_table import FAMILIES
from syncpoint.watch.metrics.log_families import LogRoom
from syncpoint.watch.metrics.otlp_export import OtlpMetrics, export_of
from syncpoint.watch.metrics.process_families import ProcessRoom
from syncpoint.watch.metrics.publish_families import PublishRoom
from syncpoint.watch.metrics.risk_families import RiskRoom, WatchedChain
from syncpoint.watch.metrics.scraped_page import metrics_page, serve_metrics
from syncpoint.watch.metrics.service_families import (
    AccessRoom,
    CatalogRoom,
    ConsumptionRoom,
    LetterRoom,
    PreparationRoom,
    RecordingRoom,
)
from syncpoint.watch.metrics.subscription_families import SubscriptionRoom
from syncpoint.wire.transport.network import join_address
from syncpoint.wire.transport.server import Server

if TYPE_CHECKING:
    from syncpoint.node.process import Node

LISTENER = "clients"


class NodeMetrics:
    """What a node measures of itself, its page on the port for clients, and the port for the page alone."""

    def __init__(self) -> None:
        self.process = ProcessRoom("", ("node",))
        self.exposition: Exposition
        self._server: Server | None = None
        self._export: OtlpMetrics | None = None

    def page(self, node: Node) -> BaseRoute:
        """For the port that clients use; behind access control it asks who calls."""
        self.exposition = node_metrics(node, self.process)
        return metrics_page(self.exposition, None if node.access is None else node.access.gate)

    async def start(self, node: Node) -> None:
        """Begin to measure and to export, and open the port, as the settings say. Raises `FailedPrecondition`."""
        settings, environment = node.settings, node.environment
        self._export = export_of(
            settings.metrics_export, self.exposition, "node", syncpoint.__version__, node.clock, environment.blocking
        )
        if self._export is not None:
            self.exposition.collectors.append(self._export)
            self._export.start()
        if environment.measures_itself:
            self.process.start()
        if settings.metrics:
            self._server = await serve_metrics(self.exposition, settings.metrics)

    def listeners(self) -> list[str]:
        """HOST:PORT of the port for the page alone, if there is one."""
        return [] if self._server is None else [join_address(self._server.host, self._server.port)]

    async def stop(self) -> None:
        """Close the port, and measure no more."""
        if self._server is not None:
            await self._server.close()
        if self._export is not None:
            await self._export.stop()
        await self.process.stop()


def node_metrics(node: Node, process: ProcessRoom) -> Exposition:
    """All of a node's; its parts have to be there, its listener need not."""
    catalog = node.control.catalog

    def chains() -> dict[int, PublishForwarder]:
        return {SOLO_CHAIN: node.publish}

    def watched() -> dict[int, WatchedChain]:
        disks = [str(one.path) for one in node.store.status().disks]
        domains = FailureDomains([PlacedDisk(one, one) for one in disks], [PlacedProcess(SERVER)])
        return {SOLO_CHAIN: WatchedChain(node.publish, disks, domains, SERVER)}

    def fired() -> dict[int, int]:
        firing = node.chain.firing
        return {SOLO_CHAIN: 0 if firing is None else firing.fired}

    def stats() -> dict[str, int] | None:
        return node.server.stats if isinstance(node.server, Server) else None

    rooms: list[RoomCollector] = [
        process,
        CallRoom({LISTENER: node.methods}),
        ListenerRoom({LISTENER: stats}),
        PublishRoom(node.publish.admission, catalog, chains, fired),
        LogRoom(chains),
        RiskRoom(watched, node.clock),
        SubscriptionRoom(catalog, node.subscribe, Backlogs(catalog, chains), lambda: len(node.streams.streams)),
        CatalogRoom(catalog),
        ConsumptionRoom(
            node.consumption.pushes.driver, node.consumption.exports.driver, node.consumption.forwards.driver
        ),
        PreparationRoom(node.schema_gate, node.transformer),
        LetterRoom(node.attendant),
        RecordingRoom(node.recorder),
    ]
    if node.access is not None:
        rooms.append(AccessRoom(node.access.gate))
    return Exposition(FAMILIES, rooms, blocking=node.environment.blocking)
