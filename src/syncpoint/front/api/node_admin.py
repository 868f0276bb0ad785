"""syncpoint.admin.v1 of one node: its disks and its log; the rest is as for a cluster.

Place: beside the other admin servicers of the node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from syncpoint.base.model.errors import NotFound
from syncpoint.base.model.flow import FlowLimits
from syncpoint.base.runtime.tasks import complete, outcome_of
from syncpoint.broker.publish.chain import states
from syncpoint.broker.publish.chain.chain_risk import chain_risk
from syncpoint.broker.publish.chain.entry_receipt import receipt
from syncpoint.broker.publish.chain.source_peek import acknowledge_seen, peek
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.broker.publish.intake.scheduled_calls import cancel_scheduled, list_scheduled
from syncpoint.broker.subscribe.subscribe_forwarder import SubscribeForwarder
from syncpoint.catalog.metadata.mirror import CatalogMirror
from syncpoint.catalog.metadata.records import Subscription
from syncpoint.cluster.control.durability_classes import DurabilityClass
from syncpoint.cluster.control.failure_domains import (
    DomainFailure,
    FailureDomains,
    ForeseenRisks,
    PlacedDisk,
    PlacedProcess,
)
from syncpoint.cluster.control.plane import ControlPlane
from syncpoint.front.api.at_risk_admin import lent_sums
from syncpoint.front.api.letter_moves import LetterMoves
from syncpoint.front.api.server_admin import ServerAdmin, ServerIdentity
from syncpoint.log.storage.placement import ANY
from syncpoint.wire.protobuf.messages import admin, internal

CHAIN = 0  # a node's log has no number among chains
SERVER = "server"
"""What a node's process is called among those that may fail."""


class LocalInquiry:
    """Answer inquiries on a single node, which holds all state itself."""

    def __init__(
        self,
        publish: PublishForwarder,
        subscribe: SubscribeForwarder,
        consumption: Callable[[int], internal.DescribeConsumptionResponse] = lambda subscription: (
            internal.DescribeConsumptionResponse()
        ),
    ) -> None:
        self._publish, self._subscribe, self._consumption = publish, subscribe, consumption

    async def chains(
        self, topic: int, subscription: int = 0, ranges_max: int = 0
    ) -> tuple[list[internal.DescribedChain], list[str]]:
        """The one log, and why its oldest message cannot be read."""
        record = self._publish.catalog.subscription_by_incarnation(subscription) if subscription else None
        found = await states.describe({CHAIN: self._publish}, topic, record, ranges_max)
        return found, [one.unreadable for one in found if one.unreadable]

    async def seek_changes(
        self, topic: int, seek: internal.ForeseenSeek
    ) -> tuple[list[internal.DescribedChain], list[str]]:
        """In the one log."""
        return await states.describe({CHAIN: self._publish}, topic, None, 0, seek), []

    async def peek(self, chain: int, request: internal.PeekRequest) -> internal.PeekResponse:
        """In the one log."""
        return await peek(self._publish, request)

    async def receipt(self, chain: int, request: internal.ReceiptRequest) -> internal.ReceiptResponse:
        """Look up a message in the node's one log."""
        return await receipt(self._publish, request)

    def domains(self) -> FailureDomains:
        """Its disks, and itself."""
        disks = [PlacedDisk(str(one.path), str(one.path)) for one in self._publish.store.status().disks]
        return FailureDomains(disks, [PlacedProcess(SERVER)])

    async def at_risk(self, failures: Sequence[DomainFailure]) -> ForeseenRisks:
        """Judge failures for the node's one log and its outstanding messages."""
        names = [str(one.path) for one in self._publish.store.status().disks]

        asked = internal.AtRiskRequest()
        for one in failures:
            asked.failures.add(gone=one.gone, silent=one.silent, owner=SERVER in one.processes)
        risk = await chain_risk(CHAIN, self._publish, names, asked)
        return ForeseenRisks([risk], {SERVER: lent_sums(self._subscribe.lent())}, [])

    async def scheduled(self, request: internal.ScheduledListRequest) -> list[internal.ScheduledOfChain]:
        """In the one log."""
        return [await list_scheduled(self._publish, CHAIN, request)]

    async def cancel_scheduled(self, request: internal.ScheduledCancelRequest) -> bool:
        """In the one log."""
        persisted, on_outcome = outcome_of("cancel a message that waits")
        try:
            cancel_scheduled(self._publish, request.topic, request.source, request.offset, on_outcome)
        except NotFound:
            return False
        await persisted
        return True

    async def acknowledge_seen(self, chain: int, request: internal.AcknowledgeSeenRequest) -> None:
        """In the one log."""
        await acknowledge_seen(self._publish, request)

    async def give_up(self, record: Subscription, request: internal.DeadLetterRequest) -> internal.DeadLetterResponse:
        """Dead-letter outstanding messages; all of them are leased in this process."""
        return await LetterMoves(self._subscribe).move(request)

    async def publish_letter(self, topic: str, request: bytes) -> bytes:
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._publish.server.publish(topic, request, partial(complete, answer))
        return await answer

    async def deliveries(self, subscription: int) -> tuple[tuple[int, int, int, int], list[str]]:
        """What is out with subscribers here."""
        delivery = self._subscribe.deliveries.get(subscription)
        if delivery is None:
            return (0, 0, 0, 0), []
        messages, nbytes = delivery.table.total()
        return (messages, nbytes, len(delivery.consumers), delivery.leaving), []

    async def consumption(self, subscription: int) -> tuple[internal.DescribeConsumptionResponse, list[str]]:
        """How it is pushed or exported from here."""
        return self._consumption(subscription), []


class NodeAdmin(ServerAdmin):
    """The service on messages; `methods()` serves it on bytes. `mirror`: the catalog's copy beside the log."""

    mirror: CatalogMirror | None = None

    def __init__(
        self,
        control: ControlPlane,
        publish: PublishForwarder,
        inquiry: LocalInquiry,
        limits: FlowLimits,
        durability: str,
        started_ns: int,
    ) -> None:
        self._store = publish.store
        identity = ServerIdentity(publish.store.universe, durability, started_ns)
        one = DurabilityClass(clusters=1, disks=len(self._store.status().disks), durability=durability, placement=ANY)
        super().__init__(control, limits, identity, inquiry, {one.name: one})
        self.letters.give_up, self.letters.publish = inquiry.give_up, inquiry.publish_letter

    def positions(self) -> admin.Server:
        """Those of the node's log."""
        status = self._store.status()
        return admin.Server(
            log_counter=self._store.log_counter,
            appended_position=status.appended,
            persisted_position=status.persisted,
            under_replicated=status.under_replicated,
            catalog_copy_error="" if self.mirror is None else self.mirror.failed,
        )

    async def list_disks(self, request: admin.ListDisksRequest) -> admin.ListDisksResponse:
        """ListDisks."""
        status = self._store.status()
        disks = [
            admin.Disk(
                path=str(disk.path),
                state=admin.Disk.State.Value(disk.state.upper()),
                reason=disk.reason,
                incarnation=disk.incarnation,
                free_bytes=disk.free_bytes,
                position=disk.position,
                under_replicated=max(0, status.appended - disk.position),
                damaged=disk.unreadable,
            )
            for disk in status.disks
        ]
        return admin.ListDisksResponse(disks=disks, under_replicated=status.under_replicated)
