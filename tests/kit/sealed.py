"""Requests and responses whose data a proxy seals and opens."""

from __future__ import annotations

from syncpoint.wire.protobuf.messages import pubsub


def published(*data: bytes) -> bytes:
    made: bytes = pubsub.PublishRequest(messages=[pubsub.PubsubMessage(data=one) for one in data]).SerializeToString()
    return made


def pulled(sealed: bytes) -> bytes:
    """What a pull is answered of what was published so."""
    messages = pubsub.PublishRequest.FromString(sealed).messages
    made: bytes = pubsub.PullResponse(
        received_messages=[pubsub.ReceivedMessage(ack_id="a", message=one) for one in messages]
    ).SerializeToString()
    return made
