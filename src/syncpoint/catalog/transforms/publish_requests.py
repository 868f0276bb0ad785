"""PublishRequests on their way into a topic with transforms.

Place: before the schema of the topic is asked, and before anything is stored or sealed.
Promise: one message that cannot be transformed refuses its request as a whole. A message that a function drops is
acknowledged to its publisher, with an id that no stored message has, and goes nowhere.
"""

from __future__ import annotations

from typing import NamedTuple

from google.protobuf.message import DecodeError

from syncpoint.base.model.errors import (
    InvalidArgument,
    Unavailable,
    not_a,
)
from syncpoint.base.model.publish_rules import check_messages, check_size
from syncpoint.base.runtime.clock import Clock
from syncpoint.base.runtime.random import Random
from syncpoint.catalog.metadata.records import Topic
from syncpoint.catalog.transforms.errors import SandboxUnavailable, TransformError, TryLater
from syncpoint.catalog.transforms.message_transforms import Transformer
from syncpoint.wire.protobuf.messages import pubsub


class TransformedRequest(NamedTuple):
    """`request`: with what was not dropped, None where all was. `dropped`: for each message the id of one that was
    dropped, "" for the others.
    """

    request: bytes | None
    dropped: tuple[str, ...]

    def response(self, answer: bytes) -> bytes:
        """The PublishResponse for all messages, from that for those that were not dropped."""
        if not any(self.dropped):
            return answer
        stored = iter(pubsub.PublishResponse.FromString(answer).message_ids)
        ids = [one or next(stored) for one in self.dropped]
        response: bytes = pubsub.PublishResponse(message_ids=ids).SerializeToString()
        return response


class PublishTransforms:
    """The transforms of all topics, for what is published through one process."""

    def __init__(self, transformer: Transformer, clock: Clock, random: Random) -> None:
        self.transformer, self._clock, self._random = transformer, clock, random

    async def transformed(self, topic: Topic, request: bytes) -> TransformedRequest:
        """What is to be stored of a serialised PublishRequest. Raises `InvalidArgument` when a message cannot be
        transformed, `Unavailable` when no function can be run, or not in time.
        """
        check_size(request)
        try:
            parsed = pubsub.PublishRequest.FromString(request)
        except DecodeError:
            raise not_a("PublishRequest") from None
        check_messages(parsed.messages)
        for message in parsed.messages:
            message.ClearField("message_id")  # only the server sets it and the publish time
            message.ClearField("publish_time")
        try:
            outcomes = await self.transformer.transformed(topic, parsed.messages)
        except SandboxUnavailable as error:
            raise Unavailable(
                f"Messages cannot be transformed now: {str(error).rstrip('.')}. Nothing was stored. Try again."
            ) from None
        for index, outcome in enumerate(outcomes):
            if isinstance(outcome, TryLater):
                raise Unavailable(
                    f"Messages cannot be transformed now: {str(outcome).rstrip('.')}. Nothing was stored. Try again."
                )
            if isinstance(outcome, TransformError):
                raise InvalidArgument(f"messages[{index}]", f"Message transform failed: {outcome}")
        dropped = tuple(self._new_id() if outcome is None else "" for outcome in outcomes)
        del parsed.messages[:]
        parsed.messages.extend(outcome for outcome in outcomes if outcome is not None)  # type: ignore[misc]
        if dropped and all(dropped):
            return TransformedRequest(None, dropped)
        return TransformedRequest(parsed.SerializeToString(), dropped)

    def _new_id(self) -> str:
        """Ids of stored messages never begin with 0."""
        return f"0{self._clock.time_ns()}{self._random.randrange(0, 1_000_000):06d}"
