"""The proxy's role: the listener for clients, and the control plane behind it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any

from syncpoint.base.model.cluster import PROXY
from syncpoint.broker.forward.forward_driver import ForwardingProcess
from syncpoint.broker.forward.own_call import published
from syncpoint.broker.inner.distribution import Distribution
from syncpoint.broker.inner.inner_driver import ConsumingProcess
from syncpoint.broker.publish.facts.origin import PublishOrigin
from syncpoint.broker.push.addresses import Vetting, networks
from syncpoint.broker.push.http_sender import SystemNames, VettedBackend
from syncpoint.broker.push.own_endpoints import OwnEndpoints
from syncpoint.broker.router.distance import Distances, Prober
from syncpoint.broker.router.location import DEFAULT_CLASS, may_pass
from syncpoint.catalog.access.access import Access
from syncpoint.catalog.access.policy import Policies
from syncpoint.catalog.metadata.records import Subscription
from syncpoint.catalog.transforms.message_transforms import Transformer
from syncpoint.cluster.control.barrier import Barrier
from syncpoint.cluster.control.cluster_queries import ClusterQueries
from syncpoint.cluster.control.expiry import Expiry
from syncpoint.cluster.control.head_commit import HeadCommit
from syncpoint.cluster.control.operations import Operations
from syncpoint.cluster.control.peer_channels import Reach
from syncpoint.cluster.control.plane import ControlPlane
from syncpoint.cluster.control.usage_reports import ReportedUses
from syncpoint.front.api.accounts import AccountsService
from syncpoint.front.api.admin_handlers import CatalogService
from syncpoint.front.api.client_admin import ClientAdmin
from syncpoint.front.api.cluster_admin import ClusterAdmin
from syncpoint.front.api.connected_clients import ConnectedClients
from syncpoint.front.api.iam import IamService
from syncpoint.front.api.letter_attendant import LetterAttendant
from syncpoint.front.api.options_admin import follow_limits
from syncpoint.front.api.schema_handlers import SchemaService
from syncpoint.front.api.seek_request import seek_methods
from syncpoint.front.api.server_admin import ServerIdentity
from syncpoint.front.api.traced_calls import CallTraces
from syncpoint.front.proxy.data_keys import KeyRing, TopicKeys
from syncpoint.front.proxy.key_admin import KeyCleaner
from syncpoint.front.proxy.letters import ProxyLetters
from syncpoint.front.proxy.pipeline_cursors import CursorCleaner
from syncpoint.front.proxy.proxy import MessageHandling, Proxy, ProxyCluster
from syncpoint.front.proxy.push_feeds import PushFeeds
from syncpoint.front.proxy.sealing import Sealer
from syncpoint.node.bucket_exports import Exports
from syncpoint.node.client_http import bound_callers, client_http
from syncpoint.node.cluster.audit_logs import audit_logs, audit_methods
from syncpoint.node.cluster.client_reports import clients_of_all
from syncpoint.node.cluster.context import ClusterContext
from syncpoint.node.cluster.router_role import in_milliseconds
from syncpoint.node.cluster.tls import public_tls
from syncpoint.node.consumption import Consumption
from syncpoint.node.forwards import Forwards
from syncpoint.node.public_tls import PublicTls
from syncpoint.node.pushes import Pushes
from syncpoint.watch.console.console_pages import console_pages
from syncpoint.watch.metrics.scraped_page import metrics_page
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.serving import served
from syncpoint.wire.transport.call_counts import CallCounts
from syncpoint.wire.transport.calls import Methods
from syncpoint.wire.transport.limits import TransportLimits
from syncpoint.wire.transport.network import Listening, join_address, split_address

LATE_S = 0.25
_RELAYED = tuple(one.prefix.encode() for one in (methods.SUBSCRIBER, methods.LOG_READER, methods.EPOCH_WRITER))


class ProxyRole:
    """See the module. `public_address` is where clients call."""

    disk_address = ""

    def __init__(self, context: ClusterContext) -> None:
        self._context = context
        self.listening: Listening | None = None
        self.access: Access | None = None
        self.tls: PublicTls | None = None

    async def start(self) -> None:
        """Make the parts; clients cannot call yet."""
        context = self._context
        self.limits = follow_limits(context.shared)
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
        own = OwnEndpoints(context.listeners)
        self._model_names = SystemNames("model-names")
        connect = VettedBackend.anywhere(own, self._model_names)
        transformer = Transformer.of(dict(context.settings.models), connect)
        handling = MessageHandling(self.limits, self._sealer(), transformer, context.environment.apart)
        self.proxy = Proxy(cluster, handling, self.distances, context.clock)
        settings = context.settings
        queries = ClusterQueries(context.view, context.peers)
        self.admin = ClusterAdmin(
            self.control,
            context.view,
            Operations(context.view, context.catalog, context.clock),
            self.limits,
            ServerIdentity(context.universe, settings.classes[DEFAULT_CLASS].durability, context.clock.time_ns()),
            context.classes,
            queries,
        )
        self.admin.apart = self.admin.peeks.apart = context.environment.apart
        if self.proxy.sealer is not None:
            self.admin.peeks.open = self.proxy.sealer.open
        self.admin.peeks.may_pass = lambda topic: may_pass(topic, context.process.region)
        letters = ProxyLetters(context.peers, lambda: context.address_of(context.process.name), self.proxy.relay)
        self.admin.letters.give_up, self.admin.letters.publish = letters.give_up, letters.publish
        self.admin.letters.prepare = self.proxy.publisher.edited
        self.expiry = Expiry(self.control, ReportedUses(context.store, context.catalog, context.clock), context.clock)
        self.cleaner = KeyCleaner(context.store, self._topic_exists, self._cleans, context.random)
        self.cursor_cleaner = CursorCleaner(self.proxy.cursors, self._cleans, context.random)
        if settings.auth is not None:
            self.access = Access(settings.auth, context.catalog, context.environment.clock, context.process.name)
            context.environment.apart.account = self.access.gate.cpu
            self.admin.service = self.access.service
        gate = self.access.gate if self.access is not None else None
        accounts = self.access.accounts if self.access is not None else None
        vetting = Vetting(networks(settings.push.networks), own)
        self.feeds = PushFeeds(self.proxy.streams)
        distribution = Distribution(context.process.name, context.view, context.catalog)
        consuming = ConsumingProcess(
            context.shared, self.feeds.open, context.clock, context.random, distribution.mine, name=context.process.name
        )
        self.attendant = LetterAttendant(
            context.shared,
            queries,
            context.clock,
            letters.publish,
            mine=distribution.mine,
            refusal=self._letter_refusal,
            apart=context.environment.apart,
        )
        if self.access is not None:
            consuming = replace(consuming, refusal=self.access.service.delivery_refusal)
        self.consumption = Consumption(
            Pushes(
                consuming,
                vetting,
                self.control.commit,
                issuer=settings.push.issuer,
                accounts=accounts,
                sender=context.environment.push_sender,
            ),
            Exports(consuming, settings.buckets, context.environment.outside),
            Forwards(ForwardingProcess(consuming, self._forwarded, letters.give_up, self._charge)),
        )
        transformer.models.tokens = self.consumption.pushes.tokens
        transformer.models.is_own = self.consumption.exports.buckets.is_own = own.certain_url
        if self.access is not None:
            transformer.models.may_use = self.access.may_use_model
            transformer.models.acting_refusal = self.access.service.acting_refusal
            self.consumption.exports.buckets.may_use = self.access.may_use_bucket
        self._clients = ConnectedClients(
            context.process.name,
            context.clock,
            self.proxy.streams.open_pulls,
            None if gate is None else gate.principal_of,
        )
        self.proxy.publisher.note_publisher = self._clients.note_publisher
        everybody = clients_of_all(context, self._clients.answer)
        every = self.proxy.methods(
            CatalogService(self.control, vetting, self._regions, transformer, self.consumption.exports.state).methods(),
            SchemaService(self.control, apart=context.environment.apart).methods(),
            IamService(self.control, Policies(context.catalog, accounts), gate, context.environment.apart).methods(),
            AccountsService(self.control, accounts, gate).methods(),
            seek_methods(self.control),
            {**self.admin.methods(), **context.monitor.admin.methods()},
            ClientAdmin(self.admin.options, everybody, queries.streams, gate).methods(),
        )
        followed = self._clients.noted(every)
        if context.tracer is not None:
            followed = CallTraces(context.tracer).traced(followed)
        self.client_methods = followed if gate is None else gate.guarded(followed)
        # each has counts of its own, by who calls
        self._inner = {path: replace(one, counts=CallCounts()) for path, one in every.items()}

    def methods(self) -> Methods:
        """Other processes may call what clients may: dead letters are published this way. What is relayed is not for
        them: in a process that is a subscribe forwarder, too, it would come here again instead of there.
        """
        own = {path: method for path, method in self._inner.items() if not path.startswith(_RELAYED)}
        asked = {**audit_methods(self.access), **served({methods.PROCESS.ListClients: self._clients.answer})}
        return {**own, **self.proxy.internal_methods(), **self.consumption.internal_methods(), **asked}

    async def on_joined(self) -> None:
        """Open the listener for clients."""
        context = self._context
        await self.proxy.start()
        self.prober.start()
        self.expiry.start()
        self.cursor_cleaner.start()
        if self.proxy.sealer is not None:
            self.cleaner.start()
        host, port = split_address(context.process.public or "127.0.0.1:0")
        if self.access is not None:
            await self.access.start()
        self.tls = public_tls(context.process, optional=self.access is not None)
        network = context.environment.public_network(None if self.tls is None else self.tls.context)
        gate = None if self.access is None else self.access.gate
        pages = [*self.consumption.pushes.pages(), metrics_page(context.metrics, gate)]
        audit = audit_logs(context, self.access)
        pages += console_pages(
            self.client_methods, context.catalog, context.metrics, gate, audit, context.environment.apart
        )
        http = client_http(
            self.client_methods,
            TransportLimits(),
            self.access,
            pages,
            apart=context.environment.apart,
            host=host,
            host_names=context.settings.host_names,
        )
        self.listening = await network.serve(self.client_methods, host, port, http)
        bound_callers(self.listening, self.access, context.environment.apart)
        if self.tls is not None:
            self.tls.start(self.listening.renew)
        self.consumption.start()
        self.attendant.start()

    @property
    def public_address(self) -> str:
        return join_address(self.listening.host, self.listening.port) if self.listening is not None else ""

    async def drain(self) -> None:
        """Clients go to other proxies: no connection is accepted any more, every open one gets a GOAWAY, and
        the calls begun before that end.
        """
        self.admin.draining = True
        await self.attendant.stop()
        await self.consumption.stop()
        await self.feeds.close()
        self.proxy.drain()
        if self.listening is None:
            return
        closing = asyncio.ensure_future(self.listening.drain(2 * self._context.environment.drain_s))
        while not closing.done():
            await asyncio.wait((closing,), timeout=LATE_S)
            self.proxy.relay.drain()  # pulls that were on their way when their client was asked to go
        await closing

    async def stop(self) -> None:
        if self.access is not None:
            await self.access.stop()
        if self.tls is not None:
            await self.tls.stop()
        await self.cleaner.stop()
        await self.cursor_cleaner.stop()
        await self.expiry.stop()
        await self.prober.stop()
        await self.proxy.stop()
        self._model_names.close()
        self._context.environment.apart.close()

    def status(self) -> dict[str, Any]:
        return {**self.proxy.status(), **self.consumption.status(), "public": self.public_address}

    def load(self, seconds: float) -> dict[str, Any]:
        return {
            "connections": len(self.proxy.streams.open_streams),
            "distances": in_milliseconds(self.distances.known()),
        }

    def _letter_refusal(self, record: Subscription) -> str:
        return "" if self.access is None else self.access.service.letter_refusal(record)

    def _charge(self, topic: str, size: int) -> None:
        if self.access is not None:
            self.access.gate.charge(topic, size)

    async def _forwarded(self, request: bytes) -> bytes:
        return await published(partial(self.proxy.publisher.publish, origin=PublishOrigin.FORWARD), request)

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
        """Of all proxies, the first by name removes keys that are not needed."""
        return self._context.view.with_role(PROXY)[:1] == [self._context.member]

    async def _ping(self, address: str) -> bool:
        return await self._context.peers.ping(address) is Reach.ANSWERED

    def _others(self) -> list[Any]:
        context = self._context
        return [seen.value for seen in context.view.members.items.values() if seen.value.name != context.process.name]
