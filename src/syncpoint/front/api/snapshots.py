"""Snapshots: from request to record, and from record to response.

Place: pure functions under `admin_handlers`; what was acknowledged is the control plane's to add.
"""

from __future__ import annotations

from dataclasses import replace

from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.base.model.limits import SNAPSHOT_LIFETIME_SECONDS_MAX, SNAPSHOT_LIFETIME_SECONDS_MIN
from syncpoint.base.model.names import DELETED_TOPIC, parse_snapshot
from syncpoint.catalog.metadata.records import Snapshot, Subscription, Topic
from syncpoint.front.api import masks
from syncpoint.front.api.validate import check_labels, config_of
from syncpoint.wire.protobuf.messages import pubsub

_NANOS = 10**9
NOT_KEPT = ("name", "topic", "expire_time")
_MUTABLE = frozenset({"labels"})


def check_new_snapshot(request: pubsub.CreateSnapshotRequest) -> None:
    """Check a CreateSnapshotRequest as far as it goes by itself. Raises `InvalidArgument`."""
    parse_snapshot(request.name)
    check_labels(dict(request.labels))


def new_snapshot(
    request: pubsub.CreateSnapshotRequest, subscription: Subscription, oldest_s: float, now_ns: int
) -> Snapshot:
    """A record with incarnation 0. `oldest_s`: age of the oldest message that the subscription has not acknowledged.

    A snapshot lives for a week, less the age of what it keeps. Raises `FailedPrecondition` when too little is left.
    """
    lifetime_s = SNAPSHOT_LIFETIME_SECONDS_MAX - oldest_s
    if lifetime_s < SNAPSHOT_LIFETIME_SECONDS_MIN:
        raise FailedPrecondition(
            "The oldest unacknowledged message is too old: the snapshot would expire in less than an hour. Acknowledge"
            " that message or seek past it, then try again."
        )
    return Snapshot(
        incarnation=0,
        name=request.name,
        topic_incarnation=subscription.topic_incarnation,
        topic_name=subscription.topic_name,
        config=config_of(pubsub.Snapshot(labels=dict(request.labels)), NOT_KEPT),
        created_ns=now_ns,
        expire_ns=now_ns + round(lifetime_s * _NANOS),
        subscription=subscription.incarnation,
        generation=subscription.generation,
    )


def changed_snapshot(record: Snapshot, request: pubsub.UpdateSnapshotRequest) -> Snapshot:
    """The record as an UpdateSnapshotRequest wants it. Raises `InvalidArgument`."""
    paths = masks.checked_paths(request, request.snapshot, _MUTABLE)
    message = pubsub.Snapshot.FromString(record.config)
    masks.merge(message, request.snapshot, paths)
    check_labels(dict(message.labels))
    return replace(record, config=config_of(message, NOT_KEPT))


def snapshot_message(record: Snapshot, topic: Topic | None) -> pubsub.Snapshot:
    """The pubsub.Snapshot that users see. `topic`: the topic it belongs to, None when that was deleted."""
    message = pubsub.Snapshot.FromString(record.config)
    message.name = record.name
    message.topic = DELETED_TOPIC if topic is None else record.topic_name
    message.expire_time.FromNanoseconds(record.expire_ns)
    return message
