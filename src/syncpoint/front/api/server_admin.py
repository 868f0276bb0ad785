"""syncpoint.admin.v1: what Google's interface has no words for, as far as a node and a cluster answer it alike.

Place: under `node_admin` and `cluster_admin`; the CLI and the console use it. It reads the catalog, asks the owner of a
chain open for what only they know, and changes limits and options (`options_admin`).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict
from typing import NamedTuple, Protocol

import syncpoint
from syncpoint.base import kernel
from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.base.model.flow import FlowLimits
from syncpoint.base.model.identity import log_of
from syncpoint.base.runtime.child_processes import Apart, at_once
from syncpoint.broker.push.push_config import is_pushed
from syncpoint.broker.router.location import DEFAULT_CLASS
from syncpoint.catalog.access.services import ServiceIdentity
from syncpoint.catalog.metadata.home_sites import home_of
from syncpoint.catalog.metadata.records import Subscription
from syncpoint.cluster.control.durability_classes import DurabilityClass
from syncpoint.cluster.control.plane import ControlPlane
from syncpoint.front.api.at_risk_admin import AskingAboutRisks, AtRiskAdmin
from syncpoint.front.api.exports import is_exported
from syncpoint.front.api.letter_admin import LetterAdmin
from syncpoint.front.api.options_admin import Handlers, OptionsAdmin, admin_table, subscription_options
from syncpoint.front.api.peek_admin import AskingChains, PeekAdmin
from syncpoint.front.api.receipt_admin import ReceiptAdmin
from syncpoint.front.api.rule_admin import RuleAdmin
from syncpoint.front.api.scheduled_admin import AskingForScheduled, ScheduledAdmin
from syncpoint.front.api.seek_request import AskingAboutSeeks, SeekAdmin
from syncpoint.front.api.validate import refused
from syncpoint.wire.protobuf.messages import admin, internal
from syncpoint.wire.transport.calls import Methods

RANGES_MAX = 100


class Asking(AskingChains, AskingForScheduled, AskingAboutRisks, AskingAboutSeeks, Protocol):
    """Questions to those who know a part of the answer; what could not be found out is reported in words. `chains`:
    what each chain holds of a topic.
    """

    async def deliveries(self, subscription: int) -> tuple[tuple[int, int, int, int], list[str]]:
        """What is out with the subscribers of a subscription: messages, bytes, subscribers, and messages of keys that
        leave.
        """
        ...

    async def consumption(self, subscription: int) -> tuple[internal.DescribeConsumptionResponse, list[str]]:
        """How a subscription is pushed or exported; empty while nobody does."""
        ...


class ServerIdentity(NamedTuple):
    """What does not change while the process lives."""

    universe: int
    durability: str
    started_ns: int


class ServerAdmin(ABC):
    """The service on messages; `methods()` serves it on bytes. `classes`: the durability classes, by name."""

    def __init__(
        self,
        control: ControlPlane,
        limits: FlowLimits,
        identity: ServerIdentity,
        inquiry: Asking,
        classes: Mapping[str, DurabilityClass],
    ) -> None:
        self.control, self.identity, self.classes = control, identity, classes
        self.options = OptionsAdmin(control, limits, classes)
        self.draining = False
        self.service: ServiceIdentity | None = None
        """The judge of whether messages may go where they go; None: nobody is asked."""
        self.peeks = PeekAdmin(self.options, inquiry)
        self.scheduled = ScheduledAdmin(self.options, inquiry, self.peeks, identity.universe)
        self.receipts = ReceiptAdmin(self.options, inquiry, identity.universe)
        self.letters = LetterAdmin(self.options, self.peeks, inquiry)
        self._asking = inquiry
        self.apart: Apart = at_once

    def methods(self) -> Methods:
        """The method table of this service."""
        table: Handlers = {
            "GetServer": self.get_server,
            "ListDisks": self.list_disks,
            "ListDurabilityClasses": self.list_durability_classes,
            "CreateDurabilityClass": self.create_durability_class,
            "GetTopicState": self.get_topic_state,
            "GetSubscriptionState": self.get_subscription_state,
        }
        rules = RuleAdmin(self.control, self.options, self.apart)
        risks = AtRiskAdmin(self.options, self._asking)
        seeks = SeekAdmin(self.control, self._asking)
        own = admin_table(self.control, table)
        return {
            **self.options.methods(),
            **self.peeks.methods(),
            **self.scheduled.methods(),
            **self.receipts.methods(),
            **risks.methods(),
            **seeks.methods(),
            **rules.methods(),
            **self.letters.methods(),
            **own,
        }

    def positions(self) -> admin.Server:
        """Fields of GetServer that only a single log has."""
        return admin.Server()

    async def get_server(self, request: admin.GetServerRequest) -> admin.Server:
        """GetServer."""
        topics, subscriptions, snapshots = self.control.catalog.counts()
        answer = admin.Server(
            version=syncpoint.__version__,
            universe=self.identity.universe,
            durability=admin.Durability.Value(self.identity.durability.upper()),
            compiled_kernel=kernel.COMPILED,
            topics=topics,
            subscriptions=subscriptions,
            snapshots=snapshots,
            draining=self.draining,
        )
        answer.MergeFrom(self.positions())
        answer.start_time.FromNanoseconds(self.identity.started_ns)
        answer.uptime.FromNanoseconds(max(0, self.control.clock.time_ns() - self.identity.started_ns))
        return answer

    @abstractmethod
    async def list_disks(self, request: admin.ListDisksRequest) -> admin.ListDisksResponse:
        """ListDisks."""

    async def list_durability_classes(
        self, request: admin.ListDurabilityClassesRequest
    ) -> admin.ListDurabilityClassesResponse:
        """ListDurabilityClasses."""
        found = [_class_message(one) for _, one in sorted(self.classes.items())]
        return admin.ListDurabilityClassesResponse(durability_classes=found)

    async def create_durability_class(self, request: admin.CreateDurabilityClassRequest) -> admin.DurabilityClass:
        """CreateDurabilityClass."""
        asked = request.durability_class
        base = self.classes[DEFAULT_CLASS]
        made = DurabilityClass(
            asked.name,
            asked.clusters or base.clusters,
            asked.disks or base.disks,
            asked.within or base.within,
            asked.over or base.over,
            _durability(asked.durability) if asked.durability else base.durability,
            asked.placement or base.placement,
            asked.racks_min or base.racks_min,
            asked.spans_regions if asked.HasField("spans_regions") else base.spans_regions,
        )
        made.check()
        await self.add_class(made, validate_only=request.validate_only)
        return _class_message(made)

    async def add_class(self, made: DurabilityClass, *, validate_only: bool) -> None:
        """Add a durability class. Raises `FailedPrecondition` where there is no more than one."""
        raise FailedPrecondition(
            "A single server stores all messages with the disks and the durability that it was started with"
            " (`syncpoint serve --disk ... --durability ...`). Only clusters have further durability classes."
        )

    async def get_topic_state(self, request: admin.GetTopicStateRequest) -> admin.TopicState:
        """GetTopicState. Sources are known to those who have the chains open."""
        catalog, record = self.control.catalog, self.options.topic(request.topic)
        chains, unknown = await self._asking.chains(record.incarnation)
        answer = admin.TopicState(
            topic=record.name,
            incarnation=record.incarnation,
            subscriptions=catalog.subscription_count_of(record.incarnation),
            snapshots=len(catalog.snapshots_of(record.incarnation)),
            unknown=unknown,
        )
        if self.service is not None:
            if refusal := self.service.ask_records(record):
                answer.records_advice = refusal
            if refusal := self.service.ask_acting(record):
                answer.transform_advice = refusal
        for chain in chains:
            for source in chain.sources:
                answer.sources.add(
                    source=source.source,
                    log_counter=log_of(source.source),
                    source_number=source.source,
                    first_offset=source.first_offset,
                    next_offset=source.next_offset,
                    chain=chain.chain,
                )
        return answer

    async def get_subscription_state(self, request: admin.GetSubscriptionStateRequest) -> admin.SubscriptionState:
        """GetSubscriptionState: summed over all chains and all subscribe forwarders."""
        record = self.options.subscription(request.subscription)
        if request.ranges_max < 0:
            raise refused("ranges_max", "ranges_max must not be negative (0 means 100)")
        answer = admin.SubscriptionState(
            subscription=record.name,
            incarnation=record.incarnation,
            generation=record.generation,
            options=subscription_options(record),
        )
        home = home_of(self.control.catalog, record.incarnation)
        if home is not None and home.elsewhere:
            answer.home = home.home
        if record.detached:
            return answer  # it has no backlog
        if self.service is not None:
            self._add_rights(answer, record, self.service)
        (chains, unknown), (out, silent) = await asyncio.gather(
            self._asking.chains(record.topic_incarnation, record.incarnation, request.ranges_max or RANGES_MAX),
            self._asking.deliveries(record.incarnation),
        )
        answer.unknown.extend([*unknown, *silent])
        if _is_consumed(record):
            found, silent = await self._asking.consumption(record.incarnation)
            answer.unknown.extend(silent)
            if found.HasField("state"):
                answer.push.CopyFrom(found.state)
            if found.HasField("export"):
                answer.export.CopyFrom(found.export)
            if found.HasField("forward"):
                answer.forward.CopyFrom(found.forward)
        answer.outstanding_messages, answer.outstanding_bytes, answer.subscribers, leaving = out
        if leaving:
            answer.leaving_messages = leaving
        oldest_s = 0.0
        for chain in chains:
            answer.generation = max(answer.generation, chain.generation)
            answer.backlog_messages += chain.backlog_messages
            answer.backlog_bytes += chain.backlog_bytes
            oldest_s = max(oldest_s, chain.oldest_age_s)
            answer.sources.extend(_ack_state(chain.chain, source) for source in chain.sources)
        if any(chain.backlog_messages and not chain.unreadable for chain in chains):
            answer.oldest_unacked_age.FromNanoseconds(int(oldest_s * 1e9))
        return answer

    def _add_rights(self, answer: admin.SubscriptionState, record: Subscription, service: ServiceIdentity) -> None:
        """Why messages may not go where they go."""
        if _is_consumed(record) and (refusal := service.ask_delivery(record)):
            answer.delivery_advice = refusal
        if record.dead_letter is not None and (refusal := service.ask_letters(record)):
            answer.dead_letter_advice = refusal
        if refusal := service.ask_acting(record):
            answer.transform_advice = refusal


def _is_consumed(record: Subscription) -> bool:
    return is_pushed(record) or is_exported(record) or bool(record.options.forward_to)


def _durability(number: int) -> str:
    """What a number of the enum is called in a durability class; one that there is not is refused by its check."""
    try:
        return str(admin.Durability.Name(number)).lower()
    except KeyError:
        return str(number)


def _class_message(one: DurabilityClass) -> admin.DurabilityClass:
    return admin.DurabilityClass(**{**asdict(one), "durability": one.durability.upper()})


def _ack_state(chain: int, source: internal.DescribedSource) -> admin.AckState:
    ends = source.acked
    return admin.AckState(
        source=source.source,
        start_offset=source.start_offset,
        first_unacked_offset=source.first_unacked_offset,
        next_offset=source.next_offset,
        acked_messages=source.acked_messages,
        acked=[admin.OffsetRange(begin=begin, end=end) for begin, end in zip(ends[::2], ends[1::2], strict=True)],
        ranges_total=source.ranges_total,
        chain=chain,
        universe=source.universe,
        copies=source.copies,
    )
