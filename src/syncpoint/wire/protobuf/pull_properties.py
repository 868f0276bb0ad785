"""The properties of a subscription as every StreamingPullResponse carries them: clients copy them from each one."""

from syncpoint.wire.protobuf.messages import pubsub


def _encoded(exactly_once: bool, ordered: bool) -> bytes:
    kind = pubsub.StreamingPullResponse
    properties = kind.SubscriptionProperties(
        exactly_once_delivery_enabled=exactly_once, message_ordering_enabled=ordered
    )
    encoded: bytes = kind(subscription_properties=properties).SerializeToString()
    return encoded


PROPERTIES = {(once, ordered): _encoded(once, ordered) for once in (False, True) for ordered in (False, True)}
"""By exactly-once and ordering: bytes that can follow the messages of a response, or be a response of their own."""
