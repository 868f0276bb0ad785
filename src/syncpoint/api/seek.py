"""Subscriber.Seek: to a time, or to a snapshot of the subscription's topic."""

from collections.abc import Awaitable
from typing import Any, Protocol

from syncpoint.api.serving import checked_again, served
from syncpoint.metadata.catalog import Catalog
from syncpoint.metadata.records import CREATING, Subscription
from syncpoint.model.errors import FailedPrecondition, InvalidArgument, NotFound
from syncpoint.model.names import parse_snapshot, parse_subscription
from syncpoint.transport.calls import Methods
from syncpoint.wire.messages import pubsub


class Seeker(Protocol):
    """What moves subscriptions."""

    @property
    def catalog(self) -> Catalog: ...

    def refresh(self) -> Awaitable[None]: ...

    def seek(self, record: Subscription, *, time_ns: int | None = None, snapshot: int | None = None) -> Awaitable[None]:
        """Move it; returns when that is persisted. Raises `Conflict` when another process changed the catalog first."""
        ...


def seek_methods(control: Seeker) -> Methods:
    """The method table of Seek."""

    async def seek(asked: Any) -> Any:
        name = parse_subscription(asked.subscription)
        record = control.catalog.subscription(name)
        if record is None:
            raise NotFound(name)
        if record.detached:
            raise FailedPrecondition(f"The subscription is detached from its topic: (resource={name}).")
        match asked.WhichOneof("target"):
            case "time":
                try:
                    time_ns = asked.time.ToNanoseconds()
                except ValueError as bad:
                    raise InvalidArgument("time", str(bad)) from None
                await control.seek(record, time_ns=time_ns)
            case "snapshot":
                snapshot = control.catalog.snapshot(parse_snapshot(asked.snapshot))
                if snapshot is None or snapshot.status == CREATING:
                    raise NotFound(asked.snapshot)
                if snapshot.topic_incarnation != record.topic_incarnation:
                    raise FailedPrecondition("The snapshot belongs to another topic than the subscription.")
                await control.seek(record, snapshot=snapshot.incarnation)
            case _:
                raise InvalidArgument("", "The seek target (a time or a snapshot) must be set.")
        return pubsub.SeekResponse()

    return {b"/google.pubsub.v1.Subscriber/Seek": served(pubsub.SeekRequest, checked_again(control, seek))}
