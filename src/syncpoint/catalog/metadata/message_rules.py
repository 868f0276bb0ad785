"""What a topic or a subscription does to messages, from the options that its record keeps: its transforms, and the
number by which two processes see whether they go by the same.

Place: asked once for each record, by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b

from syncpoint.wire.protobuf.messages import pubsub

Transforms = tuple[pubsub.MessageTransform, ...]
TRANSFORMS = "message_transforms"
"""The field of topics and subscriptions that has them."""
_NONE: Transforms = ()


def topic_transforms(config: bytes) -> Transforms:
    """Return the active transforms of a topic's `config`."""
    return _active(pubsub.Topic.FromString(config)) if config else _NONE


def subscription_transforms(config: bytes) -> Transforms:
    """Return the active transforms of a subscription's `config`."""
    return _active(pubsub.Subscription.FromString(config)) if config else _NONE


def _active(message: pubsub.Topic | pubsub.Subscription) -> Transforms:
    found = tuple(message.message_transforms)
    return _NONE if all(one.disabled for one in found) else found


def accounts_asked_as(transforms: Iterable[pubsub.MessageTransform]) -> tuple[str, ...]:
    """The service accounts that models are asked as."""
    return tuple(sorted({one.ai_inference.service_account_email for one in transforms} - {""}))


def stamp_of(bounds: Sequence[object] | None, transforms: Transforms) -> int:
    """A number for what messages of a topic must fit and how they are changed; 0 where neither is set."""
    if bounds is None and not transforms:
        return 0
    digest = blake2b(repr(bounds and tuple(bounds)).encode(), digest_size=8)
    for one in transforms:
        written = one.SerializeToString(deterministic=True)
        digest.update(b"%d:" % len(written) + written)
    return int.from_bytes(digest.digest()) or 1
