"""Which metrics a process shows: the collectors of what it has, put together, and where they are read.

Place: one for a node, a worker, and any process of a cluster; each role adds what is measured of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import syncpoint
from syncpoint.broker.publish.chain.chain import Chain
from syncpoint.broker.publish.chain.host import ChainHost
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.broker.recording.recorder import Recorder
from syncpoint.broker.subscribe.subscribe_forwarder import SubscribeForwarder
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.schemas.publishing import SchemaGate
from syncpoint.node.client_port import ClientPort, ServingProcess
from syncpoint.watch.metrics.backlogs import Backlogs
from syncpoint.watch.metrics.call_families import CallRoom, ListenerRoom
from syncpoint.watch.metrics.exposition import Exposition
from syncpoint.watch.metrics.family import RoomCollector
from syncpoint.watch.metrics.family_table import FAMILIES
from syncpoint.watch.metrics.gathered import GatheredText
from syncpoint.watch.metrics.kept_text import MetricsText
from syncpoint.watch.metrics.log_families import LogRoom
from syncpoint.watch.metrics.otlp_export import MetricsExportSettings, export_of
from syncpoint.watch.metrics.process_families import ProcessRoom
from syncpoint.watch.metrics.publish_families import PublishRoom
from syncpoint.watch.metrics.recovery_families import RecoveryRoom
from syncpoint.watch.metrics.risk_families import RiskRoom, WatchedChain
from syncpoint.watch.metrics.scraped_page import serve_metrics
from syncpoint.watch.metrics.service_families import (
    AccessRoom,
    CatalogRoom,
    ConsumptionRoom,
    LetterRoom,
    PreparationRoom,
    RecordingRoom,
)
from syncpoint.watch.metrics.subscription_families import SubscriptionRoom
from syncpoint.wire.transport.calls import Methods
from syncpoint.wire.transport.network import Listening, join_address
from syncpoint.wire.transport.server import Server

CLIENTS = "clients"
OtherWorkers = Callable[[Exposition], GatheredText]


@dataclass
class Measured:
    """What a process has that is measured; the rest is None. `listeners`: by name, what is answered there and the
    listener, once it is open; `watched`: how a chain could lose what it holds; `schemas`: what messages are checked by;
    `recorder`: where deliveries are recorded; `further`: collectors of what only some processes have.
    """

    catalog: Catalog
    listeners: dict[str, tuple[Methods, Callable[[], Listening | None]]] = field(default_factory=dict)
    host: ChainHost | None = None
    watched: Callable[[Chain], WatchedChain] | None = None
    subscribe: SubscribeForwarder | None = None
    streams: Callable[[], Collection[object]] = tuple
    port: ClientPort | None = None
    schemas: SchemaGate | None = None
    recorder: Recorder | None = None
    further: list[RoomCollector] = field(default_factory=list)

    def add_port(self, port: ClientPort, schemas: SchemaGate) -> None:
        """The port for clients."""
        self.port, self.schemas = port, schemas
        self.listeners[CLIENTS] = port.methods, lambda: port.listening


class ProcessMetrics:
    """What a process measures of itself. `name` and `roles`: what it is called there; `address`: a port for the page
    alone, or ""; `others`: gathers the text of a server's other workers, whose samples say which one they are of.
    """

    def __init__(
        self,
        process: ServingProcess,
        name: str,
        roles: Collection[str],
        measured: Measured,
        export: MetricsExportSettings,
        address: str,
        others: OtherWorkers | None = None,
    ) -> None:
        environment = process.environment
        self._environment, self._address, self._shared = environment, address, others is not None
        self._process = ProcessRoom(process.name, tuple(roles))
        rooms = [self._process, *rooms_of(measured, process)]
        label = "" if others is None else name
        self.exposition = Exposition(FAMILIES, rooms, process=label, blocking=environment.blocking)
        self.text: MetricsText = self.exposition
        if others is not None:
            self.text = gathered = others(self.exposition)
            self.exposition.collectors.append(gathered)
        self._export = export_of(
            export, self.exposition, name, syncpoint.__version__, process.clock, environment.blocking
        )
        if self._export is not None:
            self.exposition.collectors.append(self._export)
        self._server: Server | None = None

    async def start(self) -> None:
        """Begin to measure and to export, and open the port, as the settings say. Raises `FailedPrecondition`."""
        if self._environment.measures_itself:
            self._process.start()
        if self._export is not None:
            self._export.start()
        if self._address:
            self._server = await serve_metrics(self.text, self._address, shared=self._shared)

    def listeners(self) -> list[str]:
        """HOST:PORT of the port for the page alone, if there is one."""
        return [] if self._server is None else [join_address(self._server.host, self._server.port)]

    async def stop(self) -> None:
        """Close the port, and measure no more."""
        if self._server is not None:
            await self._server.close()
        if self._export is not None:
            await self._export.stop()
        await self._process.stop()


def rooms_of(measured: Measured, process: ServingProcess) -> list[RoomCollector]:
    """The collectors of what a process has."""
    catalog, host, backlogs = measured.catalog, measured.host, None
    rooms: list[RoomCollector] = [
        CallRoom({name: methods for name, (methods, _) in measured.listeners.items()}),
        ListenerRoom({name: _stats_of(listening) for name, (_, listening) in measured.listeners.items()}),
        *measured.further,
    ]
    if host is not None and measured.watched is not None:
        watch = measured.watched

        def chains() -> dict[int, PublishForwarder]:
            return {number: chain.forwarder for number, chain in host.chains.items()}

        def watched() -> dict[int, WatchedChain]:
            return {number: watch(chain) for number, chain in host.chains.items()}

        def fired() -> dict[int, int]:
            return {n: chain.firing.fired for n, chain in host.chains.items() if chain.firing is not None}

        backlogs = Backlogs(catalog, chains)
        rooms += [PublishRoom(host.context.admission, catalog, chains, fired), LogRoom(chains)]
        rooms.append(RiskRoom(watched, process.environment.clock))
    if measured.subscribe is not None or backlogs is not None:
        rooms.append(SubscriptionRoom(catalog, measured.subscribe, backlogs, lambda: len(measured.streams())))
    if measured.port is not None:
        consumption, access = measured.port.consumption, measured.port.access
        rooms += [
            CatalogRoom(catalog),
            RecoveryRoom(catalog, process.environment.clock),
            ConsumptionRoom(consumption.pushes, consumption.exports, consumption.forwards),
            PreparationRoom(measured.schemas, measured.port.transformer),
            LetterRoom(measured.port.attendant),
        ]
        if access is not None:
            rooms.append(AccessRoom(access.gate))
    if measured.recorder is not None:
        rooms.append(RecordingRoom(measured.recorder))
    return rooms


def _stats_of(listening: Callable[[], Listening | None]) -> Callable[[], Mapping[str, int] | None]:
    def stats() -> Mapping[str, int] | None:
        found = listening()
        return found.stats if isinstance(found, Server) else None

    return stats
