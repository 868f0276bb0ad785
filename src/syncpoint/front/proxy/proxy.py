"""The proxy, put together: what a process with this role needs, and the methods it serves to clients.

Place: made by `node`, from parts that other rooms share with it. Stateless but for what can be looked up again: any
number of proxies run, and a client may use any of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from syncpoint.base.model.cluster import Member
from syncpoint.base.model.errors import Unavailable
from syncpoint.base.model.flow import FlowLimits
from syncpoint.base.runtime.child_processes import Apart, at_once
from syncpoint.base.runtime.clock import Clock, SystemClock
from syncpoint.base.runtime.random import SystemRandom
from syncpoint.broker.pipeline.homes import Homes
from syncpoint.broker.router.cluster_inputs import decode_rule
from syncpoint.broker.router.distance import Distances
from syncpoint.broker.router.routing_rules import RoutingRule
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.layout import CONSTRAINTS
from syncpoint.catalog.metadata.records import CatalogChange
from syncpoint.catalog.metadata.store_client import SharedStore
from syncpoint.catalog.metadata.view import ClusterView, View
from syncpoint.catalog.transforms.message_transforms import Transformer
from syncpoint.catalog.transforms.publish_requests import PublishTransforms
from syncpoint.cluster.control.cluster_queries import ClusterQueries
from syncpoint.cluster.control.peer_channels import PeerChannels
from syncpoint.front.api.health import HealthService
from syncpoint.front.api.reflection import PIPELINES, SERVICES, reflection_methods
from syncpoint.front.proxy.cancellable_calls import CancellableCalls
from syncpoint.front.proxy.exclusive_readers import ClusterReaders
from syncpoint.front.proxy.failure_detector import FailureDetector
from syncpoint.front.proxy.pipeline_acks import ClusterAcks
from syncpoint.front.proxy.pipeline_chains import ChainCalls, Relays
from syncpoint.front.proxy.pipeline_cursors import ClusterCursors, Commit
from syncpoint.front.proxy.pipeline_reading import ClusterReader
from syncpoint.front.proxy.pipeline_writing import ClusterWriter
from syncpoint.front.proxy.publisher import ClusterPublisher
from syncpoint.front.proxy.pull_relays import PullRelays
from syncpoint.front.proxy.route_cache import RouteCache
from syncpoint.front.proxy.route_client import RouteClient
from syncpoint.front.proxy.sealing import Sealer
from syncpoint.front.proxy.subscription_routing import SubscriptionRouting
from syncpoint.front.proxy.unary_relay import UnaryRelay
from syncpoint.wire.transport.calls import Methods, Streaming, Unary


async def _refused(changes: Sequence[CatalogChange]) -> None:
    raise Unavailable("This proxy cannot change the catalog. Send the request to another proxy of the cluster.")


@dataclass(frozen=True)
class ProxyCluster:
    """The cluster as this process, `me`, sees and changes it. `view` and the catalog's copy are started by the caller
    that made them; `refresh` lets the copy catch up with what others have changed; `commit` changes the catalog.
    `spanning`: durability classes whose disks may lie in several regions; `universe`: the number of the installation.
    """

    me: Member
    view: ClusterView
    catalog: Catalog
    store: SharedStore
    peers: PeerChannels
    refresh: Callable[[], Awaitable[None]]
    commit: Commit = _refused
    spanning: Set[str] = frozenset()
    universe: int = 0


@dataclass(frozen=True)
class MessageHandling:
    """What is done to messages on their way: limited, sealed, transformed; `apart` does what takes longer."""

    limits: FlowLimits
    sealer: Sealer | None = None
    transformer: Transformer = field(default_factory=lambda: Transformer.of({}))
    apart: Apart = at_once


class Proxy:
    """One proxy. `distances` of regions are measured by the caller that made them."""

    def __init__(
        self, cluster: ProxyCluster, handling: MessageHandling, distances: Distances, clock: Clock | None = None
    ) -> None:
        clock = clock or SystemClock()
        me, view, catalog, store, peers = cluster.me, cluster.view, cluster.catalog, cluster.store, cluster.peers
        self.transformer, self.sealer = handling.transformer, handling.sealer
        self._rules: View[RoutingRule] = View(store, CONSTRAINTS, decode_rule)
        self.routes = RouteCache(view, me, distances.order, rules=self._rules, spanning=cluster.spanning)
        distances.on_change.append(self.routes.changed)
        self.route_client = RouteClient(self.routes, peers, store, name=me.name)
        self.detector = FailureDetector(peers)
        self.calls = CancellableCalls(peers, self.detector)
        self.publisher = ClusterPublisher(
            catalog,
            self.routes,
            self.route_client,
            self.calls,
            sender=me.incarnation,
            limits=handling.limits,
            refresh=cluster.refresh,
            sealer=self.sealer,
            apart=handling.apart,
            transforms=PublishTransforms(self.transformer, clock, SystemRandom()),
        )
        serving = SubscriptionRouting(catalog, self.routes, self.route_client, cluster.refresh)
        spread = int.from_bytes(hashlib.blake2b(me.name.encode(), digest_size=4).digest(), "big")
        self.relay = UnaryRelay(serving, self.calls, sealer=self.sealer, transformer=self.transformer, spread=spread)
        self.streams = PullRelays(
            serving, self.relay, peers, self.detector, self.sealer, f"{me.name}/{me.incarnation:x}"
        )
        self._relays = Relays()
        chains = ChainCalls(view, peers, catalog)
        self.cursors = ClusterCursors(catalog, store, chains, cluster.commit)
        self.reader = ClusterReader(
            catalog,
            store,
            chains,
            self._relays,
            self.cursors,
            ClusterReaders(catalog, cluster.commit, ClusterQueries(view, peers), clock),
            cluster.refresh,
            universe=cluster.universe,
            region=me.region,
            sealer=self.sealer,
        )
        self.writer = ClusterWriter(
            catalog, Homes(store), chains, self._relays, self.routes, cluster.refresh, sealer=self.sealer
        )
        self.acks = ClusterAcks(catalog, store, chains, Homes(store), cluster.refresh)
        self.health = HealthService()
        self.detector.on_suspect = self._suspected
        view.on_change.append(self._forget_the_dead)

    def methods(self, *control: Methods) -> Methods:
        """What clients may call. `control`: the methods of the control plane, which run in this process, too."""
        table: dict[bytes, Unary | Streaming] = {}
        for methods in (
            self.publisher.methods(),
            self.relay.methods(),
            self.streams.methods(),
            self.reader.methods(),
            self.writer.methods(),
            self.acks.methods(),
            *control,
            self.health.methods(),
            reflection_methods((*SERVICES, *PIPELINES)),
        ):
            table.update(methods)
        return table

    def internal_methods(self) -> Methods:
        """Laid over `methods` at the listener for other processes of the cluster."""
        return self.publisher.internal_methods()

    async def start(self) -> None:
        """Begin to follow routers and rules. Raises `StoreUnavailable`."""
        await self._rules.start()
        self.route_client.start()

    def drain(self) -> None:
        """Before the server drains: notify clients and balancers that there are other proxies."""
        self.health.stop()
        self.relay.drain()

    async def stop(self) -> None:
        """After the server has closed: leave nothing running."""
        await self._relays.close()
        await self.streams.close()
        await self.publisher.close()
        await self.relay.close()
        await self.route_client.stop()
        await self._rules.close()
        self.detector.close()

    def status(self) -> Mapping[str, Any]:
        """Numbers for operators."""
        rate_limiter = self.publisher.rate_limiter
        found = {
            "published": self.publisher.published,
            "resent": self.publisher.resent,
            "resent_duplicates": self.publisher.duplicate_reports.duplicates,
            "resent_duplicates_late": self.publisher.duplicate_reports.late,
            "resent_unknown": self.publisher.duplicate_reports.unknown,
            "resent_pending": self.publisher.duplicate_reports.pending,
            "underway_bytes": rate_limiter.sending.underway,
            "transforming_bytes": rate_limiter.transforming.held,
            "held_bytes": rate_limiter.held,
            "delayed": rate_limiter.sending.delayed + rate_limiter.transforming.delayed,
            "refused": rate_limiter.refused,
            "relayed": self.relay.relayed,
            "retried": self.relay.retried,
            "streams": len(self.streams.open_streams),
            "responses": self.streams.responses,
            "moved_calls": self.calls.moved,
            "moved_streams": self.streams.moved,
            "suspected": sorted(self.routes.suspects),
            "topics_routed": len(self.routes.topics),
            "subscriptions_routed": len(self.routes.subscriptions),
            "routers_asked": self.route_client.asked,
            "assigned": self.route_client.assigned,
        }
        if self.sealer is not None:
            found |= {"sealed": self.sealer.sealed, "kept_back": self.sealer.kept_back}
        return found

    def _suspected(self, address: str, suspected: bool) -> None:
        self.routes.suspect(address, suspected)
        if suspected:
            self.publisher.suspected(address)
            self.relay.suspected(address)
            self.streams.suspected(address)

    def _forget_the_dead(self) -> None:
        """Stop waiting for processes that are members no longer."""
        if self.detector.suspected:
            living = {seen.value.address for seen in self.routes.view.members.items.values()}
            for address in self.detector.suspected - living:
                self.detector.forget(address)
                self.routes.suspect(address, False)
