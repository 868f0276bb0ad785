"""The client-facing side of a process: its port for clients and the services on it.

Place: one in every process that clients call, be it a node, a worker or a proxy of a cluster. What differs between
these is handed in as a `Backend`: who publishes, who lends messages, and who is asked about the rest.
Order: made with the catalog, `connect`ed to the backend, `open`ed, and `begin` once the port is known; at the end
`retire` before the port drains, and `close` after it.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from starlette.routing import BaseRoute

from syncpoint.base.model.hosts import loopback
from syncpoint.base.runtime.child_processes import Apart, at_once
from syncpoint.base.runtime.clock import Clock
from syncpoint.base.runtime.random import Random
from syncpoint.base.tracing.tracer import Tracer
from syncpoint.broker.forward.forward_driver import ForwardingProcess
from syncpoint.broker.forward.own_call import published
from syncpoint.broker.inner.feed import OpenFeed
from syncpoint.broker.inner.inner_driver import ConsumingProcess
from syncpoint.broker.publish.facts.origin import PublishOrigin
from syncpoint.broker.push.addresses import Vetting, networks
from syncpoint.broker.push.http_sender import SystemNames, VettedBackend
from syncpoint.broker.push.own_endpoints import OwnEndpoints
from syncpoint.catalog.access.access import Access
from syncpoint.catalog.access.policy import Policies
from syncpoint.catalog.access.tenant_book import TenantBook
from syncpoint.catalog.metadata.catalog import CatalogCopy
from syncpoint.catalog.metadata.records import Subscription
from syncpoint.catalog.transforms.message_transforms import Transformer
from syncpoint.cluster.control.plane import ControlPlane
from syncpoint.front.api.accounts import AccountsService
from syncpoint.front.api.admin_handlers import CatalogService
from syncpoint.front.api.client_admin import ClientAdmin, ClientsOf, HeldStreams, ListClients
from syncpoint.front.api.connected_clients import ConnectedClients, OpenPull
from syncpoint.front.api.drill_admin import DrillAdmin
from syncpoint.front.api.federation_admin import FederationAdmin
from syncpoint.front.api.home_request import home_methods
from syncpoint.front.api.iam import IamService
from syncpoint.front.api.letter_admin import GiveUp, Prepare, Publish
from syncpoint.front.api.letter_attendant import AskingAround, LetterAttendant
from syncpoint.front.api.node_admin import SERVER
from syncpoint.front.api.project_admin import ProjectAdmin
from syncpoint.front.api.publisher import NotePublisher
from syncpoint.front.api.receipted_publish import ReceiptedPublish
from syncpoint.front.api.schema_handlers import SchemaService
from syncpoint.front.api.seek_request import seek_methods
from syncpoint.front.api.server_admin import ServerAdmin
from syncpoint.front.api.snapshot_request import snapshot_copy_methods
from syncpoint.front.api.tenant_admin import TenantAdmin
from syncpoint.node.consumption import Consumption, ExportMeans, PushMeans
from syncpoint.node.health_pages import health_pages
from syncpoint.node.node_environment import ProcessEnvironment
from syncpoint.node.public_tls import PublicTls, public_tls
from syncpoint.node.settings import ClientSettings
from syncpoint.watch.console.audit_trail import AuditLogs
from syncpoint.watch.console.console_pages import console_pages
from syncpoint.watch.metrics.kept_text import MetricsText
from syncpoint.watch.metrics.scraped_page import CLUSTER_PATH, metrics_page
from syncpoint.watch.metrics.tenant_text import TenantTexts, tenant_page
from syncpoint.wire.protobuf import methods
from syncpoint.wire.rest.http1 import HttpFallback, http_fallback
from syncpoint.wire.transport.calls import Call, CallContext, Methods, Unary
from syncpoint.wire.transport.limits import TransportLimits
from syncpoint.wire.transport.network import Listening, join_address
from syncpoint.wire.transport.server import Fallback, Server

PUBLISH = methods.PUBLISHER.Publish.encode()
OpenPort = Callable[[Methods, ssl.SSLContext | None, Fallback | None], Awaitable[Listening]]
"""Opens the port for clients, which answers these methods. Raises `OSError`."""


class ServingProcess(Protocol):
    """The process whose port it is. `name`: "" where there is no other one; `metrics`: once they are made."""

    @property
    def name(self) -> str: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def random(self) -> Random: ...
    @property
    def shared(self) -> CatalogCopy: ...
    @property
    def tracer(self) -> Tracer | None: ...
    @property
    def environment(self) -> ProcessEnvironment: ...
    @property
    def metrics(self) -> MetricsText: ...
    def listeners(self) -> list[str]:
        """HOST:PORT of whatever listens for this deployment."""
        ...


class Publishing(Protocol):
    """Who takes what clients publish."""

    note_publisher: NotePublisher

    def publish(self, call: Call, request: bytes, *, origin: PublishOrigin = ...) -> None: ...


@dataclass(frozen=True)
class Backend:
    """What is behind the port. `give_up` and the two after it: how dead letters are made (`letter_admin`); `mine`: by
    incarnation, whether this process consumes a subscription that is pushed, exported or forwarded; `clients`: given
    those of this process, the clients of all; `methods`: what only this backend answers;
    `series`: of projects, in the metrics of all processes, where those of this one are not all. `whole`: all metrics of
    those.
    """

    admin: ServerAdmin
    publisher: Publishing
    asking: AskingAround
    give_up: GiveUp
    publish_letter: Publish
    prepare_letter: Prepare
    open_feed: OpenFeed
    open_pulls: Callable[[str], Iterable[OpenPull]]
    held: HeldStreams
    clients: Callable[[ListClients], ClientsOf]
    methods: Methods
    mine: Callable[[int], bool] = lambda incarnation: True
    regions: Callable[[], Collection[str]] = tuple
    series: Callable[[], MetricsText] | None = None
    whole: MetricsText | None = None


class ClientPort:
    """The port for clients.

    `every`: the methods that clients may call; `methods`: the same methods, guarded by the gate.
    """

    every: Methods
    methods: Methods
    consumption: Consumption
    attendant: LetterAttendant
    clients: ConnectedClients

    def __init__(self, process: ServingProcess, settings: ClientSettings, control: ControlPlane) -> None:
        """Raises `InvalidArgument` for a file of `auth` that cannot be used."""
        self._process, self._settings, self._control = process, settings, control
        self._own = OwnEndpoints(process.listeners)
        self._model_names = SystemNames("model-names")
        connect = VettedBackend.anywhere(self._own, self._model_names)
        self.transformer = Transformer.of(dict(settings.models), connect)
        self.access: Access | None = None
        self.listening: Listening | None = None
        self._tls: PublicTls | None = None
        if settings.auth is not None:
            environment = process.environment
            self.access = Access(settings.auth, control.catalog, environment.clock, process.name)
            cpu = self.access.gate.cpu
            environment.apart.account = cpu
            environment.apart.share(cpu.share_of)
            self.transformer.share(cpu.share_of)

    def connect(self, backend: Backend) -> None:
        """Make what needs the backend, and the tables of methods; nobody can call yet."""
        self._backend, access, apart = backend, self.access, self._process.environment.apart
        admin = backend.admin
        admin.apart = admin.peeks.apart = apart
        admin.letters.give_up, admin.letters.publish = backend.give_up, backend.publish_letter
        admin.letters.prepare = backend.prepare_letter
        if access is not None:
            admin.service = access.service
        self._consume(backend)
        self.clients = ConnectedClients(
            self._process.name or SERVER,
            self._process.clock,
            backend.open_pulls,
            None if access is None else access.gate.principal_of,
        )
        backend.publisher.note_publisher = self.clients.note_publisher
        self.every = {**backend.methods, **self._control_methods(backend)}
        followed = self.clients.noted(self.every)
        if self._process.tracer is not None:
            from syncpoint.front.api.traced_calls import CallTraces  # for nobody else

            followed = CallTraces(self._process.tracer).traced(followed)
        self.methods = followed if access is None else access.gate.guarded(followed)
        publish = self.methods[PUBLISH]
        assert isinstance(publish, Unary)
        self.methods = {**self.methods, PUBLISH: ReceiptedPublish(publish, admin.receipts).asked()}

    def _consume(self, backend: Backend) -> None:
        """What this process does with messages by itself: pushes, exports, forwards, dead letters."""
        process, settings, access = self._process, self._settings, self.access
        consuming = ConsumingProcess(
            process.shared, backend.open_feed, process.clock, process.random, backend.mine, name=process.name
        )
        if access is not None:
            consuming = replace(consuming, refusal=access.service.delivery_refusal)
        self.vetting = Vetting(networks(settings.push_networks), self._own)
        push = PushMeans(
            self.vetting,
            self._control.commit,
            settings.push_issuer,
            None if access is None else access.accounts,
            process.environment.push_sender,
            process.tracer,
        )
        export = ExportMeans(settings.buckets, process.environment.outside)
        forward = ForwardingProcess(consuming, self._forwarded, backend.give_up, self._charge)
        self.consumption = Consumption(consuming, push, export, forward)
        models, buckets = self.transformer.models, self.consumption.buckets
        models.tokens = self.consumption.tokens
        models.is_own = buckets.is_own = self._own.certain_url
        if access is not None:
            models.may_use = access.may_use_model
            models.acting_refusal = access.service.acting_refusal
            buckets.may_use = access.may_use_bucket
        self.attendant = LetterAttendant(
            process.shared,
            backend.asking,
            process.clock,
            backend.publish_letter,
            mine=backend.mine,
            refusal=self._letter_refusal,
            apart=process.environment.apart,
        )

    def _control_methods(self, backend: Backend) -> Methods:
        """Everything but messages."""
        control, apart = self._control, self._process.environment.apart
        gate = None if self.access is None else self.access.gate
        accounts = None if self.access is None else self.access.accounts
        policies = Policies(control.catalog, accounts)
        self.tenant_texts = TenantTexts(
            backend.series or (lambda: self._process.metrics),
            TenantBook(control.catalog),
            self._process.environment.blocking,
        )
        self.whole = backend.whole
        everybody = backend.clients(self.clients.answer)
        return {
            **CatalogService(
                control, self.vetting, backend.regions, self.transformer, self.consumption.exported
            ).methods(),
            **SchemaService(control, apart=apart).methods(),
            **IamService(control, policies, gate, apart).methods(),
            **FederationAdmin(control).methods(),
            **TenantAdmin(
                control,
                policies,
                backend.regions,
                self.tenant_texts.text,
                None if gate is None else gate.installation_quota,
            ).methods(),
            **ProjectAdmin(control).methods(),
            **DrillAdmin(control).methods(),
            **AccountsService(control, accounts, gate).methods(),
            **seek_methods(control),
            **home_methods(control),
            **snapshot_copy_methods(control),
            **backend.admin.methods(),
            **ClientAdmin(backend.admin.options, everybody, backend.held, gate).methods(),
        }

    async def open(self, serve: OpenPort, audit: AuditLogs | None) -> Listening:
        """Open the port. `audit`: the audit logs of all processes. Raises `OSError`, `InvalidArgument`."""
        settings, apart = self._settings, self._process.environment.apart
        if self.access is not None:
            await self.access.start()
        tls = self._tls = public_tls(settings, optional=self.access is not None)
        gate = None if self.access is None else self.access.gate
        metrics = self._process.metrics
        pages: list[BaseRoute] = [*health_pages(self.every), *self.consumption.pages(), metrics_page(metrics, gate)]
        pages.append(tenant_page(self.tenant_texts, gate))
        if self.whole is not None:
            pages.append(metrics_page(self.whole, gate, CLUSTER_PATH))
        pages += console_pages(self.methods, self._control.catalog, metrics, gate, audit, apart)
        http = client_http(
            self.methods,
            settings.transport_limits,
            self.access,
            pages,
            apart=apart,
            host=settings.host,
            host_names=settings.host_names,
        )
        self.listening = await serve(self.methods, None if tls is None else tls.context, http)
        bound_callers(self.listening, self.access, apart)
        if tls is not None:
            tls.start(self.listening.renew)
        return self.listening

    def begin(self) -> None:
        """Consume from now on what is pushed, exported or forwarded, and move what expired."""
        self.consumption.start()
        self.attendant.start()

    async def drain(self, grace_s: float) -> None:
        """Accept no connection any more, and let calls that are open end."""
        if self.listening is not None:
            await self.listening.drain(grace_s)

    async def retire(self) -> None:
        """Consume no more."""
        await self.attendant.stop()
        await self.consumption.stop()

    async def close(self) -> None:
        """Nobody calls any more: leave nothing behind."""
        await self.transformer.close()
        self._model_names.close()
        if self.access is not None:
            await self.access.stop()
        if self._tls is not None:
            await self._tls.stop()

    @property
    def address(self) -> str:
        """HOST:PORT where clients call; "" before it is open."""
        return "" if self.listening is None else join_address(self.listening.host, self.listening.port)

    def status(self) -> Mapping[str, Any]:
        """Numbers for operators."""
        return {**self.consumption.status(), "public": self.address}

    def _letter_refusal(self, record: Subscription) -> str:
        return "" if self.access is None else self.access.service.letter_refusal(record)

    def _charge(self, topic: str, size: int) -> None:
        if self.access is not None:
            self.access.gate.charge(topic, size)

    async def _forwarded(self, request: bytes) -> bytes:
        return await published(partial(self._backend.publisher.publish, origin=PublishOrigin.FORWARD), request)


def client_http(
    methods: Methods,
    limits: TransportLimits,
    access: Access | None,
    pages: Sequence[BaseRoute] = (),
    *,
    apart: Apart = at_once,
    host: str,
    host_names: Sequence[str] = (),
) -> HttpFallback:
    """`methods`: behind their gate. `pages`: they need no credentials, and are looked for before the methods. `apart`:
    does what takes long. `host`: where the port listens; where that is this machine alone and callers are not
    identified, it is called by the names of this machine and by `host_names` alone.
    """
    if access is not None:
        gate = access.gate
        return http_fallback(
            methods, limits, admit=gate.admit, who=gate.tenant_of, payer=gate.payer_of, apart=apart, pages=pages
        )
    hosts = (host, *host_names) if loopback(host) else None
    return http_fallback(methods, limits, apart=apart, pages=pages, hosts=hosts)


def bound_callers(listening: Listening, access: Access | None, apart: Apart) -> None:
    """Bound what each caller of the port may hold of unfinished calls, and keep large compressed messages off the loop;
    one of a simulation holds nothing."""
    if not isinstance(listening, Server):
        return
    if access is None:
        listening.bound_callers(None)
        listening.unfold_apart(apart, None)
        return
    gate = access.gate

    def payer(call: CallContext) -> str:
        gate.admit(call)
        return gate.payer_of(call)

    listening.bound_callers(gate.tenant_of)
    listening.unfold_apart(apart, payer)
