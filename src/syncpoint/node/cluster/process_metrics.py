"""Which metrics a process of a cluster, or a worker, shows: the collectors of its roles, put together, and where they
are read.

Place: used by `process`, beside `node.metrics_rooms`, which does it for a node.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final

import syncpoint
from syncpoint.broker.publish.chain.chain import Chain
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.cluster.control.failure_domains import domains_of_chain
from syncpoint.node.cluster.proxy_role import ProxyRole
from syncpoint.node.cluster.publish_role import PublishRole
from syncpoint.node.cluster.router_role import RouterRole
from syncpoint.node.cluster.storage_role import StorageRole
from syncpoint.node.cluster.subscribe_role import SubscribeRole
from syncpoint.watch.metrics.backlogs import Backlogs
from syncpoint.watch.metrics.call_families import CallRoom, ListenerRoom
from syncpoint.watch.metrics.exposition import Exposition
from syncpoint.watch.metrics.family import RoomCollector
from syncpoint.watch.metrics.family_table import FAMILIES
from syncpoint.watch.metrics.gathered import GatheredText
from syncpoint.watch.metrics.log_families import LogRoom
from syncpoint.watch.metrics.otlp_export import export_of
from syncpoint.watch.metrics.process_families import ProcessRoom
from syncpoint.watch.metrics.publish_families import PublishRoom
from syncpoint.watch.metrics.risk_families import RiskRoom, WatchedChain
from syncpoint.watch.metrics.role_families import (
    GATHERING,
    MITIGATION,
    PROXY,
    ROUTER,
    ChainDiskRoom,
    DiskServerRoom,
    HeadroomRoom,
    MemberRoom,
    StatusRoom,
    gathering,
)
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
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal
from syncpoint.wire.protobuf.serving import served
from syncpoint.wire.transport.calls import Methods
from syncpoint.wire.transport.network import Listening, join_address
from syncpoint.wire.transport.server import Server

if TYPE_CHECKING:
    from syncpoint.node.cluster.process import ClusterProcess

ASK_S: Final = 1.0
CLIENTS, MEMBERS = "clients", "members"


class ProcessMetrics:
    """What a process measures of itself. Made once the roles are started; `methods`: what members may call."""

    def __init__(self, process: ClusterProcess, methods: Methods) -> None:
        self._process, self._common = process, process.common
        settings, common = process.process, process.common
        one_server = process.environment.one_server
        self._measured = ProcessRoom(settings.name, settings.roles)
        rooms: list[RoomCollector] = [self._measured, *process_rooms(process, methods)]
        self.members = next(one for one in rooms if isinstance(one, MemberRoom))
        self.exposition = Exposition(
            FAMILIES,
            rooms,
            process=settings.name if one_server else "",
            blocking=process.environment.blocking,
        )
        common.metrics = self.exposition
        if one_server:
            common.metrics = gathered = GatheredText(
                self.exposition, self._others, self._ask, process.environment.blocking
            )
            self.exposition.collectors.append(gathered)
        self._export = export_of(
            common.settings.metrics_export,
            self.exposition,
            settings.name,
            syncpoint.__version__,
            common.clock,
            process.environment.blocking,
        )
        if self._export is not None:
            self.exposition.collectors.append(self._export)
        self._server: Server | None = None

    def methods(self) -> Methods:
        """What other processes may call."""
        return served({methods.PROCESS.GetMetrics: self._answer})

    async def start(self) -> None:
        """Begin to measure and to export, and open the port, as the settings say. Raises `FailedPrecondition`."""
        environment, address = self._process.environment, self._process.process.metrics
        if environment.measures_itself:
            self._measured.start()
        if self._export is not None:
            self._export.start()
        if address:
            self._server = await serve_metrics(self._common.metrics, address, shared=environment.one_server)

    def listeners(self) -> list[str]:
        """HOST:PORT of the port for the page alone, if there is one."""
        return [] if self._server is None else [join_address(self._server.host, self._server.port)]

    async def stop(self) -> None:
        """Close the port, and measure no more."""
        if self._server is not None:
            await self._server.close()
        if self._export is not None:
            await self._export.stop()
        await self._measured.stop()

    async def _answer(self, asked: internal.MetricsRequest) -> internal.MetricsResponse:
        return internal.MetricsResponse(text=await self.exposition.text())

    def _others(self) -> Mapping[str, str]:
        members = [seen.value for seen in self._common.view.members.items.values()]
        return {one.name: one.address for one in members if one.name != self._process.process.name}

    async def _ask(self, address: str) -> bytes:
        answer = await self._common.peers.call(address, methods.PROCESS.GetMetrics, b"", timeout_s=ASK_S)
        return internal.MetricsResponse.FromString(answer).text


def process_rooms(process: ClusterProcess, methods: Methods) -> list[RoomCollector]:
    """The collectors of all roles of a process."""
    common = process.common
    tables: dict[str, Methods] = {MEMBERS: methods}
    stats: dict[str, Callable[[], Mapping[str, int] | None]] = {MEMBERS: lambda: _stats(process.listening)}
    rooms: list[RoomCollector] = []
    publish, subscribe = process.roles.get("publish-forwarder"), process.roles.get("subscribe-forwarder")
    proxy, router = process.roles.get("proxy"), process.roles.get("router")
    storage = process.roles.get("storage")
    opened: Callable[[], Collection[int]] = tuple
    backlogs: Backlogs | None = None
    if isinstance(publish, PublishRole):
        host = publish.host

        def chains() -> dict[int, PublishForwarder]:
            return {number: chain.forwarder for number, chain in host.chains.items()}

        def watched() -> dict[int, WatchedChain]:
            return {number: _watched(chain, process.process.name) for number, chain in host.chains.items()}

        def fired() -> dict[int, int]:
            return {n: chain.firing.fired for n, chain in host.chains.items() if chain.firing is not None}

        opened, backlogs = host.chains.keys, Backlogs(common.catalog, chains)
        rooms += [PublishRoom(host.context.admission, common.catalog, chains, fired), LogRoom(chains)]
        rooms.append(RiskRoom(watched, process.environment.clock))
        rooms.append(ChainDiskRoom(lambda: [chain.record for chain in host.chains.values()]))
    if isinstance(subscribe, SubscribeRole):
        streams, gatherer = subscribe.streams, subscribe.gatherer
        rooms += [
            SubscriptionRoom(common.catalog, subscribe.forwarder, backlogs, lambda: len(streams.streams)),
            StatusRoom("gathering", GATHERING, lambda: gathering(gatherer.status())),
        ]
    elif backlogs is not None:
        rooms.append(SubscriptionRoom(common.catalog, None, backlogs, int))
    if isinstance(proxy, ProxyRole):
        tables[CLIENTS], stats[CLIENTS] = proxy.client_methods, lambda: _stats(proxy.listening)
        rooms += [
            StatusRoom("proxy", PROXY, proxy.proxy.status),
            CatalogRoom(common.catalog),
            ConsumptionRoom(
                proxy.consumption.pushes.driver, proxy.consumption.exports.driver, proxy.consumption.forwards.driver
            ),
            PreparationRoom(proxy.proxy.publisher.schemas, proxy.proxy.transformer),
            LetterRoom(proxy.attendant),
        ]
        if proxy.access is not None:
            rooms.append(AccessRoom(proxy.access.gate))
    if publish is not None or subscribe is not None:
        rooms.append(RecordingRoom(common.recording.recorder))
    if isinstance(router, RouterRole):
        rooms.append(StatusRoom("router", ROUTER, router.service.status))
        rooms.append(StatusRoom("mitigation", MITIGATION, router.mitigation.status))
        rooms.append(HeadroomRoom(common.view, lambda: router.service.leads))
    if isinstance(storage, StorageRole):
        rooms.append(DiskServerRoom(storage.status))
    return [
        MemberRoom(common.view, process.process.name, lambda: process.is_member, opened),
        CallRoom(tables),
        ListenerRoom(stats),
        *rooms,
    ]


def _watched(chain: Chain, owner: str) -> WatchedChain:
    disks = [f"/{place.cluster}/{place.disk}" for place in chain.record.places]
    return WatchedChain(chain.forwarder, disks, domains_of_chain(chain.record, owner), owner)


def _stats(listening: Listening | None) -> Mapping[str, int] | None:
    return listening.stats if isinstance(listening, Server) else None
