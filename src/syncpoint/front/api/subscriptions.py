"""Subscriptions: from request to record, and from record to response.

Place: pure functions under `admin_handlers`; whether a topic exists is asked there.
Promise: a record that comes out of here is legal, with the defaults of Pub/Sub filled in, and its attributes and its
`config` say the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from syncpoint.base.model import limits
from syncpoint.base.model.errors import FailedPrecondition, Unimplemented
from syncpoint.base.model.names import DELETED_TOPIC, parse_subscription, parse_topic
from syncpoint.base.rules import pubsub_filter
from syncpoint.broker.push.addresses import Vetting
from syncpoint.broker.push.push_config import VERSION, check_push_config
from syncpoint.catalog.metadata.message_rules import TRANSFORMS, accounts_asked_as
from syncpoint.catalog.metadata.records import CREATING, Author, DeadLetter, Retry, Subscription, Topic
from syncpoint.front.api import masks
from syncpoint.front.api.exports import EXPORTS, ExportStateOf, check_exports, show_export
from syncpoint.front.api.validate import (
    check_labels,
    config_of,
    duration,
    in_bounds,
    refused,
    seconds_of,
    whole_seconds,
)
from syncpoint.wire.protobuf.messages import pubsub

AuthorOf = Callable[[], Author | None]
_NOT_KEPT = (
    "name", "topic", "detached", "topic_message_retention_duration", "state", "analytics_hub_subscription_info", "tags",
)  # fmt: skip
_MUTABLE = frozenset({
    "push_config", "ack_deadline_seconds", "retain_acked_messages", "message_retention_duration", "labels",
    "expiration_policy", "dead_letter_policy", "retry_policy", "enable_exactly_once_delivery", "message_transforms",
    *EXPORTS,
})  # fmt: skip


def new_subscription(
    request: pubsub.Subscription,
    topic: Topic | None,
    now_ns: int,
    vetting: Vetting | None = None,
    author: AuthorOf = lambda: None,
) -> Subscription:
    """A legal record from a pubsub.Subscription, with incarnation 0 and no sync point.

    `topic`: what the request's topic name leads to; with None the record belongs to incarnation 0, and the caller must
    refuse it. `vetting`: where pushes may go; None: this server pushes nothing. `author`: who asks for it, where a
    field needs that; None: callers are not identified. Raises `InvalidArgument` or `Unimplemented`.
    """
    parse_subscription(request.name)
    parse_topic(request.topic)
    if request.filter:
        pubsub_filter.compile(request.filter)
    incarnation = 0 if topic is None else topic.incarnation
    record = Subscription(0, request.name, incarnation, request.topic, created_ns=now_ns)
    fields = ("push_config", *EXPORTS, "dead_letter_policy", TRANSFORMS)
    return _authored(_filled(record, request, vetting), fields, author)


def resumes(known: Subscription, wanted: Subscription) -> bool:
    """Whether a new subscription is the same as one whose creation was begun and not finished."""
    same = replace(
        known,
        incarnation=wanted.incarnation,
        created_ns=wanted.created_ns,
        created_revision=wanted.created_revision,
        state=wanted.state,
        delivery_author=wanted.delivery_author,
        letter_author=wanted.letter_author,
        transform_author=wanted.transform_author,
    )
    return known.state == CREATING and same == wanted


def changed_subscription(
    record: Subscription,
    request: pubsub.UpdateSubscriptionRequest,
    vetting: Vetting | None = None,
    author: AuthorOf = lambda: None,
) -> Subscription:
    """The record as an UpdateSubscriptionRequest of this author wants it. Raises `InvalidArgument` or
    `Unimplemented`."""
    paths = masks.checked_paths(request, request.subscription, _MUTABLE)
    message = pubsub.Subscription.FromString(record.config)
    masks.merge(message, request.subscription, paths)
    return _authored(_filled(record, message, vetting), paths, author)


def pushed_elsewhere(
    record: Subscription, config: pubsub.PushConfig, vetting: Vetting | None = None, author: AuthorOf = lambda: None
) -> Subscription:
    """The record with another push_config, as this author wants it; one without an endpoint means pull. Raises
    `InvalidArgument`."""
    message = pubsub.Subscription.FromString(record.config)
    version = message.push_config.attributes.get(VERSION)
    message.push_config.CopyFrom(config)
    if version is not None and VERSION not in config.attributes:
        message.push_config.attributes[VERSION] = version
    return _authored(_filled(record, message, vetting), ("push_config",), author)


def _authored(record: Subscription, paths: Iterable[str], author: AuthorOf) -> Subscription:
    """The record after this author has set these fields: the caller who sets where messages go, or as whom a model is
    asked, is checked for it later. A field inside a dead letter policy, unless it is the topic, does not affect
    that."""
    message = pubsub.Subscription.FromString(record.config)
    if not (message.HasField("push_config") or _exports(message) or record.options.forward_to):
        record = replace(record, delivery_author=None)
    if record.dead_letter is None:
        record = replace(record, letter_author=None)
    for path in paths:
        name = path.partition(".")[0]
        if name in ("push_config", *EXPORTS) and message.HasField(name):
            record = replace(record, delivery_author=author())
        elif path in ("dead_letter_policy", "dead_letter_policy.dead_letter_topic") and record.dead_letter is not None:
            record = replace(record, letter_author=author())
        elif path == TRANSFORMS:
            acts = message.message_transforms and accounts_asked_as(message.message_transforms)
            record = replace(record, transform_author=author() if acts else None)
    return record


def subscription_message(
    record: Subscription,
    topic: Topic | None,
    dead_letter_exists: bool = True,
    export_state: ExportStateOf | None = None,
) -> pubsub.Subscription:
    """The pubsub.Subscription that users see. `topic`: the topic it belongs to, None when that was deleted.
    `export_state`: of one that is exported to a bucket."""
    message = pubsub.Subscription.FromString(record.config)
    message.name = record.name
    message.topic = DELETED_TOPIC if topic is None else record.topic_name
    if record.state != CREATING:
        message.state = pubsub.Subscription.ACTIVE
        if _exports(message):
            show_export(message, record, export_state)
    message.detached = record.detached
    message.push_config.SetInParent()
    if topic is not None and topic.retention_s:
        configured = pubsub.Topic.FromString(topic.config).message_retention_duration
        message.topic_message_retention_duration.CopyFrom(configured)
    if record.dead_letter is not None and not dead_letter_exists:
        message.dead_letter_policy.dead_letter_topic = DELETED_TOPIC
    return message


def _filled(record: Subscription, message: pubsub.Subscription, vetting: Vetting | None) -> Subscription:
    """Check a message, fill in its defaults, and take its values over into the record."""
    message = pubsub.Subscription.FromString(message.SerializeToString())  # the caller's stays as it is
    if message.HasField("push_config"):
        _fill_push(message, vetting)
    if _exports(message):
        check_exports(message)
    if record.options.forward_to and (message.HasField("push_config") or _exports(message)):
        raise FailedPrecondition(
            f"{record.name} forwards to {record.options.forward_to} and cannot be a push or export subscription as"
            " well."
            " Clear forward_to first."
        )
    if message.labels:
        check_labels(dict(message.labels))
    message.ack_deadline_seconds = message.ack_deadline_seconds or limits.ACK_DEADLINE_SECONDS_DEFAULT
    deadline = message.ack_deadline_seconds
    bounds = limits.ACK_DEADLINE_SECONDS_MIN, limits.ACK_DEADLINE_SECONDS_MAX
    in_bounds("ack_deadline_seconds", deadline, *bounds, "s")
    retention = _retention(message)
    expiration_s = _expiration(message, retention)
    dead_letter = _dead_letter(message)
    retry = _retry(message)
    return replace(
        record,
        config=config_of(message, _NOT_KEPT),
        ack_deadline_s=deadline,
        retention_s=whole_seconds(retention),
        retain_acked=message.retain_acked_messages,
        ordered=message.enable_message_ordering,
        exactly_once=message.enable_exactly_once_delivery,
        filter_text=message.filter,
        dead_letter=dead_letter,
        retry=retry,
        expiration_s=expiration_s,
    )


def _fill_push(message: pubsub.Subscription, vetting: Vetting | None) -> None:
    if vetting is None and message.push_config.push_endpoint:
        raise Unimplemented("Subscription.push_config.push_endpoint")
    check_push_config(message.push_config, vetting or Vetting())
    if message.push_config.push_endpoint and message.enable_exactly_once_delivery:
        raise refused(
            "enable_exactly_once_delivery",
            "Exactly-once delivery is not supported for push subscriptions. Use pull, or unset"
            " enable_exactly_once_delivery.",
        )
    if not message.push_config.push_endpoint:
        message.ClearField("push_config")


def _exports(message: pubsub.Subscription) -> bool:
    """Whether it has an export at all, which may be without a destination."""
    return any(message.HasField(field) for field in EXPORTS)


def _retention(message: pubsub.Subscription) -> float:
    field = "message_retention_duration"
    retention = seconds_of(message, field)
    if retention is None:
        retention = float(limits.SUBSCRIPTION_RETENTION_SECONDS_DEFAULT)
        message.message_retention_duration.CopyFrom(duration(retention))
    in_bounds(
        field, retention, limits.SUBSCRIPTION_RETENTION_SECONDS_MIN, limits.SUBSCRIPTION_RETENTION_SECONDS_MAX, "s"
    )
    return retention


def _expiration(message: pubsub.Subscription, retention: float) -> int | None:
    """No policy at all means the default time; a policy without a time means never. A subscription does not expire
    before what it retains.
    """
    if not message.HasField("expiration_policy"):
        message.expiration_policy.ttl.CopyFrom(duration(limits.EXPIRATION_TTL_SECONDS_DEFAULT))
    ttl = seconds_of(message.expiration_policy, "ttl")
    if ttl is None:
        return None
    in_bounds("ttl", ttl, max(limits.EXPIRATION_TTL_SECONDS_MIN, retention), float("inf"), "s")
    return whole_seconds(ttl)


def _dead_letter(message: pubsub.Subscription) -> DeadLetter | None:
    policy = message.dead_letter_policy
    if not message.HasField("dead_letter_policy") or policy.ByteSize() == 0:
        message.ClearField("dead_letter_policy")
        return None
    if not policy.dead_letter_topic:
        raise refused("dead_letter_policy", "The dead_letter_policy must name a dead_letter_topic.")
    # The name may be that of a deleted topic, when another field of the policy is updated.
    parse_topic(policy.dead_letter_topic)
    policy.max_delivery_attempts = policy.max_delivery_attempts or limits.DELIVERY_ATTEMPTS_DEFAULT
    bounds = limits.DELIVERY_ATTEMPTS_MIN, limits.DELIVERY_ATTEMPTS_MAX
    in_bounds("max_delivery_attempts", policy.max_delivery_attempts, *bounds)
    return DeadLetter(policy.dead_letter_topic, policy.max_delivery_attempts)


def _retry(message: pubsub.Subscription) -> Retry | None:
    if not message.HasField("retry_policy"):
        return None
    policy = message.retry_policy
    found = {}
    for field, default in (
        ("minimum_backoff", limits.RETRY_MINIMUM_BACKOFF_SECONDS_DEFAULT),
        ("maximum_backoff", limits.RETRY_MAXIMUM_BACKOFF_SECONDS_DEFAULT),
    ):
        seconds = seconds_of(policy, field)
        found[field] = default if seconds is None else seconds
        in_bounds(field, found[field], 0, limits.RETRY_BACKOFF_SECONDS_MAX, "s")
        getattr(policy, field).CopyFrom(duration(found[field]))
    low, high = found["minimum_backoff"], found["maximum_backoff"]
    in_bounds("maximum_backoff", high, low, limits.RETRY_BACKOFF_SECONDS_MAX, "s")
    return Retry(low, high)
