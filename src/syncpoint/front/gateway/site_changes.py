"""What a site that was away has missed of a topic's or subscription's settings.

Place: asked by `site_fill` for sites that come back; makes requests, sends nothing.
Promise: what may differ between sites on purpose is left alone: where a site pushes or exports to, and whether it is
suspended or forwards.
"""

from __future__ import annotations

from typing import Any, Final

from syncpoint.wire.protobuf.messages import pubsub

TOPIC_FIELDS: Final = ("labels", "message_retention_duration", "message_storage_policy", "message_transforms")
SUBSCRIPTION_FIELDS: Final = (
    "ack_deadline_seconds",
    "dead_letter_policy",
    "enable_exactly_once_delivery",
    "expiration_policy",
    "labels",
    "message_retention_duration",
    "message_transforms",
    "retain_acked_messages",
    "retry_policy",
)


def topic_update(wanted: pubsub.Topic, there: pubsub.Topic) -> pubsub.UpdateTopicRequest | None:
    """What makes a site's topic as `wanted`; None: it is."""
    paths = _differing(wanted, there, TOPIC_FIELDS)
    return pubsub.UpdateTopicRequest(topic=wanted, update_mask={"paths": paths}) if paths else None


def subscription_update(
    wanted: pubsub.Subscription, there: pubsub.Subscription
) -> pubsub.UpdateSubscriptionRequest | None:
    """What makes a site's subscription as `wanted`; None: it is."""
    paths = _differing(wanted, there, SUBSCRIPTION_FIELDS)
    return pubsub.UpdateSubscriptionRequest(subscription=wanted, update_mask={"paths": paths}) if paths else None


def unlike(wanted: pubsub.Subscription, there: pubsub.Subscription) -> str:
    """Why a site's subscription does not get the messages that `wanted` gets, whatever is changed; "": it does."""
    if there.topic != wanted.topic:
        return f"is of {there.topic} there"
    if there.filter != wanted.filter:
        return "has another filter there"
    return "has another order there" if there.enable_message_ordering != wanted.enable_message_ordering else ""


def _differing(wanted: Any, there: Any, fields: tuple[str, ...]) -> list[str]:
    return [one for one in fields if getattr(wanted, one) != getattr(there, one)]
