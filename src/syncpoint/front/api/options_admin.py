"""What of syncpoint.admin.v1 is the same for a node and for a cluster: limits and options, kept in the catalog.

Place: under `server_admin` and `cluster_admin`. Promise: a change is persisted before the answer, and in force at once
in this process; in others as soon as they learn of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from google.protobuf.message import Message

from syncpoint.base.model.errors import FailedPrecondition, NotFound, ResourceExhausted
from syncpoint.base.model.flow import FlowLimit, FlowLimits
from syncpoint.base.model.limits import (
    DUPLICATE_WINDOW_SECONDS_MAX,
    DUPLICATE_WINDOW_SECONDS_MIN,
    TTL_SECONDS_MAX,
    TTL_SECONDS_MIN,
)
from syncpoint.base.model.names import parse_subscription, parse_topic, project_of, short_id
from syncpoint.broker.push.push_config import is_pushed
from syncpoint.broker.subscribe.own_copies import COPIES_MAX, TOO_MANY, made_by
from syncpoint.catalog.access.authors import caller, shown
from syncpoint.catalog.access.tenant_book import TenantBook
from syncpoint.catalog.metadata.catalog_replica import SharedCatalog
from syncpoint.catalog.metadata.entity_options import HERE
from syncpoint.catalog.metadata.records import CatalogChange, Setting, Subscription, Topic
from syncpoint.cluster.control.durability_classes import DurabilityClasses
from syncpoint.cluster.control.plane import ControlPlane
from syncpoint.front.api.catalog_retries import checked_again
from syncpoint.front.api.exports import is_exported
from syncpoint.front.api.home_request import check_at_home
from syncpoint.front.api.validate import duration, in_bounds, refused, seconds_of, whole_seconds
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import admin, well_known
from syncpoint.wire.protobuf.serving import served
from syncpoint.wire.transport.calls import Methods

LIMITS = "flow-limits"  # the setting that holds changed limits
_TO_LETTERS = {"dead_letter_expired": "that expires", "dead_letter_rule_errors": "that rules fail at"}


class OptionsAdmin:
    """These methods on messages; `methods()` serves them on bytes. `classes`: names of durability classes there are."""

    def __init__(self, control: ControlPlane, limits: FlowLimits, classes: Collection[str] = ()) -> None:
        self.control, self.limits, self.classes = control, limits, classes
        self._tenants = TenantBook(control.catalog)

    def methods(self) -> Methods:
        """The method table."""
        return admin_table(
            self.control,
            {
                "GetLimits": self.get_limits,
                "UpdateLimits": self.update_limits,
                "GetTopicOptions": self.get_topic_options,
                "UpdateTopicOptions": self.update_topic_options,
                "GetSubscriptionOptions": self.get_subscription_options,
                "UpdateSubscriptionOptions": self.update_subscription_options,
            },
        )

    # -- limits ------------------------------------------------------------------------------------------------------

    async def get_limits(self, request: admin.GetLimitsRequest) -> admin.Limits:
        """GetLimits."""
        return limits_message(self.limits)

    async def update_limits(self, request: admin.UpdateLimitsRequest) -> admin.Limits:
        """UpdateLimits."""
        # As committed, not as in force: a change that another call waits for must not be undone by this one.
        stored = self.control.catalog.setting(LIMITS)
        wanted = limits_message(self.limits) if stored is None else admin.Limits.FromString(stored)
        for path in _paths(request.update_mask, [field.name for field in wanted.DESCRIPTOR.fields]):
            wanted.ClearField(path)
            wanted.MergeFrom(_only(request.limits, path))
        for name in wanted.topics:
            parse_topic(name)
        for name in wanted.subscriptions:
            parse_subscription(name)
        for limit in (
            wanted.system,
            wanted.topic,
            wanted.subscriber,
            *wanted.topics.values(),
            *wanted.subscriptions.values(),
        ):
            if limit.messages < 0 or limit.bytes < 0:
                raise refused("limits", "limits must not be negative (0 means no bound)")
        await self.control.commit([CatalogChange.put(Setting(LIMITS, wanted.SerializeToString()))])
        take_limits(self.limits, wanted.SerializeToString())
        return wanted

    # -- options -----------------------------------------------------------------------------------------------------

    async def get_topic_options(self, request: admin.GetTopicOptionsRequest) -> admin.TopicOptions:
        """GetTopicOptions."""
        return topic_options(self.topic(request.topic))

    async def update_topic_options(self, request: admin.UpdateTopicOptionsRequest) -> admin.TopicOptions:
        """UpdateTopicOptions. It holds for messages published from now on."""
        wanted = request.options
        known = ["durability_class", "default_ttl", "duplicate_detection_window", "send_suspended", "records_topic"]
        paths = _paths(request.update_mask, known)
        if request.validate_only:
            parse_topic(wanted.topic)
        else:
            self.topic(wanted.topic)
        if "durability_class" in paths:
            await self._check_class(wanted.durability_class)
        if "records_topic" in paths and wanted.records_topic:
            self._check_records_topic(wanted.topic, wanted.records_topic)
        live_s = time_to_live_s(wanted, "default_ttl")
        window_s = duplicate_window_s(wanted, "duplicate_detection_window")
        if request.validate_only:
            return wanted
        record = self.topic(wanted.topic)
        self._check_demanded(record, wanted, paths)
        for path in paths:
            if path == "durability_class":
                record = replace(record, durability=wanted.durability_class)
            elif path == "default_ttl":
                record = replace(record, options=record.options._replace(default_ttl_s=live_s))
            elif path == "duplicate_detection_window":
                record = replace(record, options=record.options._replace(duplicate_window_s=window_s))
            else:
                value = getattr(wanted, path)
                if path == "records_topic":
                    record = replace(record, records_author=caller() if value else None)
                record = replace(record, options=record.options._replace(**{path: value}))
        await self.control.commit([CatalogChange.put(record)])
        return topic_options(record)

    def _check_demanded(self, record: Topic, wanted: admin.TopicOptions, paths: Collection[str]) -> None:
        """Raise `FailedPrecondition` for what the class of its project does not allow."""
        project = project_of(record.name)
        if "records_topic" in paths and not wanted.records_topic and self._tenants.class_of(project).records:
            raise FailedPrecondition(
                f"records_topic: {project} has the class billing, which demands delivery records of {record.name}. Name"
                " another topic for them, or give up the class."
            )
        if "send_suspended" in paths and record.options.written_elsewhere:
            raise FailedPrecondition(
                f"send_suspended: another site takes publishes of {project}, which has the class billing. Move the"
                " writer with `syncpoint projects set-class` instead."
            )

    def _check_records_topic(self, recorded: str, name: str) -> None:
        """Whether delivery records of a topic may go to another. Raises `NotFound`, `InvalidArgument`,
        `FailedPrecondition`.
        """
        topic = self.topic(name)
        if topic.name == recorded:
            raise refused(
                "records_topic", "records_topic must not be the topic itself, which would record its own records"
            )
        if not topic.retention_s:
            raise FailedPrecondition(
                f"{topic.name} has no message retention, which delivery records need. Set it with"
                f" `syncpoint topics update {short_id(name)} --message-retention-duration 7d`."
            )
        if topic.options.records_topic:
            raise FailedPrecondition(
                f"{topic.name} has a records_topic itself, so records would be recorded too. Name another topic."
            )
        if any(one.options.records_topic == recorded for one in self.control.catalog.topics()):
            raise FailedPrecondition(
                f"{recorded} is the records_topic of another topic, so records would be recorded too."
            )

    async def _check_class(self, wanted: str) -> None:
        if wanted and wanted not in self.classes and isinstance(self.classes, DurabilityClasses):
            await self.classes.refresh()  # it may just have been added
        if wanted and wanted not in self.classes:
            known = ", ".join(self.classes) or "none besides the default"
            raise refused("durability_class", f"Unknown durability class {wanted!r}; the classes are: {known}")

    async def get_subscription_options(self, request: admin.GetSubscriptionOptionsRequest) -> admin.SubscriptionOptions:
        """GetSubscriptionOptions."""
        return subscription_options(self.subscription(request.subscription))

    async def update_subscription_options(
        self, request: admin.UpdateSubscriptionOptionsRequest
    ) -> admin.SubscriptionOptions:
        """UpdateSubscriptionOptions."""
        record = self.subscription(request.options.subscription)
        known = ["early_delivery", "ttl", *_TO_LETTERS, "receive_suspended", "forward_to"]
        if "receive_suspended" in request.update_mask.paths:
            check_at_home(self.control, record.incarnation)
        for path in _paths(request.update_mask, known):
            value = getattr(request.options, path)
            if path == "early_delivery":
                record = replace(record, early_delivery=value)
            elif path == "ttl":
                live_s = time_to_live_s(request.options, "ttl")
                record = replace(record, options=record.options._replace(ttl_s=live_s))
            else:
                if path == "forward_to":
                    if value:
                        self._check_forward(record, value)
                    if value or record.options.forward_to:
                        record = replace(record, delivery_author=caller() if value else None)
                record = replace(record, options=record.options._replace(**{path: value}))
        for path, what in _TO_LETTERS.items():
            asked = path in request.update_mask.paths and getattr(record.options, path)
            if asked and record.dead_letter is None:
                raise FailedPrecondition(
                    f"{record.name} has no dead-letter policy, so nothing {what} can be dead-lettered. Set"
                    " dead_letter_policy first."
                )
        await self.control.commit([CatalogChange.put(record)])
        return subscription_options(record)

    def _check_forward(self, record: Subscription, target: str) -> None:
        """Whether a subscription may forward to a topic. Raises `NotFound`, `InvalidArgument`, `FailedPrecondition`."""
        topic = self.topic(target)
        if topic.incarnation == record.topic_incarnation:
            raise refused(
                "forward_to",
                "forward_to must not be the subscription's own topic, which would forward messages in a circle",
            )
        if is_pushed(record) or is_exported(record):
            raise FailedPrecondition(
                f"{record.name} is a push or export subscription and cannot forward as well. Remove that"
                " configuration first."
            )
        others = self.control.catalog.subscriptions_of(record.topic_incarnation)
        here = made_by(replace(record, options=record.options._replace(forward_to=target)))
        if sum(made_by(one) for one in others if one.incarnation != record.incarnation) + here > COPIES_MAX:
            raise ResourceExhausted(f"{record.topic_name} cannot have another forwarding subscription: {TOO_MANY}")

    # -- shared ------------------------------------------------------------------------------------------------------

    def topic(self, name: str) -> Topic:
        """The record. Raises `NotFound`."""
        record = self.control.catalog.topic(parse_topic(name))
        if record is None:
            raise NotFound(name)
        return record

    def subscription(self, name: str) -> Subscription:
        """The record. Raises `NotFound`."""
        record = self.control.catalog.subscription(parse_subscription(name))
        if record is None:
            raise NotFound(name)
        return record


Handlers = Mapping[str, Callable[[Any], Awaitable[Message]]]  # of methods, by name


def admin_table(control: ControlPlane, table: Handlers) -> Methods:
    """Methods of syncpoint.admin.v1.Admin by name as a method table."""
    return served({methods.ADMIN[name]: checked_again(control, one) for name, one in table.items()}, fair=True)


def limits_message(limits: FlowLimits) -> admin.Limits:
    """The limits as the admin API shows them."""

    def message(limit: FlowLimit) -> admin.FlowLimit:
        return admin.FlowLimit(messages=limit.messages, bytes=limit.bytes)

    return admin.Limits(
        system=message(limits.system),
        topic=message(limits.topic),
        subscriber=message(limits.subscriber),
        topics={name: message(limit) for name, limit in limits.topics.items()},
        subscriptions={name: message(limit) for name, limit in limits.subscriptions.items()},
    )


def take_limits(limits: FlowLimits, stored: bytes) -> None:
    """Put the limits of a stored setting in force."""
    message = admin.Limits.FromString(stored)

    def limit(one: admin.FlowLimit) -> FlowLimit:
        return FlowLimit(one.messages, one.bytes)

    limits.system, limits.topic, limits.subscriber = map(limit, (message.system, message.topic, message.subscriber))
    limits.topics = {name: limit(one) for name, one in message.topics.items()}
    limits.subscriptions = {name: limit(one) for name, one in message.subscriptions.items()}
    limits.on_change()


def follow_limits(shared: SharedCatalog) -> FlowLimits:
    """The limits that are stored, now and whenever they change."""
    limits = FlowLimits()

    def take() -> None:
        stored = shared.catalog.setting(LIMITS)
        if stored is not None:
            take_limits(limits, stored)

    def changed(change: CatalogChange) -> None:
        if isinstance(change.record, Setting) and change.record.name == LIMITS:
            take()

    take()
    shared.on_change.append(changed)
    return limits


def topic_options(record: Topic) -> admin.TopicOptions:
    """The options of a topic as the admin API shows them."""
    return admin.TopicOptions(
        topic=record.name,
        durability_class=record.durability,
        default_ttl=_shown(record.options.default_ttl_s),
        duplicate_detection_window=_shown(record.options.duplicate_window_s),
        queue=record.options.queue,
        send_suspended=record.options.send_suspended,
        records_topic=record.options.records_topic,
        records_author=shown(record.records_author),
        writer="elsewhere" if record.options.written_elsewhere else "here" if record.options.writer == HERE else "",
        transform_author=shown(record.transform_author),
    )


def subscription_options(record: Subscription) -> admin.SubscriptionOptions:
    """The options of a subscription as the admin API shows them."""
    return admin.SubscriptionOptions(
        subscription=record.name,
        early_delivery=record.early_delivery,
        ttl=_shown(record.options.ttl_s),
        dead_letter_expired=record.options.dead_letter_expired,
        dead_letter_rule_errors=record.options.dead_letter_rule_errors,
        receive_suspended=record.options.receive_suspended,
        forward_to=record.options.forward_to,
        delivery_author=shown(record.delivery_author),
        letter_author=shown(record.letter_author),
        transform_author=shown(record.transform_author),
    )


def time_to_live_s(options: Message, field: str) -> int:
    """The seconds of a field; 0: none."""
    seconds = seconds_of(options, field) or 0.0
    if seconds:
        in_bounds(field, seconds, TTL_SECONDS_MIN, TTL_SECONDS_MAX, "s")
    return whole_seconds(seconds)


def duplicate_window_s(options: Message, field: str) -> int:
    """The seconds of a field; 0: none."""
    seconds = seconds_of(options, field) or 0.0
    if seconds:
        in_bounds(field, seconds, DUPLICATE_WINDOW_SECONDS_MIN, DUPLICATE_WINDOW_SECONDS_MAX, "s")
    return whole_seconds(seconds)


def _shown(seconds: int) -> well_known.Duration | None:
    return duration(seconds) if seconds else None


def _paths(mask: well_known.FieldMask, known: Iterable[str]) -> list[str]:
    if not mask.paths:
        raise refused("update_mask", "update_mask must name at least one field")
    for path in mask.paths:
        if path not in known:
            raise refused(
                "update_mask", f"update_mask: {path!r} is not a field that can be changed; use {', '.join(known)}"
            )
    return list(mask.paths)


def _only(message: admin.Limits, field: str) -> admin.Limits:
    part = type(message)()
    part.CopyFrom(message)
    for other in message.DESCRIPTOR.fields:
        if other.name != field:
            part.ClearField(other.name)
    return part
