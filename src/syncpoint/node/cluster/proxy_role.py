"""The proxy's role: the listener for clients, and the control plane behind it."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import replace
from functools import partial
from typing import Any

from syncpoint.base.model.cluster import PROXY
from syncpoint.broker.inner.distribution import Distribution
from syncpoint.broker.router.distance import Distances, Prober
from syncpoint.broker.router.location import DEFAULT_CLASS, may_pass
from syncpoint.cluster.control.barrier import Barrier
from syncpoint.cluster.control.cluster_queries import ClusterQueries
from syncpoint.cluster.control.expiry import Expiry
from syncpoint.cluster.control.head_commit import HeadCommit
from syncpoint.cluster.control.operations import Operations
from syncpoint.cluster.control.peer_channels import Reach
from syncpoint.cluster.control.plane import ControlPlane
from syncpoint.cluster.control.usage_reports import ReportedUses
from syncpoint.front.api.cluster_admin import ClusterAdmin
from syncpoint.front.api.server_admin import ServerIdentity
from syncpoint.front.proxy.data_keys import KeyRing, TopicKeys
from syncpoint.front.proxy.key_admin import KeyCleaner
from syncpoint.front.proxy.letters import ProxyLetters
from syncpoint.front.proxy.pipeline_cursors import CursorCleaner
from syncpoint.front.proxy.proxy import MessageHandling, Proxy, ProxyCluster
from syncpoint.front.proxy.push_feeds import PushFeeds
from syncpoint.front.proxy.sealing import Sealer
from syncpoint.node.client_port import Backend, ClientPort
from syncpoint.node.cluster.context import ClusterContext
from syncpoint.node.cluster.other_proxies import audit_logs, audit_methods, clients_of_all
from syncpoint.node.cluster.router_role import in_milliseconds
from syncpoint.node.cluster.watching import series_of_all, text_of_all
from syncpoint.node.process import Role
from syncpoint.node.process_metrics import Measured
from syncpoint.node.settings import ClientSettings
from syncpoint.watch.metrics.role_families import PROXY as PROXY_STATUS
from syncpoint.watch.metrics.role_families import StatusRoom
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.serving import served
from syncpoint.wire.transport.call_counts import CallCounts
from syncpoint.wire.transport.calls import Methods
from syncpoint.wire.transport.network import Listening, split_address
from syncpoint.wire.transport.server import Fallback

LATE_S = 0.25
_RELAYED = tuple(
    one.prefix.encode() for one in (methods.SUBSCRIBER, methods.LOG_READER, methods.EPOCH_WRITER, methods.ACK_EXCHANGE)
)


class ProxyRole(Role):
    """Run a proxy. `port`: the port for clients."""

    def __init__(self, context: ClusterContext) -> None:
        self._context = context

    async def start(self) -> None:
        """Make the parts; clients cannot call yet."""
        context = self._context
        self.distances = Distances(context.process.region)
        self.prober = Prober(self.distances, self._ping, self._others, context.clock, context.random)
        commits = HeadCommit(context.store, context.shared, Barrier(context.view, context.peers))
        self.control = ControlPlane(commits, context.clock, context.random)
        cluster = ProxyCluster(
            me=context.member,
            view=context.view,
            catalog=context.catalog,
            store=context.store,
            peers=context.peers,
            refresh=self.control.refresh,
            commit=self.control.commit,
            spanning=context.classes.spanning,
            universe=context.universe,
        )
        settings = context.settings
        self.port = ClientPort(context, self._given(), self.control)
        handling = MessageHandling(context.limits, self._sealer(), self.port.transformer, context.environment.apart)
        self.proxy = Proxy(cluster, handling, self.distances, context.clock)
        queries = ClusterQueries(context.view, context.peers)
        self.admin = ClusterAdmin(
            self.control,
            context.view,
            Operations(context.view, context.catalog, context.clock),
            context.limits,
            ServerIdentity(context.universe, settings.classes[DEFAULT_CLASS].durability, context.clock.time_ns()),
            context.classes,
            queries,
        )
        if self.proxy.sealer is not None:
            self.admin.peeks.open = self.proxy.sealer.open
        self.admin.peeks.may_pass = lambda topic: may_pass(topic, context.process.region)
        self.expiry = Expiry(self.control, ReportedUses(context.store, context.catalog, context.clock), context.clock)
        self.cleaner = KeyCleaner(context.store, self._topic_exists, self._cleans, context.random)
        self.cursor_cleaner = CursorCleaner(self.proxy.cursors, self._cleans, context.random)
        self.feeds = PushFeeds(self.proxy.streams)
        letters = ProxyLetters(context.peers, lambda: context.address_of(context.name), self.proxy.relay)
        series, whole = series_of_all(context), text_of_all(context)
        self.port.connect(
            Backend(
                self.admin,
                self.proxy.publisher,
                queries,
                letters.give_up,
                letters.publish,
                self.proxy.publisher.edited,
                self.feeds.open,
                self.proxy.streams.open_pulls,
                queries.streams,
                partial(clients_of_all, context),
                {**self.proxy.methods(), **context.monitor.methods()},
                mine=Distribution(context.name, context.view, context.catalog).mine,
                regions=self._regions,
                series=None if context.environment.one_server else lambda: series,
                whole=None if context.environment.one_server else whole,
            )
        )
        # each has counts of its own, by who calls
        self._inner = {path: replace(one, counts=CallCounts()) for path, one in self.port.every.items()}

    def methods(self) -> Methods:
        """Other processes may call what clients may: dead letters are published this way. What is relayed is not for
        them: in a process that is a subscribe forwarder, too, it would come here again instead of there.
        """
        own = {path: method for path, method in self._inner.items() if not path.startswith(_RELAYED)}
        asked = {**audit_methods(self.port.access), **served({methods.PROCESS.ListClients: self.port.clients.answer})}
        return {**own, **self.proxy.internal_methods(), **self.port.consumption.internal_methods(), **asked}

    async def on_joined(self) -> None:
        """Open the listener for clients."""
        context = self._context
        await self.proxy.start()
        self.prober.start()
        self.expiry.start()
        self.cursor_cleaner.start()
        if self.proxy.sealer is not None:
            self.cleaner.start()
        await self.port.open(self._serve, audit_logs(context, self.port.access))
        self.port.begin()

    async def _serve(self, methods: Methods, tls: ssl.SSLContext | None, on_fallback: Fallback | None) -> Listening:
        context = self._context
        host, port = split_address(context.process.public or "127.0.0.1:0")
        return await context.environment.public_network(tls).serve(methods, host, port, on_fallback)

    async def drain(self) -> None:
        """Clients go to other proxies: no connection is accepted any more, every open one gets a GOAWAY, and
        the calls begun before that end.
        """
        self.admin.draining = True
        await self.port.retire()
        await self.feeds.close()
        self.proxy.drain()
        if self.port.listening is None:
            return
        closing = asyncio.ensure_future(self.port.listening.drain(2 * self._context.environment.drain_s))
        while not closing.done():
            await asyncio.wait((closing,), timeout=LATE_S)
            self.proxy.relay.drain()  # pulls that were on their way when their client was asked to go
        await closing

    async def stop(self) -> None:
        await self.cleaner.stop()
        await self.cursor_cleaner.stop()
        await self.expiry.stop()
        await self.prober.stop()
        await self.proxy.stop()
        await self.port.close()

    def measure(self, found: Measured) -> None:
        found.add_port(self.port, self.proxy.publisher.schemas)
        found.further.append(StatusRoom("proxy", PROXY_STATUS, self.proxy.status))

    def status(self) -> dict[str, Any]:
        return {**self.proxy.status(), **self.port.status()}

    def load(self, seconds: float) -> dict[str, Any]:
        return {
            "connections": len(self.proxy.streams.open_streams),
            "distances": in_milliseconds(self.distances.known()),
        }

    def _given(self) -> ClientSettings:
        settings, process = self._context.settings, self._context.process
        return ClientSettings(
            split_address(process.public or "127.0.0.1:0")[0],
            process.tls_cert,
            process.tls_key,
            process.tls_client_ca,
            settings.host_names,
            settings.auth,
            settings.push.networks,
            settings.push.issuer,
            settings.models,
            settings.buckets,
        )

    def _regions(self) -> set[str]:
        view = self._context.view
        return {one.value.region for known in (view.members, view.chains) for one in known.items.values()}

    def _sealer(self) -> Sealer | None:
        context = self._context
        path = context.settings.sealing_key_file
        if path is None:
            return None
        return Sealer(TopicKeys(context.store, KeyRing.load(path), context.clock, context.random))

    def _topic_exists(self, topic: int) -> bool:
        return self._context.catalog.topic_by_incarnation(topic) is not None

    def _cleans(self) -> bool:
        """True for the first proxy by name, which removes unneeded keys."""
        return self._context.view.with_role(PROXY)[:1] == [self._context.member]

    async def _ping(self, address: str) -> bool:
        return await self._context.peers.ping(address) is Reach.ANSWERED

    def _others(self) -> list[Any]:
        context = self._context
        return [seen.value for seen in context.view.members.items.values() if seen.value.name != context.process.name]
