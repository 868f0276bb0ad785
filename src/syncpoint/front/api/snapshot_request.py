"""AckExchange.FollowSnapshot: a snapshot that was taken at another site comes to this one.

Place: a method of the control plane, as FollowSeek is; `pipeline.ack_snapshots` fills in what the snapshot holds.
Promise: until it is whole it is shown to nobody and keeps what it may hold. A snapshot of the same name with another
identity is never changed or deleted.
"""

from __future__ import annotations

from dataclasses import replace

from syncpoint.base.model.errors import AlreadyExists, FailedPrecondition, InvalidArgument, NotFound, ResourceExhausted
from syncpoint.base.model.limits import SNAPSHOT_LIFETIME_SECONDS_MAX, SNAPSHOTS_PER_TOPIC_MAX
from syncpoint.base.model.names import parse_snapshot, parse_subscription, project_of
from syncpoint.catalog.metadata.records import ACTIVE, COPYING, CatalogChange, Snapshot, Subscription
from syncpoint.catalog.metadata.snapshot_marks import WAS_DELETED, SnapshotMark, mark_of, put_mark, was_deleted
from syncpoint.cluster.control.plane import ControlPlane
from syncpoint.front.api.catalog_retries import checked_again
from syncpoint.front.api.snapshots import NOT_KEPT
from syncpoint.front.api.validate import check_labels, config_of, nanoseconds_of
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pipeline, pubsub
from syncpoint.wire.protobuf.serving import served
from syncpoint.wire.transport.calls import Methods

TEXT_MAX = 64
Step = pipeline.FollowSnapshotRequest.Step


def snapshot_copy_methods(control: ControlPlane) -> Methods:
    """The method table."""

    async def follow(asked: pipeline.FollowSnapshotRequest) -> pipeline.FollowSnapshotResponse:
        _check(asked)
        subscription = control.catalog.subscription(parse_subscription(asked.subscription))
        if subscription is None:
            raise NotFound(asked.subscription)
        if asked.step == Step.Value("BEGIN"):
            return pipeline.FollowSnapshotResponse(copy=await _begin(control, asked, subscription))
        await _go_on(control, asked, subscription)
        return pipeline.FollowSnapshotResponse()

    return served({methods.ACK_EXCHANGE.FollowSnapshot: checked_again(control, follow)}, fair=True)


def _check(asked: pipeline.FollowSnapshotRequest) -> None:
    parse_snapshot(asked.snapshot)
    for field, names in (("identity", [asked.identity]), ("known_at", asked.known_at)):
        if any(not 0 < len(one) <= TEXT_MAX for one in names):
            raise InvalidArgument(field, f"must be UNIVERSE/INCARNATION, of at most {TEXT_MAX} characters")
    if asked.step not in Step.values()[1:]:
        raise InvalidArgument("step", f"must be one of {', '.join(Step.keys()[1:])}")


async def _begin(control: ControlPlane, asked: pipeline.FollowSnapshotRequest, subscription: Subscription) -> int:
    if project_of(asked.snapshot) != project_of(subscription.name):
        raise InvalidArgument("snapshot", f"must be in the project of {subscription.name}")
    if was_deleted(control.catalog, asked.identity):  # also where another one has its name by now
        raise FailedPrecondition(f"identity: {asked.snapshot} {WAS_DELETED}.")
    known = control.catalog.snapshot(asked.snapshot)
    if known is not None and known.status != COPYING:
        raise AlreadyExists(asked.snapshot)
    same = known is not None and mark_of(control.catalog, known.incarnation).identity == asked.identity
    if known is not None and same and known.subscription == subscription.incarnation:
        await control.commits.confirm(known.topic_incarnation, control.catalog.revision)
        return known.incarnation  # somebody else copies it, too
    if len(control.catalog.snapshots_of(subscription.topic_incarnation)) >= SNAPSHOTS_PER_TOPIC_MAX:
        raise ResourceExhausted(f"Topic {subscription.topic_name} already has {SNAPSHOTS_PER_TOPIC_MAX} snapshots.")
    now_ns, labels = control.clock.time_ns(), dict(asked.labels)
    check_labels(labels)
    expire_ns = min(nanoseconds_of(asked, "expire_time"), now_ns + SNAPSHOT_LIFETIME_SECONDS_MAX * 10**9)
    if expire_ns <= now_ns:
        raise FailedPrecondition(f"expire_time: {asked.snapshot} has expired.")
    record = Snapshot(
        incarnation=control.next_incarnation(),
        name=asked.snapshot,
        topic_incarnation=subscription.topic_incarnation,
        topic_name=subscription.topic_name,
        config=config_of(pubsub.Snapshot(labels=labels), NOT_KEPT),
        created_ns=now_ns,
        expire_ns=expire_ns,
        status=COPYING,
        subscription=subscription.incarnation,
        generation=subscription.generation,
    )
    mark = SnapshotMark(asked.identity).known(tuple(asked.known_at))
    await control.begin_copy(record, put_mark(control.catalog, record.incarnation, mark))
    return record.incarnation


async def _go_on(control: ControlPlane, asked: pipeline.FollowSnapshotRequest, subscription: Subscription) -> None:
    record = control.catalog.snapshot(asked.snapshot)
    if record is None or record.subscription != subscription.incarnation:
        raise NotFound(asked.snapshot)
    mark = mark_of(control.catalog, record.incarnation)
    own = not mark.identity and asked.identity.rpartition("/")[2] == str(record.incarnation)
    if (mark.identity != asked.identity and not own) or asked.copy not in (0, record.incarnation):
        raise NotFound(asked.snapshot)
    match Step.Name(asked.step):
        case "DROP":
            await control.commit([CatalogChange.delete(record)])
        case "FINISH" if record.status == COPYING:
            changes = put_mark(control.catalog, record.incarnation, mark._replace(whole=True))
            await control.commit([*changes, CatalogChange.put(replace(record, status=ACTIVE))])
        case "CHECKED" if record.status == COPYING:
            await control.commit(put_mark(control.catalog, record.incarnation, mark._replace(checked=True)))
        case "KNOWN" if record.status == ACTIVE:
            more = mark.known(tuple(asked.known_at))._replace(identity=asked.identity, whole=True)
            await control.commit(put_mark(control.catalog, record.incarnation, more))
