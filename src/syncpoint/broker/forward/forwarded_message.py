"""What a forwarded message is: the message of the source, with where it comes from and how often it was forwarded.

Place: under `forward_kind`, which decides what is sent together, and `forward_driver`, which publishes.
Promise: of a message of a subscription `sys.ForwardedFrom` is the same whoever forwards it, however often, until the
subscription is moved by a seek: what is published again is known by it (`publish.message_ids`). It is made of the ack
id alone: whoever forwards may learn of a seek later than what the seek brings back arrives.
"""

from __future__ import annotations

from collections.abc import Iterable

from syncpoint.base.model.reserved import FORWARD_COPIES, FORWARD_HOPS, FORWARDED_FROM, count_of
from syncpoint.broker.inner.lent import Lent
from syncpoint.broker.subscribe.own_copies import share
from syncpoint.catalog.metadata.records import Subscription
from syncpoint.wire.protobuf.messages import pubsub

HOPS_MAX = 4
"""How often a message is forwarded at most."""


def hops_of(message: pubsub.PubsubMessage) -> int:
    """How often a message was forwarded."""
    return count_of(message.attributes, FORWARD_HOPS)


def publish_request(target: str, source: Subscription, lent: Iterable[Lent], among: int) -> bytes:
    """The PublishRequest that carries messages of one key, or of none, to the topic `target`. `among`: how many copies
    the service makes of each."""
    request = pubsub.PublishRequest(topic=target)
    for one in lent:
        message = request.messages.add()
        message.CopyFrom(one.message)
        message.ClearField("message_id")
        message.ClearField("publish_time")
        message.attributes[FORWARDED_FROM] = one.copy.named(source.incarnation)
        message.attributes[FORWARD_HOPS] = str(hops_of(one.message) + 1)
        left = share(one.message.attributes, among)
        if left is not None:
            message.attributes[FORWARD_COPIES] = str(max(0, left))
    return request.SerializeToString()
