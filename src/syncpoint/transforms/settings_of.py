"""Which transforms a topic or a subscription has, from the options that its record keeps."""

from __future__ import annotations

from functools import lru_cache

from syncpoint.wire.messages import pubsub

_CACHED = 4_096
_NONE: tuple[pubsub.MessageTransform, ...] = ()


def topic_transforms(config: bytes) -> tuple[pubsub.MessageTransform, ...]:
    """Of a topic's `config`; nothing for those that are all disabled."""
    return _of_topic(config) if config else _NONE


def subscription_transforms(config: bytes) -> tuple[pubsub.MessageTransform, ...]:
    """Of a subscription's `config`; nothing for those that are all disabled."""
    return _of_subscription(config) if config else _NONE


@lru_cache(_CACHED)
def _of_topic(config: bytes) -> tuple[pubsub.MessageTransform, ...]:
    return _active(pubsub.Topic.FromString(config))


@lru_cache(_CACHED)
def _of_subscription(config: bytes) -> tuple[pubsub.MessageTransform, ...]:
    return _active(pubsub.Subscription.FromString(config))


def _active(message: pubsub.Topic | pubsub.Subscription) -> tuple[pubsub.MessageTransform, ...]:
    found = tuple(message.message_transforms)
    return _NONE if all(one.disabled for one in found) else found
