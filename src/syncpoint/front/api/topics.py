"""Topics: from request to record, and from record to response.

Place: pure functions under `admin_handlers`; nothing here looks anything up or changes anything.
Promise: a record that comes out of here is legal, with defaults filled in; what users gave and this version does not
know comes back to them as it was.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.base.model.limits import TOPIC_RETENTION_SECONDS_MAX, TOPIC_RETENTION_SECONDS_MIN
from syncpoint.base.model.names import parse_topic
from syncpoint.catalog.metadata.message_rules import TRANSFORMS, accounts_asked_as
from syncpoint.catalog.metadata.records import Author, Topic
from syncpoint.front.api import masks
from syncpoint.front.api.exports import INGESTION, check_ingestion, show_ingestion
from syncpoint.front.api.validate import check_labels, config_of, in_bounds, seconds_of, whole_seconds
from syncpoint.wire.protobuf.messages import pubsub

_NOT_KEPT = ("name", "satisfies_pzs", "state", "tags")  # known from elsewhere, or for the input only
_MUTABLE = frozenset({
    "labels", "message_storage_policy", "message_retention_duration", "schema_settings", "kms_key_name",
    "message_transforms", INGESTION,
})  # fmt: skip


def new_topic(request: pubsub.Topic, now_ns: int, author: Author | None = None) -> Topic:
    """A legal record from a pubsub.Topic of this author, with incarnation 0. Raises `InvalidArgument` or
    `Unimplemented` or `FailedPrecondition`."""
    parse_topic(request.name)
    record = Topic(0, request.name, created_ns=now_ns, transform_author=author if _acts(request) else None)
    return _filled(record, request)


def changed_topic(record: Topic, request: pubsub.UpdateTopicRequest, author: Author | None = None) -> Topic:
    """The record as an UpdateTopicRequest of this author wants it. Raises `InvalidArgument` or `Unimplemented`."""
    paths = masks.checked_paths(request, request.topic, _MUTABLE)
    message = pubsub.Topic.FromString(record.config)
    masks.merge(message, request.topic, paths)
    if TRANSFORMS in paths:
        record = replace(record, transform_author=author if _acts(message) else None)
    return _filled(record, message)


def _acts(message: pubsub.Topic) -> bool:
    return bool(accounts_asked_as(message.message_transforms))


def topic_message(record: Topic) -> pubsub.Topic:
    """The pubsub.Topic that users see."""
    message = pubsub.Topic.FromString(record.config)
    message.name = record.name
    message.state = pubsub.Topic.ACTIVE
    show_ingestion(message)
    return message


def check_regions(record: Topic, here: Collection[str]) -> None:
    """Raise `FailedPrecondition` where no region that may store the messages is one of those that are here."""
    if record.regions and not set(record.regions) & set(here):
        known = "leave it empty, or start the server with --region"
        if here:
            known = f"use a region of {', '.join(sorted(here))}"
        raise FailedPrecondition(
            f"message_storage_policy.allowed_persistence_regions: no server is in {', '.join(record.regions)[:200]};"
            f" {known}."
        )


def _filled(record: Topic, message: pubsub.Topic) -> Topic:
    check_ingestion(message)
    if message.kms_key_name:
        raise FailedPrecondition("kms_key_name: this server has no key management service. Leave it empty.")
    check_labels(dict(message.labels))
    retention = seconds_of(message, "message_retention_duration")
    if retention is not None:
        bounds = TOPIC_RETENTION_SECONDS_MIN, TOPIC_RETENTION_SECONDS_MAX
        in_bounds("message_retention_duration", retention, *bounds, "s")
    policy = message.message_storage_policy
    return replace(
        record,
        config=config_of(message, _NOT_KEPT),
        retention_s=whole_seconds(retention or 0),
        regions=tuple(policy.allowed_persistence_regions),
        enforce_in_transit=policy.enforce_in_transit,
    )
