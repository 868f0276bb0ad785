"""One running node: every role in one process, put together from settings and parts.

Order of start: locks, the chain (storage recovers the log, epochs that were decided and not finished are), subscribe
forwarder, upkeep, and last the listener. `ready` is only said when the listener answers. Order of stop: streams are
asked to go elsewhere, open calls finish, a last checkpoint is written, the log is sealed.
"""

import asyncio
import logging
from dataclasses import replace
from functools import partial

import syncpoint
from syncpoint.base.model.cluster import ChainRecord
from syncpoint.base.model.flow import FlowLimits
from syncpoint.base.runtime.trusted import TrustedClock
from syncpoint.base.tracing.otlp_tracer import tracer_of
from syncpoint.broker.forward.forward_driver import ForwardingProcess
from syncpoint.broker.forward.own_call import published
from syncpoint.broker.inner.feed import open_feed
from syncpoint.broker.inner.inner_driver import ConsumingProcess
from syncpoint.broker.pipeline.exclusive_readers import NodeReaders
from syncpoint.broker.pipeline.home import SoloHomes
from syncpoint.broker.pipeline.mounting import ChainPipelines
from syncpoint.broker.publish.chain.chain import ChainContext
from syncpoint.broker.publish.chain.host import ChainHost
from syncpoint.broker.publish.facts.origin import PublishOrigin
from syncpoint.broker.publish.facts.recovery import RecoveredState
from syncpoint.broker.publish.intake.message_preparation import MessagePreparation
from syncpoint.broker.push.addresses import Vetting, networks
from syncpoint.broker.push.http_sender import SystemNames, VettedBackend
from syncpoint.broker.push.own_endpoints import OwnEndpoints
from syncpoint.broker.recording.recorder import Recorder
from syncpoint.broker.recording.recorder_driver import RecorderDriver
from syncpoint.broker.subscribe.rule_work import RuleWork
from syncpoint.broker.subscribe.subscribe_forwarder import SubscribeForwarder
from syncpoint.broker.subscribe.transformed_sending import DeliveryTransforms
from syncpoint.catalog.access.access import Access
from syncpoint.catalog.access.policy import Policies
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.mirror import CatalogMirror, Identities
from syncpoint.catalog.metadata.records import CatalogChange, Setting, Subscription
from syncpoint.catalog.schemas.publishing import SchemaGate
from syncpoint.catalog.transforms.message_transforms import Transformer
from syncpoint.catalog.transforms.publish_requests import PublishTransforms
from syncpoint.cluster.control.log_commit import LogCommit
from syncpoint.cluster.control.plane import ControlPlane
from syncpoint.cluster.control.solo_ownership import SOLO_CHAIN, LogCatalog, NobodyAsks, OwnDisks, SoloOwnership
from syncpoint.front.api.accounts import AccountsService
from syncpoint.front.api.admin_handlers import CatalogService
from syncpoint.front.api.client_admin import ClientAdmin
from syncpoint.front.api.connected_clients import ConnectedClients
from syncpoint.front.api.health import HealthService
from syncpoint.front.api.iam import IamService
from syncpoint.front.api.letter_attendant import LetterAttendant
from syncpoint.front.api.node_admin import SERVER, LocalInquiry, NodeAdmin
from syncpoint.front.api.options_admin import LIMITS, take_limits
from syncpoint.front.api.publisher import PublisherService
from syncpoint.front.api.reflection import PIPELINES, SERVICES, reflection_methods
from syncpoint.front.api.schema_handlers import SchemaService
from syncpoint.front.api.seek_request import seek_methods
from syncpoint.front.api.streaming_pull import StreamingPullService
from syncpoint.front.api.subscriber import SubscriberService
from syncpoint.front.api.traced_calls import CallTraces
from syncpoint.node.bucket_exports import Exports
from syncpoint.node.client_http import bound_callers, client_http
from syncpoint.node.consumption import Consumption
from syncpoint.node.forwards import Forwards
from syncpoint.node.metadata import align
from syncpoint.node.metrics_rooms import NodeMetrics
from syncpoint.node.node_environment import NodeEnvironment
from syncpoint.node.node_monitor import NodeMonitor
from syncpoint.node.public_tls import PublicTls
from syncpoint.node.pushes import Pushes
from syncpoint.node.settings import ServeSettings
from syncpoint.node.upkeep import Upkeep
from syncpoint.node.uses import anchor_ns
from syncpoint.watch.console.console_pages import console_pages
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal
from syncpoint.wire.transport.calls import Methods
from syncpoint.wire.transport.network import Listening

log = logging.getLogger(__name__)

ACK_KEY = "ack-id-key"  # the setting that holds it; in the log, so that ack ids survive the loss of the data folder


async def _sealed(topic: int, epoch: int, chain: int) -> None:
    """There are no other chains."""


async def _next_log() -> int | None:
    """The disks say it."""
    return None


class Node:
    """A started node. `endpoint` is HOST:PORT."""

    def __init__(self, settings: ServeSettings, environment: NodeEnvironment | None = None) -> None:
        self.settings = settings
        self.environment = environment or NodeEnvironment()
        self.clock, self.random = self.environment.clock, self.environment.random
        self.locks = self.environment.make_locks()
        self.access: Access | None = None
        self.tls: PublicTls | None = None
        self.metrics = NodeMetrics()
        self.monitor = NodeMonitor(settings, self.environment)
        self.tracer = tracer_of(settings.tracing, "node", syncpoint.__version__, self.clock, self.random)

    async def start(self) -> None:
        """Recover and open the listener. Raises `SyncpointError` with what to do when the folders cannot be used."""
        settings, environment, loop = self.settings, self.environment, asyncio.get_running_loop()
        environment.keep_memory()
        self.locks.take(settings.data)
        self.metadata = environment.open_metadata(settings.data / "metadata.sqlite", self.clock, self.random)
        identities = Identities(self.metadata)
        self.mirror = mirror = CatalogMirror(self.metadata)
        clock, self.limits, copy = TrustedClock(self.clock), FlowLimits(), LogCatalog()
        own = OwnEndpoints(self._listeners)
        self.vetting = Vetting(networks(settings.push_networks), own)

        def own_catalog(memory: RecoveredState) -> Catalog:
            clock.known(anchor_ns(memory))
            stored_limits = memory.catalog.setting(LIMITS)
            if stored_limits is not None:
                take_limits(self.limits, stored_limits)
            align(mirror, memory)
            copy.catalog = memory.catalog
            return memory.catalog

        self.recorder = Recorder("node", clock.time_ns)
        self.recording = RecorderDriver(self.recorder, self._recorded)
        folders = [str(folder) for folder in settings.disk_folders]
        self.host = ChainHost(
            ChainContext(
                copy,
                NobodyAsks(copy),
                lambda topic: None,
                _sealed,
                lambda record, epoch: (environment.files, folders),
                _next_log,
                identities.universe,
                replace(environment, clock=clock),
                self.limits,
                settings.storage,
                known_disks=OwnDisks(identities, settings.disk_folders),
                own_catalog=own_catalog,
                counter_floor=identities.log_counter_floor,
                mount=lambda chain: ChainPipelines(chain, SoloHomes(SOLO_CHAIN)),
                tracer=self.tracer,
                recorder=self.recorder,
            )
        )
        self.recorder.on_added = self.host.record_found
        self.owner = SoloOwnership(self.host, ChainRecord(SOLO_CHAIN, "", "", "", "", durability=settings.durability))
        self.chain = chain = await self.owner.open()
        self.publish, self.store = chain.forwarder, chain.store
        self.recorder.writer = f"node/{self.store.log_counter}"  # each life writes another log
        self.recorder.follow(copy)
        identities.adopt_universe(self.store.universe)
        identities.raise_log_counter_floor(self.store.log_counter)
        memory = self.publish.memory
        commits = LogCommit(chain.follower, mirror, copy.on_change)
        self.control = ControlPlane(commits, clock, self.random)
        self.subscribe = SubscribeForwarder(
            self.publish.server,
            memory.catalog,
            self.clock,
            key=await self._ack_key(),
            random=self.random,
            soon=loop.call_soon,
            recorder=self.recorder,
        )
        self.subscribe.work = RuleWork(self.environment.apart)
        self.model_names = SystemNames("model-names")
        connect = VettedBackend.anywhere(own, self.model_names)
        self.transformer = Transformer.of(dict(settings.models), connect)
        self.subscribe.transforms = DeliveryTransforms(self.transformer)
        assert isinstance(chain.mounted, ChainPipelines)
        self.pipelines = chain.mounted
        self.pipelines.reader.exclusive = NodeReaders(self.publish, self.subscribe, self.control.commit)
        self.access = Access(settings.auth, self.control.catalog, self.clock) if settings.auth is not None else None
        consuming = ConsumingProcess(copy, partial(open_feed, self.subscribe), self.clock, self.random)
        if self.access is not None:
            consuming = replace(consuming, refusal=self.access.service.delivery_refusal)
        accounts = None if self.access is None else self.access.accounts

        async def give_up(record: Subscription, asked: internal.DeadLetterRequest) -> internal.DeadLetterResponse:
            return await inquiry.give_up(record, asked)

        self.consumption = Consumption(
            Pushes(
                consuming,
                self.vetting,
                self.control.commit,
                issuer=settings.push_issuer,
                accounts=accounts,
                sender=environment.push_sender,
            ),
            Exports(consuming, settings.buckets, environment.outside),
            Forwards(ForwardingProcess(consuming, self._forwarded, give_up, self._charge)),
        )
        self.transformer.models.tokens = self.consumption.pushes.tokens
        self.transformer.models.is_own = self.consumption.exports.buckets.is_own = own.certain_url
        if self.access is not None:
            self.recorder.refusal = self.access.service.records_refusal
            self.transformer.models.may_use = self.access.may_use_model
            self.transformer.models.acting_refusal = self.access.service.acting_refusal
            self.consumption.exports.buckets.may_use = self.access.may_use_bucket
        inquiry = LocalInquiry(self.publish, self.subscribe, self.consumption.describe)
        self.admin = NodeAdmin(
            self.control, self.publish, inquiry, self.limits, settings.durability, self.clock.time_ns()
        )
        self.admin.mirror = mirror
        self.attendant = LetterAttendant(
            copy,
            inquiry,
            self.clock,
            inquiry.publish_letter,
            refusal=self._letter_refusal,
            apart=self.environment.apart,
        )
        self.upkeep = Upkeep(
            chain.upkeep,
            self.host.rounds,
            self.subscribe,
            self.control,
            mirror,
            self.clock,
        )
        self.host.start()
        self.upkeep.start()
        await self.upkeep.catch_up()
        self.server = await self._listen()
        await self.metrics.start(self)
        self.recording.start()
        self.consumption.start()
        self.attendant.start()
        await self.monitor.start(self.metrics.exposition)
        self.host.on_ended = lambda number, error: self._log_failed()
        if self.publish.commit.failed is not None:
            self._log_failed()
        environment.freeze_memory()

    @property
    def endpoint(self) -> str:
        host = f"[{self.server.host}]" if ":" in self.server.host else self.server.host
        return f"{host}:{self.server.port}"

    def _listeners(self) -> list[str]:
        """The addresses that this process listens on."""
        return [self.endpoint, *self.metrics.listeners()]

    def _letter_refusal(self, record: Subscription) -> str:
        return "" if self.access is None else self.access.service.letter_refusal(record)

    async def _held(self, subscription: int) -> tuple[list[internal.HeldStream], list[str]]:
        return list(self.streams.held(subscription)), []

    def _charge(self, topic: str, size: int) -> None:
        if self.access is not None:
            self.access.gate.charge(topic, size)

    async def _forwarded(self, request: bytes) -> bytes:
        return await published(partial(self.publisher.publish, origin=PublishOrigin.FORWARD), request)

    async def _recorded(self, topic: str, request: bytes) -> bytes:
        return await published(self.publisher.publish, request)

    async def _ack_key(self) -> bytes:
        key = self.control.catalog.setting(ACK_KEY)
        if key is None:
            key = self.random.token(32)
            await self.control.commit([CatalogChange.put(Setting(ACK_KEY, key))])
        return key

    async def _listen(self) -> Listening:
        settings = self.settings
        self.schema_gate = SchemaGate(self.control.catalog, self.environment.apart)
        self.admin.letters.prepare = self.schema_gate.marked_apart
        transforms = PublishTransforms(self.transformer, self.clock, self.random)
        self.publisher = PublisherService(self.publish, MessagePreparation(self.schema_gate, transforms))
        self.streams = StreamingPullService(self.subscribe, self.limits)
        self.pulls = SubscriberService(self.subscribe)
        self.health = HealthService()
        gate = self.access.gate if self.access is not None else None
        accounts = self.access.accounts if self.access is not None else None
        if self.access is not None:
            self.subscribe.letter_refusal = self.access.service.letter_refusal
            self.admin.service = self.access.service
            self.subscribe.quota.bytes_of = self.access.outstanding_of
            self.environment.apart.account = self.access.gate.cpu
        self.admin.apart = self.admin.peeks.apart = self.environment.apart
        clients = ConnectedClients(
            SERVER, self.clock, self.streams.open_pulls, None if gate is None else gate.principal_of
        )
        self.publisher.note_publisher = clients.note_publisher
        methods: Methods = {
            **self.publisher.methods(),
            **self.pulls.methods(),
            **self.streams.methods(),
            **seek_methods(self.control),
            **CatalogService(
                self.control, self.vetting, tuple, self.transformer, self.consumption.exports.state
            ).methods(),
            **SchemaService(self.control, apart=self.environment.apart).methods(),
            **IamService(
                self.control, Policies(self.control.catalog, accounts), gate, self.environment.apart
            ).methods(),
            **AccountsService(self.control, accounts, gate).methods(),
            **self.admin.methods(),
            **ClientAdmin(self.admin.options, lambda: {SERVER: clients.answer}, self._held, gate).methods(),
            **self.monitor.admin.methods(),
            **self.pipelines.methods(),
            **self.health.methods(),
            **reflection_methods((*SERVICES, *PIPELINES)),
        }
        methods = clients.noted(methods)
        if self.tracer is not None:
            methods = CallTraces(self.tracer).traced(methods)
        if self.access is not None:
            methods = self.access.gate.guarded(methods)
            await self.access.start()
        tls = None
        if settings.tls_cert is not None and settings.tls_key is not None:
            self.tls = PublicTls(
                settings.tls_cert, settings.tls_key, settings.tls_client_ca, optional=self.access is not None
            )
            tls = self.tls.context
        self.methods = methods
        pages = [*self.consumption.pushes.pages(), self.metrics.page(self)]
        reading = self.access.audit if self.access is not None else None
        audit = None if reading is None else lambda: {"server": reading.answer}
        pages += console_pages(
            methods, self.control.catalog, self.metrics.exposition, gate, audit, self.environment.apart
        )
        http = client_http(
            methods,
            settings.transport_limits,
            self.access,
            pages,
            apart=self.environment.apart,
            host=settings.host,
            host_names=settings.host_names,
        )
        server = await self.environment.serve(
            methods, settings.host, settings.port, tls=tls, limits=settings.transport_limits, on_fallback=http
        )
        bound_callers(server, self.access, self.environment.apart)
        if self.tls is not None:
            self.tls.start(server.renew)
        return server

    def _log_failed(self) -> None:
        """Nothing can be stored until a restart: whoever balances load should know. Reading goes on."""
        self.health.set_serving("", False)
        self.health.set_serving(methods.PUBLISHER.name, False)

    async def stop(self) -> None:
        """Drain and close. What was acknowledged is on the disks already; this only makes the next start quicker."""
        self.admin.draining = True
        self.health.stop()
        await self.monitor.stop()
        await self.metrics.stop()
        self.pulls.drain()
        await self.server.drain(self.settings.drain_s)
        await self.attendant.stop()
        await self.consumption.stop()
        await self.recording.stop()
        await self.publisher.stop()
        assert self.subscribe.transforms is not None
        await self.subscribe.transforms.stop()
        await self.transformer.close()
        self.model_names.close()
        if self.subscribe.work is not None:
            await self.subscribe.work.stop()
        self.environment.apart.close()
        if self.access is not None:
            await self.access.stop()
        if self.tls is not None:
            await self.tls.stop()
        await self.upkeep.stop()
        await self.owner.close()
        if self.tracer is not None:
            await asyncio.to_thread(self.tracer.close)
        self.mirror.flush()
        self.metadata.close()
        self.locks.release()
