"""Which metrics a node shows: the collectors of its rooms, put together.

Place: used by `process`; a process of a cluster has its own list, in `cluster/metrics_rooms`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncpoint.control.solo_ownership import SOLO_CHAIN
from syncpoint.metrics.backlogs import Backlogs
from syncpoint.metrics.call_families import CallRoom, ListenerRoom
from syncpoint.metrics.exposition import Exposition
from syncpoint.metrics.family import RoomCollector
from syncpoint.metrics.log_families import LogRoom
from syncpoint.metrics.process_families import ProcessRoom
from syncpoint.metrics.publish_families import PublishRoom
from syncpoint.metrics.service_families import (
    AccessRoom,
    CatalogRoom,
    ConsumptionRoom,
    LetterRoom,
    PreparationRoom,
)
from syncpoint.metrics.subscription_families import SubscriptionRoom
from syncpoint.metrics.table import FAMILIES
from syncpoint.publish.forwarder import PublishForwarder
from syncpoint.transport.server import Server

if TYPE_CHECKING:
    from syncpoint.node.process import Node

LISTENER = "clients"


def node_metrics(node: Node, process: ProcessRoom) -> Exposition:
    """All of a node's; its parts have to be there, its listener need not."""
    catalog, most = node.control.catalog, node.settings.metrics_top

    def chains() -> dict[int, PublishForwarder]:
        return {SOLO_CHAIN: node.publish}

    def fired() -> dict[int, int]:
        firing = node.chain.firing
        return {SOLO_CHAIN: 0 if firing is None else firing.fired}

    def stats() -> dict[str, int] | None:
        return node.server.stats if isinstance(node.server, Server) else None

    rooms: list[RoomCollector] = [
        process,
        CallRoom({LISTENER: node.methods}),
        ListenerRoom({LISTENER: stats}),
        PublishRoom(node.publish.admission, catalog, chains, fired, most),
        LogRoom(chains),
        SubscriptionRoom(catalog, node.subscribe, Backlogs(catalog, chains), lambda: len(node.streams.streams), most),
        CatalogRoom(catalog),
        ConsumptionRoom(node.consumption.pushes.driver, node.consumption.exports.driver),
        PreparationRoom(node.schema_gate, node.transformer),
        LetterRoom(node.attendant),
    ]
    if node.access is not None:
        rooms.append(AccessRoom(node.access.gate))
    return Exposition(FAMILIES, rooms, blocking=node.environment.blocking)
