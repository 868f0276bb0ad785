"""Subscriber.Seek: to a time, or to a snapshot of the subscription's topic; and what it would change.

Place: Seek is a method of the Subscriber; PreviewSeek a part of syncpoint.admin.v1, mounted by `server_admin`.
Promise: a preview is refused as the seek would be. What cannot be counted is in `unknown`, never 0.
"""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol

from google.protobuf.message import Message

from syncpoint.base.model.errors import Aborted, FailedPrecondition, InvalidArgument, NotFound, detached
from syncpoint.base.model.names import parse_snapshot, parse_subscription
from syncpoint.catalog.metadata.records import SeekTarget, Subscription
from syncpoint.catalog.metadata.seek_stamps import SeekStamp, StampedGeneration, put_stamp
from syncpoint.cluster.control.plane import ControlPlane, bounded_time_ns, is_creating
from syncpoint.front.api.catalog_retries import checked_again
from syncpoint.front.api.options_admin import Handlers, admin_table
from syncpoint.front.api.validate import nanoseconds_of
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import admin, internal, pipeline, pubsub
from syncpoint.wire.protobuf.methods import Method
from syncpoint.wire.protobuf.serving import served
from syncpoint.wire.transport.calls import Methods


class AskingAboutSeeks(Protocol):
    """Ask every chain for the effects of a seek."""

    async def seek_changes(
        self, topic: int, seek: internal.ForeseenSeek
    ) -> tuple[list[internal.DescribedChain], list[str]]:
        """What a seek would change in each chain of a topic, and what could not be found out."""
        ...


class _AskedSeek(NamedTuple):
    record: Subscription
    target: SeekTarget


def seek_methods(control: ControlPlane) -> Methods:
    """The method table of Seek, and of seeks that were made at another site."""

    async def seek(asked: pubsub.SeekRequest) -> pubsub.SeekResponse:
        record, target = _checked(control, asked)
        await control.seek(record, time_ns=target.time_ns, snapshot=target.snapshot)
        return pubsub.SeekResponse()

    async def follow(asked: pipeline.FollowSeekRequest) -> pipeline.FollowSeekResponse:
        stamp = SeekStamp(asked.stamp.number, asked.stamp.site)
        if stamp.number < 1 or not stamp.site:
            raise InvalidArgument("stamp", "must have a number of at least 1 and a site")
        record = _movable(control, asked.subscription)
        if record.generation != asked.generation:
            raise Aborted(
                f"{record.name} is in generation {record.generation} of its seeks, not {asked.generation}. Call"
                " AckChanges to see where it is."
            )
        time_ns = bounded_time_ns(nanoseconds_of(asked, "time")) if asked.HasField("time") else 0
        made = StampedGeneration(record.generation + 1, stamp)
        together = put_stamp(control.catalog, record.incarnation, made)
        await control.seek(record, time_ns=time_ns, together=together)
        return pipeline.FollowSeekResponse(generation=made.generation)

    table: dict[Method, Callable[[Any], Awaitable[Message]]] = {
        methods.SUBSCRIBER.Seek: checked_again(control, seek),
        methods.ACK_EXCHANGE.FollowSeek: checked_again(control, follow),
    }
    return served(table, fair=True)


class SeekAdmin:
    """PreviewSeek on messages; `methods()` serves it on bytes."""

    def __init__(self, control: ControlPlane, asking: AskingAboutSeeks) -> None:
        self._control, self._asking = control, asking

    def methods(self) -> Methods:
        """The method table."""
        table: Handlers = {"PreviewSeek": self.preview_seek}
        return admin_table(self._control, table)

    async def preview_seek(self, request: admin.PreviewSeekRequest) -> admin.SeekPreview:
        """PreviewSeek: added up over all chains of the topic."""
        record, target = _checked(self._control, request)
        foreseen = internal.ForeseenSeek(
            subscription=record.incarnation, time_ns=target.time_ns, snapshot=target.snapshot
        )
        chains, unknown = await self._asking.seek_changes(record.topic_incarnation, foreseen)
        answer = admin.SeekPreview(unknown=unknown)
        for one in chains:
            if not one.HasField("seek"):
                answer.unknown.append(f"chain {one.chain}: its process runs an older version that cannot count this")
            elif one.seek.unknown:
                answer.unknown.append(f"chain {one.chain}: {one.seek.unknown}")
            else:
                answer.backlog_messages += one.seek.unacknowledged
                answer.returning_messages += one.seek.returning
                answer.acknowledged_messages += one.seek.acknowledged
        return answer


def _checked(control: ControlPlane, asked: pubsub.SeekRequest | admin.PreviewSeekRequest) -> _AskedSeek:
    """Raises what a seek is refused with."""
    record = _movable(control, asked.subscription)
    match asked.WhichOneof("target"):
        case "time":
            return _AskedSeek(record, SeekTarget(time_ns=bounded_time_ns(nanoseconds_of(asked, "time"))))
        case "snapshot":
            snapshot = control.catalog.snapshot(parse_snapshot(asked.snapshot))
            if snapshot is None or is_creating(snapshot):
                raise NotFound(asked.snapshot)
            if snapshot.topic_incarnation != record.topic_incarnation:
                raise FailedPrecondition(
                    "The snapshot is of another topic than the subscription. Seek to a snapshot of the same topic,"
                    " or to a time."
                )
            return _AskedSeek(record, SeekTarget(snapshot=snapshot.incarnation))
        case _:
            raise InvalidArgument("", "The seek target (a time or a snapshot) must be set.")


def _movable(control: ControlPlane, named: str) -> Subscription:
    """A subscription that can be moved. Raises `NotFound`, `FailedPrecondition`."""
    name = parse_subscription(named)
    record = control.catalog.subscription(name)
    if record is None:
        raise NotFound(name)
    if record.detached:
        raise detached(name)
    return record
