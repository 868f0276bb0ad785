"""syncpoint.admin.v1: what Google's interface has no words for.

Place: beside the other servicers; the CLI and the console use it. It reads the state of the running parts and changes
limits and options, persisted before the answer, in force at once.
"""

from collections.abc import Awaitable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import syncpoint
from syncpoint import kernel
from syncpoint.api.options_admin import Control as Changing
from syncpoint.api.options_admin import OptionsAdmin, admin_table, subscription_options
from syncpoint.api.validate import refused
from syncpoint.kernel.acks import AckSet
from syncpoint.metadata.records import Subscription
from syncpoint.model.flow import FlowLimits
from syncpoint.model.identity import log_of
from syncpoint.publish.forwarder import PublishForwarder
from syncpoint.storage.store import Store
from syncpoint.subscribe.forwarder import SubscribeForwarder
from syncpoint.transport.calls import Unary
from syncpoint.wire.messages import admin

RANGES_MAX = 100


class Control(Changing, Protocol):
    """What the control plane offers here."""

    def oldest_unacked(self, record: Subscription, /) -> Awaitable[tuple[float, float] | None]:
        """Age in seconds of the oldest unacknowledged message and mean bytes of the messages stored with it."""
        ...


@dataclass(slots=True)
class Parts:
    """The running parts this service looks into."""

    control: Control
    publish: PublishForwarder
    subscribe: SubscribeForwarder
    store: Store
    limits: FlowLimits
    durability: str
    started_ns: int
    draining: bool = False


class ServerAdmin:
    """The service on messages; `methods()` serves it on bytes."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.options = OptionsAdmin(parts.control, parts.limits)

    def methods(self) -> dict[bytes, Unary]:
        """The method table of this service."""
        table = {
            "GetServer": (admin.GetServerRequest, self.get_server),
            "ListDisks": (admin.ListDisksRequest, self.list_disks),
            "GetSubscriptionState": (admin.GetSubscriptionStateRequest, self.get_subscription_state),
            "GetTopicState": (admin.GetTopicStateRequest, self.get_topic_state),
        }
        return {**self.options.methods(), **admin_table(self.parts.control, table)}

    async def get_server(self, request: Any) -> Any:
        """GetServer."""
        parts = self.parts
        topics, subscriptions, snapshots = parts.control.catalog.counts()
        status, now_ns = parts.store.status(), parts.control.clock.time_ns()
        answer = admin.Server(
            version=syncpoint.__version__,
            universe=parts.store.universe,
            log_counter=parts.store.log_counter,
            durability=admin.Durability.Value(parts.durability.upper()),
            compiled_kernel=kernel.COMPILED,
            appended_position=status.appended,
            persisted_position=status.persisted,
            under_replicated=status.under_replicated,
            topics=topics,
            subscriptions=subscriptions,
            snapshots=snapshots,
            draining=parts.draining,
        )
        answer.start_time.FromNanoseconds(parts.started_ns)
        answer.uptime.FromNanoseconds(max(0, now_ns - parts.started_ns))
        return answer

    async def list_disks(self, request: Any) -> Any:
        """ListDisks."""
        status = self.parts.store.status()
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

    # -- state -------------------------------------------------------------------------------------------------------

    async def get_topic_state(self, request: Any) -> Any:
        """GetTopicState."""
        catalog = self.parts.control.catalog
        record = self.options.topic(request.topic)
        sources = []
        for source in self.parts.publish.sources.of_topic(record.incarnation):
            bounds = self.parts.store.bounds(source.number)
            sources.append(
                admin.SourceState(
                    source=source.number,
                    log_counter=log_of(source.number),
                    source_number=source.number,
                    first_offset=bounds[0] if bounds else source.end,
                    next_offset=source.end,
                )
            )
        return admin.TopicState(
            topic=record.name,
            incarnation=record.incarnation,
            sources=sources,
            subscriptions=catalog.subscription_count_of(record.incarnation),
            snapshots=len(catalog.snapshots_of(record.incarnation)),
        )

    async def get_subscription_state(self, request: Any) -> Any:
        """GetSubscriptionState."""
        record = self.options.subscription(request.subscription)
        if request.ranges_max < 0:
            raise refused("ranges_max", "ranges_max must not be negative (0 means 100)")
        publish, store = self.parts.publish, self.parts.store
        ledger = publish.ledgers.get(record.incarnation)
        answer = admin.SubscriptionState(
            subscription=record.name, incarnation=record.incarnation, options=subscription_options(record)
        )
        if ledger is None:
            return answer  # detached: it has no backlog
        answer.generation = ledger.generation
        for source in publish.sources.of_topic(record.topic_incarnation):
            acks = ledger.acks.get(source.number)
            bounds = store.bounds(source.number)
            first = bounds[0] if bounds else source.visible
            if first < source.visible:
                held = source.visible - first
                answer.backlog_messages += held - (acks.count(first, source.visible) if acks else 0)
            answer.sources.append(
                _ack_state(
                    source.number,
                    source.end,
                    ledger.start.get(source.number, 0),
                    acks,
                    request.ranges_max or RANGES_MAX,
                )
            )
        oldest = await self.parts.control.oldest_unacked(record)
        if oldest is not None and answer.backlog_messages:
            answer.oldest_unacked_age.FromNanoseconds(int(oldest[0] * 1e9))
            answer.backlog_bytes = int(answer.backlog_messages * oldest[1])
        delivery = self.parts.subscribe.deliveries.get(record.incarnation)
        if delivery is not None:
            answer.outstanding_messages, answer.outstanding_bytes = delivery.table.total()
            answer.subscribers = len(delivery.consumers)
        return answer


def _ack_state(source: int, end: int, start: int, acks: AckSet | None, ranges_max: int) -> Any:
    runs = list(acks.runs()) if acks is not None else []
    return admin.AckState(
        source=source,
        start_offset=start,
        first_unacked_offset=acks.first_gap(0) if acks is not None else 0,
        next_offset=end,
        acked_messages=acks.count(0, end) if acks is not None else 0,
        acked=[admin.OffsetRange(begin=begin, end=begin + length) for begin, length in islice(runs, ranges_max)],
        ranges_total=len(runs),
    )
