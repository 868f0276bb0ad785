"""Subscriber.Seek: to a time, or to a snapshot of the subscription's topic."""

from syncpoint.api.catalog_retries import checked_again
from syncpoint.api.validate import nanoseconds_of
from syncpoint.control.plane import ControlPlane, is_creating
from syncpoint.model.errors import FailedPrecondition, InvalidArgument, NotFound
from syncpoint.model.names import parse_snapshot, parse_subscription
from syncpoint.transport.calls import Methods
from syncpoint.wire import methods
from syncpoint.wire.messages import pubsub
from syncpoint.wire.serving import served


def seek_methods(control: ControlPlane) -> Methods:
    """The method table of Seek."""

    async def seek(asked: pubsub.SeekRequest) -> pubsub.SeekResponse:
        name = parse_subscription(asked.subscription)
        record = control.catalog.subscription(name)
        if record is None:
            raise NotFound(name)
        if record.detached:
            raise FailedPrecondition(f"The subscription is detached from its topic: (resource={name}).")
        match asked.WhichOneof("target"):
            case "time":
                await control.seek(record, time_ns=nanoseconds_of(asked, "time"))
            case "snapshot":
                snapshot = control.catalog.snapshot(parse_snapshot(asked.snapshot))
                if snapshot is None or is_creating(snapshot):
                    raise NotFound(asked.snapshot)
                if snapshot.topic_incarnation != record.topic_incarnation:
                    raise FailedPrecondition("The snapshot belongs to another topic than the subscription.")
                await control.seek(record, snapshot=snapshot.incarnation)
            case _:
                raise InvalidArgument("", "The seek target (a time or a snapshot) must be set.")
        return pubsub.SeekResponse()

    return served({methods.SUBSCRIBER.Seek: checked_again(control, seek)}, fair=True)
