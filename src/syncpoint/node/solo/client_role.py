"""The port of a node, whose clients are answered by its own forwarders."""

from __future__ import annotations

import ssl
from functools import partial

from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.broker.forward.own_call import published
from syncpoint.broker.inner.feed import open_feed
from syncpoint.broker.publish.intake.message_preparation import MessagePreparation
from syncpoint.broker.subscribe.transformed_sending import DeliveryTransforms
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.schemas.publishing import SchemaGate
from syncpoint.catalog.transforms.publish_requests import PublishTransforms
from syncpoint.front.api.health import HealthService
from syncpoint.front.api.node_admin import SERVER, LocalInquiry, NodeAdmin
from syncpoint.front.api.publisher import PublisherService
from syncpoint.front.api.reflection import PIPELINES, SERVICES, reflection_methods
from syncpoint.node.client_port import Backend, ClientPort
from syncpoint.node.process import Role
from syncpoint.node.process_metrics import Measured
from syncpoint.node.solo.own_chain import OwnChain
from syncpoint.node.solo.solo_context import SoloContext
from syncpoint.node.subscribe_role import SubscribeRole
from syncpoint.watch.console.audit_trail import AuditLogs
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal
from syncpoint.wire.transport.calls import Methods
from syncpoint.wire.transport.network import Listening
from syncpoint.wire.transport.server import Fallback


def check_stored_here(catalog: Catalog, region: str) -> None:
    """Raise `FailedPrecondition` where a topic may not be stored in this region; before anybody can publish to it."""
    barred = next((one for one in catalog.topics() if one.regions and region not in one.regions), None)
    if barred is None:
        return
    where = f"this server is in {region}" if region else "this server has no region"
    raise FailedPrecondition(
        f"{barred.name} may be stored in {', '.join(barred.regions)[:200]} alone, and {where}. Start it with --region"
        f" {barred.regions[0]}, or with another --data folder."
    )


class ClientRole(Role):
    """Serve the clients of a node."""

    def __init__(self, context: SoloContext, log: OwnChain, deliveries: SubscribeRole) -> None:
        self._context, self._log, self._deliveries = context, log, deliveries

    async def start(self) -> None:
        """Make the parts; clients cannot call yet."""
        context, log, forwarder = self._context, self._log, self._deliveries.forwarder
        check_stored_here(log.control.catalog, context.settings.region)
        self.port = port = ClientPort(context, context.settings, log.control)
        self.transforms = forwarder.transforms = DeliveryTransforms(port.transformer)
        if port.access is not None:
            context.recording.recorder.refusal = port.access.service.records_refusal
            self._deliveries.heed(port.access)
        inquiry = LocalInquiry(log.publish, forwarder, lambda number: port.consumption.describe(number))
        durability, started_ns = context.settings.durability, context.clock.time_ns()
        self.admin = NodeAdmin(log.control, log.publish, inquiry, context.limits, durability, started_ns)
        self.admin.mirror = context.mirror
        self.schemas = SchemaGate(log.control.catalog, context.environment.apart)
        transforms = PublishTransforms(port.transformer, context.clock, context.random)
        self.publisher = PublisherService(log.publish, MessagePreparation(self.schemas, transforms))
        context.publish_own = self._publish_own
        self.health = HealthService()
        port.connect(
            Backend(
                self.admin,
                self.publisher,
                inquiry,
                inquiry.give_up,
                inquiry.publish_letter,
                self.schemas.marked_apart,
                partial(open_feed, forwarder),
                self._deliveries.streams.open_pulls,
                self._held,
                lambda answer: lambda: {SERVER: answer},
                self._own_methods(),
                regions=lambda: {context.settings.region} - {""},
            )
        )

    def _own_methods(self) -> Methods:
        return {
            **self.publisher.methods(),
            **self._deliveries.pulls.methods(),
            **self._deliveries.streams.methods(),
            **self._context.monitor.admin.methods(),
            **self._log.pipelines.methods(),
            **self.health.methods(),
            **reflection_methods((*SERVICES, *PIPELINES)),
        }

    async def on_joined(self) -> None:
        """Open the port."""
        await self.port.open(self._serve, self._audit())
        self.port.begin()
        self._log.host.on_ended = lambda number, error: self._log_failed()
        if self._log.publish.commit.failed is not None:
            self._log_failed()

    async def drain(self) -> None:
        """Streams are asked to go elsewhere, and open calls finish."""
        self.admin.draining = True
        self.health.stop()
        self._deliveries.pulls.drain()
        await self.port.drain(self._context.settings.drain_s)
        await self.port.retire()

    async def stop(self) -> None:
        """Leave nothing behind."""
        await self.publisher.stop()
        await self.transforms.stop()
        await self.port.close()

    def measure(self, found: Measured) -> None:
        found.add_port(self.port, self.schemas)

    async def _serve(self, methods: Methods, tls: ssl.SSLContext | None, on_fallback: Fallback | None) -> Listening:
        settings = self._context.settings
        return await self._context.environment.serve(
            methods, settings.host, settings.port, tls=tls, limits=settings.transport_limits, on_fallback=on_fallback
        )

    async def _held(self, subscription: int) -> tuple[list[internal.HeldStream], list[str]]:
        return list(self._deliveries.streams.held(subscription)), []

    async def _publish_own(self, topic: str, request: bytes) -> bytes:
        return await published(self.publisher.publish, request)

    def _audit(self) -> AuditLogs | None:
        reading = None if self.port.access is None else self.port.access.audit
        return None if reading is None else lambda: {SERVER: reading.answer}

    def _log_failed(self) -> None:
        """Nothing can be stored until a restart: load balancers should know. Reading goes on."""
        self.health.set_serving("", False)
        self.health.set_serving(methods.PUBLISHER.name, False)
