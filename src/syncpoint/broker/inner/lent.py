"""What is lent to a consumer of the service itself, and what it reports of it.

Place: between `feed`, which brings the one and takes the other, and `inner_consumer`.
"""

from __future__ import annotations

from dataclasses import dataclass

from syncpoint.broker.subscribe.confirm import CopyId, copy_of
from syncpoint.wire.protobuf.messages import pubsub


@dataclass(frozen=True, slots=True)
class Lent:
    """A copy of a message as it was lent. `attempt`: which delivery of it this is, 0 where nobody counts."""

    ack_id: str
    copy: CopyId
    message: pubsub.PubsubMessage
    attempt: int = 0


def lent_by(response: pubsub.StreamingPullResponse) -> list[Lent]:
    """What a response to a pull lends."""
    return [
        Lent(one.ack_id, copy_of(one.ack_id), one.message, one.delivery_attempt) for one in response.received_messages
    ]


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """They are where they belong."""

    ack_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Nacked:
    """They were sent and not taken: each counts as a delivery, and is retried according to the retry policy."""

    ack_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GivenBack:
    """They were not sent, or nobody counts that: they come again at once, uncounted."""

    ack_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Extended:
    """They are still held: lend them for as long again."""

    ack_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Room:
    """Set how many messages may be lent from now on, all reported."""

    messages: int


Reported = Acknowledged | Nacked | GivenBack | Extended | Room
