"""What a process of a cluster, or a worker, has that is measured, by its roles.

Place: over `node.process_metrics`, which shows it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, Protocol

from syncpoint.broker.publish.chain.chain import Chain
from syncpoint.cluster.control.failure_domains import domains_of_chain
from syncpoint.node.cluster.context import ClusterContext
from syncpoint.node.cluster.proxy_role import ProxyRole
from syncpoint.node.cluster.publish_role import PublishRole
from syncpoint.node.cluster.router_role import RouterRole
from syncpoint.node.cluster.storage_role import StorageRole
from syncpoint.node.cluster.subscribe_role import SubscribeRole
from syncpoint.node.process_metrics import CLIENTS, Measured
from syncpoint.watch.metrics.exposition import Exposition
from syncpoint.watch.metrics.gathered import GatheredText
from syncpoint.watch.metrics.risk_families import WatchedChain
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
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal
from syncpoint.wire.transport.calls import Methods
from syncpoint.wire.transport.network import Listening

ASK_S: Final = 1.0
MEMBERS: Final = "members"


class CalledProcess(Protocol):
    """The process that has the roles; `listening`: where members call it, once that is open."""

    listening: Listening | None

    @property
    def is_member(self) -> bool: ...


def measured_roles(
    context: ClusterContext, roles: Mapping[str, object], internal_methods: Methods, process: CalledProcess
) -> tuple[Measured, MemberRoom]:
    """What there is, once the roles are started, and the collector of what is known of the other members.
    `internal_methods`: what members may call."""
    found = Measured(context.catalog, {MEMBERS: (internal_methods, lambda: process.listening)})
    publish, subscribe = roles.get("publish-forwarder"), roles.get("subscribe-forwarder")
    proxy, router, storage = roles.get("proxy"), roles.get("router"), roles.get("storage")
    opened: Collection[int] = ()
    if isinstance(publish, PublishRole):
        chains = publish.host.chains
        opened, found.host, found.watched = chains.keys(), publish.host, lambda chain: _watched(chain, context.name)
        found.further.append(ChainDiskRoom(lambda: [chain.record for chain in chains.values()]))
    if isinstance(subscribe, SubscribeRole):
        streams, gatherer = subscribe.streams, subscribe.gatherer
        found.subscribe, found.streams = subscribe.forwarder, lambda: streams.streams
        found.further.append(StatusRoom("gathering", GATHERING, lambda: gathering(gatherer.status())))
    if isinstance(proxy, ProxyRole):
        port = found.port = proxy.port
        found.listeners[CLIENTS], found.schemas = (port.methods, lambda: port.listening), proxy.proxy.publisher.schemas
        found.further.append(StatusRoom("proxy", PROXY, proxy.proxy.status))
    if publish is not None or subscribe is not None:
        found.recorder = context.recording.recorder
    if isinstance(router, RouterRole):
        found.further.append(StatusRoom("router", ROUTER, router.service.status))
        found.further.append(StatusRoom("mitigation", MITIGATION, router.mitigation.status))
        found.further.append(HeadroomRoom(context.view, lambda: router.service.leads))
    if isinstance(storage, StorageRole):
        found.further.append(DiskServerRoom(storage.status))
    members = MemberRoom(context.view, context.name, lambda: process.is_member, lambda: opened)
    found.further.append(members)
    return found, members


def _watched(chain: Chain, owner: str) -> WatchedChain:
    disks = [f"/{place.cluster}/{place.disk}" for place in chain.record.places]
    return WatchedChain(chain.forwarder, disks, domains_of_chain(chain.record, owner), owner)


def other_workers(context: ClusterContext, own: Exposition) -> GatheredText:
    """The text of all workers of this server."""

    def others() -> Mapping[str, str]:
        members = [seen.value for seen in context.view.members.items.values()]
        return {one.name: one.address for one in members if one.name != context.name}

    async def ask(address: str) -> bytes:
        answer = await context.peers.call(address, methods.PROCESS.GetMetrics, b"", timeout_s=ASK_S)
        return internal.MetricsResponse.FromString(answer).text

    return GatheredText(own, others, ask, context.environment.blocking)
